/// What the runtime is told of a lowered program, whatever its kernels become.
#pragma once

#include <optional>

#include "codegen/loops/lower.h"
#include "runtime/compiled_program.h"

namespace fj {

/// Everything but the kernels.
ProgramParts describe_program(const Graph& graph, const LoweredProgram& program);

/// Everything but code and `buffers`.
ProgramKernel describe_kernel(const loop::Kernel& kernel);

/// Nanoseconds of a launch as the cost model has it, if its sizes are known.
std::optional<double> launch_nanoseconds(const ProgramKernel& kernel);

}  // namespace fj
