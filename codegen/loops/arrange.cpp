// Arranging loops. `arrange` is the order of decisions; each is a function above it.
#include "codegen/loops/arrange.h"

#include <algorithm>
#include <map>
#include <optional>

#include "codegen/loops/unroll_and_jam.h"
#include "codegen/schedule/cost.h"
#include "runtime/base/error.h"

namespace fj {

using namespace loop;

namespace {

// A reduction with fewer rows than this is split over threads when it has more elements than a chunk holds. The
// partition depends on sizes alone, so results don't depend on the number of threads.
struct Splitting {
  std::int64_t few_rows;    // with so many rows there is enough to do at once
  std::int64_t chunk;       // elements
  std::int64_t length = 0;  // of a chunk along the first reduced loop; 0: what gives `chunk` elements
};
constexpr Splitting kLaneSplitting{32, 32768};
// A block takes a chunk. Of columns a thread takes a part of one, and it is columns times parts that have to fill the
// device.
constexpr Splitting kBlockSplitting{512, 4096};
constexpr Splitting kColumnSplitting{65536, 0, 64};

void for_each_address(Kernel& kernel, Body& body, const auto& visit) {
  for (Expr& expr : kernel.expressions)
    if (expr.kind == ExprKind::Load || expr.kind == ExprKind::Position) visit(expr.address);
  for (auto& stage : body.stages) visit(stage.index);
  for (auto& store : body.stores) visit(store.address);
  for (auto& store : body.row_stores) visit(store.address);
}

/// Merges neighbouring loops where every address moves through both as through one: an array that lies contiguous is
/// one long dimension. Loops of one iteration disappear.
void merge_variables(Kernel& kernel, Body& body, std::vector<std::uint32_t>& list) {
  for (std::size_t i = list.size(); i-- > 0;) {
    if (!(kernel.variables[list[i]].extent == SymDim(1))) continue;
    const VarId gone{list[i]};
    for_each_address(kernel, body, [&](Affine& address) {
      std::erase_if(address.terms, [&](const auto& term) { return term.first == gone; });
    });
    list.erase(list.begin() + i);
  }
  for (std::size_t i = list.size(); i-- > 1;) {
    const VarId outer{list[i - 1]}, inner{list[i]};
    const SymDim extent = kernel.variables[inner.index].extent;
    bool together = true;
    for_each_address(kernel, body, [&](Affine& address) {
      const auto a = address.coefficient(outer), b = address.coefficient(inner);
      together &= a.value_or(SymDim()) == b.value_or(SymDim()) * extent;
    });
    if (!together) continue;
    for_each_address(kernel, body, [&](Affine& address) {
      std::erase_if(address.terms, [&](const auto& term) { return term.first == outer; });
    });
    kernel.variables[inner.index].extent = kernel.variables[outer.index].extent * extent;
    list.erase(list.begin() + i - 1);
  }
}

/// The loop for vector lanes: the one along which most memory is contiguous. What happens once a row, and what has
/// fewer elements than there are (a number for each channel, however many of these there are), only decides between
/// loops that are equally good for what happens once an element.
VarId choose_vector_variable(Kernel& kernel, Body& body, const std::vector<std::uint32_t>& candidates,
                             LoopTarget target) {
  // What is read across goes through shared memory there, what is written across does not.
  const int store_weight = target == LoopTarget::Threads && body.reductions.empty() ? 16 : 2;
  auto seldom = [&](const Affine& address) {
    for (std::uint32_t reduction : body.reductions)
      if (address.coefficient(VarId{reduction})) return false;
    if (!body.reductions.empty()) return true;
    return address.dynamic.empty() && std::any_of(candidates.begin(), candidates.end(), [&](std::uint32_t candidate) {
             return !address.coefficient(VarId{candidate});
           });
  };
  VarId best;
  std::pair<int, int> best_score;  // once an element, once a row
  for (std::uint32_t candidate : candidates) {
    const VarId variable{candidate};
    std::pair<int, int> score;
    auto rate = [&](const Affine& address, int weight, int& part) {
      const auto stride = address.coefficient(variable);
      if (!address.dynamic.empty()) part -= weight;
      else if (stride) part += *stride == SymDim(1) ? 2 * weight : -weight;
    };
    for (const Expr& expr : kernel.expressions)
      if (expr.kind == ExprKind::Load) rate(expr.address, 1, seldom(expr.address) ? score.second : score.first);
    for (const auto& store : body.stores) rate(store.address, store_weight, score.first);
    for (const auto& store : body.row_stores)
      rate(store.address, store_weight / 2, body.reductions.empty() ? score.first : score.second);
    // Lanes that a short loop leaves empty cost what they would have saved: contiguous memory along it is worth
    // nothing.
    const auto extent = kernel.variables[candidate].extent.constant();
    if (extent && *extent < 8) score.first = std::min(score.first, 0) - 4;
    if (!best.valid() || score >= best_score) best = variable, best_score = score;
  }
  return best;
}

/// The pass in which an expression is available: 0 without accumulators, else one more than the latest it reads.
std::vector<int> available_in_pass(const Kernel& kernel, const std::vector<int>& pass_of_accumulator) {
  std::vector<int> pass(kernel.expressions.size());
  for (std::size_t i = 0; i < kernel.expressions.size(); ++i) {  // operands come before users
    const Expr& expr = kernel.expressions[i];
    if (expr.kind == ExprKind::Accumulator) pass[i] = pass_of_accumulator[expr.accumulator] + 1;
    for_each_operand(expr, [&](ExprId operand) { pass[i] = std::max(pass[i], pass[operand.index]); });
  }
  return pass;
}

Statement store_statement(const Body::Store& store) {
  Statement statement{StatementKind::Store};
  statement.buffer = store.buffer;
  statement.address = store.address;
  statement.value = store.value;
  return statement;
}

Statement accumulator_statement(StatementKind kind, int accumulator) {
  Statement statement{kind};
  statement.accumulator = accumulator;
  return statement;
}

/// Loops over `variables`, outermost first, around `inner`.
std::vector<Statement> nest(const std::vector<std::uint32_t>& variables, std::vector<Statement> inner) {
  for (std::size_t i = variables.size(); i-- > 0;) {
    Statement loop{StatementKind::Loop};
    loop.variable = VarId{variables[i]};
    loop.body = std::move(inner);
    inner.clear();
    inner.push_back(std::move(loop));
  }
  return inner;
}

/// What the passes over a row do, before it becomes loops.
struct Pass {
  std::vector<Body::Store> stores;
  std::vector<Body::Stage> stages;
};

std::vector<Pass> assign_passes(const Kernel& kernel, const Body& body) {
  std::vector<int> pass_of_accumulator(kernel.accumulators.size());
  std::vector<Pass> result;
  auto at = [&](int pass) -> Pass& {
    if (pass >= int(result.size())) result.resize(std::size_t(pass) + 1);
    return result[pass];
  };
  std::vector<int> pass;
  for (const auto& stage : body.stages) {  // stages are in graph order
    pass = available_in_pass(kernel, pass_of_accumulator);
    pass_of_accumulator[stage.accumulator] = pass[stage.operand.index];
    at(pass[stage.operand.index]).stages.push_back(stage);
  }
  pass = available_in_pass(kernel, pass_of_accumulator);
  for (const auto& store : body.stores) at(pass[store.value.index]).stores.push_back(store);
  return result;
}

/// Work worth keeping for the next pass instead of doing it again, in simple vector instructions.
constexpr int kKeptCost = 8;

/// Expensive values of one pass that a later one needs again go through a row of scratch memory: softmax computes
/// each exponential once.
class ScratchRows {
 public:
  ScratchRows(Kernel& kernel, std::vector<Pass>& passes, const std::vector<std::uint32_t>& inner_loops,
              LoweredProgram& program)
      : kernel_(kernel), passes_(passes), program_(program) {
    SymDim stride = 1;
    for (std::size_t i = inner_loops.size(); i-- > 0;) {
      position_ = position_ + Affine(VarId{inner_loops[i]}) * stride;
      stride = stride * kernel.variables[inner_loops[i]].extent;
      inner_ |= 1ull << inner_loops[i];
    }
    elements_ = stride;
    measure();
  }

  void run() {
    for (std::size_t p = 0; p < passes_.size(); ++p) {
      std::map<std::uint32_t, ExprId> rewritten;
      for (auto& store : passes_[p].stores) store.value = rewrite(store.value, p, rewritten);
      for (auto& stage : passes_[p].stages) stage.operand = rewrite(stage.operand, p, rewritten);
      for (const auto& [original, here] : rewritten)
        if (!computed_.contains(original)) computed_[original] = {p, here};
    }
    for (const auto& [pass, store] : kept_) passes_[pass].stores.push_back(store);
  }

 private:
  struct Computed {
    std::size_t pass;
    ExprId expr;
  };

  void measure() {
    const std::size_t count = kernel_.expressions.size();
    cost_.resize(count);
    in_row_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      const Expr& expr = kernel_.expressions[i];
      cost_[i] = expression_cost(expr);
      for (const auto& [variable, coefficient] : expr.address.terms)
        in_row_[i] = in_row_[i] || (inner_ >> variable.index & 1);
      for (const auto& [dynamic, coefficient] : expr.address.dynamic) in_row_[i] = in_row_[i] || in_row_[dynamic.index];
      for (ExprId arg : expr.args) {
        cost_[i] = std::min(cost_[i] + cost_[arg.index], 1000);
        in_row_[i] = in_row_[i] || in_row_[arg.index];
      }
    }
  }

  ExprId rewrite(ExprId id, std::size_t pass, std::map<std::uint32_t, ExprId>& rewritten) {
    if (auto found = rewritten.find(id.index); found != rewritten.end()) return found->second;
    auto earlier = computed_.find(id.index);
    if (earlier != computed_.end() && earlier->second.pass < pass && cost_[id.index] >= kKeptCost &&
        in_row_[id.index]) {
      const ExprId loaded = keep(id, earlier->second);
      rewritten[id.index] = loaded;
      return loaded;
    }
    Expr expr = kernel_[id];
    map_operands(expr, [&](ExprId operand) { return rewrite(operand, pass, rewritten); });
    const ExprId here = kernel_.add(std::move(expr));
    rewritten[id.index] = here;
    return here;
  }

  ExprId keep(ExprId id, const Computed& computed) {
    auto [place, fresh] = buffers_.try_emplace(id.index, -1);
    const DType dtype = kernel_[id].dtype;
    if (fresh) {
      ProgramBuffer buffer;
      buffer.kind = BufferKind::Scratch;
      buffer.dtype = dtype;
      buffer.shape = {elements_};
      buffer.strides = {SymDim(1)};
      buffer.scratch_offset = kernel_.scratch_bytes;
      // A cache line between rows keeps them aligned well enough.
      kernel_.scratch_bytes =
          kernel_.scratch_bytes + elements_ * SymDim(std::int64_t(size_in_bytes(dtype))) + SymDim(64);
      program_.buffers.push_back(buffer);
      place->second = int(program_.buffers.size() - 1);
      kept_.push_back({computed.pass, {place->second, position_, computed.expr}});
    }
    Expr load;
    load.kind = ExprKind::Load;
    load.dtype = dtype;
    load.buffer = place->second;
    load.address = position_;
    return kernel_.add(std::move(load));
  }

  Kernel& kernel_;
  std::vector<Pass>& passes_;
  LoweredProgram& program_;
  Affine position_;
  SymDim elements_;
  std::uint64_t inner_ = 0;
  std::vector<int> cost_;
  std::vector<bool> in_row_;
  std::map<std::uint32_t, Computed> computed_;
  std::map<std::uint32_t, int> buffers_;
  std::vector<std::pair<std::size_t, Body::Store>> kept_;
};

/// Passes over the row, each with the reductions and stores that are ready, then what is stored once a row.
std::vector<Statement> pass_statements(const Body& body, const std::vector<Pass>& passes,
                                       const std::vector<std::uint32_t>& inner_loops) {
  std::vector<Statement> result;
  for (const Pass& pass : passes) {
    std::vector<Statement> inner;
    for (const auto& store : pass.stores) inner.push_back(store_statement(store));
    for (const auto& stage : pass.stages) {
      result.push_back(accumulator_statement(StatementKind::Initialise, stage.accumulator));
      Statement update = accumulator_statement(StatementKind::Update, stage.accumulator);
      update.value = stage.operand;
      update.address = stage.index;
      inner.push_back(std::move(update));
    }
    for (Statement& statement : nest(inner_loops, std::move(inner))) result.push_back(std::move(statement));
  }
  for (const auto& store : body.row_stores) result.push_back(store_statement(store));
  return result;
}

/// Nanoseconds on one core for what an expression does, for the decision about threads.
double nanoseconds_of(const Expr& expr) {
  if (expr.kind == ExprKind::Load) return 0.1;
  return kNanosecondsOfCost * expression_cost(expr);
}

/// Drops expressions that rewriting left without a use.
void compact(Kernel& kernel) {
  std::vector<Expr> old = std::move(kernel.expressions);
  Kernel fresh;
  std::map<std::uint32_t, ExprId> moved;
  auto move = [&](auto&& self, ExprId id) -> ExprId {
    if (auto found = moved.find(id.index); found != moved.end()) return found->second;
    Expr expr = old[id.index];
    map_operands(expr, [&](ExprId operand) { return self(self, operand); });
    return moved[id.index] = fresh.add(std::move(expr));
  };
  auto visit = [&](auto&& self, std::vector<Statement>& body) -> void {
    for (Statement& statement : body) {
      if (statement.value.valid()) statement.value = move(move, statement.value);
      if (statement.predicate.valid()) statement.predicate = move(move, statement.predicate);
      for (auto& [dynamic, coefficient] : statement.address.dynamic) dynamic = move(move, dynamic);
      self(self, statement.body);
    }
  };
  visit(visit, kernel.body);
  kernel.expressions = std::move(fresh.expressions);
}

/// `repeats`: how often an item runs its loops over `variables`.
void finish(Kernel kernel, const std::vector<std::uint32_t>& variables, std::int64_t repeats, LoweredProgram& program) {
  compact(kernel);
  kernel.nanoseconds_per_element = 0.1;
  for (const Expr& expr : kernel.expressions) kernel.nanoseconds_per_element += nanoseconds_of(expr);
  kernel.elements_per_item = SymDim(repeats);
  for (std::uint32_t variable : variables)
    if (std::find(kernel.parallel.begin(), kernel.parallel.end(), VarId{variable}) == kernel.parallel.end())
      kernel.elements_per_item = kernel.elements_per_item * kernel.variables[variable].extent;
  ProgramStep step;
  step.kind = StepKind::Kernel;
  step.kernel = int(program.kernels.size());
  program.kernels.push_back(std::move(kernel));
  program.steps.push_back(std::move(step));
}

std::vector<std::uint32_t> all_of(const Body& body) {
  std::vector<std::uint32_t> variables = body.rows;
  variables.insert(variables.end(), body.reductions.begin(), body.reductions.end());
  return variables;
}

void erase(std::vector<std::uint32_t>& list, VarId variable) { std::erase(list, variable.index); }

SymDim quotient(const SymDim& dividend, const SymDim& divisor, LoweredProgram& program);

/// A loop along which something is contiguous that lanes have to gather: a transposed operand. Blocks of it run
/// inside the vector loop, so that the cache lines a gather touches serve the next iterations too.
constexpr std::int64_t kGatherBlock = 16;

std::optional<VarId> gathered_along(const Kernel& kernel, const Body& body) {
  for (const Expr& expr : kernel.expressions) {
    if (expr.kind != ExprKind::Load) continue;
    const auto stride = expr.address.coefficient(kernel.vector_var);
    if (!stride || *stride == SymDim(1)) continue;
    for (std::uint32_t row : body.rows)
      if (expr.address.coefficient(VarId{row}) == SymDim(1) && !(VarId{row} == kernel.vector_var)) return VarId{row};
  }
  return std::nullopt;
}

/// Light work on a transposed operand computes a block of rows at once: what lanes would gather for each of them is
/// then loaded along the rows and transposed in registers. Every copy costs code, so only where there is little of it.
constexpr int kTransposedInstructions = 8;

std::vector<Jam> transposed_blocks(const Kernel& kernel, const Body& body) {
  if (!body.reductions.empty() || !kernel.accumulators.empty() || !kernel.vector_var.valid()) return {};
  const auto row = gathered_along(kernel, body);
  if (!row) return {};
  int work = 0;
  bool small = true;  // elements of which a register holds more than a block
  for (const Expr& expr : kernel.expressions) {
    small = small && (!is_float(expr.dtype) && size_in_bytes(expr.dtype) < 4);
    work += expr.kind == ExprKind::Pointwise ? expression_cost(expr) : 0;
    if (expr.predicate.valid() || !expr.address.dynamic.empty()) return {};
  }
  const auto extent = kernel.variables[row->index].extent.constant();
  if (small || work > kTransposedInstructions || (extent && *extent < kGatherBlock)) return {};
  return {{*row, kGatherBlock}};
}

/// Puts the parallel loops, the vector loop and the passes together.
void build(Kernel kernel, Body body, LoweredProgram& program) {
  const std::vector<std::uint32_t> variables = all_of(body);
  const bool vector_over_rows =
      std::find(body.rows.begin(), body.rows.end(), kernel.vector_var.index) != body.rows.end();
  if (program.target == LoopTarget::Threads) {
    // Every row is an item; neighbours along the vector loop are neighbouring threads.
    std::vector<std::uint32_t> rows = body.rows, loops = body.reductions;
    for (auto* list : {&rows, &loops}) {
      if (std::find(list->begin(), list->end(), kernel.vector_var.index) == list->end()) continue;
      erase(*list, kernel.vector_var);
      list->push_back(kernel.vector_var.index);
    }
    for (std::uint32_t row : rows) kernel.parallel.push_back(VarId{row});
    kernel.body = pass_statements(body, assign_passes(kernel, body), loops);
    return finish(std::move(kernel), variables, 1, program);
  }
  if (!vector_over_rows) {
    for (std::uint32_t row : body.rows) kernel.parallel.push_back(VarId{row});
    std::vector<std::uint32_t> loops = body.reductions;
    if (kernel.vector_var.valid()) {
      erase(loops, kernel.vector_var);
      loops.push_back(kernel.vector_var.index);
    }
    std::vector<Pass> passes = assign_passes(kernel, body);
    if (passes.size() > 1) ScratchRows(kernel, passes, loops, program).run();
    kernel.body = pass_statements(body, passes, loops);
  } else {
    std::vector<std::uint32_t> outer = body.rows;
    erase(outer, kernel.vector_var);
    if (const auto blocked = gathered_along(kernel, body);
        blocked && body.reductions.empty() && kernel.accumulators.empty()) {
      const SymDim blocks =
          quotient(kernel.variables[blocked->index].extent + SymDim(kGatherBlock - 1), SymDim(kGatherBlock), program);
      const VarId block = kernel.add_variable("block", blocks);
      kernel.variables[blocked->index].chunk = block;
      kernel.variables[blocked->index].chunk_length = SymDim(kGatherBlock);
      std::replace(outer.begin(), outer.end(), blocked->index, block.index);
      for (std::uint32_t row : outer) kernel.parallel.push_back(VarId{row});
      kernel.body =
          nest({kernel.vector_var.index, blocked->index}, pass_statements(body, assign_passes(kernel, body), {}));
      const std::vector<std::uint32_t> inner{kernel.vector_var.index};
      return finish(std::move(kernel), inner, kGatherBlock, program);
    }
    const bool alone = outer.empty();
    if (alone) outer = {kernel.vector_var.index};
    for (std::uint32_t row : outer) kernel.parallel.push_back(VarId{row});
    // Without reductions what is stored over the whole space is stored once a row too.
    std::vector<Statement> inner = pass_statements(body, assign_passes(kernel, body), body.reductions);
    kernel.body = alone ? std::move(inner) : nest({kernel.vector_var.index}, std::move(inner));
  }
  finish(std::move(kernel), variables, 1, program);
}

SymDim quotient(const SymDim& dividend, const SymDim& divisor, LoweredProgram& program) {
  if (dividend.is_constant() && divisor.is_constant()) return dividend.value() / divisor.value();
  Symbol symbol;
  symbol.name = "q" + std::to_string(program.symbols.size());
  symbol.definition = Symbol::Quotient{dividend, divisor, false};
  const std::vector<std::int64_t> hints = symbol_hints(program.symbols);
  const std::int64_t by = divisor.evaluate(hints);
  symbol.hint = by ? dividend.evaluate(hints) / by : 0;
  program.symbols.push_back(symbol);
  return SymDim(SymbolId{std::uint32_t(program.symbols.size() - 1)});
}

Splitting splitting(const Kernel& kernel, const Body& body, const LoweredProgram& program) {
  if (program.target == LoopTarget::Lanes) return kLaneSplitting;
  return std::find(body.rows.begin(), body.rows.end(), kernel.vector_var.index) != body.rows.end() ? kColumnSplitting
                                                                                                   : kBlockSplitting;
}

bool worth_splitting(const Kernel& kernel, const Body& body, const LoweredProgram& program) {
  if (body.stages.empty() || body.reductions.empty()) return false;
  for (const auto& stage : body.stages) {
    const Reduction reduction = kernel.accumulators[stage.accumulator].reduction;
    if (reduction == Reduction::ArgMax || reduction == Reduction::ArgMin) return false;
  }
  // One pass only.
  const std::vector<int> pass = available_in_pass(kernel, std::vector<int>(kernel.accumulators.size(), 0));
  for (const auto& stage : body.stages)
    if (pass[stage.operand.index] > 0) return false;
  for (const auto& store : body.stores)
    if (pass[store.value.index] > 0) return false;
  SymDim rows = 1, elements = 1;
  for (std::uint32_t row : body.rows) rows = rows * kernel.variables[row].extent;
  for (std::uint32_t reduction : body.reductions) elements = elements * kernel.variables[reduction].extent;
  const Splitting limits = splitting(kernel, body, program);
  if (hint(rows, program.symbols) >= limits.few_rows) return false;
  if (limits.length) return hint(elements, program.symbols) > 4 * limits.length;
  return hint(elements, program.symbols) > limits.chunk || !elements.is_constant();
}

/// Two kernels: partial results of chunks of the reduced space, then their combination and what is computed once a row.
void split(Kernel kernel, Body body, LoweredProgram& program) {
  const std::uint32_t first = body.reductions.front();
  SymDim inner = 1;
  for (std::size_t i = 1; i < body.reductions.size(); ++i) inner = inner * kernel.variables[body.reductions[i]].extent;
  for (std::uint32_t row : body.rows) inner = inner * kernel.variables[row].extent;
  const SymDim extent = kernel.variables[first].extent;
  const Splitting limits = splitting(kernel, body, program);
  const SymDim whole(limits.length ? limits.length : limits.chunk);
  const SymDim length =
      limits.length || inner == SymDim(1) ? whole : quotient(whole + inner, inner + SymDim(1), program);
  const SymDim chunks = quotient(extent + length - SymDim(1), length, program);

  Kernel last;  // the combining kernel: rows keep their numbers
  for (const auto& variable : kernel.variables) last.add_variable(variable.name, variable.extent);
  last.name = kernel.name + "_combine";
  const VarId chunk_there = last.add_variable("chunk", chunks);
  const VarId chunk = kernel.add_variable("chunk", chunks);
  kernel.variables[first].chunk = chunk;
  kernel.variables[first].chunk_length = length;

  Body partial = body;
  partial.row_stores.clear();
  partial.rows.insert(partial.rows.begin(), chunk.index);
  Body combine;
  combine.rows = body.rows;
  combine.reductions = {chunk_there.index};

  Dims shape{chunks};
  for (std::uint32_t row : body.rows) shape.push_back(kernel.variables[row].extent);
  const Dims strides = contiguous_strides(shape);
  for (const auto& stage : body.stages) {
    const auto& info = kernel.accumulators[stage.accumulator];
    program.buffers.push_back({BufferKind::Temporary, -1, info.dtype, shape, strides});
    const int buffer = int(program.buffers.size() - 1);
    Affine rows;
    for (std::size_t d = 0; d < body.rows.size(); ++d) rows = rows + Affine(VarId{body.rows[d]}) * strides[d + 1];
    Expr read;
    read.kind = ExprKind::Accumulator;
    read.dtype = info.dtype;
    read.accumulator = stage.accumulator;
    partial.row_stores.push_back({buffer, rows + Affine(chunk) * strides[0], kernel.add(read)});
    Expr load;
    load.kind = ExprKind::Load;
    load.dtype = info.dtype;
    load.buffer = buffer;
    load.address = rows + Affine(chunk_there) * strides[0];
    combine.stages.push_back({stage.accumulator, last.add(load), {}});
  }
  last.accumulators = kernel.accumulators;

  // What is computed from the results moves to the combining kernel.
  std::map<std::uint32_t, ExprId> moved;
  auto move = [&](auto&& self, ExprId id) -> ExprId {
    if (auto found = moved.find(id.index); found != moved.end()) return found->second;
    Expr expr = kernel[id];
    map_operands(expr, [&](ExprId operand) { return self(self, operand); });
    return moved[id.index] = last.add(std::move(expr));
  };
  for (const auto& store : body.row_stores) {
    Body::Store copy = store;
    copy.value = move(move, store.value);
    for (auto& [dynamic, coefficient] : copy.address.dynamic) dynamic = move(move, dynamic);
    combine.row_stores.push_back(copy);
  }

  kernel.vector_var = choose_vector_variable(kernel, partial, [&] {
    auto candidates = all_of(partial);
    erase(candidates, chunk);
    return candidates;
  }(), program.target);
  build(std::move(kernel), std::move(partial), program);
  last.vector_var = choose_vector_variable(last, combine, all_of(combine), program.target);
  build(std::move(last), std::move(combine), program);
}

/// Whole blocks of jammed rows are one kernel, rows that are left over another.
void jam_and_build(Kernel kernel, Body body, std::vector<Jam> jams, LoweredProgram& program) {
  if (jams.empty()) return build(std::move(kernel), std::move(body), program);
  const Jam jam = jams.front();
  jams.erase(jams.begin());
  const SymDim extent = kernel.variables[jam.row.index].extent;
  const SymDim blocks = quotient(extent, SymDim(jam.factor), program);
  const SymDim rest = extent - blocks * SymDim(jam.factor);
  if (!(rest == SymDim(0))) {
    Kernel last = kernel;
    Body last_body = body;
    last.name += "_rest";
    // How many is known for constant sizes only; else they are taken one by one.
    if (rest.is_constant())
      jam_rows(last, last_body, jam.row, blocks * SymDim(jam.factor), 1, rest.value());
    else
      jam_rows(last, last_body, jam.row, blocks * SymDim(jam.factor), rest, 1);
    jam_and_build(std::move(last), std::move(last_body), jams, program);
  }
  jam_rows(kernel, body, jam.row, 0, blocks, jam.factor);
  jam_and_build(std::move(kernel), std::move(body), std::move(jams), program);
}

}  // namespace

void arrange(Kernel kernel, Body body, LoweredProgram& program) {
  if (body.reductions.empty() && body.stages.empty()) {
    // Nothing is reduced: every store is one of a row.
    body.row_stores.insert(body.row_stores.begin(), body.stores.begin(), body.stores.end());
    body.stores.clear();
  }
  merge_variables(kernel, body, body.rows);
  merge_variables(kernel, body, body.reductions);
  kernel.vector_var = choose_vector_variable(kernel, body, all_of(body), program.target);
  if (worth_splitting(kernel, body, program)) return split(std::move(kernel), std::move(body), program);
  std::vector<Jam> jams;
  if (program.target == LoopTarget::Lanes) jams = transposed_blocks(kernel, body);
  if (jams.empty() && program.target == LoopTarget::Lanes) jams = choose_jams(kernel, body);
  jam_and_build(std::move(kernel), std::move(body), std::move(jams), program);
}

void arrange_scan(Kernel kernel, Body body, bool any_order, LoweredProgram& program) {
  const std::vector<std::uint32_t> variables = all_of(body);
  const std::uint32_t axis = body.reductions[0];
  const auto& stage = body.stages[0];
  std::vector<Statement> inner;
  Statement update = accumulator_statement(StatementKind::Update, stage.accumulator);
  update.value = stage.operand;
  inner.push_back(std::move(update));
  for (const auto& store : body.stores) inner.push_back(store_statement(store));
  std::vector<Statement> statements;
  statements.push_back(accumulator_statement(StatementKind::Initialise, stage.accumulator));
  for (Statement& statement : nest({axis}, std::move(inner))) statements.push_back(std::move(statement));

  // Vector lanes are independent scans, if there is a dimension for them inside the axis; else they scan together, if
  // they may.
  std::vector<std::uint32_t> outer = body.rows;
  if (outer.empty() || outer.back() < axis) {
    if (any_order) kernel.vector_var = VarId{axis};
  } else {
    kernel.vector_var = VarId{outer.back()};
    if (program.target == LoopTarget::Lanes) outer.pop_back();
    if (outer.empty())
      outer = {kernel.vector_var.index};
    else if (program.target == LoopTarget::Lanes)
      statements = nest({kernel.vector_var.index}, std::move(statements));
  }
  for (std::uint32_t row : outer) kernel.parallel.push_back(VarId{row});
  kernel.body = std::move(statements);
  finish(std::move(kernel), variables, 1, program);
}

void arrange_scatter(Kernel kernel, Body body, StatementKind kind, Body::Store store, ExprId predicate,
                     LoweredProgram& program) {
  Statement write{kind};
  write.buffer = store.buffer;
  write.address = store.address;
  write.value = store.value;
  write.predicate = predicate;
  std::vector<Statement> inner;
  inner.push_back(std::move(write));
  for (std::uint32_t row : body.rows) kernel.parallel.push_back(VarId{row});
  kernel.body = nest(body.reductions, std::move(inner));
  finish(std::move(kernel), all_of(body), 1, program);
}

ExprId has_elements(Kernel& kernel, const LoweredProgram& program, int buffer, const Affine& address) {
  auto position = [&](const SymDim& value) {
    Expr expr;
    expr.kind = ExprKind::Position;
    expr.dtype = DType::I64;
    expr.address = Affine(value);
    return kernel.add(std::move(expr));
  };
  auto combine = [&](Op op, DType operand, ExprId a, ExprId b) {
    Expr expr;
    expr.kind = ExprKind::Pointwise;
    expr.dtype = DType::Bool;
    expr.op = op;
    expr.operand_dtype = operand;
    expr.args = {a, b};
    return kernel.add(std::move(expr));
  };
  ExprId condition;
  for (const SymDim& size : program.buffers[buffer].shape) {
    bool known = size.is_constant() && size.value() > 0;
    for (std::size_t s = 0; s < program.symbols.size(); ++s)
      known |= program.symbols[s].min > 0 && size == SymDim(SymbolId{std::uint32_t(s)});
    for (const auto& [variable, coefficient] : address.terms) known |= kernel.variables[variable.index].extent == size;
    if (known) continue;
    const ExprId some = combine(Op::gt, DType::I64, position(size), position(SymDim()));
    condition = condition.valid() ? combine(Op::bit_and, DType::Bool, condition, some) : some;
  }
  return condition;
}

void copy_buffer(int source, int target, LoweredProgram& program) {
  Index identity;
  for (std::uint32_t d = 0; d < program.buffers[source].shape.size(); ++d) identity.push_back(Affine(VarId{d}));
  copy_into(source, target, identity, program);
}

void copy_into(int source, int target, const Index& at, LoweredProgram& program) {
  const ProgramBuffer& from = program.buffers[source];
  const ProgramBuffer& to = program.buffers[target];
  Kernel kernel;
  kernel.name = "copy" + std::to_string(program.kernels.size());
  Body body;
  Affine read, write;
  for (std::uint32_t d = 0; d < from.shape.size(); ++d) {
    const VarId variable = kernel.add_variable("i" + std::to_string(d), from.shape[d]);
    body.rows.push_back(d);
    read = read + Affine(variable) * from.strides[d];
  }
  for (std::size_t d = 0; d < at.size(); ++d) write = write + at[d] * to.strides[d];
  Expr load;
  load.kind = ExprKind::Load;
  load.dtype = from.dtype;
  load.buffer = source;
  load.address = read;
  load.predicate = has_elements(kernel, program, source, read);
  body.stores.push_back({target, write, kernel.add(load)});
  arrange(std::move(kernel), std::move(body), program);
}

}  // namespace fj
