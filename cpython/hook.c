/* The PEP 523 hook: armed for one frame (a compiled function's own), or for every frame this thread enters while an
 * instruction runs at which a graph broke. Left installed it would slow every Python call of the process.
 *
 * The hook is one field of the interpreter, shared by its threads, so arming is counted and whoever disarms last puts
 * back what was there. Somebody else's evaluator may be below ours (it was there first) or above it (installed by what
 * we run, as torch.compile does); frames that are not ours go where they would have gone, and never twice to the same
 * one. All of this runs with the GIL held. What is armed belongs to a stack of frames (stack.c), not to its thread:
 * another one may run, and begin and end calls of its own, before the code of this one goes on. */
#include "cpython/internal.h"

#include <stdio.h>

/* A call whose frame is awaited. It lies on the C stack of that call. */
typedef struct FjAwaited {
  PyObject* function;  /* whose frame it is */
  FjCallEvaluator evaluator;
  void* context;
  FjEvalHook replaced;
  bool armed;
} Awaited;

static int armed_count;
static FjEvalHook foreign; /* what was installed before the first armed call; NULL: CPython's evaluator */

static PyObject* one_shot(PyThreadState* thread, FjFrame* frame, int throwflag);

static FjEvalHook arm(PyThreadState* thread) {
  FjEvalHook replaced = thread->interp->eval_frame;
  if (armed_count++ == 0 && replaced != one_shot) foreign = replaced;
  fj_stack(thread)->arms++;
  thread->interp->eval_frame = one_shot;
  return replaced;
}

static void disarm(PyThreadState* thread, FjEvalHook replaced) {
  armed_count--;
  fj_stack(thread)->arms--;
  if (thread->interp->eval_frame != one_shot) return; /* somebody else's hook installed meanwhile stays */
  if (replaced != one_shot && replaced != foreign) thread->interp->eval_frame = replaced; /* one that was above ours */
  else if (armed_count == 0) thread->interp->eval_frame = foreign;
}

static PyObject* one_shot(PyThreadState* thread, FjFrame* frame, int throwflag) {
  FjStack* const stack = fj_stack(thread);
  Awaited* const awaited = stack->awaited;
  if (awaited != NULL && !throwflag && FJ_FRAME_FUNCTION(frame) == awaited->function) {
    stack->awaited = NULL;
    awaited->armed = false;
    disarm(thread, awaited->replaced);
    return awaited->evaluator(awaited->context, thread, frame, throwflag);
  }
  FjFrame* const outer = stack->beneath;
  if (thread->interp->eval_frame != one_shot) stack->beneath = frame;
  else if (armed_count == 0)
    thread->interp->eval_frame = foreign; /* put back by a foreign evaluator after we were gone */
  PyObject* result = stack->reaching != NULL && frame != stack->handed ? stack->reaching(thread, frame, throwflag)
                                                                       : fj_pass_frame(thread, frame, throwflag);
  fj_stack(thread)->beneath = outer;
  return result;
}

PyObject* fj_pass_frame(PyThreadState* thread, FjFrame* frame, int throwflag) {
  FjStack* const stack = fj_stack(thread);
  FjEvalHook hook = thread->interp->eval_frame;
  if (hook == one_shot || frame == stack->beneath) hook = hook == foreign ? NULL : foreign;
  if (hook == NULL || frame == stack->handed) return fj_eval_default(thread, frame, throwflag);
  FjFrame* const outer = stack->handed;
  stack->handed = frame;
  PyObject* result = hook(thread, frame, throwflag);
  fj_stack(thread)->handed = outer;
  return result;
}

FjReach fj_begin_reach(PyThreadState* thread, FjEvalHook evaluator) {
  FjReach outer = {fj_stack(thread)->reaching, NULL, evaluator != NULL};
  if (evaluator != NULL) outer.replaced = arm(thread);
  fj_stack(thread)->reaching = evaluator;
  return outer;
}

void fj_end_reach(PyThreadState* thread, FjReach outer) {
  fj_stack(thread)->reaching = outer.reaching;
  if (outer.armed) disarm(thread, outer.replaced);
}

PyObject* fj_pass_frame_unhooked(PyThreadState* thread, FjFrame* frame, int throwflag) {
  FjStack* stack = fj_stack(thread);
  const int arms = stack->arms;
  FjEvalHook const outer = stack->reaching;
  stack->reaching = NULL;
  stack->arms = 0;
  armed_count -= arms;
  const bool taken_out = armed_count == 0 && thread->interp->eval_frame == one_shot;
  if (taken_out) thread->interp->eval_frame = foreign;
  PyObject* result = fj_pass_frame(thread, frame, throwflag);
  if (taken_out && thread->interp->eval_frame != one_shot) {
    if (armed_count == 0) foreign = thread->interp->eval_frame;
    thread->interp->eval_frame = one_shot;
  }
  armed_count += arms;
  stack = fj_stack(thread);
  stack->arms = arms;
  stack->reaching = outer;
  return result;
}

FjEvalHook fj_installed_hook(PyThreadState* thread) { return thread->interp->eval_frame; }

PyObject* fj_call_with_evaluator(PyThreadState* thread, PyObject* function, PyObject* const* args, size_t nargsf,
                                 PyObject* kwnames, FjCallEvaluator evaluator, void* context) {
#if PY_VERSION_HEX >= 0x030D0000
  /* Makes the frame without any hook; takes over references to the function and the arguments. */
  const Py_ssize_t positional = PyVectorcall_NARGS(nargsf);
  const Py_ssize_t total = positional + (kwnames != NULL ? PyTuple_GET_SIZE(kwnames) : 0);
#if PY_VERSION_HEX >= 0x030E0000
  _PyStackRef few[8];
  _PyStackRef* const given = total <= 8 ? few : PyMem_Malloc((size_t)total * sizeof *given);
  if (given == NULL) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < total; i++) given[i] = PyStackRef_FromPyObjectNew(args[i]);
  FjFrame* frame = _PyEvalFramePushAndInit(thread, PyStackRef_FromPyObjectNew(function), NULL, given,
                                           (size_t)positional, kwnames, NULL);
  if (given != few) PyMem_Free(given);
#else
  Py_INCREF(function);
  for (Py_ssize_t i = 0; i < total; i++) Py_INCREF(args[i]);
  FjFrame* frame =
      _PyEvalFramePushAndInit(thread, (PyFunctionObject*)function, NULL, args, (size_t)positional, kwnames);
#endif
  return frame != NULL ? evaluator(context, thread, frame, 0) : NULL;
#else
  if (!fj_begin_stack(thread)) return PyObject_Vectorcall(function, args, nargsf, kwnames);
  Awaited* const outer = fj_stack(thread)->awaited;
  Awaited mine = {function, evaluator, context, arm(thread), true};
  fj_stack(thread)->awaited = &mine;
  PyObject* result = PyObject_Vectorcall(function, args, nargsf, kwnames);
  if (mine.armed) disarm(thread, mine.replaced); /* binding the arguments failed: no frame appeared */
  fj_stack(thread)->awaited = outer;
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
    snprintf(text, sizeof text, "framejit was built for CPython %d.%d and compiles nothing on this one (%s)",
             PY_MAJOR_VERSION, PY_MINOR_VERSION, Py_GetVersion());
    return verdict = text;
  }
  /* The offset of the field differs between builds of one version: is it where our headers say? */
  _PyFrameEvalFunction before = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  _PyInterpreterState_SetEvalFrameFunc(interpreter, probe);
  const bool found = interpreter->eval_frame == probe;
  _PyInterpreterState_SetEvalFrameFunc(interpreter, before);
  if (!found) verdict = "framejit compiles nothing: this CPython's interpreter state is not laid out as in its headers";
  return verdict;
}
