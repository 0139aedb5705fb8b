/// Whether a loop that a trace has come to will run as a region (loop_region.h): then the trace ends at its header and
/// no pass is unrolled.
#pragma once

#include "tracer/interpreter/loops.h"

namespace fj {

class TraceRun;
struct Frame;

/// The frame stands before the loop's header. It works on elements of arrays, and a region can take a pass.
bool will_be_region(TraceRun& t, const Frame& frame, const Loop& loop);

}  // namespace fj
