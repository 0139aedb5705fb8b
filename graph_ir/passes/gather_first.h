/// Gather before computing: a pointwise operation of which only some elements are read is computed for those alone.
///     %1 = sub %x, %m                    : f32[n, 64]        %1 = take_along %x, %i {axis = 1}  : f32[n, 1]
///     %2 = take_along %1, %i {axis = 1}  : f32[n, 1]    =>   %2 = broadcast %r {dims = [0]}     : f32[n, 1]   (%m is
///     %r repeated)
///                                                            %3 = sub %1, %2                    : f32[n, 1]
/// What is gathered from has to be in memory, so without this a matrix of log-probabilities is stored for one element
/// of each row. Left alone unless at most half as many elements are read as there are, and where nothing would be
/// gathered whose indices are checked. Not for programs that report floating-point conditions: those of elements that
/// nobody reads count. Returns true if the graph changed.
#pragma once

#include "graph_ir/graph.h"

namespace fj {

bool gather_first(Graph& graph);

}  // namespace fj
