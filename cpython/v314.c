/* CPython 3.14: an iterator is one entry. */
#define NEED_OPCODE_METADATA
#include "cpython/internal.h"
#include "cpython/signals.h"

#if PY_VERSION_HEX < 0x030E0000 || PY_VERSION_HEX >= 0x030F0000
#error "this file is for CPython 3.14"
#endif

#include <internal/pycore_opcode_metadata.h>

int fj_cache_entries(int opcode) { return _PyOpcode_Caches[opcode]; }

bool fj_translate_version(FjDecoder* decoder) {
  if (decoder->raw.opcode != POP_ITER) return fj_translate_since_v314(decoder);
  fj_emit(decoder, FJ_POP_TOP, 0, 0);
  return true;
}

/* Which release began it is told by a function alone. */
static bool renames_givers(void) {
  static int known = -1;
  if (known >= 0) return known;
  const bool held = fj_hold_signals();
  PyObject* const names = PyDict_New();
  static const char text[] = "def f():\n  def g(x: 0): pass\n  return g.__annotate__\nname = f().__qualname__";
  PyObject* const ran = names != NULL ? PyRun_String(text, Py_file_input, names, names) : NULL;
  PyObject* const name = ran != NULL ? PyDict_GetItemString(names, "name") : NULL;
  const bool renames = name != NULL && PyUnicode_CompareWithASCIIString(name, "f.<locals>.g.__annotate__") == 0;
  if (name != NULL) known = renames; /* else there was no memory or no depth: asked again */
  PyErr_Clear();
  if (held) fj_let_signals();
  Py_XDECREF(ran);
  Py_XDECREF(names);
  return renames;
}

PyObject* fj_giver_qualname(PyObject* qualname) {
  PyObject* const name = renames_givers() ? PyUnicode_FromFormat("%U.__annotate__", qualname) : NULL;
  PyErr_Clear();
  return name;
}
