// The choice of lanes and unrolling, by the widest element, what the body costs and whether it has loops of its own.
#include "codegen/llvm/kernel_shape.h"

#include <algorithm>

#include "codegen/schedule/cost.h"

namespace fj {

using loop::Expr;
using loop::ExprKind;
using loop::Kernel;
using loop::Statement;
using loop::StatementKind;

namespace {

bool has_complex(const Kernel& kernel) {
  for (const Expr& expr : kernel.expressions)
    if (is_complex(expr.dtype) || (expr.kind == ExprKind::Pointwise && is_complex(expr.operand_dtype))) return true;
  return false;
}

// In vector instructions: what is added is little more than loaded.
constexpr int kLightUpdate = 6;

bool contains_loop(const std::vector<Statement>& body) {
  for (const Statement& statement : body)
    if (statement.kind == StatementKind::Loop) return true;
  return false;
}

const std::vector<Statement>* vector_body(const Kernel& kernel, const std::vector<Statement>& body) {
  for (const Statement& statement : body) {
    if (statement.kind != StatementKind::Loop) continue;
    if (statement.variable == kernel.vector_var) return &statement.body;
    if (const auto* found = vector_body(kernel, statement.body)) return found;
  }
  return nullptr;
}

/// What the updates of reductions compute in one step. A product that is contracted with its sum costs nothing of its
/// own.
int weight_of_updates(const Kernel& kernel) {
  std::vector<bool> used(kernel.expressions.size());
  int total = 0;
  auto visit = [&](auto&& self, const std::vector<Statement>& body) -> void {
    for (const Statement& statement : body) {
      self(self, statement.body);
      if (statement.kind != StatementKind::Update) continue;
      used[statement.value.index] = true;
      if (kernel.accumulators[statement.accumulator].contracts) total -= expression_cost(kernel[statement.value]);
    }
  };
  visit(visit, kernel.body);
  for (std::size_t i = used.size(); i-- > 0;) {
    if (!used[i]) continue;
    const Expr& expr = kernel.expressions[i];
    total += expression_cost(expr);
    for_each_operand(expr, [&](loop::ExprId operand) { used[operand.index] = true; });
  }
  return total;
}

bool initialises(const std::vector<Statement>& body) {
  return std::any_of(body.begin(), body.end(), [](const Statement& statement) {
    return statement.kind == StatementKind::Initialise || initialises(statement.body);
  });
}

void mark_values(const std::vector<Statement>& body, std::vector<bool>& marked) {
  for (const Statement& statement : body) {
    if (statement.value.valid()) marked[statement.value.index] = true;
    mark_values(statement.body, marked);
  }
}

/// By expression: whether each lane has a value of its own, or stores one. What is the same for a whole row is computed
/// once, of one number.
std::vector<bool> in_lanes(const Kernel& kernel) {
  const std::vector<Statement>* body = kernel.vector_is_parallel() ? &kernel.body : vector_body(kernel, kernel.body);
  // Reductions of the lanes' own: each lane is a row.
  const bool rows = !body || initialises(*body);
  std::vector<bool> result(kernel.expressions.size());
  for (std::size_t i = 0; i < result.size(); ++i) {  // operands come before users
    const Expr& expr = kernel.expressions[i];
    bool own = expr.address.coefficient(kernel.vector_var).has_value();
    if (expr.kind == ExprKind::Accumulator) own = rows || kernel.accumulators[expr.accumulator].scan.valid();
    result[i] = own || any_operand(expr, [&](loop::ExprId operand) { return bool(result[operand.index]); });
  }
  if (body) mark_values(*body, result);
  return result;
}

/// Whether every loop only updates reductions of columns that lie next to each other, of at least so many bytes of rows
/// together that no cache near the core holds them.
bool reduces_large_columns(const Kernel& kernel) {
  constexpr std::int64_t kLargeBytes = 512 << 10, kWideRow = 2048;
  if (!kernel.vector_is_parallel()) return false;
  for (const loop::AccumulatorInfo& info : kernel.accumulators)
    if (info.scan.valid() || info.contracts || info.dtype == DType::Bool || is_complex(info.dtype) ||
        info.reduction == loop::Reduction::ArgMax || info.reduction == loop::Reduction::ArgMin)
      return false;
  std::int64_t largest = 0;
  for (const Statement& statement : kernel.body) {
    if (statement.kind == StatementKind::Add || statement.kind == StatementKind::Put) return false;
    if (statement.kind != StatementKind::Loop) continue;
    const loop::Variable& rows = kernel.variables[statement.variable.index];
    if (rows.chunk.valid() || !std::all_of(statement.body.begin(), statement.body.end(),
                                           [](const Statement& inner) { return inner.kind == StatementKind::Update; }))
      return false;
    for (const Expr& expr : kernel.expressions) {
      const auto stride = expr.kind == ExprKind::Load ? expr.address.coefficient(statement.variable) : std::nullopt;
      const auto lane = expr.kind == ExprKind::Load ? expr.address.coefficient(kernel.vector_var) : std::nullopt;
      if (!stride || !lane || !(*lane == SymDim(1))) continue;
      const std::int64_t row_bytes =
          stride->is_constant() ? stride->value() * std::int64_t(size_in_bytes(expr.dtype)) : kWideRow;
      const std::int64_t count = rows.extent.is_constant() ? rows.extent.value() : kLargeBytes / kWideRow;
      if (row_bytes >= kWideRow && count >= 8 && count <= INT64_MAX / row_bytes)
        largest = std::max(largest, row_bytes * count);
    }
  }
  return largest >= kLargeBytes;
}

}  // namespace

bool contains_vector_loop(const Kernel& kernel, const std::vector<Statement>& body) {
  for (const Statement& statement : body)
    if (statement.kind == StatementKind::Loop &&
        (statement.variable == kernel.vector_var || contains_vector_loop(kernel, statement.body)))
      return true;
  return false;
}

bool sums_in_blocks(const loop::AccumulatorInfo& info) {
  return info.reduction == loop::Reduction::Sum && !info.scan.valid() && !info.contracts &&
         (is_float(info.dtype) || is_complex(info.dtype));
}

Shape choose_shape(const Kernel& kernel, const Machine& machine) {
  Shape shape;
  if (!kernel.vector_var.valid()) return shape;
  if (has_complex(kernel)) {
    const std::vector<Statement>* body = kernel.vector_is_parallel() ? &kernel.body : vector_body(kernel, kernel.body);
    const bool sums = body && std::all_of(kernel.accumulators.begin(), kernel.accumulators.end(), sums_in_blocks);
    const int accumulators = int(kernel.accumulators.size());
    if (sums && accumulators > 0 && weight_of_updates(kernel) <= kLightUpdate * accumulators) {
      const bool rows = contains_loop(*body);
      (rows ? shape.rows : shape.unroll) = 4;
      if (rows) shape.block = 16;
    }
    return shape;
  }
  std::size_t widest = 1;
  bool floats = false;
  int total = 0;
  const std::vector<bool> lanes_own = in_lanes(kernel);
  for (std::size_t i = 0; i < kernel.expressions.size(); ++i) {
    const Expr& expr = kernel.expressions[i];
    total += expression_cost(expr);
    if (!lanes_own[i]) continue;
    const bool half = is_half(expr.dtype);
    if (expr.kind == ExprKind::Load || expr.kind == ExprKind::Pointwise) {
      // Addresses and conditions of concatenations are I64 too, but they don't decide.
      const bool address = expr.dtype == DType::I64 && expr.kind != ExprKind::Load;
      if (!address) widest = std::max(widest, half ? 4 : size_in_bytes(expr.dtype));
    }
    floats |= is_float(expr.dtype);
  }
  if (floats) widest = std::max<std::size_t>(widest, 4);
  shape.lanes = std::max(2, machine.vector_bytes / int(widest));
  const std::vector<Statement>* body = kernel.vector_is_parallel() ? &kernel.body : vector_body(kernel, kernel.body);
  const bool loops_inside = body && contains_loop(*body);
  shape.rest_lanes = shape.lanes;
  const auto extent = kernel.variables[kernel.vector_var.index].extent.constant();
  // Registers for accumulators; a quarter is left for operands.
  const int registers = machine.vector_registers * 3 / 4, accumulators = int(kernel.accumulators.size());
  if (loops_inside) {
    // Lanes are independent reductions: wide vectors serve as the unrolling.
    int wide = kernel.accumulators.empty() ? 1 : 4;
    while (wide > 1 && (accumulators * wide > registers || weight_of_updates(kernel) * wide > 96 ||
                        (extent && *extent <= shape.lanes * wide / 2)))
      wide /= 2;
    shape.lanes *= wide;
    // A tree over the rows has a register for each of its levels.
    if (weight_of_updates(kernel) <= kLightUpdate * accumulators) {
      for (const int rows : {2, 4, 8})
        if (accumulators * wide * (rows / 2) <= registers) shape.rows = rows;
      shape.block = 16 * std::max(1, 4 / shape.rows);
    }
    constexpr int kColumnBytes = 16 << 10;  // of all accumulators: half a first cache
    if (accumulators > 0 && reduces_large_columns(kernel)) {
      std::size_t bytes = 0;
      for (const loop::AccumulatorInfo& info : kernel.accumulators) bytes += size_in_bytes(info.dtype);
      shape.columns = kColumnBytes / int(bytes) / shape.lanes * shape.lanes;
      if (extent && *extent <= shape.lanes) shape.columns = 0;
    }
  } else {
    shape.unroll = total <= 60 ? 4 : total <= 160 ? 2 : 1;
    // A sum has one accumulator for all copies.
    const bool sums =
        accumulators > 0 && std::all_of(kernel.accumulators.begin(), kernel.accumulators.end(), sums_in_blocks);
    while (shape.unroll > 1 && accumulators * shape.unroll > registers) shape.unroll /= 2;
    // Long light sums wait for the accumulator: it takes an addition's latency for all copies. More copies also mean
    // that fewer operations end blocks: a sum of 30000 squares took 2.3 us with 8, 2.1 with 16 (AVX2).
    const auto& loop = kernel.variables[kernel.vector_var.index];
    const auto length = loop.chunk.valid() ? loop.chunk_length.constant() : extent;
    const bool light = sums && total <= 60 && weight_of_updates(kernel) <= kLightUpdate * accumulators;
    if (light && accumulators <= 2 && length && *length >= 64 * shape.lanes)
      shape.unroll = *length >= 256 * shape.lanes && total <= kLightUpdate * accumulators ? 16 : 8;
  }
  while (extent && shape.unroll > 1 && *extent < shape.lanes * shape.unroll) shape.unroll /= 2;
  return shape;
}

}  // namespace fj
