/// Sizes that depend on data.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

/// `difference (comparison) 0` for a size that depends on data: see data_dependent_sizes.cpp.
bool decide_late(TraceRun& t, const SymDim& difference, int comparison);

}  // namespace fj
