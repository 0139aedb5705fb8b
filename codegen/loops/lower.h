/// Lowering: a scheduled graph becomes numbered buffers and steps over them; each group becomes loop kernels.
#pragma once

#include <vector>

#include "codegen/loops/loop_ir.h"
#include "codegen/schedule/schedule.h"
#include "runtime/compiled_program.h"

namespace fj {

/// What loops are arranged for. Lanes: a few threads that each run vector lanes, with caches and scratch memory of
/// their own. Threads: thousands of threads over all rows at once; which of them does what is bound later
/// (cuda/bind.h).
enum class LoopTarget : std::uint8_t { Lanes, Threads };

struct LoweredProgram {
  LoopTarget target = LoopTarget::Lanes;
  std::vector<Symbol> symbols;  // the graph's and further derived ones
  std::vector<ProgramBuffer> buffers;
  std::vector<int> output_buffers;  // by graph output
  std::vector<ProgramStep> steps;
  std::vector<loop::Kernel> kernels;
};

LoweredProgram lower(const Graph& graph, const Schedule& schedule, LoopTarget target = LoopTarget::Lanes);

}  // namespace fj
