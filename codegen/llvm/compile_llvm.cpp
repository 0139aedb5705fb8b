// The LLVM back end from end to end: schedule, lower, emit all kernels of the program into one module (a module has
// a fixed cost of some 2 ms), compile, and hand the code to a CompiledProgram.
#include <algorithm>

#include "codegen/commit.h"
#include "codegen/compile.h"
#include "codegen/llvm/emit.h"
#include "codegen/llvm/jit.h"
#include "codegen/lower.h"
#include "codegen/schedule.h"
#include "runtime/base/error.h"
#include "runtime/compiled_program.h"

namespace fj {

namespace {

// Above this many expressions the lower code generation level keeps compiling under a second; its code is 1.1 to
// 1.3 times slower.
constexpr std::size_t kLargeProgram = 2000;

void collect_stores(const std::vector<loop::Statement>& body, ProgramKernel& kernel) {
  for (const loop::Statement& statement : body) {
    if (statement.kind == loop::StatementKind::Store || statement.kind == loop::StatementKind::Add)
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
  const Schedule groups = schedule(graph, options.float_conditions);
  LoweredProgram lowered = lower(graph, groups);
  write_in_place(lowered, options.float_conditions);
  std::size_t expressions = 0;
  for (const loop::Kernel& kernel : lowered.kernels) expressions += kernel.expressions.size();

  ProgramParts parts;
  for (const Symbol& symbol : lowered.symbols) {
    ProgramSymbol converted;
    if (symbol.definition) converted = {true, symbol.definition->dividend, symbol.definition->divisor, symbol.definition->remainder};
    parts.symbols.push_back(converted);
  }
  parts.graph_symbols = graph.symbols.size();
  parts.text = describe_steps(lowered);
  if (!lowered.kernels.empty()) {
    const auto target = make_target_machine(options.cpu, expressions > kLargeProgram);
    const Machine machine = describe(*target);
    auto context = std::make_unique<llvm::LLVMContext>();
    auto module = std::make_unique<llvm::Module>(graph.name, *context);
    module->setDataLayout(target->createDataLayout());
    module->setTargetTriple(target->getTargetTriple());
    for (const loop::Kernel& kernel : lowered.kernels) emit_kernel(kernel, lowered, machine, options.float_conditions, *module);
    std::shared_ptr<Code> code = compile_module(std::move(context), std::move(module), *target, options.dump_ir);
    for (const loop::Kernel& kernel : lowered.kernels) {
      ProgramKernel described = describe(kernel, machine);
      described.function = reinterpret_cast<KernelFunction>(code->address(kernel.name));
      parts.kernels.push_back(std::move(described));
    }
    if (options.dump_ir) {
      parts.text += text(graph, groups);
      for (const loop::Kernel& kernel : lowered.kernels) parts.text += text(kernel);
      parts.text += code->ir + code->assembly;
    }
    if (options.code_bytes) *options.code_bytes = code->bytes;
    parts.code = code;
  }
  parts.buffers = std::move(lowered.buffers);
  parts.output_buffers = std::move(lowered.output_buffers);
  parts.steps = std::move(lowered.steps);
  parts.float_conditions = options.float_conditions;
  parts.threads = options.threads;
  return make_compiled_program(std::move(parts));
}

}  // namespace fj
