// The LLVM back end from end to end: schedule, lower, take each kernel out of the program, have them compiled (or found), and
// hand the code to a CompiledProgram.
#include <algorithm>
#include <optional>

#include "codegen/commit.h"
#include "codegen/compile.h"
#include "codegen/llvm/emit.h"
#include "codegen/isolate.h"
#include "codegen/llvm/kernel_compiler.h"
#include "codegen/llvm/machine.h"
#include "codegen/lower.h"
#include "codegen/program_parts.h"
#include "codegen/schedule.h"
#include "runtime/background.h"
#include "runtime/base/error.h"
#include "runtime/base/phase.h"
#include "runtime/compiled_program.h"

namespace fj {

namespace {

/// Nanoseconds of a launch as the cost model has it; 0 if sizes are not known yet.
double launch_nanoseconds(const ProgramKernel& kernel) {
  const auto items = kernel.items.constant(), elements = kernel.elements_per_item.constant();
  return items && elements ? double(*items) * double(*elements) * kernel.nanoseconds_per_element : 0;
}

}  // namespace

std::unique_ptr<Program> compile_llvm(const Graph& graph, const CompileOptions& options) {
  std::optional<PhaseTimer> timer(Phase::schedule);
  const Schedule groups = schedule(graph, options.float_conditions);
  LoweredProgram lowered = lower(graph, groups);
  write_in_place(lowered, options.float_conditions);

  ProgramParts parts = describe_program(graph, lowered);
  if (!lowered.kernels.empty()) {
    const Target& target = [&]() -> const Target& {
      const NoFork whole;
      return target_for(options.cpu);
    }();
    std::vector<KernelSource> sources;
    for (const loop::Kernel& kernel : lowered.kernels) {
      ProgramKernel described = describe_kernel(kernel);
      described.items_per_step = items_per_step(kernel, target.machine);
      IsolatedKernel alone = isolate(kernel, lowered, kKernelSymbol);
      described.buffers = std::move(alone.buffers);
      sources.push_back({std::move(alone.kernel), std::move(alone.program), launch_nanoseconds(described)});
      parts.kernels.push_back(std::move(described));
    }
    timer.reset();
    if (options.dump_ir) {
      parts.text += text(graph, groups);
      for (const loop::Kernel& kernel : lowered.kernels) parts.text += text(kernel);
      for (const KernelSource& source : sources) parts.text += kernel_listing(source, target, options);
    }
    auto codes = compile_kernels(std::move(sources), target, options);
    for (std::size_t k = 0; k < codes.size(); ++k) {
      if (options.code_bytes) *options.code_bytes += codes[k]->bytes();
      parts.kernels[k].code = std::move(codes[k]);
    }
  }
  parts.float_conditions = options.float_conditions;
  parts.threads = options.threads;
  return make_compiled_program(std::move(parts));
}

}  // namespace fj
