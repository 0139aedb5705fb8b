/* What the files of this folder share: CPython's internal headers, and the hand-over between the
 * version-independent half of each job (common.c, decode.c) and its version's file. */
#ifndef FRAMEJIT_CPYTHON_INTERNAL_H
#define FRAMEJIT_CPYTHON_INTERNAL_H

#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#include "cpython/cpython.h"

#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_pystate.h>
#if PY_VERSION_HEX >= 0x030E0000
#include <internal/pycore_interpframe.h>
#include <internal/pycore_runtime.h>
#endif
#include <opcode.h>

/* ---- decoding: decode.c drives, the version's file says what is special ----------------------- */

/* One raw instruction with its prefixes and caches taken off. */
typedef struct {
  int opcode, arg;
  int start;    /* code unit of the first EXTENDED_ARG prefix */
  int unit;     /* code unit of the opcode itself */
  int next;     /* code unit after its inline caches: jumps count from here */
} FjRaw;

typedef struct {
  FjCode* result;
  PyCodeObject* code;
  FjRaw raw;
  int pending_start;    /* start of a prefix instruction (KW_NAMES, PRECALL) that belongs to the next one; -1: none */
  int pending_kwnames;  /* index in co_consts or -1 */
  int emitted;          /* instructions the current raw one has become */
} FjDecoder;

void fj_emit(FjDecoder* decoder, int opcode, int arg, int arg2);
/* `unit` becomes an instruction index when decoding has ended. */
void fj_emit_jump(FjDecoder* decoder, int opcode, int unit, bool backward);
/* Marks the raw instruction as a prefix of the next one: a frame resumes at its start. */
void fj_prefix(FjDecoder* decoder);
/* Instructions that differ between versions; false: decode.c's common table has the row. */
bool fj_translate_version(FjDecoder* decoder);
bool fj_translate_since_v312(FjDecoder* decoder);
bool fj_translate_since_v313(FjDecoder* decoder);
bool fj_translate_since_v314(FjDecoder* decoder);
void fj_load_slot(FjDecoder* decoder, int slot);
int fj_cache_entries(int opcode);

/* ---- frames: frame.c has what is the same but for these names --------------------------------- */

#if PY_VERSION_HEX >= 0x030E0000
#define FJ_FRAME_CODE(frame) ((PyCodeObject*)PyStackRef_AsPyObjectBorrow((frame)->f_executable))
#define FJ_FRAME_FUNCTION(frame) PyStackRef_AsPyObjectBorrow((frame)->f_funcobj)
#define FJ_FRAME_NEXT(frame) ((frame)->instr_ptr)
#define FJ_CURRENT_FRAME(thread) ((thread)->current_frame)
#define FJ_POSITION_LAG 0
#elif PY_VERSION_HEX >= 0x030D0000
#define FJ_FRAME_CODE(frame) ((PyCodeObject*)(frame)->f_executable)
#define FJ_FRAME_FUNCTION(frame) ((frame)->f_funcobj)
#define FJ_FRAME_NEXT(frame) ((frame)->instr_ptr)              /* next instruction */
#define FJ_CURRENT_FRAME(thread) ((thread)->current_frame)
#define FJ_POSITION_LAG 0
#elif PY_VERSION_HEX >= 0x030C0000
#define FJ_FRAME_CODE(frame) ((frame)->f_code)
#define FJ_FRAME_FUNCTION(frame) ((frame)->f_funcobj)
#define FJ_FRAME_NEXT(frame) ((frame)->prev_instr)             /* the code unit before it */
#define FJ_CURRENT_FRAME(thread) ((thread)->cframe->current_frame)
#define FJ_POSITION_LAG 1
#else
#define FJ_FRAME_CODE(frame) ((frame)->f_code)
#define FJ_FRAME_FUNCTION(frame) ((PyObject*)(frame)->f_func)
#define FJ_FRAME_NEXT(frame) ((frame)->prev_instr)
#define FJ_CURRENT_FRAME(thread) ((thread)->cframe->current_frame)
#define FJ_POSITION_LAG 1
#endif

/* An entry of a frame's slots or of its stack: an object that is counted, until 3.14 tagged it. */
#if PY_VERSION_HEX >= 0x030E0000
typedef _PyStackRef FjEntry;
PyObject* fj_position_at(int unit); /* borrowed */
bool fj_is_position(PyObject* object);
static inline PyObject* fj_entry_object(FjEntry entry) { /* borrowed */
  if (PyStackRef_IsNull(entry)) return NULL;
  return PyStackRef_IsTaggedInt(entry) ? fj_position_at((int)PyStackRef_UntagInt(entry))
                                       : PyStackRef_AsPyObjectBorrow(entry);
}
FjEntry fj_entry_of(PyObject* object); /* steals */
static inline PyObject* fj_entry_take(FjEntry entry) {
  return PyStackRef_IsNull(entry)        ? NULL
         : PyStackRef_IsTaggedInt(entry) ? Py_XNewRef(fj_entry_object(entry))
                                         : PyStackRef_AsPyObjectSteal(entry);
}
#define FJ_FRAME_TOP(frame) ((int)((frame)->stackpointer - (frame)->localsplus))
#define FJ_FRAME_SET_TOP(frame, top) ((frame)->stackpointer = (frame)->localsplus + (top))
#else
typedef PyObject* FjEntry;
static inline PyObject* fj_entry_object(FjEntry entry) { return entry; }
static inline FjEntry fj_entry_of(PyObject* object) { return object; }
static inline PyObject* fj_entry_take(FjEntry entry) { return entry; }
#define FJ_FRAME_TOP(frame) ((frame)->stacktop)
#define FJ_FRAME_SET_TOP(frame, top) ((frame)->stacktop = (top))
#endif

#endif
