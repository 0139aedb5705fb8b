/// Derivative rules: one function per name in the gradient column of ops.def, and one per row of composites.def.
///
/// A rule is given a node of the forward graph and the cotangent of its result, and adds the nodes that compute the
/// cotangents of its operands. Rules are written with the operations of the graph, so what they make has derivatives
/// too. Where mathematics leaves a choice (a tie, a kink, a zero to the power of zero) it is torch's.
#pragma once

#include <vector>

#include "graph_ir/graph.h"

namespace fj {

/// What a rule sees and gives.
class Derivation {
 public:
  Derivation(Graph& graph, Op op, std::vector<ValueId> operands, ValueId result, std::vector<ValueId> kept, Attrs attrs,
             ValueId cotangent, std::vector<bool> wanted, Location location)
      : graph(graph),
        op(op),
        operands(std::move(operands)),
        result(result),
        kept(std::move(kept)),
        attrs(std::move(attrs)),
        cotangent(cotangent),
        wanted(std::move(wanted)),
        given(this->operands.size()),
        location_(std::move(location)) {}

  Graph& graph;
  const Op op;                       // of the node; of a composite the one that makes its result
  const std::vector<ValueId> operands;
  const ValueId result;
  const std::vector<ValueId> kept;   // composites
  const Attrs attrs;
  const ValueId cotangent;           // of the result, in its type
  const std::vector<bool> wanted;    // operands that need a cotangent
  std::vector<bool> turned;          // operands that are another value with its last two axes exchanged; empty: unknown
  std::shared_ptr<const Graph> pullback;  // of the composite
  std::vector<ValueId> together;     // cotangents of all results that one call derives, where it is to derive several
  std::vector<ValueId> given;        // what the rule gave; invalid: nothing

  void give(std::size_t operand, ValueId value);

  // ---- building
  ValueId add(Op op, std::vector<ValueId> operands, Attrs attrs = {});
  const Location& location() const { return location_; }
  const Type& type(ValueId value) const { return graph.type(value); }
  const Dims& shape(ValueId value) const { return graph.type(value).shape; }
  ValueId neg(ValueId x) { return add(Op::neg, {x}); }
  ValueId sum(ValueId a, ValueId b) { return add(Op::add, {a, b}); }
  ValueId sub(ValueId a, ValueId b) { return add(Op::sub, {a, b}); }
  ValueId mul(ValueId a, ValueId b) { return add(Op::mul, {a, b}); }
  ValueId div(ValueId a, ValueId b) { return add(Op::div, {a, b}); }
  ValueId where(ValueId condition, ValueId a, ValueId b) { return add(Op::where, {condition, a, b}); }
  /// A number in the type of `like`.
  ValueId number(ValueId like, double value);
  ValueId scale(ValueId x, double factor) { return mul(x, number(x, factor)); }
  ValueId plus(ValueId x, double term) { return sum(x, number(x, term)); }
  ValueId square(ValueId x) { return mul(x, x); }
  ValueId compare(Op op, ValueId x, double value) { return add(op, {x, number(x, value)}); }
  ValueId zeros(const Type& type);
  ValueId cast(ValueId x, DType to);
  ValueId reshape(ValueId x, const Dims& shape);
  ValueId broadcast(ValueId x, std::vector<std::int64_t> dims, const Dims& shape);
  /// Result of a reduction of an array of `shape` over `axes`, spread over it again.
  ValueId spread(ValueId reduced, const std::vector<std::int64_t>& axes, const Dims& shape);
  ValueId reduce(Op op, ValueId x, const std::vector<std::int64_t>& axes);
  ValueId iota(const Dims& shape, std::int64_t axis);
  /// Elements that are reduced over, in the dtype.
  ValueId count(const Dims& shape, const std::vector<std::int64_t>& axes, DType dtype);

 private:
  Location location_;
};

using GradientRule = void (*)(Derivation&);
/// Null: the operation has no derivative rule, or none of its own (the results of NoGrad rows need no gradient).
GradientRule gradient_rule(Op op);
GradientRule gradient_rule(CompositeRule rule);
/// Whether a result of the operation can need a gradient because an operand does.
bool carries_gradient(Op op);

}  // namespace fj
