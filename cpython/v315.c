/* CPython 3.15: an iterator is two entries, imports may be lazy. */
#define NEED_OPCODE_METADATA
#include "cpython/internal.h"

#if PY_VERSION_HEX < 0x030F0000 || PY_VERSION_HEX >= 0x03100000
#error "this file is for CPython 3.15"
#endif

#include <internal/pycore_opcode_metadata.h>

int fj_cache_entries(int opcode) { return _PyOpcode_Caches[opcode]; }

bool fj_translate_version(FjDecoder* decoder) {
  const int arg = decoder->raw.arg;
  switch (decoder->raw.opcode) {
    case GET_ITER:
      fj_emit(decoder, arg == 0 ? FJ_GET_ITER : FJ_GET_YIELD_FROM_ITER, 0, 0);
      fj_emit(decoder, FJ_PUSH_NULL, 0, 0);
      return true;
    case POP_ITER:
      fj_emit(decoder, FJ_POP_TOP, 0, 0);
      fj_emit(decoder, FJ_POP_TOP, 0, 0);
      return true;
    case END_SEND:
      fj_emit(decoder, FJ_SWAP, 3, 0);
      fj_emit(decoder, FJ_POP_TOP, 0, 0);
      fj_emit(decoder, FJ_POP_TOP, 0, 0);
      return true;
    /* A lazy one (the lowest bit) stands in a module alone. */
    case IMPORT_NAME: fj_emit(decoder, arg & 1 ? FJ_UNSUPPORTED : FJ_IMPORT_NAME, arg >> 2, 0); return true;
    default: return fj_translate_since_v314(decoder);
  }
}
