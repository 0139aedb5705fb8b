/* What has been the same since CPython 3.12: instructions, tools that watch, depth of recursion, the exception that is set. */
#include "cpython/internal.h"

#if PY_VERSION_HEX >= 0x030C0000

#include <internal/pycore_intrinsics.h>

bool fj_translate_since_v312(FjDecoder* decoder) {
  const int arg = decoder->raw.arg;
  const int forward = decoder->raw.next + arg;
  switch (decoder->raw.opcode) {
    case LOAD_ATTR: fj_emit(decoder, arg & 1 ? FJ_LOAD_METHOD : FJ_LOAD_ATTR, arg >> 1, 0); return true;
    case LOAD_SUPER_ATTR: fj_emit(decoder, FJ_LOAD_SUPER_ATTR, arg >> 2, arg & 3); return true;
    case LOAD_FAST_AND_CLEAR: fj_emit(decoder, FJ_LOAD_FAST_AND_CLEAR, arg, 0); return true;
    case BINARY_SLICE: fj_emit(decoder, FJ_BINARY_SLICE, 0, 0); return true;
    case STORE_SLICE: fj_emit(decoder, FJ_STORE_SLICE, 0, 0); return true;
    case END_FOR: fj_emit(decoder, FJ_END_FOR, 0, 0); return true;
    case END_SEND:
      fj_emit(decoder, FJ_SWAP, 2, 0);
      fj_emit(decoder, FJ_POP_TOP, 0, 0);
      return true;
    /* END_SEND takes the receiver away. */
    case SEND: fj_emit_jump(decoder, FJ_SEND, forward, true); return true;
    case POP_JUMP_IF_FALSE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_FALSE, forward, false); return true;
    case POP_JUMP_IF_TRUE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_TRUE, forward, false); return true;
    case POP_JUMP_IF_NONE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_NONE, forward, false); return true;
    case POP_JUMP_IF_NOT_NONE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_NOT_NONE, forward, false); return true;
    case CALL_INTRINSIC_1:
      switch (arg) {
        case INTRINSIC_UNARY_POSITIVE: fj_emit(decoder, FJ_UNARY_POSITIVE, 0, 0); return true;
        case INTRINSIC_LIST_TO_TUPLE: fj_emit(decoder, FJ_LIST_TO_TUPLE, 0, 0); return true;
        case INTRINSIC_STOPITERATION_ERROR: fj_emit(decoder, FJ_STOPITERATION_ERROR, 0, 0); return true;
        default: fj_emit(decoder, FJ_CALL_INTRINSIC_1, arg, 0); return true;
      }
    case CALL_INTRINSIC_2:
      if (arg == INTRINSIC_PREP_RERAISE_STAR) fj_emit(decoder, FJ_JOIN_GROUPS, 0, 0);
      else fj_emit(decoder, FJ_CALL_INTRINSIC_2, arg, 0);
      return true;
    default: return false;
  }
}

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

int fj_recursion_left(PyThreadState* thread) { return thread->py_recursion_remaining; }

void fj_leave_recursion(PyThreadState* thread) {
  thread->py_recursion_remaining++;
#if PY_VERSION_HEX < 0x030E0000
  thread->c_recursion_remaining++;
#endif
}

PyObject* fj_take_exception(void) { return PyErr_GetRaisedException(); }
void fj_restore_exception(PyObject* exception) { PyErr_SetRaisedException(exception); }

#endif
