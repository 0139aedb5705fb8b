// One walk backwards: a node is live if it must happen or if something live reads it.
#include "graph_ir/passes/dce.h"

#include <algorithm>

#include "graph_ir/ops.h"
#include "graph_ir/rules/conditions.h"

namespace fj {

namespace {

std::vector<const Node*> definitions(const Graph& graph) {
  std::vector<const Node*> result(graph.value_count(), nullptr);
  for (const Node& node : graph.nodes)
    for (ValueId value : node.results) result[value.index] = &node;
  return result;
}

/// Whether the node happens though nobody reads what it gives.
bool must_happen(const Graph& graph, const std::vector<const Node*>& definition, const Node& node, bool conditions) {
  if (!node.bodies.empty())
    return std::any_of(node.bodies.begin(), node.bodies.end(), [&](const std::shared_ptr<const Graph>& body) {
      const std::vector<const Node*> inner = definitions(*body);
      return std::any_of(body->nodes.begin(), body->nodes.end(),
                         [&](const Node& each) { return must_happen(*body, inner, each, conditions); });
    });
  return (row(node.op).effect == OpEffect::Extern && !graph.spare_calls.count(node.results[0])) ||
         may_fail(graph, definition, node) || (conditions && may_raise_condition(graph, node));
}

}  // namespace

bool dce(Graph& graph, bool conditions) {
  const std::vector<const Node*> definition = definitions(graph);

  std::vector<bool> used(graph.value_count(), false);
  for (const Output& output : graph.outputs) used[output.value.index] = true;
  for (const Write& write : graph.writes) used[write.value.index] = true;

  std::vector<bool> live(graph.nodes.size());
  bool changed = false;
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    live[i] = must_happen(graph, definition, node, conditions);
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
