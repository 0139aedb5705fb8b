/// NVIDIA's run-time compiler, opened when the first kernel is compiled: CUDA C++ text to the machine code of one
/// architecture.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fj::cuda {

struct Compiled {
  std::string cubin;  // ELF
  std::string ptx;    // if figures were asked for
  std::string log;    // the compiler's messages
  std::string error;  // a sentence; empty: compiled
};

class Nvrtc {
 public:
  /// `folders`: where packages have put it, tried before the loader's own places.
  explicit Nvrtc(const std::vector<std::string>& folders);

  /// Why it can't be used: one sentence that says what to install; empty if it can.
  const std::string& missing() const { return missing_; }
  /// "12.9".
  const std::string& version() const { return version_; }

  /// `architecture`: 90 for sm_90. No contraction of the user's operations, divisions and roots rounded correctly,
  /// denormals kept. Several threads may compile at once.
  Compiled compile(std::string_view source, int architecture, bool figures = false) const;

 private:
  std::string missing_, version_;
  struct Functions* functions_ = nullptr;
};

/// What a cubin says of one of its kernels.
struct KernelFigures {
  int registers = -1;
  int local_bytes = -1;   // spills and arrays in memory, per thread
  int shared_bytes = -1;
};

/// From the cubin's ELF sections; registers < 0: not found.
KernelFigures kernel_figures(std::string_view cubin, const std::string& kernel);

}  // namespace fj::cuda
