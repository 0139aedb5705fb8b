/// Compute before widening: a pointwise op on broadcasts runs on the smallest shape that holds them all.
///     %1 = broadcast %a {dims = [0]} : f32[n, 64]        %1 = mul %a, %b             : f32[n]
///     %2 = broadcast %b {dims = [0]} : f32[n, 64]   =>   %2 = broadcast %1 {dims = [0]} : f32[n, 64]
///     %3 = mul %1, %2                : f32[n, 64]
/// Left alone if a broadcast of more than a scalar has other users (the wide value is needed anyway), or if
/// the small shape has as many elements. Returns true if the graph changed.
#pragma once

#include "graph_ir/graph.h"

namespace fj {

bool sink_broadcasts(Graph& graph);

}  // namespace fj
