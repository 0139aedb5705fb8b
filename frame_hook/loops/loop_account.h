/// Whether a loop whose passes run compiled pieces is faster so than in CPython.
///
/// A piece has a price that a pass pays each time: guards are asked, arrays are made, locals are written back. CPython
/// pays for each operation of the array library instead. An account adds up, for one run of a function, what the pieces
/// save by an estimate (cache/savings.h). After some passes of a loop the account
/// says whose the loop is, and the cache of the code remembers it, until the function is called with something four
/// times as large.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "frame_hook/cache/code_cache.h"
#include "frame_hook/function_state.h"

namespace fj {

/// Whether loops may be no part of a graph, but regions or CPython's. A function that follows branches, or that may break
/// nowhere (fullgraph), has no other way to run, and a back end of the user's is asked for whatever it costs.
bool loops_may_leave(const FunctionState& state, const Options& options);

/// What a function is given, as one number: elements of its arrays, lengths of its containers, its ints.
std::int64_t magnitude(std::span<PyObject* const> values);
/// The types of it, as one number: of the elements of arrays and of the first items of lists too.
std::uint64_t kinds_of(std::span<PyObject* const> values);

class LoopAccount {
 public:
  static constexpr int kPasses = 8;  // of a loop, before it is judged

  explicit LoopAccount(CodeCache& cache);
  LoopAccount(const LoopAccount&) = delete;
  ~LoopAccount();

  /// `symbols`: the sizes that the piece's guards found.
  void ran(const Segment& segment, std::span<const std::int64_t> symbols);
  /// Instructions that the executor ran where CPython's evaluator is faster.
  void executed(int instructions);
  /// The frame stands before this instruction. True: a loop begins here that is CPython's. `reached`: pieces that have
  /// run in functions called at breaks. No estimate knows what those save: a loop that calls such is judged as part of
  /// the whole call (segment/eager_race.h).
  bool is_cpythons(int instruction, std::uint64_t reached);
  /// The loop whose header this is, and whether the frame is in a loop around it.
  Loop loop_at(int header) const;
  bool inside_another() const { return inside_another_; }
  /// What the pieces outside of the outermost loop that the frame is in have saved.
  double saved_outside() const { return visits_.empty() ? saved_ : visits_.front().entered; }

 private:
  struct Visit {
    int loop;    // index into the cache's loops
    int passes;
    double entered, began;  // what was saved when the loop was entered, and when its passes were last judged
    std::uint64_t reached;  // when they were last judged
  };
  struct Known {
    const Segment* segment;
    int runs;
    double saved;  // in each of them, the last time it was estimated
  };

  struct Notes {
    std::vector<Visit> visits;  // of the loops that the frame is inside of, the innermost last
    std::vector<Known> known;
  };
  /// Of calls that have ended, to be written on again. They are not on the C stack, whose room bounds a recursion.
  static std::vector<std::unique_ptr<Notes>>& spare();

  CodeCache& cache_;
  std::unique_ptr<Notes> notes_;
  std::vector<Visit>& visits_;
  std::vector<Known>& known_;
  double saved_ = 0;
  bool inside_another_ = false;
};

}  // namespace fj
