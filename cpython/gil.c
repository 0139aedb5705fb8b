/* Letting go of the GIL and taking it again, and raising what a signal handler has raised. */
#include "cpython/internal.h"

#include <internal/pycore_ceval.h>

PyThreadState* fj_release_gil(void) { return PyEval_SaveThread(); }

void fj_take_gil(PyThreadState* thread) { PyEval_RestoreThread(thread); }

/* PyGILState_Check is always true once there was a subinterpreter. */
bool fj_holds_gil(void) {
  PyThreadState* const thread = _PyThreadState_UncheckedGet();
  return thread != NULL && thread == PyGILState_GetThisThreadState();
}

bool fj_handles_signals(void) { return PyThread_get_thread_ident() == _PyRuntime.main_thread; }

const volatile uint8_t* fj_pending_word(PyThreadState* thread) {
#if PY_VERSION_HEX >= 0x030D0000
  return (const volatile uint8_t*)&thread->eval_breaker;
#else
  return (const volatile uint8_t*)&thread->interp->ceval.eval_breaker;
#endif
}

typedef struct {
  PyCodeObject* code;
  PyObject* exception;
} Raising;

static bool is_at_resume(const PyCodeObject* code) {
  PyFrameObject* const frame = PyEval_GetFrame();
  if (frame == NULL) return false;
  PyCodeObject* const running = PyFrame_GetCode(frame);
  PyObject* const bytes = running == code ? PyCode_GetCode(running) : NULL;
  const int at = PyFrame_GetLasti(frame);
  const bool found = bytes != NULL && at >= 0 && at < PyBytes_GET_SIZE(bytes) &&
                     (uint8_t)PyBytes_AS_STRING(bytes)[at] == RESUME;
  if (bytes == NULL && running == code) PyErr_Clear();
  Py_XDECREF(bytes);
  Py_DECREF(running);
  return found;
}

static int raise_now(void* argument) {
  Raising* const raising = argument;
  if (is_at_resume(raising->code) && Py_AddPendingCall(raise_now, raising) == 0) return 0;
  fj_restore_exception(raising->exception);
  Py_DECREF(raising->code);
  PyMem_Free(raising);
  return -1;
}

bool fj_raise_soon(PyCodeObject* code, PyObject* exception) {
  Raising* const raising = PyMem_Malloc(sizeof *raising);
  if (raising == NULL) return false;
  *raising = (Raising){code, exception};
  if (Py_AddPendingCall(raise_now, raising) != 0) {
    PyMem_Free(raising);
    return false;
  }
  Py_INCREF(code);
  Py_INCREF(exception);
  return true;
}

PyObject* fj_eval_default(PyThreadState* thread, FjFrame* frame, int throwflag) {
  return _PyEval_EvalFrameDefault(thread, frame, throwflag);
}
