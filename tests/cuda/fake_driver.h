/// A driver that records what it is told and runs kernels in the emulation: the layer between a compiled program and
/// libcuda, without a GPU.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "codegen/cuda/compile_cuda.h"

namespace fj::test {

/// One at a time.
class FakeDriver {
 public:
  FakeDriver();
  ~FakeDriver();

  /// The calls so far, one line each, without those that open the device.
  std::vector<std::string> calls;
  /// The function that fails, and with what code.
  std::string failing;
  int code = 0;
  int compiled = 0;  // texts
  bool capturing = false;  // streams are recorded
  int capture_mode = 0;
  int graphs = 0, executables = 0;  // there are
  // What measuring has: the device's clock, what a launch takes, and how much memory is not given back.
  float clock = 0;
  std::function<float(const std::string& kernel, unsigned threads)> cost;
  int blocks = 0, events = 0;

  /// Device 1, whose kernels are compiled for the emulation.
  CudaOptions options();

  cuda::Driver& table() { return table_; }

 private:
  cuda::Driver table_;
};

}  // namespace fj::test
