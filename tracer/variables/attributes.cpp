/// `owner.name` by CPython's own rules, on Values.
///
/// For a real object the lookup is done on the real type and instance dict, and what it found is guarded: what the class
/// and its bases have under that name, the presence of the key in the instance dict, the absence where the
/// class answers. Python code on the way (property, __getattr__, descriptors) is inlined.
#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "tracer/interpreter.h"

namespace fj {

namespace {

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

PyObject* dict_get(PyObject* dict, PyObject* name) {
  PyObject* found = dict ? PyDict_GetItemWithError(dict, name) : nullptr;
  if (!found) PyErr_Clear();
  return found;
}

PyObject* module_getattr() {
  static PyObject* const name = intern("__getattr__");
  PyObject* torch = torch_module();
  if (!torch) return nullptr;
  Ref<> nn = Ref<>::steal(PyObject_GetAttrString(torch, "nn"));
  Ref<> module = nn ? Ref<>::steal(PyObject_GetAttrString(nn.get(), "Module")) : Ref<>();
  if (!module) {
    PyErr_Clear();
    return nullptr;
  }
  return fj_type_lookup(reinterpret_cast<PyTypeObject*>(module.get()), name);
}

/// Callables of C that bind as functions do.
bool is_function_like(PyObject* object) {
  const char* type = Py_TYPE(object)->tp_name;
  return !std::strcmp(type, "numpy._ArrayFunctionDispatcher") || !std::strcmp(type, "framejit.CompiledFunction");
}

/// Getset and member descriptors that only read a field.
bool is_pure_getter(PyTypeObject* type, PyObject* descriptor) {
  if (Py_TYPE(descriptor) == &PyMemberDescr_Type) return true;
  if (Py_TYPE(descriptor) != &PyGetSetDescr_Type) return false;
  PyTypeObject* owner = PyDescr_TYPE(descriptor);
  return owner == &PyFunction_Type || owner == &PyMethod_Type || owner == &PyType_Type || owner == &PyCFunction_Type ||
         !std::strcmp(owner->tp_name, "torch.device") || !std::strcmp(owner->tp_name, "torch.dtype") ||
         !std::strncmp(owner->tp_name, "numpy.dtype", 11) || (type == owner && !std::strcmp(owner->tp_name, "object"));
}

}  // namespace

void TracerImpl::guard_type_version(PyTypeObject* type) { note_class(type, nullptr); }
void TracerImpl::guard_bases(PyTypeObject* type) { note_class(type, GuardSet::bases_name()); }

PyObject* TracerImpl::class_attribute(PyTypeObject* type, PyObject* name) {
  note_class(type, name);
  return fj_type_lookup(type, name);
}

/// What kind of descriptor it is.
void TracerImpl::note_descriptor(PyTypeObject* type) {
  static PyObject* const names[] = {intern("__get__"), intern("__set__"), intern("__delete__")};
  for (PyObject* name : names) note_class(type, name);
}

void TracerImpl::note_class(PyTypeObject* type, PyObject* name) {
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return;  // static types don't change
  Ref<> interned = Ref<>::borrow(name);
  if (interned && !PyUnicode_CHECK_INTERNED(name)) {
    PyObject* text = interned.release();
    PyUnicode_InternInPlace(&text);
    interned = keep(Ref<>::steal(text));
  }
  if (!versioned_types_.emplace(type, interned.get()).second) return;
  PyObject* object = reinterpret_cast<PyObject*>(type);
  Guard guard;
  guard.kind = GuardKind::TypeVersion;
  guard.source = sources->constant(object);
  guard.object = Ref<>::borrow(object);
  if (interned) guard.names.push_back(interned);
  add_guard(std::move(guard));
}

std::optional<V> TracerImpl::written_attribute(const V& owner, PyObject* name) {
  for (auto write = attribute_writes.rbegin(); write != attribute_writes.rend(); ++write)
    if (write->owner == owner && PyUnicode_Compare(write->name.get(), name) == 0) return write->value;
  return std::nullopt;
}

V TracerImpl::bind_class_attribute(PyObject* found, const V& self, PyTypeObject* type) {
  if (PyFunction_Check(found)) {
    auto method = std::make_shared<BoundMethodValue>();
    method->function = wrap_constant(found);
    method->self = self;
    return method;
  }
  if (Py_TYPE(found) == &PyProperty_Type) {
    Ref<> getter = Ref<>::steal(PyObject_GetAttrString(found, "fget"));
    if (!getter || getter.get() == Py_None) break_graph(BreakReason::ErrorWhileTracing, "an unreadable property");
    return call(wrap_constant(keep(getter).get()), {self}, {});
  }
  if (Py_TYPE(found) == &PyStaticMethod_Type) {
    Ref<> function = Ref<>::steal(PyObject_GetAttrString(found, "__func__"));
    return wrap_constant(keep(function).get());
  }
  if (Py_TYPE(found) == &PyClassMethod_Type) {
    Ref<> function = Ref<>::steal(PyObject_GetAttrString(found, "__func__"));
    auto method = std::make_shared<BoundMethodValue>();
    method->function = wrap_constant(keep(function).get());
    method->self = wrap_constant(reinterpret_cast<PyObject*>(type));
    return method;
  }
  if (Py_TYPE(found) == &PyMethodDescr_Type || Py_TYPE(found) == &PyWrapperDescr_Type) {
    auto method = std::make_shared<BuiltinValue>();
    method->owner = self;
    method->name = text_of(reinterpret_cast<PyDescrObject*>(found)->d_name);
    return method;
  }
  if (is_function_like(found)) {
    auto method = std::make_shared<BoundMethodValue>();
    method->function = wrap_constant(found);
    method->self = self;
    return method;
  }
  if (!Py_TYPE(found)->tp_descr_get) return wrap_constant(found);
  // A descriptor written in Python.
  static PyObject* const get_name = intern("__get__");
  PyObject* get = fj_type_lookup(Py_TYPE(found), get_name);
  if (get && PyFunction_Check(get)) {
    class_attribute(Py_TYPE(found), get_name);
    V descriptor = wrap_constant(found);
    return call(wrap_constant(get), {descriptor, self, wrap_constant(reinterpret_cast<PyObject*>(type))}, {});
  }
  break_graph(BreakReason::UnsupportedObject, std::string("a descriptor of type ") + Py_TYPE(found)->tp_name);
}

V TracerImpl::type_attribute(const V& owner, PyTypeObject* type, PyObject* name) {
  auto& value = *as<ObjectValue>(owner);
  guard_value(value);
  PyTypeObject* meta = Py_TYPE(type);
  PyObject* from_meta = class_attribute(meta, name);
  if (from_meta && Py_TYPE(from_meta)->tp_descr_set) {
    if (is_pure_getter(meta, from_meta) || meta == &PyType_Type) {
      Ref<> found = Ref<>::steal(PyObject_GetAttr(reinterpret_cast<PyObject*>(type), name));
      if (!found) break_graph(BreakReason::ErrorWhileTracing, take_error());
      // __name__ and the like are no attributes that a lookup finds.
      if (PyUnicode_CheckExact(found.get())) {
        SourceRef source = value.source ? value.source : sources->constant(reinterpret_cast<PyObject*>(type));
        return wrap(keep(found).get(), sources->make(SourceKind::SlotMember, source, 0, name));
      }
      guard_type_version(type);
      return wrap_constant(keep(found).get());
    }
    break_graph(BreakReason::UnsupportedObject, "an attribute of a metaclass");
  }
  if (PyObject* found = class_attribute(type, name)) {
    if (PyFunction_Check(found) || is_function_like(found)) return wrap_constant(found);
    if (Py_TYPE(found) == &PyStaticMethod_Type || Py_TYPE(found) == &PyClassMethod_Type) return bind_class_attribute(found, none, type);
    if (!Py_TYPE(found)->tp_descr_get || Py_TYPE(found) == &PyMethodDescr_Type || Py_TYPE(found) == &PyWrapperDescr_Type ||
        Py_TYPE(found) == &PyGetSetDescr_Type || Py_TYPE(found) == &PyMemberDescr_Type || Py_TYPE(found) == &PyProperty_Type)
      return wrap_constant(found);
    if (Py_TYPE(found) == &PyClassMethodDescr_Type) {
      Ref<> bound = Ref<>::steal(PyObject_GetAttr(reinterpret_cast<PyObject*>(type), name));
      if (bound) return wrap_constant(keep(bound).get());
      PyErr_Clear();
    }
    break_graph(BreakReason::UnsupportedObject, std::string("a descriptor of type ") + Py_TYPE(found)->tp_name);
  }
  if (from_meta) {
    return bind_class_attribute(from_meta, owner, meta);
  }
  return nullptr;
}

V TracerImpl::super_attribute(SuperValue& super, PyObject* name) {
  PyTypeObject* type = nullptr;
  V self = super.self;
  auto* object = as<ObjectValue>(self);
  bool on_class = false;
  if (object && PyType_Check(object->object.get())) {
    type = reinterpret_cast<PyTypeObject*>(object->object.get());
    guard_value(*object);
    on_class = true;
  } else {
    type = type_of(self);
  }
  guard_bases(type);
  PyObject* mro = type->tp_mro;
  bool after = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    if (after) {
      class_attribute(base, name);
      Ref<> members = Ref<>::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(base), "__dict__"));
      Ref<> found = members ? Ref<>::steal(PyObject_GetItem(members.get(), name)) : Ref<>();
      PyErr_Clear();
      if (found) {
        PyObject* kept = keep(found).get();
        if (on_class && PyFunction_Check(kept)) return wrap_constant(kept);
        return bind_class_attribute(kept, self, type);
      }
    }
    if (base == super.type.get()) after = true;
  }
  return nullptr;
}

/// torch.nn.Module.__getattr__ without running it: parameters, buffers, submodules, each lookup guarded.
V TracerImpl::module_member(const V& owner, ObjectValue& value, PyObject* name) {
  static PyObject* const tables[] = {intern("_parameters"), intern("_buffers"), intern("_modules")};
  PyObject* members = instance_dict(value.object.get());
  for (PyObject* table_name : tables) {
    if (written_attribute(owner, table_name)) break_graph(BreakReason::UnsupportedObject, "a module whose tables were replaced");
    PyObject* table = dict_get(members, table_name);
    if (!table || !PyDict_Check(table)) continue;
    V tracked = wrap(table, sources->make(SourceKind::Attribute, value.source, 0, table_name));
    if (auto* dict = as<DictValue>(tracked)) {
      if (V found = dict_find(*dict, name)) return found;
      continue;
    }
    SourceRef table_source = sources->make(SourceKind::Attribute, value.source, 0, table_name);
    if (PyObject* found = dict_get(table, name)) {
      add_guard(GuardKind::HasKey, table_source, name);
      return wrap(found, sources->make(SourceKind::DictItem, table_source, 0, name));
    }
    add_guard(GuardKind::LacksKey, table_source, name);
  }
  return nullptr;
}

V TracerImpl::object_attribute(const V& owner, ObjectValue& value, PyObject* name) {
  PyObject* object = value.object.get();
  if (auto written = written_attribute(owner, name)) {
    if (!*written && class_attribute(Py_TYPE(object), name))
      break_graph(BreakReason::UnsupportedObject, "a deleted attribute that the class has too");
    return *written;
  }
  if (PyType_Check(object)) return type_attribute(owner, reinterpret_cast<PyTypeObject*>(object), name);
  PyTypeObject* type = type_of(owner);
  if (!value.source) value.source = sources->constant(object);

  if (PyModule_Check(object)) {
    guard_value(value);
    if (PyObject* found = dict_get(instance_dict(object), name)) {
      add_guard(GuardKind::HasKey, sources->make(SourceKind::InstanceDict, value.source), name);
      return wrap(found, sources->make(SourceKind::Attribute, value.source, 0, name));
    }
    PyObject* from_type = class_attribute(type, name);
    if (!from_type) {
      // A module's __getattr__ (lazy imports) is run by Python.
      static PyObject* const getattr_name = intern("__getattr__");
      if (dict_get(instance_dict(object), getattr_name)) break_graph(BreakReason::UnsupportedObject, "a module with __getattr__");
      add_guard(GuardKind::LacksKey, sources->make(SourceKind::InstanceDict, value.source), name);
      return nullptr;
    }
  }
  static PyObject* const getattribute_name = intern("__getattribute__");
  PyObject* getattribute = class_attribute(type, getattribute_name);
  if (getattribute && PyFunction_Check(getattribute))
    break_graph(BreakReason::UnsupportedObject, std::string("class ") + type->tp_name + " has its own __getattribute__");

  PyObject* found = class_attribute(type, name);
  if (found) note_descriptor(Py_TYPE(found));
  const bool data = found && Py_TYPE(found)->tp_descr_set;
  if (data) {
    if (Py_TYPE(found) == &PyProperty_Type) return bind_class_attribute(found, owner, type);
    static PyObject* const dict_name = intern("__dict__");
    if (PyUnicode_Compare(name, dict_name) == 0) {
      if (value.changed) break_graph(BreakReason::UnsupportedObject, "the __dict__ of an object that was changed");
      if (PyObject* dict = instance_dict(object)) return wrap(dict, sources->make(SourceKind::InstanceDict, value.source));
    }
    static PyObject* const class_name = intern("__class__");
    if (PyUnicode_Compare(name, class_name) == 0) return wrap_constant(reinterpret_cast<PyObject*>(type));
    if (is_pure_getter(type, found)) {
      Ref<> result = Ref<>::steal(PyObject_GenericGetAttr(object, name));
      if (!result) {
        PyErr_Clear();
        break_graph(BreakReason::ErrorWhileTracing, "an attribute that is not set");
      }
      return wrap(keep(result).get(), sources->make(SourceKind::SlotMember, value.source, 0, name));
    }
    static PyObject* const get_name = intern("__get__");
    PyObject* get = fj_type_lookup(Py_TYPE(found), get_name);
    if (get && PyFunction_Check(get)) return bind_class_attribute(found, owner, type);
    break_graph(BreakReason::UnsupportedObject, "attribute '" + text_of(name) + "' of " + describe(owner));
  }
  if (PyObject* members = instance_dict(object)) {
    SourceRef members_source = sources->make(SourceKind::InstanceDict, value.source);
    // The dict itself may have been changed in the trace, through `vars(x)` or `x.__dict__`.
    if (auto known = identity_.find(members); known != identity_.end())
      if (auto* dict = as<DictValue>(known->second); dict && dict->mutated)
        break_graph(BreakReason::UnsupportedObject, "an object whose __dict__ was changed");
    if (PyObject* own = dict_get(members, name)) {
      add_guard(GuardKind::HasKey, members_source, name);
      return wrap(own, sources->make(SourceKind::Attribute, value.source, 0, name));
    }
    add_guard(GuardKind::LacksKey, members_source, name);
  }
  if (found) return bind_class_attribute(found, owner, type);
  static PyObject* const getattr_name = intern("__getattr__");
  PyObject* getattr = class_attribute(type, getattr_name);
  if (!getattr) return nullptr;
  if (getattr == module_getattr()) return module_member(owner, value, name);
  if (!PyFunction_Check(getattr)) break_graph(BreakReason::UnsupportedObject, std::string("class ") + type->tp_name + " has __getattr__");
  return call(wrap_constant(getattr), {owner, wrap_constant(name)}, {});
}

V TracerImpl::find_attribute(const V& owner, PyObject* name) {
  const std::string text = text_of(name);
  switch (owner->kind) {
    case ValueKind::Object: {
      auto& value = *as<ObjectValue>(owner);
      PyObject* object = value.object.get();
      if (array_library(object)) {
        const ArrayInfo info = describe(object);
        break_graph(BreakReason::UnsupportedArray, info.unsupported);
      }
      if (is_plain(object) && !PyType_Check(object)) {
        // Methods of numbers and strings.
        PyObject* found = fj_type_lookup(type_of(owner), name);
        if (!found) return nullptr;
        if (Py_TYPE(found) == &PyMethodDescr_Type || Py_TYPE(found) == &PyWrapperDescr_Type) return bind_class_attribute(found, owner, type_of(owner));
        PyObject* constant = constant_object(owner);
        Ref<> result = constant ? Ref<>::steal(PyObject_GetAttr(constant, name)) : Ref<>();
        if (!result) break_graph(BreakReason::ErrorWhileTracing, take_error());
        return wrap_constant(keep(result).get());
      }
      return object_attribute(owner, value, name);
    }
    case ValueKind::Array:
      if (text == "__class__") return wrap_constant(reinterpret_cast<PyObject*>(type_of(owner)));
      if (auto written = written_attribute(owner, name)) return *written;
      return array_attribute(tracer, owner, text);
    case ValueKind::Super:
      return super_attribute(*as<SuperValue>(owner), name);
    case ValueKind::BoundMethod: {
      auto& method = *as<BoundMethodValue>(owner);
      if (text == "__self__") return method.self;
      if (text == "__func__") return method.function;
      return find_attribute(method.function, name);
    }
    case ValueKind::Partial: {
      auto& partial = *as<PartialValue>(owner);
      if (text == "func") return partial.function;
      if (text == "args") return tracer.tuple(partial.positional);
      if (text == "keywords") {
        auto dict = std::make_shared<DictValue>();
        for (auto& [key, value] : partial.keywords) dict_store(dict, Ref<>::steal(PyUnicode_FromString(key.c_str())), value);
        return dict;
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
      if (text == "__next__" || text == "__iter__" || (as<IteratorValue>(owner)->frame && (text == "send" || text == "throw" || text == "close"))) {
        auto method = std::make_shared<BuiltinValue>();
        method->owner = owner;
        method->name = text;
        return method;
      }
      break;
    case ValueKind::Instance: {
      auto& instance = *as<InstanceValue>(owner);
      if (instance.type.get() == &PyTraceBack_Type) break_graph(BreakReason::UnsupportedObject, "a traceback");
      PyObject* found = class_attribute(instance.type.get(), name);
      for (auto& [key, value] : instance.attributes)
        if (PyUnicode_Compare(key.get(), name) == 0) return value;
      if (auto found = exception_attribute(instance, text)) return *found;
      if (text == "args" && PyType_IsSubtype(instance.type.get(), reinterpret_cast<PyTypeObject*>(PyExc_BaseException)))
        return tracer.tuple(instance.args);
      if (found) {
        note_descriptor(Py_TYPE(found));
        if (Py_TYPE(found) == &PyMemberDescr_Type) return nullptr;  // a slot nobody has filled
        if (!std::strcmp(Py_TYPE(found)->tp_name, "cached_property") || !std::strcmp(Py_TYPE(found)->tp_name, "functools.cached_property")) {
          Ref<> function = Ref<>::steal(PyObject_GetAttrString(found, "func"));
          if (!function) break_graph(BreakReason::UnsupportedObject, take_error());
          V value = call(wrap_constant(keep(function).get()), {owner}, {});
          instance.attributes.emplace_back(Ref<>::borrow(name), value);
          return value;
        }
        return bind_class_attribute(found, owner, instance.type.get());
      }
      if (text == "__class__") return wrap_constant(reinterpret_cast<PyObject*>(instance.type.get()));
      static PyObject* const getattr_name = intern("__getattr__");
      if (PyObject* getattr = class_attribute(instance.type.get(), getattr_name))
        return call(wrap_constant(getattr), {owner, wrap_constant(name)}, {});
      return nullptr;
    }
    case ValueKind::Tuple: {
      auto& tuple = *as<TupleValue>(owner);
      if (tuple.type) {
        // Fields of a named tuple, or of torch.return_types.
        Ref<> fields = Ref<>::steal(PyObject_GetAttrString(tuple.type.get(), "__match_args__"));
        PyErr_Clear();
        if (fields && PyTuple_Check(fields.get()))
          for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(fields.get()); ++i)
            if (PyUnicode_Compare(PyTuple_GET_ITEM(fields.get(), i), name) == 0) return tuple.items.at(std::size_t(i));
        PyObject* found = class_attribute(reinterpret_cast<PyTypeObject*>(tuple.type.get()), name);
        if (found && fields) return bind_class_attribute(found, owner, reinterpret_cast<PyTypeObject*>(tuple.type.get()));
      }
      [[fallthrough]];
    }
    default:
      break;
  }
  PyTypeObject* type = type_of(owner);
  PyObject* found = class_attribute(type, name);
  if (!found) return nullptr;
  if (Py_TYPE(found) == &PyMethodDescr_Type || Py_TYPE(found) == &PyWrapperDescr_Type) return bind_class_attribute(found, owner, type);
  break_graph(BreakReason::UnsupportedObject, "attribute '" + text + "' of " + describe(owner));
}

void TracerImpl::set_attribute(const V& owner, PyObject* name, const V& value) {
  if (auto* instance = as<InstanceValue>(owner)) {
    static PyObject* const setattr_name = intern("__setattr__");
    PyObject* setter = class_attribute(instance->type.get(), setattr_name);
    if (setter && PyFunction_Check(setter)) {
      call(wrap_constant(setter), {owner, wrap_constant(name), value}, {});
      return;
    }
    PyObject* descriptor = class_attribute(instance->type.get(), name);
    if (descriptor) note_descriptor(Py_TYPE(descriptor));
    if (descriptor && Py_TYPE(descriptor)->tp_descr_set && Py_TYPE(descriptor) != &PyMemberDescr_Type) {
      if (Py_TYPE(descriptor) == &PyProperty_Type) {
        Ref<> setter = Ref<>::steal(PyObject_GetAttrString(descriptor, "fset"));
        if (setter && setter.get() != Py_None) {
          call(wrap_constant(keep(setter).get()), {owner, value}, {});
          return;
        }
      }
      break_graph(BreakReason::UnsupportedObject, "assigns '" + text_of(name) + "' of " + describe(owner));
    }
    for (auto& [key, old] : instance->attributes)
      if (PyUnicode_Compare(key.get(), name) == 0) {
        old = value;
        return;
      }
    instance->attributes.emplace_back(Ref<>::borrow(name), value);
    return;
  }
  auto* object = as<ObjectValue>(owner);
  if (!object || PyModule_Check(object->object.get()) || PyType_Check(object->object.get()) ||
      array_library(object->object.get()) || PyFunction_Check(object->object.get()))
    break_graph(BreakReason::UnsupportedObject, "assigns an attribute of " + describe(owner));
  PyTypeObject* type = type_of(owner);
  PyObject* descriptor = class_attribute(type, name);
  if (descriptor) note_descriptor(Py_TYPE(descriptor));
  if (descriptor && Py_TYPE(descriptor) == &PyProperty_Type) {
    Ref<> setter = Ref<>::steal(PyObject_GetAttrString(descriptor, "fset"));
    if (setter && setter.get() != Py_None) {
      call(wrap_constant(keep(setter).get()), {owner, value}, {});
      return;
    }
  }
  static PyObject* const setattr_name = intern("__setattr__");
  PyObject* setter = class_attribute(type, setattr_name);
  const bool plain = setter == fj_type_lookup(&PyBaseObject_Type, setattr_name);
  bool module_plain = false;
  if (!plain && module_getattr()) {
    // torch.nn.Module.__setattr__ of something that is no parameter, module or tensor, under a name that is none either,
    // is a plain store.
    PyObject* torch = torch_module();
    Ref<> nn = torch ? Ref<>::steal(PyObject_GetAttrString(torch, "nn")) : Ref<>();
    Ref<> module = nn ? Ref<>::steal(PyObject_GetAttrString(nn.get(), "Module")) : Ref<>();
    PyErr_Clear();
    auto* stored = as<ObjectValue>(value);
    auto* array = as<ArrayValue>(value);
    const bool storable = array ? !array->parameter
                                : stored ? is_plain(stored->object.get())
                                         : value->kind == ValueKind::Tuple || value->kind == ValueKind::List ||
                                               value->kind == ValueKind::Dict || value->kind == ValueKind::SymInt;
    if (module && setter == fj_type_lookup(reinterpret_cast<PyTypeObject*>(module.get()), setattr_name) && storable &&
        object->source && !module_member(owner, *object, name)) {
      if (stored) guard_type(*stored);
      module_plain = true;
    }
  }
  const bool member = descriptor && Py_TYPE(descriptor) == &PyMemberDescr_Type;  // of __slots__
  if ((!plain && !module_plain) || (!member && ((descriptor && Py_TYPE(descriptor)->tp_descr_set) || !instance_dict(object->object.get()))))
    break_graph(BreakReason::UnsupportedObject, "assigns attribute '" + text_of(name) + "' of " + describe(owner));
  if (!object->source) object->source = sources->constant(object->object.get());
  object->changed = true;
  attribute_writes.push_back({owner, Ref<>::borrow(name), value});
}

void TracerImpl::delete_attribute(const V& owner, PyObject* name) {
  PyTypeObject* type = type_of(owner);
  static PyObject* const delattr_name = intern("__delattr__");
  PyObject* descriptor = class_attribute(type, name);
  if (descriptor) note_descriptor(Py_TYPE(descriptor));
  const bool plain = class_attribute(type, delattr_name) == fj_type_lookup(&PyBaseObject_Type, delattr_name) &&
                     !(descriptor && Py_TYPE(descriptor)->tp_descr_set);
  if (auto* instance = as<InstanceValue>(owner); instance && plain) {
    auto found = std::find_if(instance->attributes.begin(), instance->attributes.end(),
                              [&](auto& item) { return PyUnicode_Compare(item.first.get(), name) == 0; });
    if (found == instance->attributes.end()) raise_no_attribute(owner, name);
    instance->attributes.erase(found);
    return;
  }
  auto* object = as<ObjectValue>(owner);
  if (object && plain && !descriptor && !PyModule_Check(object->object.get()) && !PyType_Check(object->object.get()) &&
      !PyFunction_Check(object->object.get()) && instance_dict(object->object.get()) && find_attribute(owner, name)) {
    if (!object->source) object->source = sources->constant(object->object.get());
    object->changed = true;
    attribute_writes.push_back({owner, Ref<>::borrow(name), nullptr});
    return;
  }
  break_graph(BreakReason::UnsupportedObject, "deletes attribute '" + text_of(name) + "' of " + describe(owner));
}

}  // namespace fj
