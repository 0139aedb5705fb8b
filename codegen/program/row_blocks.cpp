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

// Bytes between the steps below which a core's cache holds all of it anyway, and what a block may have.
constexpr std::int64_t kWorthBlocks = std::int64_t(3) << 19;
constexpr std::int64_t kBlockBytes = std::int64_t(1) << 20;
// The library copies the right matrix of each product into an order of its own; of a block of few rows, or of a matrix
// beyond the cache, that costs more than the cache saves (measured: gelu(x @ w) with w of 16 MiB takes 1.25 times as
// long in blocks of 256 rows).
constexpr std::int64_t kFewestRows = 128;
// Blocks for threads to share, if they have a few rows then. The same on every machine: the library's last bits may
// depend on it.
constexpr std::int64_t kManyBlocks = 32;
constexpr std::int64_t kFewRows = 16;
constexpr std::int64_t kRightBytes = std::int64_t(512) << 10;
// A bound for the search: steps of a chain, and the least that the first one has to make.
constexpr std::size_t kLongestChain = 8;
constexpr std::int64_t kLargeArray = kWorthBlocks / 4;

std::optional<std::int64_t> constant_product(const Dims& dims) { return product(dims).constant(); }

/// The largest value of an address apart from the items' part, if it is a plain one: of loops that run from 0 in steps
/// of 1.
std::optional<std::int64_t> span_inside(const Kernel& kernel, const Affine& address) {
  const auto start = address.constant.constant();
  if (!start || *start < 0) return std::nullopt;
  std::int64_t largest = *start;
  for (const auto& [variable, coefficient] : address.terms) {
    if (std::find(kernel.parallel.begin(), kernel.parallel.end(), variable) != kernel.parallel.end()) continue;
    const auto factor = coefficient.constant(), extent = kernel.variables[variable.index].extent.constant();
    if (!factor || !extent || *factor < 0 || kernel.variables[variable.index].chunk.valid()) return std::nullopt;
    largest += *factor * (*extent - 1);
  }
  return largest;
}

/// Item i is at [i * width, (i + 1) * width).
bool item_by_item(const Kernel& kernel, const Affine& address, std::int64_t width) {
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
  return inside && *inside < width;
}

bool stores_item_by_item(const Kernel& kernel, const std::vector<Statement>& body, int buffer, std::int64_t width) {
  return std::all_of(body.begin(), body.end(), [&](const Statement& statement) {
    if (is_store(statement.kind) && statement.buffer == buffer &&
        (statement.kind != StatementKind::Store || !item_by_item(kernel, statement.address, width)))
      return false;
    return stores_item_by_item(kernel, statement.body, buffer, width);
  });
}

class Chain {
 public:
  Chain(const LoweredProgram& program, std::size_t begin) : program_(program), begin_(begin), end_(begin) {}

  /// The next step; false if it does not belong to the chain, which is then complete.
  bool add() {
    const ProgramStep& step = program_.steps[end_];
    const auto items = items_of(step);
    if (!items || *items < 2 || step.commit) return false;
    StepTouches touched = touches(program_, step);
    for (auto* list : {&touched.reads, &touched.writes})
      std::erase_if(*list,
                    [&](int buffer) { return program_.buffers[std::size_t(buffer)].kind == BufferKind::Scratch; });
    for (int buffer : touched.writes)
      if (program_.buffers[std::size_t(buffer)].kind != BufferKind::Temporary &&
          program_.buffers[std::size_t(buffer)].kind != BufferKind::Output)
        return false;
    const std::int64_t rows = std::max(rows_, *items);
    if (rows % *items != 0 || (rows_ && rows % rows_ != 0) || (step.kind == StepKind::Matmul && *items != rows))
      return false;
    if (has_product_ && rows != rows_) return false;
    std::set<int> shared;
    for (const auto* list : {&touched.reads, &touched.writes})
      for (int buffer : *list)
        if (written_.contains(buffer)) shared.insert(buffer);
    if (end_ > begin_ && shared.empty()) return false;
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
    std::int64_t row_bytes = 0, together = 1;
    for (int buffer : written_) {
      if (!is_local(buffer)) continue;
      const ProgramBuffer& made = program_.buffers[std::size_t(buffer)];
      const std::int64_t bytes = *constant_product(made.shape) * std::int64_t(size_in_bytes(made.dtype));
      if (bytes % rows_ != 0) return std::nullopt;
      result.locals.push_back({buffer, bytes / rows_});
      row_bytes += bytes / rows_;
    }
    if (row_bytes * rows_ < kWorthBlocks) return std::nullopt;
    for (std::size_t s = begin_; s < end_; ++s) {
      const std::int64_t each = rows_ / *items_of(program_.steps[s]);
      result.rows_per_item.push_back(each);
      result.steps.push_back(program_.steps[s]);
      together = std::lcm(together, each);
    }
    const std::int64_t block =
        std::max(std::min(kBlockBytes / row_bytes, rows_ / kManyBlocks), has_product_ ? kFewestRows : kFewRows);
    result.rows_per_block = std::max((block / together) * together, together);
    // So few rows are as large as a cache: a block gains nothing there, and each thread keeps one.
    if (result.rows_per_block * row_bytes > 4 * kBlockBytes) return std::nullopt;
    return result.rows_per_block < rows_ ? std::optional(result) : std::nullopt;
  }

 private:
  const Kernel& kernel_of(const ProgramStep& step) const { return program_.kernels[std::size_t(step.kernel)]; }

  /// Work items, the last varying fastest; nullopt: a step that does not run by rows.
  std::optional<std::int64_t> items_of(const ProgramStep& step) const {
    if (step.kind == StepKind::Matmul) {
      const ProgramMatmul& plan = step.matmul;
      const auto k = plan.k.constant(), n = plan.n.constant();
      if (!k || !n || *k * *n * std::int64_t(size_in_bytes(plan.dtype)) > kRightBytes) return std::nullopt;
      return rows_of(plan);
    }
    if (step.kind != StepKind::Kernel || kernel_of(step).vector_is_parallel()) return std::nullopt;
    Dims extents;
    for (VarId variable : kernel_of(step).parallel) extents.push_back(kernel_of(step).variables[variable.index].extent);
    return constant_product(extents);
  }

  static std::optional<std::int64_t> rows_of(const ProgramMatmul& plan) {
    Dims rows = plan.batch;
    rows.push_back(plan.m);
    return constant_product(rows);
  }

  /// Whether the step touches the buffer, if at all, row by row.
  bool aligned(const ProgramStep& step, int buffer) const {
    const ProgramBuffer& touched = program_.buffers[std::size_t(buffer)];
    const auto elements = constant_product(touched.shape), items = items_of(step);
    if (!elements || *elements % *items != 0 || !(touched.strides == contiguous_strides(touched.shape))) return false;
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
    const std::int64_t width = *elements / *items;
    for (const Expr& expr : kernel.expressions)
      if (expr.kind == ExprKind::Load && expr.buffer == buffer && !item_by_item(kernel, expr.address, width))
        return false;
    return stores_item_by_item(kernel, kernel.body, buffer, width);
  }

  /// A temporary of the chain alone, and of no address but by rows.
  bool is_local(int buffer) const {
    if (program_.buffers[std::size_t(buffer)].kind != BufferKind::Temporary ||
        !constant_product(program_.buffers[std::size_t(buffer)].shape))
      return false;
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
  std::int64_t rows_ = 0;
  bool has_product_ = false;
  std::set<int> written_, read_;
};

bool makes_large_array(const LoweredProgram& program, const ProgramStep& step) {
  if (step.kind != StepKind::Kernel && step.kind != StepKind::Matmul) return false;
  const std::vector<int> writes = touches(program, step).writes;
  return std::any_of(writes.begin(), writes.end(), [&](int number) {
    const ProgramBuffer& buffer = program.buffers[std::size_t(number)];
    const auto elements = constant_product(buffer.shape);
    return buffer.kind == BufferKind::Temporary && elements &&
           *elements * std::int64_t(size_in_bytes(buffer.dtype)) >= kLargeArray;
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
