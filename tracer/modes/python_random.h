/// The generators of Python's module random.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

/// A method of random.Random (python_random.cpp): see is_python_random_method. Null: of an object of another class.
V call_python_random(TraceRun& t, PyObject* callable, const std::vector<V>& positional, const Keywords& keywords);

}  // namespace fj
