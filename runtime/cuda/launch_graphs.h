/// CUDA graphs of a program's launches (mode="reduce-overhead"): launches that follow each other are issued by one call
/// of the driver.
///
/// The graphs are built from kernel nodes in a row, never by capturing a stream, so nothing of the user's is recorded.
/// A sequence of kernels on a stream that comes a second time gets a graph of its own; from then on a run sets the
/// parameters that differ from those of the run before (addresses of new arrays, sizes, the number of blocks) and
/// launches it. Runs under way keep what they were launched with. What the driver refuses is launched one by one from
/// then on, which gives the same results and names the kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/cuda/driver.h"
#include "runtime/device.h"

namespace fj::cuda {

/// One launch. Its arguments are `arguments` of the values of the sequence it is in, from `first` on; as many as
/// `table` of them are the first parameter, each other one is a parameter of its own.
struct KernelLaunch {
  void* function = nullptr;
  unsigned blocks = 0, threads = 0;
  std::size_t first = 0, arguments = 0, table = 0;

  std::size_t parameters() const { return table ? arguments - table + 1 : arguments; }
  /// `values`: the launch's own.
  void point(const std::uint64_t* values, void** parameters) const {
    if (table) *parameters++ = const_cast<std::uint64_t*>(values);
    for (std::size_t i = table; i < arguments; ++i) *parameters++ = const_cast<std::uint64_t*>(&values[i]);
  }

  bool operator==(const KernelLaunch&) const = default;
};

class LaunchGraphs : public LaunchRecord {
 public:
  /// `driver` has graphs, outlives this and `context` does too.
  LaunchGraphs(const Driver& driver, void* context);
  ~LaunchGraphs() override;

  /// With the context current. False: nothing was launched, and the launches are to be made one by one.
  bool launch(std::span<const KernelLaunch> launches, std::span<const std::uint64_t> values, void* stream);

 private:
  struct Sequence;
  /// 0: done. Above: what the driver has refused, just now.
  int try_launch(std::span<const KernelLaunch> launches, std::span<const std::uint64_t> values, void* stream);
  Sequence& find(std::span<const KernelLaunch> launches, void* stream, bool& fresh);
  int build(Sequence& sequence, std::span<const KernelLaunch> launches, std::span<const std::uint64_t> values) const;
  int update(Sequence& sequence, std::span<const KernelLaunch> launches, std::span<const std::uint64_t> values) const;
  void destroy(Sequence& sequence) const;

  const Driver& driver_;
  void* const context_;
  std::mutex mutex_;  // graphs are not for several threads, and those that call may let go of Python's lock
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::size_t last_ = 0;  // the one that was found last
};

}  // namespace fj::cuda
