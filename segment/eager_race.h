/// Whether a compiled entry is faster than the call it stands for.
///
/// Work that is tiny, or one call of the library, can be faster in CPython, and so can a function of many pieces. An
/// entry of which that is thinkable has EagerRaces: after some calls that warm both sides up, a few calls run compiled
/// and are timed, and as many run in CPython *in place of* compiled (a call's effects happen once). The least time of
/// each side decides. Where an entry is kept, a call pays for the test of a pointer, or of a bit where sizes change;
/// where it is retired, CPython runs the calls from then on, most of them by their look alone: the search for the
/// segment and its guards are time of the compiled side. All with the GIL held.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace fj {

class EagerRace {
 public:
  static constexpr int kUntimed = 16;     // calls before the first timed one
  static constexpr int kTimed = 8;        // of each side, at most
  static constexpr double kClear = 3;     // times as slow in one or two calls: CPython is tried no more
  static constexpr double kPlain = 16;    // likewise, in one short call: none waits for another process so long
  static constexpr int kFew = 3;          // calls of each side, of which
  static constexpr double kEnough = 1.3;  // times as slow says the same
  /// What differs by less is timed anew, once: CPython's side, tried seldom before, may just have warmed up.
  static constexpr double kClose = 1.08;
  /// Nanoseconds. What is shorter is timed in the second of two calls of a side: the first finds the side's
  /// instructions in no cache.
  static constexpr double kLong = 100000;

  /// A long call whose passes of loops, at the least that one takes in CPython, would take kClear times as long is
  /// compared with none: that one may be minutes.
  static constexpr double kLongCall = 2000000, kPass = 15;
  static bool wins_by_passes(std::int64_t passes, double nanoseconds) {
    return nanoseconds > kLongCall && double(passes) * kPass > kClear * nanoseconds;
  }

  enum class Turn : std::uint8_t { Untimed, UntimedEager, Compiled, Eager };
  enum class Verdict : std::uint8_t { Open, Keep, Retire };

  explicit EagerRace(int untimed = kUntimed) : untimed_(untimed) {}
  /// How the next call runs: UntimedEager and Eager in CPython. Compiled and Eager: it is timed, and what it took is
  /// said; of a call that raised or could not finish, nothing is.
  Turn next();
  Verdict took(Turn turn, std::uint64_t nanoseconds);
  /// A compiled call gave up, and ran in CPython after all.
  Verdict fell_back();
  /// What was measured, for the log.
  std::string text() const;

 private:
  struct Side {
    std::array<std::uint64_t, kTimed> times{};  // the least first
    int calls = 0;
    void add(std::uint64_t nanoseconds);  // kept in order; of more than kTimed the longest go
    double least() const { return double(times[0]); }
    double third() const { return double(times[2]); }
  };

  int untimed_, turns_ = 0;
  bool warm_ = false;  // the side whose turn it is
  bool anew_ = false;
  int fallbacks_ = 0;  // one after the other
  Side compiled_, eager_;
};

/// The races of one entry: each class of sizes has its own, as what is true of 10 elements is not of 100,000.
class EagerRaces {
 public:
  explicit EagerRaces(bool sized) : sized_(sized) {}
  /// Whether calls differ in size; else the class of all is 0.
  bool sized() const { return sized_; }
  /// Sizes that differ by less than a factor of 2, mostly.
  static int size_class(std::int64_t elements);

  EagerRace::Verdict verdict(int size) {
    if (provisional_ >> size & 1) [[unlikely]] look_again(size);
    return kept_ >> size & 1      ? EagerRace::Verdict::Keep
           : retired_ >> size & 1 ? EagerRace::Verdict::Retire
                                  : EagerRace::Verdict::Open;
  }
  /// Of a class whose verdict is open.
  EagerRace& race(int size);
  /// False: nothing new.
  bool decide(int size, EagerRace::Verdict verdict);
  /// Of some class; of all that were decided.
  bool any_retired() const { return retired_ != 0; }
  bool retired() const { return retired_ != 0 && kept_ == 0; }

 private:
  void look_again(int size);

  const bool sized_;
  std::uint64_t kept_ = 0, retired_ = 0, was_retired_ = 0;  // by class
  // The code in the quick tier was slower: asked anew, once, when there is nothing to be compiled. What that code wins,
  // it wins all the more afterwards.
  std::uint64_t provisional_ = 0;
  std::map<int, EagerRace> open_;
};

/// Where in a call the clock is asked: before its segment is looked for, before the segment or CPython runs, and when
/// it is done.
enum class ClockAsked : std::uint8_t { Entered, Begun, Ended };
/// Nanoseconds since some moment.
std::uint64_t comparison_clock(ClockAsked where);
/// For tests; empty: the system's steady clock.
void set_comparison_clock(std::function<std::uint64_t(ClockAsked)> clock);

}  // namespace fj
