#include "cpython/objects.h"

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

bool is_range_iterator(PyObject* object) {
  PyTypeObject* const type = once([] {
    const Ref<> range = Ref<>::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyRange_Type), "i", 0));
    const Ref<> iterator = range ? Ref<>::steal(PyObject_GetIter(range.get())) : Ref<>();
    PyErr_Clear();
    return iterator ? Py_TYPE(iterator.get()) : nullptr;
  });
  return Py_TYPE(object) == type;
}

std::optional<RangePosition> range_position(PyObject* iterator) {
  constexpr std::int64_t kFar = std::int64_t(1) << 62;
  if (!is_range_iterator(iterator)) return std::nullopt;
  const auto number = [](PyObject* value, std::int64_t& to) {
    int overflow = 0;
    to = value && PyLong_Check(value) ? PyLong_AsLongLongAndOverflow(value, &overflow) : 0;
    return value && PyLong_Check(value) && !overflow;
  };
  // (iter, (range,), index); the index is missing or None where the range is what is left.
  const Ref<> reduced = Ref<>::steal(PyObject_CallMethod(iterator, "__reduce__", nullptr));
  const auto part = [](PyObject* tuple, Py_ssize_t i) {
    return tuple && PyTuple_Check(tuple) && PyTuple_GET_SIZE(tuple) > i ? PyTuple_GET_ITEM(tuple, i) : nullptr;
  };
  PyObject* const range = part(part(reduced.get(), 1), 0);
  PyObject* const index_object = part(reduced.get(), 2);
  const Py_ssize_t length = range && PyRange_Check(range) ? PyObject_Length(range) : -1;
  const Ref<> start_object = length < 0 ? Ref<>() : Ref<>::steal(PyObject_GetAttrString(range, "start"));
  const Ref<> step_object = length < 0 ? Ref<>() : Ref<>::steal(PyObject_GetAttrString(range, "step"));
  std::int64_t start = 0, step = 0, index = 0;
  const bool indexed = index_object != nullptr && index_object != Py_None;
  if (!number(start_object.get(), start) || !number(step_object.get(), step) ||
      (indexed && !number(index_object, index)))
    return PyErr_Clear(), std::nullopt;
  const __int128 next = __int128(start) + __int128(index) * step;
  const __int128 end = __int128(start) + __int128(length) * step;
  if (next > kFar || next < -kFar || end > kFar || end < -kFar || step > kFar / 2 || step < -kFar / 2)
    return std::nullopt;
  return RangePosition{std::int64_t(next), std::int64_t(end), step};
}

}  // namespace fj
