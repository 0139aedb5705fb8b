/// The instruction loop: one symbolic frame at a time, each instruction of bytecode.def on symbolic values.
///
/// Start at `run_frame`; `execute` is the table of instructions. Instructions that have more than a few lines live in the
/// files of variables/. What is not handled here breaks the graph with UnsupportedBytecode and runs concretely.
#include "tracer/frontends/arrays/torch_modes.h"
#include "tracer/interpreter.h"

#include <frameobject.h>

#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "tracer/variables/text.h"

namespace fj {

void break_graph(BreakReason reason, std::string detail) { throw BreakGraph{reason, std::move(detail)}; }

const FjCode* DecodeCache::get(PyCodeObject* code) {
  auto& entry = codes_[code];
  if (!entry) {
    entry.reset(fj_decode(code));
    if (!entry) {
      PyErr_Clear();
      break_graph(BreakReason::UnsupportedBytecode, "a function that can't be decoded");
    }
  }
  return entry.get();
}

TracerImpl::TracerImpl(const TraceRequest& request, DecodeCache& decodes, int stop_before)
    : request(request), decodes(decodes), stop_before_(stop_before) {
  tracer.attach(this);
  guards = std::make_unique<GuardSet>(sources);
  current_step = 0;
  none = std::make_shared<ObjectValue>(Ref<>::borrow(Py_None));
  true_value = std::make_shared<ObjectValue>(Ref<>::borrow(Py_True));
  false_value = std::make_shared<ObjectValue>(Ref<>::borrow(Py_False));
  graph->name = text_of(reinterpret_cast<PyCodeObject*>(request.code->code)->co_name);
  logs_instructions = log_enabled(Artifact::bytecode, text_of(reinterpret_cast<PyCodeObject*>(request.code->code)->co_qualname));
  modes.grad = torch_module() && torch_grad_enabled();
  modes.inference = torch_module() && (torch_modes() & torch_mode_bits::kInference);
  modes_outside_ = modes;
}

TracerImpl::~TracerImpl() = default;

V TracerImpl::run() {
  outer.code = request.code;
  outer.co = reinterpret_cast<PyCodeObject*>(request.code->code);
  outer.globals = Ref<>::borrow(request.function->func_globals);
  outer.builtins = Ref<>::borrow(request.function->func_builtins);
  outer.outermost = true;
  outer.pc = outer.executing = request.start_instruction;
  const std::size_t local_count = outer.co->co_nlocalsplus;
  outer.slots.resize(local_count);
  outer.initial.assign(local_count, true);
  for (PyObject* object : request.values.slots) held_.push_back(object != nullptr);
  if (PyObject* closure = request.function->func_closure)
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(closure); ++i)
      outer.closure.push_back(wrap(PyTuple_GET_ITEM(closure, i), sources->make(SourceKind::ClosureCell, sources->function(), i)));
  for (std::size_t i = local_count; i < request.values.slots.size(); ++i) {
    PyObject* object = request.values.slots[i];
    SourceRef source = sources->slot(int(i), "stack[" + std::to_string(i - local_count) + "]");
    if (!object) add_guard(GuardKind::Unbound, source);
    outer.stack.push_back(object ? wrap(object, source) : std::make_shared<NullValue>());
  }
  initial_stack_ = outer.stack;
  try {
    return run_frame(outer);
  } catch (const RaisedInTrace& raised) {
    break_location = raised.where;
    break_function = raised.function;
    step = raised.step;
    throw BreakGraph{raised.reason, raised.detail};
  }
}

std::uint32_t TracerImpl::collected_conditions() {
  if (graph->nodes.size() > collected_nodes_) collected_ |= modes.float_conditions;
  collected_nodes_ = graph->nodes.size();
  return collected_;
}

void TracerImpl::let_go(int slot) {
  if (slot >= int(held_.size()) || !held_[std::size_t(slot)]) return;
  held_[std::size_t(slot)] = false;
  if (request.fragile[std::size_t(slot)]) break_graph(BreakReason::UnsupportedObject, "lets go of an object whose end runs Python code");
}

void TracerImpl::check_limits() {
  if (++instruction_count > request.instruction_limit) break_graph(BreakReason::GraphTooLong, "too many instructions");
  if (int(graph->nodes.size()) > request.node_limit) break_graph(BreakReason::GraphTooLong, "too many operations");
}

namespace {

constexpr std::size_t kInlineDepth = 80;

/// Keeps `frames` right when a break unwinds.
class Entered {
 public:
  Entered(std::vector<Frame*>& frames, Frame& frame) : frames_(frames) { frames.push_back(&frame); }
  ~Entered() { frames_.pop_back(); }

 private:
  std::vector<Frame*>& frames_;
};

V pop(Frame& frame) {
  FJ_CHECK(!frame.stack.empty(), "symbolic stack underflow");
  V value = std::move(frame.stack.back());
  frame.stack.pop_back();
  return value;
}

std::vector<V> pop_many(Frame& frame, int count) {
  FJ_CHECK(int(frame.stack.size()) >= count, "symbolic stack underflow");
  std::vector<V> values(frame.stack.end() - count, frame.stack.end());
  frame.stack.resize(frame.stack.size() - count);
  return values;
}

V& peek(Frame& frame, int depth) {
  FJ_CHECK(int(frame.stack.size()) >= depth, "symbolic stack underflow");
  return frame.stack[frame.stack.size() - depth];
}

bool is_null(const V& value) { return value->kind == ValueKind::Null; }

PyObject* name_at(const Frame& frame, int index) { return PyTuple_GET_ITEM(frame.co->co_names, index); }
PyObject* constant_at(const Frame& frame, int index) { return PyTuple_GET_ITEM(frame.co->co_consts, index); }

}  // namespace

V TracerImpl::run_frame(Frame& frame) {
  if (frames.size() >= kInlineDepth) break_graph(BreakReason::RecursionLimit, text_of(frame.co->co_qualname));
  if (frame.code->is_generator && !frame.generator) break_graph(BreakReason::Generator, text_of(frame.co->co_qualname));
  Entered entered(frames, frame);
  std::optional<V> result;
  try {
    if (frame.thrown) {
      V exception = std::exchange(frame.thrown, nullptr);
      as<InstanceValue>(exception)->raised = true;
      const RaisedInTrace raised{exception, BreakReason::Raise, source_text(), location(), text_of(frame.co->co_qualname), step};
      if (!handle(frame, frame.code->instrs[frame.executing], raised)) {
        frame.finished = true;
        throw raised;
      }
    }
    while (!result) {
      FJ_CHECK(frame.pc < frame.code->count, "ran off the end of the code");
      const FjInstr& instr = frame.code->instrs[frame.pc];
      frame.executing = frame.pc;
      if (frame.outermost && instr.resumable) {
        if (++step == stop_before_) {
          step_pc.push_back(frame.pc);
          throw StopReached{};
        }
        step_pc.push_back(frame.pc);
        current_step = step;
      }
      check_limits();
      if (logs_instructions) log_instruction(frame, instr);
      ++frame.pc;
      try {
        execute(frame, instr, result);
      } catch (const RaisedInTrace& raised) {
        frame.finished = true;
        if (!handle(frame, instr, raised)) throw;
        frame.finished = false;
      }
      if (frame.outermost && !result)
        while (!initial_stack_.empty() && (initial_stack_.size() > frame.stack.size() || frame.stack[initial_stack_.size() - 1] != initial_stack_.back())) {
          initial_stack_.pop_back();
          let_go(int(frame.slots.size() + initial_stack_.size()));
        }
    }
  } catch (const BreakGraph&) {
    if (!break_location) {
      break_location = location();
      break_function = text_of(frame.co->co_qualname);
    }
    throw;
  }
  return *result;
}

/// `FRAMEJIT_LOGS=bytecode`: the instruction about to run and the symbolic stack.
void TracerImpl::log_instruction(const Frame& frame, const FjInstr& instr) const {
  const Location where = location();
  std::string text = std::string((frames.size() - 1) * 2, ' ') + text_of(frame.co->co_name) + ":" + std::to_string(where.line) + "  " +
                     fj_opcode_name(instr.opcode) + " " + std::to_string(instr.arg) + "  [";
  for (std::size_t i = 0; i < frame.stack.size(); ++i) text += (i ? ", " : "") + describe(frame.stack[i]);
  log(Artifact::bytecode, text + "]");
}

Location TracerImpl::location() const {
  if (frames.empty()) return {};
  const Frame& frame = *frames.back();
  Location result;
  result.file = text_of(frame.co->co_filename);
  result.line = PyCode_Addr2Line(frame.co, frame.code->instrs[frame.executing].executing * int(sizeof(std::uint16_t)));
  return result;
}

std::string TracerImpl::source_text() const {
  Location where = location();
  Ref<> linecache = Ref<>::steal(PyImport_ImportModule("linecache"));
  Ref<> line = linecache ? Ref<>::steal(PyObject_CallMethod(linecache.get(), "getline", "si", where.file.c_str(), where.line))
                         : Ref<>();
  if (!line) {
    PyErr_Clear();
    return "";
  }
  std::string text = text_of(line.get());
  const auto first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t\r\n");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

V TracerImpl::cell_contents(CellValue& cell) {
  if (!cell.loaded && cell.source) {
    cell.loaded = true;
    PyObject* contents = PyCell_GET(cell.real.get());
    if (contents) cell.contents = wrap(contents, sources->make(SourceKind::Cell, cell.source));
  }
  return cell.contents;
}

void TracerImpl::set_cell(const V& value, V contents) {
  CellValue& cell = *as<CellValue>(value);
  cell.loaded = true;
  note_cell(value, contents);
  cell.contents = std::move(contents);
}

SourceRef TracerImpl::globals_source(PyObject* globals) { return sources->constant(globals); }

void TracerImpl::raise_undefined(PyObject* name) {
  const std::string text = "name '" + text_of(name) + "' is not defined";
  raise(PyExc_NameError, {tracer.string(text)}, BreakReason::ErrorWhileTracing, text);
}

V TracerImpl::load_global(Frame& frame, PyObject* name) {
  std::optional<V> written = written_global(frame.globals.get(), name);
  if (written && *written) return *written;
  const bool own = frame.globals.get() == request.function->func_globals;
  PyObject* found = written ? nullptr : PyDict_GetItemWithError(frame.globals.get(), name);
  SourceRef dict = own ? sources->make(SourceKind::FunctionGlobals, sources->function()) : globals_source(frame.globals.get());
  if (found) {
    add_guard(GuardKind::HasKey, dict, name);
    return wrap(found, own ? sources->global(name) : sources->make(SourceKind::DictItem, dict, 0, name));
  }
  PyErr_Clear();
  if (!written) add_guard(GuardKind::LacksKey, dict, name);  // a deleted one is a builtin's name again
  found = PyDict_Check(frame.builtins.get()) ? PyDict_GetItemWithError(frame.builtins.get(), name) : nullptr;
  if (!found) {
    PyErr_Clear();
    raise_undefined(name);
  }
  return wrap(found, frame.builtins.get() == request.function->func_builtins
                         ? sources->builtin(name)
                         : sources->make(SourceKind::DictItem, sources->constant(frame.builtins.get()), 0, name));
}

void TracerImpl::raise_no_attribute(const V& owner, PyObject* name) {
  const std::string detail = describe(owner) + " has no attribute '" + text_of(name) + "'";
  if (owner->kind != ValueKind::Object && owner->kind != ValueKind::Instance) break_graph(BreakReason::ErrorWhileTracing, detail);
  auto* object = as<ObjectValue>(owner);
  const bool type = object && PyType_Check(object->object.get());
  if (object && PyModule_Check(object->object.get())) break_graph(BreakReason::ErrorWhileTracing, detail);
  auto error = std::make_shared<InstanceValue>();
  error->type = Ref<PyTypeObject>::borrow(reinterpret_cast<PyTypeObject*>(PyExc_AttributeError));
  const std::string what = type ? "type object '" + text_of(Ref<>::steal(PyType_GetName(reinterpret_cast<PyTypeObject*>(object->object.get()))).get()) + "'"
                                : "'" + std::string(type_of(owner)->tp_name) + "' object";
  error->args = {tracer.string(what + " has no attribute '" + text_of(name) + "'")};
  error->attributes.emplace_back(Ref<>::steal(PyUnicode_InternFromString("name")), wrap_constant(name));
  error->attributes.emplace_back(Ref<>::steal(PyUnicode_InternFromString("obj")), owner);
  raise(error, BreakReason::ErrorWhileTracing, detail);
}

void TracerImpl::load_attribute(Frame& frame, const V& owner, PyObject* name) {
  V found = find_attribute(owner, name);
  if (!found) raise_no_attribute(owner, name);
  frame.stack.push_back(std::move(found));
}

V& TracerImpl::local(Frame& frame, int slot) {
  if (frame.outermost && frame.initial[slot]) {
    frame.initial[slot] = false;
    PyObject* object = slot < int(request.values.slots.size()) ? request.values.slots[slot] : nullptr;
    SourceRef source = sources->slot(slot, text_of(PyTuple_GET_ITEM(frame.co->co_localsplusnames, slot)));
    if (object)
      frame.slots[slot] = wrap(object, source);
    else
      add_guard(GuardKind::Unbound, source);
  }
  return frame.slots[slot];
}

namespace {

V& bound_local(TracerImpl& tracer, Frame& frame, int slot) {
  V& value = tracer.local(frame, slot);
  if (!value)
    tracer.raise(PyExc_UnboundLocalError,
                 {tracer.tracer.string("cannot access local variable '" + text_of(PyTuple_GET_ITEM(frame.co->co_localsplusnames, slot)) +
                                       "' where it is not associated with a value")},
                 BreakReason::ErrorWhileTracing, "a local variable is not bound here");
  return value;
}

void store_local(TracerImpl& tracer, Frame& frame, int slot, V value) {
  if (frame.outermost) {
    tracer.let_go(slot);
    frame.initial[slot] = false;
  }
  frame.slots[slot] = std::move(value);
}

V deref(TracerImpl& tracer, Frame& frame, int slot) {
  V& value = bound_local(tracer, frame, slot);
  auto* cell = as<CellValue>(value);
  if (!cell) break_graph(BreakReason::UnsupportedBytecode, "a cell that is not one");
  V contents = tracer.cell_contents(*cell);
  if (!contents) {
    const std::string name = text_of(PyTuple_GET_ITEM(frame.co->co_localsplusnames, slot));
    const bool free = slot >= frame.co->co_nlocalsplus - frame.co->co_nfreevars;
    tracer.raise(free ? PyExc_NameError : PyExc_UnboundLocalError,
                 {tracer.tracer.string(free ? "cannot access free variable '" + name + "' where it is not associated with a value in enclosing scope"
                                            : "cannot access local variable '" + name + "' where it is not associated with a value")},
                 BreakReason::ErrorWhileTracing, "a closure variable is not bound here");
  }
  return contents;
}

/// Pops the callable and its optional `self` under `arguments` of them, as this CPython lays them out.
V call_stack(TracerImpl& tracer, Frame& frame, std::vector<V> arguments, Keywords keywords) {
  V second = pop(frame), first = pop(frame);
  V callable = first, self = second;
  if (!fj_call_layout_callable_first()) {
    // 3.11, 3.12: (NULL, callable) or (method, self).
    if (is_null(first)) {
      callable = second;
      self = first;
    }
  }
  if (!is_null(self)) arguments.insert(arguments.begin(), self);
  return tracer.call(callable, std::move(arguments), std::move(keywords));
}

std::vector<std::string> keyword_names(PyObject* names) {
  std::vector<std::string> result;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) result.push_back(text_of(PyTuple_GET_ITEM(names, i)));
  return result;
}

V call_with_names(TracerImpl& tracer, Frame& frame, int count, PyObject* names) {
  std::vector<V> arguments = pop_many(frame, count);
  Keywords keywords;
  if (names) {
    std::vector<std::string> texts = keyword_names(names);
    const std::size_t positional = arguments.size() - texts.size();
    for (std::size_t i = 0; i < texts.size(); ++i) keywords.emplace_back(texts[i], arguments[positional + i]);
    arguments.resize(positional);
  }
  return call_stack(tracer, frame, std::move(arguments), std::move(keywords));
}

V make_function(TracerImpl& tracer, Frame& frame, int flags) {
  auto function = std::make_shared<FunctionValue>();
  V code = pop(frame);
  PyObject* object = tracer.constant_object(code);
  FJ_CHECK(object && PyCode_Check(object), "MAKE_FUNCTION of something that is no code");
  function->code = Ref<PyCodeObject>::borrow(reinterpret_cast<PyCodeObject*>(object));
  function->globals = frame.globals;
  function->qualname = Ref<>::borrow(function->code->co_qualname);
  if (flags & 8) function->closure = tracer.sequence_items(pop(frame));
  if (flags & 4) function->annotations = pop(frame);
  if (flags & 2) function->kwdefaults = pop(frame);
  if (flags & 1) function->defaults = pop(frame);
  return function;
}

V unpack_ex(TracerImpl& tracer, Frame& frame, int before, int after) {
  std::vector<V> items = tracer.sequence_items(pop(frame));
  if (int(items.size()) < before + after)
    tracer.raise(PyExc_ValueError,
                 {tracer.tracer.string("not enough values to unpack (expected at least " + std::to_string(before + after) + ", got " +
                                       std::to_string(items.size()) + ")")},
                 BreakReason::ErrorWhileTracing, "not enough values to unpack");
  for (int i = 0; i < after; ++i) frame.stack.push_back(items[items.size() - 1 - i]);
  auto rest = std::make_shared<ListValue>();
  rest->items.assign(items.begin() + before, items.end() - after);
  frame.stack.push_back(rest);
  for (int i = before - 1; i >= 0; --i) frame.stack.push_back(items[i]);
  return nullptr;
}

/// FORMAT_VALUE: conversion !s, !r or !a, then the format specification (null: none).
V format_value(TracerImpl& tracer, const V& value, int conversion, const V& specification) {
  if (conversion == 0) return format_of(tracer, value, specification);
  V text = conversion == 1 ? str_of(tracer, value) : repr_of(tracer, value);
  if (conversion == 3) {
    Ref<> bytes = Ref<>::steal(PyUnicode_AsEncodedString(tracer.constant_object(text), "ascii", "backslashreplace"));
    text = tracer.tracer.string({PyBytes_AS_STRING(bytes.get()), std::size_t(PyBytes_GET_SIZE(bytes.get()))});
  }
  return specification ? format_of(tracer, text, specification) : text;
}

V super_attribute_of(TracerImpl& tracer, const V& type, const V& self) {
  PyObject* real = tracer.constant_object(type);
  if (!real || !PyType_Check(real)) break_graph(BreakReason::UnsupportedObject, "super() of " + describe(type));
  auto super = std::make_shared<SuperValue>();
  super->type = Ref<PyTypeObject>::borrow(reinterpret_cast<PyTypeObject*>(real));
  super->self = self;
  return super;
}

/// Values of the keys of a mapping pattern, or None.
V match_keys(TracerImpl& tracer, const V& subject, const V& keys) {
  V part = subject->kind == ValueKind::Dict ? subject : tracer.builtin_part(subject);
  auto* dict = as<DictValue>(part);
  if (!dict) break_graph(BreakReason::UnsupportedObject, "matches " + describe(subject) + " as a mapping");
  std::vector<V> values;
  for (const V& key : tracer.sequence_items(keys)) {
    V found = tracer.dict_find(*dict, tracer.constant_key(key).get());
    if (!found) return tracer.none;
    values.push_back(found);
  }
  return tracer.tracer.tuple(std::move(values));
}

/// Attributes of a class pattern, positional ones first, or None.
V match_class(TracerImpl& tracer, const V& subject, const V& type, int positional, const V& names) {
  PyObject* real = tracer.constant_object(type);
  if (!real || !PyType_Check(real)) break_graph(BreakReason::UnsupportedObject, "matches " + describe(type));
  PyObject* isinstance = PyDict_GetItemString(PyEval_GetBuiltins(), "isinstance");
  if (!tracer.truth(tracer.call(tracer.wrap_constant(isinstance), {subject, type}, {}))) return tracer.none;
  std::vector<V> values, wanted;
  if (positional > 0) {
    auto* cls = reinterpret_cast<PyTypeObject*>(real);
    Ref<> fields = Ref<>::steal(PyObject_GetAttrString(real, "__match_args__"));
    PyErr_Clear();
    if (!fields) {
      // int(n), str(s), ...: the subject itself.
      constexpr unsigned long kMatchSelf = 1UL << 22;  // Py_TPFLAGS_MATCH_SELF, which no header of the API has
      if (positional != 1 || !(cls->tp_flags & kMatchSelf)) break_graph(BreakReason::ErrorWhileTracing, "too many positional patterns");
      values.push_back(subject);
    } else {
      static PyObject* const match_args = PyUnicode_InternFromString("__match_args__");
      tracer.class_attribute(cls, match_args);
      if (!PyTuple_CheckExact(fields.get()) || PyTuple_GET_SIZE(fields.get()) < positional)
        break_graph(BreakReason::ErrorWhileTracing, "too many positional patterns");
      for (int i = 0; i < positional; ++i) wanted.push_back(tracer.wrap_constant(tracer.keep(Ref<>::borrow(PyTuple_GET_ITEM(fields.get(), i))).get()));
    }
  }
  for (const V& name : tracer.sequence_items(names)) wanted.push_back(name);
  std::set<std::string> asked;
  for (const V& name : wanted) {
    PyObject* text = tracer.constant_object(name);
    if (!text || !PyUnicode_CheckExact(text) || !asked.insert(text_of(text)).second)
      break_graph(BreakReason::ErrorWhileTracing, "patterns of attributes that are none, or the same twice");
  }
  for (const V& name : wanted) {
    PyObject* text = tracer.constant_object(name);
    V found = text ? tracer.find_attribute(subject, text) : nullptr;
    if (!found) return tracer.none;
    values.push_back(found);
  }
  return tracer.tracer.tuple(std::move(values));
}

PyObject* special_name(const char* text) {
  PyObject* name = PyUnicode_InternFromString(text);
  if (!name) PyErr_Clear();
  return name;
}

/// `type(owner).name` bound to the owner, as `with` looks it up.
V special_method(TracerImpl& tracer, const V& owner, PyObject* name) {
  if (owner->kind != ValueKind::Object && owner->kind != ValueKind::Instance) break_graph(BreakReason::ContextManager, describe(owner));
  PyTypeObject* type = tracer.type_of(owner);
  PyObject* found = fj_type_lookup(type, name);
  if (!found) break_graph(BreakReason::ContextManager, describe(owner));
  tracer.guard_type_version(type);
  return tracer.bind_class_attribute(found, owner, type);
}

}  // namespace

void TracerImpl::execute(Frame& frame, const FjInstr& instr, std::optional<V>& result) {
  auto push = [&](V value) { frame.stack.push_back(std::move(value)); };
  const int arg = instr.arg;
  switch (instr.opcode) {
    case FJ_NOP: case FJ_END_FOR:
      return;
    case FJ_POP_TOP:
      pop(frame);
      return;
    case FJ_PUSH_NULL:
      return push(std::make_shared<NullValue>());
    case FJ_COPY:
      return push(peek(frame, arg));
    case FJ_SWAP:
      return std::swap(peek(frame, 1), peek(frame, arg));
    case FJ_LOAD_CONST:
      return push(wrap_constant(constant_at(frame, arg)));

    // ---- variables
    case FJ_LOAD_FAST:
      return push(bound_local(*this, frame, arg));
    case FJ_LOAD_FAST_AND_CLEAR: {
      V value = local(frame, arg);
      store_local(*this, frame, arg, nullptr);
      return push(value ? value : std::make_shared<NullValue>());
    }
    case FJ_STORE_FAST: {
      V value = pop(frame);
      return store_local(*this, frame, arg, is_null(value) ? nullptr : value);
    }
    case FJ_DELETE_FAST:
      bound_local(*this, frame, arg);
      return store_local(*this, frame, arg, nullptr);
    case FJ_MAKE_CELL: {
      auto cell = std::make_shared<CellValue>();
      cell->contents = local(frame, arg);
      return store_local(*this, frame, arg, cell);
    }
    case FJ_COPY_FREE_VARS: {
      const int first = frame.co->co_nlocalsplus - arg;
      FJ_CHECK(int(frame.closure.size()) >= arg, "closure is too short");
      for (int i = 0; i < arg; ++i) store_local(*this, frame, first + i, frame.closure[i]);
      return;
    }
    case FJ_LOAD_CLOSURE:
      return push(bound_local(*this, frame, arg));
    case FJ_LOAD_DEREF:
      return push(deref(*this, frame, arg));
    case FJ_STORE_DEREF: {
      V value = pop(frame), cell = bound_local(*this, frame, arg);
      if (!as<CellValue>(cell)) break_graph(BreakReason::UnsupportedBytecode, "a cell that is not one");
      return set_cell(cell, value);
    }
    case FJ_LOAD_GLOBAL: {
      V value = load_global(frame, name_at(frame, arg));
      const bool with_null = instr.arg2 & 1;
      if (with_null && !fj_call_layout_callable_first()) push(std::make_shared<NullValue>());
      push(value);
      if (with_null && fj_call_layout_callable_first()) push(std::make_shared<NullValue>());
      return;
    }
    case FJ_DELETE_DEREF: {
      deref(*this, frame, arg);
      return set_cell(bound_local(*this, frame, arg), nullptr);
    }
    // ---- names of a class body
    case FJ_LOAD_NAME: {
      if (!frame.names) break;
      V own = dict_find(*frame.names, name_at(frame, arg));
      return push(own ? own : load_global(frame, name_at(frame, arg)));
    }
    case FJ_STORE_NAME:
      if (!frame.names) break;
      return dict_store(frame.names, Ref<>::borrow(name_at(frame, arg)), pop(frame));
    case FJ_DELETE_NAME:
      if (!frame.names) break;
      return delete_item(frame.names, wrap_constant(name_at(frame, arg)));
    case FJ_LOAD_CLASSDEREF: {
      V own = frame.names ? dict_find(*frame.names, PyTuple_GET_ITEM(frame.co->co_localsplusnames, arg)) : nullptr;
      return push(own ? own : deref(*this, frame, arg));
    }
    case FJ_STORE_GLOBAL:
      return note_global(frame.globals.get(), name_at(frame, arg), pop(frame));
    case FJ_DELETE_GLOBAL: {
      PyObject *globals = frame.globals.get(), *name = name_at(frame, arg);
      std::optional<V> written = written_global(globals, name);
      if (!written) load_global(frame, name);
      if (written ? !*written : !PyDict_GetItemWithError(globals, name)) raise_undefined(name);
      return note_global(globals, name, nullptr);
    }

    // ---- attributes
    case FJ_LOAD_ATTR: {
      V owner = pop(frame);
      return load_attribute(frame, owner, name_at(frame, arg));
    }
    case FJ_LOAD_METHOD: {
      // A bound method with a NULL is as good as the pair (function, self), and any attribute may be one.
      V owner = pop(frame);
      if (!fj_call_layout_callable_first()) push(std::make_shared<NullValue>());
      load_attribute(frame, owner, name_at(frame, arg));
      if (fj_call_layout_callable_first()) push(std::make_shared<NullValue>());
      return;
    }
    case FJ_LOAD_SUPER_ATTR: {
      V self = pop(frame), type = pop(frame), callee = pop(frame);
      if (constant_object(callee) != reinterpret_cast<PyObject*>(&PySuper_Type))
        break_graph(BreakReason::UnsupportedObject, "super is not the builtin");
      V super = super_attribute_of(*this, type, self);
      const bool method = instr.arg2 & 1;
      if (method && !fj_call_layout_callable_first()) push(std::make_shared<NullValue>());
      load_attribute(frame, super, name_at(frame, arg));
      if (method && fj_call_layout_callable_first()) push(std::make_shared<NullValue>());
      return;
    }
    case FJ_STORE_ATTR: {
      V owner = pop(frame), value = pop(frame);
      if (set_exception_attribute(owner, text_of(name_at(frame, arg)), value)) return;
      return set_attribute(owner, name_at(frame, arg), value);
    }
    case FJ_DELETE_ATTR:
      return delete_attribute(pop(frame), name_at(frame, arg));

    // ---- operators
    case FJ_UNARY_NEGATIVE: case FJ_UNARY_POSITIVE: case FJ_UNARY_INVERT: {
      V value = pop(frame);
      return push(unary(instr.opcode, value));
    }
    case FJ_UNARY_NOT: {
      V value = pop(frame);
      return push(truth(value) ? false_value : true_value);
    }
    case FJ_TO_BOOL: {
      V value = pop(frame);
      return push(truth(value) ? true_value : false_value);
    }
    case FJ_BINARY_OP: {
      V b = pop(frame), a = pop(frame);
      return push(binary(arg, a, b));
    }
    case FJ_BINARY_SUBSCR: {
      V key = pop(frame), container = pop(frame);
      return push(get_item(container, key));
    }
    case FJ_BINARY_SLICE: {
      auto slice = std::make_shared<SliceValue>();
      slice->step = none;
      slice->stop = pop(frame);
      slice->start = pop(frame);
      V container = pop(frame);
      return push(get_item(container, slice));
    }
    case FJ_STORE_SUBSCR: {
      V key = pop(frame), container = pop(frame), value = pop(frame);
      return set_item(container, key, value);
    }
    case FJ_STORE_SLICE: {
      auto slice = std::make_shared<SliceValue>();
      slice->step = none;
      slice->stop = pop(frame);
      slice->start = pop(frame);
      V container = pop(frame), value = pop(frame);
      return set_item(container, slice, value);
    }
    case FJ_DELETE_SUBSCR: {
      V key = pop(frame), container = pop(frame);
      return delete_item(container, key);
    }
    case FJ_COMPARE_OP: {
      V b = pop(frame), a = pop(frame);
      V answer = compare(arg, a, b);
      return push(instr.arg2 & 1 ? (truth(answer) ? true_value : false_value) : answer);
    }
    case FJ_IS_OP: {
      V b = pop(frame), a = pop(frame);
      return push(same_object(a, b) != bool(arg) ? true_value : false_value);
    }
    case FJ_CONTAINS_OP: {
      V container = pop(frame), item = pop(frame);
      return push(contains(container, item) != bool(arg) ? true_value : false_value);
    }

    // ---- jumps
    case FJ_JUMP:
      frame.pc = arg;
      return;
    case FJ_POP_JUMP_IF_FALSE: case FJ_POP_JUMP_IF_TRUE:
      if (truth(pop(frame)) == (instr.opcode == FJ_POP_JUMP_IF_TRUE)) frame.pc = arg;
      return;
    case FJ_POP_JUMP_IF_NONE: case FJ_POP_JUMP_IF_NOT_NONE:
      if (is_none(pop(frame)) == (instr.opcode == FJ_POP_JUMP_IF_NONE)) frame.pc = arg;
      return;
    case FJ_JUMP_IF_FALSE_OR_POP: case FJ_JUMP_IF_TRUE_OR_POP:
      if (truth(peek(frame, 1)) == (instr.opcode == FJ_JUMP_IF_TRUE_OR_POP))
        frame.pc = arg;
      else
        pop(frame);
      return;
    case FJ_GET_ITER: {
      V value = pop(frame);
      return push(make_iterator(value));
    }
    case FJ_FOR_ITER: {
      V iterator = peek(frame, 1);
      V item = next(iterator);
      if (item) return push(item);
      if (!(instr.arg2 & 1)) pop(frame);
      frame.pc = arg;
      return;
    }
    case FJ_GET_LEN:
      return push(length(peek(frame, 1)));

    // ---- building
    case FJ_UNPACK_SEQUENCE: {
      std::vector<V> items = sequence_items(pop(frame));
      if (int(items.size()) != arg) {
        const std::string expected = "values to unpack (expected " + std::to_string(arg);
        raise(PyExc_ValueError,
              {tracer.string(int(items.size()) > arg ? "too many " + expected + ")"
                                                     : "not enough " + expected + ", got " + std::to_string(items.size()) + ")")},
              BreakReason::ErrorWhileTracing, "wrong number of values to unpack");
      }
      for (int i = arg - 1; i >= 0; --i) push(items[i]);
      return;
    }
    case FJ_UNPACK_EX:
      unpack_ex(*this, frame, arg, instr.arg2);
      return;
    case FJ_BUILD_TUPLE:
      return push(tracer.tuple(pop_many(frame, arg)));
    case FJ_BUILD_LIST:
      return push(tracer.list(pop_many(frame, arg)));
    case FJ_BUILD_SET: {
      auto set = std::make_shared<SetValue>();
      std::vector<V> items = pop_many(frame, arg);
      for (V& item : items) add_to_set(*set, constant_key(item));
      return push(set);
    }
    case FJ_BUILD_MAP: {
      auto dict = std::make_shared<DictValue>();
      std::vector<V> items = pop_many(frame, 2 * arg);
      for (int i = 0; i < arg; ++i) dict_store(dict, constant_key(items[2 * i]), items[2 * i + 1]);
      return push(dict);
    }
    case FJ_BUILD_CONST_KEY_MAP: {
      auto dict = std::make_shared<DictValue>();
      std::vector<V> keys = sequence_items(pop(frame)), items = pop_many(frame, arg);
      for (int i = 0; i < arg; ++i) dict_store(dict, constant_key(keys[i]), items[i]);
      return push(dict);
    }
    case FJ_BUILD_STRING: {
      Ref<> text = Ref<>::steal(PyUnicode_FromString(""));
      for (V& part : pop_many(frame, arg)) {
        PyObject* object = constant_object(part);
        if (!object || !PyUnicode_CheckExact(object)) break_graph(BreakReason::UnsupportedObject, "formats " + describe(part));
        text = Ref<>::steal(PyUnicode_Concat(text.get(), object));
      }
      return push(wrap_constant(keep(text).get()));
    }
    case FJ_BUILD_SLICE: {
      auto slice = std::make_shared<SliceValue>();
      slice->step = arg == 3 ? pop(frame) : none;
      slice->stop = pop(frame);
      slice->start = pop(frame);
      return push(slice);
    }
    case FJ_FORMAT_VALUE: {
      V specification = instr.arg2 ? pop(frame) : nullptr;
      V value = pop(frame);
      return push(format_value(*this, value, arg, specification));
    }
    case FJ_CONVERT_VALUE: {
      V value = pop(frame);
      return push(format_value(*this, value, arg, nullptr));
    }
    case FJ_LIST_APPEND: {
      V item = pop(frame), list = peek(frame, arg);
      note_items(list);
      as<ListValue>(list)->items.push_back(item);
      return;
    }
    case FJ_SET_ADD: {
      V item = pop(frame), set = peek(frame, arg);
      return add_to_set(*as<SetValue>(set), constant_key(item));
    }
    case FJ_MAP_ADD: {
      V value = pop(frame), key = pop(frame), dict = peek(frame, arg);
      return dict_store(dict, constant_key(key), value);
    }
    case FJ_LIST_EXTEND: {
      std::vector<V> items = listed_items(pop(frame));
      V list = peek(frame, arg);
      note_items(list);
      auto& target = as<ListValue>(list)->items;
      target.insert(target.end(), items.begin(), items.end());
      return;
    }
    case FJ_SET_UPDATE: {
      V other = pop(frame), set = peek(frame, arg);
      std::vector<V> arguments{other};
      Keywords none_given;
      container_method(set, "update", arguments, none_given);
      return;
    }
    case FJ_DICT_UPDATE: case FJ_DICT_MERGE: {
      V other = pop(frame), dict = peek(frame, arg);
      V part = other->kind == ValueKind::Dict ? other : builtin_part(other);
      auto* from = as<DictValue>(part);
      if (!from) break_graph(BreakReason::UnsupportedObject, "unpacks " + describe(other) + " as a mapping");
      open(*from);
      for (auto& [key, value] : from->items) {
        if (instr.opcode == FJ_DICT_MERGE && dict_find(*as<DictValue>(dict), key.get()))
          break_graph(BreakReason::ErrorWhileTracing, "a keyword argument is given twice");
        dict_store(dict, key, value);
      }
      return;
    }
    case FJ_LIST_TO_TUPLE:
      return push(tracer.tuple(sequence_items(pop(frame))));

    // ---- calls
    case FJ_CALL: {
      PyObject* names = instr.arg2 >= 0 ? constant_at(frame, instr.arg2) : nullptr;
      return push(call_with_names(*this, frame, arg, names));
    }
    case FJ_CALL_KW: {
      PyObject* names = constant_object(pop(frame));
      FJ_CHECK(names && PyTuple_Check(names), "CALL_KW without names");
      return push(call_with_names(*this, frame, arg, names));
    }
    case FJ_CALL_FUNCTION_EX: {
      Keywords keywords;
      if (arg & 1) {
        V mapping = pop(frame);
        if (V part = mapping->kind == ValueKind::Dict ? nullptr : builtin_part(mapping)) mapping = part;
        auto* dict = as<DictValue>(mapping);
        if (!dict) break_graph(BreakReason::UnsupportedObject, "unpacks " + describe(mapping) + " as keyword arguments");
        open(*dict);
        for (auto& [key, value] : dict->items) {
          if (!PyUnicode_CheckExact(key.get())) break_graph(BreakReason::ErrorWhileTracing, "keywords must be strings");
          keywords.emplace_back(text_of(key.get()), value);
        }
      }
      std::vector<V> arguments = sequence_items(pop(frame));
      V callable;
      if (fj_call_layout_callable_first()) {
        pop(frame);  // NULL
        callable = pop(frame);
      } else {
        callable = pop(frame);
        pop(frame);
      }
      return push(call(callable, std::move(arguments), std::move(keywords)));
    }
    case FJ_MAKE_FUNCTION:
      return push(make_function(*this, frame, arg));
    case FJ_SET_FUNCTION_ATTRIBUTE: {
      V owner = pop(frame), value = pop(frame);
      auto* function = as<FunctionValue>(owner);
      FJ_CHECK(function, "SET_FUNCTION_ATTRIBUTE of no function");
      if (arg == 1) function->defaults = value;
      if (arg == 2) function->kwdefaults = value;
      if (arg == 4) function->annotations = value;
      if (arg == 8) function->closure = sequence_items(value);
      return push(owner);
    }
    case FJ_LOAD_BUILD_CLASS: {
      PyObject* builder = PyDict_Check(frame.builtins.get()) ? PyDict_GetItemString(frame.builtins.get(), "__build_class__") : nullptr;
      if (!builder) break;
      return push(wrap_constant(builder));
    }
    case FJ_LOAD_ASSERTION_ERROR:
      return push(wrap_constant(PyExc_AssertionError));
    case FJ_IMPORT_NAME: {
      // A module that is loaded already; the import itself has no other effect.
      V names = pop(frame), level = pop(frame);
      PyObject* name = name_at(frame, arg);
      PyObject* from = constant_object(names);
      if (constant_object(level) && PyLong_AsLong(constant_object(level)) == 0) {
        std::string text = text_of(name);
        if (from == Py_None) text = text.substr(0, text.find('.'));
        PyObject* modules = PyImport_GetModuleDict();
        Ref<> key = Ref<>::steal(PyUnicode_FromString(text.c_str()));
        PyObject* module = key ? PyDict_GetItemWithError(modules, key.get()) : nullptr;
        if (module && PyModule_Check(module))
          return push(wrap(module, sources->make(SourceKind::DictItem, sources->constant(modules), 0, key.get())));
        PyErr_Clear();
      }
      break;
    }
    case FJ_IMPORT_FROM: {
      V found = find_attribute(peek(frame, 1), name_at(frame, arg));
      if (found) return push(found);
      break;
    }
    case FJ_BEFORE_WITH: {
      V manager = pop(frame);
      if (auto* instance = as<InstanceValue>(manager); instance && is_mode(*instance)) {
        for (const char* name : {"__exit__", "__enter__"}) {
          auto method = std::make_shared<BuiltinValue>();
          method->owner = manager;
          method->name = name;
          push(method);
        }
        V enter_method = pop(frame);
        return push(call(enter_method, {}, {}));
      }
      static PyObject* const enter = special_name("__enter__");
      static PyObject* const exit = special_name("__exit__");
      V exit_method = special_method(*this, manager, exit), enter_method = special_method(*this, manager, enter);
      push(exit_method);
      return push(call(enter_method, {}, {}));
    }
    case FJ_WITH_EXCEPT_START: {
      V exception = peek(frame, 1);
      auto* instance = as<InstanceValue>(exception);
      if (!instance) break;
      auto traceback = std::make_shared<InstanceValue>();
      traceback->type = Ref<PyTypeObject>::borrow(&PyTraceBack_Type);
      traceback->raised = true;  // there is none: it can be passed on, not looked at
      V type = wrap_constant(reinterpret_cast<PyObject*>(instance->type.get()));
      return push(call(peek(frame, 4), {type, exception, traceback}, {}));
    }

    // ---- ends
    case FJ_RETURN_VALUE:
      frame.finished = true;
      result = pop(frame);
      return;
    case FJ_RETURN_CONST:
      frame.finished = true;
      result = wrap_constant(constant_at(frame, arg));
      return;
    case FJ_RETURN_GENERATOR:
      // Only inlined generators get here: their frame starts to run at the first `next`.
      return push(none);
    case FJ_YIELD_VALUE: {
      V value = pop(frame);
      push(none);  // what send() would deliver
      result = value;
      return;
    }
    case FJ_GET_YIELD_FROM_ITER: {
      V value = pop(frame);
      return push(make_iterator(value));
    }
    case FJ_SEND:
      return send_instruction(frame, instr);
    case FJ_STOPITERATION_ERROR: {
      V exception = pop(frame);
      return push(stop_iteration_error(exception));
    }
    case FJ_RAISE_VARARGS:
      return raise_instruction(frame, arg);
    case FJ_PUSH_EXC_INFO: case FJ_POP_EXCEPT: case FJ_CHECK_EXC_MATCH: case FJ_RERAISE:
      if (handler_instruction(frame, instr)) return;
      if (instr.opcode == FJ_RERAISE) break_graph(BreakReason::Raise, source_text());
      break;

    // ---- matching
    case FJ_MATCH_SEQUENCE: {
      V subject = peek(frame, 1);
      const bool matches = subject->kind == ValueKind::Array ? false : PyType_HasFeature(type_of(subject), Py_TPFLAGS_SEQUENCE);
      return push(tracer.boolean(matches));
    }
    case FJ_MATCH_MAPPING: {
      V subject = peek(frame, 1);
      return push(tracer.boolean(subject->kind != ValueKind::Array && PyType_HasFeature(type_of(subject), Py_TPFLAGS_MAPPING)));
    }
    case FJ_MATCH_KEYS:
      return push(match_keys(*this, peek(frame, 2), peek(frame, 1)));
    case FJ_MATCH_CLASS: {
      V names = pop(frame), type = pop(frame), subject = pop(frame);
      return push(match_class(*this, subject, type, arg, names));
    }
    default:
      break;
  }
  break_graph(BreakReason::UnsupportedBytecode, fj_opcode_name(instr.opcode));
}

}  // namespace fj
