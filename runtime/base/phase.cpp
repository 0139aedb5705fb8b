// Sums per thread: compiling happens on several threads at once, and each reports its own.
#include "runtime/base/phase.h"

#include <cstdio>
#include <utility>

namespace fj {
namespace {

thread_local PhaseTimes times{};

constexpr const char* names[] = {
#define FJ_PHASE(name, sentence) #name,
#include "runtime/base/phase.def"
};

}  // namespace

void say_phase(Phase phase) {
  if (phase_watcher != nullptr) phase_watcher->at(names[std::size_t(phase)]);
}

PhaseTimer::~PhaseTimer() {
  const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - start_;
  times[std::size_t(phase_)] += taken.count();
}

PhaseTimes take_phases() { return std::exchange(times, {}); }

std::string text(const PhaseTimes& taken) {
  std::string result;
  for (int phase = 0; phase < kPhases; ++phase) {
    if (taken[std::size_t(phase)] == 0) continue;
    char line[64];
    std::snprintf(line, sizeof line, "%s%s %.2f", result.empty() ? "" : ", ", names[phase],
                  double(taken[std::size_t(phase)]) * 1e-6);
    result += line;
  }
  return result.empty() ? "nothing" : result + " ms";
}

}  // namespace fj
