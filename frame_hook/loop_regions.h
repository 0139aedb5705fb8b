/// Loops that run as regions: found by what the frame holds at the header, entered, and left with the frame as CPython
/// would have it there.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "codegen/llvm/region.h"
#include "cpython/cpython.h"
#include "frame_hook/memory_wait.h"
#include "runtime/profile.h"
#include "segment/segment.h"
#include "tracer/regions/loop_region.h"

namespace fj {

class CompiledLoop {
 public:
  /// `improves`: the code is quick; once it has run many passes, optimised code is made beside the program. `account`:
  /// the loop in the words of a profile.
  CompiledLoop(LoopRegion loop, std::unique_ptr<CompiledRegion> code, bool improves, StepAccount account);

  /// Numbers too small are the one condition of NumPy's that the code does not look for: nobody may ask for it.
  static bool possible();

  enum class Outcome : std::uint8_t { Ran, Other, Failed };
  /// Runs the region if what it was made for holds of the frame. Ran: `update.slots` are the frame's new objects, and it
  /// stands before `instruction`. Other: nothing has happened. Failed: an error is set.
  Outcome run(PyThreadState* thread, const FrameValues& values, FrameUpdate& update, int& instruction);

  const LoopRegion& loop() const { return loop_; }
  /// For Python's garbage collector: the objects that are held.
  int traverse(visitproc visit, void* arg) const;
  /// Entering and leaving has cost more than the passes have saved.
  bool loses() const { return entries_ >= kJudged && passes_ < kWorth * entries_; }

 private:
  static constexpr std::int64_t kJudged = 16, kWorth = 4;  // passes that pay for one entry
  static constexpr std::int64_t kManyPasses = 4096;
  static constexpr std::int64_t kTimed = 16;  // each so many-th run is timed, whatever else
  static constexpr double kBrief = 20000;     // nanoseconds: what is shorter keeps the GIL

  /// As the last runs say.
  bool is_brief() const;

  /// Whether to run the optimised code now. There is a choice while the two are compared: they take turns, because
  /// chunks cost more than they save where inner loops have few passes.
  bool takes_improved();
  void note_turn(bool improved, double nanoseconds, std::int64_t passes);
  struct Improved {
    std::unique_ptr<CompiledRegion> code;
    std::atomic<bool> made = false;
  };
  static constexpr int kTurns = 16;

  LoopRegion loop_;
  std::unique_ptr<CompiledRegion> code_;
  bool improves_;
  StepAccount account_;
  const std::uint64_t profile_id_ = new_profile_id();
  std::shared_ptr<Improved> improved_;  // of the background too
  int turns_ = 0;
  double least_[2] = {1e300, 1e300};    // nanoseconds of a pass: of the quick code, and of the optimised
  std::size_t most_left_ = 1;  // values of an exit
  std::vector<std::pair<int, int>> apart_;  // places of objects of which an attribute is stored: not those of one
  std::int64_t entries_ = 0, passes_ = 0, last_passes_ = 0;
  double pass_ = 0;  // nanoseconds, of the last run that was timed
};

/// The regions of one loop, by the types they were made for.
class LoopRegions {
 public:
  static constexpr std::size_t kKinds = 4;
  static constexpr int kTries = 8;
  /// Those that have been made, the last used first.
  std::vector<std::shared_ptr<CompiledLoop>> made;
  int tries = 0;
  MemoryWait memory;
  bool given_up = false;
};

}  // namespace fj
