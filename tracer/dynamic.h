/// Axes of arrays that the user has marked as changing: their sizes are symbols from the first trace on.
#pragma once

#include <Python.h>

#include <vector>

namespace fj {

/// Raises TypeError (false) for an object that can't be remembered.
bool mark_dynamic(PyObject* array, const std::vector<int>& axes);
/// Empty for an array without marks.
std::vector<int> marked_axes(PyObject* array);

}  // namespace fj
