// The evaluator's frame: arrays, scalars, symbols, one node, a whole graph. What operations mean is in
// evaluate_pointwise.cpp and evaluate_structured.cpp.
#include "graph_ir/evaluate/evaluate.h"

#include <algorithm>
#include <cfenv>

#include "graph_ir/evaluate/elements.h"
#include "graph_ir/ops.h"
#include "runtime/base/error.h"

namespace fj {

DenseArray::DenseArray(DType dtype, std::vector<std::int64_t> shape) : dtype(dtype), shape(std::move(shape)) {
  for (std::int64_t size : this->shape) FJ_CHECK(size >= 0, "an array cannot have size " + std::to_string(size));
  data.resize(std::size_t(element_count()) * size_in_bytes(dtype));
}

std::int64_t DenseArray::element_count() const {
  std::int64_t count = 1;
  for (std::int64_t size : shape) count *= size;
  return count;
}

Scalar DenseArray::scalar(std::int64_t index) const {
  return with_dtype(dtype, [&]<DType d>() -> Scalar {
    const auto value = Element<d>::load(element(index));
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, bool>) return value;
    else if constexpr (is_complex_type<T>) return std::pair<double, double>(value.real(), value.imag());
    else if constexpr (std::is_floating_point_v<T>) return double(value);
    else if constexpr (std::is_signed_v<T>) return std::int64_t(value);
    else return std::uint64_t(value);
  });
}

DenseArray scalar_array(DType dtype, const Scalar& value) {
  DenseArray result(dtype, {});
  with_dtype(dtype, [&]<DType d>() {
    using Compute = typename Element<d>::Compute;
    std::visit(
        [&](const auto& v) {
          using V = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<V, std::pair<double, double>>)
            Element<d>::store(result.element(0), convert<Compute>(std::complex<double>(v.first, v.second)));
          else if constexpr (std::is_same_v<V, double> && std::is_same_v<Compute, float> && d != DType::F32)
            Element<d>::store(result.element(0), v);  // half types: one rounding
          else
            Element<d>::store(result.element(0), convert<Compute>(v));
        },
        value);
  });
  return result;
}

bool evaluate_definitions(const Graph& graph, std::span<std::int64_t> symbols) {
  FJ_CHECK(symbols.size() >= graph.symbols.size(), "values for " + std::to_string(symbols.size()) + " symbols of " +
                                                       std::to_string(graph.symbols.size()));
  for (std::size_t i = 0; i < graph.symbols.size(); ++i) {
    const auto& definition = graph.symbols[i].definition;
    if (!definition) continue;
    const auto value = floor_quotient(definition->dividend.evaluate(symbols), definition->divisor.evaluate(symbols),
                                      definition->remainder);
    if (!value && graph.symbols[i].late) continue;
    if (!value) return false;
    symbols[i] = *value;
  }
  return true;
}

std::uint32_t count_size(const Graph& graph, const Node& node, std::span<const DenseArray* const> operands,
                            std::span<std::int64_t> symbols) {
  if (!counts_size(node.op)) return kOk;
  const auto& elements = operands[0]->data;
  const std::int64_t count =
      node.op == Op::as_size
          ? Element<DType::I64>::load(operands[0]->element(0))
          : std::count_if(elements.begin(), elements.end(), [](std::byte element) { return element != std::byte{0}; });
  if (count < 0 || count > kLargestSize) return kUnexpectedCount;
  symbols[node.attrs.get<SymDim>("count").symbols()[0].index] = count;
  const auto& excluded = node.attrs.get<std::vector<std::int64_t>>("excluded");
  if (std::find(excluded.begin(), excluded.end(), count) != excluded.end()) return kUnexpectedCount;
  return evaluate_definitions(graph, symbols) ? kOk : kIntegerDivisionByZero;
}

std::uint32_t evaluate(const Graph& graph, const Node& node, std::span<const DenseArray* const> operands,
                       std::span<const std::int64_t> symbols, DenseArray& result) {
  FJ_CHECK(node.op != Op::extern_call && node.bodies.empty() && node.results.size() == 1,
           "no single operation to evaluate: " + std::string(name(node.op)));
  const Type& type = graph.type(node.results[0]);
  result = DenseArray(type.dtype, evaluate(type.shape, symbols));
  std::fenv_t outside;
  std::feholdexcept(&outside);
  std::uint32_t status = row(node.op).lowering == Lowering::Pointwise
                             ? detail::evaluate_pointwise(node, operands, result)
                             : detail::evaluate_structured(node, operands, symbols, result);
  if (std::fetestexcept(FE_DIVBYZERO)) status |= kFloatDivide;
  if (std::fetestexcept(FE_OVERFLOW)) status |= kFloatOverflow;
  if (std::fetestexcept(FE_UNDERFLOW)) status |= kFloatUnderflow;
  if (std::fetestexcept(FE_INVALID)) status |= kFloatInvalid;
  std::fesetenv(&outside);
  return status;
}

/// What is computed behind such a failure means nothing.
constexpr std::uint32_t kStops = kUnexpectedCount | kIntegerDivisionByZero | kIndexOutOfRange;

std::uint32_t evaluate_control(const Node& node, std::span<const DenseArray* const> operands,
                               std::span<std::int64_t> symbols, std::vector<DenseArray>& results) {
  bool condition = std::get<bool>(operands[0]->scalar(0));
  std::vector<DenseArray> inputs;
  for (const DenseArray* operand : operands.subspan(1)) inputs.push_back(*operand);
  if (node.op == Op::cond) {
    const Graph& body = *node.bodies[condition ? 0 : 1];
    return evaluate(body, inputs, symbols.first(body.symbols.size()), results);
  }
  const Graph& body = *node.bodies[0];
  std::uint32_t status = kOk;
  while (condition && !(status & kStops)) {
    status |= evaluate(body, inputs, symbols.first(body.symbols.size()), results);
    if (status & kStops) break;
    condition = std::get<bool>(results[0].scalar(0));
    std::move(results.begin() + 1, results.end(), inputs.begin());
  }
  results.assign(inputs.begin(), inputs.begin() + std::ptrdiff_t(node.results.size()));
  return status;
}

std::uint32_t evaluate(const Graph& graph, std::span<const DenseArray> inputs, std::span<std::int64_t> symbols,
                       std::vector<DenseArray>& results) {
  FJ_CHECK(inputs.size() == graph.inputs.size(), std::to_string(inputs.size()) + " arrays for " +
                                                     std::to_string(graph.inputs.size()) + " inputs");
  if (!evaluate_definitions(graph, symbols)) return kIntegerDivisionByZero;
  std::vector<DenseArray> values(graph.value_count());
  for (std::size_t i = 0; i < inputs.size(); ++i) values[graph.inputs[i].value.index] = inputs[i];
  std::uint32_t status = kOk;
  for (const Node& node : graph.nodes) {
    std::vector<const DenseArray*> operands;
    for (ValueId operand : node.operands) operands.push_back(&values[operand.index]);
    if (!node.bodies.empty()) {
      std::vector<DenseArray> of_body;
      status |= evaluate_control(node, operands, symbols, of_body);
      if (status & kStops) return status;
      for (std::size_t i = 0; i < of_body.size(); ++i) values[node.results[i].index] = std::move(of_body[i]);
      continue;
    }
    DenseArray result;
    status |= count_size(graph, node, operands, symbols);
    if (status & (kUnexpectedCount | kIntegerDivisionByZero)) return status;
    status |= evaluate(graph, node, operands, symbols, result);
    values[node.results[0].index] = std::move(result);
  }
  results.clear();
  for (const Output& output : graph.outputs) results.push_back(values[output.value.index]);
  for (const Write& write : graph.writes) results.push_back(values[write.value.index]);
  return status;
}

}  // namespace fj
