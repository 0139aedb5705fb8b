/// Arrays that no program works on, in words.
#pragma once

#include <string>

#include "tracer/interpreter/interpreter.h"

namespace fj {

/// Why the array is left to its library: "a tensor of device cuda:0: no CUDA kernels can run: ...".
std::string why_not_compiled(const TraceRun& tracer, PyObject* array);

}  // namespace fj
