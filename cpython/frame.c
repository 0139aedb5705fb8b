/* Live frames: slots, position, linking, and running on in CPython. What a version does its own way (clearing a
 * finished frame, recursion counters, monitoring) is in its file. */
#include "cpython/internal.h"

#include <frameobject.h>

PyCodeObject* fj_frame_code(FjFrame* frame) { return FJ_FRAME_CODE(frame); }
PyFunctionObject* fj_frame_function(FjFrame* frame) { return (PyFunctionObject*)FJ_FRAME_FUNCTION(frame); }
PyObject* fj_frame_globals(FjFrame* frame) { return frame->f_globals; }
PyObject* fj_frame_builtins(FjFrame* frame) { return frame->f_builtins; }

int fj_frame_slot_count(FjFrame* frame) { return FJ_FRAME_CODE(frame)->co_nlocalsplus; }
int fj_frame_stack_depth(FjFrame* frame) { return FJ_FRAME_TOP(frame) - FJ_FRAME_CODE(frame)->co_nlocalsplus; }
PyObject* fj_frame_get(FjFrame* frame, int slot) { return fj_entry_object(frame->localsplus[slot]); }

PyObject* const* fj_frame_objects(FjFrame* frame, int first, int count, PyObject** room) {
#if PY_VERSION_HEX >= 0x030E0000
  if (room != NULL)
    for (int i = 0; i < count; i++) room[i] = fj_frame_get(frame, first + i);
  return room;
#else
  (void)count;
  (void)room;
  return frame->localsplus + first;
#endif
}

PyObject* fj_frame_exchange(FjFrame* frame, int slot, PyObject* value) {
  const FjEntry old = frame->localsplus[slot];
  frame->localsplus[slot] = fj_entry_of(value);
  return fj_entry_take(old);
}

void fj_frame_set(FjFrame* frame, int slot, PyObject* value) { Py_XDECREF(fj_frame_exchange(frame, slot, value)); }

void fj_frame_push(FjFrame* frame, PyObject* value) {
  const int top = FJ_FRAME_TOP(frame);
  frame->localsplus[top] = fj_entry_of(value);
  FJ_FRAME_SET_TOP(frame, top + 1);
}

PyObject* fj_frame_pop(FjFrame* frame) {
  const int top = FJ_FRAME_TOP(frame) - 1;
  FJ_FRAME_SET_TOP(frame, top);
  return fj_entry_take(frame->localsplus[top]);
}

#if PY_VERSION_HEX < 0x030E0000
PyObject* fj_position(int unit) { return PyLong_FromLong(unit); }
int fj_position_unit(PyObject* position) { return (int)PyLong_AsLong(position); }

void fj_frame_push_position(FjFrame* frame, int unit) {
  PyObject* position = fj_position(unit);
  if (position == NULL) {
    PyErr_Clear(); /* the exception keeps the place where it is raised again */
    position = Py_NewRef(Py_None);
  }
  fj_frame_push(frame, position);
}
#else
void fj_frame_push_position(FjFrame* frame, int unit) {
  const int top = FJ_FRAME_TOP(frame);
  frame->localsplus[top] = PyStackRef_TagInt(unit);
  FJ_FRAME_SET_TOP(frame, top + 1);
}
#endif

int fj_frame_next_unit(FjFrame* frame) {
  return (int)(FJ_FRAME_NEXT(frame) + FJ_POSITION_LAG - _PyCode_CODE(FJ_FRAME_CODE(frame)));
}

void fj_frame_set_next(FjFrame* frame, int unit) {
  FJ_FRAME_NEXT(frame) = _PyCode_CODE(FJ_FRAME_CODE(frame)) + unit - FJ_POSITION_LAG;
}

/* Where line numbers come from: the instruction itself in every version. */
void fj_frame_set_executing(FjFrame* frame, int unit) {
  FJ_FRAME_NEXT(frame) = _PyCode_CODE(FJ_FRAME_CODE(frame)) + unit;
}

void fj_frame_link(PyThreadState* thread, FjFrame* frame) {
  frame->previous = FJ_CURRENT_FRAME(thread);
  FJ_CURRENT_FRAME(thread) = frame;
}

void fj_frame_unlink(PyThreadState* thread, FjFrame* frame) { FJ_CURRENT_FRAME(thread) = frame->previous; }

void fj_add_traceback(PyThreadState* thread, FjFrame* frame) {
  (void)frame;
  PyFrameObject* object = PyThreadState_GetFrame(thread);
  if (object == NULL) return;
  PyTraceBack_Here(object);
  Py_DECREF(object);
}

PyObject* fj_swap_handled_exception(PyThreadState* thread, PyObject* exception) {
  PyObject* old = thread->exc_info->exc_value;
  thread->exc_info->exc_value = exception;
  return old;
}

bool fj_frame_must_pass(PyThreadState* thread, FjFrame* frame, int throwflag) {
  PyCodeObject* code = FJ_FRAME_CODE(frame);
  return throwflag || frame->owner != FRAME_OWNED_BY_THREAD || fj_frame_next_unit(frame) != 0 ||
         !(code->co_flags & CO_OPTIMIZED) || /* a module or class body: its names are in a dict */
         (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) || fj_code_observed(thread, code);
}
