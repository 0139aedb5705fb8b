/// Where an element of an index-map node's result comes from: the one place that knows what broadcast,
/// transpose, slice, ... mean, used by the scheduler (which values line up) and by the lowering (addresses).
#pragma once

#include <optional>

#include "codegen/loops/loop_ir.h"
#include "graph_ir/graph.h"

namespace fj {

/// Index of the operand's element that result element `index` of a broadcast, transpose, slice or reshape reads.
/// nullopt: a reshape that is no polynomial of the index (it splits a dimension in which the index isn't a loop
/// variable of its own); then the operand must lie contiguous in memory and be read at `linear_index`.
std::optional<loop::Index> operand_index(const Graph& graph, const Node& node, const loop::Index& index);

/// The other way, of a transpose or reshape: index of the result's element that is the operand's element `index`.
std::optional<loop::Index> result_index(const Graph& graph, const Node& node, const loop::Index& index);

/// Row-major position of `index` in `shape`.
loop::Affine linear_index(const Dims& shape, const loop::Index& index);

}  // namespace fj
