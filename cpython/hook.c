/* The PEP 523 hook: armed for one frame (a compiled function's own), or for every frame this thread enters while an
 * instruction runs at which a graph broke. Left installed it would slow every Python call of the process.
 *
 * The hook is one field of the interpreter, shared by its threads, so arming is counted and whoever disarms last puts
 * back what was there. Somebody else's evaluator may be below ours (it was there first) or above it (installed by what
 * we run, as torch.compile does); frames that are not ours go where they would have gone, and never twice to the same
 * one. All of this runs with the GIL held. */
#include "cpython/internal.h"

#include <stdio.h>

static _Thread_local PyObject* awaited;          /* the function whose frame is awaited; NULL: none */
static _Thread_local FjEvalHook awaiting;        /* what runs that frame */
static _Thread_local FjEvalHook reaching;        /* what runs every other frame of this thread; NULL: nothing */
static _Thread_local int thread_arms;            /* of armed_count, those of this thread */
static _Thread_local FjFrame* handed;            /* the frame being run by a foreign evaluator that had it from us */
static _Thread_local FjFrame* beneath;           /* the frame that a foreign evaluator above ours has left to us */
static int armed_count;
static FjEvalHook foreign; /* what was installed before the first armed call; NULL: CPython's evaluator */

static PyObject* one_shot(PyThreadState* thread, FjFrame* frame, int throwflag);

static FjEvalHook arm(PyThreadState* thread) {
  FjEvalHook replaced = thread->interp->eval_frame;
  if (armed_count++ == 0 && replaced != one_shot) foreign = replaced;
  thread_arms++;
  thread->interp->eval_frame = one_shot;
  return replaced;
}

static void disarm(PyThreadState* thread, FjEvalHook replaced) {
  armed_count--;
  thread_arms--;
  if (thread->interp->eval_frame != one_shot) return; /* somebody else's hook installed meanwhile stays */
  if (replaced != one_shot && replaced != foreign) thread->interp->eval_frame = replaced; /* one that was above ours */
  else if (armed_count == 0) thread->interp->eval_frame = foreign;
}

typedef struct {
  FjEvalHook replaced;
  bool armed;
} Arm;
static _Thread_local Arm* awaited_arm;

static PyObject* one_shot(PyThreadState* thread, FjFrame* frame, int throwflag) {
  if (awaited != NULL && !throwflag && FJ_FRAME_FUNCTION(frame) == awaited) {
    awaited = NULL;
    awaited_arm->armed = false;
    disarm(thread, awaited_arm->replaced);
    return awaiting(thread, frame, throwflag);
  }
  FjFrame* const outer = beneath;
  if (thread->interp->eval_frame != one_shot) beneath = frame;
  else if (armed_count == 0)
    thread->interp->eval_frame = foreign; /* put back by a foreign evaluator after we were gone */
  PyObject* result = reaching != NULL && frame != handed ? reaching(thread, frame, throwflag)
                                                         : fj_pass_frame(thread, frame, throwflag);
  beneath = outer;
  return result;
}

PyObject* fj_pass_frame(PyThreadState* thread, FjFrame* frame, int throwflag) {
  FjEvalHook hook = thread->interp->eval_frame;
  if (hook == one_shot || frame == beneath) hook = hook == foreign ? NULL : foreign;
  if (hook == NULL || frame == handed) return fj_eval_default(thread, frame, throwflag);
  FjFrame* const outer = handed;
  handed = frame;
  PyObject* result = hook(thread, frame, throwflag);
  handed = outer;
  return result;
}

FjReach fj_begin_reach(PyThreadState* thread, FjEvalHook evaluator) {
  FjReach outer = {reaching, NULL, evaluator != NULL};
  if (evaluator != NULL) outer.replaced = arm(thread);
  reaching = evaluator;
  return outer;
}

void fj_end_reach(PyThreadState* thread, FjReach outer) {
  reaching = outer.reaching;
  if (outer.armed) disarm(thread, outer.replaced);
}

PyObject* fj_pass_frame_unhooked(PyThreadState* thread, FjFrame* frame, int throwflag) {
  const int arms = thread_arms;
  FjEvalHook const outer = reaching;
  reaching = NULL;
  armed_count -= arms;
  thread_arms = 0;
  const bool taken_out = armed_count == 0 && thread->interp->eval_frame == one_shot;
  if (taken_out) thread->interp->eval_frame = foreign;
  PyObject* result = fj_pass_frame(thread, frame, throwflag);
  if (taken_out && thread->interp->eval_frame != one_shot) {
    if (armed_count == 0) foreign = thread->interp->eval_frame;
    thread->interp->eval_frame = one_shot;
  }
  armed_count += arms;
  thread_arms = arms;
  reaching = outer;
  return result;
}

FjEvalHook fj_installed_hook(PyThreadState* thread) { return thread->interp->eval_frame; }

PyObject* fj_call_with_evaluator(PyThreadState* thread, PyObject* function, PyObject* const* args, size_t nargsf,
                                 PyObject* kwnames, FjEvalHook evaluator) {
#if PY_VERSION_HEX >= 0x030D0000
  /* Makes the frame without any hook; takes over references to the function and the arguments. */
  const Py_ssize_t positional = PyVectorcall_NARGS(nargsf);
  const Py_ssize_t total = positional + (kwnames != NULL ? PyTuple_GET_SIZE(kwnames) : 0);
  Py_INCREF(function);
  for (Py_ssize_t i = 0; i < total; i++) Py_INCREF(args[i]);
  FjFrame* frame =
      _PyEvalFramePushAndInit(thread, (PyFunctionObject*)function, NULL, args, (size_t)positional, kwnames);
  return frame != NULL ? evaluator(thread, frame, 0) : NULL;
#else
  PyObject* const outer = awaited;
  FjEvalHook const outer_evaluator = awaiting;
  Arm* const outer_arm = awaited_arm;
  Arm mine = {arm(thread), true};
  awaited = function;
  awaiting = evaluator;
  awaited_arm = &mine;
  PyObject* result = PyObject_Vectorcall(function, args, nargsf, kwnames);
  if (mine.armed) disarm(thread, mine.replaced); /* binding the arguments failed: no frame appeared */
  awaited = outer;
  awaiting = outer_evaluator;
  awaited_arm = outer_arm;
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
