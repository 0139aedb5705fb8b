/// A graph in two, for programs that are trained where framejit is not: what is computed forward, with what backward
/// reads of it, and the gradients.
#pragma once

#include <vector>

#include "graph_ir/graph.h"

namespace fj {

struct TrainingGraphs {
  /// Where a value that is saved is to be found: an input of the graph, which it does not write, or an output of
  /// `forward`.
  struct Saved {
    int input = -1, output = -1;
  };
  Graph forward;   // outputs: those of the graph, then values that are only saved
  Graph backward;  // inputs: what is saved, then a gradient for each entry of `derived`; outputs: the gradients
  std::vector<Saved> saved;
  std::vector<int> derived;    // outputs of the graph, each value once
  std::vector<int> gradients;  // inputs of the graph, some of those wanted
};

/// `wanted`: the numbers of inputs. Without any path from them to an output, `derived` is empty, and there is no
/// backward. Throws NoDerivative.
TrainingGraphs training_graphs(const Graph& graph, const std::vector<int>& wanted);

}  // namespace fj
