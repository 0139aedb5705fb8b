// The derivative of each operation: the functions that the gradient column of ops.def names.
//
// Formulas are torch's own (its derivatives.yaml), in their order of operations, because where a function has no
// derivative the formula decides. Start with MulGrad; `Derivation` has the small language they are written in.
#include "graph_ir/rules/grad_rules.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph_ir/autodiff/autodiff.h"
#include "graph_ir/ops.h"
#include "runtime/base/error.h"

namespace fj {

using Integers = std::vector<std::int64_t>;

// ---- building

ValueId Derivation::add(Op op, std::vector<ValueId> operands, Attrs attrs) {
  return graph.add(op, std::move(operands), std::move(attrs), location_);
}

void Derivation::give(std::size_t operand, ValueId value) {
  FJ_CHECK(type(value) == type(operands[operand]), "a gradient of " + text(type(value)) + " for a " +
                                                       text(type(operands[operand])) + ", operand of " +
                                                       std::string(name(op)));
  given[operand] = value;
}

namespace {

Attrs with(std::string key, Attr value) {
  Attrs attrs;
  attrs.set(std::move(key), std::move(value));
  return attrs;
}
Attrs with(std::string key, Attr value, std::string second, Attr other) {
  Attrs attrs = with(std::move(key), std::move(value));
  attrs.set(std::move(second), std::move(other));
  return attrs;
}

Scalar scalar_of(DType dtype, double value) {
  switch (category(dtype)) {
    case DTypeCategory::Bool: return value != 0;
    case DTypeCategory::Signed: return std::int64_t(value);
    case DTypeCategory::Unsigned: return std::uint64_t(value);
    case DTypeCategory::Float: return value;
    case DTypeCategory::Complex: return std::pair<double, double>(value, 0.0);
  }
  return value;
}

ValueId full(Derivation& d, DType dtype, double value, const Dims& shape) {
  return d.broadcast(d.add(Op::constant, {}, with("value", Attr(scalar_of(dtype, value)), "to", dtype)), {}, shape);
}

}  // namespace

ValueId Derivation::number(ValueId like, double value) {
  const Type of = type(like);
  return full(*this, of.dtype, value, of.shape);
}

ValueId Derivation::zeros(const Type& wanted) {
  const Type of = wanted;
  return full(*this, of.dtype, 0, of.shape);
}

ValueId Derivation::cast(ValueId x, DType to) { return type(x).dtype == to ? x : add(Op::cast, {x}, with("to", to)); }

ValueId Derivation::reshape(ValueId x, const Dims& shape) {
  return this->shape(x) == shape ? x : add(Op::reshape, {x}, with("shape", shape));
}

ValueId Derivation::broadcast(ValueId x, Integers dims, const Dims& shape) {
  return this->shape(x) == shape ? x : add(Op::broadcast, {x}, with("dims", std::move(dims), "shape", shape));
}

ValueId Derivation::spread(ValueId reduced, const Integers& axes, const Dims& shape) {
  Integers dims;
  for (std::int64_t i = 0; i < std::int64_t(shape.size()); ++i)
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) dims.push_back(i);
  return broadcast(reduced, std::move(dims), shape);
}

ValueId Derivation::reduce(Op op, ValueId x, const Integers& axes) {
  return axes.empty() ? x : add(op, {x}, with("axes", axes));
}

ValueId Derivation::iota(const Dims& shape, std::int64_t axis) {
  return add(Op::iota, {}, with("shape", shape, "axis", axis));
}

ValueId Derivation::count(const Dims& shape, const Integers& axes, DType dtype) {
  SymDim size = 1;
  for (std::int64_t axis : axes) size = size * shape[std::size_t(axis)];
  if (auto known = size.constant())
    return add(Op::constant, {}, with("value", Attr(scalar_of(dtype, double(*known))), "to", dtype));
  return cast(add(Op::dim, {}, with("value", size)), dtype);
}

// ---- the rules

namespace grad {

void NoGrad(Derivation&) {}  // never asked: nothing flows through such a row
void ExternGrad(Derivation&) {}

/// A step function: zero wherever it has a derivative.
void ZeroGrad(Derivation& d) {
  for (std::size_t i = 0; i < d.operands.size(); ++i)
    if (d.wanted[i]) d.give(i, d.zeros(d.type(d.operands[i])));
}

void NegGrad(Derivation& d) { d.give(0, d.neg(d.cotangent)); }
void AbsGrad(Derivation& d) {
  const ValueId x = d.operands[0];
  const ValueId sign =
      d.where(d.add(Op::is_nan, {x}), d.zeros(d.type(x)), d.add(Op::sign, {x}));  // torch's sign of NaN is 0
  d.give(0, d.mul(d.cotangent, sign));
}
void SqrtGrad(Derivation& d) { d.give(0, d.div(d.cotangent, d.scale(d.result, 2))); }
void RsqrtGrad(Derivation& d) {
  d.give(0, d.mul(d.scale(d.cotangent, -0.5), d.mul(d.square(d.result), d.result)));
}
void ExpGrad(Derivation& d) { d.give(0, d.mul(d.cotangent, d.result)); }
void Exp2Grad(Derivation& d) { d.give(0, d.scale(d.mul(d.cotangent, d.result), M_LN2)); }
void Expm1Grad(Derivation& d) { d.give(0, d.mul(d.cotangent, d.plus(d.result, 1))); }
void LogGrad(Derivation& d) { d.give(0, d.div(d.cotangent, d.operands[0])); }
void Log2Grad(Derivation& d) { d.give(0, d.div(d.cotangent, d.scale(d.operands[0], M_LN2))); }
void Log10Grad(Derivation& d) { d.give(0, d.div(d.cotangent, d.scale(d.operands[0], M_LN10))); }
void Log1pGrad(Derivation& d) { d.give(0, d.div(d.cotangent, d.plus(d.operands[0], 1))); }
void SinGrad(Derivation& d) { d.give(0, d.mul(d.cotangent, d.add(Op::cos, {d.operands[0]}))); }
void CosGrad(Derivation& d) { d.give(0, d.mul(d.cotangent, d.neg(d.add(Op::sin, {d.operands[0]})))); }
void TanGrad(Derivation& d) { d.give(0, d.mul(d.cotangent, d.plus(d.square(d.result), 1))); }

namespace {
/// 1 / sqrt(1 - x*x)
ValueId circle(Derivation& d, ValueId x) { return d.add(Op::rsqrt, {d.plus(d.neg(d.square(x)), 1)}); }
}  // namespace

void AsinGrad(Derivation& d) { d.give(0, d.mul(d.cotangent, circle(d, d.operands[0]))); }
void AcosGrad(Derivation& d) { d.give(0, d.mul(d.cotangent, d.neg(circle(d, d.operands[0])))); }
void AtanGrad(Derivation& d) { d.give(0, d.div(d.cotangent, d.plus(d.square(d.operands[0]), 1))); }
void SinhGrad(Derivation& d) { d.give(0, d.mul(d.cotangent, d.add(Op::cosh, {d.operands[0]}))); }
void CoshGrad(Derivation& d) { d.give(0, d.mul(d.cotangent, d.add(Op::sinh, {d.operands[0]}))); }
/// One kernel of torch's: half dtypes are computed in float and rounded once.
void TanhGrad(Derivation& d) {
  const DType dtype = d.type(d.result).dtype, wide = compute_dtype(dtype);
  const ValueId slope = d.plus(d.neg(d.square(d.cast(d.result, wide))), 1);
  d.give(0, d.cast(d.mul(d.cast(d.cotangent, wide), slope), dtype));
}
void AsinhGrad(Derivation& d) { d.give(0, d.mul(d.cotangent, d.add(Op::rsqrt, {d.plus(d.square(d.operands[0]), 1)}))); }
void AcoshGrad(Derivation& d) {
  d.give(0, d.mul(d.cotangent, d.add(Op::rsqrt, {d.plus(d.square(d.operands[0]), -1)})));
}
void AtanhGrad(Derivation& d) { d.give(0, d.div(d.cotangent, d.plus(d.neg(d.square(d.operands[0])), 1))); }
void ErfGrad(Derivation& d) {
  d.give(0, d.mul(d.scale(d.add(Op::exp, {d.neg(d.square(d.operands[0]))}), M_2_SQRTPI), d.cotangent));
}
void CastGrad(Derivation& d) { d.give(0, d.cast(d.cotangent, d.type(d.operands[0]).dtype)); }

// ---- two operands

void AddGrad(Derivation& d) {
  for (std::size_t i : {0, 1})
    if (d.wanted[i]) d.give(i, d.cotangent);
}
void SubGrad(Derivation& d) {
  if (d.wanted[0]) d.give(0, d.cotangent);
  if (d.wanted[1]) d.give(1, d.neg(d.cotangent));
}
void MulGrad(Derivation& d) {
  if (d.wanted[0]) d.give(0, d.mul(d.cotangent, d.operands[1]));
  if (d.wanted[1]) d.give(1, d.mul(d.cotangent, d.operands[0]));
}
void FmaGrad(Derivation& d) {
  if (d.wanted[0]) d.give(0, d.mul(d.cotangent, d.operands[1]));
  if (d.wanted[1]) d.give(1, d.mul(d.cotangent, d.operands[0]));
  if (d.wanted[2]) d.give(2, d.cotangent);
}
void DivGrad(Derivation& d) {
  const ValueId a = d.operands[0], b = d.operands[1];
  if (d.wanted[0]) d.give(0, d.div(d.cotangent, b));
  if (d.wanted[1]) d.give(1, d.mul(d.neg(d.cotangent), d.div(d.div(a, b), b)));
}
/// a - b * floor(a / b), with trunc for fmod.
void ModGrad(Derivation& d) {
  if (d.wanted[0]) d.give(0, d.cotangent);
  if (!d.wanted[1]) return;
  const ValueId quotient = d.div(d.operands[0], d.operands[1]);
  d.give(1, d.mul(d.neg(d.cotangent), d.add(d.op == Op::mod ? Op::floor : Op::trunc, {quotient})));
}
void PowGrad(Derivation& d) {
  const ValueId x = d.operands[0], exponent = d.operands[1];
  const Type type = d.type(x);
  if (d.wanted[0]) {
    const ValueId slope = d.mul(d.cotangent, d.mul(exponent, d.add(Op::pow, {x, d.plus(exponent, -1)})));
    d.give(0, d.where(d.compare(Op::eq, exponent, 0), d.zeros(type), slope));
  }
  if (d.wanted[1]) {
    const ValueId zero = d.add(Op::bit_and, {d.compare(Op::eq, x, 0), d.compare(Op::ge, exponent, 0)});
    d.give(1, d.mul(d.cotangent, d.where(zero, d.zeros(type), d.mul(d.result, d.add(Op::log, {x})))));
  }
}
void Atan2Grad(Derivation& d) {
  const ValueId y = d.operands[0], x = d.operands[1];
  const ValueId radius = d.sum(d.square(y), d.square(x));
  const ValueId inverse =
      d.where(d.compare(Op::eq, radius, 0), d.zeros(d.type(radius)), d.div(d.number(radius, 1), radius));
  if (d.wanted[0]) d.give(0, d.mul(d.mul(d.cotangent, x), inverse));
  if (d.wanted[1]) d.give(1, d.mul(d.mul(d.cotangent, d.neg(y)), inverse));
}
void HypotGrad(Derivation& d) {
  for (std::size_t i : {0, 1})
    if (d.wanted[i]) d.give(i, d.mul(d.cotangent, d.div(d.operands[i], d.result)));
}
void CopysignGrad(Derivation& d) {
  const ValueId x = d.operands[0];
  if (d.wanted[0]) {
    const ValueId ratio = d.where(d.compare(Op::eq, x, 0), d.zeros(d.type(x)), d.div(d.result, x));
    d.give(0, d.mul(d.cotangent, ratio));
  }
  if (d.wanted[1]) d.give(1, d.zeros(d.type(x)));
}

namespace {

/// Ties are shared by maximum and minimum and belong to the second operand of fmax and fmin.
void extremum(Derivation& d, Op less, Op more_or_equal) {
  const ValueId a = d.operands[0], b = d.operands[1], zero = d.zeros(d.type(a));
  if (d.op == Op::maximum || d.op == Op::minimum) {
    const ValueId shared = d.where(d.add(Op::eq, {a, b}), d.scale(d.cotangent, 0.5), d.cotangent);
    if (d.wanted[0]) d.give(0, d.where(d.add(less, {a, b}), zero, shared));
    if (d.wanted[1]) d.give(1, d.where(d.add(less, {b, a}), zero, shared));
    return;
  }
  const ValueId first = d.add(Op::bit_or, {d.add(more_or_equal, {a, b}), d.add(Op::is_nan, {b})});
  if (d.wanted[0]) d.give(0, d.where(first, d.cotangent, zero));
  if (d.wanted[1]) d.give(1, d.where(first, zero, d.cotangent));
}

}  // namespace

void MaxGrad(Derivation& d) { extremum(d, Op::lt, Op::ge); }
void MinGrad(Derivation& d) { extremum(d, Op::gt, Op::le); }

void WhereGrad(Derivation& d) {
  const ValueId condition = d.operands[0], zero = d.zeros(d.type(d.cotangent));
  if (d.wanted[1]) d.give(1, d.where(condition, d.cotangent, zero));
  if (d.wanted[2]) d.give(2, d.where(condition, zero, d.cotangent));
}

// ---- index maps

void BroadcastGrad(Derivation& d) {
  const auto& dims = d.attrs.get<Integers>("dims");
  const Dims &from = d.shape(d.operands[0]), &to = d.shape(d.cotangent);
  Integers axes;
  for (std::int64_t axis = 0; axis < std::int64_t(to.size()); ++axis) {
    const auto place = std::find(dims.begin(), dims.end(), axis);
    if (place == dims.end() || !(from[std::size_t(place - dims.begin())] == to[std::size_t(axis)]))
      axes.push_back(axis);
  }
  // What is left are the dimensions the operand has, in the order of the result; `dims` may permute them.
  const Dims wanted = from;
  ValueId sum = d.reduce(Op::reduce_sum, d.cotangent, axes);
  FJ_CHECK(std::is_sorted(dims.begin(), dims.end()), "a broadcast that permutes");
  d.give(0, d.reshape(sum, wanted));
}

void ReshapeGrad(Derivation& d) {
  const Dims shape = d.shape(d.operands[0]);
  d.give(0, d.reshape(d.cotangent, shape));
}

void TransposeGrad(Derivation& d) {
  const auto& permutation = d.attrs.get<Integers>("permutation");
  Integers inverse(permutation.size());
  for (std::size_t i = 0; i < permutation.size(); ++i) inverse[std::size_t(permutation[i])] = std::int64_t(i);
  d.give(0, d.add(Op::transpose, {d.cotangent}, with("permutation", inverse)));
}

namespace {

ValueId updated(Derivation& d, ValueId base, ValueId update, const Dims& starts, const Integers& steps) {
  return d.add(Op::slice_update, {base, update}, with("starts", starts, "steps", steps));
}
ValueId sliced(Derivation& d, ValueId x, const Dims& starts, const Dims& sizes, const Integers& steps) {
  Attrs attrs = with("starts", starts, "sizes", sizes);
  attrs.set("steps", steps);
  return d.add(Op::slice, {x}, std::move(attrs));
}

}  // namespace

void SliceGrad(Derivation& d) {
  d.give(0, updated(d, d.zeros(d.type(d.operands[0])), d.cotangent, d.attrs.get<Dims>("starts"),
                    d.attrs.get<Integers>("steps")));
}

namespace {

/// x with `low` and `high` zeros more at the ends of an axis; negative: so many elements less.
ValueId padded(Derivation& d, ValueId x, std::size_t axis, const SymDim& low, const SymDim& high) {
  if (low == SymDim(0) && high == SymDim(0)) return x;
  Dims before(d.shape(x).size(), 0), behind = before;
  before[axis] = low;
  behind[axis] = high;
  const DType dtype = d.type(x).dtype;
  return d.add(Op::pad, {x, full(d, dtype, 0, {})}, with("low", before, "high", behind));
}

/// `size` elements of an axis, `step` apart.
ValueId part(Derivation& d, ValueId x, std::size_t axis, const SymDim& start, const SymDim& size, std::int64_t step) {
  Dims sizes = d.shape(x), starts(sizes.size(), 0);
  Integers steps(sizes.size(), 1);
  sizes[axis] = size;
  starts[axis] = start;
  steps[axis] = step;
  return sliced(d, x, starts, sizes, steps);
}

/// So many parts are added one by one.
constexpr std::int64_t kFewPieces = 32;

/// y[r] = the sum of x[r - t, t] over the axis and the next one, of `pieces` elements, which disappears: x[r, 0] last.
ValueId skewed_sum(Derivation& d, ValueId x, std::size_t axis, std::int64_t pieces) {
  const SymDim count = d.shape(x)[axis];
  if (pieces <= kFewPieces) {
    ValueId sum;
    for (std::int64_t t = pieces; t-- > 0;) {
      ValueId piece = part(d, x, axis + 1, t, 1, 1);
      Dims shape = d.shape(piece);
      shape.erase(shape.begin() + std::ptrdiff_t(axis) + 1);
      piece = padded(d, d.reshape(piece, shape), axis, t, pieces - 1 - t);
      sum = sum.valid() ? d.sum(sum, piece) : piece;
    }
    return sum;
  }
  // With pieces - 1 rows of zeros around x, what is added lies pieces - 1 elements apart: x[r, 0] + x[r - 1, 1] + ...
  // is every (pieces - 1)th element of a window.
  const ValueId around = padded(d, x, axis, pieces - 1, pieces - 1);
  Dims shape = d.shape(around);
  const SymDim elements = shape[axis] * SymDim(pieces);
  shape[axis] = elements;
  shape.erase(shape.begin() + std::ptrdiff_t(axis) + 1);
  const ValueId row = part(d, d.reshape(around, shape), axis, pieces - 1, elements - SymDim(pieces - 1), 1);
  Attrs attrs = with("axis", std::int64_t(axis), "count", count + SymDim(pieces - 1));
  attrs.set("size", (pieces - 1) * (pieces - 1) + 1);
  attrs.set("step", pieces);
  const std::size_t last = shape.size();
  const ValueId apart = part(d, d.add(Op::windows, {row}, std::move(attrs)), last, 0, pieces, pieces - 1);
  return d.reduce(Op::reduce_sum, apart, {std::int64_t(last)});
}

}  // namespace

/// Each window in pieces of `step` elements: piece t of window i lies where piece t - 1 of window i + 1 does. They are
/// added as torch adds them, the first window first, to 0.0.
void WindowsGrad(Derivation& d) {
  const auto axis = std::size_t(d.attrs.get<std::int64_t>("axis"));
  const auto size = d.attrs.get<std::int64_t>("size"), step = d.attrs.get<std::int64_t>("step");
  const Type from = d.type(d.operands[0]);
  const std::int64_t pieces = (size + step - 1) / step;
  if (pieces == 0) {  // zeros, which depend on the cotangent as torch's do
    const ValueId none = d.reduce(Op::reduce_sum, d.cotangent, {std::int64_t(from.shape.size())});
    return d.give(0, padded(d, none, axis, 0, from.shape[axis] - d.shape(none)[axis]));
  }
  // [.., n, .., size] -> [.., n, size, ..] -> [.., n, pieces, step, ..]
  ValueId x = d.cotangent;
  Integers permutation(d.shape(x).size());
  std::iota(permutation.begin(), permutation.end(), 0);
  std::rotate(permutation.begin() + std::ptrdiff_t(axis) + 1, permutation.end() - 1, permutation.end());
  if (axis + 2 < permutation.size()) x = d.add(Op::transpose, {x}, with("permutation", permutation));
  x = padded(d, x, axis + 1, 0, pieces * step - size);
  Dims shape = d.shape(x);
  const SymDim rows = shape[axis] + SymDim(pieces - 1);
  shape[axis + 1] = pieces;
  shape.insert(shape.begin() + std::ptrdiff_t(axis) + 2, SymDim(step));
  x = skewed_sum(d, d.reshape(x, shape), axis, pieces);
  // [.., rows, step, ..] -> [.., rows * step, ..]
  shape = d.shape(x);
  shape[axis] = rows * SymDim(step);
  shape.erase(shape.begin() + std::ptrdiff_t(axis) + 1);
  x = d.reshape(x, shape);
  d.give(0, d.plus(padded(d, x, axis, 0, from.shape[axis] - shape[axis]), 0.0));
}

void PadGrad(Derivation& d) {
  const Dims &low = d.attrs.get<Dims>("low"), &high = d.attrs.get<Dims>("high");
  Attrs back;
  Dims removed_low, removed_high;
  for (std::size_t i = 0; i < low.size(); ++i) {
    removed_low.push_back(SymDim(0) - low[i]);
    removed_high.push_back(SymDim(0) - high[i]);
  }
  const DType dtype = d.type(d.cotangent).dtype;
  // Padding by the negative amounts takes away what was added, and puts zeros where elements were taken away.
  if (d.wanted[0])
    d.give(0, d.add(Op::pad, {d.cotangent, full(d, dtype, 0, {})}, with("low", removed_low, "high", removed_high)));
  if (d.wanted[1]) {
    const Type inner = d.type(d.operands[0]);
    const ValueId added = d.add(Op::pad, {d.zeros(inner), full(d, dtype, 1, {})}, with("low", low, "high", high));
    Integers axes(low.size());
    std::iota(axes.begin(), axes.end(), 0);
    d.give(1,
           d.reduce(Op::reduce_sum, d.where(d.compare(Op::eq, added, 0), d.zeros(d.type(added)), d.cotangent), axes));
  }
}

void ConcatGrad(Derivation& d) {
  const auto axis = std::size_t(d.attrs.get<std::int64_t>("axis"));
  Dims starts(d.shape(d.cotangent).size(), 0);
  const Integers steps(starts.size(), 1);
  for (std::size_t i = 0; i < d.operands.size(); ++i) {
    const Dims sizes = d.shape(d.operands[i]);
    if (d.wanted[i]) d.give(i, sliced(d, d.cotangent, starts, sizes, steps));
    starts[axis] = starts[axis] + sizes[axis];
  }
}

void SliceUpdateGrad(Derivation& d) {
  const Dims starts = d.attrs.get<Dims>("starts");
  const Integers steps = d.attrs.get<Integers>("steps");
  if (d.wanted[0]) d.give(0, updated(d, d.cotangent, d.zeros(d.type(d.operands[1])), starts, steps));
  if (d.wanted[1]) {
    const Dims sizes = d.shape(d.operands[1]);
    d.give(1, sliced(d, d.cotangent, starts, sizes, steps));
  }
}

// ---- reductions and scans

void SumGrad(Derivation& d) {
  const Dims shape = d.shape(d.operands[0]);
  d.give(0, d.spread(d.cotangent, d.attrs.get<Integers>("axes"), shape));
}

/// Shared evenly by all that are equal to the extremum.
void MaxReduceGrad(Derivation& d) {
  const ValueId x = d.operands[0];
  const Integers axes = d.attrs.get<Integers>("axes");
  const Type type = d.type(x);
  const ValueId mask = d.cast(d.add(Op::eq, {x, d.spread(d.result, axes, type.shape)}), type.dtype);
  const ValueId count = d.reduce(Op::reduce_sum, mask, axes);
  d.give(0, d.div(d.mul(d.spread(d.cotangent, axes, type.shape), mask), d.spread(count, axes, type.shape)));
}

namespace {

ValueId flipped(Derivation& d, ValueId x, std::int64_t axis) {
  const Dims shape = d.shape(x);
  Dims starts(shape.size(), 0);
  Integers steps(shape.size(), 1);
  starts[std::size_t(axis)] = shape[std::size_t(axis)] - 1;
  steps[std::size_t(axis)] = -1;
  return sliced(d, x, starts, shape, steps);
}

}  // namespace

namespace {

/// x moved by `by` along an axis; what comes in is `value`.
ValueId moved(Derivation& d, ValueId x, std::int64_t axis, std::int64_t by, double value) {
  Dims low(d.shape(x).size(), 0), high(d.shape(x).size(), 0);
  low[std::size_t(axis)] = by;
  high[std::size_t(axis)] = -by;
  const DType dtype = d.type(x).dtype;
  return d.add(Op::pad, {x, full(d, dtype, value, {})}, with("low", low, "high", high));
}

}  // namespace

void CumsumGrad(Derivation& d) {
  const auto axis = d.attrs.get<std::int64_t>("axis");
  // As torch: the sign of a zero stays.
  if (d.shape(d.result)[std::size_t(axis)] == SymDim(1)) return d.give(0, d.cotangent);
  const ValueId sums = d.add(Op::cumsum, {flipped(d, d.cotangent, axis)}, with("axis", axis));
  d.give(0, flipped(d, d.plus(sums, 0.0), axis));  // torch's sums begin with 0.0
}

/// As the products of ever longer runs, each of two: y[i] *= y[i - 1], then y[i - 2], y[i - 4], ... A quotient by x
/// would be shorter, and wrong where x is 0.
void CumprodGrad(Derivation& d) {
  const auto axis = d.attrs.get<std::int64_t>("axis");
  const std::optional<std::int64_t> count = d.shape(d.result)[std::size_t(axis)].constant();
  if (!count) throw NoDerivative(d.op, d.location());
  std::vector<ValueId> runs{d.operands[0]}, before;
  std::vector<std::int64_t> lengths;
  for (std::int64_t length = 1; length < *count; length *= 2) {
    lengths.push_back(length);
    before.push_back(moved(d, runs.back(), axis, length, 1));
    runs.push_back(d.mul(runs.back(), before.back()));
  }
  ValueId cotangent = d.cotangent;
  for (std::size_t i = lengths.size(); i-- > 0;)
    cotangent = d.sum(d.mul(cotangent, before[i]), moved(d, d.mul(cotangent, runs[i]), axis, -lengths[i], 0));
  d.give(0, cotangent);
}

/// The product of the others, those in front times those behind: right where some are 0, and so are its own
/// derivatives.
void ProdGrad(Derivation& d) {
  const Integers axes = d.attrs.get<Integers>("axes");
  const Type type = d.type(d.operands[0]);
  // The axes multiplied over, as one, last.
  Integers order, back(type.shape.size());
  Dims flat;
  for (std::int64_t i = 0; i < type.rank(); ++i)
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) {
      order.push_back(i);
      flat.push_back(type.shape[std::size_t(i)]);
    }
  SymDim count = 1;
  for (std::int64_t axis : axes) {
    order.push_back(axis);
    count = count * type.shape[std::size_t(axis)];
  }
  flat.push_back(count);
  for (std::size_t i = 0; i < order.size(); ++i) back[std::size_t(order[i])] = std::int64_t(i);
  const auto last = std::int64_t(flat.size()) - 1;
  const ValueId transposed = d.add(Op::transpose, {d.operands[0]}, with("permutation", order));
  const Dims apart = d.shape(transposed);
  const ValueId x = d.reshape(transposed, flat);
  auto product = [&](ValueId value) { return moved(d, d.add(Op::cumprod, {value}, with("axis", last)), last, 1, 1); };
  const ValueId front = product(x), behind = flipped(d, product(flipped(d, x, last)), last);
  const ValueId others = d.add(Op::transpose, {d.reshape(d.mul(front, behind), apart)}, with("permutation", back));
  d.give(0, d.mul(d.spread(d.cotangent, axes, type.shape), others));
}

// ---- indices

void GatherGrad(Derivation& d) {
  const auto axis = d.attrs.get<std::int64_t>("axis");
  std::vector<ValueId> operands{d.zeros(d.type(d.operands[0])), d.cotangent};
  operands.insert(operands.end(), d.operands.begin() + 1, d.operands.end());
  d.give(0, d.add(Op::scatter_add, std::move(operands), with("axis", axis)));
}

namespace {

ValueId picked(Derivation& d, ValueId from) {
  std::vector<ValueId> operands{from};
  operands.insert(operands.end(), d.operands.begin() + 2, d.operands.end());
  return d.add(Op::gather, std::move(operands), with("axis", d.attrs.get<std::int64_t>("axis")));
}

}  // namespace

void ScatterAddGrad(Derivation& d) {
  if (d.wanted[0]) d.give(0, d.cotangent);
  if (d.wanted[1]) d.give(1, picked(d, d.cotangent));
}

/// Of repeated indices the last update has the gradient: whose number lies there once all are scattered.
void ScatterGrad(Derivation& d) {
  const Attrs at = with("axis", d.attrs.get<std::int64_t>("axis"));
  auto scattered = [&](ValueId base, ValueId updates) {
    std::vector<ValueId> operands{base, updates};
    operands.insert(operands.end(), d.operands.begin() + 2, d.operands.end());
    return d.add(Op::scatter, std::move(operands), at);
  };
  if (d.wanted[0]) d.give(0, scattered(d.cotangent, d.zeros(d.type(d.operands[1]))));
  if (!d.wanted[1]) return;
  const Type type = d.type(d.operands[1]);
  const ValueId number = d.reshape(d.iota({product(type.shape)}, 0), type.shape);
  const ValueId last = picked(d, scattered(d.zeros({DType::I64, d.shape(d.operands[0])}), number));
  d.give(1, d.where(d.add(Op::eq, {last, number}), picked(d, d.cotangent), d.zeros(type)));
}

namespace {

/// Of one element of each row: its own position is asked whether it is the index, which fuses with what follows as no
/// scatter does.
ValueId one_of_each_row(Derivation& d, std::int64_t axis, const Dims& shape) {
  Dims rows = shape;
  rows.erase(rows.begin() + axis);
  ValueId index = d.reshape(d.operands[1], rows), cotangent = d.reshape(d.cotangent, rows);
  const ValueId size = d.broadcast(d.count(shape, {axis}, DType::I64), {}, rows);
  index = d.where(d.compare(Op::lt, index, 0), d.sum(index, size), index);
  // As what is added to 0: -0.0 is not.
  cotangent = d.plus(cotangent, 0);
  const ValueId chosen = d.add(Op::eq, {d.iota(shape, axis), d.spread(index, {axis}, shape)});
  return d.where(chosen, d.spread(cotangent, {axis}, shape), d.zeros({d.type(d.cotangent).dtype, shape}));
}

}  // namespace

/// One scatter with an index for each axis: that of an element is its own position and, along the axis, the data.
void TakeAlongGrad(Derivation& d) {
  const auto axis = d.attrs.get<std::int64_t>("axis");
  const Dims shape = d.shape(d.operands[0]), picked = d.shape(d.operands[1]);
  if (picked[std::size_t(axis)] == SymDim(1)) return d.give(0, one_of_each_row(d, axis, shape));
  std::vector<ValueId> operands{d.zeros(d.type(d.operands[0])), d.cotangent};
  for (std::int64_t i = 0; i < std::int64_t(shape.size()); ++i)
    operands.push_back(i == axis ? d.operands[1] : d.iota(picked, i));
  d.give(0, d.add(Op::scatter_add, std::move(operands), with("axis", std::int64_t(0))));
}

void MatmulGrad(Derivation& d) {
  auto transposed = [&](ValueId x) {
    Integers permutation(d.shape(x).size());
    std::iota(permutation.begin(), permutation.end(), 0);
    std::swap(permutation[permutation.size() - 1], permutation[permutation.size() - 2]);
    return d.add(Op::transpose, {x}, with("permutation", permutation));
  };
  // (a b)^T = b^T a^T: the gradient of a turned operand is computed as what was turned lies, so that it needs no copy
  // to lie so.
  const auto product = [&](std::size_t operand, ValueId a, ValueId b) {
    const bool turned = operand < d.turned.size() && d.turned[operand];
    d.give(operand, turned ? transposed(d.add(Op::matmul, {transposed(b), transposed(a)})) : d.add(Op::matmul, {a, b}));
  };
  if (d.wanted[0]) product(0, d.cotangent, transposed(d.operands[1]));
  if (d.wanted[1]) product(1, transposed(d.operands[0]), d.cotangent);
}

}  // namespace grad

bool carries_gradient(Op op) {
  static const std::vector<bool> carries = [] {
    std::vector<bool> result;
    for (int i = 0; i < kOpCount; ++i) result.push_back(row(Op(i)).gradient != "NoGrad");
    return result;
  }();
  return carries[std::size_t(op)];
}

GradientRule gradient_rule(Op op) {
  static constexpr GradientRule rules[] = {
#define FJ_OP(name, operands, attrs, shape_rule, type_rule, effect, gradient, lowering, ...) grad::gradient,
#include "graph_ir/ops.def"
  };
  const GradientRule rule = rules[std::size_t(op)];
  return rule == grad::NoGrad || rule == grad::ExternGrad ? nullptr : rule;
}

}  // namespace fj
