/// NumPy's functions that a graph may call: the rows of calls.def, and universal functions with their methods.
#pragma once

#include "cpython/ref.h"

namespace fj {

struct NumpyCall {
  Ref<> function;       // what is called: it raises where NumPy's would warn
  bool writes = false;  // into its first argument
};

/// Null: not one of them. Good for ever.
const NumpyCall* find_numpy_call(PyObject* callable);
/// Python code that is traced in the place of the function; null: the function's own. Borrowed for ever.
PyObject* traced_instead(PyObject* callable);
/// As an attribute of ndarray.
PyObject* ndarray_method(const char* name);

}  // namespace fj
