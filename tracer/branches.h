/// Branches and loops on data in one graph: a function is traced down each way that its branches allow, and the ways
/// are joined.
///
///     if x.sum() > 0:          graph: %2 = gt %1, 0          both ways are traced whole, from the start, since a
///         y = x * 2                   %3 = cond %2, %x {     trace can't be copied in the middle; up to the branch
///     else:                             then(%x) {...}       they are equal, and what lies behind it becomes the
///         y = x - 1                     else(%x) {...}       two bodies of a `cond`.
///     return y + 1                   }
///
/// Ways are joined that return in the same form: as many arrays of equal types and layouts, made anew, and the same of
/// everything else, with nothing changed outside. Otherwise the branch is the break that it is elsewhere.
///
/// A loop whose end data decide has too many ways. Its header is entered with values of no certain pass for what a pass
/// changes (data_loops.h), so that one pass is a function of its own: its ways end where they come back to the header
/// or leave the loop, and become the body of a `loop`. One of the ways that leave goes on with what the loop gives.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "graph_ir/graph.h"
#include "guards/source.h"
#include "tracer/tracer.h"

namespace fj {

struct Frame;
struct LoopPlan;
struct OpenLoop;
class GuardSet;
class Segment;
class TraceRun;

/// A way that meets more branches is not followed to its end.
inline constexpr std::size_t kMostWays = 16;

/// By the code and its header: what a pass changes, as far as the ways so far have shown.
using LoopPlans = std::map<std::pair<const void*, int>, LoopPlan>;

/// One way through the function.
struct TracedWay {
  /// A state of a loop: before its first pass, as a pass reads it, and behind the loop.
  struct State {
    ValueId before, inside, behind;
  };
  struct Loop {
    std::vector<State> states;
    std::vector<ValueId> given;  // by state: what the pass makes of it
    int exit = -1;               // the instruction that follows the loop; -1: the way has not left it
  };
  /// What the way meets, in order, at so many nodes and values of its graph.
  struct Event {
    enum class Kind { Branch, Enter, Leave } kind;
    std::size_t nodes, values;
    Location location;
    ValueId condition = {};  // of a branch: bool[]
    bool outcome = false;
    std::size_t loop = 0;    // of the others, among `loops`
  };
  /// Again, Left: at a loop's header again, or behind it where another way goes on. Raise: an exception leaves the
  /// function.
  enum class End { Return, Again, Left, Raise };

  std::shared_ptr<SourceTable> sources;  // of all ways
  std::vector<bool> decisions;           // of the first branches; the others are true
  std::vector<SourceRef> inputs;         // arrays that some way reads: all ways do, first
  /// Loops on data are entered so. Null: their passes are met one by one.
  LoopPlans* plans = nullptr;
  /// A loop that was entered, by the outcomes before it and its number, and where it was left.
  using Exit = std::tuple<std::vector<bool>, std::size_t, int>;
  /// The outcomes with which a way has gone on there.
  const std::map<Exit, std::vector<bool>>* left = nullptr;
  /// Contents of arrays made before all events of which a copy stands for a view: none may be written.
  std::set<ValueId>* shown = nullptr;
  bool own_results = false;  // numbers and arrays that are returned are the program's own: see with_own_results
  /// Puts the other ways into the graph, when it is as captured.
  std::function<void(Graph&, GuardSet&, Segment&)> join;

  // ---- what the trace has met
  std::vector<Event> events;
  std::vector<Loop> loops;
  End end = End::Return;
  std::size_t ended = 0;       // of the others, at which of `loops`
  std::vector<OpenLoop> open;
  bool loops_on_data = false;  // a header was met again behind a branch

  std::vector<bool> outcomes() const;
  void clear();
};

/// What a way returns, or a tuple of it, with numbers that the program computes in place of constants, and copies in
/// place of arrays from outside: other ways return what they compute.
V with_own_results(TraceRun& t, const V& result);

/// Asks the way how this branch goes.
bool take_way(TraceRun& t, ValueId condition);

/// The piece with all ways. Null, with the reason: they can't be joined. `trace_one` traces one way.
std::unique_ptr<Segment> trace_ways(const TraceRequest& request, std::string& why,
                                    const std::function<std::unique_ptr<Segment>(const TraceRequest&)>& trace_one);

}  // namespace fj
