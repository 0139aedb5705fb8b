/// The instructions of bytecode.def on symbolic values: `execute` is the table.
///
/// What has more than a few lines lives in the files of values/ or in unpacking.cpp. What is not handled here breaks
/// the graph with UnsupportedBytecode and runs concretely.
#include "tracer/branches.h"
#include "tracer/interpreter/instructions.h"

#include <opcode.h>

#include <algorithm>
#include <cstring>

#include "tracer/interpreter/exceptions.h"
#include "tracer/interpreter/scopes.h"
#include "tracer/state/effect_log.h"
#include "tracer/values/classes/attribute_writes.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/containers/containers.h"
#include "tracer/values/containers/dicts.h"
#include "tracer/values/containers/iterators.h"
#include "tracer/values/containers/sets.h"
#include "tracer/values/generators.h"
#include "tracer/values/numbers/derived_values.h"
#include "tracer/values/numbers/operators.h"
#include "tracer/values/numbers/truths.h"
#include "tracer/values/outside_objects.h"
#include "tracer/values/text.h"

namespace fj {

namespace {

bool is_null(const V& value) { return value->kind == ValueKind::Null; }

/// A long list or dict that was there before the trace is an object of which nothing is known.
void require_container(const V& value, ValueKind kind) {
  if (value->kind != kind) break_graph(BreakReason::UnsupportedObject, "adds to " + describe(value));
}

PyObject* name_at(const Frame& frame, int index) { return PyTuple_GET_ITEM(frame.co->co_names, index); }
PyObject* constant_at(const Frame& frame, int index) { return PyTuple_GET_ITEM(frame.co->co_consts, index); }

V& bound_local(TraceRun& tracer, Frame& frame, int slot) {
  V& value = tracer.local(frame, slot);
  if (!value && tracer.request.way && !tracer.request.way->loops.empty())
    break_graph(BreakReason::BranchOnData,
                "`" + tracer.source_text() + "` reads a variable that a loop on data may have left otherwise");
  if (!value)
    raise(tracer, PyExc_UnboundLocalError,
          {tracer.string("cannot access local variable '" +
                         text_of(PyTuple_GET_ITEM(frame.co->co_localsplusnames, slot)) +
                         "' where it is not associated with a value")},
          BreakReason::ErrorWhileTracing, "a local variable is not bound here");
  return value;
}

void store_local(TraceRun& tracer, Frame& frame, int slot, V value) {
  if (frame.outermost) {
    tracer.let_go(slot);
    frame.initial[slot] = false;
  }
  frame.slots[slot] = std::move(value);
}

V deref(TraceRun& tracer, Frame& frame, int slot) {
  V& value = bound_local(tracer, frame, slot);
  auto* cell = as<CellValue>(value);
  if (!cell) break_graph(BreakReason::UnsupportedBytecode, "a cell that is not one");
  V contents = cell_contents(tracer, *cell);
  if (!contents) {
    const std::string name = text_of(PyTuple_GET_ITEM(frame.co->co_localsplusnames, slot));
    const bool free = slot >= frame.co->co_nlocalsplus - frame.co->co_nfreevars;
    raise(tracer, free ? PyExc_NameError : PyExc_UnboundLocalError,
          {tracer.string(free ? "cannot access free variable '" + name +
                                    "' where it is not associated with a value in enclosing scope"
                              : "cannot access local variable '" + name + "' where it is not associated with a value")},
          BreakReason::ErrorWhileTracing, "a closure variable is not bound here");
  }
  return contents;
}

/// Pops the callable and its optional `self` under `arguments` of them, as this CPython lays them out.
V call_stack(TraceRun& tracer, Frame& frame, std::vector<V> arguments, Keywords keywords) {
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

/// Names are texts of UTF-8 here.
std::string keyword_name(PyObject* name) {
  if (!PyUnicode_AsUTF8(name)) break_graph(BreakReason::ErrorWhileTracing, take_error());
  return text_of(name);
}

std::vector<std::string> keyword_names(PyObject* names) {
  std::vector<std::string> result;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) result.push_back(keyword_name(PyTuple_GET_ITEM(names, i)));
  return result;
}

V call_with_names(TraceRun& tracer, Frame& frame, int count, PyObject* names) {
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

V make_function(TraceRun& tracer, Frame& frame, int flags) {
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

/// FORMAT_VALUE: conversion !s, !r or !a, then the format specification (null: none).
V format_value(TraceRun& tracer, const V& value, int conversion, const V& specification) {
  if (conversion == 0) return format_of(tracer, value, specification);
  V text = conversion == 1 ? str_of(tracer, value) : repr_of(tracer, value);
  if (conversion == 3) {
    Ref<> bytes = Ref<>::steal(PyUnicode_AsEncodedString(tracer.constant_object(text), "ascii", "backslashreplace"));
    text = tracer.string({PyBytes_AS_STRING(bytes.get()), std::size_t(PyBytes_GET_SIZE(bytes.get()))});
  }
  return specification ? format_of(tracer, text, specification) : text;
}

V super_attribute_of(TraceRun& tracer, const V& type, const V& self) {
  PyObject* real = tracer.constant_object(type);
  if (!real || !PyType_Check(real)) break_graph(BreakReason::UnsupportedObject, "super() of " + describe(type));
  auto super = std::make_shared<SuperValue>();
  super->type = Ref<PyTypeObject>::borrow(reinterpret_cast<PyTypeObject*>(real));
  super->self = self;
  return super;
}

/// A module as sys.modules has it, and not one whose import is under way; null: it isn't there. Guarded.
V loaded_module(TraceRun& tracer, const std::string& name) {
  static PyObject* const spec_name = PyUnicode_InternFromString("__spec__");
  PyObject* modules = PyImport_GetModuleDict();
  Ref<> key = tracer.keep(Ref<>::steal(PyUnicode_FromString(name.c_str())));
  PyObject* module = key ? PyDict_GetItemWithError(modules, key.get()) : nullptr;
  PyErr_Clear();
  if (!module || !PyModule_Check(module)) return nullptr;
  PyObject* spec = PyDict_GetItemWithError(PyModule_GetDict(module), spec_name);
  Ref<> initialising = spec && spec != Py_None ? Ref<>::steal(PyObject_GetAttrString(spec, "_initializing")) : Ref<>();
  PyErr_Clear();
  if (initialising.get() == Py_True) return nullptr;
  V value = tracer.wrap(module,
                        tracer.sources().make(SourceKind::DictItem, tracer.sources().constant(modules), 0, key.get()));
  tracer.type_of(value);
  return value;
}

/// What `import a.b` or `from a import b, c` gives where nothing is left to load: then the statement has no effect.
/// Null: otherwise.
V imported_already(TraceRun& tracer, Frame& frame, PyObject* name, const V& names, const V& level) {
  PyObject* depth = tracer.constant_object(level);
  PyObject* from = tracer.constant_object(names);
  if (!depth || !from || !PyLong_Check(depth) || PyLong_AsLong(depth) != 0) return nullptr;
  // Nobody has put a function of their own in its place.
  static PyObject* const import_name = PyUnicode_InternFromString("__import__");
  PyObject* builtins = frame.builtins.get();
  PyObject* import = PyDict_Check(builtins) ? PyDict_GetItemWithError(builtins, import_name) : nullptr;
  PyErr_Clear();
  if (!import || !PyCFunction_Check(import) ||
      std::strcmp(reinterpret_cast<PyCFunctionObject*>(import)->m_ml->ml_name, "__import__"))
    return nullptr;
  const bool own = builtins == tracer.request.function->func_builtins;
  tracer.constant_object(tracer.wrap(
      import, own ? tracer.sources().builtin(import_name)
                  : tracer.sources().make(SourceKind::DictItem, tracer.sources().constant(builtins), 0, import_name)));
  const std::string path = text_of(name);
  V module = loaded_module(tracer, path);
  if (!module) return nullptr;
  if (from == Py_None)
    return path.find('.') == std::string::npos ? module : loaded_module(tracer, path.substr(0, path.find('.')));
  // Names that a package lacks are modules to load.
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(from); ++i)
    if (!find_attribute(tracer, module, PyTuple_GET_ITEM(from, i))) return nullptr;
  return module;
}

PyObject* special_name(const char* text) {
  PyObject* name = PyUnicode_InternFromString(text);
  if (!name) PyErr_Clear();
  return name;
}

/// `type(owner).name` bound to the owner, as `with` looks it up.
V special_method(TraceRun& tracer, const V& owner, PyObject* name) {
  if (owner->kind != ValueKind::Object && owner->kind != ValueKind::Instance)
    break_graph(BreakReason::ContextManager, describe(owner));
  PyTypeObject* type = tracer.type_of(owner);
  PyObject* found = class_attribute(tracer, type, name);
  if (!found) break_graph(BreakReason::ContextManager, describe(owner));
  return bind_class_attribute(tracer, found, owner, type);
}

/// A context manager's __enter__ (0) or __exit__ (1), bound to it.
V manager_method(TraceRun& tracer, const V& manager, int which) {
  static PyObject* const names[] = {special_name("__enter__"), special_name("__exit__")};
  auto* instance = as<InstanceValue>(manager);
  if (!instance || !is_mode(*instance)) return special_method(tracer, manager, names[which]);
  auto method = std::make_shared<BuiltinValue>();
  method->owner = manager;
  method->name = which == 0 ? "__enter__" : "__exit__";
  return method;
}

}  // namespace

void TraceRun::execute(Frame& frame, const FjInstr& instr, std::optional<V>& result) {
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
      return push(wrap_constant(*this, constant_at(frame, arg)));
    case FJ_LOAD_SMALL_INT:
      return push(wrap_constant(*this, Ref<>::steal(PyLong_FromLong(arg)).get()));
    case FJ_LOAD_COMMON_CONSTANT: {
      PyObject* const value = fj_common_constant(arg);
      if (!value) break;
      return push(wrap_constant(*this, value));
    }

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
    case FJ_DELETE_FAST: {
      const bool unseen = frame.outermost && frame.initial[std::size_t(arg)];
      const V value = bound_local(*this, frame, arg);
      // Nothing else may ask for it: that it is there has to be asked.
      if (unseen && value->source)
        add_guard(*this, GuardKind::TypeIs, value->source,
                  reinterpret_cast<PyObject*>(Py_TYPE(request.values.slots[std::size_t(arg)])));
      return store_local(*this, frame, arg, nullptr);
    }
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
      return set_cell(*this, cell, value);
    }
    case FJ_LOAD_GLOBAL: {
      V value = load_global(*this, frame, name_at(frame, arg));
      const bool with_null = instr.arg2 & 1;
      if (with_null && !fj_call_layout_callable_first()) push(std::make_shared<NullValue>());
      push(value);
      if (with_null && fj_call_layout_callable_first()) push(std::make_shared<NullValue>());
      return;
    }
    case FJ_DELETE_DEREF: {
      deref(*this, frame, arg);
      return set_cell(*this, bound_local(*this, frame, arg), nullptr);
    }
    // ---- names of a class body
    case FJ_SETUP_ANNOTATIONS: {
      if (!frame.names) break;
      static PyObject* const name = PyUnicode_InternFromString("__annotations__");
      if (dict_find(*this, *frame.names, name)) return;
      return dict_store(*this, frame.names, Ref<>::borrow(name), std::make_shared<DictValue>());
    }
    case FJ_LOAD_LOCALS:
      if (!frame.names) break;
      return push(frame.names);
    case FJ_LOAD_NAME: {
      if (!frame.names) break;
      V own = dict_find(*this, *frame.names, name_at(frame, arg));
      return push(own ? own : load_global(*this, frame, name_at(frame, arg)));
    }
    case FJ_STORE_NAME:
      if (!frame.names) break;
      return dict_store(*this, frame.names, Ref<>::borrow(name_at(frame, arg)), pop(frame));
    case FJ_DELETE_NAME:
      if (!frame.names) break;
      return delete_item(*this, frame.names, wrap_constant(*this, name_at(frame, arg)));
    case FJ_LOAD_CLASSDEREF: {
      V own =
          frame.names ? dict_find(*this, *frame.names, PyTuple_GET_ITEM(frame.co->co_localsplusnames, arg)) : nullptr;
      return push(own ? own : deref(*this, frame, arg));
    }
    case FJ_STORE_GLOBAL: {
      PyObject *globals = frame.globals.get(), *name = name_at(frame, arg);
      if (V space = known_dict(*this, globals, globals_place(*this, frame)))
        return dict_store(*this, space, Ref<>::borrow(name), pop(frame));
      return note_global(*this, globals, name, pop(frame));
    }
    case FJ_DELETE_GLOBAL: {
      PyObject *globals = frame.globals.get(), *name = name_at(frame, arg);
      if (V space = known_dict(*this, globals, globals_place(*this, frame))) {
        if (!dict_find(*this, *as<DictValue>(space), name)) raise_undefined(*this, name);
        return delete_item(*this, space, wrap_constant(*this, name));
      }
      std::optional<V> written = written_global(*this, globals, name);
      if (!written) load_global(*this, frame, name);
      if (written ? !*written : !PyDict_GetItemWithError(globals, name)) raise_undefined(*this, name);
      return note_global(*this, globals, name, nullptr);
    }

    // ---- attributes
    case FJ_LOAD_ATTR: {
      V owner = pop(frame);
      return load_attribute(*this, frame, owner, name_at(frame, arg));
    }
    case FJ_LOAD_METHOD: {
      // A bound method with a NULL is as good as the pair (function, self), and any attribute may be one. An exit makes
      // the pair of it.
      V owner = pop(frame);
      if (!fj_call_layout_callable_first()) push(std::make_shared<NullValue>(owner));
      load_attribute(*this, frame, owner, name_at(frame, arg));
      if (fj_call_layout_callable_first()) push(std::make_shared<NullValue>(owner));
      return;
    }
    case FJ_LOAD_SUPER_ATTR: {
      V self = pop(frame), type = pop(frame), callee = pop(frame);
      if (constant_object(callee) != reinterpret_cast<PyObject*>(&PySuper_Type))
        break_graph(BreakReason::UnsupportedObject, "super is not the builtin");
      V super = super_attribute_of(*this, type, self);
      const bool method = instr.arg2 & 1;
      if (method && !fj_call_layout_callable_first()) push(std::make_shared<NullValue>());
      load_attribute(*this, frame, super, name_at(frame, arg));
      if (method && fj_call_layout_callable_first()) push(std::make_shared<NullValue>());
      return;
    }
    case FJ_STORE_ATTR: {
      V owner = pop(frame), value = pop(frame);
      if (set_exception_attribute(*this, owner, text_of(name_at(frame, arg)), value)) return;
      return set_attribute(*this, owner, name_at(frame, arg), value);
    }
    case FJ_DELETE_ATTR:
      return delete_attribute(*this, pop(frame), name_at(frame, arg));

    // ---- operators
    case FJ_UNARY_NEGATIVE: case FJ_UNARY_POSITIVE: case FJ_UNARY_INVERT: {
      V value = pop(frame);
      return push(unary(*this, instr.opcode, value));
    }
    case FJ_UNARY_NOT: {
      return push(negated(*this, pop(frame)));
    }
    case FJ_TO_BOOL: {
      V value = pop(frame);
      // `not x`: 3.13 has the negation behind it. A jump is where other code asks for the truth, and breaks there.
      if (frame.code->instrs[frame.executing + 1].opcode == FJ_UNARY_NOT) return push(truth_value(*this, value));
      return push(truth(value) ? boolean(true) : boolean(false));
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
      slice->step = none();
      slice->stop = pop(frame);
      slice->start = pop(frame);
      V container = pop(frame);
      return push(get_item(container, slice));
    }
    case FJ_STORE_SUBSCR: {
      V key = pop(frame), container = pop(frame), value = pop(frame);
      return set_item(*this, container, key, value);
    }
    case FJ_STORE_SLICE: {
      auto slice = std::make_shared<SliceValue>();
      slice->step = none();
      slice->stop = pop(frame);
      slice->start = pop(frame);
      V container = pop(frame), value = pop(frame);
      return set_item(*this, container, slice, value);
    }
    case FJ_DELETE_SUBSCR: {
      V key = pop(frame), container = pop(frame);
      return delete_item(*this, container, key);
    }
    case FJ_COMPARE_OP: {
      V b = pop(frame), a = pop(frame);
      V answer = compare(arg, a, b);
      return push(instr.arg2 & 1 ? (truth(answer) ? boolean(true) : boolean(false)) : answer);
    }
    case FJ_IS_OP: {
      V b = pop(frame), a = pop(frame);
      return push(same_object(*this, a, b) != bool(arg) ? boolean(true) : boolean(false));
    }
    case FJ_CONTAINS_OP: {
      V container = pop(frame), item = pop(frame);
      V found = contains(*this, container, item);
      return push(arg ? negated(*this, found) : found);
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
      return push(make_iterator(*this, value));
    }
    case FJ_FOR_ITER: {
      V iterator = peek(frame, fj_iterator_entries());
      V item = next(*this, iterator);
      if (item) return push(item);
      pop_many(frame, fj_iterator_entries());
      frame.pc = arg;
      return;
    }
    case FJ_GET_LEN:
      return push(length(*this, peek(frame, 1)));

    // ---- building
    case FJ_UNPACK_SEQUENCE:
      return unpack_sequence(*this, frame, arg);
    case FJ_UNPACK_EX:
      return unpack_ex(*this, frame, arg, instr.arg2);
    case FJ_BUILD_TUPLE:
      return push(tuple(pop_many(frame, arg)));
    case FJ_BUILD_LIST:
      return push(list(pop_many(frame, arg)));
    case FJ_BUILD_SET: {
      auto set = std::make_shared<SetValue>();
      std::vector<V> items = pop_many(frame, arg);
      for (V& item : items) add_to_set(*this, *set, constant_key(*this, item));
      return push(set);
    }
    case FJ_BUILD_MAP: {
      auto dict = std::make_shared<DictValue>();
      std::vector<V> items = pop_many(frame, 2 * arg);
      for (int i = 0; i < arg; ++i) dict_store(*this, dict, dict_key(*this, dict, items[2 * i]), items[2 * i + 1]);
      return push(dict);
    }
    case FJ_BUILD_CONST_KEY_MAP: {
      auto dict = std::make_shared<DictValue>();
      std::vector<V> keys = sequence_items(pop(frame)), items = pop_many(frame, arg);
      for (int i = 0; i < arg; ++i) dict_store(*this, dict, constant_key(*this, keys[i]), items[i]);
      return push(dict);
    }
    case FJ_BUILD_STRING: {
      std::vector<V> parts = pop_many(frame, arg);
      const auto is_text = [](const V& part) {
        return as<ObjectValue>(part) && PyUnicode_CheckExact(as<ObjectValue>(part)->object.get());
      };
      if (std::all_of(parts.begin(), parts.end(), is_text) &&
          std::any_of(parts.begin(), parts.end(), [&](const V& part) { return changes(*this, part); })) {
        V joined = parts[0];
        for (std::size_t i = 1; i < parts.size(); ++i) joined = binary(NB_ADD, joined, parts[i]);
        return push(joined);
      }
      Ref<> text = Ref<>::steal(PyUnicode_FromString(""));
      for (V& part : parts) {
        PyObject* object = constant_object(part);
        if (!object || !PyUnicode_CheckExact(object))
          break_graph(BreakReason::UnsupportedObject, "formats " + describe(part));
        text = Ref<>::steal(PyUnicode_Concat(text.get(), object));
      }
      return push(wrap_constant(*this, keep(text).get()));
    }
    case FJ_BUILD_SLICE: {
      auto slice = std::make_shared<SliceValue>();
      slice->step = arg == 3 ? pop(frame) : none();
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
      require_container(list, ValueKind::List);
      list_append(*this, list, item);
      return;
    }
    case FJ_SET_ADD: {
      std::vector<V> arguments{pop(frame)};
      Keywords none_given;
      container_method(*this, peek(frame, arg), "add", arguments, none_given);
      return;
    }
    case FJ_MAP_ADD: {
      V value = pop(frame), key = pop(frame), dict = peek(frame, arg);
      require_container(dict, ValueKind::Dict);
      return dict_store(*this, dict, dict_key(*this, dict, key), value);
    }
    case FJ_LIST_EXTEND: {
      std::vector<V> given{pop(frame)};
      Keywords none_given;
      container_method(*this, peek(frame, arg), "extend", given, none_given);
      return;
    }
    case FJ_SET_UPDATE: {
      V other = pop(frame), set = peek(frame, arg);
      std::vector<V> arguments{other};
      Keywords none_given;
      container_method(*this, set, "update", arguments, none_given);
      return;
    }
    case FJ_DICT_UPDATE: case FJ_DICT_MERGE: {
      V other = pop(frame), dict = peek(frame, arg);
      require_container(dict, ValueKind::Dict);
      for (auto& [key, value] : mapping_items(*this, other)) {
        Ref<> name = constant_key(*this, key);
        if (instr.opcode == FJ_DICT_MERGE && dict_find(*this, *as<DictValue>(dict), name.get()))
          break_graph(BreakReason::ErrorWhileTracing, "a keyword argument is given twice");
        dict_store(*this, dict, name, value);
      }
      return;
    }
    case FJ_LIST_TO_TUPLE:
      return push(tuple(sequence_items(pop(frame))));

    // ---- calls
    case FJ_CALL: {
      PyObject* names = instr.arg2 >= 0 ? constant_at(frame, instr.arg2) : nullptr;
      return push(call_with_names(*this, frame, arg, names));
    }
    case FJ_CALL_KW: {
      Ref<> names = constant_object(pop(frame));
      FJ_CHECK(names && PyTuple_Check(names.get()), "CALL_KW without names");
      return push(call_with_names(*this, frame, arg, names.get()));
    }
    case FJ_CALL_FUNCTION_EX: {
      Keywords keywords;
      if (const V given = arg & 1 ? pop(frame) : nullptr; given && given->kind != ValueKind::Null) {
        for (auto& [key, value] : mapping_items(*this, given)) {
          PyObject* name = constant_object(key);
          if (!name || !PyUnicode_CheckExact(name))
            break_graph(BreakReason::ErrorWhileTracing, "keywords must be strings");
          keywords.emplace_back(keyword_name(name), value);
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
      // A piece that begins here has the function as an object.
      if (!as<FunctionValue>(peek(frame, 1))) break;
      V owner = pop(frame), value = pop(frame);
      auto* function = as<FunctionValue>(owner);
      if (arg == 1) function->defaults = value;
      if (arg == 2) function->kwdefaults = value;
      if (arg == 4 || arg == 16) function->annotations = value;
      if (auto* giver = arg == 16 ? as<FunctionValue>(value) : nullptr)
        if (Ref<> name = Ref<>::steal(fj_giver_qualname(function->qualname.get()))) giver->qualname = std::move(name);
      if (arg == 8) function->closure = sequence_items(value);
      return push(owner);
    }
    case FJ_LOAD_BUILD_CLASS: {
      PyObject* builder =
          PyDict_Check(frame.builtins.get()) ? PyDict_GetItemString(frame.builtins.get(), "__build_class__") : nullptr;
      if (!builder) break;
      return push(wrap_constant(*this, builder));
    }
    case FJ_IMPORT_NAME: {
      V names = pop(frame), level = pop(frame);
      if (V module = imported_already(*this, frame, name_at(frame, arg), names, level)) return push(module);
      break;
    }
    case FJ_IMPORT_FROM: {
      V found = find_attribute(*this, peek(frame, 1), name_at(frame, arg));
      if (found) return push(found);
      break;
    }
    case FJ_BEFORE_WITH: {
      V manager = pop(frame);
      V exit_method = manager_method(*this, manager, 1), enter_method = manager_method(*this, manager, 0);
      push(exit_method);
      return push(call(enter_method, {}, {}));
    }
    case FJ_LOAD_SPECIAL: {
      if (arg > 1) break;
      V method = manager_method(*this, peek(frame, 1), arg);
      pop(frame);
      if (!fj_call_layout_callable_first()) push(std::make_shared<NullValue>());
      push(method);
      if (fj_call_layout_callable_first()) push(std::make_shared<NullValue>());
      return;
    }
    case FJ_WITH_EXCEPT_START: {
      V exception = peek(frame, 1);
      auto* instance = as<InstanceValue>(exception);
      if (!instance) break;
      auto traceback = std::make_shared<InstanceValue>();
      traceback->type = Ref<PyTypeObject>::borrow(&PyTraceBack_Type);
      traceback->raised = true;  // there is none: it can be passed on, not looked at
      V type = wrap_constant(*this, reinterpret_cast<PyObject*>(instance->type.get()));
      std::vector<V> arguments{type, exception, traceback};
      if (arg && peek(frame, 4)->kind != ValueKind::Null) arguments.insert(arguments.begin(), peek(frame, 4));
      return push(call(peek(frame, arg ? 5 : 4), std::move(arguments), {}));
    }

    // ---- ends
    case FJ_RETURN_VALUE:
      frame.finished = true;
      result = pop(frame);
      return;
    case FJ_RETURN_CONST:
      frame.finished = true;
      result = wrap_constant(*this, constant_at(frame, arg));
      return;
    case FJ_RETURN_GENERATOR:
      // Only inlined generators get here: what is behind it runs at the first `next`.
      push(none());
      result = none();
      return;
    case FJ_YIELD_VALUE: {
      V value = pop(frame);
      push(none());  // what send() would deliver
      result = value;
      return;
    }
    case FJ_GET_YIELD_FROM_ITER: {
      V value = pop(frame);
      return push(make_iterator(*this, value));
    }
    case FJ_SEND:
      return send_instruction(*this, frame, instr);
    case FJ_STOPITERATION_ERROR: {
      V exception = pop(frame);
      return push(stop_iteration_error(*this, exception));
    }
    case FJ_RAISE_VARARGS:
      return raise_instruction(*this, frame, arg);
    case FJ_PUSH_EXC_INFO: case FJ_POP_EXCEPT: case FJ_CHECK_EXC_MATCH: case FJ_RERAISE:
      if (handler_instruction(*this, frame, instr)) return;
      if (instr.opcode == FJ_RERAISE) break_graph(BreakReason::Raise, source_text());
      break;

    // ---- matching
    // NumPy's arrays are sequences from 2.5 on.
    case FJ_MATCH_SEQUENCE: case FJ_MATCH_MAPPING: {
      PyTypeObject* const type = type_of(peek(frame, 1));
      return push(boolean(PyType_HasFeature(
          type, instr.opcode == FJ_MATCH_SEQUENCE ? Py_TPFLAGS_SEQUENCE : Py_TPFLAGS_MAPPING)));
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

