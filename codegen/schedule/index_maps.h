/// Where an element of an index-map node's result comes from: the one place that knows what broadcast,
/// transpose, slice, ... mean, used by the scheduler (which values line up) and by the lowering (addresses).
#pragma once

#include <optional>

#include "codegen/loops/loop_ir.h"
#include "graph_ir/graph.h"

namespace fj {

/// Index of the operand's element that result element `index` of a broadcast, transpose, slice, windows or reshape
/// reads.
/// nullopt: a reshape that is no polynomial of the index (it splits a dimension in which the index isn't a loop
/// variable of its own); then the operand must lie contiguous in memory and be read at `linear_index`.
std::optional<loop::Index> operand_index(const Graph& graph, const Node& node, const loop::Index& index);

/// The other way, of a transpose or reshape: index of the result's element that is the operand's element `index`.
std::optional<loop::Index> result_index(const Graph& graph, const Node& node, const loop::Index& index);

/// The loop variables 0, 1, 2, ... themselves.
loop::Index identity_index(std::size_t rank);

/// Where in its base the element of a slice_update's update goes whose index is the loop variables 0, 1, 2, ...
loop::Index update_index(const Node& update);

/// Row-major position of `index` in `shape`.
loop::Affine linear_index(const Dims& shape, const loop::Index& index);

}  // namespace fj
