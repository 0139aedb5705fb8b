/// NumPy's functions that answer about dtypes and axes, which NumPy's own Python code asks before it computes: NumPy
/// itself answers while tracing, arrays being their dtypes and numbers that are not known weak numbers of their kind.
#include "tracer/frontends/numpy/numpy.h"

namespace fj {
namespace {

/// What the question is about; null: not known while tracing.
Ref<> asked_of(Tracer& tracer, const V& value) {
  if (Array array = array_of(value))
    return array->library == Library::Numpy ? dtype_object(Library::Numpy, array->dtype) : Ref<>();
  if (value->kind == ValueKind::SymInt) return Ref<>::steal(PyLong_FromLong(1));
  if (auto* number = as<NumberValue>(value))
    return number->dtype == DType::F64   ? Ref<>::steal(PyFloat_FromDouble(1))
           : number->dtype == DType::I64 ? Ref<>::steal(PyLong_FromLong(1))
                                         : Ref<>::borrow(Py_True);
  return Ref<>::borrow(tracer.constant_object(value));
}

V answered(Tracer& tracer, const char* function, const Arguments& arguments) {
  Ref<> given = Ref<>::steal(PyTuple_New(Py_ssize_t(arguments.positional.size())));
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    Ref<> item = asked_of(tracer, arguments.positional[i]);
    if (!item) unsupported(std::string(function) + "() of what is not known while tracing");
    PyTuple_SET_ITEM(given.get(), Py_ssize_t(i), item.release());
  }
  Ref<> named = Ref<>::steal(PyDict_New());
  for (const auto& [name, value] : arguments.keywords) {
    PyObject* object = tracer.constant_object(value);
    if (!object) unsupported(std::string(function) + "() of what is not known while tracing");
    PyDict_SetItemString(named.get(), name.c_str(), object);
  }
  Ref<> answer = Ref<>::steal(PyObject_Call(numpy_object(function).get(), given.get(), named.get()));
  if (!answer) {
    PyErr_Clear();
    refuse(std::string(function) + "() of these");
  }
  return tracer.constant(std::move(answer));
}

}  // namespace

V numpy_result_type_call(Tracer& t, const Arguments& a) { return answered(t, "result_type", a); }
V numpy_promote_types(Tracer& t, const Arguments& a) { return answered(t, "promote_types", a); }

V numpy_dtype_call(Tracer& tracer, const Arguments& arguments) {
  PyObject* object = arguments.positional.size() == 1 ? tracer.constant_object(arguments.positional[0]) : nullptr;
  if (!object || !arguments.keywords.empty() ||
      !(PyType_Check(object) || PyUnicode_CheckExact(object) || dtype_from_object(object)))
    unsupported("dtype() of these");
  return answered(tracer, "dtype", arguments);
}

V numpy_can_cast(Tracer& tracer, const Arguments& arguments) {
  // Python numbers are refused, which have no dtype of their own.
  if (arguments.positional.empty() || arguments.positional[0]->kind == ValueKind::SymInt ||
      arguments.positional[0]->kind == ValueKind::Number)
    refuse("can_cast() of a Python number");
  return answered(tracer, "can_cast", arguments);
}

V numpy_normalize_axis_index(Tracer& tracer, const Arguments& arguments) {
  for (const V& value : arguments.positional)
    if (value->kind == ValueKind::SymInt || array_of(value)) unsupported("an axis that is not known while tracing");
  return answered(tracer, "lib.array_utils.normalize_axis_index", arguments);
}

/// Writes where `where` holds; the mask and the values broadcast to the array.
V numpy_copyto(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.copyto", arguments, "dst, src, casting, where");
  Array target = array_of(p.required("dst"));
  if (!target || target->library != Library::Numpy || target->numpy_scalar)
    refuse("copyto() something else than an array");
  if (!target->writeable) refuse("assignment destination is read-only");
  const Operand source = numpy_operand(tracer, p.required("src"));
  const std::string casting = p.text("casting", "same_kind");
  Ref<> from = source.array ? dtype_object(Library::Numpy, source.array->dtype)
                            : dtype_object(Library::Numpy, source.weak == Operand::Weak::Int ? DType::I64 : DType::F64);
  // A Python number takes the array's kind, a float no integer's.
  const bool fits = !source.array && (is_float(target->dtype) || source.weak == Operand::Weak::Int) &&
                    target->dtype != DType::Bool && !is_complex(target->dtype);
  if (!fits) {
    Ref<> answer =
        Ref<>::steal(PyObject_CallFunction(numpy_object("can_cast").get(), "OOs", from.get(),
                                           dtype_object(Library::Numpy, target->dtype).get(), casting.c_str()));
    PyErr_Clear();
    if (!source.array || answer.get() != Py_True) refuse("copyto() of another kind of number");
  }
  refuse_storing_in_order(target, source.array);
  ValueId value = cast_operand_value(tracer, source, target->dtype);
  if (const V mask = p["where"]; mask && !(as<ObjectValue>(mask) && tracer.constant_object(mask) == Py_True)) {
    const Operand where = numpy_operand(tracer, mask);
    if (!where.array || where.array->dtype != DType::Bool) refuse("copyto() where something holds that is no bool");
    const ValueId chosen = broadcast_to(tracer, tracer.read(*where.array), target->shape);
    value = emit(tracer, Op::where, {chosen, broadcast_to(tracer, value, target->shape), tracer.read(*target)});
  }
  assign(tracer, *target, value);
  return tracer.none();
}

}  // namespace fj
