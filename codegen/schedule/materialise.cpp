#include "codegen/schedule/materialise.h"

#include <algorithm>

#include "codegen/schedule/written_parts.h"
#include "graph_ir/ops.h"
#include "graph_ir/rules/conditions.h"

namespace fj {

namespace {

/// A lower bound of a size.
std::int64_t least(const Graph& graph, const SymDim& size) {
  if (size.is_constant()) return size.value();
  for (std::size_t s = 0; s < graph.symbols.size(); ++s)
    if (size == SymDim(SymbolId{std::uint32_t(s)})) return graph.symbols[s].min;
  return 0;
}

/// Whether computing the node (all of it if `computed`, else a part) computes every element of its operand.
bool reads_whole(const Graph& graph, const Node& node, std::size_t operand, bool computed) {
  switch (row(node.op).lowering) {
    case Lowering::Pointwise: return computed;
    case Lowering::IndexMap: break;
    case Lowering::Gather: return operand == 0 || computed;  // what is indexed by data is in memory
    case Lowering::Reduce: return true;
    default: return computed;
  }
  if (!computed) return false;
  const Dims &from = graph.type(node.operands[operand]).shape, &to = graph.type(node.results[0]).shape;
  switch (node.op) {
    case Op::transpose: case Op::reshape: case Op::concat: return true;
    case Op::slice: return from == to;  // every element once, in whatever order
    case Op::slice_update: return operand == 1;
    case Op::broadcast: {
      // Nothing is computed of what is repeated no times.
      const auto& dims = node.attrs.get<std::vector<std::int64_t>>("dims");
      for (std::size_t d = 0; d < to.size(); ++d) {
        const auto kept = std::find(dims.begin(), dims.end(), std::int64_t(d));
        const bool repeats = kept == dims.end() || !(from[std::size_t(kept - dims.begin())] == to[d]);
        if (repeats && least(graph, to[d]) <= 0) return false;
      }
      return true;
    }
    default: return false;  // pad: may cut, and its value may be used nowhere
  }
}

}  // namespace

std::vector<bool> demanded_values(const Graph& graph, bool conditions) {
  std::vector<bool> demanded(graph.value_count(), false), given(graph.value_count(), false);
  for (const Input& input : graph.inputs) given[input.value.index] = true;
  for (const Output& output : graph.outputs) demanded[output.value.index] = !given[output.value.index];
  for (const WrittenPart& part : written_parts(graph)) demanded[part.value.index] = !given[part.value.index];

  std::vector<bool> whole = demanded, read = demanded;  // every element is computed; some may be
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    bool computed = row(node.op).effect == OpEffect::Extern;
    for (ValueId result : node.results) computed |= whole[result.index];
    if (!computed && (row(node.op).effect == OpEffect::Fallible || (conditions && may_raise_condition(graph, node)))) {
      demanded[node.results[0].index] = true;
      computed = true;
    }
    bool live = computed;
    for (ValueId result : node.results) live |= read[result.index];
    if (!live) continue;
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      read[node.operands[i].index] = true;
      if (reads_whole(graph, node, i, computed)) whole[node.operands[i].index] = true;
    }
  }
  return demanded;
}

}  // namespace fj
