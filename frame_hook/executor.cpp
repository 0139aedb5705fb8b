// The concrete interpreter of one instruction. Operands stay on the frame's stack while an operation runs (so that the
// frame is valid if anything looks at it) and are popped after it; on an error the unwinder drops them.
//
// Start at execute(). An instruction ends in one of the Outcomes; `Retry` sends it to CPython, which is right for every
// instruction that has not begun: unbound names, missing attributes of modules, whatever we do not implement.
#include "frame_hook/executor.h"

#include <span>
#include <utility>
#include <vector>

#include "cpython/ref.h"
#include "frame_hook/frame_objects.h"
#include "frame_hook/operations.h"

namespace fj {

namespace {

enum class Outcome {
  Next,     // fall through
  Jump,     // to instr.arg
  Return,   // machine.result
  Raised,   // error set; gets a traceback entry
  Reraised, // error set; has its traceback already
  Retry,    // untouched: CPython runs it
};

class Machine {
 public:
  Machine(PyThreadState* thread, FjFrame* frame, const FjCode& code)
      : thread(thread),
        frame(frame),
        code(reinterpret_cast<PyCodeObject*>(code.code)),
        slots(fj_frame_slot_count(frame)) {}

  PyThreadState* const thread;
  FjFrame* const frame;
  PyCodeObject* const code;
  const int slots;
  PyObject* result = nullptr;
  int lasti = 0;  // code unit that a handler is told as the position of the exception
  std::span<Resumed> called{};  // what the next call goes on with

  int depth() const { return fj_frame_stack_depth(frame); }
  PyObject* local(int slot) const { return fj_frame_get(frame, slot); }
  /// 1: top of the stack.
  PyObject* peek(int n) const { return fj_frame_get(frame, slots + depth() - n); }
  /// Steals; the entry that was there.
  Ref<> put(int n, PyObject* value) const {
    return Ref<>::steal(fj_frame_exchange(frame, slots + depth() - n, value));
  }
  PyObject* constant(int index) const { return PyTuple_GET_ITEM(code->co_consts, index); }
  PyObject* name(int index) const { return PyTuple_GET_ITEM(code->co_names, index); }
  void push(PyObject* value) { fj_frame_push(frame, value); }
  PyObject* pop() { return fj_frame_pop(frame); }
  void drop(int count) {
    while (count-- > 0) Py_XDECREF(fj_frame_pop(frame));
  }

  /// Replaces the `count` top entries by `value`; null: the operation raised.
  Outcome replace(int count, PyObject* value) {
    if (value == nullptr) return Outcome::Raised;
    drop(count);
    push(value);
    return Outcome::Next;
  }
  Outcome push_new(PyObject* value) {
    if (value == nullptr) return Outcome::Raised;
    push(value);
    return Outcome::Next;
  }
  /// Pops `count` entries after an operation without result.
  Outcome done(int count, bool success) {
    if (!success) return Outcome::Raised;
    drop(count);
    return Outcome::Next;
  }
  Outcome out_of_memory() {
    PyErr_NoMemory();
    return Outcome::Raised;
  }
  Outcome done_or_retry(int count, bool success, bool retry) { return retry ? Outcome::Retry : done(count, success); }

  Outcome run(const FjInstr& instr);
  Outcome call(int argc, PyObject* keyword_names, int extra);
  Outcome call_with_tuple(bool keywords);
  Outcome load_method(PyObject* name);
  Outcome load_super(const FjInstr& instr);
  Outcome load_global(const FjInstr& instr);
  Outcome enter_with();
  Outcome iterate();
  Outcome unpack_items(int before, bool rest, int after);
  Outcome build_map(int count, PyObject* keys);
  Outcome branch(bool taken, const FjInstr& instr);
  Outcome truth_branch(bool wanted, const FjInstr& instr);
};

/// The jump is taken, after a look at signals where the loop goes round.
Outcome Machine::branch(bool taken, const FjInstr& instr) {
  if (!taken) return Outcome::Next;
  return instr.arg2 && fj_handle_pending(thread) < 0 ? Outcome::Raised : Outcome::Jump;
}

Outcome Machine::truth_branch(bool wanted, const FjInstr& instr) {
  const int truth = PyObject_IsTrue(peek(1));
  if (truth < 0) return Outcome::Raised;
  drop(1);
  return branch(bool(truth) == wanted, instr);
}

/// A function of the code of a call that is under way, which `callable` had when the call began: it may have been given
/// another one meanwhile, and other defaults.
Ref<> function_under_way(const FjCode& code, PyObject* callable) {
  auto* const given = reinterpret_cast<PyFunctionObject*>(callable);
  Ref<> made = Ref<>::steal(PyFunction_New(code.code, given->func_globals));
  if (made)
    Py_XSETREF(reinterpret_cast<PyFunctionObject*>(made.get())->func_builtins, Py_NewRef(given->func_builtins));
  return made;
}

/// The frame has just been made for it.
PyObject* run_resumed(void* context, PyThreadState* thread, FjFrame* frame, int) {
  const std::span<Resumed> called = *static_cast<std::span<Resumed>*>(context);
  Resumed& mine = called.front();
  exchange_slots(frame, mine.slots);
  mine.slots.clear();
  int instruction = mine.instruction;
  if (called.size() > 1) {
    const Step step = execute(thread, frame, *mine.code, instruction, called.subspan(1));
    if (step.kind == Step::Kind::Finished) return step.result;
    instruction = step.next;
  }
  return hand_over(thread, frame, *mine.code, instruction);
}

Outcome Machine::call(int argc, PyObject* keyword_names, int extra) {
  // Two slots below the arguments, see fj_call_layout_callable_first.
  const FrameObjects entries(frame, slots + depth() - (argc + extra + 2), argc + extra + 2);
  if (!entries) return out_of_memory();
  PyObject* const* const first = entries.all().data();
  PyObject* callable;
  PyObject* const* arguments;
  if (fj_call_layout_callable_first()) {
    callable = first[0];
    arguments = first[1] != nullptr ? first + 1 : first + 2;
  } else {
    callable = first[0] != nullptr ? first[0] : first[1];
    arguments = first[0] != nullptr ? first + 1 : first + 2;
  }
  std::size_t count = std::size_t(first + 2 + argc - arguments);
  if (keyword_names != nullptr) count -= std::size_t(PyTuple_GET_SIZE(keyword_names));
  count |= PY_VECTORCALL_ARGUMENTS_OFFSET;
  std::span<Resumed> resumed = std::exchange(called, {});
  if (resumed.empty())
    return replace(argc + extra + 2, PyObject_Vectorcall(callable, arguments, count, keyword_names));
  if (!fj_begin_stack(thread)) return out_of_memory();  // else CPython would begin the call
  const FjCode& its_code = *resumed.front().code;
  const Ref<> function = function_under_way(its_code, callable);
  if (!function) return Outcome::Raised;
  // The frame gets its variables from what is resumed.
  const std::vector<PyObject*> nothing(
      std::size_t(reinterpret_cast<PyCodeObject*>(its_code.code)->co_argcount) + 1, Py_None);
  return replace(argc + extra + 2, fj_call_with_evaluator(thread, function.get(), nothing.data() + 1,
                                                          (nothing.size() - 1) | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                                          nullptr, run_resumed, &resumed));
}

Outcome Machine::call_with_tuple(bool keywords) {
  const int above = keywords ? 2 : 1;
  PyObject* callable = fj_call_layout_callable_first() ? peek(above + 2) : peek(above + 1);
  PyObject* const arguments = peek(above);
  if (!PyTuple_CheckExact(arguments)) {
    if (Py_TYPE(arguments)->tp_iter == nullptr && !PySequence_Check(arguments)) return Outcome::Retry;
    PyObject* tuple = PySequence_Tuple(arguments);
    if (tuple == nullptr) return Outcome::Raised;
    put(above, tuple);
  }
  return replace(above + 2, PyObject_Call(callable, peek(above), keywords ? peek(1) : nullptr));
}

Outcome Machine::load_method(PyObject* name) {
  PyObject* owner = peek(1);
  PyObject* method;
  if (fj_get_method(owner, name, &method)) {
    // The owner's reference becomes self's.
    push(put(1, method).release());
    return Outcome::Next;
  }
  if (method == nullptr) return Outcome::Raised;
  const bool callable_first = fj_call_layout_callable_first();
  const Ref<> released = put(1, callable_first ? method : nullptr);
  push(callable_first ? nullptr : method);
  return Outcome::Next;
}

Outcome Machine::load_super(const FjInstr& instr) {
  // Written `super()` in the source, it is called so: it finds its arguments in the linked frame.
  PyObject* arguments[] = {peek(2), peek(1)};
  Ref<> proxy = Ref<>::steal(PyObject_Vectorcall(peek(3), arguments, instr.arg2 & 2, nullptr));
  if (!proxy) return Outcome::Raised;
  PyObject* attribute = PyObject_GetAttr(proxy.get(), name(instr.arg));
  if (attribute == nullptr) return Outcome::Raised;
  drop(3);
  const bool method_form = instr.arg2 & 1;
  if (method_form && !fj_call_layout_callable_first()) push(nullptr);
  push(attribute);
  if (method_form && fj_call_layout_callable_first()) push(nullptr);
  return Outcome::Next;
}

Outcome Machine::load_global(const FjInstr& instr) {
  PyObject *globals = fj_frame_globals(frame), *builtins = fj_frame_builtins(frame);
  if (!PyDict_CheckExact(globals) || !PyDict_CheckExact(builtins)) return Outcome::Retry;
  PyObject* names = globals;
  PyObject* found = PyDict_GetItemWithError(names, name(instr.arg));
  if (found == nullptr && !PyErr_Occurred()) found = PyDict_GetItemWithError(names = builtins, name(instr.arg));
  if (found == nullptr) return PyErr_Occurred() ? Outcome::Raised : Outcome::Retry;
  const Ref<> held = Ref<>::borrow(found);  // an import may replace it
  PyObject* const value = fj_imported(thread, held.get(), name(instr.arg), names);
  if (value == nullptr) return Outcome::Raised;
  if (instr.arg2 && !fj_call_layout_callable_first()) push(nullptr);
  push(value);
  if (instr.arg2 && fj_call_layout_callable_first()) push(nullptr);
  return Outcome::Next;
}

Outcome Machine::enter_with() {
  PyObject* manager = peek(1);
  Ref<> enter = Ref<>::steal(special_method(manager, "__enter__"));
  if (!enter) return PyErr_Occurred() ? Outcome::Raised : Outcome::Retry;
  Ref<> exit = Ref<>::steal(special_method(manager, "__exit__"));
  if (!exit) return PyErr_Occurred() ? Outcome::Raised : Outcome::Retry;
  put(1, exit.release());
  return push_new(PyObject_CallNoArgs(enter.get()));
}

Outcome Machine::iterate() {
  PyObject* iterator = peek(fj_iterator_entries());
  PyObject* item = Py_TYPE(iterator)->tp_iternext(iterator);
  if (item != nullptr) {
    push(item);
    return Outcome::Next;
  }
  if (PyErr_Occurred()) {
    if (!PyErr_ExceptionMatches(PyExc_StopIteration)) return Outcome::Raised;
    PyErr_Clear();
  }
  drop(fj_iterator_entries());
  return Outcome::Jump;
}

Outcome Machine::unpack_items(int before, bool rest, int after) {
  std::vector<PyObject*> items(std::size_t(before + (rest ? 1 : 0) + after));
  bool retry = false;
  if (!unpack(peek(1), before, rest, after, items.data(), retry)) return retry ? Outcome::Retry : Outcome::Raised;
  drop(1);
  for (std::size_t i = items.size(); i-- > 0;) push(items[i]);
  return Outcome::Next;
}

Outcome Machine::build_map(int count, PyObject* keys) {
  Ref<> map = Ref<>::steal(PyDict_New());
  if (!map) return Outcome::Raised;
  const int entries = keys != nullptr ? count + 1 : 2 * count;
  const FrameObjects base(frame, slots + depth() - entries, entries);
  if (!base) return out_of_memory();
  for (int i = 0; i < count; i++) {
    PyObject* key = keys != nullptr ? PyTuple_GET_ITEM(keys, i) : base[2 * i];
    if (PyDict_SetItem(map.get(), key, keys != nullptr ? base[i] : base[2 * i + 1]) < 0) return Outcome::Raised;
  }
  return replace(entries, map.release());
}

Outcome Machine::run(const FjInstr& instr) {
  const int arg = instr.arg;
  bool retry = false;
  switch (instr.opcode) {
    // ---- the stack
    case FJ_NOP: return Outcome::Next;
    case FJ_POP_TOP: drop(1); return Outcome::Next;
    case FJ_PUSH_NULL: push(nullptr); return Outcome::Next;
    case FJ_COPY: push(Py_XNewRef(peek(arg))); return Outcome::Next;
    case FJ_SWAP: put(1, put(arg, put(1, nullptr).release()).release()); return Outcome::Next;
    case FJ_LOAD_CONST: push(Py_NewRef(constant(arg))); return Outcome::Next;
    case FJ_LOAD_SMALL_INT: return push_new(PyLong_FromLong(arg));
    case FJ_LOAD_COMMON_CONSTANT: {
      PyObject* const value = fj_common_constant(arg);
      if (value == nullptr) return Outcome::Retry;
      push(Py_NewRef(value));
      return Outcome::Next;
    }

    // ---- locals and cells
    case FJ_LOAD_FAST:
      if (local(arg) == nullptr) return Outcome::Retry;
      push(Py_NewRef(local(arg)));
      return Outcome::Next;
    case FJ_LOAD_FAST_AND_CLEAR:
      push(fj_frame_exchange(frame, arg, nullptr));
      return Outcome::Next;
    case FJ_STORE_FAST: fj_frame_set(frame, arg, pop()); return Outcome::Next;
    case FJ_DELETE_FAST:
      if (local(arg) == nullptr) return Outcome::Retry;
      fj_frame_set(frame, arg, nullptr);
      return Outcome::Next;
    case FJ_MAKE_CELL: {
      PyObject* cell = PyCell_New(local(arg));
      if (cell == nullptr) return Outcome::Raised;
      fj_frame_set(frame, arg, cell);
      return Outcome::Next;
    }
    case FJ_COPY_FREE_VARS: {
      PyObject* closure = fj_frame_function(frame)->func_closure;
      for (int i = 0; i < arg; i++) fj_frame_set(frame, slots - arg + i, Py_NewRef(PyTuple_GET_ITEM(closure, i)));
      return Outcome::Next;
    }
    case FJ_LOAD_CLOSURE: push(Py_XNewRef(local(arg))); return Outcome::Next;
    case FJ_LOAD_DEREF: {
      PyObject* value = PyCell_GET(local(arg));
      if (value == nullptr) return Outcome::Retry;
      push(Py_NewRef(value));
      return Outcome::Next;
    }
    case FJ_STORE_DEREF: {
      PyObject* old = PyCell_GET(local(arg));
      PyCell_SET(local(arg), pop());
      Py_XDECREF(old);
      return Outcome::Next;
    }
    case FJ_DELETE_DEREF: {
      PyObject* old = PyCell_GET(local(arg));
      if (old == nullptr) return Outcome::Retry;
      PyCell_SET(local(arg), nullptr);
      Py_DECREF(old);
      return Outcome::Next;
    }

    // ---- globals
    case FJ_LOAD_GLOBAL: return load_global(instr);
    case FJ_STORE_GLOBAL: return done(1, PyDict_SetItem(fj_frame_globals(frame), name(arg), peek(1)) == 0);
    case FJ_DELETE_GLOBAL:
      if (PyDict_Contains(fj_frame_globals(frame), name(arg)) != 1)
        return PyErr_Occurred() ? Outcome::Raised : Outcome::Retry;
      return done(0, PyDict_DelItem(fj_frame_globals(frame), name(arg)) == 0);

    // ---- attributes and items
    case FJ_LOAD_ATTR: return replace(1, PyObject_GetAttr(peek(1), name(arg)));
    case FJ_LOAD_METHOD: return load_method(name(arg));
    case FJ_LOAD_SUPER_ATTR: return load_super(instr);
    case FJ_STORE_ATTR: return done(2, PyObject_SetAttr(peek(1), name(arg), peek(2)) == 0);
    case FJ_DELETE_ATTR: return done(1, PyObject_SetAttr(peek(1), name(arg), nullptr) == 0);
    case FJ_BINARY_SUBSCR: return replace(2, PyObject_GetItem(peek(2), peek(1)));
    case FJ_STORE_SUBSCR: return done(3, PyObject_SetItem(peek(2), peek(1), peek(3)) == 0);
    case FJ_DELETE_SUBSCR: return done(2, PyObject_DelItem(peek(2), peek(1)) == 0);
    case FJ_BINARY_SLICE: {
      Ref<> slice = Ref<>::steal(slice_of(peek(2), peek(1)));
      return slice ? replace(3, PyObject_GetItem(peek(3), slice.get())) : Outcome::Raised;
    }
    case FJ_STORE_SLICE: {
      Ref<> slice = Ref<>::steal(slice_of(peek(2), peek(1)));
      return slice ? done(4, PyObject_SetItem(peek(3), slice.get(), peek(4)) == 0) : Outcome::Raised;
    }

    // ---- operators
    case FJ_UNARY_NEGATIVE: return replace(1, PyNumber_Negative(peek(1)));
    case FJ_UNARY_POSITIVE: return replace(1, PyNumber_Positive(peek(1)));
    case FJ_UNARY_INVERT: return replace(1, PyNumber_Invert(peek(1)));
    case FJ_UNARY_NOT:
    case FJ_TO_BOOL: {
      const int truth = PyObject_IsTrue(peek(1));
      return replace(1, truth < 0 ? nullptr : PyBool_FromLong(truth ^ (instr.opcode == FJ_UNARY_NOT)));
    }
    case FJ_BINARY_OP: return replace(2, binary_operation(arg, peek(2), peek(1)));
    case FJ_COMPARE_OP: return replace(2, compare(peek(2), peek(1), arg, instr.arg2));
    case FJ_IS_OP: return replace(2, PyBool_FromLong((peek(2) == peek(1)) ^ arg));
    case FJ_CONTAINS_OP: {
      const int found = PySequence_Contains(peek(1), peek(2));
      return replace(2, found < 0 ? nullptr : PyBool_FromLong(found ^ arg));
    }

    // ---- control
    case FJ_JUMP: return branch(true, instr);
    case FJ_POP_JUMP_IF_FALSE: return truth_branch(false, instr);
    case FJ_POP_JUMP_IF_TRUE: return truth_branch(true, instr);
    case FJ_POP_JUMP_IF_NONE:
    case FJ_POP_JUMP_IF_NOT_NONE: {
      const bool none = peek(1) == Py_None;
      drop(1);
      return branch(none == (instr.opcode == FJ_POP_JUMP_IF_NONE), instr);
    }
    case FJ_JUMP_IF_FALSE_OR_POP:
    case FJ_JUMP_IF_TRUE_OR_POP: {
      const int truth = PyObject_IsTrue(peek(1));
      if (truth < 0) return Outcome::Raised;
      if (bool(truth) == (instr.opcode == FJ_JUMP_IF_TRUE_OR_POP)) return Outcome::Jump;
      drop(1);
      return Outcome::Next;
    }
    case FJ_GET_ITER: return replace(1, PyObject_GetIter(peek(1)));
    case FJ_FOR_ITER: return iterate();
    case FJ_RETURN_VALUE: result = pop(); return Outcome::Return;
    case FJ_RETURN_CONST: result = Py_NewRef(constant(arg)); return Outcome::Return;

    // ---- building and taking apart
    case FJ_GET_LEN: {
      const Py_ssize_t length = PyObject_Length(peek(1));
      return length < 0 ? Outcome::Raised : push_new(PyLong_FromSsize_t(length));
    }
    case FJ_UNPACK_SEQUENCE: return unpack_items(arg, false, 0);
    case FJ_UNPACK_EX: return unpack_items(arg, true, instr.arg2);
    case FJ_BUILD_TUPLE: {
      PyObject* tuple = PyTuple_New(arg);
      if (tuple == nullptr) return Outcome::Raised;
      for (int i = arg; i-- > 0;) PyTuple_SET_ITEM(tuple, i, pop());
      push(tuple);
      return Outcome::Next;
    }
    case FJ_BUILD_LIST: {
      PyObject* list = PyList_New(arg);
      if (list == nullptr) return Outcome::Raised;
      for (int i = arg; i-- > 0;) PyList_SET_ITEM(list, i, pop());
      push(list);
      return Outcome::Next;
    }
    case FJ_BUILD_SET: {
      Ref<> set = Ref<>::steal(PySet_New(nullptr));
      for (int i = arg; set && i > 0; i--)
        if (PySet_Add(set.get(), peek(i)) < 0) return Outcome::Raised;
      return replace(arg, set.release());
    }
    case FJ_BUILD_MAP: return build_map(arg, nullptr);
    case FJ_BUILD_CONST_KEY_MAP: return build_map(arg, peek(1));
    case FJ_BUILD_STRING: {
      const FrameObjects pieces(frame, slots + depth() - arg, arg);
      if (!pieces) return out_of_memory();
      return replace(arg, join_strings(pieces.all().data(), arg));
    }
    case FJ_BUILD_SLICE:
      return replace(arg, arg == 3 ? PySlice_New(peek(3), peek(2), peek(1)) : PySlice_New(peek(2), peek(1), nullptr));
    case FJ_FORMAT_VALUE:
      return instr.arg2 ? replace(2, format_value(peek(2), arg, peek(1)))
                        : replace(1, format_value(peek(1), arg, nullptr));
    case FJ_BUILD_INTERPOLATION:
      return instr.arg2 ? replace(3, make_interpolation(peek(3), peek(2), arg, peek(1)))
                        : replace(2, make_interpolation(peek(2), peek(1), arg, nullptr));
    case FJ_BUILD_TEMPLATE: return replace(2, make_template(peek(2), peek(1)));
    case FJ_CONVERT_VALUE: return replace(1, convert_value(peek(1), arg));
    case FJ_LIST_APPEND: return done(1, PyList_Append(peek(arg + 1), peek(1)) == 0);
    case FJ_SET_ADD: return done(1, PySet_Add(peek(arg + 1), peek(1)) == 0);
    case FJ_MAP_ADD: return done(2, PyDict_SetItem(peek(arg + 2), peek(2), peek(1)) == 0);
    case FJ_LIST_EXTEND: {
      const bool success = extend_list(peek(arg + 1), peek(1), retry);
      return done_or_retry(1, success, retry);
    }
    case FJ_SET_UPDATE: return done(1, update_set(peek(arg + 1), peek(1)));
    case FJ_DICT_UPDATE: {
      const bool success = update_dict(peek(arg + 1), peek(1), retry);
      return done_or_retry(1, success, retry);
    }
    case FJ_DICT_MERGE: {
      const bool success = merge_dict(peek(arg + 1), peek(1), retry);
      return done_or_retry(1, success, retry);
    }
    case FJ_LIST_TO_TUPLE: return replace(1, PyList_AsTuple(peek(1)));

    // ---- calls, functions, imports
    case FJ_CALL: return call(arg, instr.arg2 >= 0 ? constant(instr.arg2) : nullptr, 0);
    case FJ_CALL_KW: return call(arg, peek(1), 1);
    case FJ_CALL_FUNCTION_EX: return call_with_tuple(arg & 1);
    case FJ_MAKE_FUNCTION: {
      Ref<> function = Ref<>::steal(make_function(peek(1), fj_frame_globals(frame)));
      if (!function) return Outcome::Raised;
      drop(1);
      for (int flag : {8, 4, 2, 1})
        if (arg & flag) set_function_attribute(function.get(), flag, pop());
      push(function.release());
      return Outcome::Next;
    }
    case FJ_SET_FUNCTION_ATTRIBUTE: {
      PyObject* function = pop();
      set_function_attribute(function, arg, pop());
      push(function);
      return Outcome::Next;
    }
    case FJ_LOAD_BUILD_CLASS: {
      PyObject* builder = PyDict_CheckExact(fj_frame_builtins(frame))
                              ? PyDict_GetItemString(fj_frame_builtins(frame), "__build_class__") : nullptr;
      if (builder == nullptr) return Outcome::Retry;
      push(Py_NewRef(builder));
      return Outcome::Next;
    }
    case FJ_IMPORT_NAME:
      if (!PyDict_CheckExact(fj_frame_builtins(frame))) return Outcome::Retry;
      return replace(2, import_name(fj_frame_builtins(frame), fj_frame_globals(frame), name(arg), peek(1), peek(2)));
    case FJ_IMPORT_FROM: {
      PyObject* attribute = PyObject_GetAttr(peek(1), name(arg));
      if (attribute == nullptr && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();  // a submodule of a package half imported, or CPython's message
        return Outcome::Retry;
      }
      return push_new(attribute);
    }

    // ---- with and exceptions
    case FJ_BEFORE_WITH: return enter_with();
    case FJ_LOAD_SPECIAL: {
      if (arg > 1) return Outcome::Retry;
      Ref<> method = Ref<>::steal(special_method(peek(1), arg == 0 ? "__enter__" : "__exit__"));
      if (!method) return PyErr_Occurred() ? Outcome::Raised : Outcome::Retry;
      const bool callable_first = fj_call_layout_callable_first();
      const Ref<> owner = put(1, callable_first ? method.release() : nullptr);
      push(callable_first ? nullptr : method.release());
      return Outcome::Next;
    }
    case FJ_WITH_EXCEPT_START: {
      PyObject* exception = peek(1);
      Ref<> traceback = Ref<>::steal(PyException_GetTraceback(exception));
      PyObject* arguments[] = {arg ? peek(4) : nullptr, reinterpret_cast<PyObject*>(Py_TYPE(exception)), exception,
                               traceback ? traceback.get() : Py_None};
      const std::size_t self = arguments[0] != nullptr;
      return push_new(PyObject_Vectorcall(peek(arg ? 5 : 4), arguments + 1 - self, 3 + self, nullptr));
    }
    case FJ_PUSH_EXC_INFO: {
      PyObject* exception = pop();
      PyObject* outer = fj_swap_handled_exception(thread, Py_NewRef(exception));
      push(outer != nullptr ? outer : Py_NewRef(Py_None));
      push(exception);
      return Outcome::Next;
    }
    case FJ_POP_EXCEPT: {
      PyObject* outer = pop();
      if (outer == Py_None) {
        Py_DECREF(outer);
        outer = nullptr;
      }
      Py_XDECREF(fj_swap_handled_exception(thread, outer));
      return Outcome::Next;
    }
    case FJ_CHECK_EXC_MATCH:
      if (!valid_exception_filter(peek(1))) return Outcome::Retry;
      return replace(1, PyBool_FromLong(PyErr_GivenExceptionMatches(peek(2), peek(1))));
    case FJ_CHECK_EG_MATCH: {
      PyObject *rest, *match;
      if (!split_group(peek(2), peek(1), rest, match, retry)) return retry ? Outcome::Retry : Outcome::Raised;
      drop(2);
      push(rest);
      push(match);
      if (match != Py_None) PyErr_SetHandledException(match);
      return Outcome::Next;
    }
    case FJ_JOIN_GROUPS: return replace(2, join_groups(peek(2), peek(1)));
    case FJ_RERAISE: {
      PyObject* exception = pop();
      if (arg) {
        lasti = fj_position_unit(peek(arg));
        fj_frame_set_executing(frame, lasti);
      }
      fj_restore_exception(exception);
      return Outcome::Reraised;
    }
    case FJ_RAISE_VARARGS:
      if (arg == 0) {
        PyObject* handled = PyErr_GetHandledException();
        if (handled == nullptr || handled == Py_None) {
          Py_XDECREF(handled);
          return Outcome::Retry;
        }
        fj_restore_exception(handled);
        return Outcome::Reraised;
      }
      raise(peek(arg), arg == 2 ? peek(1) : nullptr, retry);
      return retry ? Outcome::Retry : Outcome::Raised;

    // ---- matching
    case FJ_MATCH_MAPPING:
    case FJ_MATCH_SEQUENCE: {
      const unsigned long flag = instr.opcode == FJ_MATCH_MAPPING ? Py_TPFLAGS_MAPPING : Py_TPFLAGS_SEQUENCE;
      push(PyBool_FromLong(PyType_HasFeature(Py_TYPE(peek(1)), flag) != 0));
      return Outcome::Next;
    }
    case FJ_MATCH_KEYS: return push_new(match_keys(peek(2), peek(1)));
    case FJ_MATCH_CLASS: return replace(3, match_class(peek(3), peek(2), arg, peek(1)));
    default: return Outcome::Retry;
  }
}

/// The error that is set, raised by the instruction at code unit `unit`: to the frame's handler or out of the function.
Step unwind(Machine& machine, const FjCode& code, int unit) {
  FjHandler handler;
  if (!fj_find_handler(machine.code, unit, &handler)) {
    fj_frame_unlink(machine.thread, machine.frame);
    return {Step::Kind::Finished, 0, fj_frame_finish(machine.thread, machine.frame, nullptr)};
  }
  PyObject* exception = fj_take_exception();
  machine.drop(machine.depth() - handler.depth);
  if (handler.lasti) fj_frame_push_position(machine.frame, machine.lasti);
  machine.push(exception);
  fj_frame_unlink(machine.thread, machine.frame);
  return {Step::Kind::Next, code.index_of[handler.target]};
}

}  // namespace

void exchange_slots(FjFrame* frame, std::vector<Ref<>>& slots) {
  const std::size_t locals = std::size_t(fj_frame_slot_count(frame)), count = slots.size();
  for (std::size_t i = 0; i < locals; i++)
    slots[i] = Ref<>::steal(fj_frame_exchange(frame, int(i), slots[i].release()));
  while (fj_frame_stack_depth(frame) > 0) slots.push_back(Ref<>::steal(fj_frame_pop(frame)));
  for (std::size_t i = locals; i < count; i++) fj_frame_push(frame, slots[i].release());
}

Step execute(PyThreadState* thread, FjFrame* frame, const FjCode& code, int index, std::span<Resumed> called) {
  Machine machine(thread, frame, code);
  machine.called = called;
  fj_frame_link(thread, frame);
  do {
    const FjInstr& instr = code.instrs[index];
    fj_frame_set_executing(frame, instr.executing);
    machine.lasti = instr.executing;
    switch (machine.run(instr)) {
      case Outcome::Next: index++; break;
      case Outcome::Jump: index = instr.arg; break;
      case Outcome::Retry: fj_frame_unlink(thread, frame); return {Step::Kind::Handover, index};
      case Outcome::Return:
        fj_frame_unlink(thread, frame);
        return {Step::Kind::Finished, 0, fj_frame_finish(thread, frame, machine.result)};
      case Outcome::Raised: fj_add_traceback(thread, frame); [[fallthrough]];
      case Outcome::Reraised: return unwind(machine, code, instr.executing);
    }
    // The second half of a superinstruction can't be resumed at: it belongs to the first.
  } while (!code.instrs[index].resumable);
  fj_frame_unlink(thread, frame);
  // A debugger or profiler switched on by the callee wants to see the rest.
  return {fj_tracing_active(thread) ? Step::Kind::Handover : Step::Kind::Next, index};
}

PyObject* hand_over(PyThreadState* thread, FjFrame* frame, const FjCode& code, int index) {
  fj_frame_set_next(frame, code.instrs[index].offset);
  return fj_eval_default(thread, frame, 0);
}

}  // namespace fj
