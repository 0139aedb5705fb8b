/// Which values have to be in memory whatever the schedule.
#pragma once

#include <vector>

#include "graph_ir/graph.h"

namespace fj {

/// By ValueId: what is returned or written, and what eager fails or warns at although nobody reads the elements
/// concerned, unless a reader computes all of it anyway. With `conditions` that is also what can raise an IEEE
/// condition. Inputs are false.
std::vector<bool> demanded_values(const Graph& graph, bool conditions);

}  // namespace fj
