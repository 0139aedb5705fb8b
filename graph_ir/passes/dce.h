/// Dead code: nodes whose results nobody uses disappear.
///     %0 = mul %x, %x : f32[n]
///     %1 = add %x, %y : f32[n]   =>   %0 = add %x, %y : f32[n]
///     return %1                       return %0
/// Extern calls stay, in order, but for spare ones. A dead Fallible node stays too, since eager would raise its error,
/// unless nothing can go wrong in it: floating-point quotients, and integer ones by a constant other than 0.
/// With `conditions`, nodes stay that can raise an IEEE condition, which NumPy reports. Returns true if the graph
/// changed.
#pragma once

#include "graph_ir/graph.h"

namespace fj {

bool dce(Graph& graph, bool conditions = false);

}  // namespace fj
