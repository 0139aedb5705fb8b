// Looks at each commit copy: who computes its source, who else touches source and target.
#include "codegen/commit.h"

#include <algorithm>

namespace fj {

using namespace loop;

namespace {

bool divides_integers(const Expr& expr) {
  if (expr.kind != ExprKind::Pointwise || is_float(expr.operand_dtype)) return false;
  return expr.op == Op::floor_div || expr.op == Op::mod || expr.op == Op::trunc_div || expr.op == Op::fmod;
}

bool may_fail(const LoweredProgram& program) {
  for (const ProgramStep& step : program.steps)
    if (step.kind == StepKind::Extern || step.kind == StepKind::Nonzero) return true;
  for (const Symbol& symbol : program.symbols)
    if (symbol.definition && !symbol.definition->divisor.is_constant()) return true;
  for (const Kernel& kernel : program.kernels)
    for (const Expr& expr : kernel.expressions)
      if (expr.kind == ExprKind::CheckedIndex || divides_integers(expr)) return true;
  return false;
}

void collect_stores(std::vector<Statement>& body, int buffer, std::vector<Statement*>& found) {
  for (Statement& statement : body) {
    if (is_store(statement.kind) && statement.buffer == buffer) found.push_back(&statement);
    collect_stores(statement.body, buffer, found);
  }
}

/// Every statement but loops is a store, and all are in one body: an iteration computes all values before it stores the first.
bool stores_together(const std::vector<Statement>& body) {
  if (body.size() == 1 && body[0].kind == StatementKind::Loop) return stores_together(body[0].body);
  return std::all_of(body.begin(), body.end(), [](const Statement& statement) { return statement.kind == StatementKind::Store; });
}

bool writes(Kernel& kernel, int buffer) {
  std::vector<Statement*> found;
  collect_stores(kernel.body, buffer, found);
  return !found.empty();
}

bool reads(const Kernel& kernel, int buffer) {
  return std::any_of(kernel.expressions.begin(), kernel.expressions.end(),
                     [&](const Expr& expr) { return expr.kind == ExprKind::Load && expr.buffer == buffer; });
}

bool touches(const ProgramStep& step, std::vector<Kernel>& kernels, int buffer) {
  switch (step.kind) {
    case StepKind::Kernel: return reads(kernels[step.kernel], buffer) || writes(kernels[step.kernel], buffer);
    case StepKind::Matmul: return step.matmul.a == buffer || step.matmul.b == buffer || step.matmul.c == buffer;
    case StepKind::Nonzero: return step.nonzero.mask == buffer || step.nonzero.positions == buffer;
    case StepKind::Extern: return true;
  }
  return true;
}

/// The kernel may store to `target` what it now stores to `source`.
bool reads_only_what_it_writes(Kernel& kernel, int source, int target) {
  // Several passes over a row would read what an earlier one has overwritten.
  if (!kernel.accumulators.empty()) return false;
  std::vector<Statement*> stores;
  collect_stores(kernel.body, source, stores);
  if (stores.size() != 1) return false;
  const bool together = stores_together(kernel.body);
  for (const Expr& expr : kernel.expressions)
    if (expr.kind == ExprKind::Load && expr.buffer == target && !(together && expr.address == stores[0]->address)) return false;
  return stores[0]->kind == StatementKind::Store;
}

}  // namespace

void write_in_place(LoweredProgram& program, bool may_trap) {
  if (may_trap || may_fail(program)) return;
  for (std::size_t c = 0; c < program.steps.size();) {
    const ProgramStep copy = program.steps[c];
    auto in_place = [&] {
      if (!copy.commit || copy.kind != StepKind::Kernel) return false;
      Kernel& copying = program.kernels[copy.kernel];
      const int source = copying.expressions[0].buffer;
      int target = -1;
      for (int buffer = 0; buffer < int(program.buffers.size()); ++buffer)
        if (program.buffers[buffer].kind == BufferKind::Input && writes(copying, buffer)) target = buffer;
      if (target < 0 || program.buffers[source].kind != BufferKind::Temporary) return false;
      if (!(program.buffers[source].strides == program.buffers[target].strides)) return false;
      int producer = -1;
      for (int s = 0; s < int(c); ++s) {
        const ProgramStep& step = program.steps[s];
        if (step.commit) {
          if (touches(step, program.kernels, target) || touches(step, program.kernels, source)) return false;
          continue;
        }
        if (step.kind == StepKind::Kernel && writes(program.kernels[step.kernel], source)) {
          if (producer >= 0) return false;
          producer = s;
        } else if (step.kind != StepKind::Kernel && touches(step, program.kernels, source)) {
          return false;
        } else if (producer >= 0 && touches(step, program.kernels, target)) {
          return false;  // needs the old contents
        }
      }
      for (std::size_t s = c + 1; s < program.steps.size(); ++s)
        if (touches(program.steps[s], program.kernels, source)) return false;
      if (producer < 0 || !reads_only_what_it_writes(program.kernels[program.steps[producer].kernel], source, target)) return false;
      for (Kernel& kernel : program.kernels) {
        std::vector<Statement*> found;
        collect_stores(kernel.body, source, found);
        for (Statement* store : found) store->buffer = target;
        for (Expr& expr : kernel.expressions)
          if (expr.kind == ExprKind::Load && expr.buffer == source) expr.buffer = target;
      }
      return true;
    }();
    if (!in_place) {
      ++c;
      continue;
    }
    program.kernels.erase(program.kernels.begin() + copy.kernel);
    program.steps.erase(program.steps.begin() + std::ptrdiff_t(c));
    for (ProgramStep& step : program.steps)
      if (step.kind == StepKind::Kernel && step.kernel > copy.kernel) --step.kernel;
  }
}

}  // namespace fj
