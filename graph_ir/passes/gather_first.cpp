// `Gathering` is one node that gathers: `of` gives the elements it reads of any value of its source's shape, from the
// values that one is computed of. How far back that goes decides `apart`.
#include "graph_ir/passes/gather_first.h"

#include <algorithm>
#include <map>
#include <optional>

#include "graph_ir/ops.h"
#include "graph_ir/passes/rewrite.h"

namespace fj {
namespace {

using Integers = std::vector<std::int64_t>;
const SymDim kOne(1);

std::int64_t elements(const Graph& graph, ValueId value) {
  const std::vector<std::int64_t> hints = symbol_hints(graph.symbols);
  std::int64_t count = 1;
  for (const SymDim& size : graph.type(value).shape) count *= size.evaluate(hints);
  return count;
}

class Gathering {
 public:
  Gathering(Graph& graph, Rewrite& rewrite, const Node& node)
      : graph_(graph), rewrite_(rewrite), node_(node), axis_(node.attrs.get<std::int64_t>("axis")),
        axes_(node.op == Op::gather ? std::int64_t(node.operands.size()) - 1 : 1),
        result_(graph.type(node.results[0]).shape) {}

  ValueId run() {
    const ValueId source = node_.operands[0];
    if (!apart(source) || 2 * elements(graph_, node_.results[0]) > elements(graph_, source)) return {};
    return of(source);
  }

 private:
  /// A value that is repeated along the gathered axes, and perhaps others: of which dimensions of the source its own
  /// are.
  struct Repeated {
    ValueId value;
    Integers dims;
  };

  bool gathered(std::int64_t dim) const { return dim >= axis_ && dim < axis_ + axes_; }

  /// nullopt: not a broadcast, or one that varies along a gathered axis.
  std::optional<Repeated> repeated(ValueId value) {
    const Node* definition = rewrite_.definition(value);
    if (!definition || definition->op != Op::broadcast) return std::nullopt;
    const Integers dims = definition->attrs.get<Integers>("dims");
    const Dims& from = graph_.type(definition->operands[0]).shape;
    Repeated found{definition->operands[0], {}};
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (from[i] == kOne) continue;
      if (gathered(dims[i])) return std::nullopt;
      found.dims.push_back(dims[i]);
    }
    return found;
  }

  /// Computed from inputs by nothing but pointwise operations: there is no better place to gather than those.
  bool of_inputs(ValueId value, int depth = 0) {
    const Node* definition = rewrite_.definition(value);
    if (!definition) return true;
    if (!is_pointwise(definition->op) || depth > 8) return false;
    const std::vector<ValueId> operands = definition->operands;
    return std::all_of(operands.begin(), operands.end(),
                       [&](ValueId operand) { return repeated(operand) || of_inputs(operand, depth + 1); });
  }

  /// Whether the value's operands are gathered instead of itself. Of one that is made of several others, which may not
  /// be in memory where it is, nothing would be saved.
  bool apart(ValueId value) {
    const Node* definition = rewrite_.definition(value);
    if (!definition || !is_pointwise(definition->op) || row(definition->op).effect == OpEffect::Fallible) return false;
    Integers whole;
    const std::vector<ValueId> operands = definition->operands;
    for (ValueId operand : operands)
      if (!repeated(operand)) whole.push_back(operand.index);
    std::sort(whole.begin(), whole.end());
    whole.erase(std::unique(whole.begin(), whole.end()), whole.end());
    if (whole.size() == 1) return true;
    return !whole.empty() && std::all_of(operands.begin(), operands.end(),
                                         [&](ValueId operand) { return repeated(operand) || of_inputs(operand); });
  }

  ValueId of(ValueId value) {
    auto [place, fresh] = made_.try_emplace(value.index);
    if (!fresh) return place->second;
    ValueId made;
    if (const auto same = repeated(value)) {
      made = widened(*same);
    } else if (apart(value)) {
      const Node definition = *rewrite_.definition(value);
      std::vector<ValueId> operands;
      for (ValueId operand : definition.operands) operands.push_back(of(operand));
      made = graph_.add(definition.op, std::move(operands), definition.attrs, definition.location);
    } else {
      std::vector<ValueId> operands = node_.operands;
      operands[0] = value;
      made = graph_.add(node_.op, std::move(operands), node_.attrs, node_.location);
    }
    return made_[value.index] = made;
  }

  ValueId widened(const Repeated& same) {
    // take_along keeps the source's dimensions; gather has those of the indices in place of the gathered ones.
    const std::int64_t more = std::int64_t(result_.size()) - std::int64_t(graph_.type(node_.operands[0]).shape.size());
    Dims squeezed;
    Integers dims = same.dims;
    for (std::int64_t& dim : dims) {
      if (dim >= axis_ + axes_) dim += more;
      squeezed.push_back(result_[std::size_t(dim)]);
    }
    ValueId value = same.value;
    if (graph_.type(value).shape.size() != squeezed.size()) {
      Attrs attrs;
      attrs.set("shape", squeezed);
      value = graph_.add(Op::reshape, {value}, std::move(attrs), node_.location);
    }
    if (squeezed.size() == result_.size()) return value;
    Attrs attrs;
    attrs.set("dims", dims);
    attrs.set("shape", result_);
    return graph_.add(Op::broadcast, {value}, std::move(attrs), node_.location);
  }

  Graph& graph_;
  Rewrite& rewrite_;
  const Node& node_;
  const std::int64_t axis_, axes_;
  const Dims result_;
  std::map<std::uint32_t, ValueId> made_;
};

}  // namespace

bool gather_first(Graph& graph) {
  Rewrite rewrite(graph);
  return rewrite.run([&](const Node& node) -> ValueId {
    if (node.op != Op::take_along && node.op != Op::gather) return {};
    return Gathering(graph, rewrite, node).run();
  });
}

}  // namespace fj
