// Estimates: measured on small arrays of both libraries (benchmarks/loops.py). They have to be right where one side is
// several times the other, and may be wrong where both take the same time.
#include "frame_hook/cache/savings.h"

#include <algorithm>
#include <vector>

#include "codegen/schedule/cost.h"
#include "graph_ir/ops.h"

namespace fj {

namespace {

/// Nanoseconds of one call, without its elements, by library.
struct Prices {
  double scalar, pointwise, view, reduction, element, update;
};
constexpr Prices kNumpy{50, 400, 120, 2000, 60, 150};
constexpr Prices kTorch{900, 1200, 700, 1800, 900, 1800};

constexpr double kPiece = 2500;        // to find it, hold its inputs, write the frame
constexpr double kCall = 300;          // of a function that has no frame
constexpr double kGuard = 12, kInput = 30, kStep = 25, kNumpyResult = 150, kTorchResult = 450;
constexpr double kElement = 0.25;      // of the library, one simple operation on memory in the cache
constexpr double kFusedElement = 0.1;  // of a kernel, for what it stores
constexpr double kProductTerm = 0.05;

double elements(const Type& type, std::span<const std::int64_t> symbols) {
  double count = 1;
  for (const SymDim& size : type.shape) {
    const auto constant = size.constant();
    count *= double(constant ? *constant : std::max<std::int64_t>(size.evaluate(symbols), 0));
  }
  return count;
}

double library_nanoseconds(const Graph& graph, const Node& node, const Prices& prices,
                           std::span<const std::int64_t> symbols) {
  if (node.results.empty()) return 0;
  const Type& type = graph.type(node.results[0]);
  const auto count = [&](ValueId value) { return elements(graph.type(value), symbols); };
  switch (node.op) {
    case Op::constant: case Op::dim: case Op::iota: case Op::broadcast: case Op::extern_call: return 0;
    case Op::slice: case Op::transpose: case Op::reshape: case Op::windows: return prices.view;
    case Op::gather: case Op::take_along:
      return type.shape.empty() ? prices.element : prices.pointwise + 2 * count(node.results[0]);
    case Op::slice_update: case Op::scatter: case Op::scatter_add:
      return prices.update + kElement * count(node.operands[1]);
    case Op::matmul: {
      const Dims& left = graph.type(node.operands[0]).shape;
      const Type depth{DType::I64, {left.back()}};
      return prices.pointwise + kProductTerm * count(node.results[0]) * elements(depth, symbols);
    }
    default: break;
  }
  if (row(node.op).lowering == Lowering::Reduce) return prices.reduction + kElement * count(node.operands[0]);
  if (type.shape.empty()) return prices.scalar;
  return prices.pointwise + kElement * std::max(1, operation_cost(node.op) / 2) * count(node.results[0]);
}

}  // namespace

double saved_nanoseconds(const Segment& segment, std::span<const std::int64_t> symbols) {
  double ours = segment.covers_function ? kCall : kPiece;
  ours += kGuard * double(segment.guards->all().size()) + kStep * double(segment.recipe.steps.size());
  if (!segment.graph) return -ours;
  const Graph& graph = *segment.graph;
  const bool torch = std::find(segment.output_library.begin(), segment.output_library.end(), Library::Torch) !=
                     segment.output_library.end();
  const Prices& prices = torch ? kTorch : kNumpy;
  double library = 0;
  for (const Node& node : graph.nodes) library += library_nanoseconds(graph, node, prices, symbols);
  ours += kInput * double(graph.inputs.size());
  for (const Output& output : graph.outputs)
    ours += (torch ? kTorchResult : kNumpyResult) + kFusedElement * elements(graph.type(output.value), symbols);
  for (const Write& write : graph.writes) ours += kFusedElement * elements(graph.type(write.value), symbols);
  // What a fused backward saves is not estimated: such pieces are never held against a loop.
  const double saved = library - ours;
  return segment.derivative || segment.ran_backward ? std::max(saved, 0.0) : saved;
}

double saved_nanoseconds(const Segment& segment) {
  std::vector<std::int64_t> sizes;
  if (segment.graph)
    for (const Symbol& symbol : segment.graph->symbols) sizes.push_back(symbol.hint);
  return saved_nanoseconds(segment, sizes);
}

double compile_nanoseconds(const Segment& segment) {
  constexpr double kTrace = 1e6, kNode = 1e5;
  return kTrace + kNode * double(segment.nodes);
}

}  // namespace fj
