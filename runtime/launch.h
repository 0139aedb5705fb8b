/// A program's kernels and products on the threads of this process: into how many chunks a launch is dealt, and running
/// them.
///
/// What follows from constant sizes is planned once. Every function returns KernelStatus bits, kInterrupted among
/// them if the host ended the call meanwhile.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/compiled_program.h"
#include "runtime/host_lock.h"
#include "runtime/profile.h"

namespace fj {

struct LaunchPlan {
  std::int64_t items, items_per_chunk, chunks;
  std::size_t scratch_bytes;
  double nanoseconds;  // of one thread
  int threads;         // at most; 0: no limit
};

/// A launch over several kernels of one code: parts of them, one after the other; each chunk is some parts.
struct BatchPlan {
  struct Part {
    int kernel;
    std::int64_t begin, end;
  };
  std::vector<Part> parts;
  std::vector<int> chunks;  // where each begins in `parts`, and the end
  double nanoseconds = 0;   // of one thread
};

class Launcher {
 public:
  /// `parts` stays where it is for as long as this.
  explicit Launcher(const ProgramParts& parts);

  /// Null if the kernel's sizes depend on symbols.
  const LaunchPlan* planned(int kernel) const {
    return plans_[std::size_t(kernel)] ? &*plans_[std::size_t(kernel)] : nullptr;
  }

  /// `pointers`: by buffer of the program.
  std::uint32_t kernel(int kernel, std::span<const std::int64_t> symbols, char** pointers, HostLock& lock) const;
  /// The kernels of step `step`.
  std::uint32_t batch(int step, std::span<const std::int64_t> symbols, char** pointers, HostLock& lock) const;
  /// `profile`: of this run, or null; the account of the first step of `blocks` is `account`.
  std::uint32_t blocks(const ProgramBlocks& blocks, std::span<const std::int64_t> symbols, char** pointers,
                       HostLock& lock, ProfiledRun* profile, int account) const;
  std::uint32_t multiply(const ProgramMatmul& product, std::span<const std::int64_t> symbols, char** pointers,
                         HostLock& lock) const;
  std::uint32_t copies(const ProgramCopies& copies, std::span<const std::int64_t> symbols, char** pointers,
                       HostLock& lock) const;

 private:
  struct BatchLaunch;
  struct BlocksLaunch;
  struct CopiesLaunch;
  /// Rows [first, last) of all matrices of the batch, counted through.
  std::uint32_t multiply_rows(const ProgramMatmul& product, std::span<const std::int64_t> symbols, char** pointers,
                              std::int64_t first, std::int64_t last) const;
  LaunchPlan plan_launch(const ProgramKernel& kernel, std::span<const std::int64_t> symbols) const;
  /// Precondition: the kernels' sizes don't depend on symbols.
  BatchPlan plan_batch(const std::vector<int>& kernels) const;

  const ProgramParts& parts_;
  std::vector<std::optional<LaunchPlan>> plans_;  // by kernel
  std::vector<BatchPlan> batches_;                // by step
};

}  // namespace fj
