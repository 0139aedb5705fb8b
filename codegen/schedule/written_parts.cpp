// From the written value back to the input through updates of slices, with the views around them turned round.
#include "codegen/schedule/written_parts.h"

#include <algorithm>

#include "codegen/schedule/index_maps.h"
#include "runtime/base/budget.h"

namespace fj {

using loop::Affine;
using loop::Index;
using loop::VarId;

namespace {

class Walk {
 public:
  Walk(const Graph& graph, const std::vector<int>& node_of)
      : graph_(graph), node_of_(node_of), hints_(symbol_hints(graph.symbols)) {}

  /// Empty: the write is not in parts.
  std::vector<WrittenPart> parts(const Write& write) const {
    const ValueId target = graph_.inputs[std::size_t(write.input)].value;
    std::vector<WrittenPart> found;
    std::vector<const Node*> views;  // from the written value towards the input
    double elements = 0;
    ValueId value = write.value;
    while (value != target) {
      const int n = node_of_[value.index];
      if (n < 0) return {};
      const Node& node = graph_.nodes[std::size_t(n)];
      switch (node.op) {
        case Op::reshape: case Op::transpose: views.push_back(&node); break;
        case Op::slice_update: {
          const auto at = place(node, views);
          if (!at) return {};
          found.push_back({write.input, node.operands[1], *at});
          elements += size(node.operands[1]);
          break;
        }
        default: return {};
      }
      value = node.operands[0];
    }
    // What is not updated must lie where it lay: `x[:] = x.T; x[0, 0] = 5` ends at the input too.
    if (!cancel(views) || 2 * elements >= size(target)) return {};
    std::reverse(found.begin(), found.end());
    return found;
  }

 private:
  double size(ValueId value) const { return double(product(graph_.type(value).shape).evaluate(hints_)); }

  /// Where the elements of an update of a slice lie in what the views make of it.
  std::optional<Index> place(const Node& update, const std::vector<const Node*>& views) const {
    Index index = update_index(update);
    Budget::spend(1 + views.size());
    for (auto view = views.rbegin(); view != views.rend(); ++view) {
      const auto further = result_index(graph_, **view, index);
      if (!further) return std::nullopt;
      index = *further;
    }
    return index;
  }

  /// Whether the views, one after the other from the input, show every element where it is in the input. Neighbours of
  /// one kind are one view; false where that does not say.
  bool cancel(const std::vector<const Node*>& views) const {
    struct View {
      Op op;
      Dims from, to;                  // reshape
      std::vector<std::int64_t> axes;  // transpose: axis d shows axes[d]
    };
    std::vector<View> left;
    for (auto node = views.rbegin(); node != views.rend(); ++node) {
      View view{(*node)->op, graph_.type((*node)->operands[0]).shape, graph_.type((*node)->results[0]).shape, {}};
      if (view.op == Op::transpose) view.axes = (*node)->attrs.get<std::vector<std::int64_t>>("permutation");
      if (!left.empty() && left.back().op == view.op) {
        const View before = std::move(left.back());
        left.pop_back();
        view.from = before.from;
        for (std::int64_t& axis : view.axes) axis = before.axes[std::size_t(axis)];
      }
      const bool changes =
          view.op == Op::reshape ? !(view.from == view.to) : !std::is_sorted(view.axes.begin(), view.axes.end());
      if (changes) left.push_back(std::move(view));
    }
    return left.empty();
  }

  const Graph& graph_;
  const std::vector<int>& node_of_;
  std::vector<std::int64_t> hints_;
};

}  // namespace

std::vector<WrittenPart> written_parts(const Graph& graph) {
  std::vector<WrittenPart> all;
  if (graph.writes.empty()) return all;
  std::vector<int> node_of(graph.value_count(), -1);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    for (ValueId result : graph.nodes[n].results) node_of[result.index] = int(n);
  const Walk walk(graph, node_of);
  for (const Write& write : graph.writes) {
    std::vector<WrittenPart> parts = walk.parts(write);
    if (parts.empty()) {
      parts.push_back({write.input, write.value, identity_index(graph.type(write.value).shape.size())});
    }
    all.insert(all.end(), std::make_move_iterator(parts.begin()), std::make_move_iterator(parts.end()));
  }
  return all;
}

}  // namespace fj
