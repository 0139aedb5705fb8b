/// Calls of what has no row in a table.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

/// A function of NumPy of arrays that are derived or batched, by the Python code there is for that; null: there is
/// none, or not for these arguments.
V call_transformed_numpy(TraceRun& t, const V& callable, const std::vector<V>& positional, const Keywords& keywords);

V make_partial(TraceRun& t, PyTypeObject* type, const std::vector<V>& positional, Keywords keywords);

/// A node of framejit.library_function.
bool is_library_function(PyObject* callable);

}  // namespace fj
