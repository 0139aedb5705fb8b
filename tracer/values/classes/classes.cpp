/// Classes: making their instances by __new__ and __init__, and the methods that C code gives them.
///
/// Python code of a class is inlined; what is left is the C code of its builtin base: object, list, dict, set, tuple,
/// int, float, str... An instance of a class derived from one of those has its container or number in `contents`. Start
/// at `call_type` and `call_builtin_method`.
#include "tracer/values/classes/classes.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "segment/recipe.h"
#include "tracer/frontends/numpy/calls.h"
#include "tracer/interpreter/calls.h"
#include "tracer/interpreter/exceptions.h"
#include "tracer/interpreter/scopes.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/modes/modes.h"
#include "tracer/modes/python_random.h"
#include "tracer/state/class_ledger.h"
#include "tracer/values/classes/attribute_writes.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/classes/class_statement.h"
#include "tracer/values/containers/containers.h"
#include "tracer/values/containers/dicts.h"
#include "tracer/values/containers/iterators.h"
#include "tracer/values/generators.h"
#include "tracer/values/numbers/operators.h"
#include "tracer/values/outside_objects.h"
#include "tracer/values/proxies.h"
#include "tracer/values/standard_callables.h"
#include "tracer/values/text.h"

namespace fj {

static V make_instance(TraceRun& t, PyTypeObject* type, std::vector<V> positional, Keywords keywords);
static V make_named_tuple(TraceRun& t, PyTypeObject* type, const std::vector<V>& positional, const Keywords& keywords);
static V object_method(TraceRun& t, const V& owner, const std::string& name, std::vector<V>& positional,
                       Keywords& keywords);

namespace {

bool is_exception_type(PyTypeObject* type) {
  return PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(PyExc_BaseException));
}

/// Immutable and plain: an instance of a derived class holds a constant.
bool is_number_or_text(PyTypeObject* type) {
  return type == &PyLong_Type || type == &PyFloat_Type || type == &PyUnicode_Type || type == &PyComplex_Type ||
         type == &PyBytes_Type;
}

std::string type_name(PyTypeObject* type) {
  Ref<> name = Ref<>::steal(PyType_GetQualName(type));
  return text_of(name.get());
}

/// Fields of a class made by collections.namedtuple or typing.NamedTuple; null: another class.
Ref<> named_fields(PyTypeObject* type) {
  if (!PyType_IsSubtype(type, &PyTuple_Type) || type == &PyTuple_Type) return {};
  static PyObject* const fields_name = intern("_fields");
  static PyObject* const defaults_name = intern("_field_defaults");
  PyObject* fields = fj_type_lookup(type, fields_name);
  PyObject* defaults = fj_type_lookup(type, defaults_name);
  return fields && PyTuple_Check(fields) && defaults && PyDict_Check(defaults) ? Ref<>::borrow(fields) : Ref<>();
}

}  // namespace

bool is_plain_named_tuple(PyTypeObject* type) {
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE) || !named_fields(type) || type->tp_dictoffset != 0) return false;
  // All that a class body gives such a class without saying anything about how its instances behave, and what
  // namedtuple() makes.
  PyObject* const known_names = once([] {
    PyObject* names = PySet_New(nullptr);
    for (const char* name :
         {"__module__", "__doc__", "__slots__", "__annotations__", "__annotate__", "__annotate_func__",
          "__annotations_cache__", "__orig_bases__", "__parameters__", "__type_params__", "__static_attributes__",
          "__firstlineno__", "__classdictcell__", "__class_getitem__", "__init_subclass__"})
      PySet_Add(names, intern(name));
    Ref<> maker = imported("collections", "namedtuple");
    Ref<> made = maker ? Ref<>::steal(PyObject_CallFunction(maker.get(), "ss", "made", "field")) : Ref<>();
    FJ_CHECK(names && made, "collections.namedtuple");
    PyObject *name, *value;
    for (Py_ssize_t at = 0; PyDict_Next(reinterpret_cast<PyTypeObject*>(made.get())->tp_dict, &at, &name, &value);)
      PySet_Add(names, name);
    return names;
  });
  // Any other special name may be one that C code asks an instance's class for.
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    if (!(base->tp_flags & Py_TPFLAGS_HEAPTYPE)) continue;
    PyObject *name, *value;
    for (Py_ssize_t at = 0; PyDict_Next(base->tp_dict, &at, &name, &value);)
      if (PyUnicode_Check(name) && text_of(name).starts_with("__") && PySet_Contains(known_names, name) != 1)
        return false;
  }
  // Its text is made by the module collections.
  static PyObject* const repr_name = intern("__repr__");
  static PyObject* const module_name = intern("__name__");
  PyObject* repr = fj_type_lookup(type, repr_name);
  PyObject* module =
      repr && PyFunction_Check(repr) ? PyDict_GetItemWithError(PyFunction_GET_GLOBALS(repr), module_name) : nullptr;
  return module && PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, "collections") == 0;
}

namespace {

/// OrderedDict's C code stores and deletes by what a derived class makes of it.
bool has_items_of_ordered_dict(TraceRun& tracer, PyTypeObject* type) {
  static PyObject* const names[] = {intern("__setitem__"), intern("__getitem__"), intern("__delitem__"),
                                    intern("__contains__"), intern("__missing__")};
  return std::all_of(std::begin(names), std::end(names), [&](PyObject* name) {
    return class_attribute(tracer, type, name) == fj_type_lookup(&PyODict_Type, name);
  });
}

}  // namespace

/// What `base.__new__(type, ...)` makes where base is C code: an instance without its attributes.
V new_instance(TraceRun& t, PyTypeObject* type, const std::vector<V>& positional, const Keywords& keywords) {
  auto unknown = [&]() { break_graph(BreakReason::UnknownCall, type_name(type) + "()"); };
  static PyObject* const del_name = intern("__del__");
  PyTypeObject* base = builtin_base(type);
  guard_bases(t, type);
  static PyObject* const abstract_name = intern("__abstractmethods__");
  class_attribute(t, type, abstract_name);  // the flag follows it
  if (class_attribute(t, type, del_name) || type->tp_flags & Py_TPFLAGS_IS_ABSTRACT) unknown();
  if (PyType_IsSubtype(type, &PyTuple_Type)) {
    if (positional.size() > 1 || !keywords.empty()) unknown();
    std::vector<V> items = positional.empty() ? std::vector<V>() : t.sequence_items(positional[0]);
    auto tuple = std::make_shared<TupleValue>();
    tuple->items = std::move(items);
    if (type == &PyTuple_Type) return tuple;
    if (is_plain_named_tuple(type)) {
      tuple->type = Ref<>::borrow(reinterpret_cast<PyObject*>(type));
      return tuple;
    }
    auto instance = std::make_shared<InstanceValue>();
    instance->type = Ref<PyTypeObject>::borrow(type);
    instance->contents = tuple;
    return instance;
  }
  if (is_exception_type(type)) return make_exception(t, type, positional, {});
  auto instance = std::make_shared<InstanceValue>();
  instance->type = Ref<PyTypeObject>::borrow(type);
  if (is_number_or_text(base)) {
    V contents = t.call(wrap_constant(t, reinterpret_cast<PyObject*>(base)), positional, keywords);
    auto* constant = as<ObjectValue>(contents);
    if (!constant || Py_TYPE(constant->object.get()) != base) unknown();
    if (type == base) return contents;
    instance->contents = contents;
  } else if (base == &PyList_Type) {
    instance->contents = std::make_shared<ListValue>();
  } else if (base == &PyDict_Type || base == &PyODict_Type ||
             base == reinterpret_cast<PyTypeObject*>(defaultdict_type())) {
    auto dict = std::make_shared<DictValue>();
    if (base != &PyDict_Type) dict->type = Ref<>::borrow(reinterpret_cast<PyObject*>(base));
    instance->contents = dict;
  } else if (base == &PySet_Type) {
    instance->contents = std::make_shared<SetValue>();
  } else if (base != &PyBaseObject_Type) {
    unknown();
  }
  // An exact builtin container is the Value itself.
  return type == base && instance->contents ? instance->contents : V(instance);
}

V make_instance(TraceRun& t, PyTypeObject* type, std::vector<V> positional, Keywords keywords) {
  static PyObject* const new_name = intern("__new__");
  static PyObject* const init_name = intern("__init__");
  guard_bases(t, type);
  PyObject* maker = class_attribute(t, type, new_name);
  PyObject* init = class_attribute(t, type, init_name);
  const bool own_new = maker && Py_TYPE(maker) == &PyStaticMethod_Type;
  bool own_init = init && is_python_method(t, init);
  V made;
  if (is_plain_named_tuple(type)) {
    // The __new__ of a namedtuple is generated code: what it does, by the fields.
    if (V tuple = make_named_tuple(t, type, positional, keywords)) return tuple;
  }
  if (own_new || (maker && is_python_method(t, maker))) {
    Ref<> function = own_new ? Ref<>::steal(PyObject_GetAttrString(maker, "__func__")) : Ref<>::borrow(maker);
    std::vector<V> arguments = positional;
    arguments.insert(arguments.begin(), wrap_constant(t, reinterpret_cast<PyObject*>(type)));
    made = t.call(wrap_constant(t, t.keep(function).get()), std::move(arguments), keywords);
  } else if (builtin_base(type) == &PyBaseObject_Type) {
    // An __init__ of C code fills fields that nobody here knows.
    if (init && !own_init && type->tp_init != PyBaseObject_Type.tp_init)
      break_graph(BreakReason::UnknownCall, type_name(type) + "()");
    if ((!positional.empty() || !keywords.empty()) && !own_init) {
      if (type->tp_init == PyBaseObject_Type.tp_init)
        raise(t, PyExc_TypeError, {t.string(std::string(type->tp_name) + "() takes no arguments")},
              BreakReason::ErrorWhileTracing, "arguments of " + std::string(type->tp_name));
      break_graph(BreakReason::UnknownCall, type_name(type) + "()");
    }
    made = new_instance(t, type, {}, {});
  } else {
    made = new_instance(t, type, positional, keywords);
  }
  const bool is_one =
      (made->kind == ValueKind::Instance || made->kind == ValueKind::Tuple || made->kind == ValueKind::Dict ||
       made->kind == ValueKind::List || made->kind == ValueKind::Set || made->kind == ValueKind::Object) &&
      PyType_IsSubtype(t.type_of(made), type);
  if (!is_one) return made;
  if (PyTypeObject* other = t.type_of(made); other != type) {
    // A __new__ that made an object of a derived class: the object's own __init__ runs.
    init = class_attribute(t, other, init_name);
    own_init = init && is_python_method(t, init);
    if (!own_init && other->tp_init != PyBaseObject_Type.tp_init)
      break_graph(BreakReason::UnknownCall, type_name(type) + "()");
  }
  if (own_init) {
    positional.insert(positional.begin(), made);
    V nothing = t.call(wrap_constant(t, init), std::move(positional), std::move(keywords));
    if (!t.is_none(nothing)) break_graph(BreakReason::ErrorWhileTracing, "__init__() that returns something");
  } else if (V part = made->kind == ValueKind::Instance ? as<InstanceValue>(made)->contents : made;
             part && (part->kind == ValueKind::List || part->kind == ValueKind::Dict ||
                      (part->kind == ValueKind::Set && !as<SetValue>(part)->frozen))) {
    if (t.type_of(part) == &PyODict_Type && type != &PyODict_Type && !has_items_of_ordered_dict(t, type))
      break_graph(BreakReason::UnknownCall, type_name(type) + "()");
    container_method(t, part, "__init__", positional, keywords);
  }
  return made;
}

/// Null: not by its fields alone (a __new__ of its own, wrong arguments).
V make_named_tuple(TraceRun& t, PyTypeObject* type, const std::vector<V>& positional, const Keywords& keywords) {
  static PyObject* const new_name = intern("__new__");
  PyObject* own = type->tp_dict ? fj_type_lookup(type, new_name) : nullptr;
  Ref<> function = own && Py_TYPE(own) == &PyStaticMethod_Type ? Ref<>::steal(PyObject_GetAttrString(own, "__func__"))
                                                               : Ref<>::borrow(own);
  if (!function || !PyFunction_Check(function.get())) return nullptr;
  const std::string file = text_of(
      reinterpret_cast<PyCodeObject*>(reinterpret_cast<PyFunctionObject*>(function.get())->func_code)->co_filename);
  if (file.find("<string>") == std::string::npos) return nullptr;
  Ref<> fields = named_fields(type);
  Ref<> defaults = Ref<>::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "_field_defaults"));
  const auto count = std::size_t(PyTuple_GET_SIZE(fields.get()));
  if (positional.size() > count) return nullptr;
  std::vector<V> items = positional;
  items.resize(count);
  for (auto& [name, value] : keywords) {
    std::size_t place = 0;
    while (place < count && text_of(PyTuple_GET_ITEM(fields.get(), place)) != name) ++place;
    if (place == count || items[place]) return nullptr;
    items[place] = value;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (items[i]) continue;
    PyObject* value = PyDict_GetItemWithError(defaults.get(), PyTuple_GET_ITEM(fields.get(), Py_ssize_t(i)));
    if (!value) return nullptr;
    items[i] = t.wrap(value, t.sources().constant(value));
  }
  auto tuple = std::make_shared<TupleValue>();
  tuple->type = Ref<>::borrow(reinterpret_cast<PyObject*>(type));
  tuple->items = std::move(items);
  return tuple;
}

V call_type(TraceRun& t, const V& callable, PyTypeObject* type, std::vector<V> positional, Keywords keywords) {
  if (!std::strcmp(type->tp_name, "functools.partial") && !positional.empty())
    return make_partial(t, type, positional, std::move(keywords));
  if (V mode = make_mode(t, callable, type, positional, keywords)) return mode;
  if (type == &PyMethod_Type && positional.size() == 2 && keywords.empty())
    return bound_method(t, positional[0], positional[1]);
  static PyObject* const call_name = intern("__call__");
  PyTypeObject* meta = Py_TYPE(type);
  if (PyObject* own = class_attribute(t, meta, call_name); own && is_python_method(t, own)) {
    if (is_enum_type(type))
      if (V member = enum_member(t, type, positional, keywords)) return member;
    positional.insert(positional.begin(), callable);
    return t.call(wrap_constant(t, own), std::move(positional), std::move(keywords));
  }
  if (is_exception_type(type)) return make_exception(t, type, std::move(positional), std::move(keywords));
  if (type == deque_type()) return make_deque(t, type, std::move(positional), std::move(keywords));
  if (type == &PyDictProxy_Type && positional.size() == 1 && keywords.empty()) {
    auto instance = std::make_shared<InstanceValue>();
    instance->type = Ref<PyTypeObject>::borrow(type);
    // What a derived class defines is asked through it.
    if (positional[0]->kind != ValueKind::Dict)
      break_graph(BreakReason::UnknownCall, type_name(type) + "() of " + describe(positional[0]));
    instance->contents = positional[0];
    return instance;
  }
  if (V made = make_class_wrapper(t, type, positional, keywords)) return made;
  if (V made = make_functional(t, type, positional, keywords)) return made;
  const bool python_class = (type->tp_flags & Py_TPFLAGS_HEAPTYPE) && meta->tp_call == PyType_Type.tp_call;
  const bool container =
      type == &PyBaseObject_Type || type == &PyODict_Type || reinterpret_cast<PyObject*>(type) == defaultdict_type();
  PyTypeObject* base = builtin_base(type);
  const bool known_base = base == &PyBaseObject_Type || base == &PyList_Type || base == &PyDict_Type ||
                          base == &PySet_Type || base == &PyTuple_Type || base == &PyODict_Type ||
                          reinterpret_cast<PyObject*>(base) == defaultdict_type() || is_number_or_text(base);
  if (known_base && (container || python_class))
    return make_instance(t, type, std::move(positional), std::move(keywords));
  break_graph(BreakReason::UnknownCall, type_name(type) + "()");
}

// ---- methods of C code

V call_builtin_method(TraceRun& t, BuiltinValue& method, std::vector<V> positional, Keywords keywords) {
  const V owner = method.owner;
  const std::string& name = method.name;
  if (V done = call_mode_method(t, owner, name)) return done;
  if (auto* object = as<ObjectValue>(owner); object && is_lock(object->object.get()))
    break_graph(BreakReason::Lock, t.source_text());
  if (V done = keywords.empty() ? call_context_variable(t, owner, name, positional) : nullptr) return done;
  if (auto* object = as<ObjectValue>(owner))
    if (PyObject* drawing = python_random_method(object->object.get(), name)) {
      positional.insert(positional.begin(), owner);
      if (V drawn = call_python_random(t, drawing, positional, keywords)) return drawn;
      positional.erase(positional.begin());
    }
  const std::size_t count = positional.size();
  if (method.descriptor &&
      (owner->kind == ValueKind::Dict || owner->kind == ValueKind::Instance || owner->kind == ValueKind::Object)) {
    // dict.__delitem__(ordered, key) goes behind the OrderedDict's back.
    V part = owner->kind == ValueKind::Dict ? owner : builtin_part(t, owner);
    const bool beneath =
        part && part->kind == ValueKind::Dict && t.type_of(part) == &PyODict_Type && name != "__class__" &&
        (Py_TYPE(method.descriptor.get()) == &PyMethodDescr_Type ||
         Py_TYPE(method.descriptor.get()) == &PyWrapperDescr_Type) &&
        PyDescr_TYPE(method.descriptor.get()) == &PyDict_Type &&
        fj_type_lookup(&PyODict_Type, PyDescr_NAME(method.descriptor.get())) != method.descriptor.get();
    if (beneath) break_graph(BreakReason::UnsupportedObject, "a method of dict on an OrderedDict");
  }
  switch (owner->kind) {
    case ValueKind::Array:
      if (as<ArrayValue>(owner)->library == Library::Numpy &&
          ((name == "__copy__" && count == 0) || (name == "__deepcopy__" && count == 1)))
        return as<ArrayValue>(owner)->numpy_scalar ? owner : array_method(t, owner, "copy", {{t.string("K")}, {}});
      return array_method(t, owner, name, {std::move(positional), std::move(keywords)});
    case ValueKind::List: case ValueKind::Dict: case ValueKind::Set:
      if (name == "__reduce_ex__" || name == "__reduce__") break;
      return container_method(t, owner, name, positional, keywords);
    case ValueKind::Tuple: return container_method(t, owner, name, positional, keywords);
    case ValueKind::Range:
      if (keywords.empty() && count == 1 && (name == "index" || name == "count")) {
        std::vector<V> given = positional;
        V items = t.tuple(t.sequence_items(owner));
        return container_method(t, items, name, given, keywords);
      }
      break;
    case ValueKind::Slice:
      if (name == "indices" && count == 1) {
        auto size = t.constant_int(positional[0]);
        PyObject* slice = size ? t.constant_object(owner) : nullptr;
        if (!slice) break;
        Ref<> bounds = Ref<>::steal(PyObject_CallMethod(slice, "indices", "L", static_cast<long long>(*size)));
        if (!bounds) raise_python_error(t);
        return wrap_constant(t, t.keep(bounds).get());
      }
      break;
    case ValueKind::Function:
      if (name == "__get__" && count >= 1)
        return t.is_none(positional[0]) ? owner : bound_method(t, owner, positional[0]);
      break;
    case ValueKind::Iterator:
      if (keywords.empty())
        if (V result = iterator_method(t, owner, name, positional)) return result;
      break;
    case ValueKind::Instance: case ValueKind::Object:
      if (name == "with_traceback" && count == 1 && keywords.empty() &&
          set_exception_attribute(t, owner, "__traceback__", positional[0]))
        return owner;
      if (V done = object_method(t, owner, name, positional, keywords)) return done;
      break;
    case ValueKind::SymInt: {
      BuiltinValue settled;
      settled.owner = t.integer(*t.constant_int(owner));
      settled.name = name;
      return call_builtin_method(t, settled, std::move(positional), std::move(keywords));
    }
    default: break;
  }
  break_graph(BreakReason::UnknownCall, "method " + name + " of " + describe(owner));
}

V bound_method(TraceRun& t, const V& function, const V& self) {
  auto method = std::make_shared<BoundMethodValue>();
  method->function = function;
  method->self = self;
  return method;
}

namespace {

/// What object.__reduce_ex__ gives for the copy module: (copyreg.__newobj__, (class, *arguments), state, items, pairs).
V reduced(TraceRun& tracer, const V& owner) {
  PyTypeObject* type = tracer.type_of(owner);
  static PyObject* const state_name = intern("__getstate__");
  static PyObject* const special[] = {intern("__getnewargs_ex__"), intern("__getnewargs__"), intern("__reduce__")};
  for (PyObject* name : special) {
    PyObject* found = class_attribute(tracer, type, name);
    if (found && is_python_method(tracer, found)) return nullptr;
  }
  if (is_exception_type(type) || (owner->kind == ValueKind::Object && !as<ObjectValue>(owner)->source)) return nullptr;
  Ref<> maker = imported("copyreg", "__newobj__");
  if (!maker) return nullptr;
  // The names of slots that copyreg has noted, or a class claims to have.
  static PyObject* const slot_names = intern("__slotnames__");
  if (PyObject* names = fj_type_lookup(type, slot_names)) {
    class_attribute(tracer, type, slot_names);
    if (!PyList_CheckExact(names)) return nullptr;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names); ++i) {
      PyObject* member = fj_type_lookup(type, PyList_GET_ITEM(names, i));
      if (!member || Py_TYPE(member) != &PyMemberDescr_Type) return nullptr;
    }
  }
  V state;
  PyObject* own_state = class_attribute(tracer, type, state_name);
  if (own_state && is_python_method(tracer, own_state)) {
    state = tracer.call(bind_class_attribute(tracer, own_state, owner, type), {}, {});
  } else {
    // The dict itself, and what slots hold beside it.
    static PyObject* const dict_name = intern("__dict__");
    PyObject* has_dict = fj_type_lookup(type, dict_name);
    auto slots = std::make_shared<DictValue>();
    auto plain = std::make_shared<DictValue>();
    auto* instance = as<InstanceValue>(owner);
    bool any_slot = false;
    if (instance) {
      for (auto& [key, value] : instance->attributes) {
        PyObject* member = fj_type_lookup(type, key.get());
        const bool is_slot = member && Py_TYPE(member) == &PyMemberDescr_Type;
        any_slot = any_slot || is_slot;
        (is_slot ? slots : plain)->items.emplace_back(key, value);
      }
      state = plain->items.empty() ? tracer.none() : any_slot ? V(plain) : find_attribute(tracer, owner, dict_name);
    } else {
      for (PyTypeObject* base = type; base; base = base->tp_base)
        if (base->tp_flags & Py_TPFLAGS_HEAPTYPE && PyDict_GetItemString(base->tp_dict, "__slots__")) return nullptr;
      state = has_dict ? find_attribute(tracer, owner, dict_name) : tracer.none();
      if (auto* dict = as<DictValue>(state)) {
        open(tracer, *dict);
        if (dict->items.empty()) state = tracer.none();
      }
    }
    if (any_slot) state = tracer.tuple({state, slots});
  }
  std::vector<V> arguments{wrap_constant(tracer, reinterpret_cast<PyObject*>(type))};
  V items = tracer.none(), pairs = tracer.none();
  if (V part = builtin_part(tracer, owner)) {
    if (part->kind == ValueKind::List) items = make_iterator(tracer, part);
    else if (part->kind == ValueKind::Dict) {
      std::vector<V> none_given;
      Keywords no_keywords;
      pairs = make_iterator(tracer, container_method(tracer, part, "items", none_given, no_keywords));
    } else if (part->kind == ValueKind::Tuple || part->kind == ValueKind::Object) arguments.push_back(part);
    else return nullptr;
  }
  return tracer.tuple({wrap_constant(tracer, tracer.keep(maker).get()), tracer.tuple(arguments), state, items, pairs});
}

}  // namespace

/// The classes that are derived from a class now, which is asked for again. Null: one of them may end while the piece
/// lives, or is made here.
V subclasses(TraceRun& t, ObjectValue& known) {
  PyObject* const type = reinterpret_cast<PyObject*>(&PyType_Type);
  PyObject* const method = once([&] { return PyObject_GetAttrString(type, "__subclasses__"); });
  if (!t.classes->made.empty() || !guard_value(t, known)) return nullptr;
  const Ref<> found = t.keep(Ref<>::steal(PyObject_CallOneArg(method, known.object.get())));
  if (!found) raise_python_error(t);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(found.get()); ++i)
    if (!is_itself_alone(PyList_GET_ITEM(found.get(), i))) return nullptr;
  SourceRef source = known.source ? known.source : t.sources().constant(known.object.get());
  const V list = t.wrap(found.get(), t.sources().make(SourceKind::AnswerAbout, source, 0, method));
  std::vector<V> items = t.sequence_items(list);
  for (const V& item : items)
    if (!t.constant_object(item)) return nullptr;
  return t.list(std::move(items));
}

/// A method of `object`, `type` or of a builtin base class, on an object or instance. Null: not known.
V object_method(TraceRun& t, const V& owner, const std::string& name, std::vector<V>& positional, Keywords& keywords) {
  const std::size_t count = positional.size();
  auto* known = as<ObjectValue>(owner);
  auto* instance = as<InstanceValue>(owner);
  if (known && PyFunction_Check(known->object.get()) && name == "__get__" && count >= 1)
    return t.is_none(positional[0]) ? owner : bound_method(t, owner, positional[0]);
  if (PyObject* of_array = ndarray_method(name.c_str()); of_array && Py_TYPE(of_array) == &PyMethodDescr_Type)
    if (V scalar = t.changing_scalar(owner, true)) return array_method(t, scalar, name, {positional, keywords});
  if (known && PyType_Check(known->object.get())) {
    auto* type = reinterpret_cast<PyTypeObject*>(known->object.get());
    // type.__call__(cls, ...) reached through super() in a metaclass.
    if (name == "__call__" && guard_value(t, *known)) return make_instance(t, type, positional, keywords);
    if (name == "mro" && count == 0 && guard_value(t, *known)) {
      guard_bases(t, type);
      return t.list(t.sequence_items(wrap_constant(t, type->tp_mro)));
    }
    if (name == "__subclasses__" && count == 0 && keywords.empty()) return subclasses(t, *known);
    if (name == "__subclasses__" || name == "__prepare__") return nullptr;
    if ((name == "__instancecheck__" || name == "__subclasscheck__") && count == 1) {
      PyTypeObject* asked = name == "__instancecheck__"
                                ? t.type_of(positional[0])
                                : reinterpret_cast<PyTypeObject*>(t.constant_object(positional[0]));
      if (asked && PyType_Check(reinterpret_cast<PyObject*>(asked))) {
        guard_bases(t, asked);
        return t.boolean(PyType_IsSubtype(asked, type));
      }
    }
  }
  if (keywords.empty() && !(known && is_plain(known->object.get()))) {
    const bool by_name = name == "__getattribute__" || name == "__setattr__" || name == "__delattr__";
    PyObject* attribute =
        by_name && count >= 1 && positional[0]->kind == ValueKind::Object ? t.constant_object(positional[0]) : nullptr;
    const bool named = attribute && PyUnicode_CheckExact(attribute);
    const bool special = known && (PyType_Check(known->object.get()) || PyModule_Check(known->object.get()));
    if (name == "__getattribute__" && count == 1 && named && !special) {
      if (V found = attribute_by_default(t, owner, attribute)) return found;
      raise_no_attribute(t, owner, attribute);
    }
    if (name == "__setattr__" && count == 2 && named && !special) {
      store_attribute(t, owner, attribute, positional[1]);
      return t.none();
    }
    if (name == "__delattr__" && count == 1 && named && !special) {
      store_attribute(t, owner, attribute, nullptr);
      return t.none();
    }
    if (name == "__reduce_ex__" && count == 1) {
      auto protocol = t.constant_int(positional[0]);
      return protocol && *protocol >= 2 ? reduced(t, owner) : nullptr;
    }
    if (name == "__reduce__" && count == 0) return nullptr;
    if (name == "__getstate__" && count == 0) {
      V parts = reduced(t, owner);
      return parts ? as<TupleValue>(parts)->items[2] : nullptr;
    }
    if (name == "__init_subclass__" && count == 0) return t.none();
    if (name == "__dir__" && count == 0) return nullptr;
  }
  if (instance && is_exception_type(instance->type.get()) && keywords.empty()) {
    if (name == "__init__") {
      instance->args = positional;
      return t.none();
    }
  }
  if (instance && name == "__str__" && count == 0 && is_exception_type(instance->type.get())) return str_of(t, owner);
  PyTypeObject* type = known && is_plain(known->object.get()) ? nullptr : t.type_of(owner);
  if (V part = builtin_part(t, owner)) {
    if (part->kind == ValueKind::Object) {
      if (name == "__init__") return t.none();
    } else if (part->kind == ValueKind::Dict && name == "__getitem__" && count == 1) {
      if (V found = dict_find(t, *as<DictValue>(part), constant_key(t, positional[0]).get())) return found;
      if (V missing = python_method(t, owner, "__missing__")) return t.call(missing, positional, {});
    } else if (part->kind == ValueKind::Dict && (name == "copy" || name == "__copy__") && type == &PyDictProxy_Type) {
      return container_method(t, part, "copy", positional, keywords);
    }
    // Those of OrderedDict, deque and set make another of the class.
    static constexpr const char* kMakers[] = {"copy",         "__copy__",   "union",
                                              "intersection", "difference", "symmetric_difference"};
    const bool of_class = t.type_of(part) == &PyODict_Type ||
                          (part->kind == ValueKind::List && as<ListValue>(part)->type) || part->kind == ValueKind::Set;
    if (of_class && t.type_of(part) != type &&
        std::find(std::begin(kMakers), std::end(kMakers), name) != std::end(kMakers))
      return nullptr;
    if ((name == "copy" || name == "__copy__") && t.type_of(part) != type && count == 0 && keywords.empty()) {
      // A dict's gives a dict, a list's a list; all others' ask the class for another.
      if (t.type_of(part) == &PyDict_Type) return dict_copy(t, owner);
      if (t.type_of(part) != &PyList_Type) return nullptr;
    }
    if (t.type_of(part) == &PyODict_Type &&
        (name == "__init__" || name == "update" || name == "setdefault" || name == "pop" || name == "popitem") &&
        !has_items_of_ordered_dict(t, type))
      return nullptr;
    BuiltinValue of_part;
    of_part.owner = part;
    of_part.name = name;
    V result = call_builtin_method(t, of_part, positional, keywords);
    return result == part && part->kind != ValueKind::Tuple ? owner : result;
  }
  if (type && keywords.empty()) {
    // object.__init__; an object of a class of C that exists already may do more at its own.
    const bool initialises = known && builtin_base(type)->tp_init != PyBaseObject_Type.tp_init;
    if (name == "__init__" && !initialises && (count == 0 || type->tp_new != PyBaseObject_Type.tp_new)) return t.none();
    if (name == "__hash__" && count == 0 && instance) return nullptr;
    if (name == "__eq__" && count == 1 && instance)
      return same_object(t, owner, positional[0]) ? t.boolean(true) : wrap_constant(t, Py_NotImplemented);
    if (name == "__ne__" && count == 1 && instance) return t.compare(Py_NE, owner, positional[0]);
    if (name == "__repr__" && count == 0 && type->tp_repr != PyBaseObject_Type.tp_repr && instance) return nullptr;
    if (name == "__str__" && count == 0 && instance) return repr_of(t, owner);
    if (name == "__format__" && count == 1 && instance) return format_of(t, owner, positional[0]);
  }
  if (known && !(Py_TYPE(known->object.get())->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
    // np.add.reduce: the method of one object of a library.
    Ref<> bound = Ref<>::steal(PyObject_GetAttrString(known->object.get(), name.c_str()));
    if (!bound) PyErr_Clear();
    if (Handler handler = bound ? find_handler(bound.get()) : nullptr) {
      if (!guard_value(t, *known) && owner->source)
        add_guard(t, GuardKind::Identity, owner->source, known->object.get());
      const Tracer::Mark before = t.mark();
      try {
        return run_handler(t, handler, {positional, keywords}, bound.get());
      } catch (const BreakGraph& refused) {
        if (t.written_since(before) || refused.reason != BreakReason::UnsupportedOperation ||
            !find_numpy_call(bound.get()))
          throw;
      }
    }
    if (bound && find_numpy_call(bound.get())) {
      if (!guard_value(t, *known) && owner->source)
        add_guard(t, GuardKind::Identity, owner->source, known->object.get());
      return t.extern_call(wrap_constant(t, t.keep(bound).get()), positional, keywords);
    }
  }
  if (known)
    if (V mapping = proxied_mapping(t, owner)) return container_method(t, mapping, name, positional, keywords);
  if (V made = text_method(t, owner, name, positional, keywords)) return made;
  Ref<> known_object = Ref<>::borrow(t.constant_object(owner));
  if (known_object && is_enum_member(known_object.get()) &&
      (PyLong_Check(known_object.get()) || PyUnicode_Check(known_object.get())))
    known_object = t.constant_object(number_part(t, owner));
  PyObject* const object = known_object.get();
  if (!object || !is_plain(object)) return nullptr;
  if (name == "__new__" || name == "__class__") return nullptr;
  if (name == "join" && PyUnicode_CheckExact(object) && count == 1)
    positional[0] = t.tuple(t.sequence_items(positional[0]));
  const bool number = PyLong_Check(object) || PyFloat_Check(object) || PyComplex_Check(object);
  if (count == 1 && keywords.empty() && number && operator_method_known(name)) {
    positional[0] = number_part(t, positional[0]);
    if (positional[0]->kind == ValueKind::SymInt) positional[0] = t.integer(*t.constant_int(positional[0]));
    PyObject* other = t.constant_object(positional[0]);
    if (!other || !is_plain(other)) {
      PyTypeObject* of = t.type_of(positional[0]);
      for (PyTypeObject* kind : {&PyLong_Type, &PyFloat_Type, &PyComplex_Type})
        if (PyType_IsSubtype(of, kind)) return nullptr;
      return wrap_constant(t, Py_NotImplemented);
    }
  }
  Ref<> bound = Ref<>::steal(PyObject_GetAttrString(object, name.c_str()));
  if (!bound) break_graph(BreakReason::ErrorWhileTracing, take_error());
  const bool text = PyUnicode_CheckExact(object) &&
                    (name == "format" || name == "format_map" || name == "__mod__" || name == "translate");
  return text ? fold_reading_call(t, t.keep(bound).get(), positional, keywords)
              : fold_call(t, t.keep(bound).get(), positional, keywords);
}

}  // namespace fj
