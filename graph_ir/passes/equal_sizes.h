/// Sizes that are equal in every run, written as one. Arrays of sizes that vary have a symbol for each, and what is
/// asked of them (by guards: a shape that has to be another's) says which are equal: operations on them then have one
/// shape, and fuse.
///     %0 = broadcast %y {dims = [0], shape = [s0]}    y: f32[s1], s1 == s0        =>        %y: f32[s0]
#pragma once

#include <span>
#include <utility>

#include "graph_ir/graph.h"

namespace fj {

/// `equal`: what has one value whenever the graph runs. Values keep their numbers.
void equate_sizes(Graph& graph, std::span<const std::pair<SymDim, SymDim>> equal);

}  // namespace fj
