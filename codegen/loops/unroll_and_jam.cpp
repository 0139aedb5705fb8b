// Jamming clones the expressions that depend on the row, once for each of the rows, with the row's number put in: what
// is common to them keeps one number, because expressions are hash-consed. The choice weighs what is shared against
// what is not.
#include "codegen/loops/unroll_and_jam.h"

#include <algorithm>
#include <map>

#include "codegen/schedule/cost.h"

namespace fj {

using namespace loop;

namespace {

// Accumulators of one kernel: with 16 vector registers 12 leave room for operands. Where lanes are rows, an accumulator
// is as many registers as the kernel's shape says (up to four), so fewer are better.
constexpr int kAccumulators = 12;
constexpr int kAccumulatorsOfLanes = 6;
// Least gain, and what a step may cost at most (in vector instructions) when it is repeated for every row.
constexpr double kLeastGain = 1.2;
constexpr double kLargestStep = 240;

double cost_of(const Kernel& kernel, const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::Load: {
      const auto stride = expr.address.coefficient(kernel.vector_var);
      if (!stride && expr.address.dynamic.empty()) return 0.25;  // one element for all lanes
      return stride == SymDim(1) && expr.address.dynamic.empty() ? 1 : 12;
    }
    case ExprKind::Pointwise: return expression_cost(expr);
    case ExprKind::CheckedIndex: return 3;
    default: return 0;
  }
}

/// For each expression, whether it changes with one of the variables; through accumulators too, whose final values may
/// have lower numbers than what is summed.
std::vector<bool> depends_on(const Kernel& kernel, const Body& body, const std::vector<VarId>& variables) {
  enum State : char { unknown, no, yes };
  std::vector<State> states(kernel.expressions.size(), unknown);
  auto depends = [&](auto&& self, ExprId id) -> bool {
    if (states[id.index] != unknown) return states[id.index] == yes;
    const Expr& expr = kernel[id];
    bool found = false;
    for (VarId variable : variables) found |= expr.address.coefficient(variable).has_value();
    found = found || any_operand(expr, [&](ExprId operand) { return self(self, operand); });
    if (expr.kind == ExprKind::Accumulator)
      for (const auto& stage : body.stages)
        found = found || (stage.accumulator == expr.accumulator && self(self, stage.operand));
    states[id.index] = found ? yes : no;
    return found;
  };
  std::vector<bool> result(states.size());
  for (std::uint32_t i = 0; i < states.size(); ++i) result[i] = depends(depends, ExprId{i});
  return result;
}

/// What the stages compute, directly or indirectly.
std::vector<bool> used_by_stages(const Kernel& kernel, const Body& body) {
  std::vector<bool> used(kernel.expressions.size());
  for (const auto& stage : body.stages) used[stage.operand.index] = true;
  for (std::size_t i = used.size(); i-- > 0;) {
    if (!used[i]) continue;
    const Expr& expr = kernel.expressions[i];
    for_each_operand(expr, [&](ExprId operand) { used[operand.index] = true; });
  }
  return used;
}

class Jamming {
 public:
  Jamming(Kernel& kernel, Body& body, VarId row, SymDim first, std::int64_t factor, bool gone)
      : kernel_(kernel), body_(body), row_(row), first_(std::move(first)), factor_(factor), gone_(gone),
        depends_(depends_on(kernel, body, {row})), accumulators_(std::size_t(factor)), cloned_(std::size_t(factor)) {}

  void run() {
    std::vector<Body::Stage> stages;
    for (const auto& stage : body_.stages) {
      if (!depends_[stage.operand.index]) {
        stages.push_back(stage);
        continue;
      }
      for (std::int64_t copy = 0; copy < factor_; ++copy) {
        if (copy > 0) kernel_.accumulators.push_back(kernel_.accumulators[stage.accumulator]);
        const int accumulator = copy == 0 ? stage.accumulator : int(kernel_.accumulators.size()) - 1;
        accumulators_[copy][stage.accumulator] = accumulator;
        stages.push_back({accumulator, clone(stage.operand, copy), moved(stage.index, copy)});
      }
    }
    body_.stages = std::move(stages);
    repeat(body_.stores);
    repeat(body_.row_stores);
  }

 private:
  void repeat(std::vector<Body::Store>& stores) {
    std::vector<Body::Store> repeated;
    for (const auto& store : stores)
      for (std::int64_t copy = 0; copy < factor_; ++copy)
        repeated.push_back({store.buffer, moved(store.address, copy), clone(store.value, copy)});
    stores = std::move(repeated);
  }

  Affine moved(const Affine& address, std::int64_t copy) {
    Affine result;
    result.constant = address.constant;
    for (const auto& [variable, coefficient] : address.terms) {
      if (variable == row_) {
        result.constant = result.constant + (first_ + SymDim(copy)) * coefficient;
        if (!gone_) result = result + Affine(row_) * (coefficient * SymDim(factor_));
      } else {
        result = result + Affine(variable) * coefficient;
      }
    }
    for (const auto& [dynamic, coefficient] : address.dynamic)
      result = result + Affine(clone(dynamic, copy)) * coefficient;
    return result;
  }

  ExprId clone(ExprId id, std::int64_t copy) {
    if (!depends_[id.index]) return id;
    if (auto found = cloned_[copy].find(id.index); found != cloned_[copy].end()) return found->second;
    Expr expr = kernel_[id];
    for (ExprId& arg : expr.args) arg = clone(arg, copy);
    if (expr.predicate.valid()) expr.predicate = clone(expr.predicate, copy);
    if (expr.kind == ExprKind::Accumulator) expr.accumulator = accumulators_[copy].at(expr.accumulator);
    if (expr.kind == ExprKind::Load || expr.kind == ExprKind::Position) expr.address = moved(expr.address, copy);
    return cloned_[copy][id.index] = kernel_.add(std::move(expr));
  }

  Kernel& kernel_;
  Body& body_;
  const VarId row_;
  const SymDim first_;
  const std::int64_t factor_;
  const bool gone_;
  const std::vector<bool> depends_;  // of the expressions there were
  std::vector<std::map<int, int>> accumulators_;
  std::vector<std::map<std::uint32_t, ExprId>> cloned_;
};

}  // namespace

std::vector<Jam> choose_jams(const Kernel& kernel, const Body& body) {
  // Passes over whole rows that store, or read a row again, want one row in the cache and not several.
  if (body.stages.empty() || body.reductions.empty() || !body.stores.empty()) return {};
  for (const auto& stage : body.stages) {
    const auto reduction = kernel.accumulators[stage.accumulator].reduction;
    if (reduction == loop::Reduction::ArgMax || reduction == loop::Reduction::ArgMin) return {};
  }
  const std::vector<bool> used = used_by_stages(kernel, body);
  for (std::size_t i = 0; i < used.size(); ++i)
    if (used[i] && kernel.expressions[i].kind == ExprKind::Accumulator) return {};
  std::vector<VarId> reductions;
  for (std::uint32_t variable : body.reductions) reductions.push_back(VarId{variable});
  if (std::find(body.rows.begin(), body.rows.end(), kernel.vector_var.index) != body.rows.end())
    reductions.push_back(kernel.vector_var);
  const std::vector<bool> inner = depends_on(kernel, body, reductions);
  const bool lanes_are_rows = reductions.size() > body.reductions.size();
  const int most = lanes_are_rows ? kAccumulatorsOfLanes : kAccumulators;

  std::vector<Jam> chosen;
  std::int64_t accumulators = std::int64_t(body.stages.size());
  std::vector<double> cost(kernel.expressions.size());
  double step = 0;
  for (std::size_t i = 0; i < cost.size(); ++i) {
    const bool counts = used[i] && inner[i];
    step += cost[i] = counts ? cost_of(kernel, kernel.expressions[i]) : 0;
  }
  // A product's multiplication is part of its addition.
  for (const auto& stage : body.stages)
    if (kernel.accumulators[stage.accumulator].contracts)
      step -= cost[stage.operand.index], cost[stage.operand.index] = 0;
  double updates = double(body.stages.size());
  while (chosen.size() < 2) {
    Jam best{VarId{}, 1};
    double best_gain = kLeastGain, best_step = 0;
    std::vector<bool> best_depends;
    for (std::uint32_t candidate : body.rows) {
      const VarId row{candidate};
      if (row == kernel.vector_var ||
          std::any_of(chosen.begin(), chosen.end(), [&](const Jam& jam) { return jam.row == row; }))
        continue;
      const auto extent = kernel.variables[candidate].extent.constant();
      if (extent && *extent < 2) continue;
      std::int64_t factor = most / accumulators;
      if (chosen.empty() && !lanes_are_rows)
        factor = std::min<std::int64_t>(factor, 4);  // leaves some for a second variable
      if (extent) {
        if (*extent < factor) factor = *extent;
        if (factor < 2) continue;
        const std::int64_t blocks = (*extent + factor - 1) / factor;
        const std::int64_t even = (*extent + blocks - 1) / blocks;
        // A factor that divides saves the kernel for the rest.
        while (factor * 3 > even * 2 && *extent % factor != 0) --factor;
        if (*extent % factor != 0) factor = even;
      }
      if (factor < 2) continue;
      const std::vector<bool> depends = depends_on(kernel, body, {row});
      double own = 0, shared = 0;
      for (std::size_t i = 0; i < cost.size(); ++i) (depends[i] ? own : shared) += cost[i];
      double own_updates = 0;
      for (const auto& stage : body.stages)
        own_updates += depends[stage.operand.index] ? updates / double(body.stages.size()) : 0;
      const double each = own + own_updates + shared / double(factor);
      const double gain = (own + own_updates + shared) / each;
      if (own * double(factor) + shared > kLargestStep) continue;
      if (gain > best_gain)
        best = {row, factor}, best_gain = gain, best_step = each * double(factor), best_depends = depends;
    }
    if (!best.row.valid()) break;
    chosen.push_back(best);
    accumulators *= best.factor;
    updates *= double(best.factor);
    for (std::size_t i = 0; i < cost.size(); ++i)
      if (best_depends[i]) cost[i] *= double(best.factor);
    if (best_step > kLargestStep || accumulators * 2 > most) break;
  }
  return chosen;
}

void jam_rows(Kernel& kernel, Body& body, VarId row, const SymDim& first, const SymDim& blocks, std::int64_t factor) {
  const bool gone = blocks == SymDim(1);
  Jamming(kernel, body, row, first, factor, gone).run();
  kernel.variables[row.index].extent = blocks;
  if (gone) std::erase(body.rows, row.index);
}

}  // namespace fj
