/// Binds call arguments to frame slots without a frame, as CPython does when it makes one.
#pragma once

#include <Python.h>

#include <array>
#include <span>
#include <vector>

#include "cpython/ref.h"

namespace fj {

class BoundArguments {
 public:
  /// False (no error set) if the arguments do not fit: CPython's own call raises the right error.
  bool bind(PyFunctionObject* function, PyObject* const* args, Py_ssize_t count, PyObject* keyword_names);
  /// co_nlocalsplus entries, borrowed; those of cells and other locals are null.
  std::span<PyObject* const> slots() const { return {slots_, size_}; }

 private:
  bool bind_keyword(PyCodeObject* code, PyObject* name, PyObject* value);

  static constexpr std::size_t kInline = 24;  // most functions have fewer locals
  std::array<PyObject*, kInline> inline_;
  std::vector<PyObject*> large_;
  PyObject** slots_ = nullptr;
  std::size_t size_ = 0;
  Ref<> rest_, keywords_;                     // *args and **kwargs
};

}  // namespace fj
