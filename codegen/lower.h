/// Lowering: a scheduled graph becomes numbered buffers and steps over them; each group becomes loop kernels.
#pragma once

#include <vector>

#include "codegen/loop_ir.h"
#include "codegen/schedule.h"
#include "runtime/compiled_program.h"

namespace fj {

struct LoweredProgram {
  std::vector<Symbol> symbols;  // the graph's and further derived ones
  std::vector<ProgramBuffer> buffers;
  std::vector<int> output_buffers;  // by graph output
  std::vector<ProgramStep> steps;
  std::vector<loop::Kernel> kernels;
};

LoweredProgram lower(const Graph& graph, const Schedule& schedule);

}  // namespace fj
