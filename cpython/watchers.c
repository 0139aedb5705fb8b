/* Invalidation: dict, type and function watchers where there are (3.12+), version tags where there are not. */
#include "cpython/internal.h"

#include <internal/pycore_dict.h>

#if PY_VERSION_HEX >= 0x030C0000

static void (*on_dict)(PyObject*);
static void (*on_type)(PyObject*);
static void (*on_function)(PyObject*);
static int dict_watcher = -1, type_watcher = -1, function_watcher = -1;

static int dict_event(PyDict_WatchEvent event, PyObject* dict, PyObject* key, PyObject* value) {
  (void)event; (void)key; (void)value;
  on_dict(dict);
  return 0;
}

static int type_event(PyTypeObject* type) {
  on_type((PyObject*)type);
  return 0;
}

static int function_event(PyFunction_WatchEvent event, PyFunctionObject* function, PyObject* value) {
  (void)value;
  if (event != PyFunction_EVENT_CREATE) on_function((PyObject*)function);
  return 0;
}

bool fj_has_watchers(void) { return true; }

bool fj_init_watchers(void (*dict_changed)(PyObject*), void (*type_changed)(PyObject*),
                      void (*function_changed)(PyObject*)) {
  on_dict = dict_changed;
  on_type = type_changed;
  on_function = function_changed;
  dict_watcher = PyDict_AddWatcher(dict_event);
  if (dict_watcher >= 0) type_watcher = PyType_AddWatcher(type_event);
  if (type_watcher >= 0) function_watcher = PyFunction_AddWatcher(function_event);
  if (function_watcher >= 0) return true;
  PyErr_Clear(); /* all eight are taken: versions and plain checks remain */
  return false;
}

bool fj_watch_dict(PyObject* dict) {
  if (dict_watcher < 0 || !PyDict_Check(dict)) return false;
#if PY_VERSION_HEX >= 0x030D0000
  /* Before 3.13.5 a store through an object's inline values tells no watcher. */
  const PyDictValues* values = ((PyDictObject*)dict)->ma_values;
  if (values != NULL && values->embedded && Py_Version < 0x030D0500) return false;
#endif
  if (PyDict_Watch(dict_watcher, dict) == 0) return true;
  PyErr_Clear();
  return false;
}

bool fj_watch_type(PyObject* type) {
  if (type_watcher < 0) return false;
  /* A watcher is told only while the type has a valid version tag. */
  if (PyType_Watch(type_watcher, type) == 0 && PyUnstable_Type_AssignVersionTag((PyTypeObject*)type)) return true;
  PyErr_Clear();
  return false;
}

#else

bool fj_has_watchers(void) { return false; }
bool fj_init_watchers(void (*dict_changed)(PyObject*), void (*type_changed)(PyObject*),
                      void (*function_changed)(PyObject*)) {
  (void)dict_changed; (void)type_changed; (void)function_changed;
  return false;
}
bool fj_watch_dict(PyObject* dict) { (void)dict; return false; }
bool fj_watch_type(PyObject* type) { (void)type; return false; }

#endif

const uint64_t* fj_dict_version_word(PyObject* dict) {
#if PY_VERSION_HEX >= 0x030D0000
  (void)dict;
  return NULL; /* the field carries only watcher bits */
#else
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return &((PyDictObject*)dict)->ma_version_tag;
#pragma GCC diagnostic pop
#endif
}

uint64_t fj_dict_version(PyObject* dict) {
  const uint64_t* version = fj_dict_version_word(dict);
  return version != NULL ? *version : 0;
}
