// Every place of a kernel that holds a buffer number is renumbered: loads among the expressions, stores among the
// statements; and every place that holds a variable.
#include "codegen/program/isolate_kernel.h"

#include <algorithm>
#include <unordered_map>

namespace fj {

namespace {

class Renumbering {
 public:
  explicit Renumbering(std::vector<int>& buffers) : buffers_(buffers) {}

  void apply(int& buffer) {
    const auto found = std::find(buffers_.begin(), buffers_.end(), buffer);
    const int number = int(found - buffers_.begin());
    if (found == buffers_.end()) buffers_.push_back(buffer);
    buffer = number;
  }

  void apply(std::vector<loop::Statement>& body) {
    for (loop::Statement& statement : body) {
      if (statement.buffer >= 0) apply(statement.buffer);
      apply(statement.body);
    }
  }

 private:
  std::vector<int>& buffers_;
};

/// Loops that were merged or dropped leave their variables behind; without those the same work has the same numbers.
/// The order stays.
void drop_unused_variables(loop::Kernel& kernel) {
  std::vector<bool> used(kernel.variables.size());
  const auto note = [&](loop::VarId variable) {
    if (variable.valid()) used[variable.index] = true;
  };
  const auto note_address = [&](const loop::Affine& address) {
    for (const auto& [variable, coefficient] : address.terms) note(variable);
  };
  const auto note_body = [&](auto&& self, const std::vector<loop::Statement>& body) -> void {
    for (const loop::Statement& statement : body) {
      note(statement.variable);
      note_address(statement.address);
      self(self, statement.body);
    }
  };
  for (const loop::Expr& expr : kernel.expressions) note_address(expr.address);
  for (const loop::AccumulatorInfo& accumulator : kernel.accumulators) note(accumulator.scan);
  for (loop::VarId variable : kernel.parallel) note(variable);
  note(kernel.vector_var);
  note_body(note_body, kernel.body);
  for (std::size_t v = 0; v < kernel.variables.size(); ++v)
    if (used[v]) note(kernel.variables[v].chunk);

  std::vector<loop::VarId> number(used.size());
  std::vector<loop::Variable> kept;
  for (std::size_t v = 0; v < used.size(); ++v) {
    if (!used[v]) continue;
    number[v] = {std::uint32_t(kept.size())};
    kept.push_back(std::move(kernel.variables[v]));
  }
  kernel.variables = std::move(kept);
  const auto rename = [&](loop::VarId& variable) {
    if (variable.valid()) variable = number[variable.index];
  };
  const auto rename_address = [&](loop::Affine& address) {
    for (auto& [variable, coefficient] : address.terms) rename(variable);
  };
  const auto rename_body = [&](auto&& self, std::vector<loop::Statement>& body) -> void {
    for (loop::Statement& statement : body) {
      rename(statement.variable);
      rename_address(statement.address);
      self(self, statement.body);
    }
  };
  for (loop::Expr& expr : kernel.expressions) rename_address(expr.address);
  for (loop::AccumulatorInfo& accumulator : kernel.accumulators) rename(accumulator.scan);
  for (loop::VarId& variable : kernel.parallel) rename(variable);
  rename(kernel.vector_var);
  for (loop::Variable& variable : kernel.variables) rename(variable.chunk);
  rename_body(rename_body, kernel.body);
}

/// Buffers are the same memory to a kernel: elements of one type, at one place of the scratch memory if they lie there.
bool same_buffers(const IsolatedKernel& a, const IsolatedKernel& b) {
  const auto same = [](const ProgramBuffer& left, const ProgramBuffer& right) {
    const bool scratch = left.kind == BufferKind::Scratch;
    return left.dtype == right.dtype && scratch == (right.kind == BufferKind::Scratch) &&
           (!scratch || left.scratch_offset == right.scratch_offset);
  };
  const auto &left = a.program.buffers, &right = b.program.buffers;
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), same);
}

}  // namespace

std::vector<int> share_work(std::vector<IsolatedKernel>& kernels) {
  std::vector<int> first;
  std::unordered_multimap<std::size_t, int> known;
  for (int k = 0; k < int(kernels.size()); ++k) {
    loop::Kernel& kernel = kernels[std::size_t(k)].kernel;
    const std::size_t hash = loop::work_hash(kernel);
    const auto [begin, end] = known.equal_range(hash);
    const auto found = std::find_if(begin, end, [&](const auto& entry) {
      const IsolatedKernel& candidate = kernels[std::size_t(entry.second)];
      return loop::same_work(candidate.kernel, kernel) && same_buffers(candidate, kernels[std::size_t(k)]);
    });
    first.push_back(found == end ? k : found->second);
    if (found == end) {
      known.emplace(hash, k);
    } else if (kernel.vector_is_parallel()) {
      SymDim& extent = kernels[std::size_t(found->second)].kernel.variables[kernel.vector_var.index].extent;
      const auto ours = kernel.variables[kernel.vector_var.index].extent.constant(), theirs = extent.constant();
      if (!ours || (theirs && *theirs < *ours)) extent = kernel.variables[kernel.vector_var.index].extent;
    }
  }
  return first;
}

IsolatedKernel isolate(const loop::Kernel& kernel, const LoweredProgram& program, const std::string& name) {
  IsolatedKernel result;
  result.kernel = kernel;
  result.kernel.name = name;
  Renumbering renumbering(result.buffers);
  for (loop::Expr& expr : result.kernel.expressions)
    if (expr.buffer >= 0) renumbering.apply(expr.buffer);
  renumbering.apply(result.kernel.body);
  drop_unused_variables(result.kernel);
  for (int buffer : result.buffers) result.program.buffers.push_back(program.buffers[std::size_t(buffer)]);
  return result;
}

}  // namespace fj
