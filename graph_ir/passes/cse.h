/// Common subexpressions: a node that repeats an earlier one is that one.
///     %0 = mul %x, %y : f32[n]        %0 = mul %x, %y : f32[n]
///     %1 = mul %x, %y : f32[n]   =>   %1 = add %0, %0 : f32[n]
///     %2 = add %0, %1 : f32[n]
/// Same operation, operands, attributes and type; extern calls never. Fallible nodes count as equal: the
/// second fails exactly when the first does. Returns true if the graph changed.
#pragma once

#include "graph_ir/graph.h"

namespace fj {

bool cse(Graph& graph);

}  // namespace fj
