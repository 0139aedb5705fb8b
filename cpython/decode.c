/* Raw bytecode to our instruction set: drops caches and prefixes, turns jump distances into instruction
 * indices. The table at the end has the instructions that mean the same in every version; the version's file is
 * asked first. Start reading at fj_decode. */
#include "cpython/internal.h"

#include <stdlib.h>
#include <string.h>

static const char* const opcode_names[] = {
#define FJ_INSTR(name, flow, slot, python) #name,
#include "cpython/bytecode.def"
};

const FjOpcodeRow fj_opcode_rows[] = {
#define FJ_INSTR(name, flow, slot, python) {FJ_FLOW_##flow, FJ_SLOT_##slot, FJ_PYTHON_##python},
#include "cpython/bytecode.def"
};

const char* fj_opcode_name(int opcode) {
  const int count = (int)(sizeof opcode_names / sizeof *opcode_names);
  return opcode >= 0 && opcode < count ? opcode_names[opcode] : "?";
}

void fj_emit(FjDecoder* decoder, int opcode, int arg, int arg2) {
  FjInstr* instr = &decoder->result->instrs[decoder->result->count++];
  instr->opcode = (uint8_t)opcode;
  instr->resumable = decoder->emitted++ == 0;
  instr->arg = arg;
  instr->arg2 = arg2;
  instr->offset = decoder->pending_start >= 0 ? decoder->pending_start : decoder->raw.start;
  instr->executing = decoder->raw.unit;
}

/* Jumps are kept as code units, marked here, until index_of is complete. */
static bool is_jump(int opcode) {
  return fj_opcode_rows[opcode].flow == FJ_FLOW_Jump || fj_opcode_rows[opcode].flow == FJ_FLOW_Branch;
}

void fj_emit_jump(FjDecoder* decoder, int opcode, int unit, bool backward) {
  fj_emit(decoder, opcode, unit, backward);
}

void fj_prefix(FjDecoder* decoder) {
  if (decoder->pending_start < 0) decoder->pending_start = decoder->raw.start;
}

/* Instructions with the same meaning in all versions. */
static void translate_common(FjDecoder* decoder) {
  const int arg = decoder->raw.arg;
  switch (decoder->raw.opcode) {
#define SAME(name) case name: fj_emit(decoder, FJ_##name, arg, 0); break;
    SAME(POP_TOP) SAME(PUSH_NULL) SAME(COPY) SAME(SWAP) SAME(LOAD_CONST) SAME(LOAD_FAST) SAME(STORE_FAST)
    SAME(DELETE_FAST) SAME(MAKE_CELL) SAME(COPY_FREE_VARS) SAME(LOAD_DEREF) SAME(STORE_DEREF) SAME(DELETE_DEREF)
    SAME(STORE_GLOBAL) SAME(DELETE_GLOBAL) SAME(SETUP_ANNOTATIONS) SAME(LOAD_NAME) SAME(STORE_NAME) SAME(DELETE_NAME)
    SAME(STORE_ATTR) SAME(DELETE_ATTR) SAME(UNARY_NEGATIVE) SAME(UNARY_NOT) SAME(UNARY_INVERT)
    SAME(BINARY_OP) SAME(STORE_SUBSCR) SAME(DELETE_SUBSCR)
    SAME(IS_OP) SAME(CONTAINS_OP) SAME(CHECK_EXC_MATCH) SAME(CHECK_EG_MATCH)
    SAME(GET_LEN) SAME(UNPACK_SEQUENCE)
    SAME(BUILD_TUPLE) SAME(BUILD_LIST) SAME(BUILD_SET) SAME(BUILD_MAP) SAME(BUILD_STRING)
    SAME(BUILD_SLICE) SAME(LIST_APPEND) SAME(SET_ADD) SAME(MAP_ADD) SAME(LIST_EXTEND) SAME(SET_UPDATE)
    SAME(DICT_UPDATE) SAME(DICT_MERGE) SAME(MAKE_FUNCTION) SAME(LOAD_BUILD_CLASS)
    SAME(IMPORT_FROM) SAME(PUSH_EXC_INFO)
    SAME(POP_EXCEPT) SAME(RERAISE) SAME(RAISE_VARARGS) SAME(RETURN_VALUE) SAME(RETURN_GENERATOR) SAME(YIELD_VALUE)
    SAME(MATCH_CLASS) SAME(MATCH_MAPPING) SAME(MATCH_SEQUENCE) SAME(MATCH_KEYS)
#if PY_VERSION_HEX < 0x030F0000
    SAME(GET_ITER) SAME(GET_YIELD_FROM_ITER) SAME(IMPORT_NAME)
#endif
#if PY_VERSION_HEX < 0x030E0000
    SAME(BINARY_SUBSCR) SAME(BUILD_CONST_KEY_MAP) SAME(BEFORE_WITH)
    case WITH_EXCEPT_START: fj_emit(decoder, FJ_WITH_EXCEPT_START, 0, 0); break;
    case LOAD_ASSERTION_ERROR: fj_emit(decoder, FJ_LOAD_COMMON_CONSTANT, 0, 0); break;
#endif
#undef SAME
    case CACHE: case NOP: case RESUME:
      break;
    case LOAD_GLOBAL:
      fj_emit(decoder, FJ_LOAD_GLOBAL, arg >> 1, arg & 1);
      break;
    case UNPACK_EX:
      fj_emit(decoder, FJ_UNPACK_EX, arg & 0xff, arg >> 8);
      break;
    case CALL_FUNCTION_EX:
      fj_emit(decoder, FJ_CALL_FUNCTION_EX, arg & 1, 0);
      break;
    case CALL:
      fj_emit(decoder, FJ_CALL, arg, decoder->pending_kwnames);
      break;
    case JUMP_FORWARD:
      fj_emit_jump(decoder, FJ_JUMP, decoder->raw.next + arg, false);
      break;
    case JUMP_BACKWARD:
      fj_emit_jump(decoder, FJ_JUMP, decoder->raw.next - arg, true);
      break;
    case JUMP_BACKWARD_NO_INTERRUPT:
      fj_emit_jump(decoder, FJ_JUMP, decoder->raw.next - arg, false);
      break;
    case SEND:
      fj_emit_jump(decoder, FJ_SEND, decoder->raw.next + arg, false);
      break;
    default:
      fj_emit(decoder, FJ_UNSUPPORTED, decoder->raw.opcode, arg);
  }
}

/* The line of each instruction, in one walk over the code object's table: CPython's own look-up of one line starts at
 * the table's beginning, which would make tracing quadratic in the length of a function. */
static bool fill_lines(FjCode* result, PyCodeObject* code) {
  PyObject* ranges = PyObject_CallMethod((PyObject*)code, "co_lines", NULL);
  if (ranges == NULL) return false;
  int end = 0, line = 0;
  for (int i = 0; i < result->count; i++) {
    while (result->instrs[i].executing * 2 >= end) {
      PyObject* range = PyIter_Next(ranges); /* (start, end, line or None), in order and without gaps */
      if (range == NULL) {
        Py_DECREF(ranges);
        return !PyErr_Occurred(); /* behind the last range */
      }
      PyObject* number = PyTuple_GET_ITEM(range, 2);
      end = (int)PyLong_AsLong(PyTuple_GET_ITEM(range, 1));
      line = number == Py_None ? 0 : (int)PyLong_AsLong(number);
      Py_DECREF(range);
    }
    result->instrs[i].line = line;
  }
  Py_DECREF(ranges);
  return true;
}

FjCode* fj_decode(PyCodeObject* code) {
  /* De-specialised and de-instrumented, same offsets as the live bytecode. */
  PyObject* bytes = PyCode_GetCode(code);
  if (bytes == NULL) return NULL;
  const unsigned char* raw = (const unsigned char*)PyBytes_AS_STRING(bytes);
  const int units = (int)(PyBytes_GET_SIZE(bytes) / 2);

  FjCode* result = calloc(1, sizeof *result);
  if (result != NULL) {
    /* One becomes three instructions at most. */
    result->instrs = calloc((size_t)units * 3 + 1, sizeof *result->instrs);
    result->index_of = calloc((size_t)units + 1, sizeof *result->index_of);
  }
  if (result == NULL || result->instrs == NULL || result->index_of == NULL) {
    Py_DECREF(bytes);
    fj_free_code(result);
    PyErr_NoMemory();
    return NULL;
  }
  result->code = (PyObject*)code;
  result->code_units = units;
  result->is_generator = (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0;

  FjDecoder decoder = {.result = result, .code = code, .pending_start = -1, .pending_kwnames = -1};
  for (int unit = 0; unit < units;) {
    FjRaw* instr = &decoder.raw;
    instr->start = unit;
    unsigned arg = 0;
    while (raw[2 * unit] == EXTENDED_ARG && unit + 1 < units) arg = (arg | raw[2 * unit++ + 1]) << 8;
    instr->opcode = raw[2 * unit];
    instr->arg = (int)(arg | raw[2 * unit + 1]);
    instr->unit = unit;
    instr->next = unit + 1 + fj_cache_entries(instr->opcode);
    const int first = decoder.pending_start >= 0 ? decoder.pending_start : instr->start;
    for (int i = first; i < instr->next && i <= units; i++) result->index_of[i] = result->count;
    decoder.emitted = 0;
    if (!fj_translate_version(&decoder)) translate_common(&decoder);
    if (decoder.emitted) {
      decoder.pending_start = -1;
      decoder.pending_kwnames = -1;
    }
    unit = instr->next;
  }
  result->index_of[units] = result->count;
  Py_DECREF(bytes);

  for (int i = 0; i < result->count; i++) {
    FjInstr* instr = &result->instrs[i];
    if (!is_jump(instr->opcode)) continue;
    const int unit = instr->arg < 0 ? 0 : instr->arg > units ? units : instr->arg;
    instr->arg = result->index_of[unit];
  }
  if (!fill_lines(result, code)) {
    fj_free_code(result);
    return NULL;
  }
  return result;
}

void fj_free_code(FjCode* code) {
  if (code == NULL) return;
  free(code->instrs);
  free(code->index_of);
  free(code);
}

/* ---- the exception table: entries of 6-bit varints, start, length, target, depth << 1 | lasti ---- */

static const unsigned char* read_varint(const unsigned char* at, int* value) {
  int result = *at & 63;
  while (*at++ & 64) result = result << 6 | (*at & 63);
  *value = result;
  return at;
}

bool fj_find_handler(PyCodeObject* code, int32_t unit, FjHandler* handler) {
  const unsigned char* at = (const unsigned char*)PyBytes_AS_STRING(code->co_exceptiontable);
  const unsigned char* end = at + PyBytes_GET_SIZE(code->co_exceptiontable);
  while (at < end) {
    int start, length, target, depth_lasti;
    at = read_varint(at, &start);
    at = read_varint(at, &length);
    at = read_varint(at, &target);
    at = read_varint(at, &depth_lasti);
    if (start > unit) return false; /* entries are sorted by start */
    if (unit < start + length) {
      *handler = (FjHandler){start, start + length, target, depth_lasti >> 1, depth_lasti & 1};
      return true;
    }
  }
  return false;
}
