// A chain grows step by step; `Chain::add` says whether the next step belongs to it, `aligned` whether a step touches a
// buffer row by row. What a chain makes for itself alone becomes local to a block.
#include "codegen/program/row_blocks.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "codegen/program/step_effects.h"

namespace fj {

using namespace loop;

namespace {

// Each block reads the right matrix of a product anew: one that does not fit the cache must be small beside what is
// kept out of memory (measured with a library's products: gelu(x @ w) with w of 16 MiB takes 1.25 times as long in
// blocks of 256 rows).
constexpr std::int64_t kRightBytes = std::int64_t(512) << 10;
constexpr std::int64_t kSmallBeside = 8;
// A bound for the search: steps of a chain, and the least that the first one has to make.
constexpr std::size_t kLongestChain = 8;
constexpr std::int64_t kLargeArray = std::int64_t(3) << 17;

bool is_size(const SymDim& value) {
  return std::all_of(value.terms().begin(), value.terms().end(),
                     [](const SymDim::Term& term) { return term.coefficient > 0; });
}

/// The largest value of an address apart from the items' part, if it is a plain one: of loops that run from 0 in steps
/// of 1.
std::optional<SymDim> span_inside(const Kernel& kernel, const Affine& address) {
  if (!is_size(address.constant)) return std::nullopt;
  SymDim largest = address.constant;
  for (const auto& [variable, coefficient] : address.terms) {
    if (std::find(kernel.parallel.begin(), kernel.parallel.end(), variable) != kernel.parallel.end()) continue;
    if (!is_size(coefficient) || kernel.variables[variable.index].chunk.valid()) return std::nullopt;
    largest = largest + coefficient * (kernel.variables[variable.index].extent - SymDim(1));
  }
  return largest;
}

/// Item i is at [i * width, (i + 1) * width).
bool item_by_item(const Kernel& kernel, const Affine& address, const SymDim& width) {
  if (!address.dynamic.empty()) return false;
  SymDim expected = width;
  for (std::size_t p = kernel.parallel.size(); p-- > 0;) {
    const Variable& variable = kernel.variables[kernel.parallel[p].index];
    if (variable.chunk.valid()) return false;
    if (!(variable.extent == SymDim(1)) && !(address.coefficient(kernel.parallel[p]).value_or(SymDim(0)) == expected))
      return false;
    expected = expected * variable.extent;
  }
  const auto inside = span_inside(kernel, address);
  if (!inside) return false;
  const auto room = (width - *inside).constant();
  return room && *room > 0;
}

bool stores_item_by_item(const Kernel& kernel, const std::vector<Statement>& body, int buffer, const SymDim& width) {
  return std::all_of(body.begin(), body.end(), [&](const Statement& statement) {
    if (is_store(statement.kind) && statement.buffer == buffer &&
        (statement.kind != StatementKind::Store || !item_by_item(kernel, statement.address, width)))
      return false;
    return stores_item_by_item(kernel, statement.body, buffer, width);
  });
}

/// How many times `b` is in `a`, if it is that often for any sizes.
std::optional<std::int64_t> times(const SymDim& a, const SymDim& b) {
  const auto quotient = a.divide_exactly(b);
  return quotient ? quotient->constant() : std::nullopt;
}

class Chain {
 public:
  Chain(const LoweredProgram& program, std::size_t begin) : program_(program), begin_(begin), end_(begin) {}

  /// The next step; false if it does not belong to the chain, which is then complete.
  bool add() {
    const ProgramStep& step = program_.steps[end_];
    const auto items = items_of(step);
    if (!items || items->constant().value_or(2) < 2 || step.commit) return false;
    StepTouches touched = touches(program_, step);
    for (auto* list : {&touched.reads, &touched.writes})
      std::erase_if(*list,
                    [&](int buffer) { return program_.buffers[std::size_t(buffer)].kind == BufferKind::Scratch; });
    for (int buffer : touched.writes)
      if (program_.buffers[std::size_t(buffer)].kind != BufferKind::Temporary &&
          program_.buffers[std::size_t(buffer)].kind != BufferKind::Output)
        return false;
    const bool begins = end_ == begin_;
    const SymDim rows = begins || times(*items, rows_) ? *items : rows_;
    if (!times(rows, *items) || (step.kind == StepKind::Matmul && !(*items == rows))) return false;
    if (has_product_ && !(rows == rows_)) return false;
    std::set<int> shared;
    for (const auto* list : {&touched.reads, &touched.writes})
      for (int buffer : *list)
        if (written_.contains(buffer)) shared.insert(buffer);
    if (!begins && shared.empty()) return false;
    for (int buffer : touched.writes)
      if (read_.contains(buffer)) shared.insert(buffer);
    for (int buffer : shared)
      for (std::size_t s = begin_; s <= end_; ++s)
        if (!aligned(program_.steps[s], buffer)) return false;
    rows_ = rows;
    has_product_ |= step.kind == StepKind::Matmul;
    written_.insert(touched.writes.begin(), touched.writes.end());
    read_.insert(touched.reads.begin(), touched.reads.end());
    ++end_;
    return true;
  }

  std::size_t end() const { return end_; }

  /// nullopt: not worth it.
  std::optional<ProgramBlocks> blocks() const {
    if (end_ - begin_ < 2) return std::nullopt;
    ProgramBlocks result;
    result.rows = rows_;
    result.has_product = has_product_;
    for (int buffer : written_) {
      if (!is_local(buffer)) continue;
      const ProgramBuffer& made = program_.buffers[std::size_t(buffer)];
      const SymDim bytes = product(made.shape) * SymDim(std::int64_t(size_in_bytes(made.dtype)));
      const auto of_row = bytes.divide_exactly(rows_);
      if (!of_row) return std::nullopt;
      result.locals.push_back({buffer, *of_row});
      result.row_bytes = result.row_bytes + *of_row;
    }
    if (result.locals.empty()) return std::nullopt;
    for (std::size_t s = begin_; s < end_; ++s) {
      const ProgramStep& step = program_.steps[s];
      const std::int64_t each = *times(rows_, *items_of(step));
      result.rows_per_item.push_back(each);
      result.steps.push_back(step);
      result.together = std::lcm(result.together, each);
      if (step.kind == StepKind::Matmul && !right_is_small(step.matmul, result.row_bytes)) return std::nullopt;
    }
    const auto rows = rows_.constant(), bytes = result.row_bytes.constant();
    if (rows && bytes && !result.rows_in_block(*rows, *bytes)) return std::nullopt;
    return result;
  }

 private:
  const Kernel& kernel_of(const ProgramStep& step) const { return program_.kernels[std::size_t(step.kernel)]; }

  /// Work items, the last varying fastest; nullopt: a step that does not run by rows.
  std::optional<SymDim> items_of(const ProgramStep& step) const {
    if (step.kind == StepKind::Matmul) return product(step.matmul.batch) * step.matmul.m;
    if (step.kind != StepKind::Kernel || kernel_of(step).vector_is_parallel()) return std::nullopt;
    Dims extents;
    for (VarId variable : kernel_of(step).parallel) extents.push_back(kernel_of(step).variables[variable.index].extent);
    return product(extents);
  }

  /// Beside rows of `row_bytes`. A matrix of sizes that vary is taken for small if those rows vary with it.
  static bool right_is_small(const ProgramMatmul& plan, const SymDim& row_bytes) {
    const SymDim right = plan.k * plan.n * SymDim(std::int64_t(size_in_bytes(plan.dtype)));
    const auto bytes = right.constant(), beside = (plan.m * row_bytes).constant();
    if (!bytes) return !row_bytes.is_constant();
    return *bytes <= kRightBytes || (beside && *bytes * kSmallBeside <= *beside);
  }

  /// Whether the step touches the buffer, if at all, row by row.
  bool aligned(const ProgramStep& step, int buffer) const {
    const ProgramBuffer& touched = program_.buffers[std::size_t(buffer)];
    const auto width = product(touched.shape).divide_exactly(*items_of(step));
    if (!width || !(touched.strides == contiguous_strides(touched.shape))) return false;
    if (step.kind == StepKind::Matmul) {
      const ProgramMatmul& plan = step.matmul;
      if (plan.b == buffer) return false;
      const auto by_rows = [&](int operand, const SymDim& columns, const Dims& strides) {
        Dims shape = plan.batch;
        shape.push_back(plan.m), shape.push_back(columns);
        return operand != buffer || strides == contiguous_strides(shape);
      };
      return by_rows(plan.a, plan.k, plan.a_strides) && by_rows(plan.c, plan.n, plan.c_strides);
    }
    const Kernel& kernel = kernel_of(step);
    for (const Expr& expr : kernel.expressions)
      if (expr.kind == ExprKind::Load && expr.buffer == buffer && !item_by_item(kernel, expr.address, *width))
        return false;
    return stores_item_by_item(kernel, kernel.body, buffer, *width);
  }

  /// A temporary of the chain alone, and of no address but by rows.
  bool is_local(int buffer) const {
    if (program_.buffers[std::size_t(buffer)].kind != BufferKind::Temporary) return false;
    for (std::size_t s = 0; s < program_.steps.size(); ++s) {
      if (s >= begin_ && s < end_) {
        if (!aligned(program_.steps[s], buffer)) return false;
        continue;
      }
      const StepTouches touched = touches(program_, program_.steps[s]);
      for (const auto* list : {&touched.reads, &touched.writes})
        if (std::find(list->begin(), list->end(), buffer) != list->end()) return false;
    }
    return true;
  }

  const LoweredProgram& program_;
  const std::size_t begin_;
  std::size_t end_;
  SymDim rows_;
  bool has_product_ = false;
  std::set<int> written_, read_;
};

bool makes_large_array(const LoweredProgram& program, const ProgramStep& step) {
  if (step.kind != StepKind::Kernel && step.kind != StepKind::Matmul) return false;
  const std::vector<int> writes = touches(program, step).writes;
  return std::any_of(writes.begin(), writes.end(), [&](int number) {
    const ProgramBuffer& buffer = program.buffers[std::size_t(number)];
    const auto elements = product(buffer.shape).constant();
    return buffer.kind == BufferKind::Temporary &&
           (!elements || *elements * std::int64_t(size_in_bytes(buffer.dtype)) >= kLargeArray);
  });
}

}  // namespace

void run_in_blocks(LoweredProgram& program) {
  std::vector<ProgramStep> steps;
  for (std::size_t s = 0; s < program.steps.size();) {
    Chain chain(program, s);
    const std::size_t most =
        makes_large_array(program, program.steps[s]) ? std::min(s + kLongestChain, program.steps.size()) : s;
    while (chain.end() < most && chain.add()) {
    }
    const auto blocks = chain.blocks();
    if (!blocks) {
      steps.push_back(program.steps[s++]);
      continue;
    }
    for (const auto& local : blocks->locals) program.buffers[std::size_t(local.buffer)].kind = BufferKind::Local;
    ProgramStep step;
    step.kind = StepKind::Blocks;
    step.blocks = *blocks;
    steps.push_back(std::move(step));
    s = chain.end();
  }
  program.steps = std::move(steps);
}

}  // namespace fj
