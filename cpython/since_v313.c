/* What has been the same since CPython 3.13: most instructions, and how a finished frame is cleared. */
#include "cpython/internal.h"

#if PY_VERSION_HEX >= 0x030D0000

#include <internal/pycore_ceval.h>
#include <internal/pycore_intrinsics.h>

/* The compiler turns LOAD_CLOSURE into LOAD_FAST: the slot's kind tells. */
void fj_load_slot(FjDecoder* decoder, int slot) {
  const unsigned char kind = (unsigned char)PyBytes_AS_STRING(decoder->code->co_localspluskinds)[slot];
  fj_emit(decoder, kind & (CO_FAST_CELL | CO_FAST_FREE) ? FJ_LOAD_CLOSURE : FJ_LOAD_FAST, slot, 0);
}

bool fj_translate_since_v313(FjDecoder* decoder) {
  const int arg = decoder->raw.arg;
  const int forward = decoder->raw.next + arg;
  switch (decoder->raw.opcode) {
    case LOAD_FAST:
    case LOAD_FAST_CHECK: fj_load_slot(decoder, arg); return true;
    case LOAD_FAST_LOAD_FAST:
      fj_load_slot(decoder, arg >> 4);
      fj_load_slot(decoder, arg & 15);
      return true;
    case STORE_FAST_LOAD_FAST:
      fj_emit(decoder, FJ_STORE_FAST, arg >> 4, 0);
      fj_load_slot(decoder, arg & 15);
      return true;
    case STORE_FAST_STORE_FAST:
      fj_emit(decoder, FJ_STORE_FAST, arg >> 4, 0);
      fj_emit(decoder, FJ_STORE_FAST, arg & 15, 0);
      return true;
    case COMPARE_OP: fj_emit(decoder, FJ_COMPARE_OP, arg >> 5, (arg & 16) != 0); return true;
    case LOAD_ATTR: fj_emit(decoder, arg & 1 ? FJ_LOAD_METHOD : FJ_LOAD_ATTR, arg >> 1, 0); return true;
    case LOAD_SUPER_ATTR: fj_emit(decoder, FJ_LOAD_SUPER_ATTR, arg >> 2, arg & 3); return true;
    case LOAD_FAST_AND_CLEAR: fj_emit(decoder, FJ_LOAD_FAST_AND_CLEAR, arg, 0); return true;
    case TO_BOOL: fj_emit(decoder, FJ_TO_BOOL, 0, 0); return true;
    case BINARY_SLICE: fj_emit(decoder, FJ_BINARY_SLICE, 0, 0); return true;
    case STORE_SLICE: fj_emit(decoder, FJ_STORE_SLICE, 0, 0); return true;
    case FORMAT_SIMPLE: fj_emit(decoder, FJ_FORMAT_VALUE, 0, 0); return true;
    case FORMAT_WITH_SPEC: fj_emit(decoder, FJ_FORMAT_VALUE, 0, 1); return true;
    case CONVERT_VALUE: fj_emit(decoder, FJ_CONVERT_VALUE, arg, 0); return true;
    case CALL_KW: fj_emit(decoder, FJ_CALL_KW, arg, 0); return true;
    case SET_FUNCTION_ATTRIBUTE: fj_emit(decoder, FJ_SET_FUNCTION_ATTRIBUTE, arg, 0); return true;
    case END_FOR: fj_emit(decoder, FJ_END_FOR, 0, 0); return true;
    case END_SEND:
      fj_emit(decoder, FJ_SWAP, 2, 0);
      fj_emit(decoder, FJ_POP_TOP, 0, 0);
      return true;
    /* An exhausted iterator is popped, END_FOR and POP_TOP (POP_ITER) skipped. */
    case FOR_ITER: fj_emit_jump(decoder, FJ_FOR_ITER, forward + 2, false); return true;
    /* END_SEND takes the receiver away. */
    case SEND: fj_emit_jump(decoder, FJ_SEND, forward, true); return true;
    case POP_JUMP_IF_FALSE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_FALSE, forward, false); return true;
    case POP_JUMP_IF_TRUE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_TRUE, forward, false); return true;
    case POP_JUMP_IF_NONE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_NONE, forward, false); return true;
    case POP_JUMP_IF_NOT_NONE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_NOT_NONE, forward, false); return true;
    case CALL_INTRINSIC_1:
      switch (arg) {
        case INTRINSIC_UNARY_POSITIVE: fj_emit(decoder, FJ_UNARY_POSITIVE, 0, 0); return true;
        case INTRINSIC_LIST_TO_TUPLE: fj_emit(decoder, FJ_LIST_TO_TUPLE, 0, 0); return true;
        case INTRINSIC_STOPITERATION_ERROR: fj_emit(decoder, FJ_STOPITERATION_ERROR, 0, 0); return true;
        default: fj_emit(decoder, FJ_CALL_INTRINSIC_1, arg, 0); return true;
      }
    case CALL_INTRINSIC_2:
      if (arg == INTRINSIC_PREP_RERAISE_STAR) fj_emit(decoder, FJ_JOIN_GROUPS, 0, 0);
      else fj_emit(decoder, FJ_CALL_INTRINSIC_2, arg, 0);
      return true;
    default: return false;
  }
}

bool fj_call_layout_callable_first(void) { return true; }
bool fj_bool_invert_warns(void) { return true; }

PyObject* fj_frame_finish(PyThreadState* thread, FjFrame* frame, PyObject* value) {
  PyObject* error = value == NULL ? fj_take_exception() : NULL;
  while (fj_frame_stack_depth(frame) > 0) Py_XDECREF(fj_frame_pop(frame));
  frame->previous = FJ_CURRENT_FRAME(thread); /* becomes f_back of a frame object that lives on */
  _PyEval_FrameClearAndPop(thread, frame);
  if (error != NULL) fj_restore_exception(error);
  return value;
}

int fj_handle_pending(PyThreadState* thread) {
  return thread->eval_breaker & _PY_EVAL_EVENTS_MASK ? _Py_HandlePending(thread) : 0;
}

#endif
