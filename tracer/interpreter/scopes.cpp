/// Names: cells, globals and builtins, local variables, and attributes as instructions ask for them.
#include "tracer/interpreter/interpreter.h"

namespace fj {

V TraceRun::cell_contents(CellValue& cell) {
  if (!cell.loaded && cell.source) {
    cell.loaded = true;
    PyObject* contents = PyCell_GET(cell.real.get());
    SourceRef source = sources().make(SourceKind::Cell, cell.source);
    if (contents)
      cell.contents = wrap(contents, source);
    else
      add_guard(GuardKind::Unbound, source);
  }
  return cell.contents;
}

void TraceRun::set_cell(const V& value, V contents) {
  CellValue& cell = *as<CellValue>(value);
  cell.loaded = true;
  note_cell(value, contents);
  cell.contents = std::move(contents);
}

SourceRef TraceRun::globals_source(PyObject* globals) { return sources().constant(globals); }

void TraceRun::raise_undefined(PyObject* name) {
  const std::string text = "name '" + text_of(name) + "' is not defined";
  raise(PyExc_NameError, {string(text)}, BreakReason::ErrorWhileTracing, text);
}

V TraceRun::known_dict(PyObject* dict, SourceRef place) {
  auto known = identity_.find(dict);
  return known != identity_.end() && known->second->kind == ValueKind::Dict ? wrap(dict, place) : nullptr;
}

SourceRef TraceRun::globals_place(const Frame& frame) {
  const bool own = frame.globals.get() == request.function->func_globals;
  return own ? sources().make(SourceKind::FunctionGlobals, sources().function()) : globals_source(frame.globals.get());
}

V TraceRun::load_global(Frame& frame, PyObject* name) {
  V space = known_dict(frame.globals.get(), globals_place(frame));
  if (V found = space ? dict_find(*as<DictValue>(space), name) : nullptr) return found;
  std::optional<V> written = written_global(frame.globals.get(), name);
  if (written && *written) return *written;
  const bool own = frame.globals.get() == request.function->func_globals;
  PyObject* found = space || written ? nullptr : PyDict_GetItemWithError(frame.globals.get(), name);
  SourceRef dict = globals_place(frame);
  if (found) {
    add_guard(GuardKind::HasKey, dict, name);
    return wrap(found, own ? sources().global(name) : sources().make(SourceKind::DictItem, dict, 0, name));
  }
  PyErr_Clear();
  if (!space && !written) add_guard(GuardKind::LacksKey, dict, name);  // a deleted one is a builtin's name again
  found = PyDict_Check(frame.builtins.get()) ? PyDict_GetItemWithError(frame.builtins.get(), name) : nullptr;
  if (!found) {
    PyErr_Clear();
    raise_undefined(name);
  }
  return wrap(found, frame.builtins.get() == request.function->func_builtins
                         ? sources().builtin(name)
                         : sources().make(SourceKind::DictItem, sources().constant(frame.builtins.get()), 0, name));
}

void TraceRun::raise_no_attribute(const V& owner, PyObject* name) {
  const std::string detail = describe(owner) + " has no attribute '" + text_of(name) + "'";
  if (owner->kind != ValueKind::Object && owner->kind != ValueKind::Instance) break_graph(BreakReason::ErrorWhileTracing, detail);
  auto* object = as<ObjectValue>(owner);
  const bool type = object && PyType_Check(object->object.get());
  if (object && PyModule_Check(object->object.get())) break_graph(BreakReason::ErrorWhileTracing, detail);
  auto error = std::make_shared<InstanceValue>();
  error->type = Ref<PyTypeObject>::borrow(reinterpret_cast<PyTypeObject*>(PyExc_AttributeError));
  const std::string what = type ? "type object '" + text_of(Ref<>::steal(PyType_GetName(reinterpret_cast<PyTypeObject*>(object->object.get()))).get()) + "'"
                                : "'" + std::string(type_of(owner)->tp_name) + "' object";
  error->args = {string(what + " has no attribute '" + text_of(name) + "'")};
  error->attributes.emplace_back(Ref<>::steal(PyUnicode_InternFromString("name")), wrap_constant(name));
  error->attributes.emplace_back(Ref<>::steal(PyUnicode_InternFromString("obj")), owner);
  raise(error, BreakReason::ErrorWhileTracing, detail);
}

void TraceRun::load_attribute(Frame& frame, const V& owner, PyObject* name) {
  V found = find_attribute(owner, name);
  if (!found) raise_no_attribute(owner, name);
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
      add_guard(GuardKind::Unbound, source);
  }
  return frame.slots[slot];
}

}  // namespace fj
