/// Operands of NumPy functions and the dtypes NumPy gives them.
///
/// `numpy_operand` sorts arguments into arrays and weak Python numbers; `resolve_ufunc` and `numpy_result_type` put the
/// promotion question to NumPy itself (about a microsecond, on metadata only: no kernel runs).
#include <cmath>
#include <limits>

#include "runtime/base/error.h"
#include "tracer/frontends/composites.h"
#include "tracer/frontends/numpy/numpy.h"
#include "tracer/nesting.h"

namespace fj {
namespace {

const Dims kScalarShape;

/// Calls a NumPy function while tracing; a Python error means that NumPy refuses.
Ref<> call_numpy(const Ref<>& callable, const Ref<>& arguments, const Ref<>& keywords, const char* what) {
  Ref<> result = Ref<>::steal(PyObject_Call(callable.get(), arguments.get(), keywords.get()));
  if (!result) {
    PyErr_Clear();
    refuse(what);
  }
  return result;
}

DType required_dtype(PyObject* dtype) {
  auto result = dtype_from_object(dtype);
  if (!result) unsupported("a NumPy operation in a dtype framejit does not compile");
  return *result;
}

DType default_dtype(Operand::Weak weak) { return weak == Operand::Weak::Int ? DType::I64 : DType::F64; }

double largest(DType dtype) {
  switch (dtype) {
    case DType::F16: return 65504.0;
    case DType::F32: return std::numeric_limits<float>::max();
    default: return std::numeric_limits<double>::max();
  }
}

/// A NumPy scalar object as a 0-d constant.
Array scalar_object(Tracer& tracer, PyObject* object, DType dtype) {
  Ref<> number = Ref<>::steal(PyObject_CallMethod(object, "item", nullptr));
  if (!number) {
    PyErr_Clear();
    unsupported("a NumPy scalar");
  }
  Scalar value;
  switch (category(dtype)) {
    case DTypeCategory::Bool: value = number.get() == Py_True; break;
    case DTypeCategory::Signed: value = std::int64_t(PyLong_AsLongLong(number.get())); break;
    case DTypeCategory::Unsigned: value = std::uint64_t(PyLong_AsUnsignedLongLong(number.get())); break;
    case DTypeCategory::Float: value = PyFloat_AsDouble(number.get()); break;
    case DTypeCategory::Complex: unsupported("a complex NumPy scalar");
  }
  Array array = tracer.new_array(Library::Numpy, constant(tracer, dtype, std::move(value)));
  array->numpy_scalar = true;
  return array;
}

Operand number_operand(V value, Operand::Weak weak) {
  Operand operand;
  operand.number = std::move(value);
  operand.weak = weak;
  return operand;
}

/// np.array of a nested list: elements are operands, stored in `given`, else promoted together.
Array sequence_array(Tracer& tracer, const V& value, std::optional<DType> given = std::nullopt) {
  constexpr std::size_t kLimit = 256;  // elements written out as nodes
  const Nesting nesting;
  const std::vector<V> items = tracer.sequence_items(value);
  if (items.empty()) return tracer.new_array(Library::Numpy, full(tracer, DType::F64, Scalar(0.0), {SymDim(0)}));
  if (items.size() > kLimit) unsupported("a long list given where an array is taken");
  std::vector<Operand> operands;
  for (const V& item : items)
    operands.push_back(given && is_sequence(item) ? Operand{sequence_array(tracer, item, given)}
                                                  : numpy_operand(tracer, item));
  const DType dtype = given ? *given : numpy_result_type(tracer, operands, false);
  std::vector<ValueId> parts;
  for (const Operand& operand : operands) {
    if (!same_shape(tracer, operand.shape(), operands[0].shape())) refuse("an inhomogeneous sequence as an array");
    const bool is_number = given && !operand.array;
    const ValueId part = is_number ? cast_operand_value(tracer, operand, dtype)
                         : given   ? element_value(tracer, operand, dtype)
                                   : operand_value(tracer, operand, dtype);
    parts.push_back(reshape(tracer, part, operands[0].shape()));
  }
  return fresh(tracer, stack(tracer, parts, 0));
}

}  // namespace

const Dims& Operand::shape() const { return array ? array->shape : kScalarShape; }

bool is_numpy_operand(const V& value) {
  if (auto* array = as<ArrayValue>(value)) return array->library == Library::Numpy;
  if (value->kind == ValueKind::SymInt || value->kind == ValueKind::Number) return true;
  auto* object = as<ObjectValue>(value);
  if (!object) return false;
  PyObject* real = object->object.get();
  return PyLong_CheckExact(real) || PyFloat_CheckExact(real) || PyBool_Check(real) ||
         numpy_scalar_dtype(real).has_value();
}

Operand numpy_operand(Tracer& tracer, const V& value) {
  if (Array array = array_of(value)) {
    if (array->library == Library::Torch) unsupported("a NumPy function on a tensor");
    return Operand{array, nullptr, Operand::Weak::No};
  }
  if (value->kind == ValueKind::SymInt) return number_operand(value, Operand::Weak::Int);
  if (auto* number = as<NumberValue>(value)) {
    if (number->dtype == DType::Bool)
      return Operand{tracer.new_array(Library::Numpy, number->contents), nullptr, Operand::Weak::No};
    return number_operand(value, number->dtype == DType::F64 ? Operand::Weak::Float : Operand::Weak::Int);
  }
  if (value->kind != ValueKind::Object && is_sequence(value))
    return Operand{sequence_array(tracer, value), nullptr, Operand::Weak::No};
  auto* held = as<ObjectValue>(value);
  if (!held) unsupported("a NumPy function on this object");
  PyObject* object = held->object.get();
  if (PyTuple_CheckExact(object) || PyList_CheckExact(object))
    return Operand{sequence_array(tracer, value), nullptr, Operand::Weak::No};
  if (PyBool_Check(object)) {
    Array array = tracer.new_array(Library::Numpy, constant(tracer, DType::Bool, Scalar(tracer.truth(value))));
    return Operand{array, nullptr, Operand::Weak::No};
  }
  if (PyLong_CheckExact(object)) return number_operand(value, Operand::Weak::Int);
  if (PyFloat_CheckExact(object)) return number_operand(value, Operand::Weak::Float);
  if (auto dtype = numpy_scalar_dtype(object)) {
    if (Array changing = array_of(tracer.changing_scalar(value))) return Operand{changing, nullptr, Operand::Weak::No};
    PyObject* known = tracer.constant_object(value);
    if (!known) unsupported("a NumPy scalar that changes between calls");
    return Operand{scalar_object(tracer, known, *dtype), nullptr, Operand::Weak::No};
  }
  unsupported("a NumPy function on an object of type " + std::string(Py_TYPE(object)->tp_name));
}

Array numpy_sequence(Tracer& tracer, const V& sequence, DType dtype) { return sequence_array(tracer, sequence, dtype); }

Array numpy_array(Tracer& tracer, const V& value) {
  Operand operand = numpy_operand(tracer, value);
  if (operand.array) return operand.array;
  return fresh(tracer, operand_value(tracer, operand, default_dtype(operand.weak)));
}

ValueId operand_value(Tracer& tracer, const Operand& operand, DType dtype) {
  // NumPy warns that it discards the imaginary part.
  if (operand.array && is_complex(operand.array->dtype) && !is_complex(dtype))
    unsupported("a complex array cast to a real dtype");
  if (operand.array) return cast(tracer, tracer.read(*operand.array), dtype);
  if (is_complex(dtype)) unsupported("complex arithmetic");
  if (operand.weak == Operand::Weak::Float) {
    if (dtype == DType::F64 || dtype == DType::F32)
      if (const ValueId input = tracer.float_input(operand.number); input.valid()) return cast(tracer, input, dtype);
    auto number = tracer.constant_float(operand.number);
    if (!number) unsupported("a float that changes between calls");
    if (is_float(dtype)) {
      if (std::isfinite(*number) && std::abs(*number) > largest(dtype)) refuse("a Python float overflows the dtype");
      return constant(tracer, dtype, Scalar(*number));
    }
    if (dtype == DType::Bool) return constant(tracer, dtype, Scalar(*number != 0));
    // Assignment truncates; NaN and infinity raise, out of range warns.
    if (!std::isfinite(*number) || std::abs(*number) >= 9.2e18) refuse("cannot convert this float to an integer");
    Operand truncated = number_operand(tracer.integer(std::int64_t(*number)), Operand::Weak::Int);
    return operand_value(tracer, truncated, dtype);
  }
  if (auto* number = as<NumberValue>(operand.number)) {
    // A Python int reaches float32 by way of a double.
    if (dtype != DType::I64 && dtype != DType::F64 && dtype != DType::F32)
      unsupported("an int that is computed here, with an array of this dtype");
    return dtype == DType::I64 ? number->contents : cast(tracer, cast(tracer, number->contents, DType::F64), dtype);
  }
  auto expression = tracer.int_expression(operand.number);
  if (!expression) refuse("a Python integer out of bounds");
  if (is_integer(dtype)) {
    if (!has_integer(tracer, dtype, *expression)) refuse("a Python integer out of bounds");
  } else if (expression->is_constant() && std::abs(double(expression->value())) > 9007199254740992.0) {
    unsupported("a Python integer that a double does not hold");
  } else if (dtype == DType::F16 && expression->is_constant() &&
             std::abs(double(expression->value())) > largest(dtype)) {
    refuse("a Python integer overflows the dtype");
  }
  return size_value(tracer, *expression, dtype);
}

ValueId cast_operand_value(Tracer& tracer, const Operand& operand, DType dtype) {
  if (operand.weak != Operand::Weak::Float || !is_float(dtype)) return operand_value(tracer, operand, dtype);
  return cast(tracer, operand_value(tracer, operand, DType::F64), dtype);
}

namespace {
/// Where NumPy stores a scalar as an element it makes a Python number of it, for which an integer dtype must have a
/// place: whether it has. Invalid: always.
ValueId fits_element(Tracer& tracer, const Operand& operand, DType dtype) {
  if (!operand.array || !operand.array->numpy_scalar || !is_integer(dtype)) return {};
  const DType from = operand.array->dtype;
  if (from == DType::Bool || from == dtype || is_complex(from)) return {};
  const auto [low, high] = integer_range(dtype);
  const ValueId value = tracer.read(*operand.array);
  ValueId above, below;
  if (is_float(from)) {
    // -2^63 and 2^63 are doubles, the neighbours of other bounds too.
    const ValueId wide = cast(tracer, value, DType::F64);
    const bool largest_signed = low == INT64_MIN;
    above = with_constant(tracer, largest_signed ? Op::ge : Op::gt, wide, largest_signed ? -0x1p63 : double(low) - 1);
    below = with_constant(tracer, Op::lt, wide, high == INT64_MAX ? 0x1p63 : double(high) + 1);
  } else {
    const auto [least, most] = integer_range(from);
    const auto number = [&](std::int64_t bound) { return constant(tracer, from, scalar_of(from, bound)); };
    above = emit(tracer, Op::ge, {value, number(std::max(low, least))});
    below = emit(tracer, Op::le, {value, number(std::min(high, most))});
  }
  return emit(tracer, Op::bit_and, {above, below});
}
}  // namespace

ValueId element_value(Tracer& tracer, const Operand& operand, DType dtype) {
  const ValueId fits = fits_element(tracer, operand, dtype);
  if (!fits.valid()) return operand_value(tracer, operand, dtype);
  return cast(tracer, tracer.checked(tracer.read(*operand.array), fits), dtype);
}

Ref<> numpy_object(std::string_view path) {
  PyObject* module = numpy_module();
  FJ_CHECK(module, "NumPy is not loaded");
  Ref<> object = Ref<>::borrow(module);
  while (!path.empty()) {
    const std::size_t dot = path.find('.');
    const std::string part(path.substr(0, dot));
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
    object = Ref<>::steal(PyObject_GetAttrString(object.get(), part.c_str()));
    if (!object) {
      PyErr_Clear();
      unsupported("this NumPy has no " + part);
    }
  }
  return object;
}

DType numpy_result_type(Tracer& tracer, std::span<const Operand> operands, bool numbers_are_weak) {
  Ref<> arguments = Ref<>::steal(PyTuple_New(Py_ssize_t(operands.size())));
  for (std::size_t i = 0; i < operands.size(); ++i) {
    PyObject* item = nullptr;
    if (operands[i].array) item = dtype_object(Library::Numpy, operands[i].array->dtype).release();
    else if (!numbers_are_weak) item = dtype_object(Library::Numpy, default_dtype(operands[i].weak)).release();
    else if (operands[i].weak == Operand::Weak::Int) item = PyLong_FromLong(1);
    else item = PyFloat_FromDouble(1.0);
    FJ_CHECK(item, "no object for a dtype");
    PyTuple_SET_ITEM(arguments.get(), Py_ssize_t(i), item);
  }
  (void)tracer;
  return required_dtype(
      call_numpy(numpy_object("result_type"), arguments, {}, "these dtypes have no common dtype").get());
}

std::optional<DType> numpy_dtype_argument(Tracer& tracer, const V& value) {
  if (!value || tracer.is_none(value)) return std::nullopt;
  PyObject* object = tracer.constant_object(value);
  if (!object) unsupported("a dtype that is not known while tracing");
  Ref<> arguments = Ref<>::steal(PyTuple_Pack(1, object));
  Ref<> dtype = call_numpy(numpy_object("dtype"), arguments, {}, "not a dtype");
  Ref<> native = Ref<>::steal(PyObject_GetAttrString(dtype.get(), "isnative"));
  if (!native || native.get() != Py_True) unsupported("a dtype of foreign byte order");
  return required_dtype(dtype.get());
}

std::vector<DType> resolve_ufunc(Tracer& tracer, PyObject* ufunc, std::span<const Operand> inputs,
                                 std::span<const std::optional<DType>> outputs, std::optional<DType> dtype,
                                 std::string_view casting) {
  (void)tracer;
  const std::size_t count = inputs.size() + outputs.size();
  Ref<> dtypes = Ref<>::steal(PyTuple_New(Py_ssize_t(count)));
  for (std::size_t i = 0; i < count; ++i) {
    Ref<> item;
    if (i < inputs.size()) {
      if (inputs[i].array) item = dtype_object(Library::Numpy, inputs[i].array->dtype);
      else
        item = Ref<>::borrow(
            reinterpret_cast<PyObject*>(inputs[i].weak == Operand::Weak::Int ? &PyLong_Type : &PyFloat_Type));
    } else if (auto given = outputs[i - inputs.size()]) {
      item = dtype_object(Library::Numpy, *given);
    } else {
      item = Ref<>::borrow(Py_None);
    }
    PyTuple_SET_ITEM(dtypes.get(), Py_ssize_t(i), item.release());
  }
  Ref<> method = Ref<>::steal(PyObject_GetAttrString(ufunc, "resolve_dtypes"));
  if (!method) {
    PyErr_Clear();
    unsupported("a ufunc without resolve_dtypes");
  }
  Ref<> arguments = Ref<>::steal(PyTuple_Pack(1, dtypes.get()));
  Ref<> keywords = Ref<>::steal(PyDict_New());
  if (casting != "same_kind") {
    Ref<> text = Ref<>::steal(PyUnicode_FromStringAndSize(casting.data(), Py_ssize_t(casting.size())));
    PyDict_SetItemString(keywords.get(), "casting", text.get());
  }
  if (dtype) {
    // dtype= fixes the loop's outputs, as signature=(None, ..., dtype) does.
    Ref<> signature = Ref<>::steal(PyTuple_New(Py_ssize_t(count)));
    for (std::size_t i = 0; i < count; ++i)
      PyTuple_SET_ITEM(
          signature.get(), Py_ssize_t(i),
          i < inputs.size() ? Ref<>::borrow(Py_None).release() : dtype_object(Library::Numpy, *dtype).release());
    PyDict_SetItemString(keywords.get(), "signature", signature.get());
  }
  Ref<> resolved = call_numpy(method, arguments, keywords, "the ufunc has no loop for these dtypes");
  std::vector<DType> result;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(resolved.get()); ++i)
    result.push_back(required_dtype(PyTuple_GET_ITEM(resolved.get(), i)));
  return result;
}

V write_out(Tracer& tracer, const V& out, ValueId value) {
  Array target = array_of(out);
  if (!target || target->library != Library::Numpy || target->numpy_scalar)
    refuse("return arrays must be of ArrayType");
  if (!target->writeable) refuse("output array is read-only");
  if (!same_shape(tracer, shape_of(tracer, value), target->shape)) refuse("output has the wrong shape");
  assign(tracer, *target, value);
  return out;
}

V reduction_result(Tracer& tracer, const Array& input, ValueId value, const Axes& axes, bool keepdims, const V& out) {
  if (out && !tracer.is_none(out)) return write_out(tracer, out, value);
  const Layout layout{input->shape, input->strides};
  Array result = tracer.new_array(Library::Numpy, value, numpy_reduction_strides(tracer, layout, axes, keepdims));
  return numpy_result(tracer, result);
}

Array fresh(Tracer& tracer, ValueId value) {
  return tracer.new_array(Library::Numpy, value, row_major(shape_of(tracer, value)));
}

Layout layout_of(const Array& array) { return {array->shape, array->strides}; }

SymDim element_count(const Dims& shape, const Axes& axes) {
  SymDim count = 1;
  for (std::int64_t axis : axes) count = count * shape[axis];
  return count;
}

std::vector<V> numpy_sequence(Tracer& tracer, const V& value) {
  if (array_of(value)) return array_iterate(tracer, value);
  return items_of_sequence(tracer, value);
}

}  // namespace fj
