/// Small questions about Python objects.
#pragma once

#include <Python.h>

#include <string>

namespace fj {

/// str(object); "" for null, or where it raises.
std::string text_of(PyObject* object);
/// Forgets the Python error that is set; its text.
std::string take_error();
/// Exactly int, float, complex, bool, str, bytes, None, Ellipsis: values whose operators are pure.
bool is_plain(PyObject* object);

}  // namespace fj
