// Reads are loads among a kernel's expressions, writes stores among its statements. What may fail: checked indices,
// divisions of integers, library calls, unexpected counts, memory for scratch; and floating-point work where IEEE
// conditions are to be reported.
#include "codegen/program/step_effects.h"

#include <algorithm>

namespace fj {

using namespace loop;

namespace {

void collect_stores(const std::vector<Statement>& body, std::vector<int>& buffers) {
  for (const Statement& statement : body) {
    if (is_store(statement.kind)) add_once(buffers, statement.buffer);
    collect_stores(statement.body, buffers);
  }
}

bool divides_integers(const Expr& expr) {
  if (expr.kind != ExprKind::Pointwise || is_float(expr.operand_dtype)) return false;
  return expr.op == Op::floor_div || expr.op == Op::mod || expr.op == Op::trunc_div || expr.op == Op::fmod;
}

bool is_inexact(DType dtype) { return is_float(dtype) || is_complex(dtype); }

bool adds_floats(const LoweredProgram& program, const std::vector<Statement>& body) {
  return std::any_of(body.begin(), body.end(), [&](const Statement& statement) {
    return (statement.kind == StatementKind::Add && is_inexact(program.buffers[std::size_t(statement.buffer)].dtype)) ||
           adds_floats(program, statement.body);
  });
}

/// In expressions, into accumulators or into memory.
bool computes_floats(const LoweredProgram& program, const Kernel& kernel) {
  return std::any_of(kernel.expressions.begin(), kernel.expressions.end(),
                     [](const Expr& expr) {
                       return expr.kind == ExprKind::Pointwise &&
                              (is_inexact(expr.dtype) || is_inexact(expr.operand_dtype));
                     }) ||
         std::any_of(kernel.accumulators.begin(), kernel.accumulators.end(),
                     [](const AccumulatorInfo& info) { return is_inexact(info.dtype); }) ||
         adds_floats(program, kernel.body);
}

}  // namespace

StepTouches touches(const LoweredProgram& program, const ProgramStep& step) {
  StepTouches found;
  switch (step.kind) {
    case StepKind::Kernel: {
      const Kernel& kernel = program.kernels[std::size_t(step.kernel)];
      for (const Expr& expr : kernel.expressions)
        if (expr.kind == ExprKind::Load) add_once(found.reads, expr.buffer);
      collect_stores(kernel.body, found.writes);
      break;
    }
    case StepKind::Batch:
      for (int kernel : step.batch) {
        ProgramStep one;
        one.kernel = kernel;
        const StepTouches more = touches(program, one);
        for (int buffer : more.reads) add_once(found.reads, buffer);
        for (int buffer : more.writes) add_once(found.writes, buffer);
      }
      break;
    case StepKind::Blocks:
      for (const ProgramStep& part : step.blocks.steps) {
        const StepTouches more = touches(program, part);
        for (int buffer : more.reads) add_once(found.reads, buffer);
        for (int buffer : more.writes) add_once(found.writes, buffer);
      }
      break;
    case StepKind::Matmul: found = {{step.matmul.a, step.matmul.b}, {step.matmul.c}}; break;
    case StepKind::Count: found = {{step.count.source}, {step.count.result}}; break;
    case StepKind::Extern: found = {step.extern_call.operands, step.extern_call.results}; break;
    case StepKind::Cond:
      found = {step.cond.operands, step.cond.results};
      add_once(found.reads, step.cond.condition);
      break;
    case StepKind::Loop:
      found = {step.loop.given, step.loop.results};
      add_once(found.reads, step.loop.condition);
      break;
    case StepKind::Copies:
      for (const ProgramCopies::Part& part : step.copies.parts) add_once(found.reads, part.source);
      found.writes = {step.copies.target};  // what it does not write stays: whoever wrote it comes before
      break;
  }
  return found;
}

bool may_fail(const LoweredProgram& program, const ProgramStep& step, bool may_trap) {
  if (step.commit) return false;
  const auto kernel_may_fail = [&](int number) {
    const Kernel& kernel = program.kernels[std::size_t(number)];
    if (!(kernel.scratch_bytes == SymDim(0)) || (may_trap && computes_floats(program, kernel))) return true;
    return std::any_of(kernel.expressions.begin(), kernel.expressions.end(),
                       [](const Expr& expr) { return expr.kind == ExprKind::CheckedIndex || divides_integers(expr); });
  };
  switch (step.kind) {
    case StepKind::Kernel: return kernel_may_fail(step.kernel);
    case StepKind::Batch: return std::any_of(step.batch.begin(), step.batch.end(), kernel_may_fail);
    case StepKind::Matmul: return may_trap;
    case StepKind::Copies: return false;  // (it may be interrupted, as any step)
    case StepKind::Count: case StepKind::Extern: case StepKind::Blocks: case StepKind::Cond:
    case StepKind::Loop: return true;
  }
  return true;
}

}  // namespace fj
