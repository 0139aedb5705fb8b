#include "tracer/values/numbers/constant_conditions.h"

#include <cmath>
#include <map>
#include <variant>

#include "graph_ir/evaluate/evaluate.h"
#include "graph_ir/ops.h"

namespace fj {
namespace {

/// The reference evaluator's result is the library's, and it reports nothing that NumPy would warn of.
bool is_exact(Op op, DType result) {
  const OpRow& known = row(op);
  if (op == Op::cast) return true;
  // Of integers these are exact and silent, but for a division by zero, which the evaluator refuses.
  if (is_integer(result) && (op == Op::floor_div || op == Op::mod || op == Op::reduce_prod)) return true;
  if (op == Op::dim || known.effect != OpEffect::Pure || known.accuracy == Accuracy::Bounded ||
      known.raises == Raises::Any)
    return false;
  switch (known.lowering) {
    case Lowering::Constant:
    case Lowering::Index:
    case Lowering::IndexMap:
    case Lowering::Pointwise:
    case Lowering::Reduce: return true;
    default: return false;
  }
}

/// Whether a conversion to `to` is of a number that it holds: of others the machine's instructions make different ones.
bool can_hold(DType to, const Scalar& number) {
  auto* pair = std::get_if<std::pair<double, double>>(&number);
  auto* real = pair ? &pair->first : std::get_if<double>(&number);
  if (!real) return true;
  const int bits = int(8 * size_in_bytes(to)) - is_signed_integer(to);
  const double value = std::trunc(*real), limit = std::ldexp(1.0, bits);
  return value < limit && value >= (is_signed_integer(to) ? -limit : 0.0);  // no NaN is
}

bool can_hold_all(DType to, const DenseArray& numbers) {
  for (std::int64_t i = 0; is_integer(to) && i < numbers.element_count(); ++i)
    if (!can_hold(to, numbers.scalar(i))) return false;
  return true;
}

class Evaluation {
 public:
  explicit Evaluation(const Graph& graph) : graph_(graph) {
    for (const Node& node : graph.nodes)
      for (ValueId result : node.results) definition_.emplace(result.index, &node);
  }

  const DenseArray* of(ValueId value) {
    if (auto known = values_.find(value.index); known != values_.end()) return &known->second;
    auto found = definition_.find(value.index);
    if (found == definition_.end() || --patience_ < 0 || !is_small(graph_.type(value)) ||
        !is_exact(found->second->op, graph_.type(value).dtype))
      return nullptr;
    if (!symbols_used(graph_, *found->second).empty()) return nullptr;
    std::vector<const DenseArray*> operands;
    for (ValueId operand : found->second->operands) {
      operands.push_back(of(operand));
      if (!operands.back()) return nullptr;
    }
    DenseArray result;
    if (found->second->op == Op::cast && !can_hold_all(graph_.type(value).dtype, *operands[0])) return nullptr;
    if (evaluate(graph_, *found->second, operands, {}, result) != kOk) return nullptr;
    return &values_.emplace(value.index, std::move(result)).first->second;
  }

  /// What the value is a view of, an expansion of one number for example.
  ValueId viewed(ValueId value) const {
    for (auto found = definition_.find(value.index); found != definition_.end();
         found = definition_.find(value.index)) {
      const Node& node = *found->second;
      if (row(node.op).lowering != Lowering::IndexMap || node.operands.size() != 1) break;
      value = node.operands[0];
    }
    return value;
  }

 private:
  static bool is_small(const Type& type) {
    std::int64_t count = 1;
    for (const SymDim& size : type.shape) {
      if (!size.is_constant()) return false;
      count *= size.value();
    }
    return count <= 64;
  }

  const Graph& graph_;
  std::map<std::uint32_t, const Node*> definition_;
  std::map<std::uint32_t, DenseArray> values_;
  int patience_ = 100;
};

template <class T>
std::optional<T> only_element(const Graph& graph, ValueId value) {
  Evaluation evaluation(graph);
  const DenseArray* found = evaluation.of(value);
  if (!found || found->element_count() != 1) return std::nullopt;
  const Scalar element = found->scalar(0);
  const T* number = std::get_if<T>(&element);
  return number ? std::optional(*number) : std::nullopt;
}

}  // namespace

std::optional<std::int64_t> constant_integer(const Graph& graph, ValueId value) {
  return only_element<std::int64_t>(graph, value);
}

bool is_out_of_range(const Graph& graph, ValueId value, DType to) {
  const DType from = graph.type(value).dtype;
  if (!is_integer(to) || !(is_float(from) || is_complex(from))) return false;
  Evaluation evaluation(graph);
  const DenseArray* found = evaluation.of(evaluation.viewed(value));
  return found && !can_hold_all(to, *found);
}

std::optional<bool> constant_condition(const Graph& graph, ValueId value) {
  return only_element<bool>(graph, value);
}

}  // namespace fj
