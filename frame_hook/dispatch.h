/// Runs a compiled function: finds or makes a segment for where it stands, runs it, executes the instruction at which
/// it ended, and so on until the function returns or CPython takes over.
#pragma once

#include <Python.h>

#include "frame_hook/function_state.h"

namespace fj {

/// Calls `function` (a plain Python function) compiled.
PyObject* call_compiled(FunctionState& state, PyFunctionObject* function, PyObject* const* args, std::size_t nargsf,
                        PyObject* kwnames);

/// Runs a frame that CPython has just made and not begun, recursion being counted for it.
PyObject* run_entered_frame(FunctionState& state, PyThreadState* thread, FjFrame* frame);

}  // namespace fj
