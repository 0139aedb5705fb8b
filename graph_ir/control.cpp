#include "graph_ir/control.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "graph_ir/passes/dce.h"

namespace fj {
namespace {

/// Leaves out the states of a loop that neither what is behind it (`wanted`, by state) nor another pass reads, and what
/// passes do not read of the rest. operands: the condition, the states, the others.
void drop_unread_states(std::vector<ValueId>& operands, Graph& body, std::vector<bool>& wanted) {
  const std::size_t states = wanted.size();
  for (bool grown = true; grown;) {
    grown = false;
    Graph probe = body;
    probe.outputs.clear();
    for (std::size_t i = 0; i <= states; ++i)
      if (i == 0 || wanted[i - 1]) probe.outputs.push_back(body.outputs[i]);
    dce(probe, true);
    std::vector<bool> read(probe.value_count(), false);
    for (const Node& node : probe.nodes)
      for (ValueId operand : node.operands) read[operand.index] = true;
    for (const Output& output : probe.outputs) read[output.value.index] = true;
    for (std::size_t i = 0; i < states; ++i)
      if (!wanted[i] && read[body.inputs[i].value.index]) grown = wanted[i] = true;
    if (grown) continue;
    body.nodes = std::move(probe.nodes);
    const auto made = [&](ValueId value) {
      return std::any_of(body.nodes.begin(), body.nodes.end(), [&](const Node& node) {
        return std::find(node.results.begin(), node.results.end(), value) != node.results.end();
      });
    };
    std::erase_if(body.composites, [&](const Composite& composite) { return !made(composite.result); });
    for (const Composite& composite : body.composites)
      for (const std::vector<ValueId>* values : {&composite.operands, &composite.kept})
        for (ValueId value : *values) read[value.index] = true;
    for (std::size_t i = body.inputs.size(); i-- > 0;) {
      if (i < states ? wanted[i] : bool(read[body.inputs[i].value.index])) continue;
      body.inputs.erase(body.inputs.begin() + std::ptrdiff_t(i));
      operands.erase(operands.begin() + std::ptrdiff_t(i) + 1);
      if (i < states) body.outputs.erase(body.outputs.begin() + std::ptrdiff_t(i) + 1);
    }
  }
}

/// As many as there are: it is none of them.
std::size_t input_number(const Graph& body, ValueId value) {
  std::size_t i = 0;
  while (i < body.inputs.size() && body.inputs[i].value != value) ++i;
  return i;
}

/// Where one way is a loop that is entered at least once, and the other gives what that begins with: a loop that the
/// condition enters, which is how Python's compiler takes a `while` apart.
std::optional<std::vector<ValueId>> add_tested_loop(Graph& graph, ValueId condition,
                                                           const std::vector<ValueId>& operands, const Graph& one,
                                                           const Graph& other) {
  const auto is_constant = [](const Node& node) { return node.op == Op::constant; };
  if (one.nodes.empty() || one.nodes.back().op != Op::loop ||
      !std::all_of(one.nodes.begin(), one.nodes.end() - 1, is_constant) ||
      !std::all_of(other.nodes.begin(), other.nodes.end(), is_constant))
    return std::nullopt;
  const Node& loop = one.nodes.back();
  const auto constant_of = [](const Graph& body, ValueId value) -> const Node* {
    for (const Node& node : body.nodes)
      if (node.op == Op::constant && node.results[0] == value) return &node;
    return nullptr;
  };
  const Node* const goes = constant_of(one, loop.operands[0]);
  if (!goes || goes->attrs.get<Scalar>("value") != Scalar(true)) return std::nullopt;
  std::vector<std::size_t> chosen;
  for (std::size_t r = 0; r < one.outputs.size(); ++r) {
    const auto result = std::find(loop.results.begin(), loop.results.end(), one.outputs[r].value);
    if (result == loop.results.end()) return std::nullopt;
    chosen.push_back(std::size_t(result - loop.results.begin()));
    const ValueId before = loop.operands[chosen.back() + 1], without = other.outputs[r].value;
    const Node *first = constant_of(one, before), *second = constant_of(other, without);
    const bool same = first ? second && first->attrs == second->attrs && one.type(before) == other.type(without)
                            : !second && input_number(one, before) == input_number(other, without);
    if (!same) return std::nullopt;
  }
  std::vector<ValueId> given = {condition};
  for (std::size_t i = 1; i < loop.operands.size(); ++i) {
    const Node* const known = constant_of(one, loop.operands[i]);
    given.push_back(known ? graph.add(Op::constant, {}, known->attrs, known->location)
                          : operands[input_number(one, loop.operands[i])]);
  }
  const std::vector<ValueId> made = graph.add_control(Op::loop, std::move(given), loop.bodies, loop.location);
  std::vector<ValueId> results;
  for (std::size_t i : chosen) results.push_back(made[i]);
  return results;
}

ValueId constant_of(Graph& graph, Scalar value, DType dtype) {
  Attrs attrs;
  attrs.set("value", std::move(value));
  attrs.set("to", dtype);
  return graph.add(Op::constant, {}, std::move(attrs));
}

}  // namespace

ValueId add_constant(Graph& graph, bool value) { return constant_of(graph, Scalar(value), DType::Bool); }
ValueId add_constant(Graph& graph, std::int64_t value) { return constant_of(graph, Scalar(value), DType::I64); }

void add_check(Graph& graph, ValueId holds, const Location& location) {
  Attrs to;
  to.set("to", DType::I64);
  const ValueId number = graph.add(Op::cast, {holds}, std::move(to), location);
  graph.add(Op::floor_div, {add_constant(graph, std::int64_t{1}), number}, {}, location);
}

std::vector<ValueId> add_branch(Graph& graph, ValueId condition, std::vector<ValueId> operands, Graph one, Graph other,
                                const Location& location) {
  const auto truth = [](const Graph& body, ValueId value) -> std::optional<bool> {
    for (const Node& node : body.nodes)
      if (node.results[0] == value && node.op == Op::constant)
        if (const bool* known = std::get_if<bool>(&node.attrs.get<Scalar>("value"))) return *known;
    return std::nullopt;
  };
  const auto does_nothing = [](Graph body) {
    body.outputs.clear();
    dce(body, true);
    return body.nodes.empty();
  };
  const bool idle = does_nothing(one) && does_nothing(other);
  std::vector<ValueId> results(one.outputs.size());
  for (std::size_t r = results.size(); r-- > 0;) {
    const ValueId a = one.outputs[r].value, b = other.outputs[r].value;
    const std::size_t i = input_number(one, a);
    if (i < operands.size() && i == input_number(other, b)) results[r] = operands[i];
    if (truth(one, a) == true && truth(other, b) == false) results[r] = condition;
    if (truth(one, a) == false && truth(other, b) == true)
      results[r] = graph.add(Op::logical_not, {condition}, {}, location);
    if (one.outputs.size() == 1 && !idle) results[r] = {};  // what may fail happens in a branch that gives something
    if (!results[r].valid()) continue;
    one.outputs.erase(one.outputs.begin() + std::ptrdiff_t(r));
    other.outputs.erase(other.outputs.begin() + std::ptrdiff_t(r));
  }
  if (one.outputs.empty()) return results;
  const auto fill_in = [&](const std::vector<ValueId>& made) {
    for (std::size_t r = 0, next = 0; r < results.size(); ++r)
      if (!results[r].valid()) results[r] = made[next++];
    return results;
  };
  if (const auto made = add_tested_loop(graph, condition, operands, one, other)) return fill_in(*made);
  operands.insert(operands.begin(), condition);
  const std::vector<ValueId> made =
      graph.add_control(Op::cond, std::move(operands),
                        {std::make_shared<Graph>(std::move(one)), std::make_shared<Graph>(std::move(other))}, location);
  return fill_in(made);
}

std::vector<ValueId> add_loop(Graph& graph, std::vector<ValueId> operands, Graph pass, std::vector<bool> wanted,
                              const Location& location) {
  operands.insert(operands.begin(), add_constant(graph, true));
  drop_unread_states(operands, pass, wanted);
  std::vector<ValueId> results(wanted.size());
  if (pass.outputs.size() == 1) return results;
  const std::vector<ValueId> made =
      graph.add_control(Op::loop, std::move(operands), {std::make_shared<Graph>(std::move(pass))}, location);
  for (std::size_t i = 0, kept = 0; i < wanted.size(); ++i)
    if (wanted[i]) results[i] = made[kept++];
  return results;
}

}  // namespace fj
