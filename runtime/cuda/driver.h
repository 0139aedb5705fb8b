/// NVIDIA's driver as a table of functions: libcuda's, opened when a device is first needed, or a test's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace fj::cuda {

/// CUDA_KERNEL_NODE_PARAMS, as the functions without a version in their names take it: the function's context is the
/// one that is current.
struct KernelNode {
  void* function;
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  void** parameters;
  void** extra;
};

struct Driver {
#define FJ_CUDA_DRIVER(member, called, parameters) int (*member) parameters = nullptr;
#include "runtime/cuda/driver.def"

  enum class Use : std::uint8_t { graphs, measuring };
  /// The name of a function that is needed for this and that this driver has not; null: it has all.
  const char* missing_for(Use use) const;

  /// Throws DeviceError with what was being done and the driver's own words, if `code` is one of failure.
  void check(int code, const std::string& doing) const;
};

/// While it is there, what this thread asks of the driver concerns no stream that somebody records: else graphs,
/// events, memory and modules made meanwhile would end the recording of any thread.
class OtherCapturesUntouched {
 public:
  explicit OtherCapturesUntouched(const Driver& driver) : driver_(driver) { exchange(); }
  ~OtherCapturesUntouched() { exchange(); }
  OtherCapturesUntouched(const OtherCapturesUntouched&) = delete;

 private:
  void exchange() {
    if (driver_.exchange_capture_mode) driver_.exchange_capture_mode(&mode_);
  }
  const Driver& driver_;
  int mode_ = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
};

/// The process's libcuda, initialised. Null: `missing` says why in one sentence.
const Driver* driver(std::string& missing);

}  // namespace fj::cuda
