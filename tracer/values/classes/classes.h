/// Calls of classes and of methods that are written in C.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

V call_builtin_method(TraceRun& t, BuiltinValue& method, std::vector<V> positional, Keywords keywords);
V call_type(TraceRun& t, const V& callable, PyTypeObject* type, std::vector<V> positional, Keywords keywords);
V new_instance(TraceRun& t, PyTypeObject* type, const std::vector<V>& positional, const Keywords& keywords);
V bound_method(TraceRun& t, const V& function, const V& self);

}  // namespace fj
