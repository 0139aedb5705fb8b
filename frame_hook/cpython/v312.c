/* CPython 3.12: the evaluator pops the frames it runs, but exports nothing to do it with. */
#define NEED_OPCODE_TABLES
#include "frame_hook/cpython/internal.h"

#if PY_VERSION_HEX < 0x030C0000 || PY_VERSION_HEX >= 0x030D0000
#error "this file is for CPython 3.12"
#endif

#include <internal/pycore_intrinsics.h>
#include <internal/pycore_opcode.h>

int fj_cache_entries(int opcode) { return _PyOpcode_Caches[opcode]; }

bool fj_translate_version(FjDecoder* decoder) {
  const int arg = decoder->raw.arg;
  const int forward = decoder->raw.next + arg;
  switch (decoder->raw.opcode) {
    case KW_NAMES:
      fj_prefix(decoder);
      decoder->pending_kwnames = arg;
      return true;
    case COMPARE_OP: fj_emit(decoder, FJ_COMPARE_OP, arg >> 4, 0); return true;
    case LOAD_ATTR: fj_emit(decoder, arg & 1 ? FJ_LOAD_METHOD : FJ_LOAD_ATTR, arg >> 1, 0); return true;
    case LOAD_SUPER_ATTR: fj_emit(decoder, FJ_LOAD_SUPER_ATTR, arg >> 2, arg & 3); return true;
    case LOAD_CLOSURE: fj_emit(decoder, FJ_LOAD_CLOSURE, arg, 0); return true;
    case LOAD_FAST_CHECK: fj_emit(decoder, FJ_LOAD_FAST, arg, 0); return true;
    case LOAD_FAST_AND_CLEAR: fj_emit(decoder, FJ_LOAD_FAST_AND_CLEAR, arg, 0); return true;
    case BINARY_SLICE: fj_emit(decoder, FJ_BINARY_SLICE, 0, 0); return true;
    case STORE_SLICE: fj_emit(decoder, FJ_STORE_SLICE, 0, 0); return true;
    case FORMAT_VALUE: fj_emit(decoder, FJ_FORMAT_VALUE, arg & 3, (arg & 4) != 0); return true;
    case RETURN_CONST: fj_emit(decoder, FJ_RETURN_CONST, arg, 0); return true;
    case END_FOR: fj_emit(decoder, FJ_END_FOR, 0, 0); return true;
    case END_SEND:
      fj_emit(decoder, FJ_SWAP, 2, 0);
      fj_emit(decoder, FJ_POP_TOP, 0, 0);
      return true;
    /* An exhausted iterator is popped and END_FOR skipped. */
    case FOR_ITER: fj_emit_jump(decoder, FJ_FOR_ITER, forward + 1, false); return true;
    case POP_JUMP_IF_FALSE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_FALSE, forward, false); return true;
    case POP_JUMP_IF_TRUE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_TRUE, forward, false); return true;
    case POP_JUMP_IF_NONE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_NONE, forward, false); return true;
    case POP_JUMP_IF_NOT_NONE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_NOT_NONE, forward, false); return true;
    case CALL_INTRINSIC_1:
      switch (arg) {
        case INTRINSIC_UNARY_POSITIVE: fj_emit(decoder, FJ_UNARY_POSITIVE, 0, 0); return true;
        case INTRINSIC_LIST_TO_TUPLE: fj_emit(decoder, FJ_LIST_TO_TUPLE, 0, 0); return true;
        case INTRINSIC_IMPORT_STAR: /* leaves a None */
        default: fj_emit(decoder, FJ_CALL_INTRINSIC_1, arg, 0); return true;
      }
    case CALL_INTRINSIC_2: fj_emit(decoder, FJ_CALL_INTRINSIC_2, arg, 0); return true;
    default: return false;
  }
}

bool fj_call_layout_callable_first(void) { return false; }
