/// Composite functions in terms of graph operations, shared by the libraries where the meaning is the same.
///
/// Numerically as eager does: half types are computed in f32 and rounded once at the end, sums of differences before
/// squares, the maximum subtracted before the exponential.
#pragma once

#include <functional>

#include "tracer/frontends/builders.h"

namespace fj {

/// body(x in its compute dtype), rounded back to x's dtype.
ValueId in_compute_dtype(Tracer& tracer, ValueId x, const std::function<ValueId(ValueId)>& body);
/// op(x, constant) and op(constant, x).
ValueId with_constant(Tracer& tracer, Op op, ValueId x, double value);
ValueId constant_with(Tracer& tracer, Op op, double value, ValueId x);

/// Notes that `result` is a composite of `operands` with a derivative of its own. Returns result.
ValueId composite(Tracer& tracer, CompositeRule rule, std::vector<ValueId> operands, ValueId result,
                  std::vector<std::pair<std::string, Attr>> attrs = {}, std::vector<ValueId> kept = {});

/// x in a function whose derivative does not read it, but depends on it to torch: its own derivative is zeros, not
/// none.
ValueId itself(Tracer& tracer, ValueId x);

ValueId sigmoid(Tracer& tracer, ValueId x);
ValueId silu(Tracer& tracer, ValueId x);
ValueId gelu(Tracer& tracer, ValueId x, bool tanh_approximation);
ValueId softplus(Tracer& tracer, ValueId x, double beta, double threshold);
ValueId elu(Tracer& tracer, ValueId x, double alpha, double scale, double input_scale);
ValueId mish(Tracer& tracer, ValueId x);
ValueId hard_sigmoid(Tracer& tracer, ValueId x);
ValueId hard_swish(Tracer& tracer, ValueId x);
ValueId log_sigmoid(Tracer& tracer, ValueId x);
ValueId leaky_relu(Tracer& tracer, ValueId x, double slope);
/// min(max(x, low), high); NaN stays.
ValueId clamp(Tracer& tracer, ValueId x, double low, double high);
/// torch's bound of a tensor by a number: `limit` where x is below (Op::lt) or above (Op::gt) it, else x. NaN stays. Of
/// equal zeros x's on the host, as std::max(x, limit); on a device +0 is above -0, as in CUDA's max().
ValueId bounded(Tracer& tracer, Op outside, ValueId x, ValueId limit);

/// Sum in the dtype's accumulator, rounded once.
ValueId sum(Tracer& tracer, ValueId x, const Axes& axes, bool keepdims);
ValueId mean(Tracer& tracer, ValueId x, const Axes& axes, bool keepdims);
ValueId variance(Tracer& tracer, ValueId x, const Axes& axes, double correction, bool keepdims);
ValueId softmax(Tracer& tracer, ValueId x, std::int64_t axis);
ValueId log_softmax(Tracer& tracer, ValueId x, std::int64_t axis);
ValueId logsumexp(Tracer& tracer, ValueId x, const Axes& axes, bool keepdims);
/// Normalises over the last `normalized_rank` axes; weight and bias may be invalid.
ValueId layer_norm(Tracer& tracer, ValueId x, int normalized_rank, ValueId weight, ValueId bias, double epsilon);
ValueId rms_norm(Tracer& tracer, ValueId x, int normalized_rank, ValueId weight, double epsilon);
/// Of ints, not empty, as i64: the largest + 1. The program fails where one of them is negative.
ValueId number_of_bins(Tracer& tracer, ValueId x);
/// Of ints, not empty: how often each number from 0 to the largest comes, or the sums of `weights` (invalid: none) by
/// number; no fewer than `least` of them. The program fails where one of the ints is negative.
ValueId counted_bins(Tracer& tracer, ValueId x, ValueId weights, const SymDim& least);
/// Of ints, not empty: where the element i of a row comes from that has each element as often as `counts` says,
/// i64[n], n being their sum. The program fails where one of them is negative.
ValueId repeated_positions(Tracer& tracer, ValueId counts);
/// Number of elements along axes as a value.
ValueId count_value(Tracer& tracer, const Dims& shape, const Axes& axes, DType dtype);

}  // namespace fj
