// Floating-point and complex arithmetic raises, but for what only looks at signs, order and kind.
#include "graph_ir/rules/conditions.h"

#include "graph_ir/evaluate/evaluate.h"
#include "graph_ir/ops.h"

namespace fj {
namespace {

bool is_real_or_complex(DType dtype) { return is_float(dtype) || is_complex(dtype); }

/// Casts raise for what the target has no value for: integers but of half types, whose range is small, never.
bool cast_may_raise(DType from, DType to) {
  if (to == DType::Bool || from == DType::Bool) return false;
  if (!is_real_or_complex(from)) return to == DType::F16;
  if (!is_real_or_complex(to)) return true;
  const auto part_size = [](DType dtype) { return size_in_bytes(dtype) / (is_complex(dtype) ? 2 : 1); };
  return part_size(to) <= part_size(from) && from != to;
}

bool is_nonzero_constant(const Graph& graph, const std::vector<const Node*>& definition, ValueId value) {
  const Node* node = definition[value.index];
  while (node && node->op == Op::broadcast) node = definition[node->operands[0].index];
  if (!node || node->op != Op::constant) return false;
  const DType dtype = graph.type(node->results[0]).dtype;
  return scalar_array(dtype, node->attrs.get<Scalar>("value")) != scalar_array(dtype, std::int64_t{0});
}

}  // namespace

std::uint32_t conditions_of(const Graph& graph, const Node& node) {
  std::uint32_t of_bodies = 0;
  for (const std::shared_ptr<const Graph>& body : node.bodies)
    for (const Node& inner : body->nodes) of_bodies |= conditions_of(*body, inner);
  switch (row(node.op).lowering) {
    case Lowering::Constant:
    case Lowering::Index:
    case Lowering::IndexMap:
    case Lowering::Gather:
    case Lowering::Count:
    case Lowering::Extern: return 0;
    case Lowering::Bodies: return of_bodies;
    default: break;
  }
  if (node.op == Op::scatter) return 0;
  const DType operand = graph.type(node.operands[0]).dtype;
  if (node.op == Op::floor_div && is_signed_integer(operand)) return kFloatConditions;  // the lowest by -1 overflows
  if (node.op == Op::cast)
    return cast_may_raise(operand, graph.type(node.results[0]).dtype) ? kFloatConditions & ~kFloatDivide : 0;
  // |a + bi| is a square root of squares.
  if (is_complex(operand) && node.op == Op::abs) return kFloatConditions;
  if (!is_real_or_complex(operand)) return 0;
  switch (row(node.op).raises) {
    case Raises::Quiet: return 0;
    // Neither divides nor has a pole, of complex numbers too. (A product of matrices may: BLAS multiplies what it pads
    // with.)
    case Raises::Rounding: return kFloatConditions & ~kFloatDivide;
    case Raises::Any: return kFloatConditions;
  }
  return kFloatConditions;
}

bool only_computes(const Node& node) { return row(node.op).effect == OpEffect::Pure; }

bool may_fail(const Graph& graph, const std::vector<const Node*>& definition, const Node& node) {
  if (row(node.op).effect != OpEffect::Fallible) return false;
  if (row(node.op).lowering != Lowering::Pointwise) return true;
  if (is_float(graph.type(node.operands[0]).dtype)) return false;
  return !is_nonzero_constant(graph, definition, node.operands[1]);
}

}  // namespace fj
