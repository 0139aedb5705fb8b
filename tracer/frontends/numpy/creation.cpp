/// Making arrays and converting them: zeros and its like, arange, linspace, eye, copies, casts, asarray.
#include <cmath>
#include <limits>

#include "tracer/frontends/numpy/numpy.h"

namespace fj {
namespace {

bool order_is_c(const Parameters& p) {
  const std::string order = p.text("order", "C");
  if (order != "C" && order != "F") p.refuse("the argument 'order'");
  return order == "C";
}

V filled(Tracer& tracer, const Parameters& p, DType dtype, Scalar value) {
  p.unsupported("device, like");
  Dims shape = dims_argument(tracer, p.required("shape"));
  for (const SymDim& size : shape)
    if (tracer.decide(size, Py_LT, 0)) refuse("negative dimensions are not allowed");
  const ValueId contents = full(tracer, dtype, std::move(value), shape);
  return tracer.new_array(Library::Numpy, contents, order_is_c(p) ? row_major(shape) : column_major(shape));
}

V filled_call(Tracer& tracer, const Arguments& arguments, const char* name, int value) {
  Parameters p(tracer, name, arguments, "shape, dtype, order, *, device, like");
  const DType dtype = numpy_dtype_argument(tracer, p["dtype"]).value_or(DType::F64);
  return filled(tracer, p, dtype, scalar_of(dtype, std::int64_t(value)));
}

/// The array a *_like call describes: dtype and strides after the prototype unless said otherwise.
struct Prototype {
  DType dtype;
  Dims shape;
  Strides strides;
};

Prototype prototype(Tracer& tracer, const Parameters& p) {
  p.unsupported("device");
  Array model = numpy_array(tracer, p.required("a"));
  Prototype result{numpy_dtype_argument(tracer, p["dtype"]).value_or(model->dtype), model->shape, {}};
  const std::string order = p.text("order", "K");
  if (!p.absent("shape")) {
    result.shape = dims_argument(tracer, p["shape"]);
    if (order == "K" && result.shape.size() == model->shape.size() &&
        !is_contiguous(tracer, model->shape, model->strides))
      p.refuse("the argument 'shape' and a model that is not contiguous");
    result.strides = row_major(result.shape);
  } else if (order == "K") {
    result.strides = like_strides(tracer, Library::Numpy, layout_of(model));
  }
  if (order == "C") result.strides = row_major(result.shape);
  else if (order == "F") result.strides = column_major(result.shape);
  else if (order != "K") p.refuse("the argument 'order'");
  return result;
}

V filled_like(Tracer& tracer, const Arguments& arguments, const char* name, int value) {
  Parameters p(tracer, name, arguments, "a, dtype, order, subok, shape, *, device");
  Prototype model = prototype(tracer, p);
  const ValueId contents = full(tracer, model.dtype, scalar_of(model.dtype, std::int64_t(value)), model.shape);
  return tracer.new_array(Library::Numpy, contents, model.strides);
}

/// A copy with the strides an order='K'/'C'/'F'/'A' copy has.
Array ordered_copy(Tracer& tracer, const Array& x, DType dtype, const std::string& order) {
  const ValueId contents = operand_value(tracer, Operand{x}, dtype);
  Strides strides;
  if (order == "K") strides = like_strides(tracer, Library::Numpy, layout_of(x));
  else if (order == "C") strides = row_major(x->shape);
  else if (order == "F") strides = column_major(x->shape);
  else unsupported("a copy with this 'order'");
  const Array copy = tracer.new_array(Library::Numpy, contents, std::move(strides));
  return order == "K" ? copy : laid(copy);
}

/// Whether an array lies as `order` asks, so that nothing need be copied.
bool lies_in(Tracer& tracer, const ArrayValue& x, const std::string& order) {
  const auto by_columns = [&] {
    return is_contiguous(tracer, {x.shape.rbegin(), x.shape.rend()}, {x.strides.rbegin(), x.strides.rend()});
  };
  if (order == "K") return true;
  if (order == "C") return is_contiguous(tracer, x.shape, x.strides);
  if (order == "F") return by_columns();
  if (order == "A") return is_contiguous(tracer, x.shape, x.strides) || by_columns();
  unsupported("this 'order'");
}

/// np.asarray of what is not an ndarray yet, its numbers stored in `dtype` if one is given; null if it is an ndarray.
Array convert(Tracer& tracer, const V& value, std::optional<DType> dtype = std::nullopt) {
  Array array = array_of(value);
  if (!array) {
    if (dtype && is_sequence(value) && !is_complex(*dtype)) return numpy_sequence(tracer, value, *dtype);
    // A Python int that has no place in the dtype breaks here.
    if (const Operand number = numpy_operand(tracer, value); dtype && number.weak == Operand::Weak::Int)
      operand_value(tracer, number, *dtype);
    array = numpy_array(tracer, value);
    return array->numpy_scalar ? fresh(tracer, tracer.read(*array)) : array;
  }
  if (array->library == Library::Torch) {
    if (array->dtype == DType::BF16) refuse("got unsupported ScalarType BFloat16");
    if (tracer.requires_gradient(*array)) refuse("can't call numpy() on a tensor that requires grad");
    return view_as_library(tracer, array, Library::Numpy);
  }
  if (array->numpy_scalar) return fresh(tracer, tracer.read(*array));
  return nullptr;
}

}  // namespace

V numpy_zeros(Tracer& t, const Arguments& a) { return filled_call(t, a, "numpy.zeros", 0); }
V numpy_ones(Tracer& t, const Arguments& a) { return filled_call(t, a, "numpy.ones", 1); }
V numpy_zeros_like(Tracer& t, const Arguments& a) { return filled_like(t, a, "numpy.zeros_like", 0); }
V numpy_ones_like(Tracer& t, const Arguments& a) { return filled_like(t, a, "numpy.ones_like", 1); }

V numpy_full(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.full", arguments, "shape, fill_value, dtype, order, *, device, like");
  p.unsupported("device, like");
  Operand value = numpy_operand(tracer, p.required("fill_value"));
  // Without dtype= the value's own: int64 and float64 for Python numbers.
  const DType own = value.array ? value.array->dtype : value.weak == Operand::Weak::Int ? DType::I64 : DType::F64;
  const DType dtype = numpy_dtype_argument(tracer, p["dtype"]).value_or(own);
  const Dims shape = dims_argument(tracer, p.required("shape"));
  for (const SymDim& size : shape)
    if (tracer.decide(size, Py_LT, 0)) refuse("negative dimensions are not allowed");
  const ValueId contents = broadcast_to(tracer, operand_value(tracer, value, dtype), shape);
  return tracer.new_array(Library::Numpy, contents, order_is_c(p) ? row_major(shape) : column_major(shape));
}

V numpy_full_like(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.full_like", arguments, "a, fill_value, dtype, order, subok, shape, *, device");
  Prototype model = prototype(tracer, p);
  Operand value = numpy_operand(tracer, p.required("fill_value"));
  return tracer.new_array(Library::Numpy, broadcast_to(tracer, operand_value(tracer, value, model.dtype), model.shape),
                          model.strides);
}

V numpy_arange(Tracer& tracer, const Arguments& arguments) {
  // One argument is the stop.
  Arguments shifted = arguments;
  if (arguments.positional.size() == 1) {
    bool stop_given = false;
    for (const auto& [name, value] : arguments.keywords) stop_given = stop_given || name == "stop";
    if (!stop_given) shifted.positional.insert(shifted.positional.begin(), tracer.integer(0));
  }
  Parameters p(tracer, "numpy.arange", shifted, "start, stop, step, dtype, *, device, like");
  p.unsupported("device, like");
  const auto bound = [&](const V& given) -> V {
    // The dtype of a NumPy scalar counts: an int64 is what an int is, and a float64 a float.
    if (auto* object = as<ObjectValue>(given); object && PyBool_Check(object->object.get())) p.refuse("a bool");
    const Array array = array_of(given);
    auto* object = as<ObjectValue>(given);
    const std::optional<DType> own =
        array ? std::optional(array->dtype) : object ? numpy_scalar_dtype(object->object.get()) : std::nullopt;
    if (!own) return given;
    if (*own != DType::I64 || (array && !array->shape.empty())) {
      tracer.round_as_library(given);
      p.refuse("a number whose dtype counts");
    }
    return tracer.integer(dim_argument(tracer, given));
  };
  V start = p["start"] ? bound(p["start"]) : tracer.integer(0), stop = bound(p.required("stop"));
  V step = p.absent("step") ? tracer.integer(1) : bound(p["step"]);
  const std::optional<DType> dtype = numpy_dtype_argument(tracer, p["dtype"]);
  auto first = tracer.int_expression(start), last = tracer.int_expression(stop);
  auto stride = tracer.int_expression(step);
  if (first && last && stride && (!dtype || *dtype == DType::I64 || *dtype == DType::I32)) {
    const std::int64_t by = concrete(tracer, *stride);
    if (by == 0) refuse("Maximum allowed size exceeded");
    if (dtype == DType::I32 && !(has_integer(tracer, *dtype, *first) && has_integer(tracer, *dtype, *first + by)))
      refuse("a Python integer out of bounds");
    const SymDim span = by > 0 ? *last - *first : *first - *last;
    const std::int64_t size = by > 0 ? by : -by;
    const SymDim count = tracer.decide(span, Py_LE, 0) ? SymDim(0) : floor_divide(tracer, span + (size - 1), size);
    // A start that changes between calls is a value, not a constant.
    ValueId values = arange(tracer, DType::I64, Scalar(std::int64_t(0)), Scalar(by), count);
    if (!(*first == SymDim(0))) values = pointwise(tracer, Op::add, {values, size_value(tracer, *first, DType::I64)});
    return fresh(tracer, cast(tracer, values, dtype.value_or(DType::I64)));
  }
  if (dtype && *dtype != DType::F64 && *dtype != DType::F32) p.refuse("this dtype");
  auto number = [&](const V& value) {
    if (auto real = tracer.constant_float(value)) return *real;
    return double(int_argument(tracer, value));
  };
  const double from = number(start), to = number(stop), by = number(step);
  // A quotient that is rounded to 0, or by an infinity, is that of one step.
  const double steps = (to - from) / by;
  const double length = steps == 0 && to != from && !std::signbit(steps) ? 1 : std::ceil(steps);
  if (!std::isfinite(length)) refuse("arange: cannot compute length");
  const std::int64_t count = length > 0 ? std::int64_t(length) : 0;
  if (count <= 1) return fresh(tracer, full(tracer, dtype.value_or(DType::F64), Scalar(from), {SymDim(count)}));
  // NumPy fills from the first two elements: start + i * (second - first), in the result's dtype.
  const bool single = dtype == DType::F32;
  const double begin = single ? double(float(from)) : from;
  const double second = single ? double(float(from + by)) : from + by;
  const double delta = single ? double(float(second) - float(begin)) : second - begin;
  return fresh(tracer, arange(tracer, dtype.value_or(DType::F64), Scalar(begin), Scalar(delta), count));
}

V numpy_linspace(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.linspace", arguments, "start, stop, num, endpoint, retstep, dtype, axis, *, device");
  p.unsupported("device");
  if (p.flag("retstep", false)) p.refuse("the argument 'retstep'");
  auto number = [&](std::string_view name) {
    V value = p.required(name);
    if (array_of(value)) p.refuse("array end points");
    return p.number(name, 0.0);
  };
  const double start = number("start"), stop = number("stop");
  const auto given = p.absent("num") ? std::nullopt : tracer.int_expression(p["num"]);
  const SymDim count = given ? *given : SymDim(p.integer("num", 50));
  if (tracer.decide(count, Py_LT, 0)) refuse("Number of samples must be non-negative");
  const bool endpoint = p.flag("endpoint", true);
  const DType dtype = numpy_dtype_argument(tracer, p["dtype"]).value_or(DType::F64);
  if (!is_float(dtype)) p.refuse("a dtype that is not a float");
  const double delta = stop - start;
  const SymDim intervals = endpoint ? count - 1 : count;
  const bool any = tracer.decide(intervals, Py_GT, 0);
  // NumPy divides first where a step is 0: for ends that are equal, or so close that it depends on the number of steps.
  constexpr double kClose = 1e-280;
  const bool by_division =
      any && (delta == 0 || (std::abs(delta) < kClose && delta / double(concrete(tracer, intervals)) == 0));
  auto f64 = [&](double value) { return constant(tracer, DType::F64, value); };
  auto steps = [&] { return size_value(tracer, intervals, DType::F64); };
  ValueId index = arange(tracer, DType::F64, Scalar(0.0), Scalar(1.0), count);
  const ValueId ramp = by_division
                           ? pointwise(tracer, Op::mul, {pointwise(tracer, Op::div, {index, steps()}), f64(delta)})
                       : any ? pointwise(tracer, Op::mul, {index, emit(tracer, Op::div, {f64(delta), steps()})})
                             : pointwise(tracer, Op::mul, {index, f64(delta)});
  ValueId values = pointwise(tracer, Op::add, {ramp, f64(start)});
  if (endpoint && any)
    values = pointwise(tracer, Op::where, {pointwise(tracer, Op::eq, {index, steps()}), f64(stop), values});
  Array result = fresh(tracer, cast(tracer, values, dtype));
  // np.linspace works in place on a reshaped arange; a cast or num=1 makes a new array.
  return dtype == DType::F64 && any ? view_alias(tracer, result) : result;
}

V numpy_eye(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.eye", arguments, "N, M, k, dtype, order, *, device, like");
  p.unsupported("device, like");
  const SymDim rows = dim_argument(tracer, p.required("N"));
  const SymDim columns = p.absent("M") ? rows : dim_argument(tracer, p["M"]);
  const ValueId value =
      eye(tracer, numpy_dtype_argument(tracer, p["dtype"]).value_or(DType::F64), rows, columns, p.integer("k", 0));
  if (!order_is_c(p)) p.refuse("the argument 'order'");
  return fresh(tracer, value);
}

V numpy_identity(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.identity", arguments, "n, dtype, *, like");
  p.unsupported("like");
  const SymDim size = dim_argument(tracer, p.required("n"));
  return fresh(tracer, eye(tracer, numpy_dtype_argument(tracer, p["dtype"]).value_or(DType::F64), size, size, 0));
}

// ---- copies and conversions

V numpy_copy(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.copy", arguments, "a, order, subok");
  Array x = numpy_array(tracer, p.required("a"));
  return ordered_copy(tracer, x, x->dtype, p.text("order", "K"));
}

V numpy_copy_method(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.ndarray.copy", arguments, "a, order");
  Array x = numpy_array(tracer, p.required("a"));
  Array copy = ordered_copy(tracer, x, x->dtype, p.text("order", "C"));
  copy->numpy_scalar = x->numpy_scalar;
  return copy;
}

V numpy_astype(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.ndarray.astype", arguments, "a, dtype, order, casting, subok, copy");
  Array x = numpy_array(tracer, p.required("a"));
  const DType dtype = numpy_dtype_argument(tracer, p.required("dtype")).value_or(DType::F64);
  if (p.text("casting", "unsafe") != "unsafe") p.refuse("the argument 'casting'");
  if (is_complex(dtype) || is_complex(x->dtype)) p.refuse("complex numbers");
  const std::string order = p.text("order", "K");
  const bool may_be_itself = !p.flag("copy", true) && dtype == x->dtype;
  const bool itself = may_be_itself && lies_in(tracer, *x, order);
  Array result = itself ? x : ordered_copy(tracer, x, dtype, order);
  if (may_be_itself) tracer.note_layout(*x, result.get());
  if (itself) return p.required("a");
  result->numpy_scalar = x->numpy_scalar;
  return result;
}

V numpy_conj_method(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.ndarray.conj", arguments, "a");
  V given = p.required("a");
  const Array x = array_of(given);
  if (!x) unsupported("conj() of an array that the graph can't hold");
  if (is_complex(x->dtype)) unsupported("conj() of complex numbers");
  return given;  // itself, no copy
}

V numpy_fill(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.ndarray.fill", arguments, "a, value");
  V target = p.required("a");
  Array x = array_of(target);
  if (!x) unsupported("fill() of an array that the graph can't hold");
  if (!x->writeable) refuse("assignment destination is read-only");
  Operand value = numpy_operand(tracer, p.required("value"));
  if (value.rank() != 0) refuse("fill with an array");
  assign(tracer, *x, element_value(tracer, value, x->dtype));
  return tracer.none();
}

V numpy_asarray(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.asarray", arguments, "a, dtype, order, *, device, copy, like");
  p.unsupported("order, device, copy, like");
  V given = p.required("a");
  const std::optional<DType> dtype = numpy_dtype_argument(tracer, p["dtype"]);
  Array converted = convert(tracer, given, dtype);
  Array x = converted ? converted : array_of(given);
  if (!dtype || *dtype == x->dtype) return converted ? V(converted) : given;
  return ordered_copy(tracer, x, *dtype, "K");
}

V numpy_array_call(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.array", arguments, "object, dtype, *, copy, order, subok, ndmin, ndmax, like");
  p.unsupported("ndmax, like");
  V given = p.required("object");
  const std::optional<DType> wanted = numpy_dtype_argument(tracer, p["dtype"]);
  Array converted = convert(tracer, given, wanted);
  Array x = converted ? converted : array_of(given);
  const DType dtype = wanted.value_or(x->dtype);
  if (!p.absent("copy") && !p.flag("copy", true)) p.refuse("the argument 'copy'");
  const std::string order = p.text("order", "K");
  // copy=None: only if it is another array than the one given.
  const bool itself = p["copy"] && p.absent("copy") && !converted && !x->numpy_scalar && dtype == x->dtype;
  if (itself && order != "K") p.refuse("the argument 'order'");
  Array result = itself ? x : ordered_copy(tracer, x, dtype, order);
  const std::int64_t rank = p.integer("ndmin", 0);
  if (rank <= std::int64_t(result->shape.size())) return itself ? given : V(result);
  // The new axes' strides are the reshape's, which of other layouts has a rule of its own.
  bool plain = rank <= 64 && is_contiguous(tracer, result->shape, result->strides);
  for (const SymDim& size : result->shape) plain = plain && !tracer.decide(size, Py_EQ, 0);
  if (!plain) p.refuse("the argument 'ndmin'");
  Dims shape(std::size_t(rank) - result->shape.size(), SymDim(1));
  shape.insert(shape.end(), result->shape.begin(), result->shape.end());
  Array view = view_reshape(tracer, result, shape);
  if (!view) p.refuse("the argument 'ndmin'");
  return view;
}

V numpy_ascontiguousarray(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.ascontiguousarray", arguments, "a, dtype, *, like");
  p.unsupported("like");
  V given = p.required("a");
  Array converted = convert(tracer, given);
  Array x = converted ? converted : array_of(given);
  const DType dtype = numpy_dtype_argument(tracer, p["dtype"]).value_or(x->dtype);
  if (x->shape.empty()) p.refuse("a 0-d array");
  const bool itself = dtype == x->dtype && is_contiguous(tracer, x->shape, x->strides);
  const Array result = itself ? x : laid(fresh(tracer, cast(tracer, tracer.read(*x), dtype)));
  if (dtype == x->dtype) tracer.note_layout(*x, result.get());
  return itself && !converted ? given : V(result);
}

V numpy_elements(Tracer&, const Arguments&) {
  break_graph(BreakReason::ScalarFromArray, "Python numbers are read from an ndarray");
}

V numpy_tolist(Tracer& tracer, const Arguments& arguments) {
  return elements_as_numbers(tracer, arguments, "Python numbers are read from an ndarray");
}

/// The one element as a Python number.
V numpy_item(Tracer& tracer, const Arguments& arguments) {
  Array x = arguments.positional.empty() ? nullptr : array_of(arguments.positional[0]);
  if (!x || arguments.positional.size() != 1 || !arguments.keywords.empty())
    break_graph(BreakReason::ScalarFromArray, "a Python number is read from an ndarray");
  return tracer.number(*x);
}

V numpy_abs_method(Tracer& tracer, const Arguments& arguments) {
  V result = numpy_ufunc(tracer, "absolute", arguments.positional);
  const Array given = array_of(arguments.positional[0]), made = array_of(result);
  if (!given || !given->numpy_scalar || !is_integer(given->dtype) || is_unsigned_integer(given->dtype)) return result;
  // Of the lowest integer NumPy warns, for scalars only.
  const ValueId value = tracer.read(*given);
  const std::int64_t lowest = std::numeric_limits<std::int64_t>::min() >> (64 - 8 * size_in_bytes(given->dtype));
  const ValueId above = emit(tracer, Op::ne, {value, constant(tracer, given->dtype, lowest)});
  auto scalar = tracer.new_array(Library::Numpy, tracer.checked(tracer.read(*made), above));
  scalar->numpy_scalar = true;
  return scalar;
}

}  // namespace fj
