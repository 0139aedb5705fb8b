// For each pointwise node all of whose operands are broadcasts: the result's dimensions along which some operand
// really varies form the small shape; operands are brought to it, and the result is widened once.
#include "graph_ir/passes/sink_broadcasts.h"

#include <algorithm>

#include "graph_ir/ops.h"
#include "graph_ir/passes/rewrite.h"

namespace fj {
namespace {

using Integers = std::vector<std::int64_t>;
const SymDim kOne(1);

ValueId sunk(Graph& graph, Rewrite& rewrite, const std::vector<int>& uses, const Node& node) {
  if (!is_pointwise(node.op) || node.operands.empty()) return {};
  std::vector<Node> broadcasts;
  for (ValueId operand : node.operands) {
    const Node* definition = rewrite.definition(operand);
    if (!definition || definition->op != Op::broadcast) return {};
    const bool of_scalar = graph.type(definition->operands[0]).shape.empty();
    // Operands of one node may repeat: x * x uses x's broadcast twice and nobody else does.
    const int own_uses = int(std::count(node.operands.begin(), node.operands.end(), operand));
    if (!of_scalar && (operand.index >= uses.size() || uses[operand.index] > own_uses)) return {};
    broadcasts.push_back(*definition);
  }

  const Dims shape = graph.type(node.results[0]).shape;
  std::vector<bool> varies(shape.size(), false);
  for (const Node& broadcast : broadcasts) {
    const Dims& from = graph.type(broadcast.operands[0]).shape;
    const Integers& dims = broadcast.attrs.get<Integers>("dims");
    for (std::size_t i = 0; i < dims.size(); ++i)
      if (from[i] != kOne) varies[std::size_t(dims[i])] = true;
  }
  Integers live;
  Dims small;
  bool saves = false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (varies[i]) {
      live.push_back(std::int64_t(i));
      small.push_back(shape[i]);
    } else {
      saves = saves || shape[i] != kOne;
    }
  }
  if (!saves) return {};

  std::vector<ValueId> operands;
  for (const Node& broadcast : broadcasts) {
    ValueId value = broadcast.operands[0];
    const Dims from = graph.type(value).shape;
    const Integers& dims = broadcast.attrs.get<Integers>("dims");
    Dims squeezed;
    Integers places;  // in the small shape
    for (std::size_t i = 0; i < dims.size(); ++i)
      if (from[i] != kOne) {
        squeezed.push_back(from[i]);
        places.push_back(std::find(live.begin(), live.end(), dims[i]) - live.begin());
      }
    if (squeezed.size() != from.size()) {
      Attrs attrs;
      attrs.set("shape", squeezed);
      value = graph.add(Op::reshape, {value}, std::move(attrs), broadcast.location);
    }
    if (squeezed.size() != small.size()) {
      Attrs attrs;
      attrs.set("dims", places);
      attrs.set("shape", small);
      value = graph.add(Op::broadcast, {value}, std::move(attrs), broadcast.location);
    }
    operands.push_back(value);
  }
  const ValueId result = graph.add(node.op, std::move(operands), node.attrs, node.location);
  Attrs attrs;
  attrs.set("dims", live);
  attrs.set("shape", shape);
  return graph.add(Op::broadcast, {result}, std::move(attrs), node.location);
}

}  // namespace

bool sink_broadcasts(Graph& graph) {
  const std::vector<int> uses = use_counts(graph);
  // A broadcast made by this pass replaces one value for all its users, so it has that value's uses.
  std::vector<int> current = uses;
  Rewrite rewrite(graph);
  return rewrite.run([&](const Node& node) {
    const ValueId result = sunk(graph, rewrite, current, node);
    if (result.valid()) {
      current.resize(graph.value_count(), 0);
      current[result.index] = uses[node.results[0].index];
    }
    return result;
  });
}

}  // namespace fj
