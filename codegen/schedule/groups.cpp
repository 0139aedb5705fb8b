// What is asked of a schedule once it is made, and its text.
#include "codegen/schedule/schedule.h"
#include "graph_ir/ops.h"

namespace fj {

std::vector<std::uint32_t> Group::rows() const {
  std::vector<std::uint32_t> list;
  for (auto variable : order)
    if (!reduced[variable]) list.push_back(variable);
  return list;
}

std::vector<std::uint32_t> Group::reductions() const {
  std::vector<std::uint32_t> list;
  for (auto variable : order)
    if (reduced[variable]) list.push_back(variable);
  return list;
}

Strides input_strides(const Graph& graph, const Input& input) {
  return input.strides ? *input.strides : contiguous_strides(graph.type(input.value).shape);
}

MatmulOperand matmul_operand(const Graph& graph, const std::vector<int>& node_of, ValueId operand) {
  MatmulOperand found{operand, {}};
  for (std::size_t d = 0; d < graph.type(operand).shape.size(); ++d) found.permutation.push_back(std::int64_t(d));
  while (node_of[found.source.index] >= 0) {
    const Node& node = graph.nodes[node_of[found.source.index]];
    if (node.op != Op::transpose) break;
    const auto& permutation = node.attrs.get<std::vector<std::int64_t>>("permutation");
    for (auto& d : found.permutation) d = permutation[d];
    found.source = node.operands[0];
  }
  // Rows or columns must lie side by side.
  const auto rank = std::int64_t(found.permutation.size());
  const auto last = found.permutation[rank - 1], before = found.permutation[rank - 2];
  if (last == rank - 1 || before == rank - 1) return found;
  found = {operand, {}};
  for (std::int64_t d = 0; d < rank; ++d) found.permutation.push_back(d);
  return found;
}

bool generated_product(const Graph& graph, const std::vector<int>& node_of, const Node& product) {
  constexpr std::int64_t kPanel = std::int64_t(256) << 10;  // bytes of the right matrix, at most
  const Type& type = graph.type(product.results[0]);
  if (type.dtype != DType::F32 && type.dtype != DType::F64) return true;
  const auto width = graph.type(product.operands[1]).shape.back().constant(),
             depth = graph.type(product.operands[0]).shape.back().constant();
  // Long sums for few columns are as fast as the left matrix is read, which is large beside the result: if nothing is
  // to be computed of it on the way, the product that reads it along its rows wins.
  constexpr std::int64_t kLong = 512, kFew = 16;
  const ValueId left = matmul_operand(graph, node_of, product.operands[0]).source;
  if (width && depth && *width <= kFew && *depth >= kLong && node_of[left.index] < 0) return false;
  return width && depth && *width <= kPanel && *depth <= kPanel &&
         *width * *depth * std::int64_t(size_in_bytes(type.dtype)) <= kPanel;
}

bool lies_by_columns(const Graph& graph, const std::vector<int>& node_of, const Node& product) {
  const MatmulOperand right = matmul_operand(graph, node_of, product.operands[1]);
  const std::size_t depth = std::size_t(right.permutation[right.permutation.size() - 2]);
  if (node_of[right.source.index] >= 0) return depth + 1 == right.permutation.size();
  for (const Input& input : graph.inputs)
    if (input.value == right.source) return input_strides(graph, input)[depth] == SymDim(1);
  return false;
}

std::string text(const Graph& graph, const Schedule& schedule) {
  std::string out;
  for (std::size_t g = 0; g < schedule.groups.size(); ++g) {
    const Group& group = schedule.groups[g];
    constexpr const char* kinds[] = {"loops", "scan", "scatter", "matmul", "count", "extern", "assembly", "control"};
    static_assert(std::size(kinds) == std::size_t(GroupKind::Control) + 1, "a name for each");
    out += "group " + std::to_string(g) + ": " + kinds[int(group.kind)] + " over [";
    for (std::size_t d = 0; d < group.order.size(); ++d)
      out += (d ? ", " : "") + group.extents[group.order[d]].text() + (group.reduced[group.order[d]] ? " reduced" : "");
    out += "]";
    auto list = [&](const char* label, const std::vector<ValueId>& values) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        const int n = schedule.node_of[values[i].index];
        out += (i ? ", " : label) + (n < 0 ? std::string("copy of an input") : std::string(name(graph.nodes[n].op)));
      }
    };
    list(" stages ", group.stages);
    list(" stores ", group.stores);
    out += "\n";
  }
  return out;
}

}  // namespace fj
