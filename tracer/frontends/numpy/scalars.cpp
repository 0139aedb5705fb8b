/// NumPy's scalar types called: `np.float32(8)`, `np.int64(n)`, `np.bool_(x)`.
///
/// Of a Python number known while tracing the type itself makes the scalar, a constant; of one that changes between
/// calls, of a NumPy scalar and of an array it is a cast, as the types are `asarray(x, dtype)[()]` with unsafe casting.
#include <cmath>

#include "tracer/frontends/numpy/numpy.h"

namespace fj {
namespace {

/// Below it a float loses digits, which NumPy reports if it was asked to.
double smallest_normal(DType dtype) {
  switch (dtype) {
    case DType::F16: return 0x1p-14;
    case DType::F32: return 0x1p-126;
    default: return 0x1p-1022;
  }
}

/// Beyond it the cast overflows, which NumPy reports.
double largest(DType dtype) {
  switch (dtype) {
    case DType::F16: return 65504.0;
    case DType::F32: return 0x1.fffffep127;
    default: return 0x1.fffffffffffffp1023;
  }
}

V constant_scalar(Tracer& tracer, const char* type, DType dtype, PyObject* number) {
  double real = 0;
  if (number && is_float(dtype)) {
    real = PyFloat_CheckExact(number) ? PyFloat_AS_DOUBLE(number) : PyLong_AsDouble(number);
    if (PyErr_Occurred()) PyErr_Clear(), refuse(std::string(type) + "() of an int that is no double");
    if (std::isfinite(real) && std::abs(real) > largest(dtype))
      unsupported(std::string(type) + "() of a number that overflows");
  }
  Ref<> callable = numpy_object(type);
  Ref<> made = Ref<>::steal(number ? PyObject_CallOneArg(callable.get(), number) : PyObject_CallNoArgs(callable.get()));
  if (!made || PyErr_Occurred()) {
    PyErr_Clear();
    refuse(std::string(type) + "() of this number");
  }
  if (real != 0 && std::abs(real) < smallest_normal(dtype) && PyFloat_AsDouble(made.get()) != real)
    unsupported(std::string(type) + "() of a number that underflows");
  return tracer.constant(std::move(made));
}

V scalar_type_call(Tracer& tracer, const Arguments& arguments, const char* type, DType dtype) {
  if (!arguments.keywords.empty() || arguments.positional.size() > 1)
    unsupported(std::string(type) + "() with these arguments");
  if (arguments.positional.empty()) return constant_scalar(tracer, type, dtype, nullptr);
  const V& given = arguments.positional[0];
  if (Array x = array_of(given); x && !x->numpy_scalar) {
    if (x->library != Library::Numpy) unsupported(std::string(type) + "() of a tensor");
    if (x->rank() > 0) {
      if (x->dtype == dtype) return given;
      const Layout layout{x->shape, x->strides};
      return tracer.new_array(Library::Numpy, operand_value(tracer, Operand{x}, dtype),
                              like_strides(tracer, Library::Numpy, layout));
    }
  }
  if (!is_numpy_operand(given)) unsupported(std::string(type) + "() of this object");
  const bool changing = array_of(given) || given->kind == ValueKind::SymInt || tracer.float_input(given).valid();
  if (!changing) {
    PyObject* number = tracer.constant_object(given);
    if (!number) unsupported(std::string(type) + "() of this object");
    if (PyLong_Check(number) || PyFloat_CheckExact(number)) return constant_scalar(tracer, type, dtype, number);
  }
  const Operand operand = numpy_operand(tracer, given);
  ValueId value;
  if (operand.weak == Operand::Weak::Float && !is_float(dtype))
    unsupported(std::string(type) + "() of a float that changes between calls");
  // Python numbers become floats by way of a double.
  if (!operand.array && is_float(dtype)) value = cast(tracer, operand_value(tracer, operand, DType::F64), dtype);
  else if (!operand.array && dtype == DType::Bool)
    value = emit(tracer, Op::ne, {operand_value(tracer, operand, DType::I64), constant(tracer, DType::I64, 0)});
  else value = operand_value(tracer, operand, dtype);
  Array scalar = tracer.new_array(Library::Numpy, value);
  scalar->numpy_scalar = true;
  return scalar;
}

}  // namespace

V numpy_bool(Tracer& t, const Arguments& a) { return scalar_type_call(t, a, "bool_", DType::Bool); }
V numpy_int8(Tracer& t, const Arguments& a) { return scalar_type_call(t, a, "int8", DType::I8); }
V numpy_int16(Tracer& t, const Arguments& a) { return scalar_type_call(t, a, "int16", DType::I16); }
V numpy_int32(Tracer& t, const Arguments& a) { return scalar_type_call(t, a, "int32", DType::I32); }
V numpy_int64(Tracer& t, const Arguments& a) { return scalar_type_call(t, a, "int64", DType::I64); }
V numpy_uint8(Tracer& t, const Arguments& a) { return scalar_type_call(t, a, "uint8", DType::U8); }
V numpy_uint16(Tracer& t, const Arguments& a) { return scalar_type_call(t, a, "uint16", DType::U16); }
V numpy_uint32(Tracer& t, const Arguments& a) { return scalar_type_call(t, a, "uint32", DType::U32); }
V numpy_uint64(Tracer& t, const Arguments& a) { return scalar_type_call(t, a, "uint64", DType::U64); }
V numpy_float16(Tracer& t, const Arguments& a) { return scalar_type_call(t, a, "float16", DType::F16); }
V numpy_float32(Tracer& t, const Arguments& a) { return scalar_type_call(t, a, "float32", DType::F32); }
V numpy_float64(Tracer& t, const Arguments& a) { return scalar_type_call(t, a, "float64", DType::F64); }

}  // namespace fj
