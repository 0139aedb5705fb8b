// One walk backwards: a node is live if it must happen or if something live reads it.
#include "graph_ir/passes/dce.h"

#include "graph_ir/evaluate.h"
#include "graph_ir/ops.h"
#include "graph_ir/rules/conditions.h"

namespace fj {
namespace {

bool is_nonzero_constant(const Graph& graph, const std::vector<const Node*>& definition, ValueId value) {
  const Node* node = definition[value.index];
  while (node && node->op == Op::broadcast) node = definition[node->operands[0].index];
  if (!node || node->op != Op::constant) return false;
  const DType dtype = graph.type(node->results[0]).dtype;
  return scalar_array(dtype, node->attrs.get<Scalar>("value")) != scalar_array(dtype, std::int64_t{0});
}

bool may_fail(const Graph& graph, const std::vector<const Node*>& definition, const Node& node) {
  if (row(node.op).effect != Effect::Fallible) return false;
  if (row(node.op).lowering != Lowering::Pointwise) return true;
  if (is_float(graph.type(node.operands[0]).dtype)) return false;
  return !is_nonzero_constant(graph, definition, node.operands[1]);
}

}  // namespace

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
    live[i] = row(node.op).effect == Effect::Extern || may_fail(graph, definition, node) ||
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
