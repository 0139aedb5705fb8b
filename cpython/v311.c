/* CPython 3.11: calls come as KW_NAMES, PRECALL, CALL; conditional jumps go both ways; the caller clears a frame. */
#define NEED_OPCODE_TABLES
#include "cpython/internal.h"

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030C0000
#error "this file is for CPython 3.11"
#endif

#include <internal/pycore_opcode.h>

int fj_cache_entries(int opcode) { return _PyOpcode_Caches[opcode]; }

bool fj_translate_version(FjDecoder* decoder) {
  const int arg = decoder->raw.arg;
  const int forward = decoder->raw.next + arg, backward = decoder->raw.next - arg;
  switch (decoder->raw.opcode) {
    case PRECALL: fj_prefix(decoder); return true;
    case KW_NAMES:
      fj_prefix(decoder);
      decoder->pending_kwnames = arg;
      return true;
    case COMPARE_OP: fj_emit(decoder, FJ_COMPARE_OP, arg, 0); return true;
    case LOAD_ATTR: fj_emit(decoder, FJ_LOAD_ATTR, arg, 0); return true;
    case LOAD_METHOD: fj_emit(decoder, FJ_LOAD_METHOD, arg, 0); return true;
    case LOAD_CLOSURE: fj_emit(decoder, FJ_LOAD_CLOSURE, arg, 0); return true;
    case LOAD_CLASSDEREF: fj_emit(decoder, FJ_LOAD_CLASSDEREF, arg, 0); return true;
    case UNARY_POSITIVE: fj_emit(decoder, FJ_UNARY_POSITIVE, 0, 0); return true;
    case LIST_TO_TUPLE: fj_emit(decoder, FJ_LIST_TO_TUPLE, 0, 0); return true;
    case PREP_RERAISE_STAR: fj_emit(decoder, FJ_JOIN_GROUPS, 0, 0); return true;
    case IMPORT_STAR: fj_emit(decoder, FJ_IMPORT_STAR, 0, 0); return true;
    case FORMAT_VALUE: fj_emit(decoder, FJ_FORMAT_VALUE, arg & 3, (arg & 4) != 0); return true;
    case FOR_ITER: fj_emit_jump(decoder, FJ_FOR_ITER, forward, false); return true;
    case JUMP_IF_FALSE_OR_POP: fj_emit_jump(decoder, FJ_JUMP_IF_FALSE_OR_POP, forward, false); return true;
    case JUMP_IF_TRUE_OR_POP: fj_emit_jump(decoder, FJ_JUMP_IF_TRUE_OR_POP, forward, false); return true;
    case POP_JUMP_FORWARD_IF_FALSE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_FALSE, forward, false); return true;
    case POP_JUMP_FORWARD_IF_TRUE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_TRUE, forward, false); return true;
    case POP_JUMP_FORWARD_IF_NONE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_NONE, forward, false); return true;
    case POP_JUMP_FORWARD_IF_NOT_NONE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_NOT_NONE, forward, false); return true;
    case POP_JUMP_BACKWARD_IF_FALSE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_FALSE, backward, true); return true;
    case POP_JUMP_BACKWARD_IF_TRUE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_TRUE, backward, true); return true;
    case POP_JUMP_BACKWARD_IF_NONE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_NONE, backward, true); return true;
    case POP_JUMP_BACKWARD_IF_NOT_NONE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_NOT_NONE, backward, true); return true;
    default: return false;
  }
}

bool fj_call_layout_callable_first(void) { return false; }
bool fj_bool_invert_warns(void) { return false; }

/* The caller clears and pops the frame: it only has to look finished. */
PyObject* fj_frame_finish(PyThreadState* thread, FjFrame* frame, PyObject* value) {
  frame->previous = FJ_CURRENT_FRAME(thread); /* becomes f_back of a frame object that lives on */
  PyObject* error = value == NULL ? fj_take_exception() : NULL;
  while (fj_frame_stack_depth(frame) > 0) Py_XDECREF(fj_frame_pop(frame));
  if (error != NULL) fj_restore_exception(error);
  return value;
}

bool fj_tracing_active(PyThreadState* thread) { return thread->cframe->use_tracing != 0; }

bool fj_code_observed(PyThreadState* thread, PyCodeObject* code) {
  (void)code;
  return thread->cframe->use_tracing != 0;
}

bool fj_enter_recursion(PyThreadState* thread) {
  if (thread->recursion_remaining <= 1) return false;
  thread->recursion_remaining--;
  return true;
}

void fj_leave_recursion(PyThreadState* thread) { thread->recursion_remaining++; }
int fj_recursion_left(PyThreadState* thread) { return thread->recursion_remaining; }

PyObject* fj_take_exception(void) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (type == NULL) return NULL;
  PyErr_NormalizeException(&type, &value, &traceback);
  PyException_SetTraceback(value, traceback != NULL ? traceback : Py_None);
  Py_XDECREF(traceback);
  Py_DECREF(type);
  return value;
}

void fj_restore_exception(PyObject* exception) {
  if (exception == NULL) {
    PyErr_Clear();
    return;
  }
  PyErr_Restore(Py_NewRef(Py_TYPE(exception)), exception, PyException_GetTraceback(exception));
}

int fj_handle_pending(PyThreadState* thread) {
  if (!_Py_atomic_load_relaxed(&thread->interp->ceval.eval_breaker)) return 0;
  if (Py_MakePendingCalls() < 0) return -1;
  /* Runs signal handlers but does not hand over the GIL. */
  PyEval_RestoreThread(PyEval_SaveThread());
  return 0;
}
