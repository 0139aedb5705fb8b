/// Where a program's kernels run if not on this process's own cores: what CompiledProgram needs of a device.
///
/// Memory is the array library's (Host::allocate, for temporaries too), order is that of the library's current stream,
/// and nothing waits for the device but `status`, which only programs that can fail ask for, once, before they write
/// inputs or return.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>

#include "runtime/host.h"

namespace fj {

/// The device or its driver refused: a sentence that names the kernel and the user's line.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A kernel's machine code, known to the device that made it.
class DeviceCode {
 public:
  virtual ~DeviceCode() = default;
};

/// One run of a program, from when its device is made current to when it is left. Throws DeviceError.
class DeviceRun {
 public:
  virtual ~DeviceRun() = default;
  /// `buffers` as the kernel numbers them.
  virtual void launch(const DeviceCode& code, char* const* buffers, std::span<const std::int64_t> symbols) = 0;
  /// One launch of code that was made for several kernels: the buffers of each, in that order.
  virtual void launch_batch(const DeviceCode& code, std::span<char* const* const> kernels,
                            std::span<const std::int64_t> symbols) = 0;
  /// What a kernel writes of its buffer `buffer`.
  struct Written {
    int buffer;
    char* begin;
    std::size_t bytes;
  };
  /// Whether it is open yet how the kernel is launched best, and finding it out, by measuring launches on copies of
  /// what it writes: waits for the device.
  virtual bool is_open(const DeviceCode&) const { return false; }
  virtual void settle(const DeviceCode&, char* const* /*buffers*/, std::span<const Written>,
                      std::span<const std::int64_t> /*symbols*/) {}
  /// Launches may be kept back to be issued together: before an array they work on is released, and at the end, they
  /// are to be.
  virtual void flush() = 0;
  /// Numbers of the host for the kernels launched from here on. `from` may change when this has returned; nothing
  /// waits.
  virtual void upload(char* to, const void* from, std::size_t bytes) = 0;
  /// What the kernels launched so far have reported: waits for them.
  virtual std::uint32_t status() = 0;
  /// Waits until what was launched so far is done, unless it is only being captured.
  virtual void wait() = 0;
  /// While the library's own code runs, which may ask which device is current: as it was outside.
  virtual void pause() = 0;
  virtual void resume() = 0;
};

/// What a device keeps of a program's launches from run to run.
class LaunchRecord {
 public:
  virtual ~LaunchRecord() = default;
};

class Device {
 public:
  virtual ~Device() = default;
  /// For programs whose launches are to be issued together where they follow each other. Null if the device has no such
  /// thing.
  virtual std::unique_ptr<LaunchRecord> new_record() = 0;
  /// `status_word`: four bytes of the device's memory, null for a program that can't fail. `record`: of the program, or
  /// null.
  virtual std::unique_ptr<DeviceRun> enter(Host& host, char* status_word, LaunchRecord* record) = 0;
};

}  // namespace fj
