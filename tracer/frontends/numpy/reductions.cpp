/// Reductions, scans and products.
///
/// Accumulators follow NumPy: integers narrower than int64 add and multiply in int64 or uint64, float16 means are
/// computed in float32. Results lie in the input's axis order (numpy_reduction_strides); a rank-0 result is a scalar
/// object.
#include <algorithm>

#include "tracer/frontends/numpy/numpy.h"

namespace fj {
namespace {

constexpr const char* kReduceSignature = "a, axis, dtype, out, keepdims, initial, where";
constexpr const char* kUfuncReduceSignature = "array, axis, dtype, out, keepdims, initial, where";

/// np.add.reduce and np.multiply.reduce without dtype=.
DType accumulator(DType dtype) {
  if (dtype == DType::Bool) return DType::I64;
  if (is_signed_integer(dtype)) return DType::I64;
  if (is_unsigned_integer(dtype)) return DType::U64;
  return dtype;
}

bool given(const V& value, Tracer& tracer) { return value && !tracer.is_none(value); }

/// The dtype of out=, which NumPy's reductions compute in when dtype= is not given.
void refuse_other_out(Tracer& tracer, const Parameters& p, DType result) {
  if (p.absent("out")) return;
  Array out = array_of(p["out"]);
  if (!out || out->dtype != result) p.refuse("an 'out' of another dtype");
  (void)tracer;
}

/// axis of a ufunc's reduce defaults to 0, of functions to None.
Axes reduce_axes(Tracer& tracer, const Parameters& p, const Array& input, bool ufunc_method) {
  V axis = p["axis"];
  if (!axis && ufunc_method) return {normalise_axis(0, input->rank())};
  return axes_argument(tracer, axis, input->rank());
}

void refuse_empty(Tracer& tracer, const Array& input, const Axes& axes) {
  if (tracer.decide(element_count(input->shape, axes), Py_EQ, 0))
    refuse("zero-size array to a reduction which has no identity");
}

/// A sum over no axes is 0 + x: no -0.
ValueId sum_over(Tracer& tracer, ValueId x, const Axes& axes, bool keepdims) {
  const DType dtype = tracer.graph().type(x).dtype;
  if (axes.empty() && is_float(dtype))
    x = emit(tracer, Op::add, {x, broadcast_to(tracer, constant(tracer, dtype, Scalar(0.0)), shape_of(tracer, x))});
  return reduce(tracer, Op::reduce_sum, x, axes, keepdims);
}

/// The derivative of a product is made for its size.
ValueId with_settled_sizes(Tracer& tracer, ValueId value, Op op) {
  if ((op != Op::reduce_prod && op != Op::cumprod) || !tracer.requires_gradient(value)) return value;
  Dims sizes;
  for (const SymDim& size : Dims(shape_of(tracer, value))) sizes.push_back(concrete(tracer, size));
  return reshape(tracer, value, sizes);
}

V sum_or_prod(Tracer& tracer, const Arguments& arguments, const char* name, Op op, bool ufunc_method) {
  Parameters p(tracer, name, arguments, ufunc_method ? kUfuncReduceSignature : kReduceSignature);
  p.unsupported("initial, where");
  Array input = numpy_array(tracer, p.required(ufunc_method ? "array" : "a"));
  const DType dtype = numpy_dtype_argument(tracer, p["dtype"]).value_or(accumulator(input->dtype));
  if (is_complex(input->dtype) || is_complex(dtype) || dtype == DType::Bool) p.refuse("this dtype");
  refuse_other_out(tracer, p, dtype);
  const Axes axes = reduce_axes(tracer, p, input, ufunc_method);
  const bool keepdims = p.flag("keepdims", false);
  ValueId value = cast(tracer, tracer.read(*input), dtype);
  // float16 is accumulated in float32 and rounded once.
  if (dtype == DType::F16) value = cast(tracer, value, DType::F32);
  value = with_settled_sizes(tracer, value, op);
  value = op == Op::reduce_sum ? sum_over(tracer, value, axes, keepdims) : reduce(tracer, op, value, axes, keepdims);
  value = cast(tracer, value, dtype);
  return reduction_result(tracer, input, value, axes, keepdims, p["out"]);
}

V max_or_min(Tracer& tracer, const Arguments& arguments, const char* name, bool max, std::string_view signature,
             bool ufunc_method) {
  Parameters p(tracer, name, arguments, signature);
  p.unsupported("initial, where");
  if (ufunc_method) p.unsupported("dtype");
  Array input = numpy_array(tracer, p.required(ufunc_method ? "array" : "a"));
  if (is_complex(input->dtype)) p.refuse("complex numbers");
  refuse_other_out(tracer, p, input->dtype);
  const Axes axes = reduce_axes(tracer, p, input, ufunc_method);
  refuse_empty(tracer, input, axes);
  const bool keepdims = p.flag("keepdims", false);
  Op op = max ? Op::reduce_max : Op::reduce_min;
  if (input->dtype == DType::Bool) op = max ? Op::reduce_or : Op::reduce_and;
  return reduction_result(tracer, input, reduce(tracer, op, tracer.read(*input), axes, keepdims), axes, keepdims,
                          p["out"]);
}

V any_or_all(Tracer& tracer, const Arguments& arguments, const char* name, Op op, bool ufunc_method) {
  Parameters p(tracer, name, arguments,
               ufunc_method ? "array, axis, dtype, out, keepdims, initial, where" : "a, axis, out, keepdims, *, where");
  p.unsupported(ufunc_method ? "dtype, initial, where" : "where");
  Array input = numpy_array(tracer, p.required(ufunc_method ? "array" : "a"));
  refuse_other_out(tracer, p, DType::Bool);
  const Axes axes = reduce_axes(tracer, p, input, ufunc_method);
  const bool keepdims = p.flag("keepdims", false);
  const ValueId value = reduce(tracer, op, cast(tracer, tracer.read(*input), DType::Bool), axes, keepdims);
  return reduction_result(tracer, input, value, axes, keepdims, p["out"]);
}

/// The dtype of a mean: its own for floats, double for integers; and the one it is computed in.
struct MeanTypes {
  DType compute, result;
};
MeanTypes mean_types(DType input, std::optional<DType> dtype) {
  if (dtype) return {*dtype, *dtype};
  if (input == DType::F16) return {DType::F32, DType::F16};
  if (is_float(input)) return {input, input};
  return {DType::F64, DType::F64};
}

ValueId divide_by_count(Tracer& tracer, ValueId total, const SymDim& count) {
  return pointwise(tracer, Op::div, {total, size_value(tracer, count, dtype_of(tracer, total))});
}

struct Moments {
  Array input;
  Axes axes;
  bool keepdims;
  MeanTypes types;
};

Moments moments(Tracer& tracer, const Parameters& p) {
  Moments m{numpy_array(tracer, p.required("a")), {}, p.flag("keepdims", false), {}};
  m.axes = axes_argument(tracer, p["axis"], m.input->rank());
  if (is_complex(m.input->dtype)) p.refuse("complex numbers");
  m.types = mean_types(m.input->dtype, numpy_dtype_argument(tracer, p["dtype"]));
  if (!is_float(m.types.compute)) p.refuse("a dtype that is not a float");
  refuse_other_out(tracer, p, m.types.result);
  // An empty mean warns.
  if (tracer.decide(element_count(m.input->shape, m.axes), Py_EQ, 0)) unsupported("the mean of an empty slice");
  return m;
}

V variance(Tracer& tracer, const Arguments& arguments, const char* name, bool root) {
  Parameters p(tracer, name, arguments, "a, axis, dtype, out, ddof, keepdims, *, where, mean, correction");
  p.unsupported("where, mean");
  Moments m = moments(tracer, p);
  const char* degrees = p.absent("correction") ? "ddof" : "correction";
  const double ddof = p.number(degrees, 0.0);
  if (ddof != double(std::int64_t(ddof))) p.refuse("a ddof that is not an integer");
  const SymDim count = element_count(m.input->shape, m.axes);
  const SymDim degrees_of_freedom = count - std::int64_t(ddof);
  if (tracer.decide(degrees_of_freedom, Py_LE, 0)) unsupported("a variance with no degrees of freedom");
  const ValueId x = cast(tracer, tracer.read(*m.input), m.types.compute);
  const ValueId mean = divide_by_count(tracer, reduce(tracer, Op::reduce_sum, x, m.axes, true), count);
  const ValueId centred = pointwise(tracer, Op::sub, {x, mean});
  const ValueId squares = emit(tracer, Op::mul, {centred, centred});
  ValueId result =
      divide_by_count(tracer, reduce(tracer, Op::reduce_sum, squares, m.axes, m.keepdims), degrees_of_freedom);
  if (root) result = emit(tracer, Op::sqrt, {result});
  return reduction_result(tracer, m.input, cast(tracer, result, m.types.result), m.axes, m.keepdims, p["out"]);
}

V arg_extreme(Tracer& tracer, const Arguments& arguments, const char* name, Op op) {
  Parameters p(tracer, name, arguments, "a, axis, out, *, keepdims");
  p.unsupported("out");
  Array input = numpy_array(tracer, p.required("a"));
  if (is_complex(input->dtype)) p.refuse("complex numbers");
  ValueId value = tracer.read(*input);
  if (input->dtype == DType::Bool) value = cast(tracer, value, DType::U8);
  const bool keepdims = p.flag("keepdims", false);
  Axes axes = all_axes(input->rank());
  std::int64_t axis = 0;
  if (p.absent("axis")) {
    value = reshape(tracer, value, {product(input->shape)});
  } else {
    axis = normalise_axis(p.integer("axis", 0), input->rank());
    axes = {axis};
  }
  refuse_empty(tracer, input, axes);
  Attrs attrs;
  attrs.set("axis", axis);
  ValueId result = emit(tracer, op, {value}, std::move(attrs));
  if (keepdims) {
    Dims shape = input->shape;
    for (std::int64_t reduced : axes) shape[reduced] = 1;
    result = reshape(tracer, result, shape);
  }
  return numpy_result(tracer, fresh(tracer, result));
}

V scan(Tracer& tracer, const Arguments& arguments, const char* name, Op op) {
  Parameters p(tracer, name, arguments, "a, axis, dtype, out");
  Array input = numpy_array(tracer, p.required("a"));
  const DType dtype = numpy_dtype_argument(tracer, p["dtype"]).value_or(accumulator(input->dtype));
  if (is_complex(input->dtype) || is_complex(dtype) || dtype == DType::Bool || dtype == DType::F16)
    p.refuse("this dtype");
  refuse_other_out(tracer, p, dtype);
  std::int64_t axis = 0;
  ValueId value = tracer.read(*input);
  Layout layout = layout_of(input);
  if (p.absent("axis")) {
    value = reshape(tracer, value, {product(input->shape)});
    layout = {shape_of(tracer, value), {SymDim(1)}};
  } else {
    axis = normalise_axis(p.integer("axis", 0), input->rank());
  }
  Attrs attrs;
  attrs.set("axis", axis);
  value = emit(tracer, op, {with_settled_sizes(tracer, cast(tracer, value, dtype), op)}, std::move(attrs));
  if (given(p["out"], tracer)) return write_out(tracer, p["out"], value);
  return tracer.new_array(Library::Numpy, value,
                          elementwise_strides(tracer, Library::Numpy, layout.shape, std::span(&layout, 1)));
}

/// Operands of a product, in their common dtype.
struct Factors {
  Array a, b;
  ValueId left, right;
};

Factors factors(Tracer& tracer, const V& first, const V& second) {
  const Operand operands[] = {numpy_operand(tracer, first), numpy_operand(tracer, second)};
  const DType dtype = numpy_result_type(tracer, operands);
  if (is_complex(dtype) || dtype == DType::Bool) unsupported("a matrix product in this dtype");
  return {operands[0].array, operands[1].array, operand_value(tracer, operands[0], dtype),
          operand_value(tracer, operands[1], dtype)};
}

/// np.dot and np.inner where an operand has a single element; `inner` is the axis of b that is summed over. Null:
/// neither has.
V scaled(Tracer& tracer, const Factors& f, std::size_t inner) {
  auto single = [&](const Array& x) {
    return std::all_of(x->shape.begin(), x->shape.end(),
                       [&](const SymDim& size) { return tracer.decide(size, Py_EQ, 1); });
  };
  const bool both_arrays = !f.a->shape.empty() && !f.b->shape.empty();
  if (both_arrays && (!tracer.decide(f.a->shape.back(), Py_EQ, 1) || !tracer.decide(f.b->shape[inner], Py_EQ, 1)))
    return nullptr;
  const DType dtype = dtype_of(tracer, f.left);
  const bool by_blas = is_float(dtype) && !is_half(dtype) && std::max(f.a->rank(), f.b->rank()) <= 2;
  const bool single_right = single(f.b);
  if (both_arrays ? !by_blas || !(single_right || single(f.a)) : !by_blas || (single_right && single(f.a))) {
    return both_arrays ? nullptr : numpy_ufunc(tracer, "multiply", {f.a, f.b});
  }
  Dims shape = f.a->shape.empty() ? f.b->shape : f.a->shape;
  if (both_arrays) {
    shape.pop_back();
    for (std::size_t axis = 0; axis < f.b->shape.size(); ++axis)
      if (axis != inner) shape.push_back(f.b->shape[axis]);
  }
  const ValueId x = reshape(tracer, single_right ? f.left : f.right, shape);
  const ValueId number = broadcast_to(tracer, reshape(tracer, single_right ? f.right : f.left, {}), shape);
  ValueId product = pointwise(tracer, Op::mul, {x, number});
  if (both_arrays && single_right && single(f.a)) return numpy_result(tracer, fresh(tracer, product));
  // BLAS's axpy onto zeros: no -0.0, and where the number is 0 it doesn't look at the array. (A derivative asks what is
  // beside 0.)
  const ValueId zero = broadcast_to(tracer, constant(tracer, dtype, 0), shape);
  product = pointwise(tracer, Op::add, {product, zero});
  if (!tracer.requires_gradient(product))
    product = pointwise(tracer, Op::where, {pointwise(tracer, Op::eq, {number, zero}), zero, product});
  return numpy_result(tracer, fresh(tracer, product));
}

}  // namespace

V numpy_sum(Tracer& t, const Arguments& a) { return sum_or_prod(t, a, "numpy.sum", Op::reduce_sum, false); }
V numpy_prod(Tracer& t, const Arguments& a) { return sum_or_prod(t, a, "numpy.prod", Op::reduce_prod, false); }
V numpy_add_reduce(Tracer& t, const Arguments& a) {
  return sum_or_prod(t, a, "numpy.add.reduce", Op::reduce_sum, true);
}
V numpy_multiply_reduce(Tracer& t, const Arguments& a) {
  return sum_or_prod(t, a, "numpy.multiply.reduce", Op::reduce_prod, true);
}

namespace {
constexpr const char* kMaxSignature = "a, axis, out, keepdims, initial, where";
}
V numpy_max(Tracer& t, const Arguments& a) { return max_or_min(t, a, "numpy.max", true, kMaxSignature, false); }
V numpy_min(Tracer& t, const Arguments& a) { return max_or_min(t, a, "numpy.min", false, kMaxSignature, false); }
V numpy_max_method(Tracer& t, const Arguments& a) { return numpy_max(t, a); }
V numpy_min_method(Tracer& t, const Arguments& a) { return numpy_min(t, a); }
V numpy_maximum_reduce(Tracer& t, const Arguments& a) {
  return max_or_min(t, a, "numpy.maximum.reduce", true, kUfuncReduceSignature, true);
}
V numpy_minimum_reduce(Tracer& t, const Arguments& a) {
  return max_or_min(t, a, "numpy.minimum.reduce", false, kUfuncReduceSignature, true);
}

V numpy_ptp(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.ptp", arguments, "a, axis, out, keepdims");
  p.unsupported("out");
  Array input = numpy_array(tracer, p.required("a"));
  if (is_complex(input->dtype) || input->dtype == DType::Bool) p.refuse("this dtype");
  const Axes axes = axes_argument(tracer, p["axis"], input->rank());
  refuse_empty(tracer, input, axes);
  const bool keepdims = p.flag("keepdims", false);
  const ValueId x = tracer.read(*input);
  const ValueId range =
      emit(tracer, Op::sub,
           {reduce(tracer, Op::reduce_max, x, axes, keepdims), reduce(tracer, Op::reduce_min, x, axes, keepdims)});
  return reduction_result(tracer, input, range, axes, keepdims, nullptr);
}

V numpy_any(Tracer& t, const Arguments& a) { return any_or_all(t, a, "numpy.any", Op::reduce_or, false); }
V numpy_all(Tracer& t, const Arguments& a) { return any_or_all(t, a, "numpy.all", Op::reduce_and, false); }
V numpy_logical_or_reduce(Tracer& t, const Arguments& a) {
  return any_or_all(t, a, "numpy.logical_or.reduce", Op::reduce_or, true);
}
V numpy_logical_and_reduce(Tracer& t, const Arguments& a) {
  return any_or_all(t, a, "numpy.logical_and.reduce", Op::reduce_and, true);
}

V numpy_mean(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.mean", arguments, "a, axis, dtype, out, keepdims, *, where");
  p.unsupported("where");
  Moments m = moments(tracer, p);
  const ValueId x = cast(tracer, tracer.read(*m.input), m.types.compute);
  const ValueId total = sum_over(tracer, x, m.axes, m.keepdims);
  const ValueId mean = divide_by_count(tracer, total, element_count(m.input->shape, m.axes));
  return reduction_result(tracer, m.input, cast(tracer, mean, m.types.result), m.axes, m.keepdims, p["out"]);
}

V numpy_var(Tracer& t, const Arguments& a) { return variance(t, a, "numpy.var", false); }
V numpy_std(Tracer& t, const Arguments& a) { return variance(t, a, "numpy.std", true); }
V numpy_argmax(Tracer& t, const Arguments& a) { return arg_extreme(t, a, "numpy.argmax", Op::argmax); }
V numpy_argmin(Tracer& t, const Arguments& a) { return arg_extreme(t, a, "numpy.argmin", Op::argmin); }

V numpy_count_nonzero(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.count_nonzero", arguments, "a, axis, *, keepdims");
  Array input = numpy_array(tracer, p.required("a"));
  const Axes axes = axes_argument(tracer, p["axis"], input->rank());
  const bool keepdims = p.flag("keepdims", false);
  const ValueId truth = cast(tracer, tracer.read(*input), DType::Bool), flags = cast(tracer, truth, DType::I64);
  // NumPy sums an array of bools of its own.
  if (input->dtype != DType::Bool)
    input = tracer.new_array(Library::Numpy, truth, like_strides(tracer, Library::Numpy, layout_of(input)));
  // A Python int, before NumPy 2.4.
  const bool gives_int = once([] {
    Ref<> counted = Ref<>::steal(PyObject_CallFunction(numpy_object("count_nonzero").get(), "i", 1));
    return counted && PyLong_CheckExact(counted.get());
  });
  if (p.absent("axis") && !keepdims && gives_int)
    return tracer.number(*fresh(tracer, reduce(tracer, Op::reduce_sum, flags, axes, false)));
  return reduction_result(tracer, input, reduce(tracer, Op::reduce_sum, flags, axes, keepdims), axes, keepdims,
                          nullptr);
}

V numpy_cumsum(Tracer& t, const Arguments& a) { return scan(t, a, "numpy.cumsum", Op::cumsum); }
V numpy_cumprod(Tracer& t, const Arguments& a) { return scan(t, a, "numpy.cumprod", Op::cumprod); }

// ---- products

V numpy_matmul(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.matmul", arguments, "x1, x2, out, *, dtype");
  p.unsupported("dtype");
  Factors f = factors(tracer, p.required("x1"), p.required("x2"));
  if (!f.a || !f.b) refuse("matmul: an operand has no dimensions");
  const ValueId product_value = matmul(tracer, f.left, f.right);
  if (given(p["out"], tracer)) {
    refuse_other_out(tracer, p, dtype_of(tracer, product_value));
    return write_out(tracer, p["out"], product_value);
  }
  // A generalised ufunc: batch axes in the operands' order, the matrix itself in C order.
  const Dims shape = shape_of(tracer, product_value);
  if (f.a->rank() <= 2 && f.b->rank() <= 2) return numpy_result(tracer, fresh(tracer, product_value));
  std::vector<Layout> layouts;
  const int matrix_rank = (f.a->rank() > 1) + (f.b->rank() > 1);
  for (const Array& operand : {f.a, f.b}) {
    if (operand->rank() <= 2) continue;
    Layout layout{Dims(operand->shape.begin(), operand->shape.end() - 2),
                  Strides(operand->strides.begin(), operand->strides.end() - 2)};
    for (int i = 0; i < matrix_rank; ++i) {
      layout.shape.push_back(1);
      layout.strides.push_back(0);
    }
    layouts.push_back(std::move(layout));
  }
  return tracer.new_array(Library::Numpy, product_value, elementwise_strides(tracer, Library::Numpy, shape, layouts));
}

V numpy_dot(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.dot", arguments, "a, b, out");
  p.unsupported("out");
  // Python's numbers are arrays of the default dtypes here, not weak.
  Factors f = factors(tracer, numpy_array(tracer, p.required("a")), numpy_array(tracer, p.required("b")));
  if (V result = scaled(tracer, f, 0)) return result;
  if (f.b->rank() > 2 || (f.b->rank() == 2 && f.a->rank() > 2)) p.refuse("arrays of more than two dimensions");
  return numpy_result(tracer, fresh(tracer, matmul(tracer, f.left, f.right)));
}

V numpy_inner(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.inner", arguments, "a, b");
  Factors f = factors(tracer, numpy_array(tracer, p.required("a")), numpy_array(tracer, p.required("b")));
  if (V result = scaled(tracer, f, f.b->shape.empty() ? 0 : f.b->shape.size() - 1)) return result;
  if (f.a->rank() > 2 || f.b->rank() > 2) p.refuse("arrays of more than two dimensions");
  const ValueId transposed = f.b->rank() == 2 ? transpose(tracer, f.right, {1, 0}) : f.right;
  return numpy_result(tracer, fresh(tracer, matmul(tracer, f.left, transposed)));
}

V numpy_outer(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.outer", arguments, "a, b, out");
  p.unsupported("out");
  Array a = numpy_array(tracer, p.required("a")), b = numpy_array(tracer, p.required("b"));
  Array column = reshape_or_copy(tracer, a, {product(a->shape)}), row = reshape_or_copy(tracer, b, {product(b->shape)});
  return numpy_ufunc(tracer, "multiply", {view_expand_axes(tracer, column, {1}), view_expand_axes(tracer, row, {0})});
}

}  // namespace fj
