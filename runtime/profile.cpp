#include "runtime/profile.h"

#include <mutex>
#include <unordered_map>

#include "runtime/base/fork_lock.h"

namespace fj {

namespace {

struct Record {
  std::mutex mutex;
  std::vector<ProgramProfile> programs;
  std::unordered_map<std::uint64_t, std::size_t> places;  // by program
};

Record& record() {
  static auto* all = [] {
    auto* made = new Record;  // threads may run programs until the process has ended
    keep_over_forks(made->mutex);
    return made;
  }();
  return *all;
}

/// With the record's lock.
ProgramProfile& entry(std::uint64_t id, const std::string& name, std::span<const StepAccount> accounts,
                      bool on_device) {
  const auto [place, added] = record().places.try_emplace(id, record().programs.size());
  if (added) {
    ProgramProfile& made = record().programs.emplace_back();
    made.id = id, made.name = name, made.on_device = on_device;
    for (const StepAccount& account : accounts) made.steps.emplace_back().account = account;
  }
  return record().programs[place->second];
}

}  // namespace

std::uint64_t new_profile_id() {
  static std::atomic<std::uint64_t> count{0};
  return count.fetch_add(1, std::memory_order_relaxed);
}

void count_profiled_run(std::uint64_t id, const std::string& name, const StepAccount& account,
                        std::int64_t nanoseconds) {
  std::lock_guard lock(record().mutex);
  if (!is_profiling()) return;
  ProgramProfile& program = entry(id, name, {&account, 1}, false);
  program.runs++, program.steps[0].runs++;
  program.nanoseconds += nanoseconds, program.steps[0].nanoseconds += nanoseconds;
}

void begin_profile() { detail::profiles_on.fetch_add(1); }

void end_profile() {
  std::lock_guard lock(record().mutex);
  if (detail::profiles_on.fetch_sub(1) != 1) return;
  record().programs.clear();
  record().places.clear();
}

std::vector<ProgramProfile> profile_so_far() {
  std::lock_guard lock(record().mutex);
  return record().programs;
}

ProfiledRun::ProfiledRun(std::uint64_t program, const std::string& name, std::span<const StepAccount> accounts,
                         bool on_device)
    : program_(program),
      name_(name),
      accounts_(accounts),
      on_device_(on_device),
      begun_(nanoseconds_now()),
      nanoseconds_(accounts.size()),
      parts_(accounts.size()) {}

std::string ProfiledRun::label(int first, int count) const {
  std::string text;
  const StepAccount& last = accounts_[std::size_t(first + count - 1)];
  for (int i = first; i < first + count; ++i) {
    const StepAccount& account = accounts_[std::size_t(i)];
    const std::vector<std::string> own{account.kind == "call" ? account.name : account.kind};
    for (const std::string& operation : account.operations.empty() ? own : account.operations)
      text += (text.empty() ? "" : ", ") + operation;
  }
  if (!last.module.empty()) text = last.module + ": " + text;
  if (!last.lines.empty()) text += " (" + last.lines.back().substr(last.lines.back().find_last_of("/\\") + 1) + ")";
  return text;
}

void ProfiledRun::end(int first, int count) {
  const std::int64_t passed = nanoseconds_now() - started_;
  if (count == 1) {
    nanoseconds_[std::size_t(first)] += passed;
    return;
  }
  double all = 0;
  for (int i = first; i < first + count; ++i) all += double(parts_[std::size_t(i)].load(std::memory_order_relaxed));
  for (int i = first; i < first + count; ++i) {
    const double share = all > 0 ? double(parts_[std::size_t(i)].load(std::memory_order_relaxed)) / all : 1.0 / count;
    nanoseconds_[std::size_t(i)] += std::int64_t(share * double(passed));
  }
}

void ProfiledRun::finish(std::span<const std::int64_t> symbols) {
  const std::int64_t passed = nanoseconds_now() - begun_;
  std::lock_guard lock(record().mutex);
  if (!is_profiling()) return;
  ProgramProfile& program = entry(program_, name_, accounts_, on_device_);
  program.runs++;
  program.nanoseconds += passed;
  for (std::size_t i = 0; i < accounts_.size(); ++i) {
    StepProfile& step = program.steps[i];
    step.runs++;
    step.nanoseconds += nanoseconds_[i];
    step.read_bytes += step.account.read.evaluate(symbols);
    step.written_bytes += step.account.written.evaluate(symbols);
    if (step.account.work) step.float_operations += step.account.work->evaluate(symbols);
  }
}

}  // namespace fj
