// What to save for backward: a minimum cut.
//
// Each forward value is a pair of vertices joined by an edge whose capacity is the value's bytes: cutting it means
// saving it. A value that can't be computed again flows from the source; one that can flows from its operands; what
// backward reads flows into the sink. The smallest cut is the fewest bytes from which everything that is read can be
// had. Saving exactly what is read is a cut too, so the result is never more than that.
#include <algorithm>
#include <limits>
#include <queue>

#include "graph_ir/autodiff/autodiff.h"
#include "graph_ir/ops.h"

namespace fj {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Dinic's algorithm.
class Network {
 public:
  explicit Network(int vertices) : first_(std::size_t(vertices)) {}

  void edge(int from, int to, double capacity) {
    first_[std::size_t(from)].push_back(int(edges_.size()));
    edges_.push_back({to, capacity});
    first_[std::size_t(to)].push_back(int(edges_.size()));
    edges_.push_back({from, 0});
  }

  /// The vertices still reachable from the source once no more can flow.
  std::vector<bool> cut(int source, int sink) {
    while (level(source, sink)) {
      next_.assign(first_.size(), 0);
      while (push(source, sink)) {}
    }
    std::vector<bool> reachable;
    for (int depth : level_) reachable.push_back(depth >= 0);
    return reachable;
  }

 private:
  struct Edge {
    int to;
    double capacity;
  };

  bool level(int source, int sink) {
    level_.assign(first_.size(), -1);
    level_[std::size_t(source)] = 0;
    std::queue<int> queue({source});
    while (!queue.empty()) {
      const int vertex = queue.front();
      queue.pop();
      for (int e : first_[std::size_t(vertex)])
        if (const Edge& edge = edges_[std::size_t(e)]; edge.capacity > 0 && level_[std::size_t(edge.to)] < 0) {
          level_[std::size_t(edge.to)] = level_[std::size_t(vertex)] + 1;
          queue.push(edge.to);
        }
    }
    return level_[std::size_t(sink)] >= 0;
  }

  /// One path, without recursion: graphs are thousands of nodes deep.
  bool push(int source, int sink) {
    std::vector<int> path;
    int vertex = source;
    while (vertex != sink) {
      auto& next = next_[std::size_t(vertex)];
      const auto& out = first_[std::size_t(vertex)];
      while (next < out.size()) {
        const Edge& edge = edges_[std::size_t(out[next])];
        if (edge.capacity > 0 && level_[std::size_t(edge.to)] == level_[std::size_t(vertex)] + 1) break;
        ++next;
      }
      if (next < out.size()) {
        path.push_back(out[next]);
        vertex = edges_[std::size_t(out[next])].to;
        continue;
      }
      if (path.empty()) return false;
      vertex = edges_[std::size_t(path.back() ^ 1)].to;
      ++next_[std::size_t(vertex)];
      path.pop_back();
    }
    double flow = kNever;
    for (int e : path) flow = std::min(flow, edges_[std::size_t(e)].capacity);
    if (flow == kNever) return false;  // can't happen: what is read may always be saved
    for (int e : path) {
      edges_[std::size_t(e)].capacity -= flow;
      edges_[std::size_t(e ^ 1)].capacity += flow;
    }
    return true;
  }

  std::vector<std::vector<int>> first_;
  std::vector<Edge> edges_;
  std::vector<int> level_;
  std::vector<std::size_t> next_;
};

bool is_repeatable(const Node& node) {
  switch (row(node.op).lowering) {
    case Lowering::Constant: case Lowering::Index: case Lowering::IndexMap: return true;
    case Lowering::Pointwise: return row(node.op).effect == OpEffect::Pure;
    default: return false;
  }
}

/// In a checkpoint. Not what may fail, for it would fail twice, nor what a library computes, which may draw numbers.
bool is_pure(const Node& node) { return node.op != Op::extern_call && row(node.op).effect == OpEffect::Pure; }

double bytes(const Graph& graph, ValueId value) {
  std::vector<std::int64_t> hints;
  for (const Symbol& symbol : graph.symbols) hints.push_back(std::max<std::int64_t>(symbol.hint, 1));
  const Type& type = graph.type(value);
  double size = double(size_in_bytes(type.dtype));
  for (const SymDim& dim : type.shape) size *= double(std::max<std::int64_t>(dim.evaluate(hints), 1));
  return size;
}

}  // namespace

bool stands_for_operand(Op op) {
  return op == Op::broadcast || op == Op::reshape || op == Op::transpose || op == Op::slice || op == Op::windows ||
         op == Op::cast;
}

std::vector<ValueId> choose_saved(const Graph& graph, const std::vector<ValueId>& needed,
                                  const std::vector<ValueId>& fixed, const std::set<ValueId>& copied_maps,
                                  const std::set<ValueId>& kept) {
  const auto count = std::uint32_t(graph.value_count());
  std::vector<const Node*> definition(count, nullptr);
  for (const Node& node : graph.nodes)
    for (ValueId result : node.results) definition[result.index] = &node;
  std::vector<bool> read(count, false), seen(count, false), held(count, false);
  for (ValueId value : needed) read[value.index] = seen[value.index] = true;
  for (ValueId value : fixed) held[value.index] = true;
  // What is read outside of the checkpoint it was made in is its result: kept, as other values are.
  std::vector<int> inside(count, 0);
  for (const auto& [value, number] : graph.checkpoints) inside[value.index] = number;
  std::vector<bool> result(count, false);
  for (const Node& node : graph.nodes)
    for (ValueId operand : node.operands)
      if (inside[operand.index] != inside[node.results[0].index]) result[operand.index] = true;
  // The nodes that make such a result are not how it is derived: made again, it would be another value.
  std::vector<bool> once(count, false);
  for (const Composite& composite : graph.composites)
    if (composite.rule == CompositeRule::Pullback) once[composite.result.index] = true;
  const auto can_repeat = [&](std::uint32_t value) {
    const Node* node = definition[value];
    if (once[value]) return false;
    if (node == nullptr || inside[value] == 0) return node != nullptr && is_repeatable(*node);
    return !result[value] && (is_repeatable(*node) || is_pure(*node));
  };
  // What a checkpoint is computed again from is read for it.
  std::vector<ValueId> open;
  for (ValueId value : needed)
    if (inside[value.index] != 0) open.push_back(value);
  std::vector<bool> entered(count, false);
  while (!open.empty()) {
    const std::uint32_t value = open.back().index;
    open.pop_back();
    if (entered[value]) continue;
    entered[value] = true;
    if (inside[value] == 0 || !can_repeat(value)) seen[value] = true;
    else open.insert(open.end(), definition[value]->operands.begin(), definition[value]->operands.end());
  }
  // A view of something the user can see stands for it, as does what an operation casts it to: eager saves its memory.
  // A copy the user made does not, be it in another dtype: the user may write into the original before backward runs.
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    if (stands_for_operand(node.op) && seen[node.results[0].index] && !copied_maps.count(node.results[0]))
      seen[node.operands[0].index] = true;
  }

  const int source = int(2 * count), sink = source + 1;
  Network network(sink + 1);
  for (std::uint32_t i = 0; i < count; ++i) {
    double cost = bytes(graph, {i});
    // What is read of an array that the user can see is read there, for eager sees when that is changed.
    const bool there = held[i] && seen[i];
    if (there) cost *= 1e-6;
    else if (held[i]) cost = kNever;
    else if (kept.count({i})) cost *= 0.001;
    network.edge(int(2 * i), int(2 * i + 1), cost);
    if (read[i]) network.edge(int(2 * i + 1), sink, kNever);
    if (can_repeat(i) && !there) {
      for (ValueId operand : definition[i]->operands) network.edge(int(2 * operand.index + 1), int(2 * i), kNever);
    } else {
      network.edge(source, int(2 * i), kNever);
    }
  }
  const std::vector<bool> reachable = network.cut(source, sink);
  std::vector<ValueId> saved;
  for (std::uint32_t i = 0; i < count; ++i)
    if (reachable[2 * i] && !reachable[2 * i + 1]) saved.push_back({i});
  return saved;
}

}  // namespace fj
