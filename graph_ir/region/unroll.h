/// Loops of few passes, whose number is a constant: `for k in range(3)`.
#pragma once

#include "graph_ir/region/region.h"

namespace fj::region {

/// Short innermost loops as their passes one after the other, each with its number as a constant; so the loop around
/// them is an innermost one, whose passes can be put in chunks (chunks.h). The region has loops' form (loop_form.h) and
/// keeps it.
void unroll_short_loops(Region& region);

}  // namespace fj::region
