/// Names: cells, globals and builtins, local variables, and attributes as instructions ask for them.
#include "tracer/interpreter/scopes.h"

#include "tracer/interpreter/exceptions.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/state/effect_log.h"
#include "tracer/state/identity.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/containers/dicts.h"
#include "tracer/values/outside_objects.h"


namespace fj {

V cell_contents(TraceRun& t, CellValue& cell) {
  if (!cell.loaded && cell.source) {
    cell.loaded = true;
    PyObject* contents = PyCell_GET(cell.real.get());
    SourceRef source = t.sources().make(SourceKind::Cell, cell.source);
    if (contents)
      cell.contents = t.wrap(contents, source);
    else
      add_guard(t, GuardKind::Unbound, source);
  }
  return cell.contents;
}

void set_cell(TraceRun& t, const V& value, V contents) {
  CellValue& cell = *as<CellValue>(value);
  cell.loaded = true;
  note_cell(t, value, contents);
  cell.contents = std::move(contents);
}

SourceRef globals_source(TraceRun& t, PyObject* globals) { return t.sources().constant(globals); }

void raise_undefined(TraceRun& t, PyObject* name) {
  const std::string text = "name '" + text_of(name) + "' is not defined";
  raise(t, PyExc_NameError, {t.string(text)}, BreakReason::ErrorWhileTracing, text);
}

V known_dict(TraceRun& t, PyObject* dict, SourceRef place) {
  auto known = t.identity->values.find(dict);
  return known != t.identity->values.end() && known->second->kind == ValueKind::Dict ? t.wrap(dict, place) : nullptr;
}

SourceRef globals_place(TraceRun& t, const Frame& frame) {
  const bool own = frame.globals.get() == t.request.function->func_globals;
  return own ? t.sources().make(SourceKind::FunctionGlobals, t.sources().function())
             : globals_source(t, frame.globals.get());
}

V load_global(TraceRun& t, Frame& frame, PyObject* name) {
  V space = known_dict(t, frame.globals.get(), globals_place(t, frame));
  if (V found = space ? dict_find(t, *as<DictValue>(space), name) : nullptr) return found;
  std::optional<V> written = written_global(t, frame.globals.get(), name);
  if (written && *written) return *written;
  const bool own = frame.globals.get() == t.request.function->func_globals;
  PyObject* found = space || written ? nullptr : PyDict_GetItemWithError(frame.globals.get(), name);
  SourceRef dict = globals_place(t, frame);
  if (found) {
    add_guard(t, GuardKind::HasKey, dict, name);
    return t.wrap(found, own ? t.sources().global(name) : t.sources().make(SourceKind::DictItem, dict, 0, name));
  }
  PyErr_Clear();
  if (!space && !written) add_guard(t, GuardKind::LacksKey, dict, name);  // a deleted one is a builtin's name again
  found = PyDict_Check(frame.builtins.get()) ? PyDict_GetItemWithError(frame.builtins.get(), name) : nullptr;
  if (!found) {
    PyErr_Clear();
    raise_undefined(t, name);
  }
  return t.wrap(found, frame.builtins.get() == t.request.function->func_builtins
                         ? t.sources().builtin(name)
                         : t.sources().make(SourceKind::DictItem, t.sources().constant(frame.builtins.get()), 0, name));
}

void raise_no_attribute(TraceRun& t, const V& owner, PyObject* name) {
  const std::string detail = describe(owner) + " has no attribute '" + text_of(name) + "'";
  if (owner->kind != ValueKind::Object && owner->kind != ValueKind::Instance)
    break_graph(BreakReason::ErrorWhileTracing, detail);
  auto* object = as<ObjectValue>(owner);
  const bool type = object && PyType_Check(object->object.get());
  if (object && PyModule_Check(object->object.get())) break_graph(BreakReason::ErrorWhileTracing, detail);
  auto error = std::make_shared<InstanceValue>();
  error->type = Ref<PyTypeObject>::borrow(reinterpret_cast<PyTypeObject*>(PyExc_AttributeError));
  const std::string what =
      type
          ? "type object '" +
                text_of(Ref<>::steal(PyType_GetName(reinterpret_cast<PyTypeObject*>(object->object.get()))).get()) + "'"
          : "'" + std::string(t.type_of(owner)->tp_name) + "' object";
  error->args = {t.string(what + " has no attribute '" + text_of(name) + "'")};
  error->attributes.emplace_back(Ref<>::steal(PyUnicode_InternFromString("name")), wrap_constant(t, name));
  error->attributes.emplace_back(Ref<>::steal(PyUnicode_InternFromString("obj")), owner);
  raise(t, error, BreakReason::ErrorWhileTracing, detail);
}

void load_attribute(TraceRun& t, Frame& frame, const V& owner, PyObject* name) {
  V found = find_attribute(t, owner, name);
  if (!found) raise_no_attribute(t, owner, name);
  frame.stack.push_back(std::move(found));
}

V& TraceRun::local(Frame& frame, int slot) {
  if (frame.outermost && frame.initial[slot]) {
    frame.initial[slot] = false;
    PyObject* object = slot < int(request.values.slots.size()) ? request.values.slots[slot] : nullptr;
    SourceRef source = sources().slot(slot, text_of(PyTuple_GET_ITEM(frame.co->co_localsplusnames, slot)));
    if (object)
      frame.slots[slot] = wrap(object, source);
    else
      add_guard(*this, GuardKind::Unbound, source);
  }
  return frame.slots[slot];
}

}  // namespace fj
