/// Composite functions: the arithmetic of each follows the order of operations of the libraries' own kernels.
#include "tracer/frontends/composites.h"

#include <cmath>

namespace fj {

ValueId in_compute_dtype(Tracer& tracer, ValueId x, const std::function<ValueId(ValueId)>& body) {
  const DType dtype = dtype_of(tracer, x);
  return cast(tracer, body(cast(tracer, x, compute_dtype(dtype))), dtype);
}

ValueId with_constant(Tracer& tracer, Op op, ValueId x, double value) {
  return emit(tracer, op, {x, constant_like(tracer, x, value)});
}

ValueId constant_with(Tracer& tracer, Op op, double value, ValueId x) {
  return emit(tracer, op, {constant_like(tracer, x, value), x});
}

ValueId composite(Tracer& tracer, CompositeRule rule, std::vector<ValueId> operands, ValueId result,
                  std::vector<std::pair<std::string, Attr>> attrs, std::vector<ValueId> kept) {
  Attrs named;
  for (auto& [name, value] : attrs) named.set(name, std::move(value));
  tracer.composite(rule, std::move(operands), result, std::move(kept), std::move(named));
  return result;
}

ValueId itself(Tracer& tracer, ValueId x) {
  return composite(tracer, CompositeRule::Threshold, {x}, same_again(tracer, x));
}

ValueId sigmoid(Tracer& tracer, ValueId input) {
  return in_compute_dtype(tracer, input, [&](ValueId x) {
    ValueId powers = with_constant(tracer, Op::add, emit(tracer, Op::exp, {emit(tracer, Op::neg, {x})}), 1);
    return composite(tracer, CompositeRule::Sigmoid, {x}, constant_with(tracer, Op::div, 1, powers));
  });
}

ValueId silu(Tracer& tracer, ValueId input) {
  return in_compute_dtype(tracer, input, [&](ValueId x) {
    ValueId powers = with_constant(tracer, Op::add, emit(tracer, Op::exp, {emit(tracer, Op::neg, {x})}), 1);
    return composite(tracer, CompositeRule::Silu, {x}, emit(tracer, Op::div, {x, powers}));
  });
}

ValueId gelu(Tracer& tracer, ValueId input, bool tanh_approximation) {
  return in_compute_dtype(tracer, input, [&](ValueId x) {
    if (!tanh_approximation) {
      ValueId error = emit(tracer, Op::erf, {with_constant(tracer, Op::mul, x, M_SQRT1_2)});
      ValueId result =
          emit(tracer, Op::mul, {with_constant(tracer, Op::mul, x, 0.5), with_constant(tracer, Op::add, error, 1)});
      return composite(tracer, CompositeRule::Gelu, {x}, result);
    }
    ValueId cube = emit(tracer, Op::mul, {emit(tracer, Op::mul, {x, x}), x});
    ValueId inner = emit(tracer, Op::add, {x, with_constant(tracer, Op::mul, cube, 0.044715)});
    ValueId bent = emit(tracer, Op::tanh, {with_constant(tracer, Op::mul, inner, M_SQRT2 * M_2_SQRTPI * 0.5)});
    ValueId result =
        emit(tracer, Op::mul, {with_constant(tracer, Op::mul, x, 0.5), with_constant(tracer, Op::add, bent, 1)});
    return composite(tracer, CompositeRule::GeluTanh, {x}, result);
  });
}

ValueId softplus(Tracer& tracer, ValueId input, double beta, double threshold) {
  return in_compute_dtype(tracer, input, [&](ValueId x) {
    ValueId scaled = with_constant(tracer, Op::mul, x, beta);
    ValueId soft = with_constant(tracer, Op::div, emit(tracer, Op::log1p, {emit(tracer, Op::exp, {scaled})}), beta);
    ValueId result = emit(tracer, Op::where, {with_constant(tracer, Op::gt, scaled, threshold), x, soft});
    return composite(tracer, CompositeRule::Softplus, {x}, result, {{"beta", beta}, {"threshold", threshold}});
  });
}

ValueId elu(Tracer& tracer, ValueId input, double alpha, double scale, double input_scale) {
  return in_compute_dtype(tracer, input, [&](ValueId x) {
    ValueId below = emit(tracer, Op::expm1, {input_scale == 1 ? x : with_constant(tracer, Op::mul, x, input_scale)});
    below = with_constant(tracer, Op::mul, below, alpha * scale);
    ValueId result =
        emit(tracer, Op::where, {with_constant(tracer, Op::lt, x, 0), below, with_constant(tracer, Op::mul, x, scale)});
    return composite(tracer, CompositeRule::Elu, {x}, result,
                     {{"alpha", alpha}, {"scale", scale}, {"input_scale", input_scale}});
  });
}

ValueId mish(Tracer& tracer, ValueId input) {
  return in_compute_dtype(tracer, input, [&](ValueId x) {
    ValueId bent = emit(tracer, Op::tanh, {emit(tracer, Op::log1p, {emit(tracer, Op::exp, {x})})});
    return composite(tracer, CompositeRule::Mish, {x}, emit(tracer, Op::mul, {x, bent}));
  });
}

ValueId clamp(Tracer& tracer, ValueId x, double low, double high) {
  return with_constant(tracer, Op::minimum, with_constant(tracer, Op::maximum, x, low), high);
}

ValueId bounded(Tracer& tracer, Op outside, ValueId x, ValueId limit) {
  if (tracer.device() != kHost) return pointwise(tracer, outside == Op::lt ? Op::maximum : Op::minimum, {x, limit});
  return pointwise(tracer, Op::where, {pointwise(tracer, outside, {x, limit}), limit, x});
}

ValueId hard_sigmoid(Tracer& tracer, ValueId input) {
  return in_compute_dtype(tracer, input, [&](ValueId x) {
    return with_constant(tracer, Op::div, clamp(tracer, with_constant(tracer, Op::add, x, 3), 0, 6), 6);
  });
}

ValueId hard_swish(Tracer& tracer, ValueId input) {
  return in_compute_dtype(tracer, input, [&](ValueId x) {
    ValueId gate = clamp(tracer, with_constant(tracer, Op::add, x, 3), 0, 6);
    return with_constant(tracer, Op::div, emit(tracer, Op::mul, {x, gate}), 6);
  });
}

ValueId log_sigmoid(Tracer& tracer, ValueId input) {
  return in_compute_dtype(tracer, input, [&](ValueId x) {
    ValueId tail =
        emit(tracer, Op::log1p, {emit(tracer, Op::exp, {emit(tracer, Op::neg, {emit(tracer, Op::abs, {x})})})});
    return composite(tracer, CompositeRule::LogSigmoid, {x},
                     emit(tracer, Op::sub, {with_constant(tracer, Op::minimum, x, 0), tail}));
  });
}

ValueId leaky_relu(Tracer& tracer, ValueId input, double slope) {
  return in_compute_dtype(tracer, input, [&](ValueId x) {
    const ValueId bent =
        emit(tracer, Op::where, {with_constant(tracer, Op::gt, x, 0), x, with_constant(tracer, Op::mul, x, slope)});
    return composite(tracer, CompositeRule::LeakyRelu, {x}, bent, {{"slope", slope}});
  });
}

// ---- reductions

namespace {

/// Ints as i64 that are sizes; the program fails where one is negative, or too large for a sum of them.
ValueId as_counts(Tracer& tracer, ValueId x) {
  x = cast(tracer, x, DType::I64);
  const Axes all = all_axes(type_of(tracer, x).rank());
  const ValueId least = reduce(tracer, Op::reduce_min, x, all, false);
  const ValueId most = reduce(tracer, Op::reduce_max, x, all, false);
  return tracer.checked(x, emit(tracer, Op::bit_and, {with_constant(tracer, Op::ge, least, 0),
                                                      with_constant(tracer, Op::le, most, double(1LL << 31))}));
}

}  // namespace

ValueId number_of_bins(Tracer& tracer, ValueId x) {
  const ValueId largest =
      reduce(tracer, Op::reduce_max, as_counts(tracer, x), all_axes(type_of(tracer, x).rank()), false);
  return with_constant(tracer, Op::add, largest, 1);
}

ValueId counted_bins(Tracer& tracer, ValueId x, ValueId weights, const SymDim& least) {
  const ValueId index = cast(tracer, x, DType::I64);
  const SymDim bins = tracer.size_of_number(
      pointwise(tracer, Op::maximum, {number_of_bins(tracer, index), size_value(tracer, least, DType::I64)}));
  const Dims shape = shape_of(tracer, x);
  weights = weights.valid() ? reshape(tracer, weights, shape) : full(tracer, DType::I64, std::int64_t(1), shape);
  const DType dtype = dtype_of(tracer, weights);
  Attrs attrs;
  attrs.set("axis", std::int64_t(0));
  return emit(tracer, Op::scatter_add,
              {full(tracer, dtype, scalar_of(dtype, std::int64_t(0)), {bins}), weights, index}, std::move(attrs));
}

ValueId repeated_positions(Tracer& tracer, ValueId counts) {
  counts = as_counts(tracer, counts);
  Attrs along;
  along.set("axis", std::int64_t(0));
  const ValueId ends = emit(tracer, Op::cumsum, {counts}, along);
  const SymDim last = shape_of(tracer, counts)[0] - 1;
  const SymDim total = tracer.size_of_number(reshape(tracer, slice(tracer, ends, 0, last, 1), {}));
  // At each place, how many elements begin there; those that are nowhere begin with what follows. The sum so far is the
  // number of the elements that have begun.
  const ValueId begins = pointwise(tracer, Op::sub, {ends, counts});
  const ValueId begun = emit(tracer, Op::scatter_add,
                             {full(tracer, DType::I64, std::int64_t(0), {total + 1}),
                              full(tracer, DType::I64, std::int64_t(1), shape_of(tracer, counts)), begins}, along);
  return with_constant(tracer, Op::sub, slice(tracer, emit(tracer, Op::cumsum, {begun}, along), 0, 0, total), 1);
}

ValueId count_value(Tracer& tracer, const Dims& shape, const Axes& axes, DType dtype) {
  SymDim count = 1;
  for (std::int64_t axis : axes) count = count * shape[axis];
  return size_value(tracer, count, dtype);
}

ValueId sum(Tracer& tracer, ValueId input, const Axes& axes, bool keepdims) {
  return in_compute_dtype(tracer, input, [&](ValueId x) { return reduce(tracer, Op::reduce_sum, x, axes, keepdims); });
}

ValueId mean(Tracer& tracer, ValueId input, const Axes& axes, bool keepdims) {
  return in_compute_dtype(tracer, input, [&](ValueId x) {
    const DType dtype = dtype_of(tracer, x);
    ValueId count = count_value(tracer, shape_of(tracer, x), axes, dtype);
    const std::size_t before = tracer.graph().nodes.size();
    const ValueId total = reduce(tracer, Op::reduce_sum, x, axes, keepdims);
    for (std::size_t n = before; n < tracer.graph().nodes.size(); ++n)
      tracer.note_inner(tracer.graph().nodes[n].results[0]);
    return pointwise(tracer, Op::div, {total, count});
  });
}

ValueId variance(Tracer& tracer, ValueId input, const Axes& axes, double correction, bool keepdims) {
  return in_compute_dtype(tracer, input, [&](ValueId x) {
    const DType dtype = dtype_of(tracer, x);
    const Dims shape = shape_of(tracer, x);
    ValueId centred = pointwise(tracer, Op::sub, {x, mean(tracer, x, axes, true)});
    ValueId squares = reduce(tracer, Op::reduce_sum, emit(tracer, Op::mul, {centred, centred}), axes, keepdims);
    ValueId count = count_value(tracer, shape, axes, dtype);
    if (correction != 0) {
      // max(count - correction, 0): too few elements give 0/0 or x/0 as in both libraries.
      count = with_constant(tracer, Op::maximum, with_constant(tracer, Op::sub, count, correction), 0);
    }
    return composite(tracer, CompositeRule::Variance, {x}, pointwise(tracer, Op::div, {squares, count}),
                     {{"axes", axes}, {"correction", correction}});
  });
}

ValueId softmax(Tracer& tracer, ValueId input, std::int64_t axis) {
  return in_compute_dtype(tracer, input, [&](ValueId x) {
    ValueId shifted = pointwise(tracer, Op::sub, {x, reduce(tracer, Op::reduce_max, x, {axis}, true)});
    ValueId powers = emit(tracer, Op::exp, {shifted});
    ValueId result = pointwise(tracer, Op::div, {powers, reduce(tracer, Op::reduce_sum, powers, {axis}, true)});
    return composite(tracer, CompositeRule::Softmax, {x}, result, {{"axis", axis}});
  });
}

ValueId log_softmax(Tracer& tracer, ValueId input, std::int64_t axis) {
  return in_compute_dtype(tracer, input, [&](ValueId x) {
    ValueId shifted = pointwise(tracer, Op::sub, {x, reduce(tracer, Op::reduce_max, x, {axis}, true)});
    ValueId total = reduce(tracer, Op::reduce_sum, emit(tracer, Op::exp, {shifted}), {axis}, false);
    ValueId result = pointwise(tracer, Op::sub, {shifted, expand_axis(tracer, emit(tracer, Op::log, {total}), axis)});
    return composite(tracer, CompositeRule::LogSoftmax, {x}, result, {{"axis", axis}});
  });
}

ValueId logsumexp(Tracer& tracer, ValueId input, const Axes& axes, bool keepdims) {
  return in_compute_dtype(tracer, input, [&](ValueId x) {
    ValueId largest = reduce(tracer, Op::reduce_max, x, axes, true);
    // An infinite maximum is not subtracted: inf - inf would be NaN.
    ValueId infinite = emit(tracer, Op::is_inf, {largest});
    ValueId shift = emit(tracer, Op::where, {infinite, constant_like(tracer, largest, 0), largest});
    ValueId total =
        reduce(tracer, Op::reduce_sum, emit(tracer, Op::exp, {pointwise(tracer, Op::sub, {x, shift})}), axes, keepdims);
    ValueId logarithm = emit(tracer, Op::log, {total});
    ValueId result = emit(tracer, Op::add, {logarithm, reshape(tracer, shift, shape_of(tracer, logarithm))});
    return composite(tracer, CompositeRule::Logsumexp, {x}, result, {{"axes", axes}});
  });
}

namespace {

Axes last_axes(Tracer& tracer, ValueId x, int count) {
  const int rank = int(shape_of(tracer, x).size());
  Axes axes;
  for (int axis = rank - count; axis < rank; ++axis) axes.push_back(axis);
  return axes;
}

}  // namespace

ValueId layer_norm(Tracer& tracer, ValueId input, int normalized_rank, ValueId weight, ValueId bias, double epsilon) {
  return in_compute_dtype(tracer, input, [&](ValueId x) {
    const DType dtype = dtype_of(tracer, x);
    const Axes axes = last_axes(tracer, x, normalized_rank);
    ValueId count = count_value(tracer, shape_of(tracer, x), axes, dtype);
    ValueId average = pointwise(tracer, Op::div, {reduce(tracer, Op::reduce_sum, x, axes, true), count});
    ValueId centred = pointwise(tracer, Op::sub, {x, average});
    ValueId squares = reduce(tracer, Op::reduce_sum, emit(tracer, Op::mul, {centred, centred}), axes, true);
    ValueId spread = pointwise(tracer, Op::div, {squares, count});
    ValueId inverse = emit(tracer, Op::rsqrt, {with_constant(tracer, Op::add, spread, epsilon)});
    ValueId result = pointwise(tracer, Op::mul, {centred, inverse});
    std::vector<ValueId> operands{x};
    // In x's own sizes: the derivative takes them to be the same expressions.
    const Dims shape = shape_of(tracer, x), normalized(shape.end() - normalized_rank, shape.end());
    for (auto [factor, op] : {std::pair{weight, Op::mul}, std::pair{bias, Op::add}}) {
      if (!factor.valid()) continue;
      operands.push_back(broadcast_to(tracer, cast(tracer, factor, dtype), normalized));
      result = pointwise(tracer, op, {result, operands.back()});
    }
    // torch adds a bias of 0 where there is none: no -0.0 comes out.
    if (!bias.valid()) result = with_constant(tracer, Op::add, result, 0);
    return composite(tracer, CompositeRule::LayerNorm, operands, result,
                     {{"axes", axes}, {"weighted", weight.valid()}, {"biased", bias.valid()}}, {average, inverse});
  });
}

ValueId rms_norm(Tracer& tracer, ValueId input, int normalized_rank, ValueId weight, double epsilon) {
  return in_compute_dtype(tracer, input, [&](ValueId x) {
    const Axes axes = last_axes(tracer, x, normalized_rank);
    ValueId power =
        mean(tracer, composite(tracer, CompositeRule::Power, {x}, emit(tracer, Op::mul, {x, x}), {{"exponent", 2.0}}),
             axes, true);
    ValueId result =
        pointwise(tracer, Op::mul, {x, emit(tracer, Op::rsqrt, {with_constant(tracer, Op::add, power, epsilon)})});
    if (weight.valid()) result = pointwise(tracer, Op::mul, {result, cast(tracer, weight, dtype_of(tracer, x))});
    return result;
  });
}

}  // namespace fj
