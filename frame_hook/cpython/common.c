/* What is the same in every version: look-ups on types and instances. */
#include "frame_hook/cpython/internal.h"

#include <internal/pycore_dict.h>
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
#if PY_VERSION_HEX >= 0x030D0000 && PY_VERSION_HEX < 0x030E0000
  /* Before 3.13.5 a store through inline values tells no watcher: such an object gets a dict of its own. */
  PyDictObject* inlined = (PyDictObject*)*dict;
  if (Py_Version < 0x030D0500 && PyDict_CheckExact(inlined) && inlined->ma_values != NULL && inlined->ma_values->embedded) {
    PyObject* own = PyDict_Copy(*dict);
    if (own == NULL || PyObject_GenericSetDict(object, own, NULL) < 0) PyErr_Clear();
    Py_XDECREF(own);
    dict = _PyObject_GetDictPtr(object);
    if (dict == NULL) return NULL;
  }
#endif
  return *dict;
}
