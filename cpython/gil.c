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

const volatile uint8_t* fj_signal_word(PyThreadState* thread) {
#if PY_VERSION_HEX < 0x030D0000
  if (fj_handles_signals()) return (const volatile uint8_t*)&_PyRuntime.ceval.signals_pending;
#endif
  return fj_pending_word(thread);
}

const volatile uint8_t* fj_tripped_word(void) {
  static const volatile uint8_t nothing;
  if (!fj_handles_signals()) return &nothing;
#if PY_VERSION_HEX >= 0x030D0000
  return (const volatile uint8_t*)&_PyRuntime.signals.is_tripped;
#else
  return (const volatile uint8_t*)&_PyRuntime.ceval.signals_pending;
#endif
}

typedef struct {
  PyCodeObject* code;
  PyObject* exception;  /* NULL: handed on */
  PyObject* file;
  int line;
} Raising;

static void free_raising(Raising* raising) {
  Py_XDECREF(raising->code);
  Py_XDECREF(raising->exception);
  Py_XDECREF(raising->file);
  PyMem_Free(raising);
}

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
  PyObject* const exception = raising->exception;
  raising->exception = NULL;
  free_raising(raising);
  fj_restore_exception(exception);
  return -1;
}

/* A new one, to which the caller's `exception` belongs then. */
static Raising* new_raising(PyCodeObject* code, PyObject* exception, PyObject* file, int line) {
  Raising* const raising = PyMem_Malloc(sizeof *raising);
  if (raising == NULL) return NULL;
  *raising = (Raising){(PyCodeObject*)Py_NewRef((PyObject*)code), exception, Py_XNewRef(file), line};
  return raising;
}

static bool at_next_look(PyCodeObject* code, PyObject* exception) {
  Raising* const raising = new_raising(code, Py_NewRef(exception), NULL, 0);
  if (raising != NULL && Py_AddPendingCall(raise_now, raising) == 0) return true;
  if (raising != NULL) free_raising(raising);
  return false;
}

/* ---- raising at a line: a trace function that stays until CPython comes there */

static const char kRaising[] = "framejit: an exception and where it is raised";

static void free_capsule(PyObject* capsule) { free_raising(PyCapsule_GetPointer(capsule, kRaising)); }

static int raise_at_line(PyObject* capsule, PyFrameObject* frame, int what, PyObject* argument) {
  (void)argument;
  Raising* const raising = PyCapsule_GetPointer(capsule, kRaising);
  if (what != PyTrace_LINE && what != PyTrace_OPCODE && what != PyTrace_RETURN) return 0;
  PyCodeObject* const code = PyFrame_GetCode(frame);
  const bool there = what != PyTrace_RETURN && PyFrame_GetLineNumber(frame) == raising->line &&
                     PyUnicode_Compare(code->co_filename, raising->file) == 0;
  const bool over = what == PyTrace_RETURN && code == raising->code;
  Py_DECREF(code);
  if (!there && !over) return 0;
  PyObject* const exception = raising->exception;
  raising->exception = NULL;
  Py_INCREF(capsule);
  PyEval_SetTrace(NULL, NULL);
  if (exception == NULL) {
    Py_DECREF(capsule);
    return 0;
  }
  if (over) {
    /* The way of this run does not lead there. */
    at_next_look(raising->code, exception);
    Py_DECREF(exception);
    Py_DECREF(capsule);
    return 0;
  }
  Py_DECREF(capsule);
  PyErr_Clear();
  fj_restore_exception(exception);
  return -1;
}

static bool at_line(PyThreadState* thread, PyCodeObject* code, PyObject* exception, PyObject* file, int line) {
  if (thread->c_tracefunc != NULL || line <= 0) return false;
  Raising* const raising = new_raising(code, Py_NewRef(exception), file, line);
  PyObject* const capsule = raising != NULL ? PyCapsule_New(raising, kRaising, free_capsule) : NULL;
  if (capsule == NULL) {
    if (raising != NULL) free_raising(raising);
    PyErr_Clear();
    return false;
  }
  /* A frame that goes on in the middle of that line begins no line. */
  PyFrameObject* const frame = PyEval_GetFrame();
  PyCodeObject* const running = frame != NULL ? PyFrame_GetCode(frame) : NULL;
  if (running == code && PyObject_SetAttrString((PyObject*)frame, "f_trace_opcodes", Py_True) != 0) PyErr_Clear();
  Py_XDECREF(running);
  PyEval_SetTrace(raise_at_line, capsule);
  Py_DECREF(capsule);
  return true;
}

bool fj_raise_soon(PyCodeObject* code, PyObject* exception, const char* file, int line) {
  PyObject* const name = file != NULL ? PyUnicode_FromString(file) : NULL;
  if (file != NULL && name == NULL) PyErr_Clear();
  const bool found =
      (name != NULL && at_line(PyThreadState_Get(), code, exception, name, line)) || at_next_look(code, exception);
  Py_XDECREF(name);
  return found;
}

PyObject* fj_eval_default(PyThreadState* thread, FjFrame* frame, int throwflag) {
  return _PyEval_EvalFrameDefault(thread, frame, throwflag);
}
