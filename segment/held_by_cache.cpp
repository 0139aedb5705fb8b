#include "segment/held_by_cache.h"

#include <cstring>
#include <vector>

#include "cpython/objects.h"

namespace fj {

Ref<> held_by_cache(PyObject* wrapper, PyObject* arguments) {
  Ref<> parameters = Ref<>::steal(PyObject_CallMethod(wrapper, "cache_parameters", nullptr));
  PyObject* typed =
      parameters && PyDict_Check(parameters.get()) ? PyDict_GetItemString(parameters.get(), "typed") : nullptr;
  PyErr_Clear();
  if (typed != Py_False) return {};
  // As the cache makes its keys.
  PyObject* only = PyTuple_GET_SIZE(arguments) == 1 ? PyTuple_GET_ITEM(arguments, 0) : nullptr;
  PyObject* key = only && (PyUnicode_CheckExact(only) || PyLong_CheckExact(only)) ? only : arguments;
  // What the wrapper refers to: key, result and class of each link, or one dict of keys and results.
  std::vector<PyObject*> found;
  Py_TYPE(wrapper)->tp_traverse(wrapper, [](PyObject* object, void* place) {
    static_cast<std::vector<PyObject*>*>(place)->push_back(object);
    return 0;
  }, &found);
  // No code of the user's compares these: objects are compared by what they are before they are asked.
  auto comparable = [](auto& self, PyObject* a, PyObject* b) -> bool {
    if (a == b || is_plain(a)) return true;
    if (!PyTuple_CheckExact(a) || !PyTuple_CheckExact(b) || PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); ++i)
      if (!self(self, PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
    return true;
  };
  auto same_key = [&](PyObject* other) {
    if (Py_TYPE(other) != Py_TYPE(key)) return false;
    if (PyTuple_CheckExact(other) && !comparable(comparable, other, key)) return false;
    const int equal = PyObject_RichCompareBool(other, key, Py_EQ);
    PyErr_Clear();
    return equal == 1;
  };
  PyObject* size = PyDict_GetItemString(parameters.get(), "maxsize");
  for (std::size_t i = 2; size != Py_None && i < found.size(); ++i) {
    if (!PyType_Check(found[i]) ||
        std::strcmp(reinterpret_cast<PyTypeObject*>(found[i])->tp_name, "functools._lru_list_elem"))
      continue;
    if (same_key(found[i - 2])) return Ref<>::borrow(found[i - 1]);
  }
  for (PyObject* object : found) {
    if (size != Py_None || !PyDict_CheckExact(object)) continue;
    PyObject *other, *result;
    for (Py_ssize_t position = 0; PyDict_Next(object, &position, &other, &result);)
      if (same_key(other)) return Ref<>::borrow(result);
    break;  // the second dict has its attributes
  }
  return {};
}

}  // namespace fj
