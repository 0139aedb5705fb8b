/// Reductions and scans. Results are row-major whatever the operand's layout; half types accumulate in f32.
#include <algorithm>
#include <cmath>

#include "tracer/frontends/composites.h"
#include "tracer/frontends/torch/torch.h"

namespace fj {
namespace {

/// dim argument: absent, an int, or a sequence; 0-d tensors take 0 and -1; an empty sequence means all axes.
Axes reduced_axes(Tracer& tracer, const V& dim, int rank) {
  if (!dim || tracer.is_none(dim)) return all_axes(rank);
  if (PyObject* object = is_sequence(dim) ? nullptr : tracer.constant_object(dim); object && PyBool_Check(object))
    refuse("a dim that is a bool");
  Axes axes = rank == 0 ? (axes_argument(tracer, dim, 1), Axes{}) : axes_argument(tracer, dim, rank);
  const bool empty_sequence = (dim->kind == ValueKind::Tuple && as<TupleValue>(dim)->items.empty()) ||
                              (dim->kind == ValueKind::List && as<ListValue>(dim)->items.empty());
  return empty_sequence ? all_axes(rank) : axes;
}

/// The same where an empty sequence does not mean all axes: to any() and all() it names none, logsumexp() refuses it.
Axes named_axes(Tracer& tracer, const Parameters& p, int rank) {
  if (V dim = p["dim"]; dim && is_sequence(dim) && tracer.sequence_items(dim).empty())
    p.refuse("a 'dim' that names no axes");
  return reduced_axes(tracer, p["dim"], rank);
}

/// "Autograd not support dtype: Long"
void refuse_integers_of_gradients(Tracer& tracer, const ArrayValue& x, DType result) {
  if (!is_float(result) && !is_complex(result) && tracer.requires_gradient(x))
    refuse("a sum or product of integers of a tensor that requires a gradient");
}

struct Reduction {
  Array x;
  Axes axes;
  bool keepdim;
  DType dtype;   // of the result unless dtype= says otherwise
};

Reduction reduction(Tracer& tracer, const Parameters& p) {
  Reduction r;
  r.x = torch_tensor(tracer, p.required("input"));
  r.axes = reduced_axes(tracer, p["dim"], r.x->rank());
  r.keepdim = p.flag("keepdim", false);
  auto dtype = torch_dtype_argument(tracer, p["dtype"]);
  r.dtype = dtype ? *dtype : is_float(r.x->dtype) ? r.x->dtype : DType::I64;
  refuse_integers_of_gradients(tracer, *r.x, r.dtype);
  return r;
}

/// What is added up of `value`. A sum begins with 0.0, which shows where it has no other element: the sum of a 0-d -0.0
/// is 0.0.
ValueId summands(Tracer& tracer, const Reduction& r, ValueId value) {
  value = cast(tracer, value, r.dtype);
  return r.x->rank() == 0 && is_float(r.dtype) ? with_constant(tracer, Op::add, value, 0) : value;
}

Op bool_op(Op op) { return op == Op::reduce_max ? Op::reduce_or : Op::reduce_and; }

void require_elements(Tracer& tracer, const Dims& shape, const Axes& axes) {
  for (std::int64_t axis : axes)
    if (tracer.decide(shape[axis], Py_EQ, 0)) refuse("a reduction without elements that has no identity");
}

ValueId extremum(Tracer& tracer, Op op, const Array& x, const Axes& axes, bool keepdim) {
  require_elements(tracer, x->shape, axes);
  return reduce(tracer, x->dtype == DType::Bool ? bool_op(op) : op, tracer.read(*x), axes, keepdim);
}

V amax_row(Tracer& tracer, const char* name, Op op, const Arguments& arguments) {
  Parameters p(tracer, name, arguments, "input, dim, keepdim, *, out");
  p.unsupported("out");
  Array x = torch_tensor(tracer, p.required("input"));
  return torch_fresh(tracer,
                     extremum(tracer, op, x, reduced_axes(tracer, p["dim"], x->rank()), p.flag("keepdim", false)));
}

V arg_extremum(Tracer& tracer, Op op, const Array& x, std::optional<std::int64_t> dim, bool keepdim) {
  if (x->dtype == DType::Bool) refuse("argmax() of booleans");
  ValueId value = tracer.read(*x);
  Dims shape = x->shape;
  if (!dim) value = reshape(tracer, value, {product(x->shape)});
  else if (shape.empty()) value = reshape(tracer, value, {SymDim(1)});
  const std::int64_t axis = dim && !shape.empty() ? *dim : 0;
  require_elements(tracer, shape_of(tracer, value), {axis});
  Attrs attrs;
  attrs.set("axis", axis);
  ValueId result = emit(tracer, op, {value}, std::move(attrs));
  if (keepdim) {
    for (std::size_t i = 0; i < shape.size(); ++i)
      if (!dim || std::int64_t(i) == *dim) shape[i] = 1;
    result = reshape(tracer, result, shape);
  }
  return torch_fresh(tracer, result);
}

V max_row(Tracer& tracer, const char* name, Op op, Op arg_op, Op pair_op, const Arguments& arguments) {
  // max(x), max(x, other), max(x, dim, keepdim)
  const bool keyword_other = !arguments.keywords.empty() && arguments.keywords[0].first == "other";
  if (keyword_other || (arguments.positional.size() == 2 && array_of(arguments.positional[1])))
    return torch_extremum(tracer, pair_op, arguments);
  Parameters p(tracer, name, arguments, "input, dim, keepdim, *, out");
  p.unsupported("out");
  Array x = torch_tensor(tracer, p.required("input"));
  if (!p["dim"]) {
    ValueId value = extremum(tracer, op, x, all_axes(x->rank()), false);
    if (x->rank() > 0 && is_float(x->dtype)) composite(tracer, CompositeRule::Extremum, {tracer.read(*x)}, value);
    return torch_fresh(tracer, value);
  }
  const std::int64_t dim = torch_dim(tracer, p["dim"], x->rank());
  const bool keepdim = p.flag("keepdim", false);
  const Axes axes = x->rank() == 0 ? Axes{} : Axes{dim};
  if (x->dtype == DType::Bool) unsupported("max() of booleans along an axis");
  V position = arg_extremum(tracer, arg_op, x, dim, keepdim);
  ValueId value = extremum(tracer, op, x, axes, false);
  if (!axes.empty() && is_float(x->dtype)) {
    // One element of equal ones has the derivative: the one whose position is returned. It is that of the extremum
    // without its dimension, which may be what is saved for another derivative.
    Dims dropped = x->shape;
    dropped.erase(dropped.begin() + dim);
    value = composite(tracer, CompositeRule::Picked, {tracer.read(*x)}, value, {{"axis", dim}},
                      {reshape(tracer, tracer.read(*array_of(position)), dropped)});
  }
  if (!axes.empty() && keepdim) value = expand_axis(tracer, value, dim);
  return torch_return_type(tracer, name, {torch_fresh(tracer, value), position});
}

V any_row(Tracer& tracer, const char* name, Op op, const Arguments& arguments) {
  Parameters p(tracer, name, arguments, "input, dim, keepdim, *, out");
  p.unsupported("out");
  Array x = torch_tensor(tracer, p.required("input"));
  if (x->dtype == DType::U8) unsupported("any() and all() of uint8");
  ValueId value = tracer.read(*x);
  if (x->dtype != DType::Bool) value = with_constant(tracer, Op::ne, value, 0);
  return torch_fresh(tracer, reduce(tracer, op, value, named_axes(tracer, p, x->rank()), p.flag("keepdim", false)));
}

V spread(Tracer& tracer, const char* name, bool root, const Arguments& arguments) {
  // var(x, dim, unbiased, keepdim) and var(x, unbiased): the second is told by its bool.
  const char* signature = "input, dim, unbiased, keepdim, *, correction, out";
  if (arguments.positional.size() == 2) {
    PyObject* second = array_of(arguments.positional[1]) ? nullptr : tracer.constant_object(arguments.positional[1]);
    if (second && PyBool_Check(second)) signature = "input, unbiased, dim, keepdim, *, correction, out";
  }
  Parameters p(tracer, name, arguments, signature);
  p.unsupported("out");
  Array x = torch_tensor(tracer, p.required("input"));
  if (!is_float(x->dtype)) refuse(std::string(name) + "() of integers");
  double correction = p.absent("correction") ? 1 : p.number("correction", 1);
  if (!p.absent("unbiased") && !p.absent("correction")) p.refuse("the arguments 'unbiased' and 'correction'");
  if (!p.absent("unbiased")) correction = p.flag("unbiased", true) ? 1 : 0;
  const Axes axes = reduced_axes(tracer, p["dim"], x->rank());
  // torch warns where the correction leaves no degree of freedom.
  SymDim count = 1;
  for (std::int64_t axis : axes) count = count * x->shape[axis];
  // It counts elements, of which an empty tensor has none whatever the axes.
  if (tracer.decide(product(x->shape), Py_EQ, 0) || tracer.decide(count, Py_LE, std::int64_t(std::ceil(correction))))
    unsupported(std::string(name) + "() of too few elements");
  ValueId value = in_compute_dtype(tracer, tracer.read(*x), [&](ValueId wide) {
    ValueId result = variance(tracer, wide, axes, correction, p.flag("keepdim", false));
    if (!root) return result;
    return composite(tracer, CompositeRule::Deviation, {wide}, emit(tracer, Op::sqrt, {result}),
                     {{"axes", axes}, {"correction", correction}});
  });
  return torch_fresh(tracer, value);
}

ValueId vector_norm(Tracer& tracer, ValueId input, double order, const Axes& axes, bool keepdim) {
  return in_compute_dtype(tracer, input, [&](ValueId x) {
    ValueId size = emit(tracer, Op::abs, {x});
    if (order == 2) {
      // Of one element eager takes the absolute value, whose square may overflow or vanish.
      const Dims shape = shape_of(tracer, x);
      const bool single = std::all_of(axes.begin(), axes.end(), [&](std::int64_t axis) {
        return tracer.decide(shape[std::size_t(axis)], Py_EQ, 1);
      });
      const ValueId norm =
          single
              ? reduce(tracer, Op::reduce_sum, size, axes, keepdim)
              : emit(tracer, Op::sqrt, {reduce(tracer, Op::reduce_sum, emit(tracer, Op::mul, {x, x}), axes, keepdim)});
      return composite(tracer, CompositeRule::Norm, {x}, norm, {{"axes", axes}});
    }
    if (order == 1) return reduce(tracer, Op::reduce_sum, size, axes, keepdim);
    if (std::isinf(order) && order > 0) {
      require_elements(tracer, shape_of(tracer, x), axes);
      if (tracer.requires_gradient(x)) break_graph(BreakReason::Gradient, "a norm whose derivative is left to torch");
      return reduce(tracer, Op::reduce_max, size, axes, keepdim);
    }
    unsupported("a vector norm of this order");
  });
}

double norm_order(Tracer& tracer, const Parameters& p, const char* name) {
  if (p.absent(name)) return 2;
  if (Ref<> object = tracer.constant_object(p[name]); object && PyUnicode_Check(object.get())) {
    if (p.text(name, "") == "fro") return 2;
    unsupported("a norm named by a string");
  }
  return p.number(name, 2);
}

V softmax_row(Tracer& tracer, bool logarithm, const Parameters& p) {
  Array x = torch_tensor(tracer, p.required("input"));
  if (p.absent("dim")) unsupported("softmax() without dim");
  const std::int64_t dim = torch_dim(tracer, p["dim"], x->rank());
  auto dtype = torch_dtype_argument(tracer, p["dtype"]);
  if (!is_float(dtype ? *dtype : x->dtype)) refuse("softmax() of integers");
  ValueId value = dtype ? cast(tracer, tracer.read(*x), *dtype) : tracer.read(*x);
  const Dims shape = shape_of(tracer, value);
  if (shape.empty()) value = reshape(tracer, value, {SymDim(1)});
  require_elements(tracer, shape_of(tracer, value), {dim});
  value = logarithm ? log_softmax(tracer, value, dim) : softmax(tracer, value, dim);
  return torch_fresh(tracer, reshape(tracer, value, shape));
}

V scan(Tracer& tracer, const char* name, Op op, const Arguments& arguments) {
  Parameters p(tracer, name, arguments, "input, dim, *, dtype, out");
  p.unsupported("out");
  Array x = torch_tensor(tracer, p.required("input"));
  const std::int64_t dim = torch_dim(tracer, p.required("dim"), x->rank());
  auto dtype = torch_dtype_argument(tracer, p["dtype"]);
  const DType result = dtype ? *dtype : is_float(x->dtype) ? x->dtype : DType::I64;
  refuse_integers_of_gradients(tracer, *x, result);
  if (is_half(result) || result == DType::Bool) unsupported(std::string(name) + "() of a half type or bool");
  ValueId value = cast(tracer, tracer.read(*x), result);
  if (x->rank() == 0) return torch_fresh(tracer, value);
  Attrs attrs;
  attrs.set("axis", dim);
  // Steps are in float64 and each result is rounded once: no partial sum or product of float32 overflows on its way.
  if (result == DType::F32) value = cast(tracer, value, DType::F64);
  value = cast(tracer, emit(tracer, op, {value}, std::move(attrs)), result);
  // Begins with 0.0, so that no -0.0 is seen; NumPy's and the graph's begin with the first element.
  if (op == Op::cumsum && is_float(result)) value = with_constant(tracer, Op::add, value, 0);
  return torch_fresh(tracer, value);
}

}  // namespace

V torch_sum(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "sum", arguments, "input, dim, keepdim, *, dtype, out");
  p.unsupported("out");
  Reduction r = reduction(tracer, p);
  return torch_fresh(tracer, sum(tracer, summands(tracer, r, tracer.read(*r.x)), r.axes, r.keepdim));
}

V torch_nansum(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "nansum", arguments, "input, dim, keepdim, *, dtype, out");
  p.unsupported("out");
  Reduction r = reduction(tracer, p);
  ValueId value = tracer.read(*r.x);
  if (is_float(r.x->dtype))
    value = emit(tracer, Op::where, {emit(tracer, Op::is_nan, {value}), constant_like(tracer, value, 0), value});
  return torch_fresh(tracer, sum(tracer, summands(tracer, r, value), r.axes, r.keepdim));
}

V torch_mean(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "mean", arguments, "input, dim, keepdim, *, dtype, out");
  p.unsupported("out");
  Reduction r = reduction(tracer, p);
  if (!is_float(r.dtype)) refuse("mean() of integers");
  return torch_fresh(tracer, mean(tracer, summands(tracer, r, tracer.read(*r.x)), r.axes, r.keepdim));
}

V torch_prod(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "prod", arguments, "input, dim, keepdim, *, dtype, out");
  p.unsupported("out");
  if (p["dim"] && is_sequence(p["dim"])) p.refuse("several dimensions");
  Reduction r = reduction(tracer, p);
  // What overflows or vanishes on the way depends on the order of the multiplications, which torch's own function has.
  if (is_float(r.dtype) && !tracer.requires_gradient(*r.x)) {
    try {
      return torch_extern(tracer, "prod", arguments);
    } catch (const BreakGraph& refused) {
      if (refused.reason != BreakReason::OneExample) throw;
    }
  }
  ValueId value = in_compute_dtype(tracer, cast(tracer, tracer.read(*r.x), r.dtype),
                                   [&](ValueId x) { return reduce(tracer, Op::reduce_prod, x, r.axes, r.keepdim); });
  return torch_fresh(tracer, value);
}

V torch_amax(Tracer& tracer, const Arguments& arguments) { return amax_row(tracer, "amax", Op::reduce_max, arguments); }
V torch_amin(Tracer& tracer, const Arguments& arguments) { return amax_row(tracer, "amin", Op::reduce_min, arguments); }
V torch_max(Tracer& tracer, const Arguments& arguments) {
  return max_row(tracer, "max", Op::reduce_max, Op::argmax, Op::maximum, arguments);
}
V torch_min(Tracer& tracer, const Arguments& arguments) {
  return max_row(tracer, "min", Op::reduce_min, Op::argmin, Op::minimum, arguments);
}
V torch_any(Tracer& tracer, const Arguments& arguments) { return any_row(tracer, "any", Op::reduce_or, arguments); }
V torch_all(Tracer& tracer, const Arguments& arguments) { return any_row(tracer, "all", Op::reduce_and, arguments); }

namespace {
V arg_row(Tracer& tracer, const char* name, Op op, const Arguments& arguments) {
  Parameters p(tracer, name, arguments, "input, dim, keepdim, *, out");
  p.unsupported("out");
  Array x = torch_tensor(tracer, p.required("input"));
  std::optional<std::int64_t> dim;
  if (!p.absent("dim")) dim = torch_dim(tracer, p["dim"], x->rank());
  return arg_extremum(tracer, op, x, dim, p.flag("keepdim", false));
}
}  // namespace

V torch_argmax(Tracer& tracer, const Arguments& arguments) { return arg_row(tracer, "argmax", Op::argmax, arguments); }
V torch_argmin(Tracer& tracer, const Arguments& arguments) { return arg_row(tracer, "argmin", Op::argmin, arguments); }
V torch_var(Tracer& tracer, const Arguments& arguments) { return spread(tracer, "var", false, arguments); }
V torch_std(Tracer& tracer, const Arguments& arguments) { return spread(tracer, "std", true, arguments); }

V torch_norm(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "norm", arguments, "input, p, dim, keepdim, dtype, out");
  p.unsupported("out, dtype");
  Array x = torch_tensor(tracer, p.required("input"));
  if (!is_float(x->dtype)) refuse("norm() of integers");
  const Axes axes = reduced_axes(tracer, p["dim"], x->rank());
  return torch_fresh(tracer,
                     vector_norm(tracer, tracer.read(*x), norm_order(tracer, p, "p"), axes, p.flag("keepdim", false)));
}

V torch_vector_norm(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "vector_norm", arguments, "x, ord, dim, keepdim, *, dtype, out");
  p.unsupported("out, dtype");
  Array x = torch_tensor(tracer, p.required("x"));
  if (!is_float(x->dtype)) refuse("vector_norm() of integers");
  const Axes axes = reduced_axes(tracer, p["dim"], x->rank());
  return torch_fresh(
      tracer, vector_norm(tracer, tracer.read(*x), norm_order(tracer, p, "ord"), axes, p.flag("keepdim", false)));
}

V torch_normalize(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "normalize", arguments, "input, p, dim, eps, out");
  p.unsupported("out");
  Array x = torch_tensor(tracer, p.required("input"));
  if (!is_float(x->dtype)) refuse("normalize() of integers");
  V dim = p["dim"] ? p["dim"] : tracer.integer(std::int64_t(1));
  const Axes axes = reduced_axes(tracer, dim, x->rank());
  ValueId value = tracer.read(*x);
  // Three operations of eager, each rounded: norm, clamp_min, division.
  ValueId size = vector_norm(tracer, value, norm_order(tracer, p, "p"), axes, true);
  const double epsilon = p.number("eps", 1e-12);
  ValueId denominator =
      composite(tracer, CompositeRule::Clamp, {size}, with_constant(tracer, Op::maximum, size, epsilon),
                {{"low", epsilon}, {"high", HUGE_VAL}, {"open", false}});
  return torch_beside_statistics(tracer, x, axes, pointwise(tracer, Op::div, {value, denominator}));
}

V torch_logsumexp(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "logsumexp", arguments, "input, dim, keepdim, *, out");
  p.unsupported("out");
  Array x = torch_tensor(tracer, p.required("input"));
  if (!is_float(x->dtype)) unsupported("logsumexp() of integers");
  p.required("dim");
  const Axes axes = named_axes(tracer, p, x->rank());
  require_elements(tracer, x->shape, axes);
  return torch_fresh(tracer, logsumexp(tracer, tracer.read(*x), axes, p.flag("keepdim", false)));
}

V torch_cumsum(Tracer& tracer, const Arguments& arguments) { return scan(tracer, "cumsum", Op::cumsum, arguments); }
V torch_cumprod(Tracer& tracer, const Arguments& arguments) { return scan(tracer, "cumprod", Op::cumprod, arguments); }

V torch_softmax(Tracer& tracer, const Arguments& arguments) {
  return softmax_row(tracer, false, Parameters(tracer, "softmax", arguments, "input, dim, dtype"));
}
V torch_log_softmax(Tracer& tracer, const Arguments& arguments) {
  return softmax_row(tracer, true, Parameters(tracer, "log_softmax", arguments, "input, dim, dtype"));
}
V torch_f_softmax(Tracer& tracer, const Arguments& arguments) {
  return softmax_row(tracer, false, Parameters(tracer, "softmax", arguments, "input, dim, _stacklevel, dtype"));
}
V torch_f_log_softmax(Tracer& tracer, const Arguments& arguments) {
  return softmax_row(tracer, true, Parameters(tracer, "log_softmax", arguments, "input, dim, _stacklevel, dtype"));
}

}  // namespace fj
