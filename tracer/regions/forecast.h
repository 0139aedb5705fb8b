/// Whether a loop that a trace has come to will run as a region (loop_region.h): then the trace ends at its header and
/// no pass is unrolled.
#pragma once

#include "tracer/interpreter/loops.h"

namespace fj {

class TraceRun;
struct Frame;

/// The frame stands before the loop's header. A region can take a pass; `elements`: it works on elements of arrays.
bool will_be_region(TraceRun& t, const Frame& frame, const Loop& loop, bool elements);

}  // namespace fj
