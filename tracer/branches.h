/// Branches on data in one graph: a function is traced down each way that its branches allow, and the ways are joined.
///
///     if x.sum() > 0:          graph: %2 = gt %1, 0          both ways are traced whole, from the start, since a
///         y = x * 2                   %3 = cond %2, %x {     trace can't be copied in the middle; up to the branch
///     else:                             then(%x) {...}       they are equal, and what lies behind it becomes the
///         y = x - 1                     else(%x) {...}       two bodies of a `cond`.
///     return y + 1                   }
///
/// Ways are joined that return in the same form: as many arrays of equal types and layouts, made anew, and the same of
/// everything else, with nothing changed outside. Otherwise the branch is the break that it is elsewhere.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph_ir/graph.h"
#include "guards/source.h"

namespace fj {

struct TraceRequest;
class GuardSet;
class Segment;
class TraceRun;

/// A way that meets more branches is not followed to its end.
inline constexpr std::size_t kMostWays = 16;

/// One way through the function.
struct TracedWay {
  struct Branch {
    ValueId condition;                 // bool[]
    bool outcome;
    std::size_t nodes, values;         // of the graph when it was met
    Location location;
  };
  std::shared_ptr<SourceTable> sources;  // of all ways
  std::vector<bool> decisions;           // of the first branches; the others are true
  std::vector<SourceRef> inputs;         // arrays that some way reads: all ways do, first
  std::vector<Branch> met;
  /// Puts the other ways into the graph, when it is as captured.
  std::function<void(Graph&, GuardSet&, Segment&)> join;
};

/// Asks the way how this branch goes.
bool take_way(TraceRun& t, ValueId condition);

/// The piece with all ways. Null, with the reason: they can't be joined. `trace_one` traces one way.
std::unique_ptr<Segment> trace_ways(const TraceRequest& request, std::string& why,
                                    const std::function<std::unique_ptr<Segment>(const TraceRequest&)>& trace_one);

}  // namespace fj
