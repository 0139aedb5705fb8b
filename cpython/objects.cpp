#include "cpython/objects.h"

#include "cpython/ref.h"

namespace fj {

std::string text_of(PyObject* object) {
  Ref<> text = !object ? Ref<>() : PyUnicode_Check(object) ? Ref<>::borrow(object) : Ref<>::steal(PyObject_Str(object));
  const char* bytes = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (!bytes) PyErr_Clear();
  return bytes ? bytes : "";
}

std::string take_error() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  std::string text = type ? reinterpret_cast<PyTypeObject*>(type)->tp_name : "";
  if (value) text += ": " + text_of(value);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  PyErr_Clear();
  return text;
}

bool is_plain(PyObject* object) {
  return PyLong_CheckExact(object) || PyFloat_CheckExact(object) || PyComplex_CheckExact(object) ||
         PyBool_Check(object) || PyUnicode_CheckExact(object) || PyBytes_CheckExact(object) || object == Py_None ||
         object == Py_Ellipsis || object == Py_NotImplemented;
}

}  // namespace fj
