/// Calls: the ways to treat a callable, and inlining Python functions with their arguments bound as CPython binds them.
/// Start at `TraceRun::call`. An object for which no library's table has a row goes through callables.def.
#include "tracer/interpreter/calls.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "runtime/base/error.h"
#include "segment/recipe.h"
#include "tracer/frontends/numpy/calls.h"
#include "tracer/gradients/given_derivative.h"
#include "tracer/gradients/graph_transforms.h"
#include "tracer/gradients/torch_transforms.h"
#include "tracer/interpreter/exceptions.h"
#include "tracer/interpreter/scopes.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/library_calls/call_recorder.h"
#include "tracer/library_calls/collectives.h"
#include "tracer/modes/modes.h"
#include "tracer/modes/numpy_random.h"
#include "tracer/modes/python_random.h"
#include "tracer/nesting.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/classes/classes.h"
#include "tracer/values/containers/containers.h"
#include "tracer/values/containers/dicts.h"
#include "tracer/values/generators.h"
#include "tracer/values/numbers/operators.h"
#include "tracer/values/outside_objects.h"
#include "tracer/values/standard_callables.h"

namespace fj {

static V make_torch_leaf(TraceRun& t, const V& callable, PyObject* object, const std::vector<V>& positional,
                         const Keywords& keywords);
static V call_object(TraceRun& t, const V& callable, PyObject* object, std::vector<V> positional, Keywords keywords);
static V call_numpy_implementation(TraceRun& t, const V& callable, PyObject* object, const std::vector<V>& positional,
                                   const Keywords& keywords);
static V call_without_row(TraceRun& t, const V& callable, PyObject* object, std::vector<V> positional,
                          Keywords keywords);
static V bound_to(TraceRun& t, ObjectValue& method);
static V call_module(TraceRun& t, const V& module, std::vector<V> positional, Keywords keywords);
static V inline_function(TraceRun& t, PyCodeObject* code, PyObject* globals, const std::vector<V>& defaults,
                  const std::vector<std::pair<std::string, V>>& kwdefaults, std::vector<V> closure, const char* name,
                  std::vector<V> positional, Keywords keywords);
static void guard_code(TraceRun& t, SourceRef source, PyFunctionObject* function);
static V inline_python_function(TraceRun& t, const V& function, PyFunctionObject* object, std::vector<V> positional,
                                Keywords keywords);
static V inline_made_function(TraceRun& t, FunctionValue& function, std::vector<V> positional, Keywords keywords);

namespace {

/// Of a function's __dict__; null: there is none.
PyObject* own_attribute(PyObject* callable, const char* name) {
  PyObject* dict = PyFunction_Check(callable) ? reinterpret_cast<PyFunctionObject*>(callable)->func_dict : nullptr;
  return dict ? PyDict_GetItemString(dict, name) : nullptr;
}

/// framejit.graph_break and framejit.is_compiling are Python functions with a mark.
std::string marker(PyObject* callable) {
  PyObject* mark = own_attribute(callable, "__framejit_marker__");
  return mark ? text_of(mark) : "";
}

PyObject* attribute_of(const char* module, const char* name) {
  PyObject* found = PyDict_GetItemString(PyImport_GetModuleDict(), module);
  if (!found) return nullptr;
  Ref<> result = Ref<>::steal(PyObject_GetAttrString(found, name));
  if (!result) PyErr_Clear();
  return result.get();  // the module keeps it alive
}

bool is_disabled(PyObject* callable) { return own_attribute(callable, "__framejit_disabled__") == Py_True; }

/// The function inside of one that torch.compile is told to leave alone (torch._dynamo.disable, and torch's own way of
/// saying so), which is traced in its place; null: another callable.
PyObject* left_alone_by_dynamo(PyObject* callable) {
  if (!PyFunction_Check(callable) || !torch_module()) return nullptr;
  auto* function = reinterpret_cast<PyFunctionObject*>(callable);
  if (!function->func_closure || !function->func_dict) return nullptr;
  static PyObject* const wrapped_name = PyUnicode_InternFromString("__wrapped__");
  const std::string file = text_of(reinterpret_cast<PyCodeObject*>(function->func_code)->co_filename);
  const std::string name = text_of(reinterpret_cast<PyCodeObject*>(function->func_code)->co_qualname);
  const std::string_view end = file;
  const bool known = (name == "_disable_dynamo.<locals>.inner" && end.ends_with("/torch/_compile.py")) ||
                     (name == "DisableContext.__call__.<locals>._fn" && end.ends_with("/torch/_dynamo/eval_frame.py"));
  PyObject* wrapped = known ? PyDict_GetItemWithError(function->func_dict, wrapped_name) : nullptr;
  return wrapped && PyFunction_Check(wrapped) ? wrapped : nullptr;
}

/// The Python code that is traced in the place of torch.utils.checkpoint.checkpoint; null: another callable.
PyObject* checkpoint_of_torch(PyObject* callable) {
  PyObject* wrapped = left_alone_by_dynamo(callable);
  if (!wrapped || text_of(reinterpret_cast<PyFunctionObject*>(wrapped)->func_qualname) != "checkpoint" ||
      attribute_of("torch.utils.checkpoint", "checkpoint") != callable)
    return nullptr;
  return once([] {
    Ref<> helpers = Ref<>::steal(PyImport_ImportModule("framejit._checkpoint"));
    PyObject* made = helpers ? PyObject_GetAttrString(helpers.get(), "of_torch") : nullptr;
    PyErr_Clear();
    return made;
  });
}

PyObject* module_call() {
  static PyObject* const name = PyUnicode_InternFromString("__call__");
  PyObject* module = torch_module() ? attribute_of("torch.nn", "Module") : nullptr;
  PyObject* found = module ? fj_type_lookup(reinterpret_cast<PyTypeObject*>(module), name) : nullptr;
  return found && PyFunction_Check(found) ? found : nullptr;
}

/// A partial's keywords overridden by those of the call, in the order of the dict CPython makes.
Keywords merged_keywords(const DictValue& partial, const Keywords& given) {
  Keywords known;
  for (auto& [name, item] : partial.items) {
    if (!PyUnicode_Check(name.get())) break_graph(BreakReason::ErrorWhileTracing, "keywords that are no strings");
    known.emplace_back(text_of(name.get()), item);
  }
  for (auto& [name, item] : given) {
    auto same = std::find_if(known.begin(), known.end(), [&](auto& old) { return old.first == name; });
    if (same != known.end()) same->second = item;
    else known.emplace_back(name, item);
  }
  return known;
}

bool holds_array(TraceRun& tracer, const V& value) {
  if (value->kind == ValueKind::Array) return true;
  if (value->kind != ValueKind::Tuple && value->kind != ValueKind::List) return false;
  const Nesting nesting;
  const std::vector<V> items = tracer.sequence_items(value);
  return std::any_of(items.begin(), items.end(), [&](const V& item) { return holds_array(tracer, item); });
}

/// A function or class of NumPy or torch.
bool is_of_library(PyObject* callable) {
  Ref<> module = Ref<>::steal(PyObject_GetAttrString(callable, "__module__"));
  if (!module) PyErr_Clear();
  const std::string text = module && PyUnicode_Check(module.get()) ? text_of(module.get()) : "";
  const std::string root = text.substr(0, text.find('.'));
  return root == "numpy" || root == "torch";
}

/// A value of a builtin type whose methods of C are known here.
bool is_builtin_value(PyObject* object) {
  return is_plain(object) || PyFrozenSet_CheckExact(object) || PyList_CheckExact(object) || PyDict_CheckExact(object) ||
         PySet_CheckExact(object) || PyTuple_CheckExact(object);
}

/// A function of NumPy that a graph may call (frontends/numpy/calls.h), as a node; null: another function, or not with
/// these arguments.
V call_numpy_library(TraceRun& tracer, const V& callable, const std::vector<V>& positional, const Keywords& keywords) {
  auto& value = *as<ObjectValue>(callable);
  const NumpyCall* known = find_numpy_call(value.object.get());
  if (!known) return nullptr;
  if (!guard_value(tracer, value) && value.source)
    add_guard(tracer, GuardKind::Identity, value.source, value.object.get());
  try {
    return tracer.extern_call(callable, positional, keywords);
  } catch (const BreakGraph& refused) {
    if (refused.reason != BreakReason::UnsupportedOperation || known->stacked) throw;
    return nullptr;
  }
}

/// The Python code in framejit/_support/standard.py for a function of C that acts on a list of items (or bisects a
/// tuple), where both do the same: the error about an empty heap has another text in Python, and -1 as an end another
/// meaning. Null: there is none.
PyObject* python_code_of(TraceRun& tracer, PyObject* callable, const std::vector<V>& positional,
                         const Keywords& keywords) {
  PyObject* const known = once([] {
    Ref<> helpers = Ref<>::steal(PyImport_ImportModule("framejit._support.standard"));
    PyObject* made = helpers ? PyObject_CallMethod(helpers.get(), "traced_instead", nullptr) : nullptr;
    PyErr_Clear();
    return made;
  });
  PyObject* found = known && PyCFunction_Check(callable) ? PyDict_GetItemWithError(known, callable) : nullptr;
  PyErr_Clear();
  if (!found || positional.empty() || positional.size() > 2) return nullptr;
  const std::string_view name = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
  const bool bisects = name.starts_with("bisect");
  if (std::any_of(keywords.begin(), keywords.end(), [](const auto& keyword) { return keyword.first != "key"; }))
    return nullptr;
  auto* list = as<ListValue>(positional[0]);
  if (list ? bool(list->type) : !bisects || positional[0]->kind != ValueKind::Tuple) return nullptr;
  if (list && tracer.sequence_items(positional[0]).empty() &&
      (name.find("heappop") != name.npos || name.find("heapreplace") != name.npos))
    return nullptr;
  return found;
}

std::string callable_name(const V& callable) {
  if (auto* object = as<ObjectValue>(callable)) {
    Ref<> name = Ref<>::steal(PyObject_GetAttrString(object->object.get(), "__qualname__"));
    if (!name) PyErr_Clear();
    if (name && PyUnicode_Check(name.get())) return text_of(name.get()) + "()";
  }
  return describe(callable);
}

}  // namespace

V make_partial(TraceRun& t, PyTypeObject* type, const std::vector<V>& positional, Keywords keywords) {
  V callable = t.call(wrap_constant(t, attribute_of("builtins", "callable")), {positional[0]}, {});
  if (!t.truth(callable)) break_graph(BreakReason::ErrorWhileTracing, "partial() of " + describe(positional[0]));
  auto partial = std::make_shared<PartialValue>();
  partial->type = Ref<PyTypeObject>::borrow(type);
  partial->function = positional[0];
  partial->positional.assign(positional.begin() + 1, positional.end());
  if (auto* inner = as<PartialValue>(positional[0])) {
    // A partial of a partial is one partial.
    partial->function = inner->function;
    partial->positional.insert(partial->positional.begin(), inner->positional.begin(), inner->positional.end());
    keywords = merged_keywords(*inner->keywords, keywords);
  }
  for (auto& [name, value] : keywords)
    partial->keywords->items.emplace_back(Ref<>::steal(PyUnicode_InternFromString(name.c_str())), value);
  return partial;
}

V TraceRun::call(const V& callable, std::vector<V> positional, Keywords keywords) {
  Ref<> function = request.record ? recorded_function(callable) : Ref<>();
  if (!function) return call_it(callable, std::move(positional), std::move(keywords));
  CallRecorder recorder(*this, std::move(function), callable, positional, keywords);
  V result = call_it(callable, std::move(positional), std::move(keywords));
  recorder.done(result);
  return result;
}

V TraceRun::call_it(const V& callable, std::vector<V> positional, Keywords keywords) {
  switch (callable->kind) {
    case ValueKind::Object:
      return call_object(*this, callable, as<ObjectValue>(callable)->object.get(), std::move(positional),
                         std::move(keywords));
    case ValueKind::BoundMethod: {
      auto& method = *as<BoundMethodValue>(callable);
      positional.insert(positional.begin(), method.self);
      return call(method.function, std::move(positional), std::move(keywords));
    }
    case ValueKind::Function:
      return inline_made_function(*this, *as<FunctionValue>(callable), std::move(positional), std::move(keywords));
    case ValueKind::Partial: {
      auto& partial = *as<PartialValue>(callable);
      positional.insert(positional.begin(), partial.positional.begin(), partial.positional.end());
      return call(partial.function, std::move(positional), merged_keywords(*partial.keywords, keywords));
    }
    case ValueKind::Builtin:
      return call_builtin_method(*this, *as<BuiltinValue>(callable), std::move(positional), std::move(keywords));
    case ValueKind::Instance:
      if (V method = python_method(*this, callable, "__call__"))
        return call(method, std::move(positional), std::move(keywords));
      [[fallthrough]];
    default:
      break_graph(BreakReason::UnknownCall, describe(callable));
  }
}

/// torch.zeros(2, requires_grad=True) and its like: the tensor, which becomes a leaf. Null: no such call.
V make_torch_leaf(TraceRun& t, const V& callable, PyObject* object, const std::vector<V>& positional,
                  const Keywords& keywords) {
  const auto option = std::find_if(keywords.begin(), keywords.end(),
                                   [](const auto& keyword) { return keyword.first == "requires_grad"; });
  if (option == keywords.end() || !PyCFunction_Check(object) || extern_use(object) == ExternUse::No) return nullptr;
  // The functions that have the option; others raise.
  static const std::set<std::string_view> factories{"arange",    "empty",     "empty_like", "eye",       "full",
                                                    "full_like", "linspace",  "logspace",   "ones",      "ones_like",
                                                    "rand",      "rand_like", "randint",    "randn",     "randn_like",
                                                    "randperm",  "tensor",    "zeros",      "zeros_like"};
  if (!factories.count(reinterpret_cast<PyCFunctionObject*>(object)->m_ml->ml_name)) return nullptr;
  PyObject* wanted = t.constant_object(option->second);
  if (!wanted || !PyBool_Check(wanted))
    break_graph(BreakReason::ErrorWhileTracing, "requires_grad=" + describe(option->second));
  Keywords rest = keywords;
  rest.erase(rest.begin() + (option - keywords.begin()));
  V made = call_object(t, callable, object, positional, std::move(rest));
  if (wanted == Py_True && !t.make_leaf(made))
    break_graph(BreakReason::Gradient, callable_name(callable) + " makes a leaf");
  return made;
}

V call_object(TraceRun& t, const V& callable, PyObject* object, std::vector<V> positional, Keywords keywords) {
  auto& value = *as<ObjectValue>(callable);
  if (V made = make_torch_leaf(t, callable, object, positional, keywords)) return made;
  // Rows of the libraries and of builtins.def, by identity.
  if (Handler handler = find_handler(object)) {
    if (!guard_value(t, value) && value.source) add_guard(t, GuardKind::Identity, value.source, object);
    const Tracer::Mark before = t.mark();
    try {
      return run_handler(t, handler, {positional, keywords}, object);
    } catch (const BreakGraph& refused) {
      if (t.written_since(before)) throw;
      if (!is_left_to_library(refused.reason) || !goes_on_without_row(object)) throw;
      try {
        return call_without_row(t, callable, object, positional, keywords);
      } catch (const BreakGraph& again) {
        if (again.reason != BreakReason::UnsupportedOperation && again.reason != BreakReason::UnknownCall) throw;
        t.break_location.reset();
      }
      throw;
    }
  }
  return call_without_row(t, callable, object, std::move(positional), std::move(keywords));
}

/// The object that a method of C is bound to. The method is a new object at each look, so it is known by its parts.
V bound_to(TraceRun& t, ObjectValue& method) {
  auto* function = reinterpret_cast<PyCFunctionObject*>(method.object.get());
  if (!method.source) return wrap_constant(t, function->m_self);
  guard_type(t, method);
  V owner = t.wrap(function->m_self, t.sources().make(SourceKind::MethodSelf, method.source));
  t.type_of(owner);
  Ref<> key = t.keep(Ref<>::steal(PyUnicode_InternFromString("__name__"))),
        name = t.keep(Ref<>::steal(PyUnicode_FromString(function->m_ml->ml_name)));
  t.constant_object(t.wrap(name.get(), t.sources().make(SourceKind::SlotMember, method.source, 0, key.get())));
  return owner;
}

/// Functions of math whose result the whole part of the argument decides.
constexpr const char* kRounding[] = {"floor", "ceil", "trunc"};

namespace {

/// A call of an object that no library's table has a row for.
struct RowlessCall {
  const V& callable;
  ObjectValue& value;
  PyObject* object;
  std::vector<V>& positional;
  Keywords& keywords;

  /// The name of the function or method of C; null: another kind of object.
  const char* c_name() const {
    return PyCFunction_Check(object) ? reinterpret_cast<PyCFunctionObject*>(object)->m_ml->ml_name : nullptr;
  }
  PyObject* c_self() const { return PyCFunction_Check(object) ? PyCFunction_GET_SELF(object) : nullptr; }
  std::string_view type_name() const { return Py_TYPE(object)->tp_name; }
  bool plain() const { return positional.empty() && keywords.empty(); }
  bool is_constant() const { return !value.source || value.source->kind == SourceKind::Constant; }
};

/// The value of a field of C that the callable has.
V field(TraceRun& t, const RowlessCall& call, const char* name) {
  Ref<> found = Ref<>::steal(PyObject_GetAttrString(call.object, name));
  guard_type(t, call.value);
  Ref<> text = t.keep(Ref<>::steal(PyUnicode_InternFromString(name)));
  const SourceRef owner = call.value.source ? call.value.source : t.sources().constant(call.object);
  return t.wrap(t.keep(found).get(), t.sources().make(SourceKind::SlotMember, owner, 0, text.get()));
}

/// Guards the callable, by identity where its value does not say which object it is.
void guard_callable(TraceRun& t, const RowlessCall& call) {
  if (!guard_value(t, call.value) && call.value.source)
    add_guard(t, GuardKind::Identity, call.value.source, call.object);
}

V mode_function(TraceRun& t, RowlessCall& call) {
  V done = call_mode_function(t, call.object, call.positional, call.keywords);
  if (done) guard_value(t, call.value);
  return done;
}

V random_method(TraceRun& t, RowlessCall& call) {
  if (is_random_method(call.object)) {
    if (!call.is_constant()) add_guard(t, GuardKind::Identity, call.value.source, call.object);
    return call_random(t, call.object, call.positional, call.keywords);
  }
  if (is_python_random_method(call.object)) {
    if (!call.is_constant()) add_guard(t, GuardKind::Identity, call.value.source, call.object);
    if (V drawn = call_python_random(t, call.object, call.positional, call.keywords)) return drawn;
  }
  PyObject* method = call.c_self() ? python_random_method(call.c_self(), call.c_name()) : nullptr;
  if (!method) return nullptr;
  call.positional.insert(call.positional.begin(), bound_to(t, call.value));
  return call_python_random(t, method, call.positional, call.keywords);
}

V builtin_function(TraceRun& t, RowlessCall& call) {
  BuiltinHandler handler = find_builtin(call.object);
  if (!handler) return nullptr;
  guard_value(t, call.value);
  return handler(t, call.positional, call.keywords);
}

V marked_function(TraceRun& t, RowlessCall& call) {
  const std::string mark = marker(call.object);
  if (mark.empty()) return nullptr;
  guard_value(t, call.value);
  if (mark == "is_compiling") return t.told_compiled = true, t.boolean(true);
  if (mark == "graph_break") break_graph(BreakReason::UserRequest, t.source_text());
  if (V done = torch_transform(t, mark, call.positional)) return done;
  return transform(t, mark, call.positional);
}

V class_object(TraceRun& t, RowlessCall& call) {
  if (!PyType_Check(call.object)) return nullptr;
  guard_value(t, call.value);
  return call_type(t, call.callable, reinterpret_cast<PyTypeObject*>(call.object), std::move(call.positional),
                   std::move(call.keywords));
}

V extern_function(TraceRun& t, RowlessCall& call) {
  if (is_library_function(call.object)) {
    guard_callable(t, call);
    return t.extern_call(call.callable, call.positional, call.keywords);
  }
  const ExternUse use = extern_use(call.object);
  if (use == ExternUse::No) return nullptr;
  bool any_array = use == ExternUse::Always;
  for (const V& argument : call.positional) any_array = any_array || holds_array(t, argument);
  for (auto& [name, argument] : call.keywords) any_array = any_array || holds_array(t, argument);
  if (!any_array) return nullptr;
  if (V done = call_operator_with_derivative(t, call.callable, call.positional, call.keywords)) return done;
  guard_callable(t, call);
  return t.extern_call(call.callable, call.positional, call.keywords);
}

V function_with_derivative(TraceRun& t, RowlessCall& call) {
  return call_function_with_derivative(t, call.callable, call.positional, call.keywords);
}

V library_object(TraceRun& t, RowlessCall& call) {
  return call_library_object(t, call.callable, call.positional, call.keywords);
}

V python_function(TraceRun& t, RowlessCall& call) {
  if (!PyFunction_Check(call.object)) return nullptr;
  if (V done = call_numpy_library(t, call.callable, call.positional, call.keywords)) return done;
  if (V done = call_collective(t, call.callable, call.object, call.positional, call.keywords)) return done;
  if (is_disabled(call.object)) break_graph(BreakReason::Disabled, callable_name(call.callable));
  PyObject* instead = checkpoint_of_torch(call.object);
  if (!instead) instead = code_of_torch_transform(call.object);
  if (PyObject* wrapped = instead ? instead : left_alone_by_dynamo(call.object)) {
    guard_value(t, call.value);
    return t.call(wrap_constant(t, wrapped), std::move(call.positional), std::move(call.keywords));
  }
  return inline_python_function(t, call.callable, reinterpret_cast<PyFunctionObject*>(call.object),
                                std::move(call.positional), std::move(call.keywords));
}

/// object.__new__(cls), super().__new__(cls, ...)
V new_method(TraceRun& t, RowlessCall& call) {
  const char* name = call.c_name();
  if (!name || std::strcmp(name, "__new__") || call.positional.empty()) return nullptr;
  PyObject* type = t.constant_object(call.positional[0]);
  if (!type || !PyType_Check(type)) return nullptr;
  guard_value(t, call.value);
  call.positional.erase(call.positional.begin());
  auto* made = reinterpret_cast<PyTypeObject*>(type);
  const bool plain = call.c_self() == reinterpret_cast<PyObject*>(&PyBaseObject_Type);
  // Python refuses another class's __new__, and arguments nobody takes.
  const bool excess = plain && !call.plain() &&
                      (made->tp_new != PyBaseObject_Type.tp_new || made->tp_init == PyBaseObject_Type.tp_init);
  if (excess || call.c_self() != reinterpret_cast<PyObject*>(builtin_base(made)))
    break_graph(BreakReason::UnknownCall, std::string("__new__ of ") + made->tp_name);
  return new_instance(t, made, plain ? std::vector<V>() : call.positional, plain ? Keywords() : call.keywords);
}

V python_method_object(TraceRun& t, RowlessCall& call) {
  if (!PyMethod_Check(call.object)) return nullptr;
  guard_type(t, call.value);
  PyObject *function = PyMethod_GET_FUNCTION(call.object), *self = PyMethod_GET_SELF(call.object);
  const SourceRef source = call.value.source;
  V function_value =
      source ? t.wrap(function, t.sources().make(SourceKind::MethodFunction, source)) : wrap_constant(t, function);
  call.positional.insert(call.positional.begin(), source
                                                      ? t.wrap(self, t.sources().make(SourceKind::MethodSelf, source))
                                                      : wrap_constant(t, self));
  return t.call(function_value, std::move(call.positional), std::move(call.keywords));
}

/// `frozenset(names).__contains__`, `items.append`
V c_method(TraceRun& t, RowlessCall& call) {
  PyObject* self = call.c_self();
  if (!self || !is_builtin_value(self)) return nullptr;
  BuiltinValue method;
  method.name = call.c_name();
  method.owner = bound_to(t, call.value);
  return call_builtin_method(t, method, std::move(call.positional), std::move(call.keywords));
}

/// str.upper, list.append: the method of the first argument.
V method_of_class(TraceRun& t, RowlessCall& call) {
  if (Py_TYPE(call.object) != &PyMethodDescr_Type && Py_TYPE(call.object) != &PyWrapperDescr_Type) return nullptr;
  guard_value(t, call.value);
  if (call.positional.empty()) return nullptr;
  PyTypeObject* owner = PyDescr_TYPE(call.object);
  const V& first = call.positional[0];
  if (first->kind == ValueKind::Instance && owner != &PyBaseObject_Type && !builtin_part(t, first) &&
      !PyType_IsSubtype(owner, reinterpret_cast<PyTypeObject*>(PyExc_BaseException)))
    break_graph(BreakReason::UnknownCall, callable_name(call.callable));
  if (!PyType_IsSubtype(t.type_of(first), owner)) return nullptr;
  BuiltinValue method;
  method.owner = first;
  method.name = text_of(reinterpret_cast<PyDescrObject*>(call.object)->d_name);
  method.descriptor = Ref<>::borrow(call.object);
  call.positional.erase(call.positional.begin());
  return call_builtin_method(t, method, std::move(call.positional), std::move(call.keywords));
}

V exception_in_flight(TraceRun& t, RowlessCall& call) {
  if (!call.plain()) return nullptr;
  const bool info = call.object == attribute_of("sys", "exc_info");
  if (!info && call.object != attribute_of("sys", "exception")) return nullptr;
  guard_value(t, call.value);
  V found = exception_info(t);
  return info ? found : as<TupleValue>(found)->items[1];
}

V pure_function(TraceRun& t, RowlessCall& call) {
  if (!is_pure(call.object)) return nullptr;
  guard_value(t, call.value);
  bool of_parts = false;
  // The others say in their answer (ascii) or their error what they were given.
  static constexpr std::string_view kOfItems[] = {"fsum", "prod", "dist", "sumprod", "from_bytes"};
  const std::string_view name = reinterpret_cast<PyCFunctionObject*>(call.object)->m_ml->ml_name;
  const bool reads_items = std::find(std::begin(kOfItems), std::end(kOfItems), name) != std::end(kOfItems);
  for (V& argument : call.positional) {
    V part = number_part(t, argument);
    of_parts = of_parts || part != argument;
    argument = part;
    if (reads_items && (argument->kind == ValueKind::List || argument->kind == ValueKind::Iterator))
      argument = t.tuple(t.sequence_items(argument));
  }
  auto fold = [&] { return fold_call(t, call.object, call.positional, call.keywords); };
  return of_parts ? on_part_of(call.callable, fold) : fold();
}

V functional_object(TraceRun& t, RowlessCall& call) {
  return call_functional(t, call.callable, call.positional, call.keywords);
}

V compiled_object(TraceRun& t, RowlessCall& call) {
  if (call.type_name() == "framejit.CompiledMethod") {
    call.positional.insert(call.positional.begin(), field(t, call, "__self__"));
    return t.call(field(t, call, "__func__"), std::move(call.positional), std::move(call.keywords));
  }
  if (call.type_name() != "framejit.CompiledFunction") return nullptr;
  const Ref<> edited = Ref<>::steal(PyObject_GetAttrString(call.object, "__framejit_edited__"));
  if (edited.get() == Py_True)
    break_graph(BreakReason::UnknownCall, callable_name(call.callable) + ", whose graphs are edited by passes of its own");
  V wrapped = call.is_constant()
                  ? wrap_constant(t, t.keep(Ref<>::steal(PyObject_GetAttrString(call.object, "__wrapped__"))).get())
                  : field(t, call, "__wrapped__");
  return t.call(wrapped, std::move(call.positional), std::move(call.keywords));
}

V partial_object(TraceRun& t, RowlessCall& call) {
  if (call.type_name() != "functools.partial") return nullptr;
  std::vector<V> arguments = t.sequence_items(field(t, call, "args"));
  arguments.insert(arguments.end(), call.positional.begin(), call.positional.end());
  V given = field(t, call, "keywords");
  auto* dict = as<DictValue>(given);
  if (!dict) break_graph(BreakReason::UnknownCall, callable_name(call.callable));
  open(t, *dict);
  return t.call(field(t, call, "func"), std::move(arguments), merged_keywords(*dict, call.keywords));
}

V object_with_call(TraceRun& t, RowlessCall& call) {
  static PyObject* const call_name = PyUnicode_InternFromString("__call__");
  PyObject* method = fj_type_lookup(Py_TYPE(call.object), call_name);
  if (!method || !is_python_method(t, method)) return nullptr;
  class_attribute(t, t.type_of(call.callable), call_name);
  if (method == module_call())
    return call_module(t, call.callable, std::move(call.positional), std::move(call.keywords));
  call.positional.insert(call.positional.begin(), call.callable);
  return t.call(wrap_constant(t, method), std::move(call.positional), std::move(call.keywords));
}

V numpy_function(TraceRun& t, RowlessCall& call) {
  if (V done = call_transformed_numpy(t, call.callable, call.positional, call.keywords)) return done;
  if (V done = call_numpy_implementation(t, call.callable, call.object, call.positional, call.keywords)) return done;
  return call_numpy_library(t, call.callable, call.positional, call.keywords);
}

V function_with_python_code(TraceRun& t, RowlessCall& call) {
  PyObject* code = python_code_of(t, call.object, call.positional, call.keywords);
  if (!code) return nullptr;
  guard_value(t, call.value);
  try {
    return t.call(wrap_constant(t, code), std::move(call.positional), std::move(call.keywords));
  } catch (const BreakGraph& inside) {
    t.break_location.reset();
    break_graph(BreakReason::UnknownCall, callable_name(call.callable) + ": " + inside.detail);
  }
}

/// Breaks: no row of callables.def took the call.
[[noreturn]] void refuse_call(TraceRun& t, const RowlessCall& call) {
  if (call.object == attribute_of("builtins", "print")) break_graph(BreakReason::Print, t.source_text());
  if (call.c_self() && is_lock(call.c_self())) break_graph(BreakReason::Lock, t.source_text());
  if (is_of_library(call.object))
    for (const V& argument : call.positional)
      if (holds_array(t, argument)) break_graph(BreakReason::UnsupportedOperation, callable_name(call.callable));
  const bool rounds = std::any_of(std::begin(kRounding), std::end(kRounding),
                                  [&](const char* name) { return call.object == attribute_of("math", name); });
  for (const V& argument : call.positional)
    if (rounds || argument->kind == ValueKind::Number) t.round_as_library(argument);
  for (const V& argument : call.positional)
    if (argument->kind == ValueKind::Number)
      break_graph(BreakReason::ScalarFromArray, callable_name(call.callable) + " of " + describe(argument));
  break_graph(BreakReason::UnknownCall, callable_name(call.callable));
}

}  // namespace

V call_without_row(TraceRun& t, const V& callable, PyObject* object, std::vector<V> positional, Keywords keywords) {
  RowlessCall call{callable, *as<ObjectValue>(callable), object, positional, keywords};
  constexpr V (*kRows[])(TraceRun&, RowlessCall&) = {
#define FJ_CALLABLE(handler, takes) handler,
#include "tracer/interpreter/callables.def"
  };
  for (auto* row : kRows)
    if (V done = row(t, call)) return done;
  refuse_call(t, call);
}

namespace {

/// Whether the value has no __array_function__ that NumPy's dispatch would ask, other than an array's own.
bool dispatches_to_numpy(TraceRun& tracer, const V& value) {
  switch (value->kind) {
    case ValueKind::Array: return as<ArrayValue>(value)->library == Library::Numpy;
    case ValueKind::SymInt: case ValueKind::Number: case ValueKind::Slice: case ValueKind::Function: return true;
    case ValueKind::Tuple: case ValueKind::List: {
      const Nesting nesting;
      const std::vector<V> items = tracer.sequence_items(value);
      return std::all_of(items.begin(), items.end(), [&](const V& item) { return dispatches_to_numpy(tracer, item); });
    }
    case ValueKind::Object: {
      PyObject* object = as<ObjectValue>(value)->object.get();
      return is_plain(object) || PyType_Check(object) || PyFunction_Check(object) ||
             dtype_from_object(object).has_value() || numpy_scalar_dtype(object).has_value();
    }
    default: return false;
  }
}

}  // namespace

V call_transformed_numpy(TraceRun& t, const V& callable, const std::vector<V>& positional, const Keywords& keywords) {
  const auto any = [&] {
    return std::any_of(positional.begin(), positional.end(),
                       [&](const V& value) { return is_transformed(t, value); }) ||
           std::any_of(keywords.begin(), keywords.end(),
                       [&](const auto& keyword) { return is_transformed(t, keyword.second); });
  };
  auto& value = *as<ObjectValue>(callable);
  PyObject* instead = traced_when_transformed(value.object.get());
  if (!instead || !any()) return nullptr;
  if (!guard_value(t, value) && value.source) add_guard(t, GuardKind::Identity, value.source, value.object.get());
  try {
    V done = t.call(wrap_constant(t, instead), positional, keywords);
    return t.constant_object(done) == Py_NotImplemented ? nullptr : done;
  } catch (const BreakGraph& inside) {
    t.break_location.reset();  // in code of ours
    if (inside.reason != BreakReason::UnsupportedOperation) throw;
    break_graph(BreakReason::UnsupportedOperation, callable_name(callable) + ": " + inside.detail);
  }
}

/// A function of NumPy that is Python code below its dispatch by __array_function__: inlined as any function. Null:
/// another function.
V call_numpy_implementation(TraceRun& t, const V& callable, PyObject* object, const std::vector<V>& positional,
                            const Keywords& keywords) {
  if (std::strcmp(Py_TYPE(object)->tp_name, "numpy._ArrayFunctionDispatcher")) return nullptr;
  PyObject* instead = traced_instead(object);
  bool own = true;
  for (const V& argument : positional) own = own && dispatches_to_numpy(t, argument);
  for (auto& [name, argument] : keywords) own = own && dispatches_to_numpy(t, argument);
  Ref<> implementation = !own      ? Ref<>()
                         : instead ? Ref<>::borrow(instead)
                                   : Ref<>::steal(PyObject_GetAttrString(object, "_implementation"));
  PyErr_Clear();
  if (!implementation || !PyFunction_Check(implementation.get())) return nullptr;
  guard_value(t, *as<ObjectValue>(callable));
  const Tracer::Mark before = t.mark();
  try {
    return t.call(wrap_constant(t, t.keep(implementation).get()), positional, keywords);
  } catch (const BreakGraph& inside) {
    // The break is somewhere in NumPy's code, which is not the user's to change.
    t.break_location.reset();
    if (!t.written_since(before))
      if (V done = call_numpy_library(t, callable, positional, keywords)) return done;
    const std::string name = callable_name(callable);
    break_graph(BreakReason::UnsupportedOperation, inside.detail == name ? name : name + ": " + inside.detail);
  }
}

/// Where framejit.capture has the module it captures (framejit/_graph/capture.py).
constexpr std::string_view kCapturedModule = "G.captured";

/// A module's path as `named_modules` of the outermost one gives it, "layers.0"; of one found elsewhere, where: "G.model".
std::string module_path(SourceRef source) {
  std::string path;
  for (; source != nullptr; source = source->base) {
    const SourceRef table = source->base;
    const bool listed = source->kind == SourceKind::DictItem && table->kind == SourceKind::Attribute &&
                        text_of(table->key.get()) == "_modules";
    if (!listed) break;
    path = text_of(source->key.get()) + (path.empty() ? "" : "." + path);
    source = table;
  }
  const std::string root = source != nullptr ? source->text() : "";
  if (source != nullptr && root != "L.self" && root != kCapturedModule) path = root + (path.empty() ? "" : "." + path);
  std::replace_if(path.begin(), path.end(), [](char c) { return std::isspace(static_cast<unsigned char>(c)); }, '_');
  return path;
}

/// While a module's forward is inlined.
class InModule {
 public:
  InModule(TraceRun& t, const V& module) : t_(t) { t_.modules.push_back(module_path(module->source)); }
  ~InModule() { t_.modules.pop_back(); }
  InModule(const InModule&) = delete;

 private:
  TraceRun& t_;
};

/// torch.nn.Module.__call__: where no hook is registered, forward; with forward hooks, torch's own code, inlined.
/// The tests of the hooks are guarded like any other.
V call_module(TraceRun& t, const V& module, std::vector<V> positional, Keywords keywords) {
  auto name = [](const char* text) { return PyUnicode_InternFromString(text); };
  struct Hooks {
    PyObject* name;
    bool forward;  // these run as torch's own code calls them
  };
  static const Hooks own[] = {{name("_compiled_call_impl"), false},
                              {name("_backward_hooks"), false},
                              {name("_backward_pre_hooks"), false},
                              {name("_forward_hooks"), true},
                              {name("_forward_pre_hooks"), true}};
  static const Hooks global[] = {{name("_global_backward_pre_hooks"), false},
                                 {name("_global_backward_hooks"), false},
                                 {name("_global_forward_hooks"), true},
                                 {name("_global_forward_pre_hooks"), true}};
  static PyObject* const forward = name("forward");
  static PyObject* const call_impl = name("_call_impl");
  bool any = false;
  for (const Hooks& hooks : own) {
    V found = find_attribute(t, module, hooks.name);
    if (!found || !t.truth(found)) continue;
    if (!hooks.forward) break_graph(BreakReason::UnsupportedObject, "a module with backward hooks");
    any = true;
  }
  PyObject* implementation = module_call();
  PyObject* globals = PyFunction_GET_GLOBALS(implementation);
  for (const Hooks& hooks : global) {
    PyObject* found = PyDict_GetItemWithError(globals, hooks.name);
    if (found &&
        !t.truth(t.wrap(found, t.sources().make(SourceKind::DictItem, globals_source(t, globals), 0, hooks.name))))
      continue;
    if (!found || !hooks.forward) break_graph(BreakReason::UnsupportedObject, "a backward hook for all modules");
    any = true;
  }
  if (any) {
    V method = find_attribute(t, module, call_impl);
    if (!method) break_graph(BreakReason::UnsupportedObject, "a module with hooks");
    const InModule inside(t, module);
    return t.call(method, std::move(positional), std::move(keywords));
  }
  V method = find_attribute(t, module, forward);
  if (!method) break_graph(BreakReason::ErrorWhileTracing, "a module without forward");
  const InModule inside(t, module);
  return t.call(method, std::move(positional), std::move(keywords));
}

namespace {

std::vector<std::pair<std::string, V>> keyword_defaults(TraceRun& tracer, const V& mapping) {
  std::vector<std::pair<std::string, V>> result;
  if (!mapping) return result;
  if (auto* dict = as<DictValue>(mapping)) {
    open(tracer, *dict);
    for (auto& [key, value] : dict->items) result.emplace_back(text_of(key.get()), value);
  } else {
    // A tuple of names and values in turn.
    std::vector<V> items = tracer.sequence_items(mapping);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2)
      result.emplace_back(text_of(tracer.constant_object(items[i])), items[i + 1]);
  }
  return result;
}

}  // namespace

V inline_made_function(TraceRun& t, FunctionValue& function, std::vector<V> positional, Keywords keywords) {
  return inline_function(t, function.code.get(), function.globals.get(),
                         function.defaults ? t.sequence_items(function.defaults) : std::vector<V>(),
                         keyword_defaults(t, function.kwdefaults), function.closure,
                         text_of(function.qualname.get()).c_str(), std::move(positional), std::move(keywords));
}

/// Guards the function's code and globals. Of its defaults and cells, those that are looked at are guarded like any
/// value.
void guard_code(TraceRun& t, SourceRef source, PyFunctionObject* function) {
  add_guard(t, GuardKind::FunctionCode, source, function->func_code);
  if (source->kind == SourceKind::Constant) return;  // `__globals__` can't be assigned
  SourceRef globals = t.sources().make(SourceKind::FunctionGlobals, source);
  if (function->func_globals != t.request.function->func_globals)
    return add_guard(t, GuardKind::Identity, globals, function->func_globals);
  Guard same;
  same.kind = GuardKind::SameObject;
  same.source = globals;
  same.others = {t.sources().make(SourceKind::FunctionGlobals, t.sources().function())};
  add_guard(t, std::move(same));
}

V inline_python_function(TraceRun& t, const V& callable, PyFunctionObject* function, std::vector<V> positional,
                         Keywords keywords) {
  auto& value = *as<ObjectValue>(callable);
  SourceRef source = value.source ? value.source : t.sources().constant(reinterpret_cast<PyObject*>(function));
  guard_code(t, source, function);
  std::vector<V> defaults, closure;
  if (PyObject* tuple = function->func_defaults)
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i)
      defaults.push_back(t.wrap(PyTuple_GET_ITEM(tuple, i),
                                t.sources().make(SourceKind::FunctionDefault, source, i - PyTuple_GET_SIZE(tuple))));
  std::vector<std::pair<std::string, V>> keyword_only;
  static PyObject* const kwdefaults_name = intern("__kwdefaults__");
  PyObject* dict = function->func_kwdefaults;
  if (V known = dict ? known_dict(t, dict, t.sources().make(SourceKind::SlotMember, source, 0, kwdefaults_name))
                     : nullptr) {
    keyword_only = keyword_defaults(t, known);  // it may have been written
  } else if (dict) {
    Py_ssize_t at = 0;
    for (PyObject *key, *item; PyDict_Next(dict, &at, &key, &item);)
      keyword_only.emplace_back(text_of(key),
                                t.wrap(item, t.sources().make(SourceKind::FunctionKwDefault, source, 0, key)));
  }
  if (PyObject* tuple = function->func_closure)
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i)
      closure.push_back(t.wrap(PyTuple_GET_ITEM(tuple, i), t.sources().make(SourceKind::ClosureCell, source, i)));
  return inline_function(t, reinterpret_cast<PyCodeObject*>(function->func_code), function->func_globals, defaults,
                         keyword_only, std::move(closure), text_of(function->func_qualname).c_str(),
                         std::move(positional), std::move(keywords));
}

V inline_function(TraceRun& t, PyCodeObject* code, PyObject* globals, const std::vector<V>& defaults,
                  const std::vector<std::pair<std::string, V>>& kwdefaults, std::vector<V> closure, const char* name,
                  std::vector<V> positional, Keywords keywords) {
  auto refuse = [&](const std::string& what) {
    break_graph(BreakReason::ErrorWhileTracing, std::string(name) + "() " + what);
  };
  if (code->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR)) break_graph(BreakReason::Generator, name);
  const int positional_count = code->co_argcount, keyword_only = code->co_kwonlyargcount,
            named = positional_count + keyword_only;
  auto frame = std::make_shared<Frame>();
  frame->code = t.decodes.get(code);
  frame->co = code;
  frame->globals = Ref<>::borrow(globals);
  PyObject* builtins = PyDict_GetItemString(globals, "__builtins__");
  if (builtins && PyModule_Check(builtins)) builtins = PyModule_GetDict(builtins);
  frame->builtins = Ref<>::borrow(builtins ? builtins : t.request.function->func_builtins);
  frame->closure = std::move(closure);
  frame->slots.resize(code->co_nlocalsplus);

  for (int i = 0; i < positional_count && i < int(positional.size()); ++i) frame->slots[i] = positional[i];
  if (code->co_flags & CO_VARARGS) {
    std::vector<V> rest;
    for (std::size_t i = positional_count; i < positional.size(); ++i) rest.push_back(positional[i]);
    frame->slots[named] = t.tuple(std::move(rest));
  } else if (int(positional.size()) > positional_count) {
    refuse("takes fewer arguments");
  }
  std::shared_ptr<DictValue> rest;
  if (code->co_flags & CO_VARKEYWORDS) {
    rest = std::make_shared<DictValue>();
    frame->slots[named + ((code->co_flags & CO_VARARGS) ? 1 : 0)] = rest;
  }
  for (auto& [key, value] : keywords) {
    int slot = -1;
    for (int i = code->co_posonlyargcount; i < named; ++i)
      if (text_of(PyTuple_GET_ITEM(code->co_localsplusnames, i)) == key) slot = i;
    if (slot >= 0) {
      if (frame->slots[slot]) refuse("got multiple values for argument '" + key + "'");
      frame->slots[slot] = value;
    } else if (rest) {
      rest->items.emplace_back(Ref<>::steal(PyUnicode_FromString(key.c_str())), value);
    } else {
      refuse("got an unexpected keyword argument '" + key + "'");
    }
  }
  for (int i = 0; i < positional_count; ++i) {
    if (frame->slots[i]) continue;
    const int index = i - (positional_count - int(defaults.size()));
    if (index < 0) refuse("misses an argument");
    frame->slots[i] = defaults[index];
  }
  for (int i = positional_count; i < named; ++i) {
    if (frame->slots[i]) continue;
    const std::string key = text_of(PyTuple_GET_ITEM(code->co_localsplusnames, i));
    for (auto& [known, value] : kwdefaults)
      if (known == key) frame->slots[i] = value;
    if (!frame->slots[i]) refuse("misses keyword argument '" + key + "'");
  }
  if (!(code->co_flags & CO_GENERATOR)) return t.run_frame(*frame);

  // A generator: its frame runs on at each `next`. A started one can't be handed back to Python.
  return make_generator(t, std::move(frame));
}

}  // namespace fj
