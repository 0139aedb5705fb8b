/// NumPy's generators.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

/// A call of a generator's method, with the generator as its first argument, and the numbers that it draws.
ExternCall drawing_call(TraceRun& t, const std::string& name, PyObject* method, ObjectValue& generator);
ValueId draw(TraceRun& t, ExternCall call, DType dtype, const Dims& shape);
/// A method of NumPy's generators (numpy_random.cpp): see is_random_method.
V call_random(TraceRun& t, PyObject* callable, std::vector<V> positional, const Keywords& keywords);

}  // namespace fj
