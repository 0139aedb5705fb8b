/// Where compiling spends its time: nanoseconds of each phase, summed per thread between two `take_phases`.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

namespace fj {

enum class Phase : std::uint8_t {
#define FJ_PHASE(name, sentence) name,
#include "runtime/base/phase.def"
};

constexpr int kPhases = 0
#define FJ_PHASE(name, sentence) +1
#include "runtime/base/phase.def"
    ;

using PhaseTimes = std::array<std::int64_t, kPhases>;

/// Who is told how far the compilation on this thread is; null: nobody. It may run Python, and so is set only as long
/// as the thread has the GIL.
class PhaseWatcher {
 public:
  virtual void at(const char* stage) = 0;

 protected:
  ~PhaseWatcher() = default;
};
inline thread_local PhaseWatcher* phase_watcher = nullptr;

/// Where a phase begins, and now and then within a long one.
void say_phase(Phase phase);

/// Adds the time of its life to a phase of this thread. Timers don't nest.
class PhaseTimer {
 public:
  explicit PhaseTimer(Phase phase) : phase_(phase), start_(std::chrono::steady_clock::now()) { say_phase(phase); }
  ~PhaseTimer();
  PhaseTimer(const PhaseTimer&) = delete;

 private:
  Phase phase_;
  std::chrono::steady_clock::time_point start_;
};

/// What this thread's timers have summed up; starts again at nothing.
PhaseTimes take_phases();
/// "trace 0.81, generate 2.10 ms": phases that took no time are left out.
std::string text(const PhaseTimes& times);

}  // namespace fj
