// The reverse sweep, and the graph of its second half.
//
// A value's cotangent is complete when every node that reads it has been passed, so one walk from the last node to the
// first is enough. The result of a composite goes to the composite's rule, which gives cotangents to its operands; the
// nodes between get none from it, unless something outside reads them too.
#include "graph_ir/autodiff/autodiff.h"

#include <algorithm>
#include <unordered_map>

#include "graph_ir/ops.h"
#include "graph_ir/passes/dce.h"
#include "graph_ir/rules/grad_rules.h"
#include "runtime/base/error.h"

namespace fj {

namespace {

/// By result of a branch: whether a gradient flows to it, down some way, from the operands that need one.
std::vector<bool> flow_of_branch(const Node& node, const std::vector<bool>& needs) {
  std::vector<bool> result(node.results.size(), false);
  for (const std::shared_ptr<const Graph>& body : node.bodies) {
    std::vector<ValueId> wanted;
    for (std::size_t i = 0; i < body->inputs.size(); ++i)
      if (needs[node.operands[i + 1].index]) wanted.push_back(body->inputs[i].value);
    const std::vector<bool> flow = gradient_flow(*body, wanted);
    for (std::size_t r = 0; r < result.size(); ++r) result[r] = result[r] || flow[body->outputs[r].value.index];
  }
  return result;
}

/// Leaves out what no body computes with, and the operands that are for that alone.
void drop_unread(std::vector<ValueId>& operands, std::vector<std::shared_ptr<Graph>>& bodies) {
  std::vector<bool> read(operands.size() - 1, false);
  for (const std::shared_ptr<Graph>& body : bodies) {
    dce(*body, false);
    std::vector<bool> known(body->value_count(), false), used(body->value_count(), false);
    for (const Input& input : body->inputs) known[input.value.index] = true;
    for (const Node& node : body->nodes) {
      for (ValueId result : node.results) known[result.index] = true;
      for (ValueId operand : node.operands) used[operand.index] = true;
    }
    const auto there = [&](const std::vector<ValueId>& values) {
      return std::all_of(values.begin(), values.end(), [&](ValueId value) { return known[value.index]; });
    };
    std::erase_if(body->composites, [&](const Composite& composite) {
      return !known[composite.result.index] || !there(composite.operands) || !there(composite.kept);
    });
    for (const Composite& composite : body->composites)
      for (const std::vector<ValueId>* values : {&composite.operands, &composite.kept})
        for (ValueId value : *values) used[value.index] = true;
    for (const Output& output : body->outputs) used[output.value.index] = true;
    for (std::size_t i = 0; i < read.size(); ++i) read[i] = read[i] || used[body->inputs[i].value.index];
  }
  for (std::size_t i = read.size(); i-- > 0;) {
    if (read[i]) continue;
    operands.erase(operands.begin() + std::ptrdiff_t(i) + 1);
    for (const std::shared_ptr<Graph>& body : bodies) body->inputs.erase(body->inputs.begin() + std::ptrdiff_t(i));
  }
}

}  // namespace

void GradientFlow::want(ValueId input) {
  needs_.resize(std::max(needs_.size(), graph_.value_count()), false);
  needs_[input.index] = true;
  wants_any_ = true;
}

bool GradientFlow::needs(ValueId value) {
  needs_.resize(std::max(needs_.size(), graph_.value_count()), false);
  const auto any = [&](const std::vector<ValueId>& operands) {
    return std::any_of(operands.begin(), operands.end(), [&](ValueId operand) { return needs_[operand.index]; });
  };
  // A composite's gradient does not go by its nodes, which may begin at saved values.
  for (; composites_ < graph_.composites.size(); ++composites_) {
    const Composite& composite = graph_.composites[composites_];
    if (composite.rule == CompositeRule::Stop)
      stopped_.insert(composite.result);
    else
      composite_of_[composite.result] = composites_;
  }
  for (; nodes_ < graph_.nodes.size(); ++nodes_) {
    const Node& node = graph_.nodes[nodes_];
    const bool by_node = carries_gradient(node.op) && any(node.operands);
    const std::vector<bool> by_way =
        by_node && node.op == Op::cond ? flow_of_branch(node, needs_) : std::vector<bool>(node.results.size(), by_node);
    for (std::size_t r = 0; r < node.results.size(); ++r) {
      const ValueId result = node.results[r];
      const auto composite = composite_of_.find(result);
      const bool flows =
          composite == composite_of_.end() ? by_way[r] : any(graph_.composites[composite->second].operands);
      const DType dtype = graph_.type(result).dtype;
      if (flows && (is_float(dtype) || is_complex(dtype)) && !stopped_.count(result)) needs_[result.index] = true;
    }
  }
  return needs_[value.index];
}

std::vector<bool> gradient_flow(const Graph& graph, std::span<const ValueId> wanted) {
  GradientFlow flow(graph);
  for (ValueId value : wanted) flow.want(value);
  std::vector<bool> needs;
  for (std::uint32_t i = 0; i < graph.value_count(); ++i) needs.push_back(flow.needs({i}));
  return needs;
}

namespace {

/// By value: it is another one with its last two axes exchanged.
std::vector<bool> turned_values(const Graph& graph) {
  std::vector<bool> turned(graph.value_count(), false);
  for (const Node& node : graph.nodes) {
    if (node.op != Op::transpose) continue;
    auto permutation = node.attrs.get<std::vector<std::int64_t>>("permutation");
    if (permutation.size() < 2) continue;
    std::swap(permutation.back(), permutation[permutation.size() - 2]);
    turned[node.results[0].index] = std::is_sorted(permutation.begin(), permutation.end());
  }
  return turned;
}

}  // namespace

std::vector<ValueId> add_gradients(Graph& graph, std::span<const ValueId> wanted, std::span<const ValueId> of,
                                   std::span<const ValueId> cotangents, std::vector<BackwardStep>* steps, bool apart) {
  const std::vector<bool> needs = gradient_flow(graph, wanted);
  const std::size_t forward_values = graph.value_count();
  std::vector<bool> fixed(forward_values,
                          false);  // cotangents, and what is made of constants: nothing is saved for them
  for (ValueId value : cotangents) fixed[value.index] = true;
  for (const Node& node : graph.nodes)
    if (row(node.op).effect != OpEffect::Extern &&
        std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId value) { return fixed[value.index]; }))
      for (ValueId result : node.results) fixed[result.index] = true;
  const std::vector<bool> turned = turned_values(graph);
  std::unordered_map<std::uint32_t, ValueId> cotangent;
  auto accumulate = [&](ValueId value, ValueId added, const Location& location) {
    auto [place, fresh] = cotangent.try_emplace(value.index, added);
    if (!fresh) place->second = graph.add(Op::add, {place->second, added}, {}, location);
  };
  for (std::size_t i = 0; i < of.size(); ++i)
    if (needs[of[i].index]) accumulate(of[i], cotangents[i], {});
  std::set<ValueId> ends;
  if (apart) ends.insert(wanted.begin(), wanted.end());
  std::unordered_map<std::uint32_t, std::size_t> composites;
  for (std::size_t i = 0; i < graph.composites.size(); ++i) composites[graph.composites[i].result.index] = i;

  const auto is_derived = [&](ValueId result) {
    return cotangent.count(result.index) && needs[result.index] && !ends.count(result);
  };
  // The results of a library call that have a cotangent, where one call derives several of them.
  const auto derived_together = [&](const Node& node) {
    std::vector<ValueId> together;
    for (ValueId result : node.results)
      if (const auto known = composites.find(result.index); known != composites.end() && is_derived(result))
        if (graph.composites[known->second].attrs.find("joint")) together.push_back(result);
    return together.size() > 1 ? together : std::vector<ValueId>{};
  };

  // A branch's derivative is one: each way computes its results again, and what it gives back of their cotangents.
  const auto derive_branch = [&](const Node& node) {
    std::vector<std::size_t> places, asked;
    for (std::size_t r = 0; r < node.results.size(); ++r)
      if (is_derived(node.results[r])) places.push_back(r);
    for (std::size_t i = 1; i < node.operands.size(); ++i)
      if (needs[node.operands[i].index]) asked.push_back(i);
    if (places.empty() || asked.empty()) return;
    // Zeros are not what eager gives an array that the way has not read: no gradient.
    std::vector<std::vector<bool>> reached(2);
    for (std::size_t b = 0; b < 2; ++b)
      for (std::size_t i : asked) {
        const std::vector<bool> flow = gradient_flow(*node.bodies[b], {&node.bodies[b]->inputs[i - 1].value, 1});
        for (const Output& output : node.bodies[b]->outputs) reached[b].push_back(flow[output.value.index]);
      }
    if (reached[0] != reached[1])
      throw NoDerivative(node.op, "a branch of which one way depends on an array that the other does not depend on",
                         node.location);
    std::vector<std::shared_ptr<Graph>> bodies;
    std::vector<bool> given_back;
    for (const std::shared_ptr<const Graph>& body : node.bodies) {
      auto derived = std::make_shared<Graph>(*body);
      std::vector<ValueId> inputs, results, given;
      for (std::size_t i : asked) inputs.push_back(derived->inputs[i - 1].value);
      for (std::size_t r : places) {
        results.push_back(derived->outputs[r].value);
        if (is_complex(derived->type(results.back()).dtype)) throw NoDerivative(node.op, node.location);
        given.push_back(derived->add_input("cotangent" + std::to_string(r), derived->type(results.back())));
      }
      std::vector<bool> of_way;
      derived->outputs.clear();
      for (ValueId gradient : add_gradients(*derived, inputs, results, given)) {
        of_way.push_back(gradient.valid());
        if (gradient.valid()) derived->outputs.push_back({gradient, std::nullopt});
      }
      if (!bodies.empty() && of_way != given_back)
        throw NoDerivative(node.op, "a branch of which one way gives an array no gradient", node.location);
      given_back = std::move(of_way);
      bodies.push_back(std::move(derived));
    }
    std::vector<ValueId> operands = node.operands;
    for (std::size_t r : places) operands.push_back(cotangent.at(node.results[r].index));
    drop_unread(operands, bodies);
    BackwardStep step{node.results[places[0]], {}, {}, true, {}, {}};
    for (ValueId read : operands)
      if (read.index < forward_values && !fixed[read.index]) step.read.push_back(read);
    if (places.size() > 1)
      for (std::size_t r : places) step.together.push_back(node.results[r]);
    const bool any = std::find(given_back.begin(), given_back.end(), true) != given_back.end();
    const std::vector<ValueId> made =
        any ? graph.add_control(Op::cond, std::move(operands), {bodies.begin(), bodies.end()}, node.location)
            : std::vector<ValueId>{};
    std::size_t next = 0;
    for (std::size_t k = 0; k < asked.size(); ++k) {
      const ValueId operand = node.operands[asked[k]], gradient = given_back[k] ? made[next++] : ValueId{};
      if (gradient.valid()) accumulate(operand, gradient, node.location);
      step.into.push_back(operand);
      step.given.push_back(gradient);
    }
    for (std::size_t r : places) {
      step.result = node.results[r];
      if (steps) steps->push_back(step);
    }
  };

  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node node = graph.nodes[i];
    if (node.op == Op::loop && std::any_of(node.results.begin(), node.results.end(), is_derived))
      throw NoDerivative(node.op, "a loop that goes on as its arrays decide", node.location);
    if (node.op == Op::loop) continue;
    if (node.op == Op::cond) {
      derive_branch(node);
      continue;
    }
    const std::vector<ValueId> together =
        node.op == Op::extern_call ? derived_together(node) : std::vector<ValueId>{};
    BackwardStep step_of_first;  // of those
    for (ValueId result : node.results) {
      if (!is_derived(result)) continue;
      const auto found = cotangent.find(result.index);
      const bool joint = std::find(together.begin(), together.end(), result) != together.end();
      if (joint && result != together[0]) {
        if (steps) steps->push_back(step_of_first);
        if (steps) steps->back().result = result;
        continue;
      }
      GradientRule rule = gradient_rule(node.op);
      std::vector<ValueId> operands = node.operands, kept;
      Attrs attrs = node.attrs;
      std::shared_ptr<const Graph> pullback;
      if (auto composite = composites.find(result.index); composite != composites.end()) {
        const Composite known = graph.composites[composite->second];
        rule = gradient_rule(known.rule);
        operands = known.operands;
        kept = known.kept;
        attrs = known.attrs;
        pullback = known.pullback;
      }
      std::vector<bool> asked;
      for (ValueId operand : operands) asked.push_back(needs[operand.index]);
      const std::size_t before = graph.nodes.size();
      if (std::find(asked.begin(), asked.end(), true) == asked.end()) continue;  // a wanted value's own node
      if (rule == nullptr || is_complex(graph.type(result).dtype)) {
        if (node.op != Op::extern_call) throw NoDerivative(node.op, node.location);
        throw NoDerivative(node.op, "a library call of " + node.attrs.get<std::string>("callee"), node.location);
      }
      Derivation derivation(graph, node.op, operands, result, kept, attrs, found->second, asked, node.location);
      derivation.pullback = std::move(pullback);
      if (joint)
        for (std::int64_t place : attrs.get<std::vector<std::int64_t>>("results")) {
          const ValueId other = node.results[std::size_t(place)];
          derivation.together.push_back(is_derived(other) ? cotangent.at(other.index)
                                                          : derivation.zeros(graph.type(other)));
        }
      for (ValueId operand : operands) derivation.turned.push_back(turned[operand.index]);
      rule(derivation);
      BackwardStep step{result, {}, {}, false, {}, {}};
      if (joint) step.together = together;
      for (std::size_t n = before; n < graph.nodes.size(); ++n)
        for (ValueId read : graph.nodes[n].operands)
          if (read.index < forward_values && !fixed[read.index]) step.read.push_back(read);
      step.reads = !step.read.empty();
      for (std::size_t operand = 0; operand < operands.size(); ++operand) {
        if (!asked[operand]) continue;
        if (derivation.given[operand].valid()) accumulate(operands[operand], derivation.given[operand], node.location);
        step.into.push_back(operands[operand]);
        step.given.push_back(derivation.given[operand]);
      }
      if (joint) step_of_first = step;
      if (steps) steps->push_back(std::move(step));
    }
  }
  std::vector<ValueId> gradients;
  for (ValueId value : wanted) {
    auto found = cotangent.find(value.index);
    gradients.push_back(found == cotangent.end() ? ValueId{} : found->second);
  }
  return gradients;
}

Joint differentiate(const Graph& graph, std::span<const ValueId> wanted, std::span<const ValueId> of, bool apart) {
  Joint joint{graph, graph.value_count(), graph.nodes.size(), {}, {}, {}};
  joint.graph.outputs.clear();
  joint.graph.writes.clear();
  for (ValueId value : of)
    joint.cotangents.push_back(
        joint.graph.add_input("cotangent" + std::to_string(joint.cotangents.size()), graph.type(value)));
  joint.gradients = add_gradients(joint.graph, wanted, of, joint.cotangents, &joint.steps, apart);
  return joint;
}

namespace {

/// The nodes of the joint graph that its gradients need.
std::vector<bool> live_values(const Joint& joint) {
  std::vector<bool> live(joint.graph.value_count(), false);
  for (ValueId gradient : joint.gradients)
    if (gradient.valid()) live[gradient.index] = true;
  for (std::size_t i = joint.graph.nodes.size(); i-- > joint.forward_nodes;) {
    const Node& node = joint.graph.nodes[i];
    if (std::any_of(node.results.begin(), node.results.end(), [&](ValueId result) { return live[result.index]; }))
      for (ValueId operand : node.operands) live[operand.index] = true;
  }
  return live;
}

/// The composites of `from` all of whose values have a counterpart that the graph computes.
void add_whole_composites(Graph& graph, const Graph& from, const std::vector<ValueId>& mapped) {
  for (const Composite& composite : from.composites) {
    Composite copy = composite;
    bool whole = mapped[composite.result.index].valid() &&
                 std::none_of(graph.inputs.begin(), graph.inputs.end(),
                              [&](const Input& input) { return input.value == mapped[composite.result.index]; });
    auto follow = [&](ValueId& value) {
      value = mapped[value.index];
      whole = whole && value.valid();
    };
    follow(copy.result);
    for (ValueId& value : copy.operands) follow(value);
    for (ValueId& value : copy.kept) follow(value);
    if (whole) graph.composites.push_back(std::move(copy));
  }
  for (ValueId value : from.spare_calls)
    if (mapped[value.index].valid()) graph.spare_calls.insert(mapped[value.index]);
}

/// The node with operands mapped; its results are mapped then.
void add_mapped(Graph& graph, const Graph& from, const Node& node, Attrs attrs, std::vector<ValueId>& mapped) {
  std::vector<ValueId> operands;
  for (ValueId operand : node.operands) operands.push_back(mapped[operand.index]);
  if (node.op != Op::extern_call && node.bodies.empty()) {
    mapped[node.results[0].index] = graph.add(node.op, std::move(operands), std::move(attrs), node.location);
    return;
  }
  std::vector<Type> types;
  for (ValueId result : node.results) types.push_back(from.type(result));
  const std::vector<ValueId> results =
      !node.bodies.empty() ? graph.add_control(node.op, std::move(operands), node.bodies, node.location)
                           : graph.add_extern(std::move(operands), std::move(attrs), types, node.location);
  for (std::size_t i = 0; i < results.size(); ++i) mapped[node.results[i].index] = results[i];
}

/// Makes live what the live nodes among the first ones are computed from, down to what is mapped.
void add_operands(const Graph& graph, std::size_t nodes, const std::vector<ValueId>& mapped, std::vector<bool>& live) {
  for (std::size_t i = nodes; i-- > 0;) {
    const Node& node = graph.nodes[i];
    if (std::any_of(node.results.begin(), node.results.end(),
                    [&](ValueId result) { return live[result.index] && !mapped[result.index].valid(); }))
      for (ValueId operand : node.operands) live[operand.index] = true;
  }
}

/// Makes live what the derivatives of live library calls, and those that Python code gives, read, which may be made
/// after them, where it can be had from what is mapped and live without another effect. The nodes of other composites
/// have derivatives themselves.
void add_read_by_derivatives(const Graph& graph, const std::vector<ValueId>& mapped, std::vector<bool>& live) {
  std::vector<bool> there(graph.value_count(), false);
  const auto all_there = [&](const std::vector<ValueId>& values) {
    return std::all_of(values.begin(), values.end(), [&](ValueId value) { return there[value.index]; });
  };
  for (std::uint32_t i = 0; i < graph.value_count(); ++i) there[i] = mapped[i].valid();
  for (const Node& node : graph.nodes) {
    // With one of a library call's results there are all.
    const bool made = (node.op != Op::extern_call && row(node.op).effect == OpEffect::Pure) ||
                      std::any_of(node.results.begin(), node.results.end(),
                                  [&](ValueId result) { return live[result.index]; });
    if (!made || !all_there(node.operands)) continue;
    for (ValueId result : node.results) there[result.index] = true;
  }
  for (bool more = true; more;) {
    more = false;
    for (const Composite& composite : graph.composites) {
      const ValueId result = composite.result;
      const bool alone = composite.rule == CompositeRule::Extern || composite.rule == CompositeRule::Pullback ||
                         composite.rule == CompositeRule::Once;
      if (!alone || !live[result.index] || mapped[result.index].valid()) continue;
      if (!all_there(composite.operands) || !all_there(composite.kept)) continue;
      for (const auto* values : {&composite.operands, &composite.kept})
        for (ValueId value : *values) {
          more = more || !live[value.index];
          live[value.index] = true;
        }
    }
    if (more) add_operands(graph, graph.nodes.size(), mapped, live);
  }
}

}  // namespace

std::vector<ValueId> values_read_backward(const Joint& joint) {
  const std::vector<bool> live = live_values(joint);
  std::vector<ValueId> values;
  for (std::uint32_t i = 0; i < joint.forward_values; ++i)
    if (live[i]) values.push_back({i});
  return values;
}

Graph backward_graph(const Joint& joint, std::span<const ValueId> saved) {
  const Graph& from = joint.graph;
  std::vector<bool> live = live_values(joint);
  std::vector<ValueId> mapped(from.value_count());
  Graph graph;
  graph.name = from.name + "_backward";
  graph.symbols = from.symbols;
  for (ValueId value : saved)
    mapped[value.index] = graph.add_input("saved" + std::to_string(graph.inputs.size()), from.type(value));
  for (ValueId value : joint.cotangents)
    mapped[value.index] = graph.add_input("cotangent" + std::to_string(graph.inputs.size()), from.type(value));
  // Forward nodes that are repeated, from what backward reads down to what was saved.
  add_operands(from, joint.forward_nodes, mapped, live);
  add_read_by_derivatives(from, mapped, live);
  const auto wanted = [&](const Node& node) {
    return std::any_of(node.results.begin(), node.results.end(),
                       [&](ValueId result) { return live[result.index] && !mapped[result.index].valid(); });
  };
  const std::size_t none = from.nodes.size();
  std::vector<std::size_t> later(from.value_count(), none);  // the node of a value in a checkpoint
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < from.nodes.size(); ++i) {
    if (!wanted(from.nodes[i])) continue;
    if (i < joint.forward_nodes && from.checkpoints.count(from.nodes[i].results[0])) {
      for (ValueId result : from.nodes[i].results) later[result.index] = i;
      continue;
    }
    open.push_back(i);
    while (!open.empty()) {
      const std::size_t n = open.back();
      const Node& node = from.nodes[n];
      for (ValueId operand : node.operands)
        if (!mapped[operand.index].valid() && later[operand.index] != none) open.push_back(later[operand.index]);
      if (open.back() != n) continue;
      open.pop_back();
      if (!wanted(node)) continue;
      for (ValueId operand : node.operands)
        FJ_CHECK(mapped[operand.index].valid(),
                 std::string(name(node.op)) + ": backward can't be computed from what was saved");
      FJ_CHECK(node.op != Op::extern_call || n >= joint.forward_nodes, "an extern call is repeated backward");
      add_mapped(graph, from, node, node.attrs, mapped);
    }
  }
  add_whole_composites(graph, from, mapped);
  for (ValueId gradient : joint.gradients)
    if (gradient.valid()) graph.outputs.push_back({mapped[gradient.index], std::nullopt});
  return graph;
}

namespace {

/// Other numbers for the library calls that the attributes of a node or a composite name.
void renumber(Attrs& attrs, const std::function<std::int64_t(std::int64_t)>& call) {
  for (const char* name : {"handle", "joint"})
    if (const Attr* handle = attrs.find(name)) attrs.set(name, call(std::get<std::int64_t>(*handle)));
}

/// The graph with other numbers for its library calls.
std::shared_ptr<const Graph> renumbered(const std::shared_ptr<const Graph>& graph,
                                        const std::function<std::int64_t(std::int64_t)>& call) {
  if (!graph || !call) return graph;
  auto copy = std::make_shared<Graph>(*graph);
  for (Node& node : copy->nodes) renumber(node.attrs, call);
  for (Composite& composite : copy->composites) {
    renumber(composite.attrs, call);
    composite.pullback = renumbered(composite.pullback, call);
  }
  return copy;
}

}  // namespace

std::vector<ValueId> add_graph(Graph& graph, const Graph& from, std::span<const ValueId> inputs,
                               const std::function<std::int64_t(std::int64_t)>& call) {
  FJ_CHECK(inputs.size() == from.inputs.size() && from.symbols.size() <= graph.symbols.size(),
           "a graph is added with its inputs");
  std::vector<ValueId> mapped(from.value_count());
  for (std::size_t i = 0; i < inputs.size(); ++i) mapped[from.inputs[i].value.index] = inputs[i];
  auto all = [&](const std::vector<ValueId>& values) {
    std::vector<ValueId> found;
    for (ValueId value : values) found.push_back(mapped[value.index]);
    return found;
  };
  auto with_call = [&](Attrs attrs) {
    if (call) renumber(attrs, call);
    return attrs;
  };
  for (const Node& node : from.nodes) add_mapped(graph, from, node, with_call(node.attrs), mapped);
  for (const Composite& composite : from.composites)
    graph.composites.push_back({composite.rule, all(composite.operands), mapped[composite.result.index],
                                all(composite.kept), with_call(composite.attrs), renumbered(composite.pullback, call)});
  for (ValueId value : from.spare_calls) graph.spare_calls.insert(mapped[value.index]);
  std::vector<ValueId> outputs;
  for (const Output& output : from.outputs) outputs.push_back(mapped[output.value.index]);
  return outputs;
}

Graph part_of_graph(const Graph& from, std::span<const ValueId> inputs, std::span<const ValueId> outputs) {
  std::vector<ValueId> mapped(from.value_count());
  std::vector<bool> live(from.value_count(), false);
  Graph graph;
  graph.name = from.name + "_part";
  graph.symbols = from.symbols;
  for (ValueId value : inputs)
    mapped[value.index] = graph.add_input("input" + std::to_string(graph.inputs.size()), from.type(value));
  for (ValueId value : outputs) live[value.index] = true;
  const auto wanted = [&](const Node& node) {
    return std::any_of(node.results.begin(), node.results.end(),
                       [&](ValueId result) { return live[result.index] && !mapped[result.index].valid(); });
  };
  add_operands(from, from.nodes.size(), mapped, live);
  add_read_by_derivatives(from, mapped, live);
  for (const Node& node : from.nodes) {
    if (!wanted(node)) continue;
    for (ValueId operand : node.operands)
      FJ_CHECK(mapped[operand.index].valid(), "a part of a graph reads what is not in it");
    add_mapped(graph, from, node, node.attrs, mapped);
  }
  add_whole_composites(graph, from, mapped);
  for (ValueId value : outputs) graph.outputs.push_back({mapped[value.index], std::nullopt});
  return graph;
}

}  // namespace fj
