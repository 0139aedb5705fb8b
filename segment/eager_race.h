/// Whether a compiled entry is faster than the call it stands for.
///
/// Work that is tiny, or one call of the library, can be faster in CPython. An entry of which that is thinkable has an
/// EagerRace: after some calls that warm both sides up, a few calls run compiled and are timed, and as many run in
/// CPython *in place of* compiled (a call's effects happen once). The least time of each side decides. An entry that is
/// kept drops its EagerRace, so that a call pays for the test of one pointer; one that is retired runs in CPython from
/// then on, behind its guards. All with the GIL held.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace fj {

class EagerRace {
 public:
  /// Calls before the first timed one; further ones while code is compiled in the background.
  static constexpr int kUntimed = 16;
  static constexpr int kTimed = 8;         // of each side
  static constexpr double kMargin = 1.15;  // what CPython must win by
  static constexpr double kClear = 3;      // times as slow as one compiled call: CPython is tried no more

  enum class Turn : std::uint8_t { Untimed, Compiled, Eager, Retired };
  enum class Verdict : std::uint8_t { Open, Keep, Retire };

  /// How the next call runs. Compiled and Eager: it is timed, and what it took is said; of a call that raised or could
  /// not finish, nothing is.
  Turn next();
  Verdict took(Turn turn, std::uint64_t nanoseconds);
  /// A compiled call gave up, and ran in CPython after all.
  Verdict fell_back();
  bool retired() const { return retired_; }
  /// What was measured, for the log.
  std::string text() const;

 private:
  int untimed_ = 0, turns_ = 0;
  int compiled_calls_ = 0, eager_calls_ = 0;
  int fallbacks_ = 0;  // one after the other
  std::uint64_t compiled_ = UINT64_MAX, eager_ = UINT64_MAX;  // the least
  bool retired_ = false;
};

/// Nanoseconds since some moment.
std::uint64_t comparison_clock();
/// For tests; empty: the system's steady clock.
void set_comparison_clock(std::function<std::uint64_t()> clock);

}  // namespace fj
