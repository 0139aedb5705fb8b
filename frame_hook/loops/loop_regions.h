/// Loops that run as regions: found by what the frame holds at the header, entered, and left with the frame as CPython
/// would have it there.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "codegen/llvm/region.h"
#include "cpython/cpython.h"
#include "frame_hook/executor.h"
#include "frame_hook/memory_wait.h"
#include "runtime/profile.h"
#include "segment/segment.h"
#include "tracer/regions/loop_region.h"

namespace fj {

class CompiledLoop {
 public:
  /// `tier`: auto: the code is quick; once it has run many passes, code in chunks is made beside the program.
  /// optimised: it is in chunks. `threads`: that may run its passes; 0: as many as there are. `account`: the loop in
  /// the words of a profile.
  CompiledLoop(LoopRegion loop, std::unique_ptr<CompiledRegion> code, std::string tier, int threads,
               StepAccount account);

  /// Numbers too small are the one condition of NumPy's that the code does not look for: nobody may ask for it.
  static bool possible();

  enum class Outcome : std::uint8_t { Ran, Other, Loses, Failed };
  /// Runs the region if what it was made for holds of the frame. Ran: `update.slots` are the frame's new objects, and it
  /// stands before `instruction`, a call where `called` gets any, each by the one before it. Other: nothing has
  /// happened. Loses: likewise, though all holds; CPython is to run it. Failed: an error is set.
  Outcome run(PyThreadState* thread, const FrameValues& values, FrameUpdate& update, int& instruction,
              std::vector<Resumed>& called);

  const LoopRegion& loop() const { return loop_; }
  /// In the last run; 0 where they make arrays: those are counted as several, whatever they do.
  std::int64_t plain_passes() const { return makes_arrays_ ? 0 : last_passes_; }
  bool ran_on_threads() const { return on_threads_; }  // likewise
  /// For Python's garbage collector: the objects that are held.
  int traverse(visitproc visit, void* arg) const;
  /// Entering and leaving has cost more than the passes have saved.
  bool loses() const { return entries_ >= kJudged && passes_ < kWorth * entries_; }
  /// That is to be seen anew: there may be more passes now.
  void judge_again() { entries_ = passes_ = 0; }

 private:
  static constexpr std::int64_t kJudged = 16, kWorth = 4;  // passes that pay for one entry
  static constexpr std::int64_t kManyPasses = 4096;
  static constexpr std::int64_t kTimed = 16;  // each so many-th run is timed, whatever else
  static constexpr double kBrief = 20000;     // nanoseconds: what is shorter keeps the GIL

  /// As the last runs say.
  bool is_brief() const;
  /// The stack as it is before a pass that is still to run.
  bool push_iterator(std::int64_t next, std::span<const CompiledRegion::Cell> inputs,
                     std::vector<Ref<>>& places) const;
  /// That run passes, with the caller, where several do.
  int threads() const;
  /// Several are worth it for so many passes: for each order of magnitude they take turns with one, once the code is
  /// decided on.
  struct ThreadsRace {
    int turns = 0;
    double sum[2] = {}, most[2] = {};  // nanoseconds of a pass: on one thread, and on several
    /// On several threads some calls wait for a core: all count but the worst.
    bool several_win() const { return sum[1] - most[1] < sum[0] - most[0]; }
  };
  static constexpr int kThreadTurns = 16, kAskAgain = 4096;
  ThreadsRace& race_of(std::int64_t passes);
  bool takes_threads(std::int64_t passes);
  void note_threads(bool several, double nanoseconds, std::int64_t passes);
  static constexpr double kWorthThreads = 30000;  // nanoseconds on one thread
  static constexpr int kMostLost = 2;             // runs on several threads that had to be made again on one

  /// Code whose loops run in chunks. While it is compared with the other code the two take turns, because chunks cost
  /// more than they save where inner loops have few passes.
  struct Made {
    std::unique_ptr<CompiledRegion> code;
    std::atomic<bool> done = false;
  };
  struct Improved {
    std::shared_ptr<Made> made;           // of the background too; null: nobody has asked for it
    int turns = 0;
    double least[2] = {1e300, 1e300};     // nanoseconds of a pass: of the other code, and of this
    bool is_there() const { return made && made->done.load(std::memory_order_acquire); }
  };
  static constexpr int kTurns = 16;
  /// Whether to run it now.
  bool takes(Improved& improved, bool disjoint);
  static constexpr int kMostUndone = 16;  // stretches, before chunks take nothing for granted any more
  static void note_turn(Improved& improved, bool taken, double nanoseconds, std::int64_t passes);

  LoopRegion loop_;
  std::unique_ptr<CompiledRegion> code_;
  std::string tier_;
  int threads_;
  StepAccount account_;
  const std::uint64_t profile_id_ = new_profile_id();
  Improved improved_[2];                // for memories that may share elements, and for those that share none
  bool grants_ = true;                  // chunks may take something for granted: it was not so seldom enough
  int undone_ = 0;
  bool makes_arrays_ = false;
  std::vector<char> stores_;            // by memory, heaps left out: elements of it are stored
  std::size_t most_left_ = 1;  // values of an exit
  std::vector<std::pair<int, int>> apart_;  // places of objects of which an attribute is stored: not those of one
  std::int64_t entries_ = 0, passes_ = 0, last_passes_ = 0;
  double pass_ = 0;        // nanoseconds, of the last run that was timed
  double outer_pass_ = 0;  // likewise, of a pass of the outermost loop on one thread, where there may be several
  std::array<ThreadsRace, 65> races_;
  int threads_lost_ = 0;
  bool on_threads_ = false;
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
  bool given_up = false;                // no more are made
  std::vector<std::uint64_t> refused;   // kinds of the function's arguments for which none could be made
  bool refuses(std::uint64_t kinds) const {
    return given_up || std::find(refused.begin(), refused.end(), kinds) != refused.end();
  }
  /// None of them is of use, and none has to be tried.
  bool are_none(std::uint64_t kinds) const {
    const auto loses = [](const auto& one) { return one->loses(); };
    return (!made.empty() || refuses(kinds)) && std::all_of(made.begin(), made.end(), loses);
  }
};

}  // namespace fj
