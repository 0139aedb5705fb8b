#include "cpython/objects.h"

#include "cpython/cpython.h"
#include "cpython/ref.h"

namespace fj {

std::string text_of(PyObject* object) {
  Ref<> text = !object ? Ref<>() : PyUnicode_Check(object) ? Ref<>::borrow(object) : Ref<>::steal(PyObject_Str(object));
  Py_ssize_t size = 0;  // a text may have a character 0 in it
  const char* bytes = text ? PyUnicode_AsUTF8AndSize(text.get(), &size) : nullptr;
  if (!bytes) PyErr_Clear();
  return bytes ? std::string(bytes, std::size_t(size)) : "";
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

bool is_union(PyObject* object) {
  PyTypeObject* const type = once([] {
    const Ref<> made = Ref<>::steal(
        PyNumber_Or(reinterpret_cast<PyObject*>(&PyLong_Type), reinterpret_cast<PyObject*>(&PyUnicode_Type)));
    PyErr_Clear();
    return made ? Py_TYPE(made.get()) : nullptr;
  });
  return Py_TYPE(object) == type;
}

std::optional<RangePosition> range_position(PyObject* iterator) {
  constexpr std::int64_t kFar = std::int64_t(1) << 62;
  const FjIterator found = fj_iterator(iterator);
  if (found.kind != FJ_ITERATOR_RANGE) return std::nullopt;
  const __int128 end = __int128(found.next) + __int128(found.left) * found.step;
  if (found.next > kFar || found.next < -kFar || end > kFar || end < -kFar || found.step > kFar / 2 ||
      found.step < -kFar / 2)
    return std::nullopt;
  return RangePosition{found.next, std::int64_t(end), found.step};
}

}  // namespace fj
