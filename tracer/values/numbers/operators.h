/// Operators and comparisons of Python values.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

V unary(TraceRun& t, int opcode, const V& a);
/// abs() of a NumPy scalar; null: another object.
V scalar_abs(TraceRun& t, const V& value);
/// `a.__add__(b)` and so on of C types; null: `name` is no operator's.
V operator_method(TraceRun& t, const std::string& name, const V& owner, const V& other);
bool operator_method_known(const std::string& name);
/// A method of the class that is Python code, bound; null: the class has none, or C's.
V python_method(TraceRun& t, const V& value, const char* name);
/// The int (float, str) that an object of a class derived from int is; else the value itself.
V number_part(TraceRun& t, const V& value);
/// operator.index(value) of what has Python code for it; else as number_part.
V index_number(TraceRun& t, const V& value);

}  // namespace fj
