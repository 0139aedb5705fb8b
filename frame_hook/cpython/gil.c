/* Letting go of the GIL and taking it again, and what the end of the interpreter does to a thread that asks for it. */
#include "frame_hook/cpython/internal.h"

#include <internal/pycore_ceval.h>
#include <unistd.h>

/* Once the interpreter ends, CPython ends each thread that asks for the GIL, by pthread_exit: it unwinds the stack, and the process aborts where
 * that meets a C++ frame that lets nothing through. Such a thread waits here instead, as from CPython 3.14 on it does by itself. */
static void wait_for_the_end(const bool* came_back) {
  while (!*came_back) pause();
}

#define FJ_ENDS_HERE(came_back) bool came_back __attribute__((cleanup(wait_for_the_end))) = false

PyThreadState* fj_release_gil(void) { return PyEval_SaveThread(); }

void fj_take_gil(PyThreadState* thread) {
  FJ_ENDS_HERE(came_back);
  PyEval_RestoreThread(thread);
  came_back = true;
}

bool fj_handles_signals(void) { return PyThread_get_thread_ident() == _PyRuntime.main_thread; }

PyObject* fj_eval_default(PyThreadState* thread, FjFrame* frame, int throwflag) {
  FJ_ENDS_HERE(came_back);
  PyObject* const result = _PyEval_EvalFrameDefault(thread, frame, throwflag);
  came_back = true;
  return result;
}
