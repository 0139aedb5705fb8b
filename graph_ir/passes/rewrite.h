/// What passes share: walking a graph in order while building it anew, with values replaced on the way.
#pragma once

#include <optional>
#include <vector>

#include "graph_ir/graph.h"

namespace fj {

/// Takes the nodes out of `graph`; the pass puts each back (`keep`), or a replacement for its result (`replace`).
/// Operands, outputs and writes follow replacements by themselves. New nodes are made with `graph.add` before
/// the node that needs them.
class Rewrite {
 public:
  explicit Rewrite(Graph& graph) : graph_(graph), old_(std::exchange(graph.nodes, {})) {
    for (std::size_t i = 0; i < graph.value_count(); ++i) replacement_.push_back({std::uint32_t(i)});
  }

  /// Calls `visit(node)` for each node, operands already replaced. It returns the value to use instead of the
  /// node's only result, or an invalid id to keep the node. Returns whether anything was replaced.
  template <class Visit>
  bool run(Visit&& visit) {
    for (Node& node : old_) {
      for (ValueId& operand : node.operands) operand = resolved(operand);
      const ValueId instead = visit(node);
      if (instead.valid()) {
        replacement_[node.results[0].index] = instead;
        changed_ = true;
      } else {
        graph_.nodes.push_back(std::move(node));
      }
    }
    for (Output& output : graph_.outputs) output.value = resolved(output.value);
    for (Write& write : graph_.writes) write.value = resolved(write.value);
    return changed_;
  }

  /// The node that made a value, among those already put back; null for inputs.
  const Node* definition(ValueId value) {
    for (; indexed_ < graph_.nodes.size(); ++indexed_)
      for (ValueId result : graph_.nodes[indexed_].results) {
        if (definition_.size() <= result.index) definition_.resize(result.index + 1, SIZE_MAX);
        definition_[result.index] = indexed_;
      }
    if (value.index >= definition_.size() || definition_[value.index] == SIZE_MAX) return nullptr;
    return &graph_.nodes[definition_[value.index]];
  }

 private:
  ValueId resolved(ValueId value) const {
    return value.index < replacement_.size() ? replacement_[value.index] : value;
  }

  Graph& graph_;
  std::vector<Node> old_;
  std::vector<ValueId> replacement_;
  std::vector<std::size_t> definition_;
  std::size_t indexed_ = 0;
  bool changed_ = false;
};

/// How often each value is used, by ValueId: operands, outputs and writes.
inline std::vector<int> use_counts(const Graph& graph) {
  std::vector<int> uses(graph.value_count(), 0);
  for (const Node& node : graph.nodes)
    for (ValueId operand : node.operands) ++uses[operand.index];
  for (const Output& output : graph.outputs) ++uses[output.value.index];
  for (const Write& write : graph.writes) ++uses[write.value.index];
  return uses;
}

}  // namespace fj
