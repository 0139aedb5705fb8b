/* CPython 3.12: the evaluator pops the frames it runs, but exports nothing to do it with. */
#define NEED_OPCODE_TABLES
#include "cpython/internal.h"

#if PY_VERSION_HEX < 0x030C0000 || PY_VERSION_HEX >= 0x030D0000
#error "this file is for CPython 3.12"
#endif

#include <internal/pycore_opcode.h>

int fj_cache_entries(int opcode) { return _PyOpcode_Caches[opcode]; }

bool fj_translate_version(FjDecoder* decoder) {
  const int arg = decoder->raw.arg;
  const int forward = decoder->raw.next + arg;
  switch (decoder->raw.opcode) {
    case KW_NAMES:
      fj_prefix(decoder);
      decoder->pending_kwnames = arg;
      return true;
    case COMPARE_OP: fj_emit(decoder, FJ_COMPARE_OP, arg >> 4, 0); return true;
    case LOAD_CLOSURE: fj_emit(decoder, FJ_LOAD_CLOSURE, arg, 0); return true;
    case LOAD_FAST_CHECK: fj_emit(decoder, FJ_LOAD_FAST, arg, 0); return true;
    case FORMAT_VALUE: fj_emit(decoder, FJ_FORMAT_VALUE, arg & 3, (arg & 4) != 0); return true;
    case RETURN_CONST: fj_emit(decoder, FJ_RETURN_CONST, arg, 0); return true;
    /* An exhausted iterator is popped and END_FOR skipped. */
    case FOR_ITER: fj_emit_jump(decoder, FJ_FOR_ITER, forward + 1, false); return true;
    default: return fj_translate_since_v312(decoder);
  }
}

bool fj_call_layout_callable_first(void) { return false; }
bool fj_bool_invert_warns(void) { return true; }

/* Positions of the exported evaluator's own way out: the first RETURN_VALUE, or a RETURN_CONST of this very object. */
static int find_return(PyCodeObject* code, PyObject* value, bool* pushes) {
  PyObject* bytes = PyCode_GetCode(code);
  if (bytes == NULL) {
    PyErr_Clear();
    return -1;
  }
  const unsigned char* raw = (const unsigned char*)PyBytes_AS_STRING(bytes);
  const int units = (int)(PyBytes_GET_SIZE(bytes) / 2);
  int found = -1, argument = 0;
  for (int unit = 0; unit < units; unit += 1 + fj_cache_entries(raw[2 * unit])) {
    const int opcode = raw[2 * unit];
    argument = argument << 8 | raw[2 * unit + 1];
    if (opcode == EXTENDED_ARG) continue;
    if (opcode == RETURN_VALUE) {
      found = unit;
      *pushes = true;
      break;
    }
    if (opcode == RETURN_CONST && argument < 256 && PyTuple_GET_ITEM(code->co_consts, argument) == value) {
      found = unit;
      *pushes = false;
    }
    argument = 0;
  }
  Py_DECREF(bytes);
  return found;
}

/* A code unit outside every `try`: where an error that leaves the function could have been raised. */
static int unit_without_handler(PyCodeObject* code) {
  FjHandler handler;
  int unit = code->_co_firsttraceable;
  while (unit + 1 < (int)Py_SIZE(code) && fj_find_handler(code, unit, &handler)) unit = handler.end;
  return unit;
}

/* The evaluator clears and pops a frame, with functions that are not exported. The plain case is done here; a frame
 * whose frame object lives on, or that is the first of its chunk of the data stack, leaves through the evaluator. */
PyObject* fj_frame_finish(PyThreadState* thread, FjFrame* frame, PyObject* value) {
  PyObject* error = value == NULL ? fj_take_exception() : NULL;
  while (fj_frame_stack_depth(frame) > 0) Py_XDECREF(fj_frame_pop(frame));
  if ((frame->frame_obj != NULL && Py_REFCNT(frame->frame_obj) > 1) ||
      (PyObject**)frame == &thread->datastack_chunk->data[0]) {
    if (error != NULL) {
      /* The evaluator looks for a handler, of which there is none where the error came from, but a re-raised error has
       * moved the frame's position; and it adds a traceback entry, which is there already. The frame object keeps the
       * position that it is left with, so that one gets its own again. */
      PyFrameObject* kept = frame->frame_obj;
      Py_XINCREF(kept);
      const int unit = fj_frame_next_unit(frame) - FJ_POSITION_LAG;
      FjHandler handler;
      const bool moves = fj_find_handler(FJ_FRAME_CODE(frame), unit, &handler);
      if (moves) fj_frame_set_executing(frame, unit_without_handler(FJ_FRAME_CODE(frame)));
      PyObject* traceback = PyException_GetTraceback(error);
      fj_restore_exception(error);
      _PyEval_EvalFrameDefault(thread, frame, 1);
      error = fj_take_exception();
      if (moves && kept != NULL) fj_frame_set_executing(kept->f_frame, unit);
      Py_XDECREF(kept);
      PyException_SetTraceback(error, traceback != NULL ? traceback : Py_None);
      Py_XDECREF(traceback);
      fj_restore_exception(error);
      return NULL;
    }
    bool pushes = false;
    const int unit = find_return(FJ_FRAME_CODE(frame), value, &pushes);
    if (unit >= 0) {
      fj_frame_set_next(frame, unit);
      if (pushes) fj_frame_push(frame, value);
      else Py_DECREF(value);
      return _PyEval_EvalFrameDefault(thread, frame, 0);
    }
    Py_FatalError("framejit: a function that returned has no RETURN instruction");
  }
  PyFrameObject* object = frame->frame_obj;
  frame->frame_obj = NULL;
  Py_XDECREF(object);
  for (int i = 0; i < frame->stacktop; i++) Py_XDECREF(frame->localsplus[i]);
  frame->stacktop = 0;
  Py_XDECREF(frame->f_locals);
  Py_DECREF(frame->f_funcobj);
  Py_DECREF(frame->f_code);
  thread->datastack_top = (PyObject**)frame;
  if (error != NULL) fj_restore_exception(error);
  return value;
}

int fj_handle_pending(PyThreadState* thread) {
  if (!_Py_atomic_load_relaxed(&thread->interp->ceval.eval_breaker)) return 0;
  if (Py_MakePendingCalls() < 0) return -1;
  /* Runs signal handlers but does not hand over the GIL. */
  PyEval_RestoreThread(PyEval_SaveThread());
  return 0;
}
