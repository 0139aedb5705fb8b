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
#include "codegen/schedule.h"
#include "runtime/background.h"
#include "runtime/base/error.h"
#include "runtime/base/phase.h"
#include "runtime/compiled_program.h"

namespace fj {

namespace {

void collect_stores(const std::vector<loop::Statement>& body, ProgramKernel& kernel) {
  for (const loop::Statement& statement : body) {
    if (loop::is_store(statement.kind))
      kernel.writes.push_back(statement.buffer);
    collect_stores(statement.body, kernel);
  }
}

ProgramKernel describe(const loop::Kernel& kernel, const Machine& machine) {
  ProgramKernel result;
  result.name = kernel.name;
  result.items = 1;
  for (loop::VarId variable : kernel.parallel) result.items = result.items * kernel.variables[variable.index].extent;
  result.elements_per_item = kernel.elements_per_item;
  result.nanoseconds_per_element = kernel.nanoseconds_per_element;
  result.scratch_bytes = kernel.scratch_bytes;
  result.items_per_step = items_per_step(kernel, machine);
  for (const loop::Expr& expr : kernel.expressions)
    if (expr.kind == loop::ExprKind::Load) result.reads.push_back(expr.buffer);
  collect_stores(kernel.body, result);
  return result;
}

/// Nanoseconds of a launch as the cost model has it; 0 if sizes are not known yet.
double launch_nanoseconds(const ProgramKernel& kernel) {
  const auto items = kernel.items.constant(), elements = kernel.elements_per_item.constant();
  return items && elements ? double(*items) * double(*elements) * kernel.nanoseconds_per_element : 0;
}

std::string describe_steps(const LoweredProgram& program) {
  std::string out;
  for (const ProgramStep& step : program.steps) {
    switch (step.kind) {
      case StepKind::Kernel: {
        const loop::Kernel& kernel = program.kernels[step.kernel];
        out += kernel.name + ":";
        for (const loop::Expr& expr : kernel.expressions)
          if (expr.kind == loop::ExprKind::Pointwise) out += " " + std::string(name(expr.op));
        break;
      }
      case StepKind::Matmul: out += "matmul " + blas_name(); break;
      case StepKind::Extern: out += "call " + step.extern_call.callee; break;
    }
    out += step.commit ? " (commit)\n" : "\n";
  }
  return out;
}

}  // namespace

std::unique_ptr<Program> compile_llvm(const Graph& graph, const CompileOptions& options) {
  std::optional<PhaseTimer> timer(Phase::schedule);
  const Schedule groups = schedule(graph, options.float_conditions);
  LoweredProgram lowered = lower(graph, groups);
  write_in_place(lowered, options.float_conditions);

  ProgramParts parts;
  for (const Symbol& symbol : lowered.symbols) {
    ProgramSymbol converted;
    if (symbol.definition) converted = {true, symbol.definition->dividend, symbol.definition->divisor, symbol.definition->remainder};
    parts.symbols.push_back(converted);
  }
  parts.graph_symbols = graph.symbols.size();
  parts.text = describe_steps(lowered);
  if (!lowered.kernels.empty()) {
    const Target& target = [&]() -> const Target& {
      const NoFork whole;
      return target_for(options.cpu);
    }();
    std::vector<KernelSource> sources;
    for (const loop::Kernel& kernel : lowered.kernels) {
      ProgramKernel described = describe(kernel, target.machine);
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
  parts.buffers = std::move(lowered.buffers);
  parts.output_buffers = std::move(lowered.output_buffers);
  parts.steps = std::move(lowered.steps);
  parts.float_conditions = options.float_conditions;
  parts.threads = options.threads;
  return make_compiled_program(std::move(parts));
}

}  // namespace fj
