#include "codegen/schedule/assembly.h"

#include <algorithm>

#include "codegen/schedule/index_maps.h"
#include "runtime/base/budget.h"

namespace fj {

using loop::Affine;
using loop::Index;

namespace {

// Fewer parts are loops: the consumer reads them where they are, and what they are is computed there.
constexpr std::size_t kManyParts = 9;

AssembledPart whole(const Graph& graph, ValueId value) {
  const Dims& shape = graph.type(value).shape;
  const Index index = identity_index(shape.size());
  return {value, index, shape, index};
}

}  // namespace

std::vector<AssembledPart> assembled_parts(const Graph& graph, const std::vector<int>& node_of, ValueId value,
                                           const std::function<bool(ValueId)>& is_link) {
  std::vector<AssembledPart> parts;
  const auto node_at = [&](ValueId id) {
    return node_of[id.index] < 0 ? nullptr : &graph.nodes[std::size_t(node_of[id.index])];
  };
  const Node* node = node_at(value);
  if (node->op == Op::concat) {
    if (node->operands.size() < kManyParts) return {};
    const auto axis = std::size_t(node->attrs.get<std::int64_t>("axis"));
    SymDim begin(0);
    for (ValueId operand : node->operands) {
      parts.push_back(whole(graph, operand));
      parts.back().to[axis] = parts.back().to[axis] + Affine(begin);
      begin = begin + parts.back().sizes[axis];
    }
    return parts;
  }
  for (; node != nullptr && node->op == Op::slice_update; node = is_link(value) ? node_at(value) : nullptr) {
    parts.push_back(whole(graph, node->operands[1]));
    parts.back().to = update_index(*node);
    value = node->operands[0];
  }
  if (parts.size() < kManyParts) return {};
  parts.push_back(whole(graph, value));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

void look_through_views(const Graph& graph, const std::vector<int>& node_of, AssembledPart& part,
                        const std::function<bool(ValueId)>& in_memory) {
  while (!in_memory(part.value)) {
    Budget::spend(1);
    const Node& node = graph.nodes[std::size_t(node_of[part.value.index])];
    if (node.op != Op::broadcast && node.op != Op::transpose && node.op != Op::slice && node.op != Op::windows &&
        node.op != Op::reshape)
      return;
    auto from = operand_index(graph, node, part.from);
    if (!from) return;
    part.from = std::move(*from);
    part.value = node.operands[0];
  }
}

}  // namespace fj
