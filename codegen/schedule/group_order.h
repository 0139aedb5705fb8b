/// The order in which the groups of a schedule run.
#pragma once

#include "codegen/schedule/schedule.h"

namespace fj {

/// Sorts `schedule.groups`, whose readers are known, and what is in each; `producer` and `readers` follow. The order is
/// that of the graph, which is the user's, unless another one needs less memory at one time.
void order_groups(const Graph& graph, Schedule& schedule);

}  // namespace fj
