/// Ownership of Python objects as types: Ref<T> owns one reference, Borrowed<T> none.
#pragma once

#include <Python.h>

#include <memory>
#include <utility>

#include "cpython/signals.h"

namespace fj {

template <class T = PyObject>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  Ref(const Ref& other) : object_(other.object_) { Py_XINCREF(reinterpret_cast<PyObject*>(object_)); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(reinterpret_cast<PyObject*>(object_)); }

  /// Takes over a new reference.
  static Ref steal(T* object) {
    Ref result;
    result.object_ = object;
    return result;
  }
  /// Adds a reference to a borrowed one.
  static Ref borrow(T* object) {
    Py_XINCREF(reinterpret_cast<PyObject*>(object));
    return steal(object);
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  /// Gives the reference away.
  T* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
};

/// What `make` gives, made once in a process. A function-local static would hold its guard while `make` runs: Python
/// code, an import, a collection let another thread in, which then waits for the guard with the GIL that `make` needs
/// to go on. So nothing is locked: threads that come at the same time each make one, and the first that has it is
/// kept. Signals wait: what one of their handlers raised would be taken for an answer of the library's. With the GIL
/// held.
template <class Make>
auto& once(const Make& make) {
  using Made = decltype(make());
  /// Never destroyed: it may own Python objects. One for each lambda, which is a type of its own.
  static constinit Made* kept = nullptr;
  if (kept == nullptr) [[unlikely]] {
    const HeldSignals held;
    std::unique_ptr<Made> made(new Made(make()));
    if (kept == nullptr) kept = made.release();
  }
  return *kept;
}

/// The attribute of a module, which is imported for it. Null, and no error set, where there is none.
inline Ref<> imported(const char* module, const char* name) {
  Ref<> from = Ref<>::steal(PyImport_ImportModule(module));
  Ref<> found = from ? Ref<>::steal(PyObject_GetAttrString(from.get(), name)) : Ref<>();
  if (!found) PyErr_Clear();
  return found;
}

/// A function of C as Python calls it, made once; `name` is the one it has at the first call.
template <PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)>
PyObject* c_function(const char* name) {
  static PyMethodDef definition = {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)),
                                   METH_FASTCALL, nullptr};
  PyObject* const made = once([] { return PyCFunction_New(&definition, nullptr); });
  return made;
}

}  // namespace fj
