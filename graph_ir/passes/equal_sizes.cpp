// A symbol that the caller binds is replaced by an expression of earlier ones. Those that are computed stay: they are
// computed from earlier ones, too.
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

 private:
  bool is_bound(SymbolId symbol) const {
    return !graph_.symbols[symbol.index].definition && !graph_.symbols[symbol.index].late;
  }

  bool replace(const SymDim& size, const SymDim& by) {
    const auto& terms = size.terms();
    if (by == SymDim(0)) return false;  // in strides a size of 0 counts as 1 (runtime/base/layout.h)
    if (terms.size() != 1 || terms[0].coefficient != 1 || terms[0].symbols.size() != 1) return false;
    const SymbolId symbol = terms[0].symbols[0];
    const std::vector<SymbolId> used = by.symbols();
    if (!is_bound(symbol) || !std::all_of(used.begin(), used.end(), [&](SymbolId other) {
          return other.index < symbol.index && is_bound(other);
        }))
      return false;
    for (auto& [index, old] : replaced_)
      old = old.substitute([&](SymbolId other) { return other == symbol ? by : SymDim(other); });
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
  graph.rewrite_sizes([&](const SymDim& size) { return replacement.applied(size); });
}

}  // namespace fj
