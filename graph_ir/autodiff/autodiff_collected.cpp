#include "graph_ir/autodiff/autodiff_collected.h"

#include <algorithm>

namespace fj {
namespace {

const Node* maker(const Graph& graph, ValueId value) {
  const auto node = std::find_if(graph.nodes.rbegin(), graph.nodes.rend(),
                                 [&](const Node& node) { return !node.results.empty() && node.results[0] == value; });
  return node == graph.nodes.rend() ? nullptr : &*node;
}

/// The node by which a gradient repeats elements of a smaller one; null: it doesn't. Zeros are new memory.
const Node* repeats(const Graph& graph, ValueId gradient) {
  const Node* node = maker(graph, gradient);
  if (node == nullptr || node->op != Op::broadcast) return nullptr;
  if (const Node* number = maker(graph, node->operands[0]); number && number->op == Op::constant) {
    const auto* value = std::get_if<double>(&number->attrs.get<Scalar>("value"));
    if (value && *value == 0) return nullptr;
  }
  const auto sizes = [&](ValueId value) {
    std::vector<SymDim> more;  // than one element
    for (const SymDim& size : graph.type(value).shape)
      if (!(size == SymDim(1))) more.push_back(size);
    return more;
  };
  return sizes(node->operands[0]) == sizes(gradient) ? nullptr : node;
}

}  // namespace

Repeat repeat_of(const Graph& graph, ValueId gradient, int levels) {
  Repeat repeat{gradient, {}};
  for (std::int64_t axis = 0; axis < graph.type(gradient).rank(); ++axis) repeat.dims.push_back(axis);
  for (; levels > 0; --levels) {
    const Node* node = maker(graph, repeat.source);
    if (node == nullptr || node->op != Op::broadcast) break;
    std::vector<std::int64_t> dims;
    for (std::int64_t dim : node->attrs.get<std::vector<std::int64_t>>("dims"))
      dims.push_back(repeat.dims[std::size_t(dim)]);
    repeat = {node->operands[0], std::move(dims)};
  }
  return repeat;
}

Collected::Collected(const Graph& graph, const std::vector<BackwardStep>& steps, const Copies& copies)
    : graph_(graph), copies_(copies) {
  for (const BackwardStep& step : steps) {
    if (!step.together.empty() && step.result != step.together[0]) continue;  // one call has given all of them this
    for (std::size_t i = 0; i < step.into.size(); ++i) {
      if (!step.given[i].valid()) continue;
      parts_[step.into[i]].push_back(step.given[i]);
      holders_[step.given[i]].push_back(step.into[i]);
      passed_by_[{step.into[i], step.given[i]}] = step.result;
      if (copies.inner.count(step.result)) by_inner_.insert(step.given[i]);
    }
  }
  // An operation that passes on what it got alone (that of `x + 1`) has let go of it by then.
  for (const BackwardStep& step : steps)
    if (const auto known = parts_.find(step.result); known != parts_.end() && known->second.size() == 1)
      if (std::find(step.given.begin(), step.given.end(), known->second[0]) != step.given.end())
        std::erase(holders_[known->second[0]], step.result);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    for (ValueId result : graph.nodes[n].results) node_of_[result] = n;
}

ValueId Collected::passed_on(ValueId wanted) const {
  const auto parts = parts_.find(wanted);
  if (parts == parts_.end() || parts->second.size() != 1) return {};
  ValueId gradient = parts->second[0];
  for (ValueId value = wanted;;) {
    const auto by = passed_by_.find({value, gradient});
    if (by == passed_by_.end()) return value == wanted || node_of_.count(gradient) ? ValueId{} : gradient;
    const auto made = node_of_.find(by->second);
    if (made == node_of_.end() || copies_.inner.count(by->second)) return {};
    const Node& node = graph_.nodes[made->second];
    const bool operand =
        std::find(node.operands.begin(), node.operands.end(), value) != node.operands.end();  // not one of a composite
    switch (operand ? node.op : Op::constant) {
      case Op::add:
      case Op::sub: break;
      case Op::mod:
      case Op::fmod:
        if (node.operands[0] != value) return {};
        break;
      case Op::reshape: {
        if (!copies_.clones.count(by->second)) return {};  // an index map's derivative is a view, or a copy
        const auto given = node_of_.find(gradient);
        if (given != node_of_.end() && graph_.nodes[given->second].op == Op::reshape)
          gradient = graph_.nodes[given->second].operands[0];
        break;
      }
      default: return {};
    }
    value = by->second;
  }
}

int Collected::views_that_repeat(ValueId gradient) const {
  int levels = 0;
  while (!by_inner_.count(gradient)) {
    const Node* node = repeats(graph_, gradient);
    if (node == nullptr) break;
    gradient = node->operands[0];
    ++levels;
  }
  return levels;
}

bool Collected::is_own(ValueId gradient) const {
  if (const auto holders = holders_.find(gradient); holders != holders_.end() && holders->second.size() > 1)
    return false;
  const auto made = node_of_.find(gradient);
  if (made == node_of_.end()) return false;
  if (by_inner_.count(gradient)) return true;
  switch (graph_.nodes[made->second].op) {
    case Op::constant: return false;
    case Op::broadcast:
    case Op::reshape:
    case Op::slice:
    case Op::windows:
    case Op::transpose: return false;  // a view: its base has the memory too
    default: return true;
  }
}

int Collected::additions_in_place(ValueId wanted) const {
  const auto parts = parts_.find(wanted);
  if (parts == parts_.end() || parts->second.size() < 2) return 0;
  return int(parts->second.size()) - (is_own(parts->second[0]) ? 1 : 2);
}

bool Collected::is_copied(ValueId leaf) const {
  const auto parts = parts_.find(leaf);
  if (parts == parts_.end() || parts->second.size() != 1) return false;
  const ValueId gradient = parts->second[0];
  // Also through a view of it.
  ValueId viewed = gradient;
  for (auto made = node_of_.find(viewed); made != node_of_.end() && !by_inner_.count(viewed);
       made = node_of_.find(viewed)) {
    const Node& node = graph_.nodes[made->second];
    if (node.op != Op::reshape && node.op != Op::transpose) break;
    viewed = node.operands[0];
  }
  if (views_that_repeat(viewed) > 0) return true;
  const std::vector<ValueId>& holders = holders_.at(gradient);
  if (holders.size() < 2 || holders.back() == leaf) return false;
  // Leaves get theirs at once, each while those behind it have it too. What holds it besides may be a part of one
  // function of the library.
  return std::all_of(holders.begin(), holders.end(),
                     [&](ValueId value) { return parts_.at(value).size() == 1 && !node_of_.count(value); });
}

}  // namespace fj
