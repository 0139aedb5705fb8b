/// Calls of what has no row in a table.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

V make_partial(TraceRun& t, PyTypeObject* type, const std::vector<V>& positional, Keywords keywords);

}  // namespace fj
