// One walk backwards: a node is live if it must happen or if something live reads it.
#include "graph_ir/passes/dce.h"

#include "graph_ir/ops.h"
#include "graph_ir/rules/conditions.h"

namespace fj {

bool dce(Graph& graph, bool conditions) {
  std::vector<const Node*> definition(graph.value_count(), nullptr);
  for (const Node& node : graph.nodes)
    for (ValueId result : node.results) definition[result.index] = &node;

  std::vector<bool> used(graph.value_count(), false);
  for (const Output& output : graph.outputs) used[output.value.index] = true;
  for (const Write& write : graph.writes) used[write.value.index] = true;

  std::vector<bool> live(graph.nodes.size());
  bool changed = false;
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    live[i] = (row(node.op).effect == OpEffect::Extern && !graph.spare_calls.count(node.results[0])) ||
              may_fail(graph, definition, node) ||
              (conditions && may_raise_condition(graph, node));
    for (ValueId result : node.results) live[i] = live[i] || used[result.index];
    changed = changed || !live[i];
    if (live[i])
      for (ValueId operand : node.operands) used[operand.index] = true;
  }
  if (!changed) return false;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < live.size(); ++i)
    if (live[i]) {
      if (kept != i) graph.nodes[kept] = std::move(graph.nodes[i]);
      ++kept;
    }
  graph.nodes.resize(kept);
  return true;
}

}  // namespace fj
