/// Operators and comparisons: plain constants through CPython's own functions, symbolic ints as polynomials, arrays
/// through their front ends, objects through their Python methods.
#include "tracer/values/numbers/operators.h"

#include <opcode.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <string_view>

#include "runtime/base/error.h"
#include "tracer/frontends/builders.h"
#include "tracer/interpreter/exceptions.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/modes/devices.h"
#include "tracer/nesting.h"
#include "tracer/state/effect_log.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/containers/containers.h"
#include "tracer/values/containers/dicts.h"
#include "tracer/values/containers/iterators.h"
#include "tracer/values/numbers/computed_numbers.h"
#include "tracer/values/numbers/derived_values.h"
#include "tracer/values/numbers/size_ranges.h"
#include "tracer/values/numbers/truths.h"
#include "tracer/values/outside_objects.h"
#include "tracer/values/proxies.h"
#include "tracer/values/text.h"

namespace fj {

namespace {

/// What the classes of two operands may define for an operator.
struct BinaryMethods {
  const char *method, *reflected;
};

}  // namespace

/// The same once the classes of the operands have been asked for their Python code.
static V builtin_binary(TraceRun& t, int nb_op, const V& a, const V& b);
static V builtin_compare(TraceRun& t, int comparison, const V& a, const V& b);
static std::optional<V> try_comparison(TraceRun& t, int comparison, const V& a, const V& b);
/// What the classes of a and b define in Python for the operator.
static std::optional<V> try_operator(TraceRun& t, const BinaryMethods& methods, bool in_place, const V& a, const V& b);
/// The same for an operand of an array, as its library takes it.
static V array_operand(TraceRun& t, const V& value, const V& array);
static std::optional<V> symbolic_binary(TraceRun& t, int nb_op, const V& a, const V& b);

namespace {

using NumberFunction = PyObject* (*)(PyObject*, PyObject*);
using NumberOperation = PyObject* (*)(PyObject*);
PyObject* power(PyObject* a, PyObject* b) { return PyNumber_Power(a, b, Py_None); }

struct BinaryRow {
  int op;
  NumberFunction function;
  const char* method;
  const char* reflected;
};
/// By NB_ number; in-place forms are these plus NB_INPLACE_ADD.
constexpr BinaryRow kBinary[] = {
    {NB_ADD, PyNumber_Add, "__add__", "__radd__"},
    {NB_AND, PyNumber_And, "__and__", "__rand__"},
    {NB_FLOOR_DIVIDE, PyNumber_FloorDivide, "__floordiv__", "__rfloordiv__"},
    {NB_LSHIFT, PyNumber_Lshift, "__lshift__", "__rlshift__"},
    {NB_MATRIX_MULTIPLY, PyNumber_MatrixMultiply, "__matmul__", "__rmatmul__"},
    {NB_MULTIPLY, PyNumber_Multiply, "__mul__", "__rmul__"},
    {NB_REMAINDER, PyNumber_Remainder, "__mod__", "__rmod__"},
    {NB_OR, PyNumber_Or, "__or__", "__ror__"},
    {NB_POWER, power, "__pow__", "__rpow__"},
    {NB_RSHIFT, PyNumber_Rshift, "__rshift__", "__rrshift__"},
    {NB_SUBTRACT, PyNumber_Subtract, "__sub__", "__rsub__"},
    {NB_TRUE_DIVIDE, PyNumber_TrueDivide, "__truediv__", "__rtruediv__"},
    {NB_XOR, PyNumber_Xor, "__xor__", "__rxor__"},
};

const BinaryRow& binary_row(int op) {
  const int plain = op >= NB_INPLACE_ADD ? op - NB_INPLACE_ADD : op;
  for (const BinaryRow& row : kBinary)
    if (row.op == plain) return row;
  break_graph(BreakReason::UnsupportedBytecode, "operator " + std::to_string(op));
}

/// Constants whose result would be huge are left to Python.
bool is_large(int op, PyObject* a, PyObject* b) {
  auto small = [](PyObject* x, long limit) {
    if (!PyLong_Check(x)) return true;
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(x, &overflow);
    return !overflow && number >= -limit && number <= limit;
  };
  if (op == NB_POWER) return PyLong_Check(a) && !(small(b, 500) && small(a, 1L << 32));
  if (op == NB_LSHIFT) return !small(b, 1000);
  if (op == NB_MULTIPLY && (PyUnicode_Check(a) || PyBytes_Check(a) || PyTuple_Check(a))) return !small(b, 10000);
  if (op == NB_MULTIPLY && (PyUnicode_Check(b) || PyBytes_Check(b) || PyTuple_Check(b))) return !small(a, 10000);
  return false;
}

constexpr const char* kComparisonMethod[] = {"__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"};
constexpr int kReflected[] = {Py_GT, Py_GE, Py_EQ, Py_NE, Py_LT, Py_LE};

}  // namespace

std::optional<V> symbolic_binary(TraceRun& t, int op, const V& a, const V& b) {
  if (a->kind != ValueKind::SymInt && b->kind != ValueKind::SymInt) return std::nullopt;
  auto left = t.int_expression(a), right = t.int_expression(b);
  if (!left || !right) {
    if (V result = result_of_operator(t, binary_row(op).method, {a, b})) return result;
    // With anything else, the number of this run.
    auto settle = [&](const V& value) {
      return value->kind == ValueKind::SymInt ? t.integer(*t.constant_int(value)) : value;
    };
    return t.binary(op, settle(a), settle(b));
  }
  const int plain = op >= NB_INPLACE_ADD ? op - NB_INPLACE_ADD : op;
  if (plain == NB_ADD || plain == NB_SUBTRACT || plain == NB_MULTIPLY)
    if (auto result = exact(t, plain, *left, *right)) return t.integer(*result);
  if (plain == NB_FLOOR_DIVIDE || plain == NB_REMAINDER) {
    if (t.decide(*right, Py_EQ, 0))
      raise(t, PyExc_ZeroDivisionError,
            {t.string(fj_errors_since_v314()        ? "division by zero"
                      : plain == NB_FLOOR_DIVIDE ? "integer division or modulo by zero"
                                                 : "integer modulo by zero")},
            BreakReason::ErrorWhileTracing, "integer division by zero");
    if (left->divide_exactly(*right) || t.decide(*right, Py_GT, 0))
      return t.integer((plain == NB_REMAINDER ? floor_remainder : floor_divide)(t, *left, *right));
  }
  if (V result = result_of_operator(t, binary_row(op).method, {a, b})) return result;
  return t.binary(op, t.integer(*t.constant_int(a)), t.integer(*t.constant_int(b)));
}

namespace {

bool is_array(const V& value) { return value->kind == ValueKind::Array; }
bool is_unwrapped_array(const V& value) {
  return as<ObjectValue>(value) && array_library(as<ObjectValue>(value)->object.get());
}

/// Int, float, str, bytes or tuple, or an enumeration's member that is one: C code's operators on it have no effect.
bool is_foldable(PyObject* x) {
  return x && (is_plain(x) || PyTuple_CheckExact(x) || ((PyLong_Check(x) || PyUnicode_Check(x)) && is_enum_member(x)));
}

bool is_number(PyObject* x) {
  return PyLong_CheckExact(x) || PyFloat_CheckExact(x) || PyBool_Check(x) || numpy_scalar_dtype(x);
}

/// Beside a NumPy scalar: an operator is NumPy's.
bool meets_numpy(const V& other) {
  if (auto* array = as<ArrayValue>(other)) return array->library == Library::Numpy;
  if (auto* object = as<ObjectValue>(other)) return is_number(object->object.get());
  return other->kind == ValueKind::SymInt || other->kind == ValueKind::Number;
}

/// Arithmetic of NumPy's scalars on known numbers: an array of one of them, and numbers beside it.
bool is_scalar_arithmetic(PyObject* a, PyObject* b) {
  return a && b && (numpy_scalar_dtype(a) || numpy_scalar_dtype(b)) && is_number(a) && is_number(b);
}

/// While NumPy computes a constant: what it would report (overflow, division by zero) is an error instead, so that it
/// is reported at each call, by NumPy.
class RaisingConditions {
 public:
  RaisingConditions() {
    Ref<> errstate = Ref<>::steal(PyObject_GetAttrString(numpy_module(), "errstate"));
    Ref<> none = Ref<>::steal(PyTuple_New(0)), keywords = Ref<>::steal(Py_BuildValue("{s:s}", "all", "raise"));
    if (errstate && none && keywords)
      manager_ = Ref<>::steal(PyObject_Call(errstate.get(), none.get(), keywords.get()));
    Ref<> entered = manager_ ? Ref<>::steal(PyObject_CallMethod(manager_.get(), "__enter__", nullptr)) : Ref<>();
    FJ_CHECK(entered, "np.errstate");
  }
  ~RaisingConditions() {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    Ref<>::steal(PyObject_CallMethod(manager_.get(), "__exit__", "OOO", Py_None, Py_None, Py_None));
    PyErr_Restore(type, value, traceback);
  }
  RaisingConditions(const RaisingConditions&) = delete;

 private:
  Ref<> manager_;
};

V fold_scalars(TraceRun& tracer, auto&& function) {
  Ref<> result;
  {
    const RaisingConditions raising;
    result = Ref<>::steal(function());
  }
  if (!result) break_graph(BreakReason::ErrorWhileTracing, take_error());
  return wrap_constant(tracer, tracer.keep(result).get());
}

}  // namespace

V python_method(TraceRun& t, const V& value, const char* name) {
  PyTypeObject* type = nullptr;
  if (value->kind == ValueKind::Object || value->kind == ValueKind::Instance) {
    type = t.type_of(value);
  } else if (auto* tuple = as<TupleValue>(value); tuple && tuple->type && !tuple->view_of) {
    type = reinterpret_cast<PyTypeObject*>(tuple->type.get());
  }
  if (!type || !(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return nullptr;
  Ref<> text = Ref<>::steal(PyUnicode_InternFromString(name));
  PyObject* found = class_attribute(t, type, text.get());
  if (!found) return nullptr;
  // Set to None it is refused, and nothing else is asked instead.
  if (found == Py_None) break_graph(BreakReason::UnsupportedObject, std::string("a ") + name + " that is None");
  static PyObject* const get_name = PyUnicode_InternFromString("__get__");
  PyObject* get = fj_type_lookup(Py_TYPE(found), get_name);
  if (Py_TYPE(found) != &PyStaticMethod_Type && Py_TYPE(found) != &PyClassMethod_Type &&
      !(get && PyFunction_Check(get)) && !is_python_method(t, found))
    return nullptr;
  return bind_class_attribute(t, found, value, type);
}

V number_part(TraceRun& t, const V& value) {
  if (auto* instance = as<InstanceValue>(value);
      instance && instance->contents && instance->contents->kind == ValueKind::Object)
    return instance->contents;
  auto* object = as<ObjectValue>(value);
  if (!object || is_plain(object->object.get()) ||
      !(PyLong_Check(object->object.get()) || PyUnicode_Check(object->object.get())))
    return value;
  PyObject* number = is_enum_member(object->object.get()) ? t.constant_object(value) : nullptr;
  if (!number) return value;
  if (PyUnicode_Check(number)) return wrap_constant(t, t.keep(Ref<>::steal(PyUnicode_FromObject(number))).get());
  return wrap_constant(t, t.keep(Ref<>::steal(PyNumber_Add(number, Ref<>::steal(PyLong_FromLong(0)).get()))).get());
}

V array_operand(TraceRun& t, const V& value, const V& array) {
  V number = number_part(t, value);
  if (number == value || as<ArrayValue>(array)->library == Library::Torch) return number;
  // torch takes the number that the object is, NumPy asks it.
  for (const char* method : {"__complex__", "__float__", "__int__", "__index__"})
    if (python_method(t, value, method)) return value;
  // To NumPy only exact ints and floats are weak: one of a derived class is an int64 or float64.
  PyObject* plain = t.constant_object(number);
  if (!plain || !(PyLong_CheckExact(plain) || PyFloat_CheckExact(plain))) return value;
  Ref<> type = Ref<>::steal(PyObject_GetAttrString(numpy_module(), PyLong_CheckExact(plain) ? "int64" : "float64"));
  Ref<> scalar = type ? Ref<>::steal(PyObject_CallOneArg(type.get(), plain)) : Ref<>();
  PyErr_Clear();
  return scalar ? wrap_constant(t, t.keep(scalar).get()) : value;
}

V index_number(TraceRun& t, const V& value) {
  if (value->kind == ValueKind::SymInt) return value;
  if (V index = t.scalar_index(value)) return index;
  auto* held = as<ObjectValue>(value);
  const auto dtype = held ? numpy_scalar_dtype(held->object.get()) : std::nullopt;
  if (dtype && is_integer(*dtype) && *dtype != DType::Bool)
    return wrap_constant(t, t.keep(Ref<>::steal(PyNumber_Index(t.constant_object(value)))).get());
  V method = python_method(t, value, "__index__");
  if (!method || PyType_IsSubtype(t.type_of(value), &PyLong_Type))
    return number_part(t, value);  // an int is its own index
  V number = t.call(method, {}, {});
  if (t.type_of(number) != &PyLong_Type)
    break_graph(BreakReason::ErrorWhileTracing, "__index__ that gives " + describe(number));
  return number;
}

namespace {

/// The builtin type whose C code is the operand's, whatever class is derived from it; null: none that takes others
/// here.
PyTypeObject* c_type(TraceRun& tracer, const V& value) {
  switch (value->kind) {
    case ValueKind::Object:
    case ValueKind::Instance:
    case ValueKind::List:
    case ValueKind::Tuple:
    case ValueKind::Dict:
    case ValueKind::Set: break;
    default: return nullptr;
  }
  PyTypeObject* type = tracer.type_of(value);
  while (type && type->tp_flags & Py_TPFLAGS_HEAPTYPE) type = type->tp_base;
  return type == &PyBool_Type ? &PyLong_Type : type;
}

bool is_any_of(PyTypeObject* type, std::initializer_list<PyTypeObject*> types) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

/// A number that C code of this type calculates with.
bool takes_number(PyTypeObject* type, PyTypeObject* other) {
  if (type == &PyLong_Type) return other == &PyLong_Type;
  if (type == &PyFloat_Type) return is_any_of(other, {&PyLong_Type, &PyFloat_Type});
  return type == &PyComplex_Type && is_any_of(other, {&PyLong_Type, &PyFloat_Type, &PyComplex_Type});
}

/// The right operand's class is derived from the left one's, and so has the first word.
bool is_asked_first(TraceRun& tracer, const V& a, const V& b) {
  if (b->kind != ValueKind::Object && b->kind != ValueKind::Instance) return false;
  return tracer.type_of(a) != tracer.type_of(b) && PyType_IsSubtype(tracer.type_of(b), tracer.type_of(a));
}

/// Whether the left operand's type changes it in C, whatever __or__ and the like its class and the right operand have.
bool taken_in_place(TraceRun& tracer, const char* method, const V& a, const V& b) {
  const std::string_view name = method;
  PyTypeObject* left = c_type(tracer, a);
  if (left == &PySet_Type && (name == "__and__" || name == "__or__" || name == "__sub__" || name == "__xor__"))
    return is_any_of(c_type(tracer, b), {&PySet_Type, &PyFrozenSet_Type});
  return name == "__or__" &&
         is_any_of(left, {&PyDict_Type, &PyODict_Type, reinterpret_cast<PyTypeObject*>(defaultdict_type())});
}

/// Whether the C code of the left operand's type has an answer for the right one, which then is not asked.
bool taken_by_c(TraceRun& tracer, const char* method, const V& a, const V& b) {
  PyTypeObject* left = c_type(tracer, a);
  PyTypeObject* right = c_type(tracer, b);
  if (!left || is_asked_first(tracer, a, b)) return false;
  const std::string_view name = method;
  const bool of_sets = name == "__and__" || name == "__or__" || name == "__sub__" || name == "__xor__";
  if (auto* tuple = as<TupleValue>(a); tuple && tuple->view_of) return of_sets;
  if (is_any_of(left, {&PyUnicode_Type, &PyBytes_Type}) && name == "__mod__") return true;
  if (is_any_of(left, {&PySet_Type, &PyFrozenSet_Type}))
    return of_sets && is_any_of(right, {&PySet_Type, &PyFrozenSet_Type});
  if (left == &PyDict_Type)
    return name == "__or__" &&
           is_any_of(right, {&PyDict_Type, &PyODict_Type, reinterpret_cast<PyTypeObject*>(defaultdict_type())});
  if (!takes_number(left, right)) return false;
  Ref<> text = Ref<>::steal(PyUnicode_InternFromString(method));
  return fj_type_lookup(left, text.get()) != nullptr;  // complex has no %
}

/// The same of comparisons.
bool compared_by_c(TraceRun& tracer, const V& a, const V& b) {
  PyTypeObject* left = c_type(tracer, a);
  PyTypeObject* right = c_type(tracer, b);
  if (!left || !right || is_asked_first(tracer, a, b)) return false;
  if (is_any_of(left, {&PySet_Type, &PyFrozenSet_Type})) return is_any_of(right, {&PySet_Type, &PyFrozenSet_Type});
  auto* defaultdict = reinterpret_cast<PyTypeObject*>(defaultdict_type());
  if (is_any_of(left, {&PyDict_Type, &PyODict_Type, defaultdict}))
    return is_any_of(right, {&PyDict_Type, &PyODict_Type, defaultdict});
  if (is_any_of(left, {&PyList_Type, &PyTuple_Type, &PyUnicode_Type, &PyBytes_Type})) return left == right;
  return takes_number(left, right);
}

/// A class of NumPy's; null: it is not imported.
PyTypeObject* numpy_type(const char* name) {
  PyObject* type = numpy_module() ? PyObject_GetAttrString(numpy_module(), name) : nullptr;
  if (!type) PyErr_Clear();
  return reinterpret_cast<PyTypeObject*>(type);  // for good
}

bool is_derived_from_ndarray(PyTypeObject* type) {
  static PyTypeObject* found = nullptr;
  PyTypeObject* const ndarray = found ? found : found = numpy_type("ndarray");
  return ndarray && PyType_IsSubtype(type, ndarray);
}

}  // namespace

/// A number of a derived class beside an array or a scalar of NumPy's, which takes it for one of its own dtypes and
/// asks none of the class's methods. asked, reflected: those that Python would ask, of the left and of the right one.
static bool is_derived_number_beside_numpy(TraceRun& t, const V& a, const V& b, const char* asked,
                                           const char* reflected) {
  static PyTypeObject* found = nullptr;
  PyTypeObject* const generic = found ? found : found = numpy_type("generic");
  const auto of_numpy = [&](const V& value) {
    if (auto* array = as<ArrayValue>(value)) return array->library == Library::Numpy;
    const bool is_class = value->kind == ValueKind::Object || value->kind == ValueKind::Instance;
    return is_class && generic && PyType_IsSubtype(t.type_of(value), generic);
  };
  const auto is_derived = [&](const V& value, const char* method) {
    auto* instance = as<InstanceValue>(value);
    if (instance ? !instance->contents : value->kind != ValueKind::Object) return false;
    PyTypeObject* type = t.type_of(value);
    for (PyTypeObject* base : {&PyFloat_Type, &PyLong_Type, &PyComplex_Type, generic})
      if (base && type != base && PyType_IsSubtype(type, base))
        return instance != nullptr || python_method(t, value, method);
    return false;
  };
  return (of_numpy(a) && is_derived(b, reflected)) || (of_numpy(b) && is_derived(a, asked));
}

std::optional<V> try_operator(TraceRun& t, const BinaryMethods& row, bool in_place, const V& a, const V& b) {
  if (is_derived_number_beside_numpy(t, a, b, row.method, row.reflected))
    break_graph(BreakReason::UnsupportedObject, "an operation of " + describe(a) + " and " + describe(b));
  auto attempt = [&](const V& self, const V& other, const char* name) -> V {
    V method = python_method(t, self, name);
    if (!method) return nullptr;
    V answer = t.call(method, {other}, {});
    auto* object = as<ObjectValue>(answer);
    return object && object->object.get() == Py_NotImplemented ? nullptr : answer;
  };
  if (in_place) {
    if (V answer = attempt(a, b, ("__i" + std::string(row.method + 2)).c_str())) return answer;
    if (taken_in_place(t, row.method, a, b)) return std::nullopt;
  }
  const bool left_is_class = a->kind == ValueKind::Object || a->kind == ValueKind::Instance;
  const bool right_is_class = b->kind == ValueKind::Object || b->kind == ValueKind::Instance;
  PyTypeObject* left = left_is_class ? t.type_of(a) : nullptr;
  PyTypeObject* right = right_is_class ? t.type_of(b) : nullptr;
  bool reflected = right && left != right;
  // A subclass that overrides the reflected method is asked first.
  Ref<> name = Ref<>::steal(PyUnicode_InternFromString(row.reflected));
  if (left && reflected && PyType_IsSubtype(right, left) &&
      class_attribute(t, right, name.get()) != class_attribute(t, left, name.get())) {
    if (V answer = attempt(b, a, row.reflected)) return answer;
    reflected = false;
  }
  if (V answer = attempt(a, b, row.method)) return answer;
  // A class of ndarray's takes any object, each for an element of its own array.
  if (reflected && a->kind == ValueKind::Object && is_derived_from_ndarray(left) && !python_method(t, a, row.method))
    break_graph(BreakReason::UnsupportedArray, "an operation of " + describe(a) + " and " + describe(b));
  if (reflected && (python_method(t, a, row.method) || !taken_by_c(t, row.method, a, b)))
    if (V answer = attempt(b, a, row.reflected)) return answer;
  return std::nullopt;
}

namespace {

/// dict.__or__ where an operand is of a derived class: a copy of the left one, updated with the right one. Null: other
/// operands.
V joined_dicts(TraceRun& tracer, const V& a, const V& b) {
  auto is_class = [](const V& value) { return value->kind == ValueKind::Object || value->kind == ValueKind::Instance; };
  if (!is_class(a) && !is_class(b)) return nullptr;
  for (const V& value : {a, b}) {
    auto* dict = as<DictValue>(value->kind == ValueKind::Dict ? value : builtin_part(tracer, value));
    if (!dict || dict->type) return nullptr;
  }
  V joined = dict_copy(tracer, a);
  dict_update(tracer, joined, {b}, {});
  return joined;
}

}  // namespace

V TraceRun::binary(int op, const V& a, const V& b) {
  const BinaryRow& row = binary_row(op);
  const bool in_place = op >= NB_INPLACE_ADD;
  if (is_unwrapped_array(a) || is_unwrapped_array(b))
    break_graph(BreakReason::UnsupportedArray,
                why_not_compiled(*this, as<ObjectValue>(is_unwrapped_array(a) ? a : b)->object.get()));
  if (is_identity_number(a) || is_identity_number(b))
    break_graph(BreakReason::UnsupportedObject, "calculates with the id() of an object");
  const BinaryMethods methods{row.method, row.reflected};
  if (V scalar = meets_numpy(b) ? changing_scalar(a) : nullptr) return binary(op, scalar, b);
  if (V scalar = meets_numpy(a) ? changing_scalar(b) : nullptr) return binary(op, a, scalar);
  if (is_array(a) || is_array(b)) {
    // The object on the left is asked first; what NumPy makes of one on the right is its own affair.
    if (is_array(b))
      if (auto answer = try_operator(*this, methods, in_place, a, b)) return *answer;
    return array_binary(*this, op, is_array(a) ? a : array_operand(*this, a, b),
                        is_array(b) ? b : array_operand(*this, b, a));
  }
  if (auto computed = computed_binary(*this, op, a, b)) return *computed;
  if (auto symbolic = symbolic_binary(*this, op, a, b)) return *symbolic;
  if (V result = result_of_operator(*this, row.method, {a, b})) return result;
  if (auto answer = try_operator(*this, methods, in_place, a, b)) return *answer;
  return builtin_binary(*this, op, a, b);
}

/// `int | None`, `list[int] | str`. Null: an operand is no type, or of a class that has a `|` of its own.
static V joined_types(TraceRun& t, const V& a, const V& b) {
  if (a->kind != ValueKind::Object || b->kind != ValueKind::Object) return nullptr;
  const auto is_type = [](PyObject* x) {
    if (!x || x == Py_None) return x != nullptr;
    if (!PyType_Check(x))
      return Py_TYPE(x) == &Py_GenericAliasType || is_union(x);
    // The class of a class may be another one than type, as that of torch.Tensor is.
    const PyNumberMethods* methods = Py_TYPE(x)->tp_as_number;
    return methods && methods->nb_or == PyType_Type.tp_as_number->nb_or;
  };
  PyObject *left = type_expression(t, a), *right = type_expression(t, b);
  if (!is_type(left) || !is_type(right) || (left == Py_None && right == Py_None)) return nullptr;
  Ref<> result = Ref<>::steal(PyNumber_Or(left, right));
  if (!result) raise_python_error(t);
  return wrap_constant(t, t.keep(result).get());
}

V builtin_binary(TraceRun& t, int op, const V& a, const V& b) {
  const BinaryRow& row = binary_row(op);
  const bool in_place = op >= NB_INPLACE_ADD;
  if (row.op == NB_OR && !in_place)
    if (V joined = joined_dicts(t, a, b)) return joined;
  if (V part = builtin_part(t, a)) {
    // OrderedDict and defaultdict make another object of the class by calling it.
    if (auto* dict = as<DictValue>(part); dict && dict->type && (!in_place || t.type_of(part) == &PyODict_Type))
      break_graph(BreakReason::UnsupportedObject, "operator on " + describe(a));
    V result = on_part_of(a, [&] { return builtin_binary(t, op, part, b); });
    return result == part && part->kind != ValueKind::Tuple ? a : result;
  }
  if (row.op == NB_REMAINDER)
    if (V text = format_percent(t, a, b)) return text;
  // C code takes the part that a derived class is, but for what asks for items: list += and dict |=.
  const bool asks =
      in_place && ((row.op == NB_ADD && a->kind == ValueKind::List) || (row.op == NB_OR && a->kind == ValueKind::Dict));
  if (V part = asks ? nullptr : builtin_part(t, b)) {
    if (auto* tuple = as<TupleValue>(a); tuple && tuple->view_of)
      break_graph(BreakReason::UnsupportedObject, "a view of a dict with " + describe(b));
    return on_part_of(b, [&] { return builtin_binary(t, op, a, part); });
  }
  if (auto* list = as<ListValue>(a)) {
    auto* other = as<ListValue>(b);
    if (row.op == NB_ADD && ((other && other->type.get() == list->type.get()) || in_place)) {
      V result = a;
      if (!in_place) {
        auto fresh = std::make_shared<ListValue>();
        fresh->items = list->items;
        fresh->type = list->type;
        fresh->longest = list->longest;
        result = fresh;
      }
      std::vector<V> given{b};
      Keywords no_keywords;
      container_method(t, result, "extend", given, no_keywords);
      return result;
    }
    if (row.op == NB_ADD && !list->type && b->kind != ValueKind::Instance)
      raise(t, PyExc_TypeError,
            {t.string("can only concatenate list (not \"" + std::string(t.type_of(b)->tp_name) + "\") to list")},
            BreakReason::ErrorWhileTracing, "operator on " + describe(a) + " and " + describe(b));
  }
  if (auto* tuple = as<TupleValue>(a);
      tuple && !tuple->view_of && row.op == NB_ADD && b->kind == ValueKind::Tuple && !as<TupleValue>(b)->view_of) {
    auto* other = as<TupleValue>(b);
    const bool size_on_the_right = other->type && !std::strcmp(t.type_of(b)->tp_name, "torch.Size") && !tuple->type;
    // torch.Size.__radd__, where this torch has it, wants integers.
    static PyObject* const reflected = PyUnicode_InternFromString("__radd__");
    const bool joins = size_on_the_right && fj_type_lookup(t.type_of(b), reflected) &&
                       std::all_of(tuple->items.begin(), tuple->items.end(), [&](const V& item) {
                         auto* object = as<ObjectValue>(item);
                         return item->kind == ValueKind::SymInt || (object && PyLong_CheckExact(object->object.get()));
                       });
    if (!size_on_the_right || joins) {
      if (tuple->items.empty() && !tuple->type && !other->type) return b;
      if (other->items.empty() && !tuple->type) return a;
      auto joined = std::make_shared<TupleValue>();
      joined->items = tuple->items;
      joined->items.insert(joined->items.end(), other->items.begin(), other->items.end());
      if (tuple->type && !std::strcmp(reinterpret_cast<PyTypeObject*>(tuple->type.get())->tp_name, "torch.Size"))
        joined->type = tuple->type;
      if (joins) joined->type = other->type;
      return joined;
    }
  }
  if (row.op == NB_OR || row.op == NB_AND || row.op == NB_SUBTRACT || row.op == NB_XOR) {
    const bool both_dicts = a->kind == ValueKind::Dict && b->kind == ValueKind::Dict;
    V result = both_dicts ? nullptr : set_operator(t, row.op, a, b);
    if (result) {
      auto* set = as<SetValue>(a);
      if (!in_place || !set || set->frozen) return result;
      constexpr std::pair<int, const char*> kInPlace[] = {{NB_OR, "update"},
                                                          {NB_AND, "intersection_update"},
                                                          {NB_SUBTRACT, "difference_update"},
                                                          {NB_XOR, "symmetric_difference_update"}};
      for (auto [number, name] : kInPlace)
        if (number == row.op) {
          std::vector<V> given{b};
          set_method(t, a, name, given);
        }
      return a;
    }
  }
  if (row.op == NB_MULTIPLY && in_place && a->kind == ValueKind::List && !as<ListValue>(a)->type) {
    V repeated = builtin_binary(t, NB_MULTIPLY, a, b);
    note_items(t, a);
    as<ListValue>(a)->items = as<ListValue>(repeated)->items;
    return a;
  }
  if (row.op == NB_MULTIPLY && !in_place) {
    const V& sequence = a->kind == ValueKind::List || a->kind == ValueKind::Tuple ? a : b;
    const V number = index_number(t, &sequence == &a ? b : a);
    auto* list = as<ListValue>(sequence);
    auto* tuple = as<TupleValue>(sequence);
    if ((list && !list->type) ||
        (tuple && !tuple->view_of && (!tuple->type || std::strcmp(t.type_of(sequence)->tp_name, "torch.Size")))) {
      if (auto count = t.constant_int(number); count && *count < 10000) {
        if (tuple && !tuple->type && (*count == 1 || tuple->items.empty())) return sequence;
        std::vector<V> items = t.sequence_items(sequence), repeated;
        for (std::int64_t i = 0; i < *count; ++i) repeated.insert(repeated.end(), items.begin(), items.end());
        return list ? Tracer::list(repeated) : Tracer::tuple(repeated);
      }
    }
  }
  if (row.op == NB_MULTIPLY && in_place && a->kind == ValueKind::Tuple) return builtin_binary(t, NB_MULTIPLY, a, b);
  if (auto* left = as<DictValue>(a); left && row.op == NB_OR) {
    if (in_place) {
      dict_update(t, a, {b}, {});
      return a;
    }
    if (b->kind == ValueKind::Dict && left->type.get() == as<DictValue>(b)->type.get()) {
      auto joined = std::make_shared<DictValue>();
      joined->type = left->type;
      joined->default_factory = left->default_factory;
      for (const V& part : {a, b}) dict_update(t, joined, {part}, {});
      return joined;
    }
  }
  if (row.op == NB_REMAINDER && !in_place)
    if (V text = format_percent(t, a, b)) return text;
  PyObject* left = t.constant_object(a);
  PyObject* right = t.constant_object(b);
  if (row.op == NB_OR)
    if (V joined = joined_types(t, a, b)) return joined;
  auto bare = [](const V& value) { return value->kind == ValueKind::Instance && !as<InstanceValue>(value)->contents; };
  if (bare(a) && bare(b) && !in_place && row.op != NB_POWER) {
    constexpr std::pair<int, const char*> kSigns[] = {{NB_ADD, "+"},
                                                      {NB_AND, "&"},
                                                      {NB_FLOOR_DIVIDE, "//"},
                                                      {NB_LSHIFT, "<<"},
                                                      {NB_MATRIX_MULTIPLY, "@"},
                                                      {NB_MULTIPLY, "*"},
                                                      {NB_REMAINDER, "%"},
                                                      {NB_OR, "|"},
                                                      {NB_RSHIFT, ">>"},
                                                      {NB_SUBTRACT, "-"},
                                                      {NB_TRUE_DIVIDE, "/"},
                                                      {NB_XOR, "^"}};
    for (auto [known, sign] : kSigns)
      if (known == row.op)
        raise(t, PyExc_TypeError,
              {t.string(std::string("unsupported operand type(s) for ") + sign + ": '" + t.type_of(a)->tp_name +
                        "' and '" + t.type_of(b)->tp_name + "'")},
              BreakReason::ErrorWhileTracing, "operator on " + describe(a) + " and " + describe(b));
  }
  if (is_foldable(left) && is_foldable(right) && !is_large(row.op, left, right)) {
    Ref<> result = Ref<>::steal(row.function(left, right));
    if (!result && in_place) break_graph(BreakReason::ErrorWhileTracing, take_error());  // it would speak of +=
    if (!result) raise_python_error(t);
    return wrap_constant(t, t.keep(result).get());
  }
  if (is_scalar_arithmetic(left, right)) return fold_scalars(t, [&] { return row.function(left, right); });
  break_graph(BreakReason::UnsupportedObject, "operator on " + describe(a) + " and " + describe(b));
}

V operator_method(TraceRun& t, const std::string& name, const V& owner, const V& other) {
  for (const BinaryRow& row : kBinary) {
    if (name == row.method) return t.binary(row.op, owner, other);
    if (name == row.reflected) return t.binary(row.op, other, owner);
    if (name == "__i" + std::string(row.method + 2)) return t.binary(row.op + NB_INPLACE_ADD, owner, other);
  }
  for (int comparison = 0; comparison < 6; ++comparison)
    if (name == kComparisonMethod[comparison]) return t.compare(comparison, owner, other);
  return nullptr;
}

bool operator_method_known(const std::string& name) {
  for (const BinaryRow& row : kBinary)
    if (name == row.method || name == row.reflected) return true;
  return std::find(std::begin(kComparisonMethod), std::end(kComparisonMethod), name) != std::end(kComparisonMethod) ||
         name == "__divmod__" || name == "__rdivmod__";
}

V unary(TraceRun& t, int opcode, const V& a) {
  if (V scalar = t.changing_scalar(a)) return unary(t, opcode, scalar);
  if (is_array(a)) return array_unary(t, opcode, a);
  if (opcode == FJ_UNARY_INVERT && fj_bool_invert_warns() && t.type_of(a) == &PyBool_Type)
    break_graph(BreakReason::Warning, "`~` of a bool");
  if (auto computed = computed_unary(t, opcode, a)) return *computed;
  if (auto* symbolic = as<SymIntValue>(a)) {
    if (opcode == FJ_UNARY_POSITIVE) return a;
    const auto result = exact(t, NB_SUBTRACT, SymDim(opcode == FJ_UNARY_NEGATIVE ? 0 : -1), symbolic->expression);
    return result ? t.integer(*result) : unary(t, opcode, t.integer(*t.constant_int(a)));
  }
  const char* name = opcode == FJ_UNARY_NEGATIVE ? "__neg__" : opcode == FJ_UNARY_POSITIVE ? "__pos__" : "__invert__";
  if (V method = python_method(t, a, name)) return t.call(method, {}, {});
  if (V part = builtin_part(t, a)) return on_part_of(a, [&] { return unary(t, opcode, part); });
  PyObject* object = t.constant_object(a);
  const NumberOperation function = opcode == FJ_UNARY_NEGATIVE   ? PyNumber_Negative
                                   : opcode == FJ_UNARY_POSITIVE ? PyNumber_Positive
                                                                 : PyNumber_Invert;
  if (object && numpy_scalar_dtype(object)) return fold_scalars(t, [&] { return function(object); });
  if (!object || !is_foldable(object)) break_graph(BreakReason::UnsupportedObject, "operator on " + describe(a));
  Ref<> result = Ref<>::steal(function(object));
  if (!result) raise_python_error(t);
  return wrap_constant(t, t.keep(result).get());
}

V scalar_abs(TraceRun& t, const V& value) {
  auto* held = as<ObjectValue>(value);
  if (!held || !numpy_scalar_dtype(held->object.get())) return nullptr;
  if (V scalar = t.changing_scalar(value)) return array_method(t, scalar, "__abs__", {});
  PyObject* object = t.constant_object(value);
  return fold_scalars(t, [&] { return PyNumber_Absolute(object); });
}

/// What the classes of a and b say in Python; nothing: they leave it to C code.
std::optional<V> try_comparison(TraceRun& t, int comparison, const V& a, const V& b) {
  if (is_derived_number_beside_numpy(t, a, b, kComparisonMethod[comparison], kComparisonMethod[kReflected[comparison]]))
    break_graph(BreakReason::UnsupportedObject, "a comparison of " + describe(a) + " and " + describe(b));
  auto attempt = [&](const V& self, const V& other, int asked) -> std::optional<V> {
    V method = python_method(t, self, kComparisonMethod[asked]);
    bool inverted = false;
    if (!method && asked == Py_NE && (self->kind == ValueKind::Object || self->kind == ValueKind::Instance)) {
      // object.__ne__ asks __eq__.
      static PyObject* const name = PyUnicode_InternFromString("__ne__");
      PyTypeObject* type = t.type_of(self);
      if (class_attribute(t, type, name) == fj_type_lookup(&PyBaseObject_Type, name))
        method = python_method(t, self, "__eq__");
      inverted = method != nullptr;
    }
    if (!method) return std::nullopt;
    V answer = t.call(method, {other}, {});
    auto* object = as<ObjectValue>(answer);
    if (object && object->object.get() == Py_NotImplemented) return std::nullopt;
    return inverted ? negated(t, answer) : answer;
  };
  const bool classes = (a->kind == ValueKind::Object || a->kind == ValueKind::Instance) &&
                       (b->kind == ValueKind::Object || b->kind == ValueKind::Instance);
  const bool right_first = classes && t.type_of(a) != t.type_of(b) && PyType_IsSubtype(t.type_of(b), t.type_of(a));
  if (right_first)
    if (auto answer = attempt(b, a, kReflected[comparison])) return answer;
  if (auto answer = attempt(a, b, comparison)) return answer;
  if (right_first || (!python_method(t, a, kComparisonMethod[comparison]) && compared_by_c(t, a, b)))
    return std::nullopt;
  return attempt(b, a, kReflected[comparison]);
}

V TraceRun::compare(int comparison, const V& a, const V& b) {
  const Nesting nesting;
  if (is_unwrapped_array(a) || is_unwrapped_array(b))
    break_graph(BreakReason::UnsupportedArray,
                why_not_compiled(*this, as<ObjectValue>(is_unwrapped_array(a) ? a : b)->object.get()));
  const bool equality = comparison == Py_EQ || comparison == Py_NE;
  if (is_identity_number(a) || is_identity_number(b)) {
    if (!equality || !is_identity_number(a) || !is_identity_number(b))
      break_graph(BreakReason::UnsupportedObject,
                  "compares the id() of an object with " + describe(is_identity_number(a) ? b : a));
    return boolean((a == b) == (comparison == Py_EQ));
  }
  if (V scalar = meets_numpy(b) ? changing_scalar(a) : nullptr) return compare(comparison, scalar, b);
  if (V scalar = meets_numpy(a) ? changing_scalar(b) : nullptr) return compare(comparison, a, scalar);
  if (is_array(a) || is_array(b)) {
    if (a->kind == ValueKind::Instance || (a->kind == ValueKind::Object && as<ObjectValue>(a)->source))
      if (V method = python_method(*this, a, kComparisonMethod[comparison])) {
        V answer = call(method, {b}, {});
        auto* object = as<ObjectValue>(answer);
        if (!object || object->object.get() != Py_NotImplemented) return answer;
      }
    return array_compare(*this, comparison, is_array(a) ? a : array_operand(*this, a, b),
                         is_array(b) ? b : array_operand(*this, b, a));
  }
  if (a->kind == ValueKind::SymInt || b->kind == ValueKind::SymInt) {
    auto left = int_expression(a), right = int_expression(b);
    if (left && right) return boolean(decide(*left, comparison, *right));
    if (V result = result_of_comparison(*this, comparison, a, b)) return result;
    auto settle = [&](const V& value) {
      return value->kind == ValueKind::SymInt ? integer(*constant_int(value)) : value;
    };
    return compare(comparison, settle(a), settle(b));
  }
  if (V result = result_of_comparison(*this, comparison, a, b)) return result;
  if (auto computed = computed_compare(*this, comparison, a, b)) return *computed;
  if (equality && strings_differ(*this, a, b)) return boolean(comparison == Py_NE);
  if (auto answer = try_comparison(*this, comparison, a, b)) return *answer;
  return builtin_compare(*this, comparison, a, b);
}

V builtin_compare(TraceRun& t, int comparison, const V& a, const V& b) {
  const bool equality = comparison == Py_EQ || comparison == Py_NE;
  if (V answer = set_comparison(t, comparison, a, b)) return answer;
  auto* left_tuple = as<TupleValue>(a);
  auto* right_tuple = as<TupleValue>(b);
  const bool both_tuples = left_tuple && right_tuple && !left_tuple->view_of && !right_tuple->view_of;
  const bool both_lists = a->kind == ValueKind::List && b->kind == ValueKind::List &&
                          as<ListValue>(a)->type.get() == as<ListValue>(b)->type.get();
  if (both_tuples || both_lists) {
    std::vector<V> left = t.sequence_items(a), right = t.sequence_items(b);
    const Tracer::Mark before = t.mark();
    if (equality && left.size() != right.size() && both_lists) return t.boolean(comparison == Py_NE);
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      // As CPython: identity first, then ==; the first difference decides the order.
      const bool same = same_or_equal(t, left[i], right[i]);
      if (both_lists && (t.written_since(a.get(), before) || t.written_since(b.get(), before)))
        break_graph(BreakReason::UnsupportedObject, "a list that its elements' __eq__ changes");
      if (same) continue;
      if (equality) return t.boolean(comparison == Py_NE);
      return t.compare(comparison, left[i], right[i]);
    }
    return t.boolean(compare_numbers(std::int64_t(left.size()), comparison, std::int64_t(right.size())));
  }
  if (a->kind == ValueKind::Dict && b->kind == ValueKind::Dict && equality) {
    auto &left = *as<DictValue>(a), &right = *as<DictValue>(b);
    open(t, left);
    open(t, right);
    bool same = left.items.size() == right.items.size();
    const Tracer::Mark before = t.mark();
    for (std::size_t i = 0; same && i < left.items.size(); ++i) {
      auto [key, value] = left.items[i];
      V other = dict_find(t, right, key.get());
      same = other && same_or_equal(t, value, other);
      if (t.written_since(&left, before) || t.written_since(&right, before))
        break_graph(BreakReason::UnsupportedObject, "a dict that an __eq__ changes");
    }
    const auto ordered = [](const DictValue& dict) {
      return dict.type.get() == reinterpret_cast<PyObject*>(&PyODict_Type);
    };
    if (same && ordered(left) && ordered(right))
      for (std::size_t i = 0; same && i < left.items.size(); ++i)
        same = same_key(left.items[i].first.get(), right.items[i].first.get());
    return t.boolean(same == (comparison == Py_EQ));
  }
  if (a->kind == ValueKind::Range && b->kind == ValueKind::Range && equality) {
    // By the numbers in them.
    std::vector<V> left = t.sequence_items(a), right = t.sequence_items(b);
    return t.boolean(t.truth(t.compare(Py_EQ, t.tuple(left), t.tuple(right))) == (comparison == Py_EQ));
  }
  if (a->kind == ValueKind::Slice && b->kind == ValueKind::Slice) {
    auto parts = [&](const V& value) {
      auto& slice = *as<SliceValue>(value);
      return t.tuple({slice.start, slice.stop, slice.step});
    };
    return t.compare(comparison, parts(a), parts(b));
  }
  V left_part = builtin_part(t, a), right_part = builtin_part(t, b);
  if (left_part || right_part)
    return on_part_of(left_part ? a : b, [&] {
      return builtin_compare(t, comparison, left_part ? left_part : a, right_part ? right_part : b);
    });
  auto is_function = [](const V& value) {
    return value->kind == ValueKind::Object && PyFunction_Check(as<ObjectValue>(value)->object.get());
  };
  if (equality && is_function(a) && is_function(b)) return t.boolean(same_object(t, a, b) == (comparison == Py_EQ));
  PyObject* left = t.constant_object(a);
  PyObject* right = t.constant_object(b);
  if (left && right) {
    // A Python number may not fit the scalar's type, of which NumPy warns.
    if (is_scalar_arithmetic(left, right))
      return fold_scalars(t, [&] { return PyObject_RichCompare(left, right, comparison); });
    Ref<> result = Ref<>::steal(PyObject_RichCompare(left, right, comparison));
    if (!result) raise_python_error(t);
    return wrap_constant(t, t.keep(result).get());
  }
  // Types of C code whose == knows only their own kind: different kinds are unequal, and have no order.
  auto builtin = [](const V& value) {
    if (auto* object = as<ObjectValue>(value)) return is_plain(object->object.get());
    return value->kind == ValueKind::Tuple || value->kind == ValueKind::List || value->kind == ValueKind::Dict ||
           value->kind == ValueKind::Set || value->kind == ValueKind::Range || value->kind == ValueKind::Slice;
  };
  auto by_identity = [&](const V& value) {
    if (value->kind == ValueKind::Function) return true;
    if (value->kind != ValueKind::Object && value->kind != ValueKind::Instance) return false;
    PyTypeObject* type = t.type_of(value);
    static PyObject* const name = PyUnicode_InternFromString("__eq__");
    return class_attribute(t, type, name) == fj_type_lookup(&PyBaseObject_Type, name) ||
           python_method(t, value, "__eq__");
  };
  if (equality && a->kind != b->kind && builtin(a) && builtin(b)) return t.boolean(comparison == Py_NE);
  if (equality && (builtin(a) || by_identity(a)) && (builtin(b) || by_identity(b)) &&
      (by_identity(a) || by_identity(b)))
    return t.boolean(same_object(t, a, b) == (comparison == Py_EQ));
  if (!equality && builtin(a) && builtin(b) && a->kind != b->kind) {
    constexpr const char* kSigns[] = {"<", "<=", "==", "!=", ">", ">="};
    raise(t, PyExc_TypeError,
          {t.string(std::string("'") + kSigns[comparison] + "' not supported between instances of '" +
                    t.type_of(a)->tp_name + "' and '" + t.type_of(b)->tp_name + "'")},
          BreakReason::ErrorWhileTracing, "compares " + describe(a) + " with " + describe(b));
  }
  break_graph(BreakReason::UnsupportedObject, "compares " + describe(a) + " with " + describe(b));
}

}  // namespace fj
