// The derivatives of composites: the functions that composites.def names, each by the formula of torch's own backward.
//
// `d.operands` are the composite's inputs, `d.result` its result; what a rule finds in `d.kept` and `d.attrs` is in the
// comment above it. What a rule adds can be a composite again (a sigmoid in the derivative of silu), for derivatives of
// higher order.
#include <algorithm>
#include <cmath>
#include <optional>

#include "graph_ir/autodiff/autodiff.h"
#include "graph_ir/rules/grad_rules.h"

namespace fj {

using Integers = std::vector<std::int64_t>;

namespace composite {

namespace {

ValueId sigmoid(Derivation& d, ValueId x) {
  const ValueId y = d.div(d.number(x, 1), d.plus(d.add(Op::exp, {d.neg(x)}), 1));
  d.graph.composites.push_back({CompositeRule::Sigmoid, {x}, y, {}, {}});
  return y;
}

/// The same value once more, which a composite can be about. The passes take it away.
ValueId same_again(Derivation& d, ValueId x) {
  Attrs attrs;
  attrs.set("shape", d.shape(x));
  return d.add(Op::reshape, {x}, std::move(attrs));
}

/// x to a constant power, as front ends lower it. Also x ** 0 depends on x for autograd, by a derivative that is 0.
ValueId power(Derivation& d, ValueId x, double exponent) {
  const ValueId one = exponent == 0 ? d.number(x, 1) : ValueId();
  const ValueId y = exponent == 0   ? d.where(d.add(Op::is_nan, {x}), one,
                                              one)  // reads x, which a derivative in a graph of its own has to begin at
                    : exponent == 1 ? same_again(d, x)
                    : exponent == 2 ? d.square(x)
                    : exponent == 3 ? d.mul(d.square(x), x)
                    : exponent == 0.5  ? d.add(Op::sqrt, {x})
                    : exponent == -0.5 ? d.add(Op::rsqrt, {x})
                    : exponent == -1   ? d.div(d.number(x, 1), x)
                    : exponent == -2   ? d.div(d.number(x, 1), d.square(x))
                                       : d.add(Op::pow, {x, d.number(x, exponent)});
  Attrs attrs;
  attrs.set("exponent", exponent);
  d.graph.composites.push_back({CompositeRule::Power, {x}, y, {}, attrs});
  return y;
}

double attribute(const Derivation& d, const char* name) { return d.attrs.get<double>(name); }

/// Of a reduction whose result may have kept its dimensions: the reduced shape's value, spread over the operand.
ValueId spread_result(Derivation& d, ValueId value, const Integers& axes, const Dims& shape) {
  Dims dropped;
  for (std::int64_t i = 0; i < std::int64_t(shape.size()); ++i)
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) dropped.push_back(shape[std::size_t(i)]);
  return d.spread(d.reshape(value, dropped), axes, shape);
}

ValueId spread_sum(Derivation& d, ValueId x, const Integers& axes) {
  const Dims shape = d.shape(x);
  return d.spread(d.reduce(Op::reduce_sum, x, axes), axes, shape);
}

}  // namespace

/// Nothing flows back: detach(), and values computed under no_grad().
void Stop(Derivation&) {}

/// One result of a library call, by the library's own derivative: a call that takes the cotangent and what is kept.
/// Operands: those of the call that the library derives the result by. handle: the number of that call; derived: which
/// of the kept it gives gradients of; gradients: the operands' places among these, or -1 where none arrives though the
/// result requires one by the operand; operand_strides: of what is kept. joint: the number of the call that derives all
/// of `results`, places among the results of the first call, by their cotangents.
void Extern(Derivation& d) {
  const Integers &derived = d.attrs.get<Integers>("derived"), &places = d.attrs.get<Integers>("gradients");
  using Layouts = std::vector<std::optional<Dims>>;
  std::vector<ValueId> operands = d.together.empty() ? std::vector{d.cotangent} : d.together;
  Layouts layouts(operands.size());
  for (const auto& layout : d.attrs.get<Layouts>("operand_strides")) layouts.push_back(layout);
  operands.insert(operands.end(), d.kept.begin(), d.kept.end());
  std::vector<Type> types;
  for (std::int64_t place : derived) types.push_back(d.type(d.kept[std::size_t(place)]));
  Attrs attrs;
  attrs.set("callee", d.attrs.get<std::string>("callee"));
  attrs.set("handle", d.attrs.get<std::int64_t>(d.together.empty() ? "handle" : "joint"));
  attrs.set("operand_strides", layouts);
  attrs.set("result_strides", Layouts(derived.size(), std::nullopt));
  if (const Attr* sizes = d.attrs.find("sizes")) attrs.set("sizes", *sizes);
  std::vector<ValueId> made;
  for (std::size_t i = 0; i < d.operands.size(); ++i) {
    if (!d.wanted[i] || places[i] < 0) continue;
    if (made.empty()) made = d.graph.add_extern(operands, attrs, types, d.location());
    d.give(i, made[std::size_t(places[i])]);
  }
}

/// Kept: what the pullback reads beside the cotangent, which is its first input. It has an output for each operand, or
/// gradients: the operands' places among its outputs, -1 where none arrives.
void Pullback(Derivation& d) {
  std::vector<ValueId> inputs{d.cotangent};
  inputs.insert(inputs.end(), d.kept.begin(), d.kept.end());
  const std::vector<ValueId> found = add_graph(d.graph, *d.pullback, inputs);
  const Integers* places = d.attrs.find("gradients") ? &d.attrs.get<Integers>("gradients") : nullptr;
  for (std::size_t i = 0; i < d.operands.size(); ++i) {
    const std::int64_t place = places ? (*places)[i] : std::int64_t(i);
    if (d.wanted[i] && place >= 0) d.give(i, found[std::size_t(place)]);
  }
}

/// What a derivative gives that has none itself.
void Once(Derivation& d) {
  throw NoDerivative(d.op, "what can be derived only once (once_differentiable)", d.location());
}

/// The cotangent, and where `below` a part of it or 0. To torch it depends on what `below` compares, by a derivative
/// that is 0: a second derivative reaches that.
ValueId passed(Derivation& d, ValueId cotangent, ValueId below, ValueId compared,
               std::optional<double> part = std::nullopt) {
  const ValueId less = !part ? d.zeros(d.type(cotangent)) : *part == 1 ? cotangent : d.scale(cotangent, *part);
  const ValueId result = d.where(below, less, cotangent);
  Attrs attrs;
  if (part) attrs.set("part", *part);
  d.graph.composites.push_back({CompositeRule::Passed, {cotangent, compared}, result, {below}, std::move(attrs)});
  return result;
}
void Passed(Derivation& d) {
  if (d.wanted[0])
    d.give(0, passed(d, d.cotangent, d.kept[0], d.operands[1],
                     d.attrs.find("part") ? std::optional(attribute(d, "part")) : std::nullopt));
  if (d.wanted[1]) d.give(1, d.zeros(d.type(d.operands[1])));
}

/// By the result: 0 where it is 0.
void Relu(Derivation& d) { d.give(0, passed(d, d.cotangent, d.compare(Op::le, d.result, 0), d.result)); }

/// limit: what is not above is not passed on. None: all is, by a derivative that does not read x, but depends on x to
/// torch.
void Threshold(Derivation& d) {
  const ValueId x = d.operands[0];
  if (d.attrs.find("limit")) return d.give(0, passed(d, d.cotangent, d.compare(Op::le, x, attribute(d, "limit")), x));
  d.give(0, passed(d, d.cotangent, d.add(Op::is_nan, {x}), x,
                   1.0));  // which reads x: a derivative in a graph of its own has to begin at it
}

/// By the result, which torch keeps, whatever becomes of x.
void Reciprocal(Derivation& d) { d.give(0, d.mul(d.neg(d.cotangent), d.square(d.result))); }

/// (a - b) ** 2. By b it is what it is by a with the two exchanged: 0.0 where they are equal, not -0.0.
void SquaredDifference(Derivation& d) {
  for (std::size_t i = 0; i < 2; ++i)
    if (d.wanted[i]) d.give(i, d.scale(d.mul(d.cotangent, d.add(Op::sub, {d.operands[i], d.operands[1 - i]})), 2));
}

void Sigmoid(Derivation& d) { d.give(0, d.mul(d.mul(d.cotangent, d.plus(d.neg(d.result), 1)), d.result)); }

void Silu(Derivation& d) {
  const ValueId x = d.operands[0], gate = sigmoid(d, x);
  d.give(0, d.mul(d.cotangent, d.mul(gate, d.plus(d.mul(x, d.plus(d.neg(gate), 1)), 1))));
}

/// beta, threshold
void Softplus(Derivation& d) {
  const ValueId scaled = d.scale(d.operands[0], attribute(d, "beta"));
  const ValueId slope = sigmoid(d, scaled);
  d.give(0, d.where(d.compare(Op::gt, scaled, attribute(d, "threshold")), d.cotangent, d.mul(d.cotangent, slope)));
}

/// slope
void LeakyRelu(Derivation& d) {
  d.give(0, passed(d, d.cotangent, d.add(Op::logical_not, {d.compare(Op::gt, d.operands[0], 0)}), d.operands[0],
                   attribute(d, "slope")));
}

/// alpha, scale, input_scale
void Elu(Derivation& d) {
  const ValueId x = d.operands[0], above = d.compare(Op::gt, x, 0);
  const double input_scale = attribute(d, "input_scale"), scale = attribute(d, "scale");
  // exp of what is above 0 would overflow, and its own derivative with it.
  const ValueId power = d.add(Op::exp, {d.scale(d.where(above, d.zeros(d.type(x)), x), input_scale)});
  const ValueId slope = d.mul(d.scale(d.cotangent, input_scale * attribute(d, "alpha") * scale), power);
  d.give(0, d.where(above, d.scale(d.cotangent, scale), slope));
}

void LogSigmoid(Derivation& d) { d.give(0, d.mul(d.cotangent, sigmoid(d, d.neg(d.operands[0])))); }

void Gelu(Derivation& d) {
  const ValueId x = d.operands[0];
  const ValueId cumulative = d.scale(d.plus(d.add(Op::erf, {d.scale(x, M_SQRT1_2)}), 1), 0.5);
  const ValueId density = d.scale(d.add(Op::exp, {d.scale(d.square(x), -0.5)}), M_2_SQRTPI * M_SQRT1_2 * 0.5);
  d.give(0, d.mul(d.cotangent, d.sum(cumulative, d.mul(x, density))));
}

void GeluTanh(Derivation& d) {
  const ValueId x = d.operands[0];
  constexpr double beta = M_SQRT2 * M_2_SQRTPI * 0.5, kappa = 0.044715;
  const ValueId square = d.square(x);
  const ValueId bent = d.add(Op::tanh, {d.scale(d.sum(x, d.scale(d.mul(square, x), kappa)), beta)});
  const ValueId left = d.scale(d.plus(bent, 1), 0.5);
  const ValueId inner = d.scale(d.plus(d.scale(square, 3 * kappa), 1), beta);
  const ValueId right = d.mul(d.mul(d.scale(x, 0.5), d.plus(d.neg(d.square(bent)), 1)), inner);
  d.give(0, d.mul(d.cotangent, d.sum(left, right)));
}

void Mish(Derivation& d) {
  const ValueId x = d.operands[0];
  const ValueId bent = d.add(Op::tanh, {d.add(Op::log1p, {d.add(Op::exp, {x})})});
  const ValueId slope = d.mul(d.mul(x, sigmoid(d, x)), d.plus(d.neg(d.square(bent)), 1));
  d.give(0, d.mul(d.cotangent, d.sum(bent, slope)));
}

/// axis
void Softmax(Derivation& d) {
  const Integers axes{d.attrs.get<std::int64_t>("axis")};
  d.give(0, d.mul(d.result, d.sub(d.cotangent, spread_sum(d, d.mul(d.cotangent, d.result), axes))));
}
void LogSoftmax(Derivation& d) {
  const Integers axes{d.attrs.get<std::int64_t>("axis")};
  d.give(0, d.sub(d.cotangent, d.mul(d.add(Op::exp, {d.result}), spread_sum(d, d.cotangent, axes))));
}

/// axes
void Logsumexp(Derivation& d) {
  const ValueId x = d.operands[0];
  const Integers& axes = d.attrs.get<Integers>("axes");
  const Dims shape = d.shape(x);
  const ValueId weight = d.add(Op::exp, {d.sub(x, spread_result(d, d.result, axes, shape))});
  d.give(0, d.mul(spread_result(d, d.cotangent, axes, shape), weight));
}

/// Operands: x, then weight if `weighted`, then bias if `biased`, in x's last dimensions. Kept: mean and 1/deviation,
/// with the axes kept.
void LayerNorm(Derivation& d) {
  const ValueId x = d.operands[0];
  const Integers& axes = d.attrs.get<Integers>("axes");
  const bool weighted = d.attrs.get<bool>("weighted"), biased = d.attrs.get<bool>("biased");
  const Dims shape = d.shape(x);
  Integers leading;
  for (std::int64_t i = 0; i < std::int64_t(shape.size() - axes.size()); ++i) leading.push_back(i);
  const ValueId inverse = spread_result(d, d.kept[1], axes, shape);
  const ValueId normal = d.mul(d.sub(x, spread_result(d, d.kept[0], axes, shape)), inverse);
  if (d.wanted[0]) {
    ValueId slope = d.cotangent;
    if (weighted) slope = d.mul(slope, d.broadcast(d.operands[1], axes, shape));
    const ValueId count = d.broadcast(d.count(shape, axes, d.type(x).dtype), {}, shape);
    const ValueId along = d.div(spread_sum(d, d.mul(slope, normal), axes), count);
    const ValueId level = d.div(spread_sum(d, slope, axes), count);
    d.give(0, d.mul(inverse, d.sub(d.sub(slope, level), d.mul(normal, along))));
  }
  if (weighted && d.wanted[1]) d.give(1, d.reduce(Op::reduce_sum, d.mul(d.cotangent, normal), leading));
  const std::size_t bias = weighted ? 2 : 1;
  if (biased && d.wanted[bias]) d.give(bias, d.reduce(Op::reduce_sum, d.cotangent, leading));
}

namespace {

/// axes, correction: of sum((x - mean)^2) / (count - correction)
void give_variance(Derivation& d, ValueId cotangent) {
  const ValueId x = d.operands[0];
  const Integers& axes = d.attrs.get<Integers>("axes");
  const Dims shape = d.shape(x);
  const ValueId count = d.broadcast(d.count(shape, axes, d.type(x).dtype), {}, shape);
  const ValueId centred = d.sub(x, d.div(spread_sum(d, x, axes), count));
  const ValueId freedom = d.plus(count, -attribute(d, "correction"));
  d.give(0, d.mul(d.div(d.scale(spread_result(d, cotangent, axes, shape), 2), freedom), centred));
}

}  // namespace

void Variance(Derivation& d) { give_variance(d, d.cotangent); }
void Deviation(Derivation& d) {
  const ValueId slope = d.div(d.cotangent, d.scale(d.result, 2));
  give_variance(d, d.where(d.compare(Op::eq, d.result, 0), d.zeros(d.type(d.result)), slope));
}

/// axes: the Euclidean norm, whose derivative at 0 is 0.
void Norm(Derivation& d) {
  const ValueId x = d.operands[0];
  const Integers& axes = d.attrs.get<Integers>("axes");
  const Dims shape = d.shape(x);
  const ValueId norm = spread_result(d, d.result, axes, shape);
  const ValueId direction = d.where(d.compare(Op::eq, norm, 0), d.zeros(d.type(x)), d.div(x, norm));
  d.give(0, d.mul(spread_result(d, d.cotangent, axes, shape), direction));
}

/// exponent
void Power(Derivation& d) {
  const ValueId x = d.operands[0];
  const double exponent = attribute(d, "exponent");
  d.give(0, exponent == 0 ? d.zeros(d.type(x)) : d.mul(d.cotangent, d.scale(power(d, x, exponent - 1), exponent)));
}

/// low, high; `open`: the bounds themselves do not pass (hardtanh), else they do (clamp).
void Clamp(Derivation& d) {
  const ValueId x = d.operands[0];
  const double low = attribute(d, "low"), high = attribute(d, "high");
  if (d.attrs.get<bool>("open")) {
    const ValueId inside = d.add(Op::bit_and, {d.compare(Op::gt, x, low), d.compare(Op::lt, x, high)});
    d.give(0, passed(d, d.cotangent, d.add(Op::logical_not, {inside}), x));
  } else {
    const ValueId inside = d.add(Op::bit_and, {d.compare(Op::ge, x, low), d.compare(Op::le, x, high)});
    d.give(0, d.where(inside, d.cotangent, d.zeros(d.type(x))));
  }
}

/// The largest or smallest element over `axes` (not given: all): elements that are equal to it (or NaN, where it is
/// one) share the cotangent.
void Extremum(Derivation& d) {
  const Type type = d.type(d.operands[0]);
  Integers axes;
  if (const Attr* given = d.attrs.find("axes"))
    axes = std::get<Integers>(*given);
  else
    for (std::int64_t i = 0; i < type.rank(); ++i) axes.push_back(i);
  const ValueId x = d.operands[0], extremum = d.spread(d.result, axes, type.shape);
  const ValueId unknown = d.add(Op::bit_and, {d.add(Op::is_nan, {x}), d.add(Op::is_nan, {extremum})});
  const ValueId chosen = d.add(Op::bit_or, {d.add(Op::eq, {x, extremum}), unknown});
  const ValueId count = d.reduce(Op::reduce_sum, d.cast(chosen, type.dtype), axes);
  d.give(0, d.where(chosen, d.spread(d.div(d.cotangent, count), axes, type.shape), d.zeros(type)));
}

/// One element along `axis`, or over `axes`: the one at the position kept (of several axes counted row by row, in any
/// dtype; the axes dropped), which alone has the derivative. compared: to torch that depends on the operand, by zeros
/// (nll_loss).
void Picked(Derivation& d) {
  const Attr* given = d.attrs.find("axes");
  const Integers axes = given ? std::get<Integers>(*given) : Integers{d.attrs.get<std::int64_t>("axis")};
  const Type type = d.type(d.operands[0]);
  const DType counted = d.type(d.kept[0]).dtype;
  ValueId position = d.cast(d.iota(type.shape, axes[0]), counted);
  for (std::size_t i = 1; i < axes.size(); ++i)
    position = d.sum(d.mul(position, d.broadcast(d.count(type.shape, {axes[i]}, counted), {}, type.shape)),
                     d.cast(d.iota(type.shape, axes[i]), counted));
  const ValueId chosen = d.add(Op::eq, {position, d.spread(d.kept[0], axes, type.shape)});
  const ValueId spread = spread_result(d, d.cotangent, axes, type.shape);
  d.give(0, d.attrs.find("compared") ? passed(d, spread, d.add(Op::logical_not, {chosen}), d.operands[0])
                                     : d.where(chosen, spread, d.zeros(type)));
}

/// The product of two vectors: multiples of the other one, of whose zeros a product of matrices would lose the sign.
void Dot(Derivation& d) {
  for (std::size_t i = 0; i < 2; ++i) {
    if (!d.wanted[i]) continue;
    const ValueId other = d.operands[1 - i];
    const Dims shape = d.shape(other), given = d.shape(d.operands[i]);
    d.give(i, d.reshape(d.mul(d.spread(d.cotangent, {std::int64_t(shape.size()) - 1}, shape), other), given));
  }
}

/// axes, shifts (not negative, below the sizes), lengths: the sizes of those axes. Rolled back, which is one function
/// too.
void Roll(Derivation& d) {
  Integers axes = d.attrs.get<Integers>("axes"), shifts = d.attrs.get<Integers>("shifts"),
           lengths = d.attrs.get<Integers>("lengths");
  for (Integers* each : {&axes, &shifts, &lengths}) std::reverse(each->begin(), each->end());
  ValueId value = d.cotangent;
  const Dims shape = d.shape(value);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (shifts[i] == 0) continue;
    const auto part = [&](std::int64_t start, std::int64_t size) {
      Dims starts(shape.size(), 0), sizes = shape;
      starts[std::size_t(axes[i])] = start;
      sizes[std::size_t(axes[i])] = size;
      Attrs attrs;
      attrs.set("starts", starts);
      attrs.set("sizes", sizes);
      attrs.set("steps", Integers(shape.size(), 1));
      return d.add(Op::slice, {value}, std::move(attrs));
    };
    Attrs attrs;
    attrs.set("axis", axes[i]);
    value = d.reshape(
        d.add(Op::concat, {part(shifts[i], lengths[i] - shifts[i]), part(0, shifts[i])}, std::move(attrs)), shape);
    shifts[i] = lengths[i] - shifts[i];
  }
  if (value == d.cotangent) value = same_again(d, value);
  Attrs attrs;
  attrs.set("axes", axes);
  attrs.set("shifts", shifts);
  attrs.set("lengths", lengths);
  d.graph.composites.push_back({CompositeRule::Roll, {d.cotangent}, value, {}, std::move(attrs)});
  d.give(0, value);
}

}  // namespace composite

GradientRule gradient_rule(CompositeRule rule) {
  static constexpr GradientRule rules[] = {
#define FJ_COMPOSITE(name) composite::name,
#include "graph_ir/rules/composites.def"
  };
  return rules[std::size_t(rule)];
}

}  // namespace fj
