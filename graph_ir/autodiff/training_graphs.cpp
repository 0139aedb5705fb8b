#include "graph_ir/autodiff/training_graphs.h"

#include <algorithm>
#include <map>

#include "graph_ir/autodiff/autodiff.h"

namespace fj {

TrainingGraphs training_graphs(const Graph& graph, const std::vector<int>& wanted) {
  TrainingGraphs result;
  result.forward = graph;
  std::vector<ValueId> variables, of;
  for (const int input : wanted) variables.push_back(graph.inputs[std::size_t(input)].value);
  const std::vector<bool> needs = gradient_flow(graph, variables);
  std::map<ValueId, TrainingGraphs::Saved> place;
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const ValueId value = graph.outputs[i].value;
    place.try_emplace(value, TrainingGraphs::Saved{-1, int(i)});
    if (!needs[value.index] || std::find(of.begin(), of.end(), value) != of.end()) continue;
    of.push_back(value);
    result.derived.push_back(int(i));
  }
  if (of.empty()) return result;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i)
    if (std::none_of(graph.writes.begin(), graph.writes.end(), [&](const Write& w) { return w.input == int(i); }))
      place[graph.inputs[i].value] = {int(i), -1};
  std::vector<ValueId> visible;
  for (const auto& [value, where] : place) visible.push_back(value);

  const Joint joint = differentiate(graph, variables, of, true);
  const std::vector<ValueId> saved = choose_saved(graph, values_read_backward(joint), visible);
  for (const ValueId value : saved) {
    const auto [known, added] = place.try_emplace(value, TrainingGraphs::Saved{-1, int(result.forward.outputs.size())});
    if (added) result.forward.outputs.push_back({value, std::nullopt});
    result.saved.push_back(known->second);
  }
  result.backward = backward_graph(joint, saved);
  result.backward.name = graph.name + ".backward";
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (joint.gradients[i].valid()) result.gradients.push_back(wanted[i]);
  return result;
}

}  // namespace fj
