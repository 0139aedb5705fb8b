/// What a running program asks of the array library whose arrays it works on: the interface between
/// `runtime`, which knows no Python, and the front ends, which implement it. All calls are made
/// with the GIL held, on the calling thread, where nothing else is said.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/base/dtype.h"

namespace fj {

/// A device is the ordinal of a CUDA device, or this.
inline constexpr int kHost = -1;

/// An array of the user's library. `object` is owned by whoever holds the ArrayRef by convention of
/// the call that made it (a PyObject* in practice); `data` points at the element with index 0.
struct ArrayRef {
  void* data = nullptr;
  void* object = nullptr;
  bool given = false;  // of a library call's operand: it is, or shows, an array that the program was given
  bool zeros = false;  // of allocate_zeros
};

class Host {
 public:
  virtual ~Host() = default;

  /// A new array with storage of its own, `strides` in elements. `output` is the index of the graph
  /// output it is for, or -1 for an operand of an extern call: it decides the library (NumPy or torch).
  /// Null object: failed, a Python error is set.
  virtual ArrayRef allocate(int output, DType dtype, std::span<const std::int64_t> shape,
                            std::span<const std::int64_t> strides) = 0;

  /// The same, of zeros, where the library has them for less than filling them takes. Null object: it has not, and no
  /// Python error is set.
  virtual ArrayRef allocate_zeros(int /*output*/, DType /*dtype*/, std::span<const std::int64_t> /*shape*/,
                                  std::span<const std::int64_t> /*strides*/) {
    return {};
  }

  /// A view of `array`: sizes, strides and offset from its element 0 in elements. A new reference; null object: failed.
  virtual ArrayRef view(const ArrayRef& array, DType dtype, std::span<const std::int64_t> shape,
                        std::span<const std::int64_t> strides, std::int64_t offset) = 0;

  /// Runs extern call `handle` on `operands`; fills `results` (new references). Checks the results'
  /// dtype, sizes and strides against the expectation recorded with the handle. False: failed or
  /// unexpected; the program is abandoned and the frame runs eagerly.
  virtual bool call_extern(std::int64_t handle, std::span<const ArrayRef> operands,
                           std::span<const std::int64_t> symbols, std::span<ArrayRef> results) = 0;

  /// The library's current stream on a device, for kernels that are launched there.
  virtual void* stream(int /*device*/) { return nullptr; }

  /// Tells a profiler of the host's that what is named begins; what is returned ends it.
  virtual void* begin_range(const std::string& /*name*/) { return nullptr; }
  virtual void end_range(void* /*range*/) {}

  /// Others may use the host until `lock`, and no other function of this interface is called (HostLock). False: not
  /// in this run.
  virtual bool unlock() { return false; }
  virtual void lock() {}
  /// Whether the program may write only when `may_write` has said so, if others had the host before. Needs no lock.
  virtual bool asks_again() const { return false; }
  /// Whether what the program rests on is as it was; of a host that does not ask, or has not been let go of, true.
  virtual bool may_write() { return true; }
  /// Whether `interrupted` may find a signal on this thread. Needs no lock.
  virtual bool handles_signals() const { return false; }
  /// Handles the signals that have come. True: a handler ends the call; run() returns kInterrupted.
  virtual bool interrupted() { return false; }

  virtual void retain(void* object) = 0;
  virtual void release(void* object) = 0;
};

}  // namespace fj
