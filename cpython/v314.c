/* CPython 3.14: entries of frames are tagged references, subscripts are binary operations, `with` looks its methods up
 * by two instructions. */
#define NEED_OPCODE_METADATA
#include "cpython/internal.h"

#if PY_VERSION_HEX < 0x030E0000 || PY_VERSION_HEX >= 0x030F0000
#error "this file is for CPython 3.14"
#endif

#include <internal/pycore_ceval.h>
#include <internal/pycore_intrinsics.h>
#include <internal/pycore_opcode_metadata.h>
#include <internal/pycore_opcode_utils.h>

int fj_cache_entries(int opcode) { return _PyOpcode_Caches[opcode]; }

/* The compiler turns LOAD_CLOSURE into LOAD_FAST: the slot's kind tells. */
static void load_slot(FjDecoder* decoder, int slot) {
  const unsigned char kind = (unsigned char)PyBytes_AS_STRING(decoder->code->co_localspluskinds)[slot];
  fj_emit(decoder, kind & (CO_FAST_CELL | CO_FAST_FREE) ? FJ_LOAD_CLOSURE : FJ_LOAD_FAST, slot, 0);
}

bool fj_translate_version(FjDecoder* decoder) {
  const int arg = decoder->raw.arg;
  const int forward = decoder->raw.next + arg;
  switch (decoder->raw.opcode) {
    /* Borrowed or not: ours are counted. */
    case LOAD_FAST:
    case LOAD_FAST_BORROW:
    case LOAD_FAST_CHECK: load_slot(decoder, arg); return true;
    case LOAD_FAST_LOAD_FAST:
    case LOAD_FAST_BORROW_LOAD_FAST_BORROW:
      load_slot(decoder, arg >> 4);
      load_slot(decoder, arg & 15);
      return true;
    case STORE_FAST_LOAD_FAST:
      fj_emit(decoder, FJ_STORE_FAST, arg >> 4, 0);
      load_slot(decoder, arg & 15);
      return true;
    case STORE_FAST_STORE_FAST:
      fj_emit(decoder, FJ_STORE_FAST, arg >> 4, 0);
      fj_emit(decoder, FJ_STORE_FAST, arg & 15, 0);
      return true;
    case LOAD_SMALL_INT: fj_emit(decoder, FJ_LOAD_SMALL_INT, arg, 0); return true;
    case LOAD_COMMON_CONSTANT: fj_emit(decoder, FJ_LOAD_COMMON_CONSTANT, arg, 0); return true;
    case BINARY_OP:
      if (arg == NB_SUBSCR) fj_emit(decoder, FJ_BINARY_SUBSCR, 0, 0);
      else fj_emit(decoder, FJ_BINARY_OP, arg, 0);
      return true;
    case COMPARE_OP: fj_emit(decoder, FJ_COMPARE_OP, arg >> 5, (arg & 16) != 0); return true;
    case LOAD_ATTR: fj_emit(decoder, arg & 1 ? FJ_LOAD_METHOD : FJ_LOAD_ATTR, arg >> 1, 0); return true;
    case LOAD_SUPER_ATTR: fj_emit(decoder, FJ_LOAD_SUPER_ATTR, arg >> 2, arg & 3); return true;
    case LOAD_SPECIAL: fj_emit(decoder, FJ_LOAD_SPECIAL, arg, 0); return true;
    case WITH_EXCEPT_START: fj_emit(decoder, FJ_WITH_EXCEPT_START, 1, 0); return true;
    case LOAD_FAST_AND_CLEAR: fj_emit(decoder, FJ_LOAD_FAST_AND_CLEAR, arg, 0); return true;
    case TO_BOOL: fj_emit(decoder, FJ_TO_BOOL, 0, 0); return true;
    case BINARY_SLICE: fj_emit(decoder, FJ_BINARY_SLICE, 0, 0); return true;
    case STORE_SLICE: fj_emit(decoder, FJ_STORE_SLICE, 0, 0); return true;
    case FORMAT_SIMPLE: fj_emit(decoder, FJ_FORMAT_VALUE, 0, 0); return true;
    case FORMAT_WITH_SPEC: fj_emit(decoder, FJ_FORMAT_VALUE, 0, 1); return true;
    case BUILD_INTERPOLATION: fj_emit(decoder, FJ_BUILD_INTERPOLATION, arg >> 2, arg & 1); return true;
    case BUILD_TEMPLATE: fj_emit(decoder, FJ_BUILD_TEMPLATE, 0, 0); return true;
    case CONVERT_VALUE: fj_emit(decoder, FJ_CONVERT_VALUE, arg, 0); return true;
    case CALL_KW: fj_emit(decoder, FJ_CALL_KW, arg, 0); return true;
    /* The keywords' entry is always there. */
    case CALL_FUNCTION_EX: fj_emit(decoder, FJ_CALL_FUNCTION_EX, 1, 0); return true;
    case SET_FUNCTION_ATTRIBUTE: fj_emit(decoder, FJ_SET_FUNCTION_ATTRIBUTE, arg, 0); return true;
    case LOAD_LOCALS: fj_emit(decoder, FJ_LOAD_LOCALS, 0, 0); return true;
    case NOT_TAKEN:
    case ANNOTATIONS_PLACEHOLDER: return true;
    case END_FOR: fj_emit(decoder, FJ_END_FOR, 0, 0); return true;
    case POP_ITER: fj_emit(decoder, FJ_POP_TOP, 0, 0); return true;
    case END_SEND:
      fj_emit(decoder, FJ_SWAP, 2, 0);
      fj_emit(decoder, FJ_POP_TOP, 0, 0);
      return true;
    /* An exhausted iterator is popped, END_FOR and POP_ITER skipped. */
    case FOR_ITER: fj_emit_jump(decoder, FJ_FOR_ITER, forward + 2, false); return true;
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

bool fj_call_layout_callable_first(void) { return true; }
bool fj_bool_invert_warns(void) { return true; }

PyObject* fj_common_constant(int which) {
  return which < NUM_COMMON_CONSTANTS ? PyThreadState_Get()->interp->common_consts[which] : NULL;
}

/* ---- entries of frames */

FjEntry fj_entry_of(PyObject* object) {
  if (object == NULL) return PyStackRef_NULL;
  const int unit = fj_is_position(object) ? fj_position_unit(object) : -1;
  if (unit < 0) return PyStackRef_FromPyObjectSteal(object);
  Py_DECREF(object);
  return PyStackRef_TagInt(unit);
}

/* The position that a handler finds on the stack is an int without an object there. Ours are objects of a type of their
 * own, one for each position, so that they are told from ints. */
typedef struct {
  PyObject_HEAD
  int unit;
} Position;

static PyTypeObject position_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "framejit.position",
    .tp_basicsize = sizeof(Position),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "A position in the code of a function.",
};

bool fj_is_position(PyObject* object) { return Py_IS_TYPE(object, &position_type); }
int fj_position_unit(PyObject* position) { return fj_is_position(position) ? ((Position*)position)->unit : 0; }

PyObject* fj_position_at(int unit) {
  static PyObject** made;
  static int room;
  if (unit < room && made[unit] != NULL) return made[unit];
  if (room == 0 && PyType_Ready(&position_type) < 0) return NULL;
  if (unit >= room) {
    const int wanted = unit + 64;
    PyObject** const larger = PyMem_RawRealloc(made, (size_t)wanted * sizeof *made);
    if (larger == NULL) return PyErr_NoMemory();
    for (int i = room; i < wanted; i++) larger[i] = NULL;
    made = larger;
    room = wanted;
  }
  Position* const position = PyObject_New(Position, &position_type);
  if (position == NULL) return NULL;
  position->unit = unit;
  return made[unit] = (PyObject*)position;
}

PyObject* fj_position(int unit) { return Py_XNewRef(fj_position_at(unit)); }

/* ---- frames */

PyObject* fj_frame_finish(PyThreadState* thread, FjFrame* frame, PyObject* value) {
  PyObject* error = value == NULL ? fj_take_exception() : NULL;
  while (fj_frame_stack_depth(frame) > 0) Py_XDECREF(fj_frame_pop(frame));
  frame->previous = FJ_CURRENT_FRAME(thread); /* becomes f_back of a frame object that lives on */
  _PyEval_FrameClearAndPop(thread, frame);
  if (error != NULL) fj_restore_exception(error);
  return value;
}

int fj_handle_pending(PyThreadState* thread) {
  return thread->eval_breaker & _PY_EVAL_EVENTS_MASK ? _Py_HandlePending(thread) : 0;
}
