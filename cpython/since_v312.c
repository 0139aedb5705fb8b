/* What has been the same since CPython 3.12: tools that watch, depth of recursion, the exception that is set. */
#include "cpython/internal.h"

#if PY_VERSION_HEX >= 0x030C0000

static bool any_tool(const uint8_t* tools, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (tools[i]) return true;
  return false;
}

bool fj_tracing_active(PyThreadState* thread) {
  return thread->c_tracefunc != NULL || thread->c_profilefunc != NULL;
}

/* A code object whose instrumentation is out of date but holds no tool, as every new one after any tracing in the
 * process, has plain bytecode. */
bool fj_code_observed(PyThreadState* thread, PyCodeObject* code) {
  PyInterpreterState* interpreter = thread->interp;
  if (any_tool(interpreter->monitors.tools, sizeof interpreter->monitors.tools)) return true;
  _PyCoMonitoringData* data = code->_co_monitoring;
  return data != NULL && (any_tool(data->local_monitors.tools, sizeof data->local_monitors.tools) ||
                          any_tool(data->active_monitors.tools, sizeof data->active_monitors.tools));
}

bool fj_enter_recursion(PyThreadState* thread) {
#if PY_VERSION_HEX < 0x030E0000 /* then it measures the C stack, as we do */
  if (thread->c_recursion_remaining <= 1) return false;
#endif
  if (thread->py_recursion_remaining <= 1) return false;
  thread->py_recursion_remaining--;
#if PY_VERSION_HEX < 0x030E0000
  thread->c_recursion_remaining--;
#endif
  return true;
}

void fj_leave_recursion(PyThreadState* thread) {
  thread->py_recursion_remaining++;
#if PY_VERSION_HEX < 0x030E0000
  thread->c_recursion_remaining++;
#endif
}

PyObject* fj_take_exception(void) { return PyErr_GetRaisedException(); }
void fj_restore_exception(PyObject* exception) { PyErr_SetRaisedException(exception); }

#endif
