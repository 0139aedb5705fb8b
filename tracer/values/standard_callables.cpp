/// Callables of the standard library that are not inlined: see standard_callables.h.
#include "tracer/values/standard_callables.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "runtime/base/error.h"
#include "segment/held_by_cache.h"
#include "tracer/frontends/builders.h"
#include "tracer/interpreter/exceptions.h"
#include "tracer/interpreter/scopes.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/modes/modes.h"
#include "tracer/state/cached_calls.h"
#include "tracer/state/effect_log.h"
#include "tracer/state/exception_ledger.h"
#include "tracer/state/graph_inputs.h"
#include "tracer/state/modes.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/containers/containers.h"
#include "tracer/values/containers/dicts.h"
#include "tracer/values/numbers/operators.h"
#include "tracer/values/outside_objects.h"

namespace fj {
namespace {

Ref<> attribute(PyObject* owner, const char* name) {
  Ref<> found = Ref<>::steal(PyObject_GetAttrString(owner, name));
  if (!found) PyErr_Clear();
  return found;
}

std::string module_of(PyObject* object) {
  Ref<> module = attribute(object, "__module__");
  return module && PyUnicode_Check(module.get()) ? text_of(module.get()) : "";
}

/// A function made in `module` under this qualified name.
bool is_function_of(PyObject* object, const char* module, const char* qualname) {
  if (!PyFunction_Check(object)) return false;
  auto* function = reinterpret_cast<PyFunctionObject*>(object);
  PyObject* name = PyDict_GetItemString(function->func_globals, "__name__");
  return name && text_of(name) == module &&
         text_of(reinterpret_cast<PyCodeObject*>(function->func_code)->co_qualname) == qualname;
}

PyObject* free_variable(PyObject* object, const char* name) {
  auto* function = reinterpret_cast<PyFunctionObject*>(object);
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  Ref<> names = Ref<>::steal(PyCode_GetFreevars(code));
  for (Py_ssize_t i = 0; names && function->func_closure && i < PyTuple_GET_SIZE(names.get()); ++i)
    if (text_of(PyTuple_GET_ITEM(names.get(), i)) == name)
      return PyCell_GET(PyTuple_GET_ITEM(function->func_closure, i));
  return nullptr;
}

/// The function that functools.singledispatch has for a class. What it depends on: the classes registered (guarded by
/// the registry's keys and values), the class of the argument, and what is registered with abstract classes.
V dispatched(TraceRun& t, PyObject* dispatch, PyTypeObject* type) {
  PyObject* registry = dispatch && PyFunction_Check(dispatch) ? free_variable(dispatch, "registry") : nullptr;
  if (!registry || !PyDict_CheckExact(registry)) return nullptr;
  // Asking fills the cache, which nobody sees unless it is another one than the module's.
  PyObject* const weak_keys = once([] { return imported("weakref", "WeakKeyDictionary").release(); });
  PyObject* cache = free_variable(dispatch, "dispatch_cache");
  if (!cache || reinterpret_cast<PyObject*>(Py_TYPE(cache)) != weak_keys) return nullptr;
  V known = t.wrap(registry, t.sources().constant(registry));
  auto* table = as<DictValue>(known);
  if (!table) return nullptr;
  open(t, *table);
  guard_bases(t, type);
  const bool any_abstract = std::any_of(table->items.begin(), table->items.end(), [](const auto& item) {
    return Py_TYPE(item.first.get()) != &PyType_Type;
  });
  if (any_abstract) guard_registrations(t);
  Ref<> chosen = Ref<>::steal(PyObject_CallOneArg(dispatch, reinterpret_cast<PyObject*>(type)));
  if (!chosen) break_graph(BreakReason::ErrorWhileTracing, take_error());
  for (auto& [key, value] : table->items) {
    auto* implementation = as<ObjectValue>(value);
    if (implementation && implementation->object.get() == chosen.get()) return value;
  }
  return nullptr;
}

/// Of (wrapper, arguments): what its cache holds for them, and whether it holds anything. Guards ask.
PyObject* ask_cache(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  Ref<> found = held_by_cache(arguments[0], arguments[1]);
  if (!found) PyErr_SetString(PyExc_LookupError, "not in the cache");
  return found.release();
}

PyObject* ask_whether_cached(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  return PyBool_FromLong(bool(held_by_cache(arguments[0], arguments[1])));
}

V answer_of_cache(TraceRun& t, PyObject* wrapper, const Ref<>& arguments, PyObject* object) {
  PyObject* question = object ? c_function<ask_cache>("cached") : c_function<ask_whether_cached>("is_cached");
  Ref<> about = t.keep(Ref<>::steal(PyTuple_Pack(2, wrapper, arguments.get())));
  SourceRef source = t.sources().make(SourceKind::Answer, t.sources().constant(question), 0, about.get());
  return t.wrap(object ? object : Py_False, source);
}

/// Arguments that a cache tells apart by what they are, for ever: constants, dtypes, classes and the like, and tuples
/// of these.
bool is_cache_key(PyObject* object) {
  if (!PyTuple_CheckExact(object)) return is_plain(object) || is_itself_alone(object);
  return std::all_of(&PyTuple_GET_ITEM(object, 0), &PyTuple_GET_ITEM(object, 0) + PyTuple_GET_SIZE(object),
                     is_cache_key);
}

/// Whether these are the globals of a module that is imported: of one whose functions are inlined.
bool is_module_globals(PyObject* globals) {
  PyObject* name = PyDict_CheckExact(globals) ? PyDict_GetItemString(globals, "__name__") : nullptr;
  PyObject* module = name ? PyDict_GetItemWithError(PyImport_GetModuleDict(), name) : nullptr;
  PyErr_Clear();
  return module && PyModule_Check(module) && PyModule_GetDict(module) == globals;
}

/// Whether a module has the object under a name, or has a module that has it.
bool is_of_globals(SourceRef source) {
  for (; source; source = source->base) {
    if (source->kind == SourceKind::Global) return true;
    const bool of_module = source->kind == SourceKind::Attribute && source->base &&
                           source->base->kind == SourceKind::Constant && PyModule_Check(source->base->key.get());
    const bool of_globals = source->kind == SourceKind::DictItem && source->base &&
                            source->base->kind == SourceKind::Constant && is_module_globals(source->base->key.get());
    if (of_module || of_globals) return true;
    if (source->kind != SourceKind::Attribute) return false;
  }
  return false;
}

/// An argument of a cache as it is told apart by; null: it is not known what it is. Of other objects those of modules
/// that are equal to themselves alone, such as loggers.
PyObject* cache_key(TraceRun& t, const V& value) {
  if (value->kind == ValueKind::SymInt) return t.keep(t.constant_object(t.integer(*t.constant_int(value)))).get();
  if (PyObject* object = t.constant_object(value)) return is_cache_key(object) ? object : nullptr;
  auto* known = as<ObjectValue>(value);
  if (!known || !known->source || !is_of_globals(known->source)) return nullptr;
  PyTypeObject* type = Py_TYPE(known->object.get());
  if (type->tp_hash != PyBaseObject_Type.tp_hash || type->tp_richcompare != PyBaseObject_Type.tp_richcompare)
    return nullptr;
  add_guard(t, GuardKind::Identity, known->source, known->object.get());
  return known->object.get();
}

/// The wrapped function is traced as if it were called, unless the cache has an answer; the real cache is asked when
/// the segment runs, and a segment is only good as long as it gives this same constant (RecipeOp::Expect).
V call_lru_cache(TraceRun& t, const V& callable, PyObject* wrapper, std::vector<V>& positional, Keywords& keywords) {
  Ref<> function = attribute(wrapper, "__wrapped__");
  if (!function || !PyFunction_Check(function.get())) return nullptr;
  std::vector<Ref<>> constants;
  for (const V& value : positional) constants.push_back(Ref<>::borrow(cache_key(t, value)));
  for (auto& [name, value] : keywords) constants.push_back(Ref<>::borrow(cache_key(t, value)));
  for (const Ref<>& object : constants)
    if (!object) return nullptr;
  auto& known = *as<ObjectValue>(callable);
  if (known.source) add_guard(t, GuardKind::Identity, known.source, wrapper);
  Ref<> key = Ref<>::steal(PyList_New(0));
  PyList_Append(key.get(), wrapper);
  for (const Ref<>& object : constants) PyList_Append(key.get(), object.get());
  for (auto& [name, value] : keywords) PyList_Append(key.get(), Ref<>::steal(PyUnicode_FromString(name.c_str())).get());
  Ref<> arguments = Ref<>::steal(PyTuple_New(Py_ssize_t(positional.size())));
  for (std::size_t i = 0; i < positional.size(); ++i)
    PyTuple_SET_ITEM(arguments.get(), Py_ssize_t(i), Py_NewRef(constants[i].get()));
  Ref<> names = Ref<>::steal(PyDict_New());
  for (std::size_t i = 0; i < keywords.size(); ++i)
    PyDict_SetItemString(names.get(), keywords[i].first.c_str(), constants[positional.size() + i].get());
  auto plain = [](auto& self, PyObject* object) -> bool {
    if (!PyTuple_CheckExact(object)) return is_plain(object);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
      if (!self(self, PyTuple_GET_ITEM(object, i))) return false;
    return true;
  };
  const Ref<> held = keywords.empty() ? held_by_cache(wrapper, arguments.get()) : Ref<>();
  // If the cache does not hold the result by then, it would run the function before what this trace has written, drawn
  // or set is there.
  const bool changed = !t.cached->expecting && (!t.effects->effects().empty() || !t.inputs->written.empty() ||
                                                t.externs->random() || modes_changed(t));
  // It would have to be held after a call that may put it out.
  const bool put_out = held && !t.cached->expecting && (changed || !plain(plain, held.get())) &&
                       std::any_of(t.cached->expectations.begin(), t.cached->expectations.end(),
                                   [&](const CachedCalls::Expectation& earlier) {
                                     return earlier.callable.get() == wrapper && earlier.value == nullptr &&
                                            !earlier.only_held && !held_by_cache(wrapper, earlier.arguments.get());
                                   });
  if (put_out)
    break_graph(BreakReason::UnknownCall, "a cached function whose arguments put each other out of the cache");
  if (held && !plain(plain, held.get()) && !t.cached->expecting) {
    V value = answer_of_cache(t, wrapper, arguments, held.get());
    if (auto* object = as<ObjectValue>(value)) guard_type(t, *object);
    t.cached->expectations.push_back({Ref<>::borrow(wrapper), arguments, names, {}, true, value});
    return value;
  }
  // Once the cache holds it, it is a value from outside.
  const auto ask_again = [&] {
    if (keywords.empty()) t.learnt.empty_caches.emplace_back(Ref<>::borrow(wrapper), arguments);
  };
  if (changed && (!held || !plain(plain, held.get()))) {
    ask_again();
    break_graph(BreakReason::UnknownCall, "a cached function after side effects");
  }
  if (held && plain(plain, held.get())) {
    // Within another cached function, the run of that one by its cache is what asks.
    if (!t.cached->expecting)
      t.cached->expectations.push_back({Ref<>::borrow(wrapper), arguments, names, held, changed});
    return wrap_constant(t, t.keep(held).get());
  }
  if (t.cached->expecting)
    for (auto& [asked, result] : t.cached->results)
      if (PyObject_RichCompareBool(asked.get(), key.get(), Py_EQ) == 1) return result;
  if (t.cached->expecting) {
    // Called by another cached function: the run of that one by the cache is what counts.
    V result = t.call(wrap_constant(t, t.keep(function).get()), positional, keywords);
    t.cached->results.emplace_back(key, result);
    return result;
  }
  const TraceRun::Mark before = t.mark();
  const std::size_t nodes = t.graph().nodes.size();
  struct Restore {
    bool& expecting;
    ~Restore() { expecting = false; }
  };
  V result;
  {
    // Calls of cached functions within it are those of the cache's own run.
    t.cached->expecting = true;
    Restore restore{t.cached->expecting};
    try {
      result = t.call(wrap_constant(t, t.keep(function).get()), positional, keywords);
    } catch (const RaisedInTrace&) {
      // A call that raises is a miss.
      break_graph(BreakReason::UnknownCall, "a cached function that raises");
    } catch (const BreakGraph&) {
      ask_again();
      throw;
    }
  }
  PyObject* expected = t.constant_object(result);
  if (!expected || !plain(plain, expected) || t.written_since(before) || nodes != t.graph().nodes.size()) {
    ask_again();
    break_graph(BreakReason::UnknownCall, "a cached function whose result is no constant");
  }
  t.cached->expectations.push_back({Ref<>::borrow(wrapper), arguments, names, Ref<>::borrow(expected)});
  return result;
}

/// Python code of the module enum that computes members from members: run, since it keeps the members it makes.
bool is_pure_enum_function(PyObject* object) {
  if (!PyFunction_Check(object) || module_of(object) != "enum") return false;
  static constexpr std::string_view names[] = {"__or__",   "__ror__",    "__and__",      "__rand__",   "__xor__",
                                               "__rxor__", "__invert__", "__contains__", "__bool__",   "__len__",
                                               "__hash__", "__repr__",   "__str__",      "__getitem__"};
  const std::string name = text_of(reinterpret_cast<PyFunctionObject*>(object)->func_name);
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

V call_enum_function(TraceRun& t, const V& callable, PyObject* function, const std::vector<V>& positional) {
  Ref<> arguments = Ref<>::steal(PyTuple_New(Py_ssize_t(positional.size())));
  for (std::size_t i = 0; i < positional.size(); ++i) {
    PyObject* object = t.constant_object(positional[i]);
    const bool known = object && (is_plain(object) || is_enum_member(object) ||
                                  (PyType_Check(object) && is_enum_type(reinterpret_cast<PyTypeObject*>(object))));
    if (!known) return nullptr;
    guard_type_version(t, PyType_Check(object) ? reinterpret_cast<PyTypeObject*>(object) : Py_TYPE(object));
    PyTuple_SET_ITEM(arguments.get(), Py_ssize_t(i), Py_NewRef(object));
  }
  guard_value(t, *as<ObjectValue>(callable));
  Ref<> result = Ref<>::steal(PyObject_CallObject(function, arguments.get()));
  if (!result) raise_python_error(t);
  return wrap_constant(t, t.keep(result).get());
}

/// Whether the place outside where the value was found holds it still: nothing on the way there has been written.
bool is_held_outside(TraceRun& t, const V& value) {
  SourceRef root = value->source;
  for (SourceRef step = value->source; step; step = step->base) {
    if (step->kind == SourceKind::Referent || !step->operands.empty()) return false;
    for (const Effect& effect : t.effects->effects())
      if (effect.globals || !effect.owner ||
          (effect.owner->source && (effect.owner->source == step->base || effect.owner->source == step)))
        return false;
    root = step;
  }
  if (!root || root->kind == SourceKind::Constant) return bool(root);
  if (root->kind == SourceKind::Function || root->kind == SourceKind::Global) return true;
  return root->kind == SourceKind::Slot && std::any_of(t.frames.begin(), t.frames.end(), [&](const Frame* frame) {
           return std::any_of(frame->slots.begin(), frame->slots.end(),
                              [&](const V& held) { return held && held->source == root; });
         });
}

/// What a weakref refers to. While tracing objects live longer than eagerly, so only where a variable, or what it was
/// reached by, holds it.
V referent(TraceRun& t, ObjectValue& reference) {
  PyObject* object = reference.object.get();
  guard_type(t, reference);
  Ref<> found = t.keep(Ref<>::steal(PyObject_CallNoArgs(object)));
  SourceRef source = reference.source ? reference.source : t.sources().constant(object);
  V value = t.wrap(found.get(), t.sources().make(SourceKind::Referent, source));
  if (found.get() != Py_None && is_held_outside(t, value)) return value;
  for (auto& frame : t.frames)
    for (const V& held : frame->slots)
      if (held == value && found.get() != Py_None) return value;
  break_graph(BreakReason::UnsupportedObject, "whether a weakref's object is still there");
}

struct Query {
  const char *module, *name;
  PyObject* function = nullptr;  // owned for the life of the process, once its module is loaded
};

/// A row of queries.def.
bool is_query(PyObject* callable) {
  static Query table[] = {
#define FJ_QUERY(module, name) {module, name},
#include "tracer/builtins/queries.def"
  };
  if (!PyCFunction_Check(callable)) return false;
  for (Query& row : table) {
    if (!row.function) {
      if (std::strcmp(reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name, row.name)) continue;
      PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), row.module);
      if (module) row.function = PyObject_GetAttrString(module, row.name);
      PyErr_Clear();
    }
    if (row.function == callable) return true;
  }
  return false;
}

/// A row of FJ_QUERY_ABOUT in queries.def.
bool is_query_about(PyObject* callable) {
  struct Row {
    const char *module, *type, *name;
  };
  static constexpr Row table[] = {
#define FJ_QUERY_ABOUT(module, type, name) {module, type, name},
#include "tracer/builtins/queries.def"
  };
  if (!PyCFunction_Check(callable)) return false;
  for (const Row& row : table) {
    if (std::strcmp(reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name, row.name)) continue;
    PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), row.module);
    const Ref<> type = module ? Ref<>::steal(PyObject_GetAttrString(module, row.type)) : Ref<>();
    const Ref<> function = type ? Ref<>::steal(PyObject_GetAttrString(type.get(), row.name)) : Ref<>();
    PyErr_Clear();
    if (function.get() == callable) return true;
  }
  return false;
}

V ask_about(TraceRun& t, const V& callable, PyObject* function, const std::vector<V>& positional,
            const Keywords& keywords) {
  auto* about = positional.size() == 1 && keywords.empty() ? as<ObjectValue>(positional[0]) : nullptr;
  if (!about) return nullptr;
  Ref<> answer = Ref<>::steal(PyObject_CallOneArg(function, about->object.get()));
  if (!answer) raise_python_error(t);
  if (!is_plain(answer.get())) return nullptr;
  guard_value(t, *as<ObjectValue>(callable));
  SourceRef source = about->source ? about->source : t.sources().constant(about->object.get());
  return t.wrap(t.keep(answer).get(), t.sources().make(SourceKind::AnswerAbout, source, 0, function));
}

/// An error as text, by which it is known again: its class, arguments and attributes.
Ref<> told_of_error(PyObject* error) {
  Ref<> arguments = attribute(error, "args"), attributes = attribute(error, "__dict__");
  PyErr_Clear();
  return Ref<>::steal(PyUnicode_FromFormat("%s %R %R", Py_TYPE(error)->tp_name, arguments ? arguments.get() : Py_None,
                                           attributes ? attributes.get() : Py_None));
}

/// Of (function, arguments...): the error that it raises, as text; "": none. Guards ask.
PyObject* ask_for_error(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  Ref<> answer = Ref<>::steal(PyObject_Vectorcall(arguments[0], arguments + 1, std::size_t(count - 1), nullptr));
  if (answer) return PyUnicode_FromString("");
  return told_of_error(Ref<>::steal(fj_take_exception()).get()).release();
}

/// One object for equal tuples, so that a question asked twice has one source.
PyObject* one_of_equals(PyObject* tuple) {
  PyObject* const known = once([] { return PyDict_New(); });
  return PyDict_SetDefault(known, tuple, tuple);
}

/// As the question raises, which a guard asks for again: torch's about a device whose driver is missing.
[[noreturn]] void raise_answer(TraceRun& t, const V& callable, PyObject* function, PyObject* arguments) {
  const Ref<> error = Ref<>::steal(fj_take_exception());
  const Ref<> first = Ref<>::steal(PyTuple_Pack(1, function));
  const Ref<> all = Ref<>::steal(PySequence_Concat(first.get(), arguments));
  const Ref<> text = told_of_error(error.get());
  if (!all || !text) raise_python_error(t);
  guard_value(t, *as<ObjectValue>(callable));
  PyObject* const question = c_function<ask_for_error>("raises");
  add_guard(t, GuardKind::Equals,
            t.sources().make(SourceKind::Answer, t.sources().constant(question), 0, one_of_equals(all.get())),
            text.get());
  fj_restore_exception(Ref<>(error).release());
  raise_python_error(t);
}

/// The answer of now, which a guard asks for again. Null: arguments that are not known, or an answer that is no plain
/// value.
V ask(TraceRun& t, const V& callable, PyObject* function, const std::vector<V>& positional, const Keywords& keywords) {
  if (!keywords.empty()) return nullptr;
  Ref<> arguments = Ref<>::steal(PyTuple_New(Py_ssize_t(positional.size())));
  for (std::size_t i = 0; i < positional.size(); ++i) {
    PyObject* object = t.constant_object(positional[i]);
    if (!object || !PyUnicode_CheckExact(object)) return nullptr;
    PyTuple_SET_ITEM(arguments.get(), Py_ssize_t(i), Py_NewRef(object));
  }
  PyObject* const key = one_of_equals(arguments.get());
  Ref<> answer = Ref<>::steal(PyObject_CallObject(function, key));
  if (!answer) raise_answer(t, callable, function, key);
  if (!is_plain(answer.get()) && !dtype_from_object(answer.get())) return nullptr;
  guard_value(t, *as<ObjectValue>(callable));
  // What a traced `with` has set for the CPU; what was set before it is guarded.
  const bool about_cpu = positional.empty() || text_of(PyTuple_GET_ITEM(key, 0)) == "cpu";
  if (t.modes->autocast.begun() && about_cpu &&
      std::strstr(reinterpret_cast<PyCFunctionObject*>(function)->m_ml->ml_name, "autocast"))
    return wrap_constant(t, t.keep(answer).get());
  return t.wrap(t.keep(answer).get(), t.sources().make(SourceKind::Answer, t.sources().constant(function), 0, key));
}

/// Of (tensor): whether its elements are all there is in its memory and begin it, and nothing else goes with it. Guards
/// ask.
PyObject* ask_whether_whole(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  const auto number = [&](PyObject* owner, const char* method) {
    const Ref<> found = owner ? Ref<>::steal(PyObject_CallMethod(owner, method, nullptr)) : Ref<>();
    return found ? PyLong_AsLongLong(found.get()) : -1;
  };
  const Ref<> memory = Ref<>::steal(PyObject_CallMethod(arguments[0], "untyped_storage", nullptr));
  const Ref<> attributes = attribute(arguments[0], "__dict__");
  const long long bytes = number(memory.get(), "nbytes");
  const bool whole = bytes >= 0 && number(arguments[0], "storage_offset") == 0 &&
                     bytes == number(arguments[0], "numel") * number(arguments[0], "element_size") && attributes &&
                     PyDict_Check(attributes.get()) && PyDict_GET_SIZE(attributes.get()) == 0;
  PyErr_Clear();
  return PyBool_FromLong(whole);
}

/// copy.deepcopy() of a tensor that is all there is in its memory, which is what torch copies. Null: of another one.
V deep_copy(TraceRun& t, const V& value) {
  auto array = std::dynamic_pointer_cast<ArrayValue>(value);
  if (!array || array->library != Library::Torch || array->parameter || array->requires_grad) return nullptr;
  const FakeStorage& storage = *array->storage;
  const bool plain = storage.library == Library::Torch && !storage.inference && !t.modes->now.inference &&
                     !storage.made_as_view && array->view.empty() && !array->is_view && !array->detached &&
                     !is_complex(array->dtype);
  if (!plain || t.requires_gradient(*array)) return nullptr;
  if (storage.input_array) {
    if (storage.input_array != array.get() || !value->source) return nullptr;
    PyObject* const question = c_function<ask_whether_whole>("is_whole");
    const Ref<> object = t.sources().fetch(value->source, t.request.values);
    const Ref<> answer = object ? t.keep(Ref<>::steal(PyObject_CallOneArg(question, object.get()))) : Ref<>();
    if (!answer ||
        !t.truth(t.wrap(answer.get(), t.sources().make(SourceKind::AnswerAbout, value->source, 0, question))))
      return nullptr;
    if (!t.is_none(t.gradient_field(value))) return nullptr;
  }
  const Strides strides = like_strides(t, Library::Torch, {array->shape, array->strides});
  if (strides != array->strides) return nullptr;
  Array copy = t.new_array(Library::Torch, same_again(t, t.read(*array)), strides);
  *copy->torch_version = 1;  // torch puts the memory into a tensor that it has made
  return copy;
}

}  // namespace

void ask_empty_caches(TraceRun& t) {
  for (const auto& [wrapper, arguments] : t.learnt.empty_caches)
    t.constant_object(answer_of_cache(t, wrapper.get(), arguments, nullptr));
}

bool is_enum_type(PyTypeObject* type) {
  const char* meta = Py_TYPE(type)->tp_name;
  return !std::strcmp(meta, "EnumType") || !std::strcmp(meta, "EnumMeta");
}

V enum_member(TraceRun& t, PyTypeObject* type, const std::vector<V>& positional, const Keywords& keywords) {
  Ref<> value = positional.size() == 1 && keywords.empty() ? t.constant_object(number_part(t, positional[0])) : Ref<>();
  PyObject* given = positional.size() == 1 ? t.constant_object(positional[0]) : nullptr;
  if (!value || !given || !(is_plain(given) || is_enum_member(given))) return nullptr;
  Ref<> missing = attribute(reinterpret_cast<PyObject*>(type), "_missing_");
  if (!missing || module_of(missing.get()) != "enum") return nullptr;
  guard_type_version(t, type);
  Ref<> member = Ref<>::steal(PyObject_CallOneArg(reinterpret_cast<PyObject*>(type), given));
  if (!member) raise_python_error(t);
  return wrap_constant(t, t.keep(member).get());
}

V make_functional(TraceRun& t, PyTypeObject* type, const std::vector<V>& positional, const Keywords& keywords) {
  const std::string_view name = type->tp_name;
  if (name == "types.SimpleNamespace" && positional.empty()) {
    auto instance = std::make_shared<InstanceValue>();
    instance->type = Ref<PyTypeObject>::borrow(type);
    for (auto& [key, value] : keywords)
      instance->attributes.emplace_back(Ref<>::steal(PyUnicode_InternFromString(key.c_str())), value);
    return instance;
  }
  const bool limits = (name == "torch.finfo" || name == "torch.iinfo") && positional.size() == 1 && keywords.empty();
  // Of an index alone it is a device of the accelerator that there is.
  const bool device = name == "torch.device" && !positional.empty() && positional[0]->kind == ValueKind::Object &&
                      !PyLong_Check(as<ObjectValue>(positional[0])->object.get());
  const bool getter = name == "operator.attrgetter" || name == "operator.itemgetter" || name == "operator.methodcaller";
  if (!limits && !device && !getter)
    return nullptr;
  Ref<> arguments = Ref<>::steal(PyTuple_New(Py_ssize_t(positional.size())));
  for (std::size_t i = 0; i < positional.size(); ++i) {
    const bool symbol = positional[i]->kind == ValueKind::SymInt;
    Ref<> object = t.constant_object(symbol ? t.integer(*t.constant_int(positional[i])) : V(positional[i]));
    if (!object) return nullptr;
    PyTuple_SET_ITEM(arguments.get(), Py_ssize_t(i), object.release());
  }
  Ref<> names = Ref<>::steal(PyDict_New());
  for (auto& [key, value] : keywords) {
    PyObject* object = t.constant_object(value);
    if (!object) return nullptr;
    PyDict_SetItemString(names.get(), key.c_str(), object);
  }
  Ref<> made = Ref<>::steal(PyObject_Call(reinterpret_cast<PyObject*>(type), arguments.get(), names.get()));
  if (!made) raise_python_error(t);
  return wrap_constant(t, t.keep(made).get());
}

V call_functional(TraceRun& t, const V& callable, std::vector<V>& positional, Keywords& keywords) {
  auto& known = *as<ObjectValue>(callable);
  PyObject* object = known.object.get();
  const std::string_view type = Py_TYPE(object)->tp_name;
  if (PyWeakref_CheckRefExact(object) && positional.empty() && keywords.empty()) return referent(t, known);
  if (is_query(object)) return ask(t, callable, object, positional, keywords);
  if (is_query_about(object)) return ask_about(t, callable, object, positional, keywords);
  if (type == "functools._lru_cache_wrapper") return call_lru_cache(t, callable, object, positional, keywords);
  const bool attributes = type == "operator.attrgetter", items = type == "operator.itemgetter",
             method = type == "operator.methodcaller";
  if ((!attributes && !items && !method) || positional.size() != 1 || !keywords.empty()) return nullptr;
  // Its parts are what it pickles as: (class, arguments), or a partial of the class for a methodcaller with keywords.
  Ref<> reduce = t.keep(attribute(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__reduce__"));
  Ref<> found = reduce ? t.keep(Ref<>::steal(PyObject_CallOneArg(reduce.get(), object))) : Ref<>();
  if (!found || !PyTuple_Check(found.get()) || PyTuple_GET_SIZE(found.get()) != 2) {
    PyErr_Clear();
    return nullptr;
  }
  const bool constant = !known.source || known.source->kind == SourceKind::Constant;
  const bool named = !PyType_Check(PyTuple_GET_ITEM(found.get(), 0));
  guard_type(t, known);
  if (!constant && named) add_guard(t, GuardKind::Identity, known.source, object);
  V parts = constant || named
                ? wrap_constant(t, found.get())
                : t.wrap(found.get(), t.sources().make(SourceKind::AnswerAbout, known.source, 0, reduce.get()));
  const std::vector<V> pair = t.sequence_items(parts), arguments = t.sequence_items(pair[1]);
  if (!t.constant_object(pair[0]) && !named) return nullptr;
  const V& owner = positional[0];
  if (method) {
    Keywords given;
    std::vector<V> values = arguments;
    if (named) {
      // (partial(methodcaller, name, **keywords), arguments)
      PyObject* partial = PyTuple_GET_ITEM(found.get(), 0);
      Ref<> bound = t.keep(attribute(partial, "args")), keyword_values = t.keep(attribute(partial, "keywords"));
      if (!bound || !keyword_values || PyTuple_GET_SIZE(bound.get()) < 1) return nullptr;
      values.insert(values.begin(), wrap_constant(t, PyTuple_GET_ITEM(bound.get(), 0)));
      PyObject *key, *value;
      Py_ssize_t position = 0;
      while (PyDict_Next(keyword_values.get(), &position, &key, &value))
        given.emplace_back(text_of(key), wrap_constant(t, value));
    }
    PyObject* name = t.constant_object(values.at(0));
    values.erase(values.begin());
    V bound = find_attribute(t, owner, name);
    if (!bound) raise_no_attribute(t, owner, name);
    return t.call(bound, std::move(values), std::move(given));
  }
  std::vector<V> results;
  for (const V& argument : arguments) {
    if (items) {
      results.push_back(t.get_item(owner, argument));
      continue;
    }
    V found = owner;
    std::string path = text_of(t.constant_object(argument));
    while (!path.empty()) {
      const auto dot = path.find('.');
      Ref<> name = t.keep(Ref<>::steal(PyUnicode_InternFromString(path.substr(0, dot).c_str())));
      V next = find_attribute(t, found, name.get());
      if (!next) raise_no_attribute(t, found, name.get());
      found = next;
      path = dot == std::string::npos ? "" : path.substr(dot + 1);
    }
    results.push_back(found);
  }
  return results.size() == 1 ? results[0] : t.tuple(results);
}

V call_library_object(TraceRun& t, const V& callable, std::vector<V>& positional, Keywords& keywords) {
  auto& known = *as<ObjectValue>(callable);
  PyObject* object = known.object.get();
  if (is_function_of(object, "functools", "singledispatch.<locals>.wrapper")) {
    guard_value(t, known);
    Ref<> dispatch = attribute(object, "dispatch");
    V chosen = positional.empty() ? nullptr : dispatched(t, dispatch.get(), t.type_of(positional[0]));
    return chosen ? t.call(chosen, positional, keywords) : nullptr;
  }
  if (is_function_of(object, "functools", "singledispatch.<locals>.dispatch") && positional.size() == 1 &&
      keywords.empty()) {
    guard_value(t, known);
    PyObject* type = t.constant_object(positional[0]);
    return type && PyType_Check(type) ? dispatched(t, object, reinterpret_cast<PyTypeObject*>(type)) : nullptr;
  }
  if (is_function_of(object, "copy", "deepcopy") && positional.size() == 1 && keywords.empty()) {
    guard_value(t, known);
    return deep_copy(t, positional[0]);
  }
  if (is_function_of(object, "dataclasses", "_recursive_repr.<locals>.wrapper") ||
      is_function_of(object, "reprlib", "recursive_repr.<locals>.decorating_function.<locals>.wrapper")) {
    // Without its watch over objects in themselves: those end at the limit of nested calls.
    guard_value(t, known);
    PyObject* inner = free_variable(object, "user_function");
    return inner ? t.call(wrap_constant(t, inner), positional, keywords) : nullptr;
  }
  if (keywords.empty() && is_pure_enum_function(object)) return call_enum_function(t, callable, object, positional);
  return nullptr;
}

}  // namespace fj
