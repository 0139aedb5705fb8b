/* What has been the same since CPython 3.13: most instructions, and how a finished frame is cleared. */
#include "cpython/internal.h"

#if PY_VERSION_HEX >= 0x030D0000

#include <internal/pycore_ceval.h>

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
    case TO_BOOL: fj_emit(decoder, FJ_TO_BOOL, 0, 0); return true;
    case FORMAT_SIMPLE: fj_emit(decoder, FJ_FORMAT_VALUE, 0, 0); return true;
    case FORMAT_WITH_SPEC: fj_emit(decoder, FJ_FORMAT_VALUE, 0, 1); return true;
    case CONVERT_VALUE: fj_emit(decoder, FJ_CONVERT_VALUE, arg, 0); return true;
    case CALL_KW: fj_emit(decoder, FJ_CALL_KW, arg, 0); return true;
    case SET_FUNCTION_ATTRIBUTE: fj_emit(decoder, FJ_SET_FUNCTION_ATTRIBUTE, arg, 0); return true;
    /* An exhausted iterator is popped, END_FOR and POP_TOP (POP_ITER) skipped. */
    case FOR_ITER: fj_emit_jump(decoder, FJ_FOR_ITER, forward + 2, false); return true;
    default: return fj_translate_since_v312(decoder);
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
