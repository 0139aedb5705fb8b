#include "graph_ir/inside.h"

#include "graph_ir/ops.h"

namespace fj {

std::optional<DType> number_dtype(Op op, std::size_t index, DType result,
                                  std::span<const std::optional<DType>> others) {
  if (op == Op::pad) return index == 1 ? std::optional(result) : std::nullopt;
  if (!is_pointwise(op)) return std::nullopt;
  const std::string_view rule = row(op).type_rule;
  if (rule == "Select") return index == 0 ? DType::Bool : result;
  if (rule == "Same" || rule == "Float" || rule == "Integer") return result;
  if (rule == "Bool")  // of comparisons: what it is compared with
    for (const std::optional<DType>& other : others)
      if (other) return other;
  return std::nullopt;
}

Dims number_shape(Op op, const Dims& result) { return op == Op::pad ? Dims() : result; }

std::optional<Attr> assumed(const Node& node, std::string_view attr) {
  if (node.op != Op::extern_call) return std::nullopt;
  using Layouts = std::vector<std::optional<Dims>>;
  if (attr == "handle") return std::int64_t(-1);
  if (attr == "operand_strides") return Layouts(node.operands.size());
  if (attr == "result_strides") return Layouts(node.results.size());
  return std::nullopt;
}

bool widens(const Dims& shape, const Dims& to) {
  if (shape.size() > to.size() || shape == to) return false;
  const std::size_t added = to.size() - shape.size();
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i] != to[added + i] && shape[i] != SymDim(1)) return false;
  return true;
}

}  // namespace fj
