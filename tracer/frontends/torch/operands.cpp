/// Operands of torch functions: which values torch takes, the dtype they are computed in, and writing back.
///
/// Start with `torch_result_type`: the promotion rule every pointwise row goes through.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "arrays/torch_modes.h"
#include "runtime/base/error.h"
#include "tracer/frontends/torch/torch.h"

namespace fj {

Ref<> torch_object(std::string_view path) {
  PyObject* module = torch_module();
  Ref<> object = Ref<>::borrow(module);
  while (object && !path.empty()) {
    const std::size_t dot = path.find('.');
    object = Ref<>::steal(PyObject_GetAttrString(object.get(), std::string(path.substr(0, dot)).c_str()));
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  }
  if (!object) PyErr_Clear();
  return object;
}

V torch_constant(Tracer& tracer, std::string_view path) {
  Ref<> object = torch_object(path);
  if (!object) unsupported("torch." + std::string(path));
  return tracer.constant(std::move(object));
}

std::optional<TorchOperand> try_torch_operand(Tracer& tracer, const V& value) {
  TorchOperand operand;
  if (Array array = array_of(value)) {
    if (array->library != Library::Torch) return std::nullopt;
    if (is_complex(array->dtype)) unsupported("a complex tensor");
    operand.array = array;
    operand.dtype = array->dtype;
    return operand;
  }
  operand.number = value;
  const auto* computed = as<NumberValue>(value);
  if (value->kind == ValueKind::SymInt || (computed && computed->dtype == DType::I64 && !computed->known)) {
    operand.dtype = DType::I64;
    return operand;
  }
  if (tracer.float_input(value).valid()) {
    operand.dtype = DType::F64;
    return operand;
  }
  PyObject* object = tracer.constant_object(value);
  if (!object) return std::nullopt;
  if (PyBool_Check(object)) operand.dtype = DType::Bool;
  else if (PyLong_Check(object)) operand.dtype = DType::I64;
  else if (PyFloat_Check(object)) operand.dtype = DType::F64;
  else if (auto scalar = numpy_scalar_dtype(object)) {
    // NumPy's scalars are numbers to torch: integers of their kind, all else floats, booleans too.
    if (is_complex(*scalar)) return std::nullopt;
    operand.dtype = is_integer(*scalar) ? DType::I64 : DType::F64;
    Ref<> number = Ref<>::steal(operand.dtype == DType::I64 ? PyNumber_Index(object) : PyNumber_Float(object));
    if (!number) {
      PyErr_Clear();
      return std::nullopt;
    }
    operand.number = tracer.constant(std::move(number));
  } else return std::nullopt;
  return operand;
}

TorchOperand torch_operand(Tracer& tracer, const V& value) {
  if (auto operand = try_torch_operand(tracer, value)) return *operand;
  if (Array array = array_of(value)) {
    if (array->numpy_scalar) unsupported("a NumPy scalar computed here, in a torch function");
    refuse("a NumPy array where torch takes a tensor");
  }
  unsupported("a torch function of an argument that is neither a tensor nor a number");
}

Array torch_tensor(Tracer& tracer, const V& value) {
  TorchOperand operand = torch_operand(tracer, value);
  if (!operand.array) refuse("a number where torch takes a tensor");
  return operand.array;
}

std::vector<Array> torch_tensors(Tracer& tracer, const V& sequence) {
  if (array_of(sequence)) unsupported("a tensor as a sequence of tensors");
  PyTypeObject* type = tracer.type_of(sequence);
  if (!type || !PyType_HasFeature(type, Py_TPFLAGS_TUPLE_SUBCLASS | Py_TPFLAGS_LIST_SUBCLASS))
    unsupported("what is no tuple or list where tensors are taken");
  std::vector<Array> result;
  for (const V& item : tracer.sequence_items(sequence)) result.push_back(torch_tensor(tracer, item));
  return result;
}

DType torch_default_dtype() {
  Ref<> function = torch_object("get_default_dtype");
  Ref<> dtype = function ? Ref<>::steal(PyObject_CallNoArgs(function.get())) : Ref<>();
  std::optional<DType> result = dtype ? dtype_from_object(dtype.get()) : std::nullopt;
  if (!result) {
    PyErr_Clear();
    unsupported("torch's default dtype");
  }
  return *result;
}

DType promote_types(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::Bool) return b;
  if (b == DType::Bool) return a;
  if (is_float(a) && is_float(b)) {
    if (is_half(a) && is_half(b)) return DType::F32;
    return size_in_bytes(a) > size_in_bytes(b) ? a : b;
  }
  if (is_float(a)) return a;
  if (is_float(b)) return b;
  if (is_late_unsigned(a) || is_late_unsigned(b)) refuse("no promotion between these unsigned integers");
  if (a == DType::U8 || b == DType::U8) {
    const DType other = a == DType::U8 ? b : a;
    return other == DType::I8 ? DType::I16 : other;
  }
  return size_in_bytes(a) > size_in_bytes(b) ? a : b;
}

DType torch_result_type(std::span<const TorchOperand> operands) {
  std::optional<DType> dimensioned, zero, wrapped;
  for (const TorchOperand& operand : operands) {
    const bool number = !operand.array || operand.array->wrapped_number;
    DType dtype = operand.dtype;
    if (number && is_float(dtype)) dtype = torch_default_dtype();
    auto& category = number ? wrapped : operand.array->shape.empty() ? zero : dimensioned;
    category = category ? promote_types(*category, dtype) : dtype;
  }
  auto combine = [](std::optional<DType> higher, std::optional<DType> lower) -> std::optional<DType> {
    if (!higher || !lower) return higher ? higher : lower;
    if (is_float(*higher)) return higher;
    if (*higher == DType::Bool || is_float(*lower)) return promote_types(*higher, *lower);
    return higher;
  };
  return *combine(dimensioned, combine(zero, wrapped));
}

bool torch_can_cast(DType from, DType to) {
  if (is_float(from) && !is_float(to) && !is_complex(to)) return false;
  return !(from != DType::Bool && to == DType::Bool);
}

std::optional<DType> torch_dtype_argument(Tracer& tracer, const V& value) {
  if (!value || tracer.is_none(value)) return std::nullopt;
  PyObject* object = tracer.constant_object(value);
  if (!object) unsupported("a dtype that is not known while tracing");
  if (object == reinterpret_cast<PyObject*>(&PyFloat_Type)) return DType::F64;
  if (object == reinterpret_cast<PyObject*>(&PyBool_Type)) return DType::Bool;
  if (object == reinterpret_cast<PyObject*>(&PyLong_Type)) return DType::I64;
  const Ref<>& dtype_type = once([] { return torch_object("dtype"); });
  if (!dtype_type || reinterpret_cast<PyObject*>(Py_TYPE(object)) != dtype_type.get())
    refuse("an argument that is not a torch.dtype");
  std::optional<DType> dtype = dtype_from_object(object);
  if (!dtype) unsupported("this dtype");
  if (is_complex(*dtype)) unsupported("a complex dtype");
  if (is_late_unsigned(*dtype)) unsupported("an unsigned dtype of more than 8 bits");
  return dtype;
}

namespace {

/// How many torch has.
long cuda_devices() {
  const Ref<> cuda = torch_object("cuda");
  const Ref<> count = cuda ? Ref<>::steal(PyObject_CallMethod(cuda.get(), "device_count", nullptr)) : Ref<>();
  const long devices = count && PyLong_Check(count.get()) ? PyLong_AsLong(count.get()) : 0;
  PyErr_Clear();
  return devices;
}

}  // namespace

int device_argument(Tracer& tracer, const V& device, int otherwise) {
  if (!device || tracer.is_none(device)) return otherwise;
  PyObject* object = tracer.constant_object(device);
  // A number is one of CUDA's.
  Ref<> text = object
                   ? Ref<>::steal(PyLong_Check(object) ? PyUnicode_FromFormat("cuda:%S", object) : PyObject_Str(object))
                   : Ref<>();
  const char* bytes = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  const std::string name = bytes ? bytes : "";
  PyErr_Clear();
  if (name == "cpu" || name == "cpu:0") return kHost;
  if (name == "cuda" && cuda_devices() == 1) return 0;  // else it means the one that is current
  const bool number = name.size() > 5 && name.size() < 8 && name.rfind("cuda:", 0) == 0 &&
                      name.find_first_not_of("0123456789", 5) == std::string::npos;
  // Of a device that torch does not have no driver is asked: the call is an error.
  if (number && (name.size() == 6 || name[5] != '0') && std::stoi(name.substr(5)) < cuda_devices())
    return std::stoi(name.substr(5));
  // A library call would be predicted on tensors of the device `meta`, which says nothing of another one.
  break_graph(BreakReason::UnsupportedArray,
              name == "cuda" ? "the device that is current" : "a device of another kind, or that is not there");
}

void require_device(Tracer& tracer, const V& device, int there) {
  const int wanted = device_argument(tracer, device, there);
  if (wanted != there)
    break_graph(BreakReason::SeveralDevices,
                "a tensor of " + device_text(there) + " is copied to " + device_text(wanted));
}

void require_device_of(const Array& array, int there) {
  if (const int device = array->storage->device; device != there)
    break_graph(BreakReason::SeveralDevices,
                "a tensor of " + device_text(device) + " and one of " + device_text(there));
}

ValueId torch_cast(Tracer& tracer, ValueId value, DType to) {
  if (is_half(to) && dtype_of(tracer, value) == DType::F64) value = cast(tracer, value, DType::F32);
  return cast(tracer, value, to);
}

namespace {

double largest(DType dtype) {
  switch (dtype) {
    case DType::F16: return 65504.0;
    case DType::BF16: return 3.38953138925153547590470800371487866880e+38;
    case DType::F32: return std::numeric_limits<float>::max();
    default: return std::numeric_limits<double>::max();
  }
}

/// `arithmetic`: a number that is too large for the dtype is infinite. Elsewhere torch may refuse it, so that it has to
/// be known.
ValueId value_of(Tracer& tracer, const TorchOperand& operand, DType dtype, bool arithmetic) {
  if (operand.array) return torch_cast(tracer, tracer.read(*operand.array), dtype);
  if (auto* symbolic = as<SymIntValue>(operand.number)) {
    const bool fits = arithmetic || !is_integer(dtype) || has_integer(tracer, dtype, symbolic->expression);
    if (!fits) unsupported("a Python int that does not fit the tensor's dtype");
    return size_value(tracer, symbolic->expression, dtype);
  }
  if (dtype == DType::F64 || dtype == DType::F32)
    if (const ValueId input = tracer.float_input(operand.number); input.valid()) {
      if (dtype == DType::F64 || arithmetic) return torch_cast(tracer, input, dtype);
      const ValueId magnitude = emit(tracer, Op::abs, {input});
      const ValueId fits = emit(tracer, Op::le, {magnitude, constant(tracer, DType::F64, largest(dtype))});
      return torch_cast(
          tracer,
          tracer.checked(input, emit(tracer, Op::bit_or,
                                     {fits, emit(tracer, Op::logical_not, {emit(tracer, Op::is_finite, {input})})})),
          dtype);
    }
  // An int that the program computes, in a dtype that holds all of them, or rounds each as torch does.
  if (auto* number = as<NumberValue>(operand.number); number && number->dtype == DType::I64 && !number->known)
    if (dtype == DType::F64 || dtype == DType::F32 || dtype == DType::I64)
      return torch_cast(tracer, number->contents, dtype);
  PyObject* object = tracer.constant_object(operand.number);
  if (!object && operand.number->kind == ValueKind::Number)
    unsupported("a number that is computed here, with a tensor of this dtype");
  FJ_CHECK(object, "a number that is no longer constant");
  if (PyFloat_Check(object)) {
    const double number = PyFloat_AS_DOUBLE(object);
    if (is_float(dtype) && std::isfinite(number) && std::abs(number) > largest(dtype))
      unsupported("a number that does not fit the tensor's dtype");
    return constant(tracer, dtype, is_half(dtype) ? double(float(number)) : number);
  }
  int overflow = 0;
  const std::int64_t number = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow) unsupported("a Python int of more than 64 bits");
  if (is_integer(dtype) && size_in_bytes(dtype) < 8 && !has_integer(tracer, dtype, number))
    unsupported("a Python int that does not fit the tensor's dtype");
  if (dtype == DType::F16 && !arithmetic && std::abs(double(number)) > largest(dtype))
    unsupported("a Python int that does not fit the tensor's dtype");
  return constant(tracer, dtype, number);
}

}  // namespace

double torch_number(Tracer& tracer, const Parameters& p, const char* name, double otherwise) {
  const double number = p.number(name, otherwise);
  const DType dtype = torch_tensor(tracer, p.required("input"))->dtype;
  bool fits = true;
  if (is_float(dtype))
    fits = !std::isfinite(number) || std::abs(number) <= largest(dtype);
  else if (is_integer(dtype))
    fits = std::abs(number) < 0x1p62 && has_integer(tracer, dtype, std::int64_t(number));
  if (!fits) p.refuse("a number that does not fit the tensor's dtype");
  return number;
}

ValueId torch_value(Tracer& tracer, const TorchOperand& operand, DType dtype) {
  return value_of(tracer, operand, dtype, false);
}

V torch_elementwise(Tracer& tracer, ValueId value, std::span<const TorchOperand> operands) {
  DType common = torch_result_type(TorchOperands(operands.begin(), operands.end()));
  if (!is_float(common) && is_float(dtype_of(tracer, value))) common = dtype_of(tracer, value);
  std::vector<Layout> layouts;
  for (const TorchOperand& operand : operands) {
    if (!operand.array) {
      layouts.emplace_back();  // a number is a tensor of no axes
      continue;
    }
    Layout layout{operand.array->shape, operand.array->strides};
    // TensorIterator looks at what it has promoted, a copy, in which no axis is repeated any more.
    if (operand.dtype != common && operands.size() > 1) layout.strides = like_strides(tracer, Library::Torch, layout);
    layouts.push_back(std::move(layout));
  }
  return tracer.new_array(Library::Torch, value,
                          elementwise_strides(tracer, Library::Torch, shape_of(tracer, value), layouts));
}

V torch_like(Tracer& tracer, const Array& x, ValueId value) {
  return tracer.new_array(Library::Torch, value, like_strides(tracer, Library::Torch, {x->shape, x->strides}));
}

V torch_beside_statistics(Tracer& tracer, const Array& x, const Axes& axes, ValueId value) {
  Dims kept = x->shape;
  for (const std::int64_t axis : axes) kept[std::size_t(axis)] = 1;
  const Layout layouts[] = {{x->shape, x->strides}, {kept, row_major(kept)}};
  return tracer.new_array(Library::Torch, value, elementwise_strides(tracer, Library::Torch, x->shape, layouts));
}

V torch_fresh(Tracer& tracer, ValueId value) {
  return tracer.new_array(Library::Torch, value, row_major(shape_of(tracer, value)));
}

V torch_pointwise(Tracer& tracer, Op op, const TorchOperands& operands) {
  const DType dtype = torch_result_type(operands);
  std::vector<ValueId> values;
  for (const TorchOperand& operand : operands) values.push_back(value_of(tracer, operand, dtype, true));
  return torch_elementwise(tracer, pointwise(tracer, op, std::move(values)), operands);
}

void refuse_gradient_into(Tracer& tracer, DType target, const TorchOperand& value) {
  if (value.array && !is_float(target) && !is_complex(target) && tracer.requires_gradient(*value.array))
    break_graph(BreakReason::Gradient, "a value that requires a gradient fills integers");
}

V torch_write(Tracer& tracer, const V& target, const V& result) {
  Array array = torch_tensor(tracer, target), from = torch_tensor(tracer, result);
  if (!torch_can_cast(from->dtype, array->dtype)) refuse("the result can't be cast to the dtype of the tensor written");
  if (!same_shape(tracer, array->shape, from->shape))
    refuse("the result does not have the shape of the tensor written");
  const ValueId value = tracer.read(*from);
  assign(tracer, *array, torch_cast(tracer, value, array->dtype));
  return target;
}

bool same_memory(const Array& a, const Array& b) {
  return a->storage == b->storage && a->dtype == b->dtype && a->shape == b->shape && a->strides == b->strides &&
         a->offset == b->offset;
}

void refuse_overlap(const Array& target, const V& operand) {
  Array read = array_of(operand);
  if (!read || read->storage != target->storage || same_memory(read, target)) return;
  if (may_share_elements(target, read)) unsupported("an operand that shares memory with the tensor written");
}

void refuse_operand(Tracer& tracer, const Array& target, const V& operand) {
  refuse_overlap(target, operand);
  // torch may save it: then it refuses the backward.
  const Array read = array_of(operand);
  if (read && read->storage == target->storage && !target->storage->input_array && tracer.requires_gradient(*target))
    break_graph(BreakReason::Gradient, "an in-place operation whose operand is the tensor itself");
}

V torch_in_place(Tracer& tracer, Handler handler, const Arguments& arguments) {
  if (arguments.positional.empty()) refuse("a method without its tensor");
  if (Array target = array_of(arguments.positional[0])) {
    for (std::size_t i = 1; i < arguments.positional.size(); ++i)
      refuse_operand(tracer, target, arguments.positional[i]);
    for (const auto& [name, operand] : arguments.keywords) refuse_operand(tracer, target, operand);
  }
  const std::size_t first = tracer.graph().nodes.size();
  const V result = handler(tracer, arguments);
  if (!torch_gradient_known(handler)) require_no_gradient(tracer, first);
  torch_note_saved(tracer, handler, arguments, result);
  return torch_write(tracer, arguments.positional[0], result);
}

V torch_with_tuple(Tracer& tracer, Handler handler, const Arguments& arguments) {
  if (arguments.positional.size() > 2 || (arguments.positional.size() == 2 && !is_sequence(arguments.positional[1])))
    refuse("ints where torch takes a tuple");
  return handler(tracer, arguments);
}

V torch_size(Tracer& tracer, const Dims& shape) {
  V items = shape_tuple(tracer, shape);
  as<TupleValue>(items)->type = torch_object("Size");
  return items;
}

V torch_return_type(Tracer& tracer, std::string_view name, std::vector<V> items) {
  V result = tracer.tuple(std::move(items));
  as<TupleValue>(result)->type = torch_object("return_types." + std::string(name));
  return result;
}

V torch_extern(Tracer& tracer, std::string_view path, const Arguments& arguments) {
  return tracer.extern_call(torch_constant(tracer, path), arguments.positional, arguments.keywords);
}

namespace {
V keyword_argument(const Arguments& arguments, std::string_view name) {
  for (const auto& [keyword, value] : arguments.keywords)
    if (keyword == name) return value;
  return nullptr;
}
}  // namespace

Dims torch_sizes(Tracer& tracer, const Arguments& arguments, std::size_t first, std::string_view keyword) {
  if (V given = keyword_argument(arguments, keyword)) return dims_argument(tracer, given);
  if (arguments.positional.size() == first + 1 && is_sequence(arguments.positional[first]))
    return dims_argument(tracer, arguments.positional[first]);
  if (arguments.positional.size() <= first) refuse("no sizes");
  Dims sizes;
  for (std::size_t i = first; i < arguments.positional.size(); ++i)
    sizes.push_back(dim_argument(tracer, arguments.positional[i]));
  return sizes;
}

std::vector<std::int64_t> torch_ints(Tracer& tracer, const Arguments& arguments, std::size_t first,
                                     std::string_view keyword) {
  if (arguments.positional.size() > first ? !arguments.keywords.empty()
                                          : arguments.keywords.size() != 1 || arguments.keywords[0].first != keyword)
    refuse("arguments that torch does not take");
  std::vector<std::int64_t> result;
  for (const SymDim& dim : torch_sizes(tracer, arguments, first, keyword)) result.push_back(concrete(tracer, dim));
  return result;
}

std::int64_t torch_dim(std::int64_t dim, int rank) { return normalise_axis(dim, rank == 0 ? 1 : rank); }
std::int64_t torch_dim(Tracer& tracer, const V& dim, int rank) { return torch_dim(int_argument(tracer, dim), rank); }

}  // namespace fj
