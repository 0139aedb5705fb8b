/* What is the same in every version: look-ups on types and instances, and what C++ can't call since its header forgets
 * extern "C". */
#include "cpython/internal.h"

#include <internal/pycore_object.h>

PyObject* fj_type_lookup(PyTypeObject* type, PyObject* name) { return _PyType_Lookup(type, name); }

int fj_get_method(PyObject* object, PyObject* name, PyObject** method) {
  *method = NULL;
  return _PyObject_GetMethod(object, name, method);
}

PyObject* fj_instance_dict(PyObject* object) {
  PyObject** dict = _PyObject_GetDictPtr(object);
  if (dict == NULL) return NULL;
  if (*dict == NULL) {
    /* Made on first use: a dict that exists can be compared, versioned and watched. */
    PyObject* made = PyObject_GenericGetDict(object, NULL);
    if (made == NULL) {
      PyErr_Clear();
      return NULL;
    }
    Py_DECREF(made);
    dict = _PyObject_GetDictPtr(object);
  }
  if (dict == NULL || *dict == NULL) return NULL;
  return *dict;
}

PyObject* const* fj_instance_dict_word(PyObject* object) {
  PyObject** dict = _PyObject_GetDictPtr(object);
  return dict != NULL && *dict != NULL ? dict : NULL;
}

void fj_trace_memory(unsigned domain, const void* block, size_t bytes) {
  PyTraceMalloc_Track(domain, (uintptr_t)block, bytes);
}
