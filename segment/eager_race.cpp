#include "segment/eager_race.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <utility>

#include "runtime/background.h"

namespace fj {
namespace {

std::function<std::uint64_t(ClockAsked)>& given_clock() {
  static auto* clock = new std::function<std::uint64_t(ClockAsked)>;  // never destroyed: it may hold a Python object
  return *clock;
}

std::string duration(std::uint64_t nanoseconds) {
  char text[32];
  const bool long_one = nanoseconds >= 1000000;
  std::snprintf(text, sizeof text, "%.3g %s", double(nanoseconds) * (long_one ? 1e-6 : 1e-3), long_one ? "ms" : "µs");
  return text;
}

}  // namespace

std::uint64_t comparison_clock(ClockAsked where) {
  if (given_clock()) return given_clock()(where);
  return std::uint64_t(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

void set_comparison_clock(std::function<std::uint64_t(ClockAsked)> clock) { given_clock() = std::move(clock); }

void EagerRace::Side::add(std::uint64_t nanoseconds) {
  const int held = std::min(calls++, kTimed);
  const auto end = times.begin() + held;
  const auto place = std::upper_bound(times.begin(), end, nanoseconds);
  if (place == times.end()) return;
  std::copy_backward(place, held < kTimed ? end : end - 1, held < kTimed ? end + 1 : end);
  *place = nanoseconds;
}

EagerRace::Turn EagerRace::next() {
  if (untimed_ > 0) return --untimed_, Turn::Untimed;
  // C E E C E C C E: a function that is given two kinds of data in turn must not have each side see one of them.
  const bool eager = std::popcount(unsigned(turns_)) % 2 != 0;
  if (!std::exchange(warm_, true)) return eager ? Turn::UntimedEager : Turn::Untimed;
  warm_ = std::min(compiled_.least(), eager_.least()) > kLong;
  ++turns_;
  return eager ? Turn::Eager : Turn::Compiled;
}

EagerRace::Verdict EagerRace::took(Turn turn, std::uint64_t nanoseconds) {
  if (turn == Turn::Compiled) fallbacks_ = 0;
  (turn == Turn::Compiled ? compiled_ : eager_).add(nanoseconds);
  const int calls = std::min(compiled_.calls, eager_.calls);
  // One short call may have waited for another process.
  const bool plain = eager_.least() > kPlain * compiled_.least();
  const int fewest = plain || std::min(compiled_.least(), eager_.least()) > kLong ? 1 : 2;
  if (calls >= fewest && eager_.least() > (calls < kFew ? kClear : kEnough) * compiled_.least()) return Verdict::Keep;
  if (calls < kTimed) return Verdict::Open;
  const auto [less, more] = std::minmax({compiled_.least(), eager_.least()});
  if (more < kClose * less && !std::exchange(anew_, true)) return compiled_ = eager_ = {}, Verdict::Open;
  // What is as fast in both is CPython's. Work that differs from call to call can have given one side its easiest
  // ones: the third must say the same. The middle one of a busy machine has waited.
  const bool loses = compiled_.least() > eager_.least() && compiled_.third() >= eager_.third();
  return loses ? Verdict::Retire : Verdict::Keep;
}

EagerRace::Verdict EagerRace::fell_back() { return ++fallbacks_ >= kTimed ? Verdict::Retire : Verdict::Open; }

std::string EagerRace::text() const {
  if (fallbacks_ >= kTimed)
    return "its last " + std::to_string(fallbacks_) +
           " compiled calls gave up and ran eagerly after all; the option `retire` keeps it compiled if it is off";
  return "it is faster so: compiled " + duration(compiled_.times[0]) + ", eagerly " + duration(eager_.times[0]) +
         " (the least of " + std::to_string(kTimed) +
         " calls each); the option `retire` keeps it compiled if it is off";
}

int EagerRaces::size_class(std::int64_t elements) {
  return int(std::bit_width(std::uint64_t(std::max<std::int64_t>(elements, 0))));
}

EagerRace& EagerRaces::race(int size) {
  // The code that serves another class is warm, the caches are not.
  const bool first = open_.empty() && kept_ == 0 && was_retired_ == 0;
  return open_.try_emplace(size, first ? EagerRace::kUntimed : EagerRace::kUntimed / 4).first->second;
}

bool EagerRaces::decide(int size, EagerRace::Verdict verdict) {
  if (verdict == EagerRace::Verdict::Open) return false;
  const std::uint64_t bit = std::uint64_t{1} << size;
  open_.erase(size);
  if (verdict == EagerRace::Verdict::Keep) return kept_ |= bit, true;
  retired_ |= bit;
  if (was_retired_ & bit) return false;
  was_retired_ |= bit;
  if (background_jobs() > 0) provisional_ |= bit;
  return true;
}

void EagerRaces::look_again(int size) {
  if (background_jobs() > 0) return;
  const std::uint64_t bit = std::uint64_t{1} << size;
  provisional_ &= ~bit;
  retired_ &= ~bit;
}

}  // namespace fj
