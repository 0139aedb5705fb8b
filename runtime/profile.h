/// What the runs of programs take, step by step, while a profile is on.
///
/// Counts only grow while any profile is on, and are forgotten when the last one ends: what happened during one profile
/// is the difference of two snapshots, so that profiles may overlap, on any threads. Every thread's runs count.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/program.h"

namespace fj {

struct StepProfile {
  StepAccount account;
  std::int64_t runs = 0, nanoseconds = 0;
  std::int64_t read_bytes = 0, written_bytes = 0, float_operations = 0;  // of all runs, by the sizes of each
};

struct ProgramProfile {
  std::uint64_t id = 0;  // of the program, never used again
  std::string name;      // of its graph
  bool on_device = false;
  std::int64_t runs = 0, nanoseconds = 0;  // of whole runs, memory and library calls among them
  std::vector<StepProfile> steps;
};

namespace detail {
inline std::atomic<int> profiles_on{0};
}
inline bool is_profiling() { return detail::profiles_on.load(std::memory_order_relaxed) != 0; }

void begin_profile();
void end_profile();
/// By program, in the order of their first runs.
std::vector<ProgramProfile> profile_so_far();

/// A number for each thing that is counted.
std::uint64_t new_profile_id();
/// A run that is one step whose arrays are not known before it has run.
void count_profiled_run(std::uint64_t program, const std::string& name, const StepAccount& account,
                        std::int64_t nanoseconds);

/// One run of a program, counted when it is finished. Of one thread; `add_part` from any.
class ProfiledRun {
 public:
  /// `on_device`: its kernels run on a device, which every step is then waited for.
  ProfiledRun(std::uint64_t program, const std::string& name, std::span<const StepAccount> accounts, bool on_device);
  ProfiledRun(const ProfiledRun&) = delete;

  /// "exp, mul (model.py:12)" of the steps of the accounts [first, first + count).
  std::string label(int first, int count) const;
  /// What follows until `end` is the steps of the accounts [first, first + count).
  void start() { started_ = nanoseconds_now(); }
  /// The time since `start` goes to the steps by what `add_part` was told of each.
  void end(int first, int count);
  /// Of step `account`, which runs beside others between `start` and `end`.
  void add_part(int account, std::int64_t nanoseconds) {
    parts_[std::size_t(account)].fetch_add(nanoseconds, std::memory_order_relaxed);
  }
  /// Counts it, with the values of the symbols. Without it the run is not counted.
  void finish(std::span<const std::int64_t> symbols);

 private:
  const std::uint64_t program_;
  const std::string& name_;
  const std::span<const StepAccount> accounts_;
  const bool on_device_;
  const std::int64_t begun_;
  std::int64_t started_ = 0;
  std::vector<std::int64_t> nanoseconds_;       // by account
  std::vector<std::atomic<std::int64_t>> parts_;
};

}  // namespace fj
