/// NumPy's functions that a graph may call: the rows of calls.def, and universal functions with their methods.
#pragma once

#include "cpython/ref.h"

namespace fj {

struct NumpyCall {
  Ref<> function;       // what is called: it raises where NumPy's would warn
  bool writes = false;  // into its first argument
  bool stacked = false;  // given arrays with more axes in front it gives a result for each index of these
  /// Python code that is traced for the derivative: pullback(cotangents, results, *arguments) gives a cotangent or None
  /// for each argument. The cotangent of one result is given, and None for the others. Null: there is none.
  PyObject* pullback = nullptr;
};

/// Null: not one of them. Good for ever.
const NumpyCall* find_numpy_call(PyObject* callable);
/// Python code that is traced in the place of the function; null: the function's own. Borrowed for ever.
PyObject* traced_instead(PyObject* callable);
/// Python code that is traced in the place of the function, or method of ndarray, where it is derived or batched. It
/// returns NotImplemented for arguments it is not for. Null: there is none. Borrowed for ever.
PyObject* traced_when_transformed(PyObject* callable);
/// As an attribute of ndarray.
PyObject* ndarray_method(const char* name);

}  // namespace fj
