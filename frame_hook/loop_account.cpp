// Estimates: measured on small arrays of both libraries (benchmarks/loops.py). They have to be right where one side is
// several times the other, and may be wrong where both take the same time.
#include "frame_hook/loop_account.h"

#include <algorithm>

#include "arrays/arrays.h"
#include "codegen/schedule/cost.h"
#include "graph_ir/ops.h"
#include "guards/check_program.h"

namespace fj {

namespace {

/// Nanoseconds of one call, without its elements, by library.
struct Prices {
  double scalar, pointwise, view, reduction, element, update;
};
constexpr Prices kNumpy{50, 400, 120, 2000, 60, 150};
constexpr Prices kTorch{900, 1200, 700, 1800, 900, 1800};

constexpr double kPiece = 2500;        // to find it, hold its inputs, write the frame
constexpr double kGuard = 12, kInput = 30, kStep = 25, kNumpyResult = 150, kTorchResult = 450;
constexpr double kExecuted = 25;       // an instruction of the executor, beyond CPython's own
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
  double ours = kPiece + kGuard * double(segment.guards->all().size()) + kStep * double(segment.recipe.steps.size());
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

bool loops_may_leave(const FunctionState& state, const Options& options) {
  return options.retire && !options.follow && !options.fullgraph && state.backend.get() == nullptr && state.passes.get() == nullptr &&
         (options.backend == "auto" || options.backend == "llvm");
}

std::int64_t magnitude(std::span<PyObject* const> values) {
  double total = 0;
  for (PyObject* value : values) {
    if (value == nullptr) continue;
    ArrayView view;
    if (PyLong_CheckExact(value)) {
      total += std::abs(PyLong_AsDouble(value));
      PyErr_Clear();
    } else if (PyList_CheckExact(value) || PyTuple_CheckExact(value)) {
      total += double(Py_SIZE(value));
    } else if (guard_program::read_any_array(value, view)) {
      double count = 1;
      for (int d = 0; d < view.rank; ++d) count *= double(view.shape[d]);
      total += count;
    }
  }
  return std::int64_t(std::min(total, 1e18));
}

void LoopAccount::ran(const Segment& segment, std::span<const std::int64_t> symbols) {
  constexpr int kEstimated = 16;  // times; a piece that runs more often is taken to go on as it does
  auto known = std::find_if(known_.begin(), known_.end(), [&](const Known& one) { return one.segment == &segment; });
  if (known == known_.end()) known = known_.insert(known_.end(), {&segment, 0, 0});
  const bool constant = !segment.graph || segment.graph->symbols.empty();
  if (known->runs == 0 || (!constant && known->runs < kEstimated)) {
    std::vector<std::int64_t> sizes(symbols.begin(), symbols.end());
    for (std::size_t s = sizes.size(); segment.graph && s < segment.graph->symbols.size(); ++s)
      sizes.push_back(segment.graph->symbols[s].hint);
    known->saved = saved_nanoseconds(segment, sizes);
  }
  ++known->runs;
  saved_ += known->saved;
}

Loop LoopAccount::loop_at(int header) const {
  return *std::find_if(cache_.loops().begin(), cache_.loops().end(),
                       [&](const Loop& loop) { return loop.header == header; });
}

void LoopAccount::executed(int instructions) { saved_ -= kExecuted * instructions; }

bool LoopAccount::is_cpythons(int instruction) {
  auto& loops = cache_.loops();
  while (!visits_.empty()) {
    const Loop& inside = loops[std::size_t(visits_.back().loop)];
    if (inside.contains(instruction)) break;
    visits_.pop_back();
  }
  const auto found =
      std::find_if(loops.begin(), loops.end(), [&](const auto& loop) { return loop.header == instruction; });
  if (found == loops.end()) return false;
  const int number = int(found - loops.begin());
  inside_another_ =
      std::any_of(visits_.begin(), visits_.end(), [&](const Visit& visit) { return visit.loop != number; });
  if (found->cpythons) return true;
  if (visits_.empty() || visits_.back().loop != number) {
    visits_.push_back({number, 0, saved_, saved_});
    return false;
  }
  Visit& visit = visits_.back();
  if (++visit.passes % kPasses != 0) return false;
  const bool loses = saved_ < visit.began;
  visit.began = saved_;
  found->cpythons = loses;
  return loses;
}

}  // namespace fj
