/// Values that are put together of many others: a long concatenation, a chain of updates of slices.
///     torch.stack(rows)               graph:  concat(%1, %2, ..., %500)
///     out[:, t] = h, for each t       graph:  slice_update(slice_update(%out, %h0, [0, 0]), %h1, [0, 1]) ...
/// As loops over its elements each element would be looked for in every part. It is copies of its parts instead.
#pragma once

#include <functional>
#include <vector>

#include "codegen/loops/loop_ir.h"
#include "graph_ir/graph.h"

namespace fj {

/// One copy. Indices are functions of the loop variables 0, 1, 2, ..., which run over `sizes`.
struct AssembledPart {
  ValueId value;     // in memory by then
  loop::Index from;  // where in it the elements are
  Dims sizes;
  loop::Index to;    // where in the assembled value they go
};

/// In the order in which they are to be copied: later parts may lie over earlier ones, except those of a concatenation.
/// `is_link`: whether an update of slices that the chain goes through is needed by nothing but the next one. Nothing:
/// the value has few parts, or is no such value.
std::vector<AssembledPart> assembled_parts(const Graph& graph, const std::vector<int>& node_of, ValueId value,
                                           const std::function<bool(ValueId)>& is_link);

/// The same elements, of what the part's value is a view of. `in_memory`: where looking through ends.
void look_through_views(const Graph& graph, const std::vector<int>& node_of, AssembledPart& part,
                        const std::function<bool(ValueId)>& in_memory);

}  // namespace fj
