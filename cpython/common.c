/* What is the same in every version: look-ups on types and instances, and what C++ can't call since its header forgets
 * extern "C". */
#include "cpython/internal.h"

#include <internal/pycore_object.h>
#if PY_VERSION_HEX >= 0x030F0000
#include <internal/pycore_lazyimportobject.h>
#endif

#if PY_VERSION_HEX < 0x030E0000
PyObject* fj_common_constant(int which) { return which == 0 ? PyExc_AssertionError : NULL; }
#endif
int fj_iterator_entries(void) { return PY_VERSION_HEX >= 0x030F0000 ? 2 : 1; }
#if PY_VERSION_HEX >= 0x030C0000
_Static_assert(offsetof(PyLongObject, long_value.ob_digit) == 24 && PyLong_SHIFT == 30, "where an int's digits are");
#else
_Static_assert(offsetof(PyLongObject, ob_digit) == 24 && PyLong_SHIFT == 30, "where an int's digits are");
#endif
bool fj_int_has_tag(void) { return PY_VERSION_HEX >= 0x030C0000; }
bool fj_unpacking_counts(PyTypeObject* type) {
  return PY_VERSION_HEX >= 0x030E0000 && (type == &PyList_Type || type == &PyTuple_Type || type == &PyDict_Type);
}
bool fj_missing_stores_itself(void) { return PY_VERSION_HEX >= 0x030E0000; }
bool fj_errors_since_v314(void) { return PY_VERSION_HEX >= 0x030E0000; }
bool fj_annotations_wait(void) { return PY_VERSION_HEX >= 0x030E0000; }

void fj_set_annotations(PyObject* function, PyObject* annotations) {
  PyFunctionObject* const target = (PyFunctionObject*)function;
#if PY_VERSION_HEX >= 0x030E0000
  if (PyFunction_Check(annotations)) {
    Py_XSETREF(target->func_annotate, annotations);
    return;
  }
#endif
  Py_XSETREF(target->func_annotations, annotations);
}

#if PY_VERSION_HEX < 0x030E0000 || PY_VERSION_HEX >= 0x030F0000
PyObject* fj_giver_qualname(PyObject* qualname) { (void)qualname; return NULL; }
#endif

bool fj_complex_keeps_reals_apart(void) { return PY_VERSION_HEX >= 0x030E0000; }

PyObject* fj_type_lookup(PyTypeObject* type, PyObject* name) { return _PyType_Lookup(type, name); }

bool fj_has_lazy_imports(void) { return PY_VERSION_HEX >= 0x030F0000; }
#if PY_VERSION_HEX >= 0x030F0000
bool fj_is_lazy_import(PyObject* object) { return PyLazyImport_CheckExact(object); }
PyObject* fj_imported(PyThreadState* thread, PyObject* value, PyObject* name, PyObject* names) {
  return fj_is_lazy_import(value) ? _PyLazyImport_Reify(thread, value, name, names) : Py_NewRef(value);
}
#else
bool fj_is_lazy_import(PyObject* object) { (void)object; return false; }
PyObject* fj_imported(PyThreadState* thread, PyObject* value, PyObject* name, PyObject* names) {
  (void)thread; (void)name; (void)names;
  return Py_NewRef(value);
}
#endif

PyObject* fj_weakly_held(PyObject* reference) {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* object;
  return PyWeakref_GetRef(reference, &object) == 1 ? object : Py_NewRef(Py_None);
#else
  return Py_NewRef(PyWeakref_GET_OBJECT(reference));
#endif
}

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
