/// What sizes that are symbols can be: questions about them are answered by their bounds, or by this call and a guard.
#include "tracer/values/numbers/size_ranges.h"

#include <opcode.h>

#include <algorithm>

#include "tracer/interpreter/trace_run.h"
#include "tracer/values/numbers/computed_numbers.h"
#include "tracer/values/numbers/data_dependent_sizes.h"
#include "tracer/values/outside_objects.h"

namespace fj {

namespace {

/// More than programs write, and few enough that a loop of squarings ends in numbers rather than in a polynomial of
/// 2^40 terms.
bool is_short(const SymDim& expression) {
  constexpr std::size_t kTerms = 64, kDegree = 64;
  for (const auto& term : expression.terms())
    if (term.symbols.size() > kDegree) return false;
  return expression.terms().size() <= kTerms;
}

using Bound = std::optional<std::int64_t>;  // nullopt: none

/// What an expression can be, by the bounds of its symbols.
struct Bounds {
  Bound low, high;
};

Bound sum(Bound a, Bound b) {
  std::int64_t result = 0;
  return a && b && !__builtin_add_overflow(*a, *b, &result) ? Bound(result) : std::nullopt;
}

Bound product(Bound a, Bound b) {
  std::int64_t result = 0;
  return a && b && !__builtin_mul_overflow(*a, *b, &result) ? Bound(result) : std::nullopt;
}

Bounds product(const Bounds& a, const Bounds& b) {
  if (a.low && b.low && *a.low >= 0 && *b.low >= 0) return {product(a.low, b.low), product(a.high, b.high)};
  const Bound corners[] = {product(a.low, b.low), product(a.low, b.high), product(a.high, b.low),
                           product(a.high, b.high)};
  if (std::find(std::begin(corners), std::end(corners), std::nullopt) != std::end(corners)) return {};
  return {*std::min_element(std::begin(corners), std::end(corners)),
          *std::max_element(std::begin(corners), std::end(corners))};
}

constexpr int kDefinitions = 3;  // followed one within the other: quotients of sums of quotients are few

Bounds bounds_of(const Graph& graph, const SymDim& expression, int definitions = kDefinitions);

Bounds bounds_of(const Graph& graph, const Symbol& symbol, int definitions) {
  Bounds result{symbol.min > INT64_MIN ? Bound(symbol.min) : std::nullopt,
                symbol.max < INT64_MAX ? Bound(symbol.max) : std::nullopt};
  if (symbol.definition) {
    if (definitions == 0) return result;
    // Divisors are positive.
    const auto [low, high] =
        bounds_of(graph, symbol.definition->remainder ? symbol.definition->divisor : symbol.definition->dividend,
                  definitions - 1);
    if (!result.low && low) result.low = std::min<std::int64_t>(*low, 0);
    if (!result.high && high) result.high = std::max<std::int64_t>(*high, 0);
  } else if (symbol.min >= 0 && !result.high) {
    result.high = kLargestSize;
  }
  return result;
}

Bounds bounds_of(const Graph& graph, const SymDim& expression, int definitions) {
  Bounds result{0, 0};
  for (const auto& term : expression.terms()) {
    Bounds part{term.coefficient, term.coefficient};
    for (SymbolId id : term.symbols) part = product(part, bounds_of(graph, graph.symbols[id.index], definitions));
    result = {sum(result.low, part.low), sum(result.high, part.high)};
  }
  return result;
}

/// `expression (comparison) 0` where the bounds decide it.
std::optional<bool> known_sign(const Graph& graph, int comparison, const SymDim& expression) {
  const auto [low, high] = bounds_of(graph, expression);
  switch (comparison) {
    case Py_GE: case Py_LT:
      if (low && *low >= 0) return comparison == Py_GE;
      if (high && *high < 0) return comparison == Py_LT;
      return std::nullopt;
    case Py_GT: case Py_LE:
      if (low && *low > 0) return comparison == Py_GT;
      if (high && *high <= 0) return comparison == Py_LE;
      return std::nullopt;
    default:
      if ((low && *low > 0) || (high && *high < 0)) return comparison == Py_NE;
      return std::nullopt;
  }
}

/// The sum, difference or product of numbers of 64 bits as an expression; nullopt: its coefficients may have more bits.
std::optional<SymDim> combine(int op, const SymDim& a, const SymDim& b) {
  const Bound x = a.magnitude(), y = b.magnitude();
  if (!(op == NB_MULTIPLY ? product(x, y) : sum(x, y))) return std::nullopt;
  return op == NB_MULTIPLY ? a * b : op == NB_ADD ? a + b : a - b;
}

void guard_relation(TraceRun& t, const SymDim& a, int comparison, const SymDim& b) {
  Guard guard;
  guard.kind = GuardKind::Relation;
  guard.number = comparison;
  guard.left = a;
  guard.right = b;
  const Location where = t.location();
  guard.location = where.file + ":" + std::to_string(where.line);
  t.guards().add(std::move(guard));
}

}  // namespace

bool never_negative(const Graph& graph, const SymDim& expression) {
  for (const auto& term : expression.terms()) {
    if (term.coefficient < 0) return false;
    for (SymbolId symbol : term.symbols)
      if (graph.symbols[symbol.index].min < 0) return false;
  }
  return true;
}

std::int64_t hint(TraceRun& t, const SymDim& expression) {
  return fj::hint(expression, t.graph().symbols);
}

V TraceRun::integer(const SymDim& value) {
  if (auto constant = value.constant()) return integer(*constant);
  return std::make_shared<SymIntValue>(value);
}

std::optional<SymDim> TraceRun::int_expression(const V& value) {
  if (auto* symbolic = as<SymIntValue>(value)) return symbolic->expression;
  if (auto* number = as<NumberValue>(value); number && number->dtype == DType::I64) {
    if (V known = settled(*this, value); known != value) return int_expression(known);
    return size_of_number(number->contents);
  }
  auto* object = as<ObjectValue>(value);
  if (!object || !PyLong_CheckExact(object->object.get())) return std::nullopt;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(object->object.get(), &overflow);
  if (overflow) return std::nullopt;
  guard_value(*this, *object);
  return SymDim(number);
}

bool TraceRun::decide(const SymDim& a, int comparison, const SymDim& b) {
  if (a.is_constant() && b.is_constant()) return compare_numbers(a.value(), comparison, b.value());
  if (const auto difference = combine(NB_SUBTRACT, a, b)) {
    if (auto constant = difference->constant()) return compare_numbers(*constant, comparison, 0);
    // Sizes are never negative, and within the bounds the user gave: n >= 0 and n > -1 need no guard.
    if (auto known = known_sign(graph(), comparison, *difference)) return *known;
    if (graph().is_late(*difference)) return decide_late(*this, *difference, comparison);
  } else if (graph().is_late(a) || graph().is_late(b)) {
    break_graph(BreakReason::DataDependentShape, "`" + source_text() + "` asks for a size that depends on data");
  }
  const bool answer = compare_numbers(hint(*this, a), comparison, hint(*this, b));
  constexpr int kOpposite[] = {Py_GE, Py_GT, Py_NE, Py_EQ, Py_LE, Py_LT};
  guard_relation(*this, a, answer ? comparison : kOpposite[comparison], b);
  return answer;
}

bool TraceRun::prefers(const SymDim& a, int comparison, const SymDim& b) {
  if (graph().is_late(a) || graph().is_late(b)) return false;
  if (!request.edit) return decide(a, comparison, b);
  return compare_numbers(hint(*this, a), comparison, hint(*this, b));
}

std::optional<SymDim> exact(TraceRun& t, int op, const SymDim& a, const SymDim& b) {
  const auto result = combine(op, a, b);
  if (!result || !is_short(*result)) return std::nullopt;
  const auto [low, high] = bounds_of(t.graph(), *result);
  if (low && high) return result;
  if (t.graph().is_late(*result)) return std::nullopt;  // no guard can ask
  if (!result->evaluate_exactly(symbol_hints(t.graph().symbols))) return std::nullopt;
  // That it has no more than 64 bits is asked at each call: a side of a relation that has does not hold.
  guard_relation(t, *result, Py_LE, INT64_MAX);
  return result;
}

}  // namespace fj
