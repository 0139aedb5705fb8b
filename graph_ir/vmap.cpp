// The rules of batching. Shapes are explicit, so a rule shifts the axes in an operation's attributes by one and gives
// every operand the axis of the examples; only indices that are data need more: beside them goes the example's own
// number.
#include "graph_ir/vmap.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "graph_ir/autodiff/autodiff.h"
#include "graph_ir/ops.h"
#include "runtime/base/error.h"

namespace fj {
namespace {

using Integers = std::vector<std::int64_t>;

Attrs with(std::string name, Attr value) {
  Attrs attrs;
  attrs.set(std::move(name), std::move(value));
  return attrs;
}

class Batching {
 public:
  Batching(Graph& graph, std::span<const Batched> examples, const BatchedCall& call)
      : graph_(graph), count_(graph.type(examples[0].all).shape[0]), call_(call) {
    for (const Batched& batched : examples) all_[batched.example.index] = batched.all;
  }

  ValueId find(ValueId value) const {
    auto found = all_.find(value.index);
    return found == all_.end() ? ValueId{} : found->second;
  }

  /// `composites`: those whose result the node makes.
  void node(const Node& node, std::span<const Composite> composites) {
    if (std::none_of(node.operands.begin(), node.operands.end(),
                     [&](ValueId operand) { return find(operand).valid(); }))
      return;
    where_ = node.location;
    if (counts_size(node.op) || !node.bodies.empty()) throw NoBatch(node.op, where_);
    if (node.op == Op::extern_call) {
      const std::vector<ValueId> results = library_call(node);  // before composites: these may keep its results
      for (std::size_t i = 0; i < results.size(); ++i) all_[node.results[i].index] = results[i];
    }
    std::vector<Composite> batched;  // first: what makes its operands comes before its result
    for (const Composite& one : composites) batched.push_back(composite(one));
    if (node.op != Op::extern_call) {
      const ValueId result = apply(node);
      FJ_CHECK(graph_.type(result) == wide(graph_.type(node.results[0])),
               std::string(name(node.op)) + " of all examples has another type");
      all_[node.results[0].index] = result;
    }
    for (std::size_t i = 0; i < batched.size(); ++i) {
      batched[i].result = find(composites[i].result);
      graph_.composites.push_back(std::move(batched[i]));
    }
  }

  /// With the axis of the examples: repeated along it if it depends on none.
  ValueId all(ValueId value) {
    if (ValueId known = find(value); known.valid()) return known;
    const Dims one = shape(value);
    Integers dims(one.size());
    std::iota(dims.begin(), dims.end(), 1);
    Attrs attrs = with("dims", dims);
    attrs.set("shape", wide(graph_.type(value)).shape);
    return add(Op::broadcast, {value}, std::move(attrs));
  }

 private:
  Composite composite(const Composite& one) {
    Composite batched{one.rule, {}, {}, {}, {}};
    for (std::size_t i = 0; i < one.operands.size(); ++i) {
      // The weight and bias of a layer norm are added up over all leading axes: they stay as they are.
      const bool shared = one.rule == CompositeRule::LayerNorm && i > 0;
      if (shared && find(one.operands[i]).valid()) throw NoBatch(Op::mul, where_);
      batched.operands.push_back(shared ? one.operands[i] : all(one.operands[i]));
    }
    for (ValueId value : one.kept) batched.kept.push_back(all(value));
    batched.attrs = shifted(one.attrs);
    if (one.pullback) batched.pullback = pullback(*one.pullback);
    if (one.rule == CompositeRule::Extremum && !one.attrs.find("axes")) {
      Integers axes(graph_.type(one.operands[0]).shape.size());
      std::iota(axes.begin(), axes.end(), 1);
      batched.attrs.set("axes", axes);
    }
    return batched;
  }

  ValueId add(Op op, std::vector<ValueId> operands, Attrs attrs = {}) {
    return graph_.add(op, std::move(operands), std::move(attrs), where_);
  }
  const Dims& shape(ValueId value) const { return graph_.type(value).shape; }

  Type wide(const Type& one) const {
    Type result{one.dtype, {count_}};
    result.shape.insert(result.shape.end(), one.shape.begin(), one.shape.end());
    return result;
  }

  std::vector<ValueId> library_call(const Node& node) {
    const std::optional<std::int64_t> handle =
        call_ ? call_(node.attrs.get<std::int64_t>("handle"), count_) : std::nullopt;
    if (!handle) throw NoBatch(node.op, where_);
    using Layouts = std::vector<std::optional<Dims>>;
    Attrs attrs;
    attrs.set("callee", node.attrs.get<std::string>("callee"));
    attrs.set("handle", *handle);
    attrs.set("operand_strides", Layouts(node.operands.size()));
    attrs.set("result_strides", Layouts(node.results.size()));
    if (const Attr* sizes = node.attrs.find("sizes")) attrs.set("sizes", *sizes);
    std::vector<ValueId> operands;
    for (ValueId operand : node.operands) operands.push_back(all(operand));
    std::vector<Type> types;
    for (ValueId result : node.results) types.push_back(wide(graph_.type(result)));
    const std::vector<ValueId> results = graph_.add_extern(std::move(operands), std::move(attrs), types, where_);
    if (graph_.spare_calls.count(node.results[0])) graph_.spare_calls.insert(results[0]);
    graph_.spare_calls.insert(node.results[0]);  // of one example, which nothing else need read
    return results;
  }

  /// The derivative of one example as that of all.
  std::shared_ptr<const Graph> pullback(const Graph& one) {
    Graph graph = one;
    graph.symbols = graph_.symbols;
    std::vector<Batched> examples;
    std::vector<ValueId> inputs, outputs;
    for (std::size_t i = 0; i < one.inputs.size(); ++i) {
      const ValueId example = one.inputs[i].value;
      inputs.push_back(graph.add_input(one.inputs[i].name + "_all", wide(one.type(example))));
      examples.push_back({example, inputs.back()});
    }
    for (const Output& output : one.outputs) outputs.push_back(output.value);
    const std::vector<ValueId> found = add_batched(graph, examples, outputs, call_);
    Batching rest(graph, examples, call_);
    for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i] = found[i].valid() ? found[i] : rest.all(outputs[i]);
    return std::make_shared<const Graph>(part_of_graph(graph, inputs, outputs));
  }

  Attrs shifted(const Attrs& attrs) const { return attrs_of_all(attrs, count_); }

  ValueId apply(const Node& node) {
    switch (node.op) {
      case Op::pad: return pad(node);
      case Op::gather: return gather(node);
      case Op::scatter: case Op::scatter_add: return scatter(node);
      case Op::matmul:
        if (find(node.operands[0]).valid() && !find(node.operands[1]).valid() && shape(node.operands[1]).size() == 2)
          return product(node);
        [[fallthrough]];
      default: {
        std::vector<ValueId> operands;
        for (ValueId operand : node.operands) operands.push_back(all(operand));
        return add(node.op, std::move(operands), shifted(node.attrs));
      }
    }
  }

  /// One matrix for all examples: their rows are those of one product.
  ValueId product(const Node& node) {
    const ValueId a = all(node.operands[0]);
    const Dims rows = shape(a), columns = shape(node.operands[1]);
    const ValueId result =
        add(Op::matmul, {add(Op::reshape, {a}, with("shape", Dims{rows[0] * rows[1], rows[2]})), node.operands[1]});
    return add(Op::reshape, {result}, with("shape", Dims{rows[0], rows[1], columns[1]}));
  }

  ValueId scalar(DType dtype, Scalar value) {
    Attrs attrs = with("value", Attr(value));
    attrs.set("to", dtype);
    return add(Op::constant, {}, std::move(attrs));
  }
  ValueId filled(ValueId value, const Dims& shape) {
    Attrs attrs = with("dims", Integers{});
    attrs.set("shape", shape);
    return add(Op::broadcast, {value}, std::move(attrs));
  }

  /// What is padded with may differ between examples: then it is chosen where the padding is.
  ValueId pad(const Node& node) {
    const ValueId x = all(node.operands[0]), value = find(node.operands[1]);
    if (!value.valid()) return add(Op::pad, {x, node.operands[1]}, shifted(node.attrs));
    const ValueId inside =
        add(Op::pad, {filled(scalar(DType::Bool, true), shape(x)), scalar(DType::Bool, false)}, shifted(node.attrs));
    const ValueId zeros = add(Op::cast, {scalar(DType::Bool, false)}, with("to", graph_.type(x).dtype));
    const ValueId padded = add(Op::pad, {x, zeros}, shifted(node.attrs));
    Attrs attrs = with("dims", Integers{0});
    attrs.set("shape", shape(padded));
    return add(Op::where, {inside, padded, add(Op::broadcast, {value}, std::move(attrs))});
  }

  bool any_batched(const std::vector<ValueId>& values, std::size_t first) {
    return std::any_of(values.begin() + long(first), values.end(), [&](ValueId value) { return find(value).valid(); });
  }

  /// The indices of all examples, of one shape [n, i..]; `numbered`: behind the examples' own numbers.
  std::vector<ValueId> all_indices(const Node& node, std::size_t first, bool numbered) {
    std::vector<ValueId> indices;
    for (std::size_t i = first; i < node.operands.size(); ++i) indices.push_back(all(node.operands[i]));
    if (!numbered) return indices;
    Attrs attrs = with("shape", shape(indices[0]));
    attrs.set("axis", std::int64_t(0));
    indices.insert(indices.begin(), add(Op::iota, {}, std::move(attrs)));
    return indices;
  }

  /// Dimension 0, then `count` from `from` on, then the others.
  static Integers moved_forward(std::size_t rank, std::int64_t from, std::int64_t count) {
    Integers order{0};
    for (std::int64_t i = 0; i < count; ++i) order.push_back(from + i);
    for (std::int64_t i = 1; i < std::int64_t(rank); ++i)
      if (i < from || i >= from + count) order.push_back(i);
    return order;
  }

  static Integers inverse(const Integers& permutation) {
    Integers result(permutation.size());
    for (std::size_t i = 0; i < permutation.size(); ++i) result[std::size_t(permutation[i])] = std::int64_t(i);
    return result;
  }

  ValueId gather(const Node& node) {
    const auto axis = node.attrs.get<std::int64_t>("axis");
    std::vector<ValueId> operands = node.operands;
    if (!any_batched(operands, 1)) {
      operands[0] = all(operands[0]);
      return add(Op::gather, std::move(operands), shifted(node.attrs));
    }
    const auto picked = std::int64_t(shape(node.operands[1]).size()), axes = std::int64_t(node.operands.size()) - 1;
    const bool numbered = find(node.operands[0]).valid();
    const std::vector<ValueId> indices = all_indices(node, 1, numbered);
    if (!numbered) {
      // [before.., n, i.., after..]: the examples to the front.
      operands.assign(1, node.operands[0]);
      operands.insert(operands.end(), indices.begin(), indices.end());
      const ValueId result = add(Op::gather, std::move(operands), node.attrs);
      Integers order{axis};
      for (std::int64_t i = 0; i < std::int64_t(shape(result).size()); ++i)
        if (i != axis) order.push_back(i);
      return add(Op::transpose, {result}, with("permutation", order));
    }
    // The examples and the axes picked from to the front: [n, axes.., before.., after..]
    const ValueId x = all(node.operands[0]);
    operands.assign(1, add(Op::transpose, {x}, with("permutation", moved_forward(shape(x).size(), axis + 1, axes))));
    operands.insert(operands.end(), indices.begin(), indices.end());
    const ValueId result = add(Op::gather, std::move(operands), with("axis", std::int64_t(0)));
    // [n, i.., before.., after..] -> [n, before.., i.., after..]
    return add(Op::transpose, {result},
               with("permutation", inverse(moved_forward(shape(result).size(), axis + 1, picked))));
  }

  ValueId scatter(const Node& node) {
    const auto axis = node.attrs.get<std::int64_t>("axis");
    const ValueId base = all(node.operands[0]), updates = all(node.operands[1]);
    if (!any_batched(node.operands, 2)) {
      std::vector<ValueId> operands = node.operands;
      operands[0] = base;
      operands[1] = updates;
      return add(node.op, std::move(operands), shifted(node.attrs));
    }
    const auto picked = std::int64_t(shape(node.operands[2]).size()), axes = std::int64_t(node.operands.size()) - 2;
    // As for a gather, and back.
    const Integers order = moved_forward(shape(base).size(), axis + 1, axes);
    std::vector<ValueId> operands{
        add(Op::transpose, {base}, with("permutation", order)),
        add(Op::transpose, {updates}, with("permutation", moved_forward(shape(updates).size(), axis + 1, picked)))};
    const std::vector<ValueId> indices = all_indices(node, 2, true);
    operands.insert(operands.end(), indices.begin(), indices.end());
    const ValueId result = add(node.op, std::move(operands), with("axis", std::int64_t(0)));
    return add(Op::transpose, {result}, with("permutation", inverse(order)));
  }

  Graph& graph_;
  const SymDim count_;
  const BatchedCall& call_;
  std::unordered_map<std::uint32_t, ValueId> all_;
  Location where_;
};

}  // namespace

Attrs attrs_of_all(const Attrs& attrs, const SymDim& count) {
  Attrs result;
  for (auto [key, value] : attrs.items()) {
    auto* axes = std::get_if<Integers>(&value);
    auto* sizes = std::get_if<Dims>(&value);  // a clamp's low and high are numbers
    if (key == "axis") value = std::get<std::int64_t>(value) + 1;
    if (axes && (key == "axes" || key == "dims" || key == "permutation"))
      for (std::int64_t& axis : *axes) ++axis;
    if (axes && (key == "dims" || key == "permutation")) axes->insert(axes->begin(), 0);
    if (axes && key == "steps") axes->insert(axes->begin(), 1);
    if (sizes && (key == "shape" || key == "sizes")) sizes->insert(sizes->begin(), count);
    if (sizes && (key == "starts" || key == "low" || key == "high")) sizes->insert(sizes->begin(), SymDim(0));
    result.set(key, std::move(value));
  }
  return result;
}

Dependence::Dependence(const Graph& graph, std::span<const ValueId> on) : graph_(graph) {
  depends_.resize(graph.value_count(), false);
  for (ValueId value : on) depends_[value.index] = true;
}

bool Dependence::depends(ValueId value) {
  depends_.resize(graph_.value_count(), false);
  for (; nodes_ < graph_.nodes.size(); ++nodes_) {
    const Node& node = graph_.nodes[nodes_];
    if (std::any_of(node.operands.begin(), node.operands.end(),
                    [&](ValueId operand) { return depends_[operand.index]; }))
      for (ValueId result : node.results) depends_[result.index] = true;
  }
  return depends_[value.index];
}

std::vector<ValueId> add_batched(Graph& graph, std::span<const Batched> examples, std::span<const ValueId> results,
                                 const BatchedCall& call) {
  // Only what the results are made of.
  std::vector<bool> live(graph.value_count(), false);
  for (ValueId result : results) live[result.index] = true;
  std::unordered_map<std::uint32_t, std::vector<Composite>> composites;
  for (const Composite& composite : graph.composites) composites[composite.result.index].push_back(composite);
  auto composites_of = [&](const Node& node) {
    std::vector<Composite> made;
    for (ValueId result : node.results)
      if (auto found = composites.find(result.index); found != composites.end())
        made.insert(made.end(), found->second.begin(), found->second.end());
    return made;
  };
  const std::size_t nodes = graph.nodes.size();
  auto is_live = [&](const Node& node) {
    return std::any_of(node.results.begin(), node.results.end(), [&](ValueId result) { return live[result.index]; });
  };
  for (std::size_t i = nodes; i-- > 0;) {
    const Node& node = graph.nodes[i];
    if (!is_live(node)) continue;
    for (ValueId operand : node.operands) live[operand.index] = true;
    for (const Composite& composite : composites_of(node)) {
      for (ValueId value : composite.operands) live[value.index] = true;
      for (ValueId value : composite.kept) live[value.index] = true;
    }
  }
  Batching batching(graph, examples, call);
  for (std::size_t i = 0; i < nodes; ++i) {
    const Node node = graph.nodes[i];
    if (is_live(node)) batching.node(node, composites_of(node));
  }
  std::vector<ValueId> all;
  for (ValueId result : results) all.push_back(batching.find(result));
  return all;
}

}  // namespace fj
