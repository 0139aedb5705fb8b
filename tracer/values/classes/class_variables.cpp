/// Attributes of classes that compiled code assigns: `Parser.count += 1`.
///
/// What a class has under a name is a constant of the trace, guarded as such (`class_attribute`): right for methods and
/// defaults, and for a counter a trace for every value. So the names that traced code has assigned are remembered, and
/// those are read like an attribute of any object, from a source. An assignment is in the log of effects; what the
/// trace has assigned is found here, in the order of the classes' bases, before what the real classes hold.
#include "tracer/values/classes/class_variables.h"

#include <algorithm>
#include <set>

#include "tracer/interpreter/trace_run.h"
#include "tracer/restart.h"
#include "tracer/state/class_ledger.h"
#include "tracer/state/effect_log.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/classes/class_statement.h"
#include "tracer/values/outside_objects.h"

namespace fj {

static void guard_class_lookup(TraceRun& t, PyTypeObject* type, PyTypeObject* owner, PyObject* name);

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
    case ValueKind::SymInt:
    case ValueKind::Number:
    case ValueKind::Array:
    case ValueKind::Tuple:
    case ValueKind::List:
    case ValueKind::Dict:
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
    if (auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i)); own_member(base, name))
      return base;
  return nullptr;
}

}  // namespace

/// The name is `owner`'s, the first of the bases of `type` that has it: the classes before have none of their own.
void guard_class_lookup(TraceRun& t, PyTypeObject* type, PyTypeObject* owner, PyObject* name) {
  guard_bases(t, type);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    PyObject* base = PyTuple_GET_ITEM(type->tp_mro, i);
    const bool is_owner = base == reinterpret_cast<PyObject*>(owner);
    const bool changes =
        (reinterpret_cast<PyTypeObject*>(base)->tp_flags & Py_TPFLAGS_HEAPTYPE) && !made_class_at(t, base);
    const bool written = t.classes->variables.count({reinterpret_cast<PyTypeObject*>(base), name});
    if (changes && !written)
      add_guard(t, is_owner ? GuardKind::HasKey : GuardKind::LacksKey,
                t.sources().make(SourceKind::InstanceDict, t.sources().constant(base)), name);
    if (is_owner) return;
  }
}

PyTypeObject* assigned_owner(TraceRun& t, PyTypeObject* type, PyObject* name) {
  if (t.classes->variables.empty() || !type->tp_mro) return nullptr;
  PyObject* key = interned(t, name);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    if (t.classes->variables.count({base, key})) return base;
    if (own_member(base, name)) return nullptr;
  }
  return nullptr;
}

V class_variable(TraceRun& t, PyTypeObject* type, PyObject* name) {
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return nullptr;
  PyObject* key = interned(t, name);
  if (PyTypeObject* owner = assigned_owner(t, type, name)) {
    guard_class_lookup(t, type, owner, key);
    return t.classes->variables.at({owner, key});
  }
  PyObject* found = is_assigned(type, key) ? fj_type_lookup(type, name) : nullptr;
  if (!found || is_descriptor(found) ||
      !(is_plain(found) || array_library(found) || PyList_CheckExact(found) || PyTuple_CheckExact(found) ||
        PyDict_CheckExact(found)))
    return nullptr;
  PyTypeObject* owner = owner_of(type, name);
  if (!owner || !(owner->tp_flags & Py_TPFLAGS_HEAPTYPE) || made_class_at(t, reinterpret_cast<PyObject*>(owner)))
    return nullptr;
  guard_class_lookup(t, type, owner, key);
  V value = t.wrap(found, t.sources().make(SourceKind::ClassVariable,
                                           t.sources().constant(reinterpret_cast<PyObject*>(owner)), 0, key));
  t.type_of(value);  // no descriptor, whatever becomes of it
  return value;
}

void set_class_variable(TraceRun& t, const V& owner, PyTypeObject* type, PyObject* name, const V& value) {
  auto refuse = [&] { break_graph(BreakReason::UnsupportedObject, "assigns an attribute of " + describe(owner)); };
  const std::string text = text_of(name);
  static PyObject* const setattr_name = intern("__setattr__");
  PyTypeObject* meta = Py_TYPE(type);
  // A class that has no bases yet (its metaclass's mro() runs): the names of its bases are not found by them.
  if (!type->tp_mro) refuse();
  // Special methods are what C code finds; a class made here nobody else has.
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE) || (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) ||
      text.starts_with("__") || made_class_at(t, reinterpret_cast<PyObject*>(type)) || !is_plain_variable(value))
    refuse();
  if (class_attribute(t, meta, setattr_name) != fj_type_lookup(&PyType_Type, setattr_name)) refuse();
  if (PyObject* of_meta = class_attribute(t, meta, name); of_meta && is_descriptor(of_meta)) refuse();
  guard_value(t, *as<ObjectValue>(owner));
  PyObject* key = interned(t, name);
  if (!is_assigned(type, key)) {
    if (assigned().size() >= kMostAssigned) refuse();
    assigned().emplace(type, Py_NewRef(key));
    throw TraceAgain{};  // what was read of it until now was taken for a constant
  }
  if (PyObject* found = fj_type_lookup(type, name); found && is_descriptor(found)) refuse();
  t.classes->variables[{type, key}] = value;
  note_attribute(t, owner, name, value);
}

void refuse_assigned_class(TraceRun& t, PyTypeObject* type) {
  for (auto& [place, value] : t.classes->variables)
    if (PyType_IsSubtype(type, const_cast<PyTypeObject*>(place.first)))
      break_graph(BreakReason::UnsupportedObject,
                  std::string("looks at class ") + type->tp_name + ", an attribute of which was assigned");
}

}  // namespace fj
