/// `owner.name = value` and `del owner.name` by CPython's own rules, on Values, and the dicts behind attributes.
///
/// Python code on the way (properties, __setattr__, descriptors) is inlined; what is left is a write that the log of
/// effects holds. Where a trace knows an object's __dict__ as a value of its own, attributes are that dict's items.
#include "tracer/values/classes/attribute_writes.h"

#include <Python.h>
#include <structmember.h>

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "tracer/frontends/numpy/parts.h"
#include "tracer/gradients/backward_call.h"
#include "tracer/interpreter/exceptions.h"
#include "tracer/interpreter/scopes.h"
#include "tracer/modes/warning_filters.h"
#include "tracer/state/effect_log.h"
#include "tracer/state/warning_ledger.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/classes/class_variables.h"
#include "tracer/values/containers/containers.h"
#include "tracer/values/containers/dicts.h"
#include "tracer/values/outside_objects.h"

namespace fj {

static void store_in_module(TraceRun& t, ObjectValue& module, PyObject* name, const V& value);
static bool plain_module_store(TraceRun& t, const V& owner, ObjectValue& object, PyObject* setter, PyObject* name,
                               const V& value);
[[noreturn]] static void refuse_attribute(TraceRun& t, const V& owner, PyObject* name, const std::string& message);

void set_attribute(TraceRun& t, const V& owner, PyObject* name, const V& value) {
  if (auto* function = as<FunctionValue>(owner)) {
    const std::string text = text_of(name);
    t.effects->note_write(owner.get());
    if (text == "__qualname__" && t.constant_object(value)) {
      function->qualname = Ref<>::borrow(t.constant_object(value));
      return;
    }
    if (text == "__annotations__" && value->kind == ValueKind::Dict) {
      function->annotations = value;
      return;
    }
    if (text == "__annotate__" && fj_annotations_wait()) {
      const auto* object = as<ObjectValue>(value);
      const bool gives = value->kind == ValueKind::Function || (object && PyFunction_Check(object->object.get()));
      if (!gives && !t.is_none(value)) break_graph(BreakReason::UnsupportedObject, "`__annotate__` that is no function");
      if (gives) function->annotations = value;
      else if (function->annotations && function->annotations->kind != ValueKind::Dict &&
               function->annotations->kind != ValueKind::Tuple)
        function->annotations = nullptr;
      return;
    }
    if (text == "__type_params__") return;
    if (text == "__code__" || text == "__defaults__" || text == "__kwdefaults__" || text == "__annotations__" ||
        text == "__globals__" || text == "__closure__")
      break_graph(BreakReason::UnsupportedObject, "assigns '" + text + "' of " + describe(owner));
    // In C, not in its __dict__.
    const bool field = text == "__name__" || text == "__doc__" || text == "__module__";
    if (text == "__name__" && t.type_of(value) != &PyUnicode_Type)
      break_graph(BreakReason::ErrorWhileTracing, "a name that is " + describe(value));
    return dict_store(t, field ? function->fields : function->attributes, Ref<>::borrow(name), value);
  }
  if (owner->kind == ValueKind::Dict && text_of(name) == "default_factory" &&
      as<DictValue>(owner)->type.get() == defaultdict_type() && !owner->source) {
    t.effects->note_write(owner.get());
    as<DictValue>(owner)->default_factory = t.is_none(value) ? nullptr : value;
    return;
  }
  static PyObject* const gradient_name = intern("grad");
  static PyObject* const requires_name = intern("requires_grad");
  if (owner->kind == ValueKind::Array && PyUnicode_Compare(name, requires_name) == 0 &&
      t.constant_object(value) == Py_True && t.make_leaf(owner))
    return;
  if (owner->kind == ValueKind::Array && PyUnicode_Compare(name, gradient_name) == 0)
    return set_gradient_field(t, owner, gradient_name, value);
  if (auto* array = as<ArrayValue>(owner);
      array && array->library == Library::Numpy && !array->numpy_scalar && text_of(name) == "flat")
    return numpy_set_flat(t, std::static_pointer_cast<ArrayValue>(owner), nullptr, value);
  auto* object = as<ObjectValue>(owner);
  if (object && t.warnings->any()) refuse_warning_filters(t, object->object.get(), name, true);
  if (object && PyModule_CheckExact(object->object.get())) return store_in_module(t, *object, name, value);
  if (object && PyType_Check(object->object.get()))
    return set_class_variable(t, owner, reinterpret_cast<PyTypeObject*>(object->object.get()), name, value);
  if ((!object && owner->kind != ValueKind::Instance) ||
      (object && (PyModule_Check(object->object.get()) || PyType_Check(object->object.get()) ||
                  array_library(object->object.get()) ||
                  (PyFunction_Check(object->object.get()) && fj_type_lookup(&PyFunction_Type, name)) ||
                  is_plain(object->object.get()) ||
                  has_own_rules(Py_TYPE(object->object.get()), "__setattr__",
                                reinterpret_cast<void*>(PyObject_GenericSetAttr)))) ||
      (!object && has_own_rules(as<InstanceValue>(owner)->type.get(), "__setattr__",
                                reinterpret_cast<void*>(PyObject_GenericSetAttr))))
    break_graph(BreakReason::UnsupportedObject, "assigns an attribute of " + describe(owner));
  static PyObject* const setattr_name = intern("__setattr__");
  PyTypeObject* type = t.type_of(owner);
  PyObject* setter = overridden(t, type, setattr_name);
  if (setter && object && plain_module_store(t, owner, *object, setter, name, value)) return;
  if (setter) {
    t.call(wrap_constant(t, setter), {owner, wrap_constant(t, name), value}, {});
    return;
  }
  store_attribute(t, owner, name, value);
}

namespace {

/// Of the standard library, an array library or framejit.
bool is_library_module(const std::string& name) {
  const std::string root = name.substr(0, name.find('.'));
  if (root == "numpy" || root == "torch" || root == "framejit") return true;
  PyObject* const standard = once([] { return imported("sys", "stdlib_module_names").release(); });
  return root != "__main__" &&
         (!standard || PySet_Contains(standard, Ref<>::steal(PyUnicode_FromString(root.c_str())).get()) != 0);
}

}  // namespace

/// As an assignment to a global of the module. Of the user's modules only: C code of a library, or a library call of
/// this graph, may look at what its own module holds (warnings.filters, settings), and the log is replayed after those.
void store_in_module(TraceRun& t, ObjectValue& module, PyObject* name, const V& value) {
  PyObject* globals = instance_dict(module.object.get());
  PyObject* descriptor = fj_type_lookup(&PyModule_Type, name);
  Ref<> module_name = globals ? Ref<>::borrow(PyDict_GetItemString(globals, "__name__")) : Ref<>();
  const std::string text = text_of(name);
  if (!module_name || !PyUnicode_Check(module_name.get()) || descriptor || text.starts_with("__") ||
      is_library_module(text_of(module_name.get())))
    break_graph(BreakReason::UnsupportedObject, "assigns '" + text + "' of a module");
  guard_value(t, module);
  if (!module.source) module.source = t.sources().constant(module.object.get());
  V space = known_dict(t, globals, t.sources().make(SourceKind::InstanceDict, module.source));
  if (space) return dict_store(t, space, Ref<>::borrow(name), value);
  note_global(t, globals, name, value);
}

/// torch.nn.Module.__setattr__ of something that is no parameter, module or tensor, under a name that is none either,
/// is a plain store: done here. False: it has to run.
bool plain_module_store(TraceRun& t, const V& owner, ObjectValue& object, PyObject* setter, PyObject* name,
                        const V& value) {
  if (!is_method_of_module(setter, "Module.__setattr__")) return false;
  auto* stored = as<ObjectValue>(value);
  auto* array = as<ArrayValue>(value);
  const bool storable = array ? !array->parameter
                              : stored ? is_plain(stored->object.get())
                                       : value->kind == ValueKind::Tuple || value->kind == ValueKind::List ||
                                             value->kind == ValueKind::Dict || value->kind == ValueKind::SymInt;
  PyObject* descriptor = fj_type_lookup(t.type_of(owner), name);
  if (!storable || !object.source || module_member(t, owner, object, name) ||
      (descriptor && Py_TYPE(descriptor) != &PyMemberDescr_Type && Py_TYPE(descriptor)->tp_descr_set))
    return false;
  if (stored) guard_type(t, *stored);
  store_attribute(t, owner, name, value);
  return true;
}

namespace {

/// Of a class's __slots__.
bool is_slot(PyObject* member) {
  const PyMemberDef* field = reinterpret_cast<PyMemberDescrObject*>(member)->d_member;
  return field->type == T_OBJECT_EX && field->flags == 0;
}

bool has_instance_dict(PyTypeObject* type) {
  static PyObject* const name = intern("__dict__");
  PyObject* found = fj_type_lookup(type, name);
  return found && (Py_TYPE(found) == &PyGetSetDescr_Type || Py_TYPE(found) == &PyMemberDescr_Type);
}

}  // namespace

void refuse_attribute(TraceRun& t, const V& owner, PyObject* name, const std::string& message) {
  raise(t, PyExc_AttributeError, {t.string(message)}, BreakReason::ErrorWhileTracing,
        "attribute '" + text_of(name) + "' of " + describe(owner));
}

namespace {

/// What a property without a setter or deleter says. Only it knows whether it has a name: one put into a class later
/// has none.
std::string refusal_of(PyObject* property, PyTypeObject* type, bool sets) {
  Ref<> name = Ref<>::steal(PyType_GetQualName(type));
  // An object of a class of that name: the text shows nothing else of it.
  Ref<> stand_in = name ? Ref<>::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "O(){sO}",
                                                             name.get(), "__qualname__", name.get()))
                        : Ref<>();
  Ref<> object = stand_in ? Ref<>::steal(PyObject_CallNoArgs(stand_in.get())) : Ref<>();
  FJ_CHECK(object, "an object of a plain class");
  FJ_CHECK(Py_TYPE(property)->tp_descr_set(property, object.get(), sets ? Py_None : nullptr) < 0,
           "a property without a setter");
  PyObject *kind, *error, *traceback;
  PyErr_Fetch(&kind, &error, &traceback);
  PyErr_NormalizeException(&kind, &error, &traceback);
  Ref<> kinds = Ref<>::steal(kind), raised = Ref<>::steal(error), lines = Ref<>::steal(traceback);
  return text_of(Ref<>::steal(PyObject_Str(raised.get())).get());
}

}  // namespace

void store_attribute(TraceRun& t, const V& owner, PyObject* name, const V& value) {
  PyTypeObject* type = t.type_of(owner);
  static PyObject* const set_name = intern("__set__");
  static PyObject* const delete_name = intern("__delete__");
  PyObject* descriptor = class_variable(t, type, name) ? nullptr : class_attribute(t, type, name);
  const bool member = descriptor && Py_TYPE(descriptor) == &PyMemberDescr_Type;
  const char* verb = value ? "assigns" : "deletes";
  // A field of C code may be read-only or of another kind than an object.
  if (member && !is_slot(descriptor))
    break_graph(BreakReason::UnsupportedObject, std::string(verb) + " '" + text_of(name) + "' of " + describe(owner));
  if (descriptor && Py_TYPE(descriptor)->tp_descr_set && !member) {
    note_descriptor(t, Py_TYPE(descriptor));
    if (Py_TYPE(descriptor) == &PyProperty_Type) {
      Ref<> setter = Ref<>::steal(PyObject_GetAttrString(descriptor, value ? "fset" : "fdel"));
      if (setter && setter.get() != Py_None) {
        t.call(wrap_constant(t, t.keep(setter).get()), value ? std::vector<V>{owner, value} : std::vector<V>{owner},
               {});
        return;
      }
      refuse_attribute(t, owner, name, refusal_of(descriptor, type, value != nullptr));
    }
    if (PyObject* method = overridden(t, Py_TYPE(descriptor), value ? set_name : delete_name)) {
      V self = wrap_constant(t, descriptor);
      t.call(wrap_constant(t, method), value ? std::vector<V>{self, owner, value} : std::vector<V>{self, owner}, {});
      return;
    }
    break_graph(BreakReason::UnsupportedObject, std::string(verb) + " '" + text_of(name) + "' of " + describe(owner));
  }
  if (!member && !has_instance_dict(type))
    refuse_attribute(t, owner, name,
                     descriptor
                         ? "'" + std::string(type->tp_name) + "' object attribute '" + text_of(name) + "' is read-only"
                         : "'" + std::string(type->tp_name) + "' object has no attribute '" + text_of(name) + "'");
  if (auto* instance = as<InstanceValue>(owner)) {
    auto found = std::find_if(instance->attributes.begin(), instance->attributes.end(), [&](auto& item) {
      return PyUnicode_Check(item.first.get()) && PyUnicode_Compare(item.first.get(), name) == 0;
    });
    t.effects->note_write(owner.get());
    t.effects->note_write(instance->dict.get());
    if (!value) {
      if (found == instance->attributes.end()) raise_no_attribute(t, owner, name);
      ++instance->dict->deletions;
      instance->attributes.erase(found);
    } else if (found != instance->attributes.end()) {
      found->second = value;
    } else {
      instance->attributes.emplace_back(Ref<>::borrow(name), value);
    }
    return;
  }
  auto* object = as<ObjectValue>(owner);
  PyObject* real = object ? object->object.get() : nullptr;
  PyObject* members = real && !member ? instance_dict(real) : nullptr;
  if (!real || (!member && !members))
    break_graph(BreakReason::UnsupportedObject, std::string(verb) + " an attribute of " + describe(owner));
  if (!object->source) object->source = t.sources().constant(real);
  if (!value && !attribute_by_default(t, owner, name)) raise_no_attribute(t, owner, name);
  if (V known =
          members ? known_dict(t, members, t.sources().make(SourceKind::InstanceDict, object->source)) : nullptr) {
    if (value)
      dict_store(t, known, Ref<>::borrow(name), value);
    else
      delete_item(t, known, wrap_constant(t, name));
    return;
  }
  if (!value && descriptor) break_graph(BreakReason::UnsupportedObject, "deletes an attribute that the class has too");
  note_attribute(t, owner, name, value);
}

void delete_attribute(TraceRun& t, const V& owner, PyObject* name) {
  if (auto* function = as<FunctionValue>(owner)) return delete_item(t, function->attributes, wrap_constant(t, name));
  auto* object = as<ObjectValue>(owner);
  if ((!object && owner->kind != ValueKind::Instance) ||
      (object && (PyModule_Check(object->object.get()) || PyType_Check(object->object.get()) ||
                  PyFunction_Check(object->object.get()))))
    break_graph(BreakReason::UnsupportedObject, "deletes attribute '" + text_of(name) + "' of " + describe(owner));
  static PyObject* const delattr_name = intern("__delattr__");
  PyTypeObject* type = t.type_of(owner);
  if (PyObject* deleter = overridden(t, type, delattr_name)) {
    t.call(wrap_constant(t, deleter), {owner, wrap_constant(t, name)}, {});
    return;
  }
  store_attribute(t, owner, name, nullptr);
}

// ---- dicts of objects from outside

V outside_dict(TraceRun& t, const V& owner, ObjectValue& value, PyObject* members) {
  V wrapped = t.wrap(members, t.sources().make(SourceKind::InstanceDict, value.source));
  auto* dict = as<DictValue>(wrapped);
  if (!dict) break_graph(BreakReason::UnsupportedObject, "the __dict__ of " + describe(owner));
  dict->attributes_of = owner;
  return wrapped;
}

/// What was assigned until now to the attributes of an object, or to the globals of a module, whose dict this is,
/// belongs to the dict. It is in the log.
void adopt_writes(TraceRun& t, const V& dict, PyObject* real) {
  for (const Effect& effect : t.effects->effects()) {
    const void* holder = real;
    SourceRef place = nullptr;
    if (effect.kind == Effect::Kind::Attribute) {
      auto* object = as<ObjectValue>(effect.owner);
      PyObject* descriptor = object ? fj_type_lookup(Py_TYPE(object->object.get()), effect.key.get()) : nullptr;
      const bool slot = descriptor && Py_TYPE(descriptor) == &PyMemberDescr_Type;
      if (!object || slot || instance_dict(object->object.get()) != real) continue;
      holder = effect.owner.get();
      place = t.sources().make(SourceKind::InstanceDict, object->source);
    } else if (effect.kind == Effect::Kind::Item && effect.globals.get() == real) {
      place = globals_source(t, real);
    } else {
      continue;
    }
    t.wrap(real, place);  // guards that it is this dict
    open(t, *as<DictValue>(dict));
    dict_put(t, *as<DictValue>(dict), effect.key, effect.arguments.empty() ? nullptr : effect.arguments[0]);
    t.effects->forget_name(holder, effect.key.get());
  }
}

}  // namespace fj
