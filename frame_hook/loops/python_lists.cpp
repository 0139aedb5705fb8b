#include "frame_hook/loops/python_lists.h"

#include <algorithm>
#include <utility>

#include "arrays/arrays.h"
#include "tracer/regions/loop_region.h"

namespace fj {

namespace {

std::int64_t bytes_of(PyObject* object) {
  const Py_ssize_t items = PyList_CheckExact(object) ? PyList_GET_SIZE(object) : 0;
  return std::int64_t(sizeof(PyListObject)) + items * std::int64_t(sizeof(PyObject*));
}

bool append_object(std::int64_t list, Ref<> number) {
  const bool done = number && PyList_Append(object_at(list), number.get()) == 0;
  if (!done) PyErr_Clear();
  return done;
}

}  // namespace

/// Takes the number.
void PythonLists::let_go(PyObject* number) {
  if (!gone_) gone_ = std::make_unique<std::array<Ref<>, kGone>>();
  (*gone_)[next_gone_] = Ref<>::steal(number);
  next_gone_ = (next_gone_ + 1) % kGone;
}

/// Takes the number, which is null where there was no memory for it.
bool PythonLists::put_object(std::int64_t list, std::int64_t index, PyObject* number) {
  if (number == nullptr) return PyErr_Clear(), false;
  PyObject*& item = reinterpret_cast<PyListObject*>(object_at(list))->ob_item[index];
  if (!is_number_or_none(item)) return Py_DECREF(number), false;
  let_go(std::exchange(item, number));
  return true;
}

bool PythonLists::put_item(std::int64_t list, std::int64_t index, std::int64_t number) {
  return put_object(list, index, Py_NewRef(object_at(number)));
}
bool PythonLists::append_item(std::int64_t list, std::int64_t number) {
  return append_object(list, Ref<>::borrow(object_at(number)));
}

bool PythonLists::put(std::int64_t list, std::int64_t index, double number) {
  PyObject* const item = PyList_GET_ITEM(object_at(list), index);
  // A float that the list alone holds: nobody can tell it from another one of that value. (No code of the user's, in C
  // either, is at work while the region runs.)
  if (PyFloat_CheckExact(item) && Py_REFCNT(item) == 1) {
    reinterpret_cast<PyFloatObject*>(item)->ob_fval = number;
    return true;
  }
  return put_object(list, index, PyFloat_FromDouble(number));
}
bool PythonLists::put(std::int64_t list, std::int64_t index, std::int64_t number) {
  return put_object(list, index, PyLong_FromLongLong(number));
}
bool PythonLists::put(std::int64_t list, std::int64_t index, std::uint64_t number) {
  return put_object(list, index, PyLong_FromUnsignedLongLong(number));
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
bool PythonLists::append(std::int64_t list, std::uint64_t number) {
  return append_object(list, Ref<>::steal(PyLong_FromUnsignedLongLong(number)));
}
bool PythonLists::append(std::int64_t list, bool number) {
  return append_object(list, Ref<>::steal(PyBool_FromLong(number)));
}

bool PythonLists::put_numpy(std::int64_t list, std::int64_t index, DType dtype, const void* number) {
  return put_object(list, index, numpy_scalar(dtype, number).release());
}
bool PythonLists::append_numpy(std::int64_t list, DType dtype, const void* number) {
  return append_object(list, numpy_scalar(dtype, number));
}

bool PythonLists::put_list(std::int64_t list, std::int64_t index, std::int64_t item) {
  PyObject*& place = reinterpret_cast<PyListObject*>(object_at(list))->ob_item[index];
  if (!is_number_or_none(place) && !(PyList_CheckExact(place) && list_ends_unseen(place))) return false;
  // The region may know where it is.
  keep(Ref<>::steal(std::exchange(place, Py_NewRef(object_at(item)))));
  return true;
}
bool PythonLists::append_list(std::int64_t list, std::int64_t item) {
  return append_object(list, Ref<>::borrow(object_at(item)));
}

bool PythonLists::drop_last(std::int64_t list) {
  PyObject* const object = object_at(list);
  const Py_ssize_t count = PyList_GET_SIZE(object);
  PyObject* const last = PyList_GET_ITEM(object, count - 1);
  if (is_number_or_none(last)) {
    let_go(Py_NewRef(last));
  } else {
    if (!PyList_CheckExact(last) || !list_ends_unseen(last)) return false;
    keep(Ref<>::borrow(last));
  }
  const bool done = PyList_SetSlice(object, count - 1, count, nullptr) == 0;
  if (!done) PyErr_Clear();
  return done;
}

PythonLists::~PythonLists() {
  held_.clear();
  if (collects_) PyGC_Enable();
}

void PythonLists::stop_collector() {
  if (!std::exchange(stopped_, true)) collects_ = PyGC_Disable() != 0;
}

void PythonLists::keep(Ref<> object) {
  bytes_ += bytes_of(object.get());
  held_.push_back(std::move(object));
}

void PythonLists::sweep() {
  if (bytes_ > sweep_at_) {
    std::sort(marked_.begin(), marked_.end());
    bytes_ = 0;
    std::erase_if(held_, [&](const Ref<>& object) {
      // One that is in another list stays too: that one may end before what has been read from it.
      const bool is_marked = std::binary_search(marked_.begin(), marked_.end(), word_address(object.get()));
      if (Py_REFCNT(object.get()) == 1 && !is_marked) return true;
      bytes_ += bytes_of(object.get());
      return false;
    });
    sweep_at_ = std::max(kSwept, 2 * bytes_);
  }
  marked_.clear();
}

std::int64_t PythonLists::hold(PyObject* made) {
  if (made == nullptr) return PyErr_Clear(), 0;
  keep(Ref<>::steal(made));
  return word_address(made);
}

bool PythonLists::extend(std::int64_t list, std::int64_t tuple) {
  const Ref<> done = Ref<>::steal(PySequence_InPlaceConcat(object_at(list), object_at(tuple)));
  if (!done) PyErr_Clear();
  return bool(done);
}

std::int64_t PythonLists::make(std::int64_t count) {
  stop_collector();
  PyObject* const made = PyList_New(Py_ssize_t(count));
  for (Py_ssize_t i = 0; made != nullptr && i < count; ++i) PyList_SET_ITEM(made, i, Py_NewRef(Py_None));
  return hold(made);
}

std::int64_t PythonLists::repeat(std::int64_t list, std::int64_t times) {
  stop_collector();
  return hold(PySequence_Repeat(object_at(list), Py_ssize_t(times)));
}

std::int64_t PythonLists::join(std::int64_t a, std::int64_t b) {
  stop_collector();
  return hold(PySequence_Concat(object_at(a), object_at(b)));
}

std::int64_t PythonLists::slice(std::int64_t list, std::int64_t start, std::int64_t stop) {
  stop_collector();
  return hold(PyList_GetSlice(object_at(list), Py_ssize_t(start), Py_ssize_t(stop)));
}

}  // namespace fj
