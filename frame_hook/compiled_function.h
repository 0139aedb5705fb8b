/// framejit.CompiledFunction: what `framejit.compile` returns for a function. Calls go through call_compiled;
/// everything else (name, signature, attributes, being a method, pickling) is the wrapped function's.
#pragma once

#include <Python.h>

#include <memory>

#include "cpython/ref.h"
#include "frame_hook/dispatch.h"

namespace fj {

/// Makes the type; null with an error set on failure. Call once.
PyTypeObject* compiled_function_type();
bool is_compiled_function(PyObject* object);
/// A new wrapper of a plain Python function. `backend`: the user's callable or null.
Ref<> new_compiled_function(PyObject* function, Options options, Ref<> backend, Ref<> passes);
/// Of a CompiledFunction.
PyObject* wrapped_function(PyObject* compiled);
FunctionState& function_state(PyObject* compiled);

/// Drops the segments and events of every live CompiledFunction.
void reset_all();

}  // namespace fj
