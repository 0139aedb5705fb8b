/// Creation of tensors: constants, ranges, and tensors from Python numbers.
#include <cmath>

#include "arrays/torch_modes.h"
#include "tracer/frontends/composites.h"
#include "tracer/frontends/torch/torch.h"
#include "tracer/nesting.h"

namespace fj {
namespace {

constexpr const char* kOptions = ", *, out, dtype, layout, device, requires_grad, pin_memory, memory_format, names";

void check_options(Tracer& tracer, const Parameters& p) {
  p.unsupported("out, layout, memory_format, names");
  tracer.make_on(device_argument(tracer, p["device"], tracer.device()));
  if (p.flag("requires_grad", false)) p.refuse("requires_grad");
  if (p.flag("pin_memory", false)) p.refuse("pin_memory");
}

Parameters options(Tracer& tracer, const char* name, const Arguments& arguments, const std::string& leading) {
  Parameters p(tracer, name, arguments, leading + kOptions);
  check_options(tracer, p);
  return p;
}

void require_sizes(Tracer& tracer, const Dims& shape) {
  for (const SymDim& size : shape)
    if (tracer.decide(size, Py_LT, 0)) refuse("a negative size");
}

/// zeros(2, 3, dtype=...) and zeros((2, 3)): sizes, and the options without them.
V filled(Tracer& tracer, const char* name, const Arguments& arguments, std::size_t first, double value,
         std::optional<DType> like) {
  const Dims shape = torch_sizes(tracer, arguments, first, "size");
  Arguments rest;
  for (const auto& keyword : arguments.keywords)
    if (keyword.first != "size") rest.keywords.push_back(keyword);
  Parameters p = options(tracer, name, rest, "");
  require_sizes(tracer, shape);
  auto dtype = torch_dtype_argument(tracer, p["dtype"]);
  const DType result = dtype ? *dtype : like ? *like : torch_default_dtype();
  return torch_fresh(tracer, full(tracer, result, scalar_of(result, value), shape));
}

V filled_like(Tracer& tracer, const char* name, const Arguments& arguments, std::optional<double> value) {
  // legacy_contiguous_format is what torch's own functions say for a row-major tensor.
  Arguments rest = arguments;
  bool row_major_result = false;
  std::erase_if(rest.keywords, [&](const auto& keyword) {
    PyObject* format = keyword.first == "memory_format" ? tracer.constant_object(keyword.second) : nullptr;
    const bool contiguous = format && (format == torch_object("legacy_contiguous_format").get() ||
                                       format == torch_object("contiguous_format").get());
    row_major_result = row_major_result || contiguous;
    return contiguous || (format && format == torch_object("preserve_format").get());
  });
  Parameters p(tracer, name, rest, std::string(value ? "input" : "input, fill_value") + kOptions);
  Array x = torch_tensor(tracer, p.required("input"));
  check_options(tracer, p);
  auto dtype = torch_dtype_argument(tracer, p["dtype"]);
  const DType result = dtype ? *dtype : x->dtype;
  ValueId filling;
  if (value) {
    filling = constant(tracer, result, *value);
  } else {
    TorchOperand number = torch_operand(tracer, p.required("fill_value"));
    if (number.array) unsupported("full_like() with a tensor");
    if (number.dtype == DType::F64 && !is_float(result)) unsupported("full_like() of integers with a float");
    filling = torch_value(tracer, number, result);
  }
  return tracer.new_array(
      Library::Torch, broadcast_to(tracer, filling, x->shape),
      row_major_result ? row_major(x->shape) : like_strides(tracer, Library::Torch, {x->shape, x->strides}));
}

DType number_dtype(DType dtype) { return dtype == DType::F64 ? torch_default_dtype() : dtype; }

/// Elements of nested lists, their shape: Python numbers, and tensors of no axes, which torch asks for theirs.
void flatten_numbers(Tracer& tracer, const V& value, std::size_t depth, Dims& shape, TorchOperands& numbers) {
  const bool sequence = value->kind != ValueKind::Object && is_sequence(value);
  if (!sequence) {
    if (Array x = array_of(value)) {
      if (x->library != Library::Torch || !x->shape.empty()) unsupported("tensor() of tensors with axes, or of arrays");
      if (x->storage->device != kHost || is_complex(x->dtype)) unsupported("tensor() of such tensors");
      // torch warns.
      if (tracer.requires_gradient(*x))
        break_graph(BreakReason::Gradient, "the number of a tensor that requires a gradient");
    }
    if (depth != shape.size()) refuse("tensor() of lists of different lengths");
    // NumPy's scalars, float64 too, which is a Python float, bring their own dtype, not the default one.
    if (auto* object = as<ObjectValue>(value); object && numpy_scalar_dtype(object->object.get()))
      unsupported("tensor() of NumPy scalars");
    numbers.push_back(torch_operand(tracer, value));
    return;
  }
  const Nesting nesting;
  const std::vector<V> items = tracer.sequence_items(value);
  const auto count = std::int64_t(items.size());
  if (depth == shape.size()) {
    if (!numbers.empty()) refuse("tensor() of lists of different lengths");
    shape.push_back(count);
  } else if (!(shape[depth] == SymDim(count))) {
    refuse("tensor() of lists of different lengths");
  }
  for (const V& item : items) flatten_numbers(tracer, item, depth + 1, shape, numbers);
}

/// The element of a tensor as the Python number that torch makes a tensor of.
ValueId number_of(Tracer& tracer, const TorchOperand& number, DType result) {
  // A number that does not fit is refused.
  if (is_integer(result) && number.dtype != DType::Bool && promote_types(number.dtype, result) != result)
    unsupported("tensor() of narrower integers");
  const ValueId value = tracer.read(*number.array);
  // Integers become floats by way of Python's.
  return is_float(result) && !is_float(number.dtype) ? torch_cast(tracer, cast(tracer, value, DType::F64), result)
                                                     : torch_cast(tracer, value, result);
}

V from_numbers(Tracer& tracer, const V& data, std::optional<DType> dtype) {
  Dims shape;
  TorchOperands numbers;
  flatten_numbers(tracer, data, 0, shape, numbers);
  constexpr std::size_t kMostElements = 256;  // each is a node
  if (numbers.size() > kMostElements) unsupported("tensor() of a long list");
  DType result = dtype ? *dtype : torch_default_dtype();
  if (!dtype && !numbers.empty()) {
    const auto dtype_of_number = [](const TorchOperand& number) {
      return number.array ? number.dtype : number_dtype(number.dtype);
    };
    result = dtype_of_number(numbers[0]);
    for (const TorchOperand& number : numbers) result = promote_types(result, dtype_of_number(number));
  }
  std::vector<ValueId> values;
  for (const TorchOperand& number : numbers) {
    if (is_float(number.dtype) && !is_float(result) && result != DType::Bool)
      unsupported("tensor() of integers from floats");
    values.push_back(number.array ? number_of(tracer, number, result) : torch_value(tracer, number, result));
  }
  if (shape.empty()) return torch_fresh(tracer, values[0]);
  if (values.empty()) return torch_fresh(tracer, full(tracer, result, scalar_of(result, 0.0), shape));
  return torch_fresh(tracer, reshape(tracer, stack(tracer, values, 0), shape));
}

}  // namespace

// empty() too: what it leaves undefined is zero here.
V torch_zeros(Tracer& tracer, const Arguments& arguments) {
  return filled(tracer, "zeros", arguments, 0, 0, std::nullopt);
}
V torch_ones(Tracer& tracer, const Arguments& arguments) {
  return filled(tracer, "ones", arguments, 0, 1, std::nullopt);
}
V torch_zeros_like(Tracer& tracer, const Arguments& arguments) {
  return filled_like(tracer, "zeros_like", arguments, 0.0);
}
V torch_ones_like(Tracer& tracer, const Arguments& arguments) {
  return filled_like(tracer, "ones_like", arguments, 1.0);
}
V torch_full_like(Tracer& tracer, const Arguments& arguments) {
  return filled_like(tracer, "full_like", arguments, std::nullopt);
}

V torch_new_zeros(Tracer& tracer, const Arguments& arguments) {
  return filled(tracer, "new_zeros", arguments, 1, 0, torch_tensor(tracer, arguments.positional.at(0))->dtype);
}
V torch_new_ones(Tracer& tracer, const Arguments& arguments) {
  return filled(tracer, "new_ones", arguments, 1, 1, torch_tensor(tracer, arguments.positional.at(0))->dtype);
}

namespace {
/// What nobody has written yet is as good as zeros, but under torch.use_deterministic_algorithms, which fills it.
void refuse_filled_memory() {
  if (torch_modes() & torch_mode_bits::kDeterministic) unsupported("memory that torch fills");
}
}  // namespace

V torch_empty(Tracer& tracer, const Arguments& arguments) {
  return refuse_filled_memory(), torch_zeros(tracer, arguments);
}
V torch_empty_like(Tracer& tracer, const Arguments& arguments) {
  return refuse_filled_memory(), torch_zeros_like(tracer, arguments);
}
V torch_new_empty(Tracer& tracer, const Arguments& arguments) {
  return refuse_filled_memory(), torch_new_zeros(tracer, arguments);
}

namespace {
V full_of(Tracer& tracer, const Parameters& p, std::optional<DType> like) {
  if (!is_sequence(p.required("size"))) p.refuse("a size that is no tuple");
  const Dims shape = dims_argument(tracer, p.required("size"));
  require_sizes(tracer, shape);
  TorchOperand number = torch_operand(tracer, p.required("fill_value"));
  if (number.array) unsupported("full() with a tensor");
  auto dtype = torch_dtype_argument(tracer, p["dtype"]);
  const DType result = dtype ? *dtype : like ? *like : number_dtype(number.dtype);
  if (number.dtype == DType::F64 && !is_float(result)) unsupported("full() of integers with a float");
  return torch_fresh(tracer, broadcast_to(tracer, torch_value(tracer, number, result), shape));
}
}  // namespace

V torch_full(Tracer& tracer, const Arguments& arguments) {
  return full_of(tracer, options(tracer, "full", arguments, "size, fill_value"), std::nullopt);
}

V torch_new_full(Tracer& tracer, const Arguments& arguments) {
  Parameters p = options(tracer, "new_full", arguments, "input, size, fill_value");
  return full_of(tracer, p, torch_tensor(tracer, p.required("input"))->dtype);
}

V torch_arange(Tracer& tracer, const Arguments& arguments) {
  bool named_start = false;
  for (const auto& [name, value] : arguments.keywords) named_start = named_start || name == "start";
  const bool only_end = arguments.positional.size() == 1 && !named_start;
  Parameters p = options(tracer, "arange", arguments,
                         only_end || (arguments.positional.empty() && !named_start) ? "end, step" : "start, end, step");
  auto operand = [&](const char* name) -> std::optional<TorchOperand> {
    if (!p[name]) return std::nullopt;
    const ValueId computed = computed_integer(tracer, p[name]);
    TorchOperand result =
        torch_operand(tracer, computed.valid() ? tracer.integer(tracer.size_of_number(computed)) : p[name]);
    if (result.array)
      tracer.round_as_library(p[name]), break_graph(BreakReason::ScalarFromArray, "arange() of a tensor");
    return result;
  };
  auto start = operand("start"), end = operand("end"), step = operand("step");
  if (!end) unsupported("arange() without an end");
  bool floating = false;
  for (const auto* number : {&start, &end, &step}) floating = floating || (*number && (*number)->dtype == DType::F64);
  auto dtype = torch_dtype_argument(tracer, p["dtype"]);
  const DType result = dtype ? *dtype : floating ? torch_default_dtype() : DType::I64;
  if (floating) {
    if (is_half(result) || !is_float(result)) unsupported("arange() of floats in this dtype");
    auto number = [&](const std::optional<TorchOperand>& value, double otherwise) {
      if (!value) return otherwise;
      if (auto real = tracer.constant_float(value->number)) return *real;
      return double(int_argument(tracer, value->number));
    };
    const double first = number(start, 0), last = number(end, 0), stride = number(step, 1);
    if (stride == 0 || (last - first) / stride < 0 || !std::isfinite(first) || !std::isfinite(last))
      refuse("arange() with these bounds");
    const double count = std::ceil((last - first) / stride);
    // Computed in f64 and rounded once, as eager's accumulation type is.
    ValueId value = arange(tracer, DType::F64, Scalar(first), Scalar(stride), std::int64_t(count));
    return torch_fresh(tracer, cast(tracer, value, result));
  }
  auto integer = [&](const std::optional<TorchOperand>& value, std::int64_t otherwise) {
    return value ? dim_argument(tracer, value->number) : SymDim(otherwise);
  };
  const SymDim first = integer(start, 0), last = integer(end, 0);
  const std::int64_t stride = step ? int_argument(tracer, step->number) : 1;
  if (stride == 0) refuse("arange() with step 0");
  if (tracer.decide(stride > 0 ? last : first, Py_LT, stride > 0 ? first : last)) refuse("arange() with these bounds");
  const SymDim span = stride > 0 ? last - first : first - last;
  const std::int64_t size = stride > 0 ? stride : -stride;
  const SymDim count = size == 1 ? span : floor_divide(tracer, span + SymDim(size - 1), size);
  if (result == DType::Bool) unsupported("arange() of booleans");
  ValueId value;
  if (first.is_constant()) {
    value = arange(tracer, DType::I64, Scalar(first.value()), Scalar(stride), count);
  } else {
    value = arange(tracer, DType::I64, Scalar(std::int64_t(0)), Scalar(stride), count);
    value = pointwise(tracer, Op::add, {value, size_value(tracer, first, DType::I64)});
  }
  return torch_fresh(tracer, cast(tracer, value, result));
}

V torch_linspace(Tracer& tracer, const Arguments& arguments) {
  Parameters p = options(tracer, "linspace", arguments, "start, end, steps");
  auto dtype = torch_dtype_argument(tracer, p["dtype"]);
  const DType result = dtype ? *dtype : torch_default_dtype();
  if (result != DType::F32 && result != DType::F64) unsupported("linspace() of this dtype");
  if (array_of(p.required("start")) || array_of(p.required("end"))) unsupported("linspace() between tensors");
  const std::int64_t steps = int_argument(tracer, p.required("steps"));
  if (steps < 0) refuse("linspace() with a negative number of steps");
  auto rounded = [&](double value) { return result == DType::F32 ? double(float(value)) : value; };
  const double start = rounded(p.number("start", 0)), end = rounded(p.number("end", 0));
  if (steps == 1) return torch_fresh(tracer, full(tracer, result, Scalar(start), {SymDim(1)}));
  const double step = rounded(rounded(end - start) / double(steps - 1));
  // From the nearer end, so that both ends are exact.
  ValueId up = arange(tracer, result, Scalar(start), Scalar(step), steps);
  ValueId index = arange(tracer, DType::I64, Scalar(std::int64_t(0)), Scalar(std::int64_t(1)), steps);
  ValueId left = arange(tracer, result, Scalar(double(steps - 1)), Scalar(-1.0), steps);
  ValueId down = constant_with(tracer, Op::sub, end, with_constant(tracer, Op::mul, left, step));
  return torch_fresh(tracer,
                     emit(tracer, Op::where, {with_constant(tracer, Op::lt, index, double(steps / 2)), up, down}));
}

V torch_eye(Tracer& tracer, const Arguments& arguments) {
  Parameters p = options(tracer, "eye", arguments, "n, m");
  const SymDim rows = dim_argument(tracer, p.required("n")),
               columns = p.absent("m") ? rows : dim_argument(tracer, p["m"]);
  require_sizes(tracer, {rows, columns});
  auto dtype = torch_dtype_argument(tracer, p["dtype"]);
  return torch_fresh(tracer, eye(tracer, dtype ? *dtype : torch_default_dtype(), rows, columns, 0));
}

V torch_scalar_tensor(Tracer& tracer, const Arguments& arguments) {
  Parameters p = options(tracer, "scalar_tensor", arguments, "s");
  TorchOperand number = torch_operand(tracer, p.required("s"));
  if (number.array) unsupported("scalar_tensor() of a tensor");
  auto dtype = torch_dtype_argument(tracer, p["dtype"]);
  const DType result = dtype ? *dtype : torch_default_dtype();
  if (number.dtype == DType::F64 && !is_float(result)) unsupported("scalar_tensor() of an integer from a float");
  return torch_fresh(tracer, torch_value(tracer, number, result));
}

V torch_tensor_function(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "tensor", arguments, "data, *, dtype, device, requires_grad, pin_memory");
  check_options(tracer, p);
  V data = p.required("data");
  auto dtype = torch_dtype_argument(tracer, p["dtype"]);
  if (Array x = array_of(data)) {
    // tensor(tensor) warns.
    if (x->library == Library::Torch || x->numpy_scalar) unsupported("tensor() of a tensor or NumPy scalar");
    return tracer.new_array(Library::Torch, cast(tracer, tracer.read(*x), dtype ? *dtype : x->dtype),
                            row_major(x->shape));
  }
  return from_numbers(tracer, data, dtype);
}

V torch_new_tensor(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "new_tensor", arguments, "input, data, *, dtype, device, requires_grad, pin_memory");
  check_options(tracer, p);
  V data = p.required("data");
  const auto given = torch_dtype_argument(tracer, p["dtype"]);
  const DType dtype = given ? *given : torch_tensor(tracer, p.required("input"))->dtype;
  Array x = array_of(data);
  if (!x) return from_numbers(tracer, data, dtype);
  // Of a tensor it warns.
  if (x->library == Library::Torch || x->numpy_scalar) unsupported("new_tensor() of a tensor or NumPy scalar");
  return tracer.new_array(Library::Torch, cast(tracer, tracer.read(*x), dtype), row_major(x->shape));
}

/// Of sizes, memory that nobody has written yet; of a list, what is in it.
V torch_new(Tracer& tracer, const Arguments& arguments) {
  if (!arguments.keywords.empty()) unsupported("Tensor.new() with a device");
  const DType dtype = torch_tensor(tracer, arguments.positional.at(0))->dtype;
  tracer.make_on(tracer.device());
  const V first = arguments.positional.size() == 2 ? arguments.positional[1] : nullptr;
  if (first && array_of(first)) unsupported("Tensor.new() of a tensor or array");
  const auto* tuple = as<TupleValue>(first);
  const bool data = (tuple && !tuple->type) || (first && first->kind == ValueKind::List);
  if (data) return from_numbers(tracer, first, dtype);  // (2, 3) too: of tuples torch.Size alone is a shape
  refuse_filled_memory();
  const Dims shape = arguments.positional.size() == 1 ? Dims{SymDim(0)} : torch_sizes(tracer, arguments, 1, "size");
  require_sizes(tracer, shape);
  return torch_fresh(tracer, full(tracer, dtype, scalar_of(dtype, 0.0), shape));
}

V torch_as_tensor(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "as_tensor", arguments, "data, dtype, device");
  V data = p.required("data");
  auto dtype = torch_dtype_argument(tracer, p["dtype"]);
  Array x = array_of(data);
  if (!x) {
    tracer.make_on(device_argument(tracer, p["device"], kHost));
    return from_numbers(tracer, data, dtype);
  }
  require_device(tracer, p["device"], x->storage->device);
  if (x->numpy_scalar) unsupported("as_tensor() of a NumPy scalar");
  V tensor = data;
  if (x->library == Library::Numpy) tensor = torch_from_numpy(tracer, {{data}, {}});
  Array converted = torch_tensor(tracer, tensor);
  if (!dtype || *dtype == converted->dtype) return tensor;
  return tracer.new_array(Library::Torch, cast(tracer, tracer.read(*converted), *dtype),
                          like_strides(tracer, Library::Torch, {converted->shape, converted->strides}));
}

}  // namespace fj
