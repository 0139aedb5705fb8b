#include "frame_hook/python_lists.h"

#include "cpython/ref.h"

namespace fj {

namespace {

bool ends_unseen(PyObject* item) {
  return PyFloat_CheckExact(item) || PyLong_CheckExact(item) || PyBool_Check(item) || item == Py_None;
}

/// Takes the number, which is null where there was no memory for it.
bool put_object(std::int64_t list, std::int64_t index, PyObject* number) {
  if (number == nullptr) return PyErr_Clear(), false;
  PyObject** const item = &reinterpret_cast<PyListObject*>(object_at(list))->ob_item[index];
  if (!ends_unseen(*item)) return Py_DECREF(number), false;
  PyObject* const before = *item;
  *item = number;
  Py_DECREF(before);
  return true;
}

bool append_object(std::int64_t list, Ref<> number) {
  const bool done = number && PyList_Append(object_at(list), number.get()) == 0;
  if (!done) PyErr_Clear();
  return done;
}

}  // namespace

bool PythonLists::put(std::int64_t list, std::int64_t index, double number) {
  PyObject* const item = PyList_GET_ITEM(object_at(list), index);
  // A float that the list alone holds: nobody can tell it from another one of that value.
  if (PyFloat_CheckExact(item) && Py_REFCNT(item) == 1) {
    reinterpret_cast<PyFloatObject*>(item)->ob_fval = number;
    return true;
  }
  return put_object(list, index, PyFloat_FromDouble(number));
}
bool PythonLists::put(std::int64_t list, std::int64_t index, std::int64_t number) {
  return put_object(list, index, PyLong_FromLongLong(number));
}
bool PythonLists::put(std::int64_t list, std::int64_t index, bool number) {
  return put_object(list, index, PyBool_FromLong(number));
}

bool PythonLists::append(std::int64_t list, double number) {
  return append_object(list, Ref<>::steal(PyFloat_FromDouble(number)));
}
bool PythonLists::append(std::int64_t list, std::int64_t number) {
  return append_object(list, Ref<>::steal(PyLong_FromLongLong(number)));
}
bool PythonLists::append(std::int64_t list, bool number) {
  return append_object(list, Ref<>::steal(PyBool_FromLong(number)));
}

bool PythonLists::drop_last(std::int64_t list) {
  PyObject* const object = object_at(list);
  const Py_ssize_t count = PyList_GET_SIZE(object);
  const bool done = PyList_SetSlice(object, count - 1, count, nullptr) == 0;
  if (!done) PyErr_Clear();
  return done;
}

}  // namespace fj
