/* CPython 3.13: callable first in a call's stack, truth tests of their own, superinstructions in the compiled code. */
#define NEED_OPCODE_METADATA
#include "cpython/internal.h"

#if PY_VERSION_HEX < 0x030D0000 || PY_VERSION_HEX >= 0x030E0000
#error "this file is for CPython 3.13"
#endif

#include <internal/pycore_ceval.h>
#include <internal/pycore_opcode_metadata.h>

int fj_cache_entries(int opcode) { return _PyOpcode_Caches[opcode]; }

bool fj_translate_version(FjDecoder* decoder) {
  if (decoder->raw.opcode != RETURN_CONST) return fj_translate_since_v313(decoder);
  fj_emit(decoder, FJ_RETURN_CONST, decoder->raw.arg, 0);
  return true;
}
