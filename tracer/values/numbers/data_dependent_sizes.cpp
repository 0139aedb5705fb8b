/// Sizes that depend on data: how many elements of a mask are true, and ints that the program computes.
///
/// `positions` and `size_of_number` add the node that counts or reads them; its symbol is a size like any other, but
/// that no guard can ask for it: it has a value once the node has run. A number that is negative is no size: the call
/// runs eagerly. So a question about it (`decide`) is answered from what every value of it
/// allows. Where only 0 or 1 would be otherwise, the answer is the others', and the node says that its program is wrong
/// for those (`excluded`): such a call runs eagerly. Whatever else the size decides ends the graph. Where branches on
/// data are followed, a question is a branch like any other.
#include "tracer/values/numbers/data_dependent_sizes.h"

#include <algorithm>

#include "graph_ir/ops.h"
#include "graph_ir/print.h"
#include "runtime/base/error.h"
#include "tracer/frontends/builders.h"
#include "tracer/gradients/graph_transforms.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/state/placement.h"
#include "tracer/state/size_ledger.h"
#include "tracer/state/transform_ledger.h"
#include "tracer/values/numbers/operators.h"
#include "tracer/values/numbers/size_ranges.h"

namespace fj {

static bool follow_size(TraceRun& t, const SymDim& difference, int comparison);

namespace {

/// Whether two values are computed alike from the same: `x > 0` written twice. Their sizes are one size then.
class Likeness {
 public:
  explicit Likeness(const Graph& graph) : definition_(graph.value_count()) {
    for (const Node& node : graph.nodes)
      for (ValueId result : node.results) definition_[result.index] = &node;
  }

  bool alike(ValueId a, ValueId b) {
    if (a == b) return true;
    const Node *left = definition_[a.index], *right = definition_[b.index];
    if (!left || !right || left->op != right->op || left->op == Op::extern_call ||
        left->operands.size() != right->operands.size())
      return false;
    if (left->attrs.items().size() != right->attrs.items().size() || --patience_ < 0) return false;
    // By text, as -0.0 == 0.0.
    for (std::size_t i = 0; i < left->attrs.items().size(); ++i)
      if (text(left->attrs.items()[i].second) != text(right->attrs.items()[i].second)) return false;
    for (std::size_t i = 0; i < left->operands.size(); ++i)
      if (!alike(left->operands[i], right->operands[i])) return false;
    return true;
  }

 private:
  std::vector<const Node*> definition_;
  int patience_ = 1000;
};

/// The result of the node that finds a size, of 0 to `max`, in the operand.
ValueId counted(TraceRun& t, Op op, ValueId operand, const SymDim& max, std::int64_t hint) {
  auto& all = t.sizes->counted;
  if (auto known = all.find(operand); known != all.end()) return known->second;
  Likeness likeness(t.graph());
  for (auto [other, result] : all)
    if (likeness.alike(operand, other)) return all.emplace(operand, result).first->second;
  // Other back ends do not say what the sizes were.
  if (!t.request.generalise.builtin_backend || t.request.generalise.never_dynamic)
    break_graph(BreakReason::DataDependentShape, t.source_text());
  if (t.placement->on_device())
    break_graph(BreakReason::DataDependentShape, "`" + t.source_text() + "` has a size that Python waits for");
  if (depends_on_example(t, operand))
    break_graph(BreakReason::OneExample, "`" + t.source_text() + "` has a size of its own for each example");
  Symbol symbol;
  symbol.min = 0;
  // `decide` speaks for every number from 2 on: there is one.
  if (max.is_constant() && max.value() >= 2) symbol.max = max.value();
  symbol.hint = std::max<std::int64_t>(hint, 2);
  symbol.late = true;
  Attrs attrs;
  attrs.set("count", SymDim(t.graph().new_symbol(std::move(symbol))));
  attrs.set("excluded", std::vector<std::int64_t>());
  const ValueId result = t.graph().add(op, {operand}, std::move(attrs), t.location());
  all.emplace(operand, result);
  return result;
}

}  // namespace

ValueId TraceRun::positions(ValueId mask) {
  const SymDim elements = product(graph().type(mask).shape);
  return counted(*this, Op::nonzero, mask, elements, hint(*this, elements) / 2);
}

SymDim TraceRun::size_of_number(ValueId number, const SymDim& max, std::int64_t guess) {
  const ValueId result = counted(*this, Op::as_size, number, max, std::min(hint(*this, max) / 2, guess));
  for (const Node& node : graph().nodes)
    if (node.results[0] == result) return node.attrs.get<SymDim>("count");
  FJ_CHECK(false, "a size without a node");
  return {};
}

namespace {

/// The node that counts the symbol; null: it is computed from others.
Node* counter(Graph& graph, SymbolId symbol) {
  for (Node& node : graph.nodes)
    if (counts_size(node.op) && node.attrs.get<SymDim>("count") == SymDim(symbol)) return &node;
  return nullptr;
}

}  // namespace

bool follow_size(TraceRun& t, const SymDim& difference, int comparison) {
  for (const SizeLedger::Asked& asked : t.sizes->asked)
    if (asked.difference == difference && asked.comparison == comparison) return asked.answer;
  constexpr Op kComparisons[] = {Op::lt, Op::le, Op::eq, Op::ne, Op::gt, Op::ge};
  const ValueId size = size_value(t, difference, DType::I64);
  const ValueId condition = pointwise(t, kComparisons[comparison], {size, constant_like(t, size, 0)});
  // A guess could lead to an error that is none.
  const std::optional<bool> answer = outcome_of(t, condition);
  if (!answer)
    break_graph(BreakReason::DataDependentShape,
                "`" + t.source_text() + "` asks for a size that depends on what a library call gives");
  t.transforms->followed.push_back({condition, *answer});
  t.sizes->asked.push_back({difference, comparison, *answer});
  return *answer;
}

/// Whether the code asks in a `while` loop, and may leave it by the answer. Each pass has a size of its own, so that an
/// assumption would be made anew in each, and the loop be unrolled without end.
static bool steers_while_loop(const TraceRun& t) {
  const Frame& frame = *t.frames.back();
  const FjInstr& asking = frame.code->instrs[frame.executing];
  const bool decides = fj_opcode_rows[asking.opcode].flow == FJ_FLOW_Branch || asking.opcode == FJ_COMPARE_OP ||
                       asking.opcode == FJ_TO_BOOL || asking.opcode == FJ_UNARY_NOT;
  if (!decides || asking.opcode == FJ_FOR_ITER) return false;
  const std::vector<Loop> loops = loops_of(*frame.code);
  return std::any_of(loops.begin(), loops.end(), [&](const Loop& loop) {
    return loop.contains(frame.executing) && frame.code->instrs[loop.header].opcode != FJ_FOR_ITER;
  });
}

bool decide_late(TraceRun& t, const SymDim& difference, int comparison) {
  auto give_up = [&]() {
    break_graph(BreakReason::DataDependentShape, "`" + t.source_text() + "` asks for a size that depends on data");
  };
  if (t.request.follow) return follow_size(t, difference, comparison);
  const auto& terms = difference.terms();
  if (terms.size() == 1 && terms[0].symbols.size() > 1) {
    // A product of sizes, none of them negative: is it 0?
    const bool positive = terms[0].coefficient > 0;
    for (SymbolId symbol : terms[0].symbols)
      if (t.graph().symbols[symbol.index].min < 0) give_up();
    bool zero = false;
    for (SymbolId symbol : terms[0].symbols) zero = zero || t.decide(SymDim(symbol), Py_EQ, 0);
    return compare_numbers(zero ? 0 : positive ? 1 : -1, comparison, 0);
  }
  SymbolId symbol{UINT32_MAX};
  std::int64_t slope = 0, rest = 0;
  for (const SymDim::Term& term : terms) {
    if (term.symbols.empty()) {
      rest = term.coefficient;
    } else if (term.symbols.size() == 1 && slope == 0) {
      symbol = term.symbols[0];
      slope = term.coefficient;
    } else {
      give_up();
    }
  }
  Node* node = counter(t.graph(), symbol);
  const std::int64_t max = t.graph().symbols[symbol.index].max;
  if (!node || std::abs(slope) > (1 << 30) || std::abs(rest) > (std::int64_t(1) << 40)) give_up();
  // The answer of every number from 2 on.
  const std::int64_t most = std::min<std::int64_t>(std::max<std::int64_t>(max, 2), std::int64_t(1) << 62 >> 31);
  const std::int64_t low = slope * 2 + rest, high = slope * most + rest;
  const bool answer = compare_numbers(low, comparison, 0);
  if (comparison == Py_EQ || comparison == Py_NE) {
    const bool between = (low <= 0 && high >= 0) || (low >= 0 && high <= 0);
    if (answer == (comparison == Py_EQ) || (between && rest % slope == 0)) give_up();
  } else if (compare_numbers(high, comparison, 0) != answer ||
             (max > most && compare_numbers(slope > 0 ? 1 : -1, comparison, 0) != answer)) {
    give_up();
  }
  auto excluded = node->attrs.get<std::vector<std::int64_t>>("excluded");
  const std::size_t known = excluded.size();
  for (std::int64_t few : {0, 1})
    if (few <= max && compare_numbers(slope * few + rest, comparison, 0) != answer &&
        std::find(excluded.begin(), excluded.end(), few) == excluded.end())
      excluded.push_back(few);
  if (excluded.size() > known && steers_while_loop(t)) give_up();
  std::sort(excluded.begin(), excluded.end());
  node->attrs.set("excluded", excluded);
  return answer;
}

}  // namespace fj
