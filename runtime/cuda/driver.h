/// NVIDIA's driver as a table of functions: libcuda's, opened when a device is first needed, or a test's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace fj::cuda {

struct Driver {
#define FJ_CUDA_DRIVER(member, called, parameters) int (*member) parameters = nullptr;
#include "runtime/cuda/driver.def"

  /// Throws DeviceError with what was being done and the driver's own words, if `code` is one of failure.
  void check(int code, const std::string& doing) const;
};

/// The process's libcuda, initialised. Null: `missing` says why in one sentence.
const Driver* driver(std::string& missing);

}  // namespace fj::cuda
