/* CPython 3.11: calls come as KW_NAMES, PRECALL, CALL; conditional jumps go both ways; the caller clears a frame. */
#define NEED_OPCODE_TABLES
#include "frame_hook/cpython/internal.h"

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030C0000
#error "this file is for CPython 3.11"
#endif

#include <internal/pycore_opcode.h>

int fj_cache_entries(int opcode) { return _PyOpcode_Caches[opcode]; }

bool fj_translate_version(FjDecoder* decoder) {
  const int arg = decoder->raw.arg;
  const int forward = decoder->raw.next + arg, backward = decoder->raw.next - arg;
  switch (decoder->raw.opcode) {
    case PRECALL: fj_prefix(decoder); return true;
    case KW_NAMES:
      fj_prefix(decoder);
      decoder->pending_kwnames = arg;
      return true;
    case COMPARE_OP: fj_emit(decoder, FJ_COMPARE_OP, arg, 0); return true;
    case LOAD_ATTR: fj_emit(decoder, FJ_LOAD_ATTR, arg, 0); return true;
    case LOAD_METHOD: fj_emit(decoder, FJ_LOAD_METHOD, arg, 0); return true;
    case LOAD_CLOSURE: fj_emit(decoder, FJ_LOAD_CLOSURE, arg, 0); return true;
    case LOAD_CLASSDEREF: fj_emit(decoder, FJ_LOAD_CLASSDEREF, arg, 0); return true;
    case UNARY_POSITIVE: fj_emit(decoder, FJ_UNARY_POSITIVE, 0, 0); return true;
    case LIST_TO_TUPLE: fj_emit(decoder, FJ_LIST_TO_TUPLE, 0, 0); return true;
    case IMPORT_STAR: fj_emit(decoder, FJ_IMPORT_STAR, 0, 0); return true;
    case FORMAT_VALUE: fj_emit(decoder, FJ_FORMAT_VALUE, arg & 3, (arg & 4) != 0); return true;
    case FOR_ITER: fj_emit_jump(decoder, FJ_FOR_ITER, forward, false); return true;
    case JUMP_IF_FALSE_OR_POP: fj_emit_jump(decoder, FJ_JUMP_IF_FALSE_OR_POP, forward, false); return true;
    case JUMP_IF_TRUE_OR_POP: fj_emit_jump(decoder, FJ_JUMP_IF_TRUE_OR_POP, forward, false); return true;
    case POP_JUMP_FORWARD_IF_FALSE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_FALSE, forward, false); return true;
    case POP_JUMP_FORWARD_IF_TRUE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_TRUE, forward, false); return true;
    case POP_JUMP_FORWARD_IF_NONE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_NONE, forward, false); return true;
    case POP_JUMP_FORWARD_IF_NOT_NONE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_NOT_NONE, forward, false); return true;
    case POP_JUMP_BACKWARD_IF_FALSE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_FALSE, backward, true); return true;
    case POP_JUMP_BACKWARD_IF_TRUE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_TRUE, backward, true); return true;
    case POP_JUMP_BACKWARD_IF_NONE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_NONE, backward, true); return true;
    case POP_JUMP_BACKWARD_IF_NOT_NONE: fj_emit_jump(decoder, FJ_POP_JUMP_IF_NOT_NONE, backward, true); return true;
    default: return false;
  }
}

bool fj_call_layout_callable_first(void) { return false; }
