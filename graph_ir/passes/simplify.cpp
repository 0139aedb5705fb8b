// One function per kind of operation; each looks at a node and the nodes that made its operands and returns the
// value to use instead, or nothing. `Simplifier::visit` is the table of contents.
#include "graph_ir/passes/simplify.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph_ir/evaluate/elements.h"
#include "graph_ir/evaluate/evaluate.h"
#include "graph_ir/ops.h"
#include "graph_ir/passes/rewrite.h"
#include "runtime/base/error.h"

namespace fj {
namespace {

using Integers = std::vector<std::int64_t>;
const SymDim kZero(0), kOne(1);

/// Every value of `from` is a value of `to`.
bool is_lossless(DType from, DType to) {
  auto significant_bits = [](DType dtype) {
    switch (dtype) {
      case DType::F16: return 11;
      case DType::BF16: return 8;
      case DType::F32: case DType::C64: return 24;
      case DType::F64: case DType::C128: return 53;
      case DType::Bool: return 1;
      default: return int(size_in_bytes(dtype)) * 8 - (is_signed_integer(dtype) ? 1 : 0);
    }
  };
  auto exponent_bits = [](DType dtype) {
    switch (dtype) {
      case DType::F16: return 5;
      case DType::BF16: case DType::F32: case DType::C64: return 8;
      case DType::F64: case DType::C128: return 11;
      default: return 0;
    }
  };
  if (from == to || from == DType::Bool) return true;
  if (to == DType::Bool || (is_complex(from) && !is_complex(to))) return false;
  if (is_integer(to))
    return is_integer(from) && significant_bits(from) <= significant_bits(to) &&
           !(is_signed_integer(from) && is_unsigned_integer(to));
  if (is_integer(from)) {
    // f16 ends at 65504: its 11 bits hold the 8-bit types, whose range it has too.
    return significant_bits(from) <= significant_bits(to);
  }
  return significant_bits(from) <= significant_bits(to) && exponent_bits(from) <= exponent_bits(to);
}

class Simplifier {
 public:
  explicit Simplifier(Graph& graph) : graph_(graph), rewrite_(graph) {}

  bool run() {
    return rewrite_.run([&](const Node& node) { return visit(node); });
  }

 private:
  ValueId visit(const Node& node) {
    if (const ValueId folded = fold(node); folded.valid()) return folded;
    switch (node.op) {
      case Op::dim: return dim(node);
      case Op::neg: case Op::logical_not: case Op::bit_not: return involution(node);
      case Op::abs: case Op::floor: case Op::ceil: case Op::round: case Op::trunc: return idempotent(node);
      case Op::add: case Op::sub: case Op::mul: case Op::div: case Op::floor_div: case Op::trunc_div: case Op::pow:
      case Op::bit_or: case Op::bit_xor: case Op::shift_left: case Op::shift_right:
        return neutral_operand(node);
      case Op::maximum: case Op::minimum: case Op::fmax: case Op::fmin: case Op::bit_and:
        return node.operands[0] == node.operands[1] ? node.operands[0] : ValueId{};
      case Op::where: return where(node);
      case Op::cast: return cast(node);
      case Op::broadcast: return broadcast(node);
      case Op::reshape: return reshape(node);
      case Op::transpose: return transpose(node);
      case Op::slice: return slice(node);
      case Op::slice_update: return slice_update(node);
      case Op::pad: return pad(node);
      case Op::concat: return node.operands.size() == 1 ? node.operands[0] : ValueId{};
      case Op::reduce_sum:
      case Op::reduce_prod:
      case Op::reduce_max:
      case Op::reduce_min:
      case Op::reduce_and:
      case Op::reduce_or: return node.attrs.get<Integers>("axes").empty() ? node.operands[0] : ValueId{};
      default: return {};
    }
  }

  // ---- helpers

  const Type& type(ValueId value) const { return graph_.type(value); }
  const Node* made_by(ValueId value, Op op) {
    const Node* node = rewrite_.definition(value);
    return node && node->op == op ? node : nullptr;
  }

  ValueId constant(const DenseArray& value, const Location& location) {
    Attrs attrs;
    attrs.set("value", value.scalar(0));
    attrs.set("to", value.dtype);
    return graph_.add(Op::constant, {}, std::move(attrs), location);
  }

  ValueId broadcast_to(ValueId value, Integers dims, Dims shape, const Location& location) {
    if (shape == type(value).shape) return value;
    Attrs attrs;
    attrs.set("dims", std::move(dims));
    attrs.set("shape", std::move(shape));
    return graph_.add(Op::broadcast, {value}, std::move(attrs), location);
  }

  /// The rank-0 value this one repeats everywhere, if it does; a rank-0 value repeats itself.
  ValueId repeated_scalar(ValueId value) {
    if (type(value).shape.empty()) return value;
    const Node* node = made_by(value, Op::broadcast);
    return node && type(node->operands[0]).shape.empty() ? node->operands[0] : ValueId{};
  }

  /// The constant that is every element of the value.
  std::optional<DenseArray> constant_of(ValueId value) {
    const ValueId scalar = repeated_scalar(value);
    if (!scalar.valid()) return std::nullopt;
    const Node* node = made_by(scalar, Op::constant);
    if (!node) return std::nullopt;
    return scalar_array(node->attrs.get<DType>("to"), node->attrs.get<Scalar>("value"));
  }

  /// Compares bits, so that 0.0 and -0.0 differ.
  bool is_constant(ValueId value, double number) {
    const std::optional<DenseArray> constant = constant_of(value);
    return constant && *constant == scalar_array(constant->dtype, number);
  }

  // ---- rules

  ValueId fold(const Node& node) {
    if (!is_pointwise(node.op)) return {};
    std::vector<DenseArray> values;
    for (ValueId operand : node.operands) {
      std::optional<DenseArray> value = constant_of(operand);
      if (!value) return {};
      values.push_back(std::move(*value));
    }
    std::vector<const DenseArray*> operands;
    for (const DenseArray& value : values) operands.push_back(&value);
    DenseArray result(type(node.results[0]).dtype, {});
    if (evaluate_scalar(node, operands, result) != kOk) return {};
    return broadcast_to(constant(result, node.location), {}, type(node.results[0]).shape, node.location);
  }

  // The node on rank-0 operands: through a graph of its own, whose result has rank 0 too.
  std::uint32_t evaluate_scalar(const Node& node, std::span<const DenseArray* const> operands, DenseArray& result) {
    Graph scalar;
    std::vector<ValueId> inputs;
    for (const DenseArray* operand : operands) inputs.push_back(scalar.add_input("x", {operand->dtype, {}}));
    scalar.add(node.op, std::move(inputs), node.attrs);
    return evaluate(scalar, scalar.nodes[0], operands, {}, result);
  }

  ValueId dim(const Node& node) {
    const SymDim& value = node.attrs.get<SymDim>("value");
    return value.is_constant() ? constant(scalar_array(DType::I64, value.value()), node.location) : ValueId{};
  }

  // f(f(x)) == x
  ValueId involution(const Node& node) {
    const Node* inner = made_by(node.operands[0], node.op);
    if (!inner) return {};
    if (node.op == Op::logical_not && type(inner->operands[0]).dtype != DType::Bool) return {};
    return inner->operands[0];
  }

  // f(f(x)) == f(x); on integers the roundings are the identity.
  ValueId idempotent(const Node& node) {
    if (made_by(node.operands[0], node.op) && type(node.results[0]) == type(node.operands[0])) return node.operands[0];
    const DType dtype = type(node.operands[0]).dtype;
    const bool is_whole = is_integer(dtype) || dtype == DType::Bool;
    return is_whole && (node.op != Op::abs || !is_signed_integer(dtype)) ? node.operands[0] : ValueId{};
  }

  ValueId neutral_operand(const Node& node) {
    const ValueId a = node.operands[0], b = node.operands[1];
    const DType dtype = type(a).dtype;
    // (a + bi) * (1 + 0i) is not exact for infinities.
    if (is_complex(dtype)) return {};
    switch (node.op) {
      case Op::add:
        // x + 0 == x, except for x = -0.0; x + -0.0 == x always.
        if (is_constant(b, is_float(dtype) ? -0.0 : 0.0)) return a;
        return is_constant(a, is_float(dtype) ? -0.0 : 0.0) ? b : ValueId{};
      case Op::sub:
      case Op::bit_xor:
      case Op::bit_or:
        if (is_constant(b, 0.0)) return a;
        return node.op != Op::sub && is_constant(a, 0.0) ? b : ValueId{};
      case Op::shift_left:
      case Op::shift_right:
        return is_constant(b, 0.0) ? a : ValueId{};
      case Op::mul:
        if (is_constant(b, 1.0)) return a;
        return is_constant(a, 1.0) ? b : ValueId{};
      case Op::floor_div:
        if (is_float(dtype)) return {};  // floor(x / 1) is not x
        [[fallthrough]];
      default:  // div, trunc_div, pow
        return is_constant(b, 1.0) ? a : ValueId{};
    }
  }

  ValueId where(const Node& node) {
    const ValueId condition = node.operands[0], a = node.operands[1], b = node.operands[2];
    if (a == b) return a;
    if (const auto value = constant_of(condition)) return std::get<bool>(value->scalar(0)) ? a : b;
    const Node* inverted = made_by(condition, Op::logical_not);
    if (!inverted || type(inverted->operands[0]).dtype != DType::Bool) return {};
    return graph_.add(Op::where, {inverted->operands[0], b, a}, {}, node.location);
  }

  ValueId cast(const Node& node) {
    const ValueId x = node.operands[0];
    const DType to = node.attrs.get<DType>("to"), middle = type(x).dtype;
    if (to == middle) return x;
    const Node* inner = made_by(x, Op::cast);
    if (!inner) return {};
    const DType from = type(inner->operands[0]).dtype;
    if (!is_lossless(from, middle)) return {};
    // Integers reach half types through float, and narrow integers differently from floats (wrapping against the
    // conversion instruction's limits), so a change of category in the middle is kept unless nothing is lost at all.
    const bool same_category =
        category(from) == category(middle) || (is_integer(from) && is_integer(middle)) || from == DType::Bool;
    if (!same_category && !is_lossless(from, to)) return {};
    if (converts_by_width && !is_integer(from) && from != DType::Bool && is_integer(to)) return {};
    if (from == to) return inner->operands[0];
    Attrs attrs;
    attrs.set("to", to);
    const ValueId source = inner->operands[0];
    return graph_.add(Op::cast, {source}, std::move(attrs), node.location);
  }

  ValueId broadcast(const Node& node) {
    const ValueId x = node.operands[0];
    const Dims& shape = type(node.results[0]).shape;
    if (type(x).shape == shape) return x;  // dims increase, so they are the identity
    const Integers& dims = node.attrs.get<Integers>("dims");
    if (const Node* inner = made_by(x, Op::broadcast)) {
      Integers composed;
      for (std::int64_t dim : inner->attrs.get<Integers>("dims")) composed.push_back(dims[std::size_t(dim)]);
      return broadcast_to(inner->operands[0], std::move(composed), shape, node.location);
    }
    if (const Node* inner = made_by(x, Op::reshape)) {
      // A reshape that only puts in dimensions of size 1 (keepdims, x[:, None]) says nothing a broadcast does not.
      const ValueId source = inner->operands[0];
      const Dims &from = type(source).shape, &to = type(x).shape;
      if (std::find(from.begin(), from.end(), kOne) != from.end()) return {};
      Integers composed;
      for (std::size_t i = 0; i < to.size(); ++i) {
        if (to[i] == kOne) continue;
        if (composed.size() == from.size() || from[composed.size()] != to[i]) return {};
        composed.push_back(dims[i]);
      }
      if (composed.size() == from.size()) return broadcast_to(source, std::move(composed), shape, node.location);
    }
    return {};
  }

  // An index map of an array that is one scalar everywhere is that scalar in another shape.
  ValueId of_repeated_scalar(const Node& node) {
    const ValueId scalar = repeated_scalar(node.operands[0]);
    return scalar.valid() ? broadcast_to(scalar, {}, type(node.results[0]).shape, node.location) : ValueId{};
  }

  ValueId reshape(const Node& node) {
    const ValueId x = node.operands[0];
    const Dims shape = type(node.results[0]).shape;
    if (type(x).shape == shape) return x;
    if (const ValueId scalar = repeated_scalar(x); scalar.valid() && !type(x).shape.empty())
      return broadcast_to(scalar, {}, shape, node.location);
    const Node* inner = made_by(x, Op::reshape);
    if (!inner) return {};
    const ValueId source = inner->operands[0];
    if (type(source).shape == shape) return source;
    return graph_.add(Op::reshape, {source}, node.attrs, node.location);
  }

  ValueId transpose(const Node& node) {
    const ValueId x = node.operands[0];
    const Integers& permutation = node.attrs.get<Integers>("permutation");
    if (std::is_sorted(permutation.begin(), permutation.end())) return x;
    if (const ValueId scalar = of_repeated_scalar(node); scalar.valid()) return scalar;
    if (const Node* inner = made_by(x, Op::transpose)) {
      const Integers& first = inner->attrs.get<Integers>("permutation");
      Integers composed;
      for (std::int64_t axis : permutation) composed.push_back(first[std::size_t(axis)]);
      const ValueId source = inner->operands[0];
      if (std::is_sorted(composed.begin(), composed.end())) return source;
      Attrs attrs;
      attrs.set("permutation", std::move(composed));
      return graph_.add(Op::transpose, {source}, std::move(attrs), node.location);
    }
    if (const Node* inner = made_by(x, Op::broadcast)) {
      Integers dims;
      for (std::int64_t dim : inner->attrs.get<Integers>("dims"))
        dims.push_back(std::find(permutation.begin(), permutation.end(), dim) - permutation.begin());
      if (std::is_sorted(dims.begin(), dims.end()))
        return broadcast_to(inner->operands[0], std::move(dims), type(node.results[0]).shape, node.location);
    }
    return {};
  }

  struct Region {
    Dims starts, sizes;
    Integers steps;
    bool operator==(const Region&) const = default;
    bool is_all_of(const Dims& shape) const {
      return sizes == shape &&
             std::all_of(starts.begin(), starts.end(), [](const SymDim& start) { return start == kZero; }) &&
             std::all_of(steps.begin(), steps.end(), [](std::int64_t step) { return step == 1; });
    }
  };
  static Region region(const Node& node, Dims sizes) {
    return {node.attrs.get<Dims>("starts"), std::move(sizes), node.attrs.get<Integers>("steps")};
  }

  /// Surely no element in both: apart along an axis.
  static bool disjoint(const Region& a, const Region& b) {
    auto bounds = [](const Region& r, std::size_t axis) {
      const SymDim last = r.starts[axis] + (r.sizes[axis] - SymDim(1)) * SymDim(r.steps[axis]);
      return r.steps[axis] > 0 ? std::pair{r.starts[axis], last} : std::pair{last, r.starts[axis]};
    };
    auto before = [](const SymDim& left, const SymDim& right) {
      const std::optional<std::int64_t> distance = (right - left).constant();
      return distance && *distance > 0;
    };
    for (std::size_t axis = 0; axis < a.starts.size(); ++axis) {
      const auto [a_low, a_high] = bounds(a, axis);
      const auto [b_low, b_high] = bounds(b, axis);
      if (before(a_high, b_low) || before(b_high, a_low)) return true;
    }
    return false;
  }

  ValueId slice(const Node& node) {
    const ValueId x = node.operands[0];
    const Region outer = region(node, type(node.results[0]).shape);
    if (outer.is_all_of(type(x).shape)) return x;
    if (const ValueId scalar = of_repeated_scalar(node); scalar.valid()) return scalar;
    if (const Node* inner = made_by(x, Op::slice)) {
      const Region first = region(*inner, type(x).shape);
      Dims starts;
      Integers steps;
      for (std::size_t i = 0; i < first.starts.size(); ++i) {
        starts.push_back(first.starts[i] + outer.starts[i] * SymDim(first.steps[i]));
        steps.push_back(first.steps[i] * outer.steps[i]);
      }
      Attrs attrs;
      attrs.set("starts", std::move(starts));
      attrs.set("sizes", outer.sizes);
      attrs.set("steps", std::move(steps));
      const ValueId source = inner->operands[0];
      return graph_.add(Op::slice, {source}, std::move(attrs), node.location);
    }
    // What a loop over rows reads was written by one of its steps, or by none of them.
    ValueId source = x;
    while (const Node* inner = made_by(source, Op::slice_update)) {
      const Region written = region(*inner, type(inner->operands[1]).shape);
      if (written == outer) return inner->operands[1];
      if (!disjoint(written, outer)) break;
      source = inner->operands[0];
    }
    return source == x ? ValueId{} : graph_.add(Op::slice, {source}, node.attrs, node.location);
  }

  ValueId slice_update(const Node& node) {
    const ValueId base = node.operands[0], update = node.operands[1];
    const Region target = region(node, type(update).shape);
    if (target.is_all_of(type(base).shape)) return update;
    // What is there already changes nothing.
    if (const Node* inner = made_by(update, Op::slice))
      if (inner->operands[0] == base && region(*inner, type(update).shape) == target) return base;
    return {};
  }

  ValueId pad(const Node& node) {
    const auto none = [](const Dims& dims) {
      return std::all_of(dims.begin(), dims.end(), [](const SymDim& d) { return d == kZero; });
    };
    return none(node.attrs.get<Dims>("low")) && none(node.attrs.get<Dims>("high")) ? node.operands[0] : ValueId{};
  }

  Graph& graph_;
  Rewrite rewrite_;
};

}  // namespace

bool simplify(Graph& graph) {
  bool changed = false;
  while (Simplifier(graph).run()) changed = true;
  return changed;
}

}  // namespace fj
