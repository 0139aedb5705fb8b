/// Axes of arrays that the user has marked as changing: their sizes are symbols from the first trace on.
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fj {

/// An axis whose size changes, and within which bounds: then no guard is needed for what follows from them. Axes of one
/// name that are of one size are taken to stay so.
struct DynamicAxis {
  int axis = 0;
  std::string name;             // "": none
  std::int64_t min = 0, max = INT64_MAX;
};

/// Raises TypeError (false) for an object that can't be remembered.
bool mark_dynamic(PyObject* array, const std::vector<DynamicAxis>& axes);
/// Empty for an array without marks.
std::vector<DynamicAxis> marked_axes(PyObject* array);

}  // namespace fj
