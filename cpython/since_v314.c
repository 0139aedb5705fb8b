/* What has been the same since CPython 3.14: entries of frames are tagged references, subscripts are binary operations,
 * `with` looks its methods up by two instructions. */
#include "cpython/internal.h"

#if PY_VERSION_HEX >= 0x030E0000

#include <internal/pycore_opcode_utils.h>

bool fj_translate_since_v314(FjDecoder* decoder) {
  const int arg = decoder->raw.arg;
  switch (decoder->raw.opcode) {
    /* Borrowed or not: ours are counted. */
    case LOAD_FAST_BORROW: fj_load_slot(decoder, arg); return true;
    case LOAD_FAST_BORROW_LOAD_FAST_BORROW:
      fj_load_slot(decoder, arg >> 4);
      fj_load_slot(decoder, arg & 15);
      return true;
    case LOAD_SMALL_INT: fj_emit(decoder, FJ_LOAD_SMALL_INT, arg, 0); return true;
    case LOAD_COMMON_CONSTANT: fj_emit(decoder, FJ_LOAD_COMMON_CONSTANT, arg, 0); return true;
    case BINARY_OP:
      if (arg == NB_SUBSCR) fj_emit(decoder, FJ_BINARY_SUBSCR, 0, 0);
      else fj_emit(decoder, FJ_BINARY_OP, arg, 0);
      return true;
    case LOAD_SPECIAL: fj_emit(decoder, FJ_LOAD_SPECIAL, arg, 0); return true;
    case WITH_EXCEPT_START: fj_emit(decoder, FJ_WITH_EXCEPT_START, 1, 0); return true;
    case BUILD_INTERPOLATION: fj_emit(decoder, FJ_BUILD_INTERPOLATION, arg >> 2, arg & 1); return true;
    case BUILD_TEMPLATE: fj_emit(decoder, FJ_BUILD_TEMPLATE, 0, 0); return true;
    /* The keywords' entry is always there. */
    case CALL_FUNCTION_EX: fj_emit(decoder, FJ_CALL_FUNCTION_EX, 1, 0); return true;
    case LOAD_LOCALS: fj_emit(decoder, FJ_LOAD_LOCALS, 0, 0); return true;
    case NOT_TAKEN:
    case ANNOTATIONS_PLACEHOLDER: return true;
    default: return fj_translate_since_v313(decoder);
  }
}

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
int fj_position_unit(PyObject* position) { return position != NULL && fj_is_position(position) ? ((Position*)position)->unit : 0; }

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

#endif
