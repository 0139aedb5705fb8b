/// What the runtime is told of a lowered program, whatever its kernels become.
#pragma once

#include "codegen/lower.h"
#include "runtime/compiled_program.h"

namespace fj {

/// Everything but the kernels.
ProgramParts describe_program(const Graph& graph, const LoweredProgram& program);

/// Everything but code and `buffers`.
ProgramKernel describe_kernel(const loop::Kernel& kernel);

}  // namespace fj
