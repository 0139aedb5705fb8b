/// Calls of a function that are compared with CPython's (segment/eager_race.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "frame_hook/function_state.h"
#include "segment/eager_race.h"

namespace fj {

/// Where CPython may be faster than calls that begin with this segment, the races that find it out; null: none may be
/// run. CPython's results are as good, to the bounds of docs/numerics.md; a function that asks whether it is compiled,
/// or follows branches, has no other way to run, and backward is no part of what would be timed.
std::unique_ptr<EagerRaces> races_of(const Segment& segment, const Options& options, bool own_backend);

/// The class of what the call is given, for a segment that has races.
int size_class(const Segment& segment, const FrameValues& values, const GuardBindings& bindings);

/// One call that begins with a segment whose race is open for its size.
class ComparedCall {
 public:
  /// `symbols`: the sizes that the guards found. `entered`: when the search for the segment began; 0: nobody has
  /// looked.
  ComparedCall(const FunctionState& state, std::shared_ptr<const Segment> segment, int size,
               std::span<const std::int64_t> symbols, std::uint64_t entered);
  ~ComparedCall();
  ComparedCall(const ComparedCall&) = delete;
  bool eagerly() const { return turn_ == EagerRace::Turn::Eager || turn_ == EagerRace::Turn::UntimedEager; }
  /// A piece is about to run, of the innermost of such calls on this stack of frames or of what it calls: the calls
  /// may be none that can be compared.
  static void meet(const Segment& piece, std::span<const std::int64_t> symbols);
  /// The same for passes that a region has run.
  static void ran_passes(std::int64_t passes);
  /// CPython does the compiled call's work again.
  void fell_back();
  /// The call is done as it should be. Others may have decided meanwhile.
  void finished();

 private:
  bool is_timed() const { return turn_ == EagerRace::Turn::Compiled || turn_ == EagerRace::Turn::Eager; }
  bool is_open() const;
  void meets(const Segment& piece, std::span<const std::int64_t> symbols);
  void decide(EagerRace::Verdict verdict);

  std::shared_ptr<const Segment> segment_;
  std::shared_ptr<Events> events_;  // the call may drop the function's state
  std::string name_;
  int size_;
  EagerRace::Turn turn_ = EagerRace::Turn::Untimed;
  std::uint64_t began_ = 0;
  const std::chrono::steady_clock::time_point constructed_ = std::chrono::steady_clock::now();
  std::int64_t passes_ = 0;  // of regions
  PyThreadState* thread_;
  void* outer_ = nullptr;  // the call, if any, in which this one is made
};

}  // namespace fj
