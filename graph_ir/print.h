/// The graph as text, exactly: parse(print(graph)) prints the same. Values are numbered in order, types are always
/// shown, nothing depends on addresses or hash order.
///
///     graph @gain(%x: f32[s0, 64], %g: f32[64]) where s0 >= 1 {
///       %0 = mul %x, %x                    : f32[s0, 64]    ; demo.py:8
///       write %x <- %0
///       return %0
///     }
#pragma once

#include <string>

#include "graph_ir/graph.h"

namespace fj {

std::string print(const Graph& graph);
/// One attribute value as it stands in braces: `[0, 1]`, `f32`, `2*s0`.
std::string text(const Attr& attr);

}  // namespace fj
