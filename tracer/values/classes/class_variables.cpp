/// Attributes of classes that compiled code assigns: `Parser.count += 1`.
///
/// What a class has under a name is a constant of the trace, guarded as such (`class_attribute`): right for methods and defaults, and for
/// a counter a trace for every value. So the names that traced code has assigned are remembered, and those are read like an attribute of
/// any object, from a source. An assignment is in the log of effects; what the trace has assigned is found here, in the order of the
/// classes' bases, before what the real classes hold.
#include <algorithm>
#include <set>

#include "tracer/interpreter/interpreter.h"
#include "tracer/restart.h"
#include "tracer/values/classes/attributes.h"

namespace fj {

namespace {

/// Classes by address: one that is gone and whose place another one takes costs that one guards by value, no more.
constexpr std::size_t kMostAssigned = 4096;
std::set<std::pair<const PyTypeObject*, PyObject*>>& assigned() {
  static auto* names = new std::set<std::pair<const PyTypeObject*, PyObject*>>;  // interned names are held for ever
  return *names;
}

bool is_assigned(PyTypeObject* type, PyObject* name) {
  if (assigned().empty() || !type->tp_mro) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i)
    if (assigned().count({reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i)), name})) return true;
  return false;
}

bool is_descriptor(PyObject* object) { return Py_TYPE(object)->tp_descr_get || Py_TYPE(object)->tp_descr_set; }

/// What no class treats in a way of its own when it is found there.
bool is_plain_variable(const V& value) {
  switch (value->kind) {
    case ValueKind::Object: return is_plain(as<ObjectValue>(value)->object.get());
    case ValueKind::SymInt: case ValueKind::Number: case ValueKind::Array: case ValueKind::Tuple: case ValueKind::List: case ValueKind::Dict:
    case ValueKind::Set: return true;
    default: return false;
  }
}

/// Defined by the class itself, not by one of its bases.
PyObject* own_member(PyTypeObject* type, PyObject* name) {
  Ref<> members = Ref<>::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dict__"));
  Ref<> found = members ? Ref<>::steal(PyObject_GetItem(members.get(), name)) : Ref<>();
  PyErr_Clear();
  return found.get();  // the class keeps it alive
}

/// The first class that has it.
PyTypeObject* owner_of(PyTypeObject* type, PyObject* name) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i)
    if (auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i)); own_member(base, name)) return base;
  return nullptr;
}

}  // namespace

/// The name is `owner`'s, the first of the bases of `type` that has it: the classes before have none of their own.
void TraceRun::guard_class_lookup(PyTypeObject* type, PyTypeObject* owner, PyObject* name) {
  guard_bases(type);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    PyObject* base = PyTuple_GET_ITEM(type->tp_mro, i);
    const bool is_owner = base == reinterpret_cast<PyObject*>(owner);
    const bool changes = (reinterpret_cast<PyTypeObject*>(base)->tp_flags & Py_TPFLAGS_HEAPTYPE) && !made_class_at(base);
    const bool written = class_variables_.count({reinterpret_cast<PyTypeObject*>(base), name});
    if (changes && !written)
      add_guard(is_owner ? GuardKind::HasKey : GuardKind::LacksKey, sources().make(SourceKind::InstanceDict, sources().constant(base)), name);
    if (is_owner) return;
  }
}

PyTypeObject* TraceRun::assigned_owner(PyTypeObject* type, PyObject* name) {
  if (class_variables_.empty() || !type->tp_mro) return nullptr;
  PyObject* key = interned(name);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    if (class_variables_.count({base, key})) return base;
    if (own_member(base, name)) return nullptr;
  }
  return nullptr;
}

V TraceRun::class_variable(PyTypeObject* type, PyObject* name) {
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return nullptr;
  PyObject* key = interned(name);
  if (PyTypeObject* owner = assigned_owner(type, name)) {
    guard_class_lookup(type, owner, key);
    return class_variables_.at({owner, key});
  }
  PyObject* found = is_assigned(type, key) ? fj_type_lookup(type, name) : nullptr;
  if (!found || is_descriptor(found) || !(is_plain(found) || array_library(found) || PyList_CheckExact(found) || PyTuple_CheckExact(found) || PyDict_CheckExact(found)))
    return nullptr;
  PyTypeObject* owner = owner_of(type, name);
  if (!owner || !(owner->tp_flags & Py_TPFLAGS_HEAPTYPE) || made_class_at(reinterpret_cast<PyObject*>(owner))) return nullptr;
  guard_class_lookup(type, owner, key);
  V value = wrap(found, sources().make(SourceKind::ClassVariable, sources().constant(reinterpret_cast<PyObject*>(owner)), 0, key));
  type_of(value);  // no descriptor, whatever becomes of it
  return value;
}

void TraceRun::set_class_variable(const V& owner, PyTypeObject* type, PyObject* name, const V& value) {
  auto refuse = [&] { break_graph(BreakReason::UnsupportedObject, "assigns an attribute of " + describe(owner)); };
  const std::string text = text_of(name);
  static PyObject* const setattr_name = intern("__setattr__");
  PyTypeObject* meta = Py_TYPE(type);
  // Special methods are what C code finds; a class made here nobody else has.
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE) || (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) || text.starts_with("__") ||
      made_class_at(reinterpret_cast<PyObject*>(type)) || !is_plain_variable(value))
    refuse();
  if (class_attribute(meta, setattr_name) != fj_type_lookup(&PyType_Type, setattr_name)) refuse();
  if (PyObject* of_meta = class_attribute(meta, name); of_meta && is_descriptor(of_meta)) refuse();
  guard_value(*as<ObjectValue>(owner));
  PyObject* key = interned(name);
  if (!is_assigned(type, key)) {
    if (assigned().size() >= kMostAssigned) refuse();
    assigned().emplace(type, Py_NewRef(key));
    throw TraceAgain{};  // what was read of it until now was taken for a constant
  }
  if (PyObject* found = fj_type_lookup(type, name); found && is_descriptor(found)) refuse();
  class_variables_[{type, key}] = value;
  // One owner in the log, however the class was reached: the log forgets what is assigned over.
  const auto same = std::find_if(effects.begin(), effects.end(), [&](const Effect& effect) {
    auto* known = effect.kind == Effect::Kind::Attribute ? as<ObjectValue>(effect.owner) : nullptr;
    return known && known->object.get() == reinterpret_cast<PyObject*>(type);
  });
  const V first = same == effects.end() ? owner : same->owner;
  note_attribute(first, name, value);
}

void TraceRun::refuse_assigned_class(PyTypeObject* type) {
  for (auto& [place, value] : class_variables_)
    if (PyType_IsSubtype(type, const_cast<PyTypeObject*>(place.first)))
      break_graph(BreakReason::UnsupportedObject, std::string("looks at class ") + type->tp_name + ", an attribute of which was assigned");
}

}  // namespace fj
