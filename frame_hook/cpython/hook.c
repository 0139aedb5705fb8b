/* The PEP 523 hook, armed for one frame at a time: a hook left installed slows every Python call of the process.
 *
 * The hook is one field of the interpreter, shared by its threads, so arming is counted and whoever disarms last puts
 * back what was there. Frames that are not the awaited one (finalizers, other threads) go where they would have gone.
 * All of this runs with the GIL held. */
#include "frame_hook/cpython/internal.h"

#include <stdio.h>

typedef struct {
  PyObject* function; /* whose frame is awaited; NULL: none */
  FjEvalHook evaluator;
} Awaited;

static _Thread_local Awaited awaited;
static int armed_count;
static FjEvalHook foreign; /* what was installed before the first armed call; NULL: CPython's evaluator */

static PyObject* one_shot(PyThreadState* thread, FjFrame* frame, int throwflag);

static void disarm(PyThreadState* thread) {
  awaited.function = NULL;
  /* Somebody else's hook installed meanwhile stays. */
  if (--armed_count == 0 && thread->interp->eval_frame == one_shot) thread->interp->eval_frame = foreign;
}

static PyObject* one_shot(PyThreadState* thread, FjFrame* frame, int throwflag) {
  if (awaited.function != NULL && !throwflag && FJ_FRAME_FUNCTION(frame) == awaited.function) {
    FjEvalHook evaluator = awaited.evaluator;
    disarm(thread);
    return evaluator(thread, frame, throwflag);
  }
  return fj_pass_frame(thread, frame, throwflag);
}

PyObject* fj_pass_frame(PyThreadState* thread, FjFrame* frame, int throwflag) {
  FjEvalHook hook = thread->interp->eval_frame;
  if (hook == one_shot) hook = foreign;
  return hook != NULL ? hook(thread, frame, throwflag) : _PyEval_EvalFrameDefault(thread, frame, throwflag);
}

FjEvalHook fj_get_hook(PyThreadState* thread) {
  FjEvalHook hook = thread->interp->eval_frame;
  return hook == one_shot ? foreign : hook;
}

void fj_set_hook(PyThreadState* thread, FjEvalHook hook) { thread->interp->eval_frame = hook; }

PyObject* fj_call_with_evaluator(PyThreadState* thread, PyObject* function, PyObject* const* args, size_t nargsf,
                                 PyObject* kwnames, FjEvalHook evaluator) {
#if PY_VERSION_HEX >= 0x030D0000
  /* Makes the frame without any hook; takes over references to the function and the arguments. */
  const Py_ssize_t positional = PyVectorcall_NARGS(nargsf);
  const Py_ssize_t total = positional + (kwnames != NULL ? PyTuple_GET_SIZE(kwnames) : 0);
  Py_INCREF(function);
  for (Py_ssize_t i = 0; i < total; i++) Py_INCREF(args[i]);
  FjFrame* frame = _PyEvalFramePushAndInit(thread, (PyFunctionObject*)function, NULL, args, (size_t)positional, kwnames);
  return frame != NULL ? evaluator(thread, frame, 0) : NULL;
#else
  const Awaited outer = awaited;
  if (armed_count++ == 0) foreign = thread->interp->eval_frame;
  thread->interp->eval_frame = one_shot;
  awaited = (Awaited){function, evaluator};
  PyObject* result = PyObject_Vectorcall(function, args, nargsf, kwnames);
  if (awaited.function != NULL) disarm(thread); /* binding the arguments failed: no frame appeared */
  awaited = outer;
  return result;
#endif
}

static PyObject* probe(PyThreadState* thread, FjFrame* frame, int throwflag) {
  return _PyEval_EvalFrameDefault(thread, frame, throwflag);
}

const char* fj_self_check(void) {
  static const char* verdict;
  static bool checked;
  if (checked) return verdict;
  checked = true;
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  static char text[160];
  if (Py_Version >> 16 != PY_VERSION_HEX >> 16) {
    snprintf(text, sizeof text, "framejit was built for CPython %d.%d and compiles nothing on this one (%s)", PY_MAJOR_VERSION,
             PY_MINOR_VERSION, Py_GetVersion());
    return verdict = text;
  }
  if (interpreter != PyInterpreterState_Main())
    return verdict = "framejit compiles nothing in a subinterpreter; everything runs as without it";
  /* The offset of the field differs between builds of one version: is it where our headers say? */
  _PyFrameEvalFunction before = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  _PyInterpreterState_SetEvalFrameFunc(interpreter, probe);
  const bool found = interpreter->eval_frame == probe;
  _PyInterpreterState_SetEvalFrameFunc(interpreter, before);
  if (!found) verdict = "framejit compiles nothing: this CPython's interpreter state is not laid out as in its headers";
  return verdict;
}
