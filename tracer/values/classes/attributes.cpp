/// `owner.name` by CPython's own rules, on Values.
///
/// For a real object the lookup is done on the real type and instance dict, and what it found is guarded: what the
/// class and its bases have under that name, the presence of the key in the instance dict, the absence where the class
/// answers. Python code on the way (property, __getattr__, descriptors) is inlined.
#include <Python.h>

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "tracer/frontends/numpy/parts.h"
#include "tracer/gradients/torch_transforms.h"
#include "tracer/interpreter/exceptions.h"
#include "tracer/interpreter/scopes.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/modes/devices.h"
#include "tracer/modes/modes.h"
#include "tracer/modes/warning_filters.h"
#include "tracer/state/class_ledger.h"
#include "tracer/state/effect_log.h"
#include "tracer/state/exception_ledger.h"
#include "tracer/state/identity.h"
#include "tracer/state/warning_ledger.h"
#include "tracer/values/classes/attribute_writes.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/classes/class_statement.h"
#include "tracer/values/classes/class_variables.h"
#include "tracer/values/classes/classes.h"
#include "tracer/values/containers/containers.h"
#include "tracer/values/containers/dicts.h"
#include "tracer/values/outside_objects.h"

namespace fj {

/// By the class's __getattribute__ and __getattr__, if it has them.
static V class_attribute_rules(TraceRun& t, const V& owner, PyObject* name);
static V object_attribute(TraceRun& t, const V& owner, ObjectValue& value, PyObject* name);
static V cached_property(TraceRun& t, const V& owner, PyObject* property, PyObject* name);
static V type_attribute(TraceRun& t, const V& owner, PyTypeObject* type, PyObject* name);
static V attribute_of_class(TraceRun& t, PyObject* found, const V& owner, PyTypeObject* type);
static V super_attribute(TraceRun& t, SuperValue& super, PyObject* name);
static void note_class(TraceRun& t, PyTypeObject* type, PyObject* name);

PyObject* intern(const char* text) {
  PyObject* name = PyUnicode_InternFromString(text);
  FJ_CHECK(name, "out of memory");
  return name;
}

/// The instance dict where the type has one. Not for types and modules' own rules.
PyObject* instance_dict(PyObject* object) {
  if (!PyType_Check(object) && Py_TYPE(object)->tp_dictoffset == 0) return nullptr;
  PyObject* dict = fj_instance_dict(object);
  PyErr_Clear();
  return dict;
}

bool is_method_of_module(PyObject* function, const char* qualname) {
  // By its own name and module, not as what nn.Module has: somebody may have put another one there.
  if (!function || !PyFunction_Check(function)) return false;
  PyObject* place = PyDict_GetItemString(PyFunction_GET_GLOBALS(function), "__name__");
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  return place && PyUnicode_Check(place) && PyUnicode_CompareWithASCIIString(place, "torch.nn.modules.module") == 0 &&
         PyUnicode_CompareWithASCIIString(code->co_qualname, qualname) == 0;
}

/// A method a class has in Python; null: C's.
PyObject* overridden(TraceRun& tracer, PyTypeObject* type, PyObject* name) {
  PyObject* found = class_attribute(tracer, type, name);
  return found && is_python_method(tracer, found) ? found : nullptr;
}

/// The type has rules of its own in C for attributes: super, weakref.proxy, thread locals. `slot`: __getattribute__ or
/// __setattr__.
bool has_own_rules(PyTypeObject* type, const char* slot, void* usual) {
  if (PyType_IsSubtype(type, &PyModule_Type) || PyType_IsSubtype(type, &PyType_Type)) return false;
  Ref<> name = Ref<>::steal(PyUnicode_InternFromString(slot));
  PyObject* rule = name ? fj_type_lookup(type, name.get()) : nullptr;
  return rule && Py_TYPE(rule) == &PyWrapperDescr_Type &&
         reinterpret_cast<PyWrapperDescrObject*>(rule)->d_wrapped != usual;
}

namespace {

PyObject* dict_get(PyObject* dict, PyObject* name) {
  PyObject* found = dict ? PyDict_GetItemWithError(dict, name) : nullptr;
  if (!found) PyErr_Clear();
  return found;
}

/// Callables of C that bind as functions do.
bool is_function_like(PyObject* object) {
  const char* type = Py_TYPE(object)->tp_name;
  return is_random_method(object) || (Py_TYPE(object) == &PyMethodDescr_Type && is_python_random_method(object)) ||
         !std::strcmp(type, "numpy._ArrayFunctionDispatcher") || !std::strcmp(type, "framejit.CompiledFunction");
}

bool is_cached_property(PyObject* object) {
  PyObject* const type = once([] {
    PyObject* found = imported("functools", "cached_property").release();
    FJ_CHECK(found, "functools.cached_property");
    return found;
  });
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) == type;
}

/// The descriptor of a field of a named tuple.
bool is_tuple_getter(PyObject* object) {
  PyObject* const type = once([] { return imported("_collections", "_tuplegetter").release(); });
  return type && Py_TYPE(object) == reinterpret_cast<PyTypeObject*>(type);
}

/// Getset and member descriptors that only read a field.
bool is_pure_getter(PyTypeObject* type, PyObject* descriptor) {
  if (Py_TYPE(descriptor) == &PyMemberDescr_Type) return true;
  if (Py_TYPE(descriptor) != &PyGetSetDescr_Type) return false;
  PyTypeObject* owner = PyDescr_TYPE(descriptor);
  return owner == &PyFunction_Type || owner == &PyMethod_Type || owner == &PyType_Type || owner == &PyCFunction_Type ||
         !std::strcmp(owner->tp_name, "torch.device") || !std::strcmp(owner->tp_name, "torch.dtype") ||
         !std::strcmp(owner->tp_name, "torch.finfo") || !std::strcmp(owner->tp_name, "torch.iinfo") ||
         !std::strncmp(owner->tp_name, "numpy.dtype", 11) || (type == owner && !std::strcmp(owner->tp_name, "object"));
}

/// Whether the owner keeps what a descriptor of C gave. What is made for each question (the mappingproxies of a class
/// and of a dtype's `fields`, the list `descr`) has no place to be read from again, and no guard on it holds.
bool is_kept(PyObject* owner, PyObject* descriptor, PyObject* found) {
  if (is_plain(found)) return true;
  const Ref<> again = Ref<>::steal(
      Py_TYPE(descriptor)->tp_descr_get(descriptor, owner, reinterpret_cast<PyObject*>(Py_TYPE(owner))));
  if (!again) PyErr_Clear();
  return again.get() == found;
}

}  // namespace

void guard_type_version(TraceRun& t, PyTypeObject* type) { note_class(t, type, nullptr); }
void guard_bases(TraceRun& t, PyTypeObject* type) { note_class(t, type, GuardSet::bases_name()); }

PyObject* class_attribute(TraceRun& t, PyTypeObject* type, PyObject* name) {
  if (t.classes->any() && assigned_owner(t, type, name)) refuse_assigned_class(t, type);
  if (!t.classes->made.empty() && is_annotations(name)) refuse_made_annotations(t, type);
  note_class(t, type, name);
  PyObject* found = fj_type_lookup(type, name);
  // `__add__ = str.__add__` in a class that is no str: CPython raises where it is used.
  if (found && Py_TYPE(found) == &PyWrapperDescr_Type && !PyType_IsSubtype(type, PyDescr_TYPE(found)))
    break_graph(BreakReason::ErrorWhileTracing, "a special method of another class");
  return found;
}

/// What kind of descriptor it is.
void note_descriptor(TraceRun& t, PyTypeObject* type) {
  static PyObject* const names[] = {intern("__get__"), intern("__set__"), intern("__delete__")};
  for (PyObject* name : names) note_class(t, type, name);
}

void note_class(TraceRun& t, PyTypeObject* type, PyObject* name) {
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return;  // static types don't change
  if (!type->tp_mro) break_graph(BreakReason::UnsupportedObject, "a class that is not finished");
  if (!t.classes->made.empty() && t.classes->made.count(reinterpret_cast<PyObject*>(type)))
    return;  // nobody else has it
  Ref<> interned = Ref<>::borrow(name);
  if (interned && !PyUnicode_CHECK_INTERNED(name)) {
    PyObject* text = interned.release();
    PyUnicode_InternInPlace(&text);
    interned = t.keep(Ref<>::steal(text));
  }
  if (!t.classes->versioned.emplace(type, interned.get()).second) return;
  PyObject* object = reinterpret_cast<PyObject*>(type);
  Guard guard;
  guard.kind = GuardKind::TypeVersion;
  guard.source = t.sources().constant(object);
  guard.object = Ref<>::borrow(object);
  if (interned) guard.names.push_back(interned);
  add_guard(t, std::move(guard));
}

/// Whether a method of a class is written in Python; false: it is C's own. Anything else a class may have there is
/// Python's matter.
bool is_python_method(TraceRun& t, PyObject* found) {
  if (PyFunction_Check(found) || is_function_like(found)) return true;
  PyTypeObject* type = Py_TYPE(found);
  if (type == &PyWrapperDescr_Type || type == &PyMethodDescr_Type || type == &PyClassMethodDescr_Type ||
      type == &PyGetSetDescr_Type || type == &PyMemberDescr_Type || type == &PyCFunction_Type || found == Py_None)
    return false;
  break_graph(BreakReason::UnsupportedObject, std::string("a method that is an object of type ") + type->tp_name);
}

V bind_class_attribute(TraceRun& t, PyObject* found, const V& self, PyTypeObject* type) {
  if (PyFunction_Check(found)) return bound_method(t, wrap_constant(t, found), self);
  // What pybind11 makes of a function in C++.
  if (PyInstanceMethod_Check(found))
    return bound_method(t, wrap_constant(t, PyInstanceMethod_GET_FUNCTION(found)), self);
  if (Py_TYPE(found) == &PyProperty_Type) {
    Ref<> getter = Ref<>::steal(PyObject_GetAttrString(found, "fget"));
    if (!getter || getter.get() == Py_None) break_graph(BreakReason::ErrorWhileTracing, "an unreadable property");
    return t.call(wrap_constant(t, t.keep(getter).get()), {self}, {});
  }
  if (Py_TYPE(found) == &PyStaticMethod_Type) {
    Ref<> function = Ref<>::steal(PyObject_GetAttrString(found, "__func__"));
    return wrap_constant(t, t.keep(function).get());
  }
  if (Py_TYPE(found) == &PyClassMethod_Type) {
    Ref<> function = Ref<>::steal(PyObject_GetAttrString(found, "__func__"));
    // Another descriptor is asked for what it is of the class, by the versions of CPython that do so.
    if (function && !PyFunction_Check(function.get()) && !is_function_like(function.get()) &&
        Py_TYPE(function.get())->tp_descr_get)
      break_graph(BreakReason::UnsupportedObject,
                  std::string("a class method of an object of type ") + Py_TYPE(function.get())->tp_name);
    auto method = std::make_shared<BoundMethodValue>();
    method->function = wrap_constant(t, t.keep(function).get());
    method->self = wrap_constant(t, reinterpret_cast<PyObject*>(type));
    return method;
  }
  if (Py_TYPE(found) == &PyMethodDescr_Type || Py_TYPE(found) == &PyWrapperDescr_Type) {
    // `upper = str.upper` in a class that is no str: CPython raises.
    if (!PyType_IsSubtype(type, PyDescr_TYPE(found)))
      break_graph(BreakReason::ErrorWhileTracing, "a method of another class");
    auto method = std::make_shared<BuiltinValue>();
    method->owner = self;
    method->name = text_of(reinterpret_cast<PyDescrObject*>(found)->d_name);
    method->descriptor = Ref<>::borrow(found);
    return method;
  }
  if (Py_TYPE(found) == &PyClassMethodDescr_Type) {
    // dict.fromkeys; through super() the class may have another under the name.
    Ref<> bound = Ref<>::steal(
        Py_TYPE(found)->tp_descr_get(found, nullptr, reinterpret_cast<PyObject*>(type)));
    if (!bound) break_graph(BreakReason::UnsupportedObject, take_error());
    return wrap_constant(t, t.keep(bound).get());
  }
  if (is_function_like(found) || !std::strcmp(Py_TYPE(found)->tp_name, "functools._lru_cache_wrapper"))
    return bound_method(t, wrap_constant(t, found), self);
  if (is_tuple_getter(found)) {
    // (class, (index, text))
    Ref<> parts = Ref<>::steal(PyObject_CallMethod(found, "__reduce__", nullptr));
    PyObject* arguments = parts && PyTuple_Check(parts.get()) && PyTuple_GET_SIZE(parts.get()) == 2
                              ? PyTuple_GET_ITEM(parts.get(), 1)
                              : nullptr;
    if (!arguments || !PyTuple_Check(arguments)) break_graph(BreakReason::UnsupportedObject, take_error());
    V items = self->kind == ValueKind::Tuple ? self : builtin_part(t, self);
    if (!items || items->kind != ValueKind::Tuple)
      break_graph(BreakReason::UnsupportedObject, "a field of " + describe(self));
    return t.get_item(items, wrap_constant(t, t.keep(Ref<>::borrow(PyTuple_GET_ITEM(arguments, 0))).get()));
  }
  if (!Py_TYPE(found)->tp_descr_get) return wrap_constant(t, found);
  // A descriptor written in Python.
  static PyObject* const get_name = intern("__get__");
  PyObject* get = fj_type_lookup(Py_TYPE(found), get_name);
  if (get && PyFunction_Check(get)) {
    class_attribute(t, Py_TYPE(found), get_name);
    V descriptor = wrap_constant(t, found);
    return t.call(wrap_constant(t, get), {descriptor, self, wrap_constant(t, reinterpret_cast<PyObject*>(type))}, {});
  }
  break_graph(BreakReason::UnsupportedObject, std::string("a descriptor of type ") + Py_TYPE(found)->tp_name);
}

/// As `owner.name`, where the owner is a class: `__get__` is given no object.
V attribute_of_class(TraceRun& t, PyObject* found, const V& owner, PyTypeObject* type) {
  PyTypeObject* kind = Py_TYPE(found);
  if (PyFunction_Check(found) || is_function_like(found)) return wrap_constant(t, found);
  static PyObject* const get_name = intern("__get__");
  if (PyObject* get = fj_type_lookup(kind, get_name); get && PyFunction_Check(get)) {
    note_descriptor(t, kind);
    return t.call(wrap_constant(t, get), {wrap_constant(t, found), t.none(), owner}, {});
  }
  if (kind == &PyStaticMethod_Type || kind == &PyClassMethod_Type || kind == &PyClassMethodDescr_Type)
    return bind_class_attribute(t, found, t.none(), type);
  if (!kind->tp_descr_get || kind == &PyMethodDescr_Type || kind == &PyWrapperDescr_Type ||
      kind == &PyGetSetDescr_Type || kind == &PyMemberDescr_Type || kind == &PyProperty_Type)
    return wrap_constant(t, found);
  break_graph(BreakReason::UnsupportedObject, std::string("a descriptor of type ") + kind->tp_name);
}

V type_attribute(TraceRun& t, const V& owner, PyTypeObject* type, PyObject* name) {
  auto& value = *as<ObjectValue>(owner);
  guard_value(t, value);
  PyTypeObject* meta = Py_TYPE(type);
  PyObject* from_meta = class_attribute(t, meta, name);
  if (from_meta && Py_TYPE(from_meta)->tp_descr_set && Py_TYPE(from_meta)->tp_descr_get) {
    if (Py_TYPE(from_meta) != &PyProperty_Type &&
        (is_pure_getter(meta, from_meta) || PyDescr_TYPE(from_meta) == &PyType_Type)) {
      Ref<> found = Ref<>::steal(PyObject_GetAttr(reinterpret_cast<PyObject*>(type), name));
      if (!found) break_graph(BreakReason::ErrorWhileTracing, take_error());
      // __name__, __bases__, __annotations__ and the like are no attributes that a lookup finds.
      if (is_kept(reinterpret_cast<PyObject*>(type), from_meta, found.get())) {
        SourceRef source = value.source ? value.source : t.sources().constant(reinterpret_cast<PyObject*>(type));
        return t.wrap(t.keep(found).get(), t.sources().make(SourceKind::SlotMember, source, 0, name));
      }
      return wrap_constant(t, t.keep(found).get());
    }
    return bind_class_attribute(t, from_meta, owner, meta);
  }
  static PyObject* const dict_name = intern("__dict__");
  if (PyUnicode_Compare(name, dict_name) == 0) refuse_assigned_class(t, type);
  if (V variable = class_variable(t, type, name)) return variable;
  if (PyObject* found = class_attribute(t, type, name); found && !(PyUnicode_Compare(name, dict_name) == 0))
    return attribute_of_class(t, found, owner, type);
  if (from_meta) return bind_class_attribute(t, from_meta, owner, meta);
  static PyObject* const getattr_name = intern("__getattr__");
  if (PyObject* getattr = overridden(t, meta, getattr_name))
    return t.call(wrap_constant(t, getattr), {owner, wrap_constant(t, name)}, {});
  return nullptr;
}

V super_attribute(TraceRun& t, SuperValue& super, PyObject* name) {
  PyTypeObject* type = nullptr;
  V self = super.self;
  auto* object = as<ObjectValue>(self);
  bool on_class = false;
  if (object && PyType_Check(object->object.get()) &&
      PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(object->object.get()), super.type.get())) {
    type = reinterpret_cast<PyTypeObject*>(object->object.get());
    guard_value(t, *object);
    on_class = true;
  } else {
    type = t.type_of(self);
  }
  guard_bases(t, type);
  PyObject* mro = type->tp_mro;
  bool after = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    if (after) {
      class_attribute(t, base, name);
      Ref<> members = Ref<>::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(base), "__dict__"));
      Ref<> found = members ? Ref<>::steal(PyObject_GetItem(members.get(), name)) : Ref<>();
      PyErr_Clear();
      if (found) {
        PyObject* kept = t.keep(found).get();
        return on_class ? attribute_of_class(t, kept, self, type) : bind_class_attribute(t, kept, self, type);
      }
    }
    if (base == super.type.get()) after = true;
  }
  return nullptr;
}

/// torch.nn.Module.__getattr__ without running it: parameters, buffers, submodules, each lookup guarded.
V module_member(TraceRun& t, const V& owner, ObjectValue& value, PyObject* name) {
  static PyObject* const tables[] = {intern("_parameters"), intern("_buffers"), intern("_modules")};
  PyObject* members = instance_dict(value.object.get());
  for (PyObject* table_name : tables) {
    if (written_attribute(t, owner, table_name))
      break_graph(BreakReason::UnsupportedObject, "a module whose tables were replaced");
    PyObject* table = dict_get(members, table_name);
    if (!table || !PyDict_Check(table)) continue;
    V tracked = t.wrap(table, t.sources().make(SourceKind::Attribute, value.source, 0, table_name));
    if (auto* dict = as<DictValue>(tracked)) {
      if (V found = dict_find(t, *dict, name)) return found;
      continue;
    }
    SourceRef table_source = t.sources().make(SourceKind::Attribute, value.source, 0, table_name);
    if (PyObject* found = dict_get(table, name)) {
      add_guard(t, GuardKind::HasKey, table_source, name);
      return t.wrap(found, t.sources().make(SourceKind::DictItem, table_source, 0, name));
    }
    add_guard(t, GuardKind::LacksKey, table_source, name);
  }
  return nullptr;
}

V object_attribute(TraceRun& t, const V& owner, ObjectValue& value, PyObject* name) {
  PyObject* object = value.object.get();
  // Of a class, which many Values may stand for: class_variable.
  if (auto written = PyType_Check(object) ? std::nullopt : written_attribute(t, owner, name)) {
    if (!*written && class_attribute(t, Py_TYPE(object), name))
      break_graph(BreakReason::UnsupportedObject, "a deleted attribute that the class has too");
    return *written;
  }
  if (PyType_Check(object)) {
    static PyObject* const dict_name = intern("__dict__");
    if (PyUnicode_Compare(name, dict_name) == 0) {
      guard_value(t, value);
      refuse_assigned_class(t, reinterpret_cast<PyTypeObject*>(object));
      refuse_made_annotations(t, reinterpret_cast<PyTypeObject*>(object));
      Ref<> members = Ref<>::steal(PyObject_GetAttr(object, name));
      if (members) return wrap_constant(t, t.keep(members).get());
      PyErr_Clear();
    }
    if (is_annotations(name)) {
      refuse_made_annotations(t, reinterpret_cast<PyTypeObject*>(object));
      // CPython makes the dict of a class that has none when it is asked for.
      if (made_class_at(t, object))
        break_graph(BreakReason::UnsupportedBytecode, "the annotations of a class that is made here");
    }
    return type_attribute(t, owner, reinterpret_cast<PyTypeObject*>(object), name);
  }
  PyTypeObject* type = t.type_of(owner);
  if (!value.source) value.source = t.sources().constant(object);

  if (PyModule_Check(object)) {
    guard_value(t, value);
    if (t.warnings->any()) refuse_warning_filters(t, object, name, false);
    V space = known_dict(t, instance_dict(object), t.sources().make(SourceKind::InstanceDict, value.source));
    if (V found = space ? dict_find(t, *as<DictValue>(space), name) : nullptr) return found;
    if (auto written = written_global(t, instance_dict(object), name)) {
      if (!*written)
        break_graph(BreakReason::UnsupportedObject, "an attribute of a module that was deleted as a global");
      return *written;
    }
    if (PyObject* found = space ? nullptr : dict_get(instance_dict(object), name)) {
      add_guard(t, GuardKind::HasKey, t.sources().make(SourceKind::InstanceDict, value.source), name);
      return t.wrap(found, t.sources().make(SourceKind::Attribute, value.source, 0, name));
    }
    PyObject* from_type = class_attribute(t, type, name);
    if (!from_type) {
      // A module's __getattr__ (lazy imports) is run by Python.
      static PyObject* const getattr_name = intern("__getattr__");
      if (dict_get(instance_dict(object), getattr_name))
        break_graph(BreakReason::UnsupportedObject, "a module with __getattr__");
      static PyObject* const path_name = intern("__path__");
      if (fj_has_lazy_imports() && dict_get(instance_dict(object), path_name))
        break_graph(BreakReason::UnsupportedObject, "a name that a package may import when it is asked for");
      if (!space) add_guard(t, GuardKind::LacksKey, t.sources().make(SourceKind::InstanceDict, value.source), name);
      return nullptr;
    }
  }

  V variable = class_variable(t, type, name);
  PyObject* found = variable ? nullptr : class_attribute(t, type, name);
  if (found) note_descriptor(t, Py_TYPE(found));
  // One without __get__ comes behind the object's own attributes.
  const bool data = found && Py_TYPE(found)->tp_descr_set && Py_TYPE(found)->tp_descr_get;
  if (data) {
    if (Py_TYPE(found) == &PyProperty_Type || is_tuple_getter(found))
      return bind_class_attribute(t, found, owner, type);
    static PyObject* const dict_name = intern("__dict__");
    if (PyUnicode_Compare(name, dict_name) == 0)
      if (PyObject* dict = instance_dict(object)) return outside_dict(t, owner, value, dict);
    static PyObject* const class_name = intern("__class__");
    if (PyUnicode_Compare(name, class_name) == 0) return wrap_constant(t, reinterpret_cast<PyObject*>(type));
    static PyObject* const lines_name = intern("co_lnotab");  // warns
    if (PyCode_Check(object) && PyUnicode_Compare(name, lines_name) != 0) {
      // Code does not change.
      Ref<> result = guard_value(t, value) ? Ref<>::steal(PyObject_GenericGetAttr(object, name)) : Ref<>();
      if (!result) break_graph(BreakReason::ErrorWhileTracing, take_error());
      return wrap_constant(t, t.keep(result).get());
    }
    if (is_pure_getter(type, found)) {
      Ref<> result = Ref<>::steal(PyObject_GenericGetAttr(object, name));
      if (!result) {
        PyErr_Clear();
        break_graph(BreakReason::ErrorWhileTracing, "an attribute that is not set");
      }
      if (!is_kept(object, found, result.get()))
        break_graph(BreakReason::UnsupportedObject,
                    "attribute '" + text_of(name) + "' of " + describe(owner) + ", which is made for each question");
      return t.wrap(t.keep(result).get(), t.sources().make(SourceKind::SlotMember, value.source, 0, name));
    }
    static PyObject* const get_name = intern("__get__");
    PyObject* get = fj_type_lookup(Py_TYPE(found), get_name);
    if (get && PyFunction_Check(get)) return bind_class_attribute(t, found, owner, type);
    break_graph(BreakReason::UnsupportedObject, "attribute '" + text_of(name) + "' of " + describe(owner));
  }
  if (PyObject* members = instance_dict(object)) {
    // A key that compares by code of its own is asked whether it is the name: the class may be another one then.
    Py_ssize_t at = 0;
    for (PyObject *key, *item; PyDict_Next(members, &at, &key, &item);)
      if (!PyUnicode_CheckExact(key) && Py_TYPE(key)->tp_flags & Py_TPFLAGS_HEAPTYPE)
        break_graph(BreakReason::UnsupportedObject, "an object whose __dict__ has keys that are no strings");
    SourceRef members_source = t.sources().make(SourceKind::InstanceDict, value.source);
    // The dict itself may be a value of the trace, through `vars(x)` or `x.__dict__`: then its items are the
    // attributes.
    if (V known = known_dict(t, members, members_source)) {
      if (V own = dict_find(t, *as<DictValue>(known), name)) return own;
      if (found && is_cached_property(found)) return cached_property(t, owner, found, name);
      if (found) return bind_class_attribute(t, found, owner, type);
      return variable;
    }
    if (PyObject* own = dict_get(members, name)) {
      add_guard(t, GuardKind::HasKey, members_source, name);
      return t.wrap(own, t.sources().make(SourceKind::Attribute, value.source, 0, name));
    }
    add_guard(t, GuardKind::LacksKey, members_source, name);
  }
  if (found && is_cached_property(found)) return cached_property(t, owner, found, name);
  if (found) return bind_class_attribute(t, found, owner, type);
  return variable;
}

/// functools.cached_property: what its function gives becomes an attribute of the instance.
V cached_property(TraceRun& t, const V& owner, PyObject* property, PyObject* name) {
  note_descriptor(t, Py_TYPE(property));
  Ref<> function = Ref<>::steal(PyObject_GetAttrString(property, "func"));
  if (!function) break_graph(BreakReason::UnsupportedObject, take_error());
  V value = t.call(wrap_constant(t, t.keep(function).get()), {owner}, {});
  store_attribute(t, owner, name, value);
  return value;
}

V attribute_by_default(TraceRun& t, const V& owner, PyObject* name) {
  if (auto* object = as<ObjectValue>(owner)) return object_attribute(t, owner, *object, name);
  auto& instance = *as<InstanceValue>(owner);
  PyTypeObject* type = instance.type.get();
  if (type == &PyTraceBack_Type) break_graph(BreakReason::UnsupportedObject, "a traceback");
  const bool exception = PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(PyExc_BaseException));
  auto own = [&]() -> V {
    for (auto& [key, value] : instance.attributes)
      if (PyUnicode_Check(key.get()) && PyUnicode_Compare(key.get(), name) == 0) return value;
    return nullptr;
  };
  V variable = class_variable(t, type, name);
  PyObject* found = variable ? nullptr : class_attribute(t, type, name);
  if (found) note_descriptor(t, Py_TYPE(found));
  if (found && Py_TYPE(found)->tp_descr_set && Py_TYPE(found)->tp_descr_get) {
    if (Py_TYPE(found) == &PyMemberDescr_Type || Py_TYPE(found) == &PyGetSetDescr_Type) {
      const std::string text = text_of(name);
      if (text == "__dict__") {
        for (auto& [key, value] : instance.attributes)
          if (PyObject* slot = fj_type_lookup(type, key.get()); slot && Py_TYPE(slot) == &PyMemberDescr_Type)
            break_graph(BreakReason::UnsupportedObject, "the __dict__ of an object with slots");
        if (exception) break_graph(BreakReason::UnsupportedObject, "the __dict__ of an exception");
        instance.dict->attributes_of = owner;
        return instance.dict;
      }
      if (text == "__class__") return wrap_constant(t, reinterpret_cast<PyObject*>(type));
      if (V value = own()) return value;
      if (auto field = exception_attribute(t, instance, text)) return *field;
      if (Py_TYPE(found) == &PyMemberDescr_Type) return nullptr;  // a slot nobody has filled
      break_graph(BreakReason::UnsupportedObject, "attribute '" + text + "' of " + describe(owner));
    }
    return bind_class_attribute(t, found, owner, type);
  }
  if (V value = own()) return value;
  if (found && is_cached_property(found)) return cached_property(t, owner, found, name);
  if (found) return bind_class_attribute(t, found, owner, type);
  return variable;
}

V class_attribute_rules(TraceRun& t, const V& owner, PyObject* name) {
  static PyObject* const getattribute_name = intern("__getattribute__");
  static PyObject* const getattr_name = intern("__getattr__");
  PyTypeObject* type = t.type_of(owner);
  PyObject* real = as<ObjectValue>(owner) ? as<ObjectValue>(owner)->object.get() : nullptr;
  if (real && PyModule_CheckExact(real)) return attribute_by_default(t, owner, name);
  if (real && PyType_Check(real)) {
    // `__getattr__` of a metaclass: type_attribute.
    PyObject* rule =
        Py_TYPE(real)->tp_flags & Py_TPFLAGS_HEAPTYPE ? overridden(t, Py_TYPE(real), getattribute_name) : nullptr;
    return rule ? t.call(wrap_constant(t, rule), {owner, wrap_constant(t, name)}, {})
                : attribute_by_default(t, owner, name);
  }
  PyObject* getattribute = overridden(t, type, getattribute_name);
  PyObject* getattr = class_attribute(t, type, getattr_name);
  auto first = [&]() -> V {
    if (!getattribute) {
      // A property that raises AttributeError leads to __getattr__ too.
      return attribute_by_default(t, owner, name);
    }
    return t.call(wrap_constant(t, getattribute), {owner, wrap_constant(t, name)}, {});
  };
  if (!getattr) return first();
  V found;
  {
    const Catching catching(t);
    try {
      found = first();
    } catch (const RaisedInTrace& raised) {
      if (!PyType_IsSubtype(as<InstanceValue>(raised.exception)->type.get(),
                            reinterpret_cast<PyTypeObject*>(PyExc_AttributeError)))
        throw;
    }
  }
  if (found) return found;
  if (real && is_method_of_module(getattr, "Module.__getattr__"))
    return module_member(t, owner, *as<ObjectValue>(owner), name);
  if (!PyFunction_Check(getattr))
    break_graph(BreakReason::UnsupportedObject, std::string("class ") + type->tp_name + " has __getattr__");
  return t.call(wrap_constant(t, getattr), {owner, wrap_constant(t, name)}, {});
}

namespace {

bool gives_annotations(const FunctionValue& function) {
  return fj_annotations_wait() && function.annotations && function.annotations->kind != ValueKind::Dict &&
         function.annotations->kind != ValueKind::Tuple;
}

/// As a dict, made at the first look; the compiler gives names and values in a flat tuple.
V function_annotations(TraceRun& tracer, FunctionValue& function) {
  if (function.annotations && function.annotations->kind == ValueKind::Dict) return function.annotations;
  auto dict = std::make_shared<DictValue>();
  if (gives_annotations(function))
    break_graph(BreakReason::UnsupportedObject, "the annotations of a function that is made here");
  if (function.annotations) {
    std::vector<V> items = tracer.sequence_items(function.annotations);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2)
      dict_store(tracer, dict, constant_key(tracer, items[i]), items[i + 1]);
  }
  function.annotations = dict;
  return dict;
}

}  // namespace

V find_attribute(TraceRun& t, const V& owner, PyObject* name) {
  const std::string text = text_of(name);
  // Whether an array has nothing of its own under this name. A tensor made in the trace has no attributes of its own.
  auto lacks_own = [&]() {
    if (as<ArrayValue>(owner)->library == Library::Numpy || !owner->source) return true;
    auto real = std::find_if(t.identity->values.begin(), t.identity->values.end(),
                             [&](auto& known) { return known.second == owner; });
    PyObject* members = real != t.identity->values.end() ? instance_dict(real->first) : nullptr;
    if (!members || dict_get(members, name)) return false;
    add_guard(t, GuardKind::LacksKey, t.sources().make(SourceKind::InstanceDict, owner->source), name);
    return true;
  };
  switch (owner->kind) {
    case ValueKind::Object: {
      auto& value = *as<ObjectValue>(owner);
      PyObject* object = value.object.get();
      if (array_library(object)) break_graph(BreakReason::UnsupportedArray, why_not_compiled(t, object));
      if (is_plain(object) && !PyType_Check(object)) {
        // Methods of numbers and strings.
        PyObject* found = fj_type_lookup(t.type_of(owner), name);
        if (!found) return nullptr;
        if (Py_TYPE(found) == &PyMethodDescr_Type || Py_TYPE(found) == &PyWrapperDescr_Type)
          return bind_class_attribute(t, found, owner, t.type_of(owner));
        PyObject* constant = t.constant_object(owner);
        Ref<> result = constant ? Ref<>::steal(PyObject_GetAttr(constant, name)) : Ref<>();
        if (!result) break_graph(BreakReason::ErrorWhileTracing, take_error());
        return wrap_constant(t, t.keep(result).get());
      }
      // A method is the scalar's own until it is called: object_method.
      PyObject* of_class = fj_type_lookup(Py_TYPE(object), name);
      if (of_class && Py_TYPE(of_class) != &PyMethodDescr_Type && Py_TYPE(of_class) != &PyWrapperDescr_Type)
        if (V scalar = t.changing_scalar(owner, true)) return find_attribute(t, scalar, name);
      if (has_own_rules(Py_TYPE(object), "__getattribute__", reinterpret_cast<void*>(PyObject_GenericGetAttr)))
        break_graph(BreakReason::UnsupportedObject, "attribute '" + text + "' of " + describe(owner));
      return class_attribute_rules(t, owner, name);
    }
    case ValueKind::Array:
      if (text == "__class__") return wrap_constant(t, reinterpret_cast<PyObject*>(t.type_of(owner)));
      if (auto written = written_attribute(t, owner, name)) return *written;
      if (!fj_type_lookup(t.type_of(owner), name) && lacks_own()) return nullptr;
      if (text == "requires_grad") refuse_in_torch_transform(t, "Tensor.requires_grad");
      return array_attribute(t, owner, text);
    case ValueKind::Builtin:
      if (V array = as<BuiltinValue>(owner)->owner;
          array->kind == ValueKind::Array && as<BuiltinValue>(owner)->name == "flags")
        return numpy_flag(t, std::static_pointer_cast<ArrayValue>(array), text);
      break;
    case ValueKind::Super:
      return super_attribute(t, *as<SuperValue>(owner), name);
    case ValueKind::BoundMethod: {
      auto& method = *as<BoundMethodValue>(owner);
      if (text == "__self__") return method.self;
      if (text == "__func__") return method.function;
      return find_attribute(t, method.function, name);
    }
    case ValueKind::Partial: {
      auto& partial = *as<PartialValue>(owner);
      if (text == "func") return partial.function;
      if (text == "args") return t.tuple(partial.positional);
      if (text == "keywords") {
        partial.keywords->attributes_of = owner;
        return partial.keywords;
      }
      break;
    }
    case ValueKind::Slice: {
      auto& slice = *as<SliceValue>(owner);
      if (text == "start") return slice.start;
      if (text == "stop") return slice.stop;
      if (text == "step") return slice.step;
      break;
    }
    case ValueKind::Iterator:
      if (text == "__next__" || text == "__iter__" ||
          (as<IteratorValue>(owner)->frame && (text == "send" || text == "throw" || text == "close"))) {
        auto method = std::make_shared<BuiltinValue>();
        method->owner = owner;
        method->name = text;
        return method;
      }
      break;
    case ValueKind::Range: {
      auto& range = *as<RangeValue>(owner);
      if (text == "start") return t.integer(range.start);
      if (text == "stop") return t.integer(range.stop);
      if (text == "step") return t.integer(range.step);
      break;
    }
    case ValueKind::Dict:
      if (text == "default_factory" && as<DictValue>(owner)->type.get() == defaultdict_type()) {
        V factory = as<DictValue>(owner)->default_factory;
        return factory ? factory : t.none();
      }
      break;
    case ValueKind::List:
      if (text == "maxlen" && as<ListValue>(owner)->type) {
        auto longest = as<ListValue>(owner)->longest;
        return longest ? t.integer(*longest) : t.none();
      }
      break;
    case ValueKind::Function: {
      auto& function = *as<FunctionValue>(owner);
      for (const auto& members : {function.fields, function.attributes})
        for (auto& [key, value] : members->items)
          if (PyUnicode_Compare(key.get(), name) == 0) return value;
      if (text == "__dict__") return function.attributes;
      if (text == "__annotations__") return function_annotations(t, function);
      if (text == "__annotate__" && fj_annotations_wait())
        return gives_annotations(function) ? function.annotations : t.none();
      if (text == "__type_params__") return t.tuple({});
      if (text == "__kwdefaults__" && !function.kwdefaults) return t.none();
      if (text == "__name__") return wrap_constant(t, t.keep(Ref<>::borrow(function.code->co_name)).get());
      if (text == "__qualname__") return wrap_constant(t, function.qualname.get());
      if (text == "__code__") return wrap_constant(t, reinterpret_cast<PyObject*>(function.code.get()));
      if (text == "__defaults__") return function.defaults ? function.defaults : t.none();
      if (text == "__module__" || text == "__doc__") {
        static PyObject* const module_name = intern("__name__");
        PyObject* consts = function.code->co_consts;
        PyObject* first = PyTuple_GET_SIZE(consts) ? PyTuple_GET_ITEM(consts, 0) : Py_None;
        if (text == "__doc__") return wrap_constant(t, PyUnicode_Check(first) ? first : Py_None);
        PyObject* module = dict_get(function.globals.get(), module_name);
        return module ? wrap_constant(t, module) : t.none();
      }
      break;
    }
    case ValueKind::Instance:
      if (is_mode(*as<InstanceValue>(owner)) && (text == "__enter__" || text == "__exit__")) {
        if (mode_is_known(*as<InstanceValue>(owner))) {
          auto method = std::make_shared<BuiltinValue>();
          method->owner = owner;
          method->name = text;
          return method;
        }
      }
      return class_attribute_rules(t, owner, name);
    case ValueKind::Tuple: {
      auto& tuple = *as<TupleValue>(owner);
      if (tuple.type) {
        auto* type = reinterpret_cast<PyTypeObject*>(tuple.type.get());
        PyObject* found = class_attribute(t, type, name);
        static PyObject* const fields_name = intern("__match_args__");
        PyObject* fields = fj_type_lookup(type, fields_name);
        if (fields && PyTuple_Check(fields) && !(type->tp_flags & Py_TPFLAGS_HEAPTYPE && is_plain_named_tuple(type)))
          for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(fields); ++i)  // torch.return_types: C's names of places
            if (PyUnicode_Compare(PyTuple_GET_ITEM(fields, i), name) == 0) return tuple.items.at(std::size_t(i));
        if (text == "mapping" && tuple.view_of) break;
        if (found && fields && text != "__class__") return bind_class_attribute(t, found, owner, type);
      }
      [[fallthrough]];
    }
    default:
      break;
  }
  PyTypeObject* type = t.type_of(owner);
  if (text == "__class__") return wrap_constant(t, reinterpret_cast<PyObject*>(type));
  PyObject* found = class_attribute(t, type, name);
  if (!found) return nullptr;
  if (Py_TYPE(found) == &PyClassMethodDescr_Type) return bind_class_attribute(t, found, owner, type);
  if (Py_TYPE(found) == &PyMethodDescr_Type || Py_TYPE(found) == &PyWrapperDescr_Type)
    return bind_class_attribute(t, found, owner, type);
  break_graph(BreakReason::UnsupportedObject, "attribute '" + text + "' of " + describe(owner));
}

V TraceRun::get_attribute(const V& owner, std::string_view name) {
  Ref<> text = keep(Ref<>::steal(PyUnicode_FromStringAndSize(name.data(), name.size())));
  V found = find_attribute(*this, owner, text.get());
  if (!found)
    break_graph(BreakReason::ErrorWhileTracing, describe(owner) + " has no attribute '" + std::string(name) + "'");
  return found;
}

}  // namespace fj
