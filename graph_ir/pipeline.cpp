// The table of contents of passes/.
#include "graph_ir/pipeline.h"

#include "graph_ir/passes/cse.h"
#include "graph_ir/passes/dce.h"
#include "graph_ir/passes/gather_first.h"
#include "graph_ir/passes/simplify.h"
#include "graph_ir/passes/sink_broadcasts.h"
#include "graph_ir/verify.h"
#include "runtime/base/budget.h"

namespace fj {
namespace {

template <class Pass>
void run(Graph& graph, Pass pass, [[maybe_unused]] const char* name) {
  Budget::spend(graph.nodes.size());
  pass(graph);
#ifndef NDEBUG
  check(graph, std::string("after ") + name);
#endif
}

}  // namespace

void optimise(Graph& graph, bool conditions) {
  graph.composites.clear();  // they name values, which the passes replace
  const auto remove_dead = [conditions](Graph& changed) { return dce(changed, conditions); };
#ifndef NDEBUG
  check(graph, "as captured");
#endif
  run(graph, remove_dead, "dce");  // first, so that dead users do not keep broadcasts from sinking
  run(graph, simplify, "simplify");
  run(graph, cse, "cse");
  run(graph, remove_dead, "dce");
  run(graph, sink_broadcasts, "sink_broadcasts");
  if (!conditions)
    run(graph, gather_first, "gather_first");  // behind sinking, which leaves what varies by row as narrow as it is
  run(graph, simplify, "simplify");  // both bring constants together
  run(graph, cse, "cse");
  run(graph, remove_dead, "dce");
  for (Node& node : graph.nodes)
    for (std::shared_ptr<const Graph>& body : node.bodies) {
      auto better = std::make_shared<Graph>(*body);
      optimise(*better, conditions);
      body = std::move(better);
    }
  graph.nodes.shrink_to_fit();  // its segment keeps it
  graph.composites.shrink_to_fit();
}

}  // namespace fj
