/// Tuples and lists whose items are all there when they are made. An unfinished one is an object that others find
/// (gc.get_objects(), gc.get_referrers() on another thread, in a finalizer): they stumble over what is missing, and
/// PyTuple_SetItem refuses one that they hold. So what may run Python code makes the items first.
#pragma once

#include <span>

#include "cpython/ref.h"

namespace fj {

/// Takes the items' references over. Null with the error set where there is no memory.
inline Ref<> tuple_of(std::span<Ref<>> items) {
  Ref<> made = Ref<>::steal(PyTuple_New(Py_ssize_t(items.size())));
  for (std::size_t i = 0; made && i < items.size(); ++i)
    PyTuple_SET_ITEM(made.get(), Py_ssize_t(i), items[i].release());
  return made;
}

inline Ref<> list_of(std::span<Ref<>> items) {
  Ref<> made = Ref<>::steal(PyList_New(Py_ssize_t(items.size())));
  for (std::size_t i = 0; made && i < items.size(); ++i)
    PyList_SET_ITEM(made.get(), Py_ssize_t(i), items[i].release());
  return made;
}

}  // namespace fj
