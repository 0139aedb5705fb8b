/// Calls of a piece that is compared with CPython (segment/eager_race.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "frame_hook/function_state.h"
#include "segment/eager_race.h"

namespace fj {

/// Whether CPython may be faster than the segment, and both do the same: it is the whole call, of which backward is no
/// part; a function that asks whether it is compiled, or follows branches, has no other way to run. Sizes are
/// constants: of two calls one may be tiny, one large.
bool may_be_slower(const Segment& segment, const Options& options, bool own_backend);

/// One call of a segment that has an EagerRace.
class ComparedCall {
 public:
  ComparedCall(const FunctionState& state, std::shared_ptr<const Segment> segment);
  bool eagerly() const { return turn_ == EagerRace::Turn::Eager; }
  /// CPython does the compiled call's work again.
  void fell_back();
  /// The call is done as it should be. Others may have decided meanwhile.
  void finished();

 private:
  std::shared_ptr<const Segment> segment_;
  std::shared_ptr<Events> events_;  // the call may drop the function's state
  std::string name_;
  EagerRace::Turn turn_;
  std::uint64_t began_ = 0;
};

}  // namespace fj
