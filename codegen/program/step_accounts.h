/// The steps of a lowered program as explain reports them.
#pragma once

#include <vector>

#include "codegen/loops/lower.h"
#include "runtime/program.h"

namespace fj {

/// In the order in which they run; steps in blocks of rows one by one. `graph` is the one that was lowered.
std::vector<StepAccount> account_steps(const Graph& graph, const LoweredProgram& program);

}  // namespace fj
