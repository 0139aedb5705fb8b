// A symbol that the caller binds is replaced by an expression of earlier ones. Those that are computed stay: they are computed from earlier ones, too.
#include "graph_ir/passes/equal_sizes.h"

#include <algorithm>
#include <map>

namespace fj {

namespace {

class Replacement {
 public:
  explicit Replacement(const Graph& graph) : graph_(graph) {}

  void equate(const SymDim& left, const SymDim& right) {
    const SymDim a = applied(left), b = applied(right);
    if (!(a == b) && !replace(a, b)) replace(b, a);
  }

  bool empty() const { return replaced_.empty(); }

  SymDim applied(const SymDim& size) const {
    return size.substitute([&](SymbolId symbol) {
      const auto found = replaced_.find(symbol.index);
      return found == replaced_.end() ? SymDim(symbol) : found->second;
    });
  }
  Dims applied(Dims sizes) const {
    for (SymDim& size : sizes) size = applied(size);
    return sizes;
  }
  std::optional<Dims> applied(const std::optional<Dims>& sizes) const { return sizes ? std::optional(applied(*sizes)) : std::nullopt; }
  Attrs applied(const Attrs& attrs) const {
    Attrs result = attrs;
    for (const auto& [name, value] : attrs.items()) {
      if (auto* size = std::get_if<SymDim>(&value)) result.set(name, applied(*size));
      if (auto* sizes = std::get_if<Dims>(&value)) result.set(name, applied(*sizes));
      if (auto* layouts = std::get_if<std::vector<std::optional<Dims>>>(&value)) {
        std::vector<std::optional<Dims>> changed;
        for (const auto& layout : *layouts) changed.push_back(applied(layout));
        result.set(name, std::move(changed));
      }
    }
    return result;
  }

 private:
  bool is_bound(SymbolId symbol) const { return !graph_.symbols[symbol.index].definition && !graph_.symbols[symbol.index].late; }

  bool replace(const SymDim& size, const SymDim& by) {
    const auto& terms = size.terms();
    if (terms.size() != 1 || terms[0].coefficient != 1 || terms[0].symbols.size() != 1) return false;
    const SymbolId symbol = terms[0].symbols[0];
    const std::vector<SymbolId> used = by.symbols();
    if (!is_bound(symbol) || !std::all_of(used.begin(), used.end(), [&](SymbolId other) { return other.index < symbol.index && is_bound(other); })) return false;
    for (auto& [index, old] : replaced_) old = old.substitute([&](SymbolId other) { return other == symbol ? by : SymDim(other); });
    replaced_.emplace(symbol.index, by);
    return true;
  }

  const Graph& graph_;
  std::map<std::uint32_t, SymDim> replaced_;
};

}  // namespace

void equate_sizes(Graph& graph, std::span<const std::pair<SymDim, SymDim>> equal) {
  Replacement replacement(graph);
  for (const auto& [left, right] : equal) replacement.equate(left, right);
  if (replacement.empty()) return;
  Graph changed;
  for (std::uint32_t v = 0; v < graph.value_count(); ++v) {
    const Type& type = graph.type(ValueId{v});
    changed.new_value({type.dtype, replacement.applied(type.shape)});
  }
  changed.name = graph.name;
  changed.symbols = graph.symbols;
  for (Symbol& symbol : changed.symbols)
    if (symbol.definition) symbol.definition = {replacement.applied(symbol.definition->dividend), replacement.applied(symbol.definition->divisor), symbol.definition->remainder};
  changed.inputs = std::move(graph.inputs);
  for (Input& input : changed.inputs) input.strides = replacement.applied(input.strides);
  changed.nodes = std::move(graph.nodes);
  for (Node& node : changed.nodes) node.attrs = replacement.applied(node.attrs);
  changed.outputs = std::move(graph.outputs);
  for (Output& output : changed.outputs) output.strides = replacement.applied(output.strides);
  changed.writes = std::move(graph.writes);
  changed.composites = std::move(graph.composites);
  for (Composite& composite : changed.composites) composite.attrs = replacement.applied(composite.attrs);
  graph = std::move(changed);
}

}  // namespace fj
