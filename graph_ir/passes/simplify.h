/// Algebra that is exact bit for bit, and arithmetic on constants.
///     %0 = constant {value = 1.0, to = f32}  : f32[]
///     %1 = broadcast %0 {dims = []}          : f32[n]   =>   %0 = neg %x : f32[n]
///     %2 = mul %x, %1                        : f32[n]        return %x
///     %3 = neg %2                            : f32[n]
///     %4 = neg %3                            : f32[n]
///     return %4
/// Constants fold by the evaluator unless that raised an IEEE condition or failed, which the user is to see.
/// Index maps compose (transpose of transpose, slice of slice, ...), casts and negations that undo each other
/// disappear. Floating point: x * 1, x / 1, x - 0, x + -0 are x; x + 0 is not, for x = -0.
/// Runs until nothing changes. Returns true if the graph changed; dead nodes are left for dce.
#pragma once

#include "graph_ir/graph.h"

namespace fj {

bool simplify(Graph& graph);

}  // namespace fj
