/// Graphs as text, exactly: parse(print(g)) is g up to value numbers, source folders and hints, and
/// print(parse(t)) == t for printed t. Nothing depends on addresses or hash order.
///
///     graph @gain(%x: f32[s0, 64], %y: f32[s0] strides [2]) where s0 >= 1, s1 = s0 // 2 {
///       %0 = mul %x, %x                : f32[s0, 64]    ; demo.py:8
///       %1 = reduce_sum %0 {axes = [1]} : f32[s0]       ; demo.py:8
///       write %y <- %1
///       return %0 strides [1, s0]
///     }
///
/// Symbols carry their definition (`s1 = s0 // 2`, `s0 % 2`; both sides in parentheses unless a single
/// term) and range (`>= 1`, `<= 9`, `in 1..9`; nothing: any integer). An attribute that the result's type
/// repeats (`shape` of broadcast, reshape, iota; `sizes` of slice) is not printed.
#pragma once

#include <string>
#include <vector>

#include "graph_ir/graph.h"

namespace fj {

std::string print(const Graph& graph);

/// The printed name of every value by ValueId: "%x", "%0". Values of no node or input: "%?".
std::vector<std::string> value_names(const Graph& graph);

/// One node without its location: "%0 = mul %x, %x : f32[s0, 64]". For messages and logs.
std::string print(const Graph& graph, const Node& node);

std::string text(const Attr& attr);
std::string text(const Scalar& scalar);

/// True for an attribute the result's type repeats.
bool repeats_result_shape(Op op, std::string_view attr);

}  // namespace fj
