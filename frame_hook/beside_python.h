/// Calls that Python computes too, in a child process, so that what tracing makes of a function is compared with the
/// function: `backend="verify"`, framejit/_beside_python.py.
#pragma once

#include <Python.h>

#include <cstddef>

#include "frame_hook/function_state.h"

namespace fj {

/// Whether this thread is in such a call, of which all that it calls is a part.
bool is_beside_python();

/// `call_compiled` in between. CheckError where the two differ.
PyObject* call_beside_python(FunctionState& state, PyFunctionObject* function, PyObject* const* args,
                             std::size_t nargsf, PyObject* kwnames);

}  // namespace fj
