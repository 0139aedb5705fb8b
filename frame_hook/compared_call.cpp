#include "frame_hook/compared_call.h"

#include <algorithm>
#include <utility>

#include "frame_hook/backends.h"
#include "graph_ir/ops.h"
#include "runtime/profile.h"

namespace fj {
namespace {

/// An eager run needs room for each value of the graph; a compiled one may have none of them.
constexpr std::int64_t kComparedBytes = std::int64_t{64} << 20;
constexpr std::size_t kComparedNodes = 32;
constexpr std::size_t kComparedUpdates = 1024;

/// Whether its results are the library's to the last bit (docs/numerics.md): a call that is run eagerly now and then
/// must not be noticed. `numpy`: NumPy's, which adds into an array in the order of the indices, as we do.
bool is_exact(const Graph& graph, const Node& node, bool numpy) {
  const bool floats = std::any_of(node.results.begin(), node.results.end(), [&](ValueId result) {
    return is_float(graph.type(result).dtype) || is_complex(graph.type(result).dtype);
  });
  if (!floats) return true;
  // torch's powers of halves are rounded once, and its roots not always to the nearest.
  if (is_half(graph.type(node.results[0]).dtype)) return false;
  if (node.op == Op::scatter_add) return numpy;
  const bool complex_arithmetic =
      is_complex(graph.type(node.results[0]).dtype) && row(node.op).lowering == Lowering::Pointwise;
  return row(node.op).accuracy == Accuracy::Exact && !complex_arithmetic;
}

/// By node: it makes new contents of an input of which a part is written, for which eager has no array. Views alone are
/// no write.
std::vector<bool> updates_of_inputs(const Segment& segment) {
  const Graph& graph = *segment.graph;
  std::vector<int> node_of(graph.value_count(), -1);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    for (ValueId result : graph.nodes[n].results) node_of[result.index] = int(n);
  std::vector<bool> found(graph.nodes.size());
  for (const Write& write : graph.writes) {
    std::vector<int> path;
    bool updates = false;
    for (int n = node_of[write.value.index]; n >= 0;) {
      const Node& node = graph.nodes[std::size_t(n)];
      int base = 0;
      bool known = true;
      switch (node.op) {
        case Op::reshape: case Op::transpose: break;
        case Op::slice_update: case Op::scatter: case Op::scatter_add: updates = true; break;
        case Op::extern_call: {
          const std::vector<int>& mutated = (*segment.externs)[node.attrs.get<std::int64_t>("handle")].mutated;
          known = mutated.size() == 1;
          base = known ? mutated[0] : 0;
          updates = updates || known;
          break;
        }
        default: known = false;
      }
      if (!known) break;
      path.push_back(n);
      n = node_of[node.operands[std::size_t(base)].index];
    }
    for (int n : path) found[std::size_t(n)] = found[std::size_t(n)] || updates;
  }
  return found;
}

}  // namespace

bool may_be_slower(const Segment& segment, const Options& options, bool own_backend) {
  if (!options.retire || options.follow || own_backend || options.backend == "reference" ||
      !is_builtin_backend(options.backend))
    return false;
  // What runs on a device takes no time of the caller's that could be compared.
  if (!segment.covers_function || segment.device != kHost || segment.derivative || segment.eager_gradient ||
      segment.told_compiled || !segment.conditions.empty())
    return false;
  if (!segment.program || segment.graph->nodes.size() > kComparedUpdates) return false;
  const std::vector<bool> updates = updates_of_inputs(segment);
  const bool writes_parts = std::find(updates.begin(), updates.end(), true) != updates.end();
  if (!writes_parts && segment.graph->nodes.size() > kComparedNodes) return false;
  if (segment.externs && segment.externs->once()) return false;  // it waits for others
  std::int64_t bytes = 0;
  auto fits = [&](ValueId value) {
    const Type& type = segment.graph->type(value);
    std::int64_t elements = 1;
    for (const SymDim& size : type.shape)
      if (!size.is_constant() || __builtin_mul_overflow(elements, size.value(), &elements)) return false;
    return elements <= kComparedBytes &&
           (bytes += elements * std::int64_t(size_in_bytes(type.dtype))) <= kComparedBytes;
  };
  for (const Input& input : segment.graph->inputs)
    if (!fits(input.value)) return false;
  const std::vector<Guard>& guards = segment.guards->all();
  const bool numpy = std::none_of(guards.begin(), guards.end(),
                                  [](const Guard& guard) { return guard.kind == GuardKind::TorchModes; });
  for (std::size_t n = 0; n < segment.graph->nodes.size(); ++n) {
    const Node& node = segment.graph->nodes[n];
    if (!is_exact(*segment.graph, node, numpy) ||
        (!updates[n] && !std::all_of(node.results.begin(), node.results.end(), fits)))
      return false;
  }
  return true;
}

ComparedCall::ComparedCall(const FunctionState& state, std::shared_ptr<const Segment> segment)
    : segment_(std::move(segment)),
      events_(state.events),
      name_(state.name),
      // A profiler's own clocks weigh in what it measures.
      turn_(is_profiling() || torch_recorded() ? EagerRace::Turn::Untimed : segment_->race->next()) {
  if (turn_ != EagerRace::Turn::Untimed) began_ = comparison_clock();
}

void ComparedCall::fell_back() {
  if (!segment_->race || segment_->race->retired()) return;
  if (segment_->race->fell_back() == EagerRace::Verdict::Retire) events_->retire(name_, segment_->race->text());
}

void ComparedCall::finished() {
  if (turn_ == EagerRace::Turn::Untimed || !segment_->race || segment_->race->retired()) return;
  switch (segment_->race->took(turn_, comparison_clock() - began_)) {
    case EagerRace::Verdict::Open: break;
    case EagerRace::Verdict::Keep: segment_->race.reset(); break;
    case EagerRace::Verdict::Retire: events_->retire(name_, segment_->race->text()); break;
  }
}

}  // namespace fj
