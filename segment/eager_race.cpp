#include "segment/eager_race.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "runtime/background.h"

namespace fj {
namespace {

std::function<std::uint64_t()>& given_clock() {
  static auto* clock = new std::function<std::uint64_t()>;  // never destroyed: it may hold a Python object
  return *clock;
}

std::string duration(std::uint64_t nanoseconds) {
  char text[32];
  const bool long_one = nanoseconds >= 1000000;
  std::snprintf(text, sizeof text, "%.3g %s", double(nanoseconds) * (long_one ? 1e-6 : 1e-3), long_one ? "ms" : "µs");
  return text;
}

}  // namespace

std::uint64_t comparison_clock() {
  if (given_clock()) return given_clock()();
  return std::uint64_t(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

void set_comparison_clock(std::function<std::uint64_t()> clock) { given_clock() = std::move(clock); }

EagerRace::Turn EagerRace::next() {
  if (retired_) return Turn::Retired;
  if (untimed_ < kUntimed) return ++untimed_, Turn::Untimed;
  // The quick tier is not what will run.
  if (turns_ == 0 && background_jobs() > 0) return Turn::Untimed;
  return turns_++ % 2 == 0 ? Turn::Compiled : Turn::Eager;
}

EagerRace::Verdict EagerRace::took(Turn turn, std::uint64_t nanoseconds) {
  if (turn == Turn::Compiled) {
    fallbacks_ = 0;
    compiled_ = std::min(compiled_, nanoseconds);
    compiled_calls_++;
  } else {
    eager_ = std::min(eager_, nanoseconds);
    eager_calls_++;
  }
  if (compiled_calls_ > 0 && eager_calls_ > 0 && double(eager_) > kClear * double(compiled_)) return Verdict::Keep;
  if (compiled_calls_ < kTimed || eager_calls_ < kTimed) return Verdict::Open;
  retired_ = double(compiled_) > kMargin * double(eager_);
  return retired_ ? Verdict::Retire : Verdict::Keep;
}

EagerRace::Verdict EagerRace::fell_back() {
  retired_ = ++fallbacks_ >= kTimed;
  return retired_ ? Verdict::Retire : Verdict::Open;
}

std::string EagerRace::text() const {
  if (fallbacks_ >= kTimed)
    return "its last " + std::to_string(fallbacks_) +
           " compiled calls gave up and ran eagerly after all; the option `retire` keeps it compiled if it is off";
  return "it is faster so: compiled " + duration(compiled_) + ", eagerly " + duration(eager_) + " (the least of " +
         std::to_string(kTimed) + " calls each); the option `retire` keeps it compiled if it is off";
}

}  // namespace fj
