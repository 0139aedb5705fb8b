// Kernels know the nodes they compute (loop::Kernel::nodes), other steps the one they are: operations, lines and work
// are read from these, bytes from the buffers that the step reads and writes.
#include "codegen/program/step_accounts.h"

#include <algorithm>

#include "codegen/program/program_parts.h"
#include "graph_ir/ops.h"
#include "runtime/products/blas.h"

namespace fj {

namespace {

/// Work of a node on numbers with a fraction; what only moves or converts them is none. nullopt: not known.
std::optional<SymDim> float_operations(const Graph& graph, const Node& node) {
  const auto elements = [&](ValueId value) { return product(graph.type(value).shape); };
  if (node.op == Op::extern_call || !node.bodies.empty()) return std::nullopt;
  if (node.operands.empty() || !is_float(graph.type(node.operands.back()).dtype)) return SymDim(0);
  switch (node.op) {
    case Op::cast: return SymDim(0);
    case Op::fma: return SymDim(2) * elements(node.results[0]);
    case Op::matmul: return SymDim(2) * elements(node.results[0]) * graph.type(node.operands[0]).shape.back();
    case Op::scatter_add: return elements(node.operands[1]);
    default: break;
  }
  const Lowering lowering = row(node.op).lowering;
  if (lowering == Lowering::Pointwise) return elements(node.results[0]);
  return lowering == Lowering::Reduce || lowering == Lowering::Scan ? elements(node.operands[0]) : SymDim(0);
}

class Accounts {
 public:
  Accounts(const Graph& graph, const LoweredProgram& program) : graph_(graph), program_(program) {}

  std::vector<StepAccount> made() && {
    for (const ProgramStep& step : program_.steps) add(step, false);
    return std::move(accounts_);
  }

 private:
  void add(const ProgramStep& step, bool in_blocks) {
    if (step.kind == StepKind::Blocks) {
      for (const ProgramStep& part : step.blocks.steps) add(part, true);
      return;
    }
    StepAccount account;
    account.in_blocks = in_blocks;
    std::vector<int> reads, writes;
    switch (step.kind) {
      case StepKind::Kernel: kernel(step.kernel, account, reads, writes); break;
      case StepKind::Batch:
        for (int number : step.batch) kernel(number, account, reads, writes);
        account.count = int(step.batch.size());
        break;
      case StepKind::Matmul:
        account.kind = "matmul", account.name = blas_name();
        reads = {step.matmul.a, step.matmul.b}, writes = {step.matmul.c};
        break;
      case StepKind::Count:
        account.kind = "count", account.name = step.count.of_number ? "as_size" : "nonzero";
        reads = {step.count.source}, writes = {step.count.result};
        break;
      case StepKind::Copies:
        account.kind = "copy", account.name = "copies";
        for (const ProgramCopies::Part& part : step.copies.parts) reads.push_back(part.source);
        writes = {step.copies.target};
        break;
      case StepKind::Extern:
        account.kind = "call", account.name = step.extern_call.callee;
        reads = step.extern_call.operands, writes = step.extern_call.results;
        break;
      case StepKind::Cond:
        account.kind = "cond", account.name = "cond";
        reads = step.cond.operands, writes = step.cond.results;
        reads.push_back(step.cond.condition);
        break;
      case StepKind::Loop:
        account.kind = "loop", account.name = "loop";
        reads = step.loop.given, writes = step.loop.results;
        reads.push_back(step.loop.condition);
        break;
      case StepKind::Blocks: return;
    }
    if (step.node >= 0) node(step.node, account);
    if (!writes.empty()) account.dtype = name(program_.buffers[std::size_t(writes.back())].dtype);
    account.read = bytes(reads), account.written = bytes(writes);
    account.read_bytes = hint(account.read, program_.symbols);
    account.written_bytes = hint(account.written, program_.symbols);
    if (account.work) account.float_operations = hint(*account.work, program_.symbols);
    accounts_.push_back(std::move(account));
  }

  void kernel(int number, StepAccount& account, std::vector<int>& reads, std::vector<int>& writes) {
    const loop::Kernel& kernel = program_.kernels[std::size_t(number)];
    if (account.name.empty()) {  // without nodes: a copy, or what combines the parts of a reduction
      account.name = kernel.name;
      account.kind = kernel.nodes.empty() && kernel.accumulators.empty() ? "copy" : "loops";
    }
    for (int i : kernel.nodes) node(i, account);
    const ProgramKernel described = describe_kernel(kernel);
    reads.insert(reads.end(), described.reads.begin(), described.reads.end());
    writes.insert(writes.end(), described.writes.begin(), described.writes.end());
  }

  void node(int number, StepAccount& account) {
    const Node& node = graph_.nodes[std::size_t(number)];
    const std::optional<SymDim> work = float_operations(graph_, node);
    account.work = work ? std::optional(account.work.value_or(SymDim(0)) + *work) : std::nullopt;
    if (node.op != Op::constant && node.op != Op::broadcast && node.op != Op::extern_call)
      account.operations.emplace_back(name(node.op));
    if (node.location.line <= 0) return;
    std::string line = node.location.file + ":" + std::to_string(node.location.line);
    if (std::find(account.lines.begin(), account.lines.end(), line) == account.lines.end())
      account.lines.push_back(std::move(line));
    account.module = node.location.module;
  }

  SymDim bytes(std::vector<int> buffers) const {
    std::sort(buffers.begin(), buffers.end());
    buffers.erase(std::unique(buffers.begin(), buffers.end()), buffers.end());
    SymDim result(0);
    for (int number : buffers) {
      const ProgramBuffer& buffer = program_.buffers[std::size_t(number)];
      if (buffer.kind == BufferKind::Scratch) continue;  // in the cache of its thread
      result = result + product(buffer.shape) * SymDim(std::int64_t(size_in_bytes(buffer.dtype)));
    }
    return result;
  }

  const Graph& graph_;
  const LoweredProgram& program_;
  std::vector<StepAccount> accounts_;
};

}  // namespace

std::vector<StepAccount> account_steps(const Graph& graph, const LoweredProgram& program) {
  return Accounts(graph, program).made();
}

}  // namespace fj
