/// Arrays that no program works on, in words.
#pragma once

#include <string>

#include "tracer/interpreter/trace_run.h"

namespace fj {

/// Why the array is left to its library: "a tensor of device cuda:0: no CUDA kernels can run: ...".
std::string why_not_compiled(const TraceRun& tracer, PyObject* array);

/// The graph works on arrays of this device; breaks if it does on another's.
void place_graph(TraceRun& t, int device);
/// It reads this array.
void place_graph(TraceRun& t, const ArrayValue& array);
std::string refusal(const TraceRun& t, int device);                  // TraceRequest::refusal

}  // namespace fj
