// The LLVM back end from end to end: schedule, lower, take each kernel out of the program, have each work compiled once
// (or found), and hand the code to a CompiledProgram.
#include <algorithm>
#include <optional>
#include <set>

#include "codegen/compile.h"
#include "codegen/compiler_counts.h"
#include "codegen/llvm/emit.h"
#include "codegen/llvm/kernel_compiler.h"
#include "codegen/llvm/machine.h"
#include "codegen/llvm/prepared_program.h"
#include "codegen/perf_map.h"
#include "codegen/loops/lower.h"
#include "codegen/program/batch_launches.h"
#include "codegen/program/in_place_writes.h"
#include "codegen/program/isolate_kernel.h"
#include "codegen/program/program_parts.h"
#include "codegen/program/row_blocks.h"
#include "codegen/schedule/schedule.h"
#include "runtime/background.h"
#include "runtime/base/error.h"
#include "runtime/base/phase.h"
#include "runtime/compiled_program.h"

namespace fj {

namespace {

// More bytes in arrays made early cost cache.
constexpr BatchLimits kOfThisProcess{50000, std::int64_t(64) << 10};

// Measured by benchmarks/kept_memory.py (glibc 2.36, LLVM 22).
constexpr std::size_t kLinkedBytes = 15800;  // beside an object file: rests of pages, the linker's tables
constexpr std::size_t kKernelBytes = 3200;   // once for a kernel: the loops that optimised code is made from

/// "f: mul, exp (model.py:12)".
std::string name_of(const Graph& graph, const loop::Kernel& kernel) {
  std::string text, line;
  for (const int i : kernel.nodes) {
    const Node& node = graph.nodes[std::size_t(i)];
    if (node.op == Op::constant || node.op == Op::broadcast) continue;
    text += (text.empty() ? " " : ", ") + std::string(name(node.op));
    if (node.location.line > 0)
      line = " (" + node.location.file.substr(node.location.file.find_last_of('/') + 1) + ":" +
             std::to_string(node.location.line) + ")";
  }
  return graph.name + ":" + (text.empty() ? " " + kernel.name : text) + line;
}

/// The memory of those among `codes` that no other program has. A kernel in quick code is expected to be used again: it
/// then has optimised code of about the same size as well. No part of the program refers to `codes` yet.
std::size_t memory_of(const std::vector<std::shared_ptr<KernelCode>>& codes) {
  std::size_t bytes = 0;
  std::set<const KernelCode*> counted;
  for (const auto& code : codes) {
    if (code.use_count() > std::count(codes.begin(), codes.end(), code) || !counted.insert(code.get()).second) continue;
    bytes += kKernelBytes + (code->improves() ? 2 : 1) * (kLinkedBytes + code->bytes());
  }
  return bytes;
}

}  // namespace

namespace {

int add_branch(PreparedProgram& program, const Graph& branch, const CompileOptions& options) {
  PreparedProgram prepared = prepare_program(branch, options);
  const std::size_t before = program.sources.size();
  std::move(prepared.sources.begin(), prepared.sources.end(), std::back_inserter(program.sources));
  for (const std::size_t source : prepared.source_of) program.source_of.push_back(before + source);
  if (!program.target) program.target = prepared.target;
  program.parts.branches.push_back(std::move(prepared.parts));
  return int(program.parts.branches.size()) - 1;
}

void add_branches(PreparedProgram& program, const Graph& graph, const CompileOptions& options) {
  for (ProgramStep& step : program.parts.steps) {
    if (step.kind != StepKind::Cond && step.kind != StepKind::Loop) continue;
    const Node& node = graph.nodes[std::size_t(step.node)];
    if (step.kind == StepKind::Loop) {
      step.loop.pass = add_branch(program, *node.bodies[0], options);
      continue;
    }
    step.cond.if_true = add_branch(program, *node.bodies[0], options);
    step.cond.if_false = add_branch(program, *node.bodies[1], options);
  }
}

}  // namespace

PreparedProgram prepare_program(const Graph& graph, const CompileOptions& options) {
  const Schedule groups = schedule(graph, options.float_conditions);
  LoweredProgram lowered = lower(graph, groups);
  write_in_place(lowered, options.float_conditions);

  std::vector<IsolatedKernel> alone;
  for (const loop::Kernel& kernel : lowered.kernels) alone.push_back(isolate(kernel, lowered, kKernelSymbol));
  const std::vector<int> work = share_work(alone);
  batch_launches(lowered, work, options.float_conditions, kOfThisProcess);
  run_in_blocks(lowered);

  PreparedProgram prepared{describe_program(graph, lowered), {}, {}};
  prepared.parts.float_conditions = options.float_conditions;
  prepared.parts.threads = options.threads;
  if (lowered.kernels.empty()) {
    add_branches(prepared, graph, options);
    return prepared;
  }
  prepared.target = [&] {
    const NoFork whole;
    return &target_for(options.cpu);
  }();
  std::vector<KernelSource>& sources = prepared.sources;
  std::vector<std::size_t>& source_of = prepared.source_of;
  source_of.resize(alone.size());
  for (std::size_t k = 0; k < alone.size(); ++k) {
    ProgramKernel described = describe_kernel(lowered.kernels[k]);
    described.buffers = std::move(alone[k].buffers);
    const double nanoseconds = launch_nanoseconds(described).value_or(0);
    const auto first = std::size_t(work[k]);
    if (first == k) {
      source_of[k] = sources.size();
      sources.push_back({std::move(alone[k].kernel), std::move(alone[k].program), nanoseconds});
      if (writes_perf_map()) sources.back().name = name_of(graph, lowered.kernels[k]);
    } else {
      source_of[k] = source_of[first];
      sources[source_of[k]].first_nanoseconds = std::max(sources[source_of[k]].first_nanoseconds, nanoseconds);
    }
    described.items_per_step = items_per_step(sources[source_of[k]].kernel, prepared.target->machine);
    described.unshared_speedup = unshared_speedup(sources[source_of[k]].kernel, prepared.target->machine);
    prepared.parts.kernels.push_back(std::move(described));
  }
  add_branches(prepared, graph, options);
  if (options.dump_ir) {
    prepared.parts.text += text(graph, groups);
    for (const loop::Kernel& kernel : lowered.kernels) prepared.parts.text += text(kernel);
    for (const KernelSource& source : sources) prepared.parts.text += kernel_listing(source, *prepared.target, options);
  }
  return prepared;
}

std::unique_ptr<Program> compile_llvm(const Graph& graph, const CompileOptions& options) {
  std::optional<PhaseTimer> timer(Phase::schedule);
  auto [parts, sources, source_of, target] = prepare_program(graph, options);
  timer.reset();
  if (!sources.empty()) {
    const auto codes = compile_kernels(std::move(sources), *target, options);
    if (options.code_bytes) *options.code_bytes += memory_of(codes);
    std::size_t number = 0;
    each_kernel(parts, [&](ProgramKernel& kernel) { kernel.code = codes[source_of[number++]]; });
    compiler_counts().shared += source_of.size() - codes.size();
  }
  return make_compiled_program(std::move(parts));
}

}  // namespace fj
