/// Python's `random` as nodes of the graph: methods of random.Random that give a number, and the functions of the
/// module, which are methods of one such object.
///
/// As NumPy's (numpy_random.cpp): the method runs on the user's own generator, in program order, its state is put back
/// if the program fails, and what it gives is a Python number that the program computes. Whatever gives something else
/// (a shuffled list, an object of a sequence) is a break, as is a branch on a number.
#include "tracer/modes/python_random.h"

#include <cstring>
#include <unordered_map>

#include "runtime/base/error.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/modes/numpy_random.h"
#include "tracer/state/transform_ledger.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/numbers/computed_numbers.h"
#include "tracer/values/outside_objects.h"

namespace fj {
namespace {

enum class Drawn { Float, Int, Chosen, Other };

struct Method {
  const char* name;
  Drawn drawn;
  PyObject* function;                          // as the class has it
};

/// What the methods call of the object.
constexpr const char* kCalled[] = {"random",        "getrandbits",  "_randbelow",     "randrange",
                                   "normalvariate", "gammavariate", "binomialvariate"};

struct RandomClass {
  PyTypeObject* type = nullptr;                // random.Random
  std::unordered_map<PyObject*, Method> methods;
  std::unordered_map<std::string, PyObject*> called;
};

/// Null: nobody has imported the module.
const RandomClass* known_methods() {
  static RandomClass* known = nullptr;
  if (known) return known;
  PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), "random");
  Ref<> type = module ? Ref<>::steal(PyObject_GetAttrString(module, "Random")) : Ref<>();
  PyErr_Clear();
  if (!type || !PyType_Check(type.get())) return nullptr;
  struct Row {
    const char* name;
    Drawn drawn;
  };
  constexpr Row rows[] = {
#define FJ_PYTHON_RANDOM(name, drawn) {name, Drawn::drawn},
#include "tracer/modes/python_random.def"
  };
  auto* made = new RandomClass{reinterpret_cast<PyTypeObject*>(Ref<>(type).release()), {}, {}};
  auto own = [&](const char* name) {
    PyObject* found = PyObject_GetAttrString(type.get(), name);  // held for ever, as its class is
    if (!found) PyErr_Clear();
    return found && (PyFunction_Check(found) || Py_TYPE(found) == &PyMethodDescr_Type) ? found : nullptr;
  };
  for (const Row& row : rows)
    if (PyObject* found = own(row.name)) made->methods.emplace(found, Method{row.name, row.drawn, found});
  for (const char* name : kCalled) made->called.emplace(name, own(name));
  return known = made;
}

[[noreturn]] void give_up(const std::string& what) { break_graph(BreakReason::RandomState, what); }

/// Sums and differences of such have 63 bits.
bool is_short_int(PyObject* object) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
  return !overflow && number >= -(1LL << 61) && number <= (1LL << 61);
}

}  // namespace

bool is_python_random_method(PyObject* callable) {
  if (!PyFunction_Check(callable) && Py_TYPE(callable) != &PyMethodDescr_Type) return false;
  const RandomClass* known = known_methods();
  return known && known->methods.count(callable);
}

PyObject* python_random_method(PyObject* object, std::string_view name) {
  const RandomClass* known = known_methods();
  if (!known || Py_TYPE(object) != known->type) return nullptr;
  for (auto& [function, method] : known->methods)
    if (name == method.name && Py_TYPE(function) == &PyMethodDescr_Type) return function;
  return nullptr;
}

V call_python_random(TraceRun& t, PyObject* callable, const std::vector<V>& positional, const Keywords& keywords) {
  const RandomClass& known = *known_methods();
  const Method& method = known.methods.at(callable);
  const std::string name = std::string("random.") + method.name;
  auto* generator = positional.empty() ? nullptr : as<ObjectValue>(positional[0]);
  if (!generator || t.type_of(positional[0]) != known.type) return nullptr;  // a derived one may draw in another way
  if (method.drawn == Drawn::Other) give_up(name + "()");
  if (t.transforms->depth > 0) break_graph(BreakReason::OneExample, name + "() draws once for all examples");
  if (!computes_numbers(t)) give_up(name + "() for a back end that gives no numbers back");
  if (!generator->source) generator->source = t.sources().constant(generator->object.get());
  // The method calls others of its object, and these are the class's own.
  PyObject* dict = fj_instance_dict(generator->object.get());
  SourceRef attributes = t.sources().make(SourceKind::InstanceDict, generator->source);
  for (const char* called : kCalled) {
    Ref<> text = t.keep(Ref<>::steal(PyUnicode_InternFromString(called)));
    if (class_attribute(t, known.type, text.get()) != known.called.at(called) ||
        (dict && PyDict_Contains(dict, text.get())))
      give_up(name + "() with another " + called + "()");
    if (dict) add_guard(t, GuardKind::LacksKey, attributes, text.get());
  }
  if (PyFunction_Check(callable))
    add_guard(t, GuardKind::FunctionCode, t.sources().constant(callable), PyFunction_GET_CODE(callable));

  ExternCall call = drawing_call(t, name, callable, *generator);
  bool floats = method.drawn == Drawn::Float;
  // The numbers to choose from, of one type; choosing from a tuple draws what choosing from any other sequence of its
  // length does.
  auto sequence = [&](const V& value) {
    if (value->kind != ValueKind::Tuple && value->kind != ValueKind::List && value->kind != ValueKind::Range)
      give_up(name + "() from " + describe(value));
    ExternArgument argument;
    argument.object = t.constant_object(t.tuple(t.sequence_items(value)));
    PyObject* items = argument.object.get();
    const Py_ssize_t count = items ? PyTuple_GET_SIZE(items) : 0;
    floats = count && PyFloat_CheckExact(PyTuple_GET_ITEM(items, 0));
    bool one_type = count > 0;
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject* item = PyTuple_GET_ITEM(items, i);
      one_type = one_type && (floats ? PyFloat_CheckExact(item) : PyLong_CheckExact(item) && is_short_int(item));
    }
    if (!one_type) give_up(name + "() of what are not all ints or all floats");
    return argument;
  };
  auto argument_of = [&](const V& given) {
    ExternArgument argument;
    if (method.drawn == Drawn::Chosen) return sequence(given);
    const V value = settled(t, given);
    if (auto* symbolic = as<SymIntValue>(value)) {
      argument.kind = ExternArgument::Kind::Size;
      argument.expression = symbolic->expression;
      return argument;
    }
    if (value->kind == ValueKind::Object && t.type_of(value) == &PyFloat_Type && t.float_input(value).valid()) {
      argument.kind = ExternArgument::Kind::Held;
      argument.index = t.externs->hold(value->source);
      return argument;
    }
    PyObject* object = t.constant_object(value);
    if (!object || !(PyLong_CheckExact(object) || PyFloat_CheckExact(object) || object == Py_None))
      give_up(name + "() of " + describe(value));
    if (PyLong_CheckExact(object) && !is_short_int(object)) give_up(name + "() of a large int");
    argument.object = Ref<>::borrow(object);
    return argument;
  };
  for (std::size_t i = 1; i < positional.size(); ++i) call.positional.push_back(argument_of(positional[i]));
  for (auto& [key, value] : keywords)
    call.keywords.emplace_back(Ref<>::steal(PyUnicode_InternFromString(key.c_str())), argument_of(value));
  if (!std::strcmp(method.name, "getrandbits")) {
    const std::optional<std::int64_t> bits = positional.size() == 2 ? t.constant_int(positional[1]) : std::nullopt;
    if (!bits || *bits > 62) give_up(name + "() of more than 62 bits");
  }

  const DType dtype = floats ? DType::F64 : DType::I64;
  call.structure.kind = ExternStructure::Kind::Number;
  call.structure.type = Ref<>::borrow(reinterpret_cast<PyObject*>(floats ? &PyFloat_Type : &PyLong_Type));
  return std::make_shared<NumberValue>(draw(t, std::move(call), dtype, {}), dtype);
}

}  // namespace fj
