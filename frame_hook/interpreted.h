/// For tests of the executor: a call whose first `count` instructions it runs; CPython goes on from there.
#pragma once

#include <Python.h>

namespace fj {

PyObject* run_interpreted(PyObject* function, PyObject* args, PyObject* kwargs, long count);

/// [(name, arg, arg2, offset, executing, resumable), ...] of a code object.
PyObject* decoded_instructions(PyObject* code);

}  // namespace fj
