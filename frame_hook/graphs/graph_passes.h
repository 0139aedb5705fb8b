/// The user's passes: Python functions that are given each graph as captured, and may edit it.
#pragma once

#include <Python.h>

#include <string>
#include <vector>

#include "segment/library_calls/recorded_call.h"
#include "segment/segment.h"

namespace fj {

/// What tracing has found beside the graph.
struct Traced {
  const GuardSet& guards;
  const SourceTable& sources;
  const FrameValues& values;
  const std::vector<RecordedCall>& calls;
};

/// Gives the graph of a piece to `passes`, a callable of framejit/_passes.py, with what the graph does not say: where its
/// inputs are found, what was decided while tracing, how results are made of its outputs. True: it gave back another
/// graph, which is the piece's from now on. Throws BackendFailure.
bool run_passes(const std::string& function, PyObject* passes, Segment& segment, const Traced& traced);

}  // namespace fj
