/// Graphs as text, in two forms that one parser reads. Nothing depends on addresses or hash order.
///
/// The exact form has a line for each node and the strides of the border; files, golden files and tests have it:
/// parse(print(g)) is g up to value numbers, source folders and hints, and print(parse(t)) == t for printed t.
///
///     graph @gain(%x: f32[s0, 64], %y: f32[s0] strides [2]) where s0 >= 1, s1 = s0 // 2 {
///       %0 = constant {value = 0.5, to = f32} : f32[]  ; demo.py:8
///       %1 = broadcast %0 {dims = []} : f32[s0, 64]
///       %2 = mul %x, %1 : f32[s0, 64]
///       %3 = reduce_sum %2 {axes = [1]} : f32[s0]
///       write %y <- %3
///       return %2 strides [1, s0]
///     }
///
/// The short form is for people: `str(graph)`, explain and the logs. A number, a broadcast and a reshape, transpose or
/// slice that is read once stand inside of what reads them, and values are numbered by what is left:
///
///       %0 = mul %x, 0.5 : f32[s0, 64]  ; demo.py:8
///       %1 = reduce_sum %0 {axes = [1]} : f32[s0]
///
/// Its parse computes the same, and print_short(parse(t)) == t for t that print_short has made; equal constants and
/// broadcasts have become one node, just before the first that reads them.
///
/// Symbols carry their definition (`s1 = s0 // 2`, `s0 % 2`; both sides in parentheses unless a single
/// term) and range (`>= 1`, `<= 9`, `in 1..9`; nothing: any integer). An attribute that the result's type
/// repeats (`shape` of broadcast, reshape, iota; `sizes` of slice) is not printed. A comment with a place holds for the
/// nodes that follow, until the next one; `;` alone: no place is known.
#pragma once

#include <string>
#include <vector>

#include "graph_ir/graph.h"

namespace fj {

std::string print(const Graph& graph);

/// Of a sound graph, as said above. Operands of operations element by element are widened by NumPy's rule,
/// `%x[:, None]` where axes are added that are not the first; `reshape(%x, [4, 5])`, `transpose(%x, [0, 2, 1])`,
/// `transpose(%x)` with the axes reversed, and `%x[1:3]` are moves. Strides are left out where an array has no gaps, and
/// lines have at most 136 columns and a comment.
std::string print_short(const Graph& graph);

/// How the short form shows a value. Those that stand inside of others have numbers too, after all that are printed.
struct ShownValue {
  std::string name;  // "3", "x"
  std::string text;  // "%3", "%x"; "0.5", "%w[:, None]", "transpose(%w, [1, 0])"
};

/// By ValueId.
std::vector<ShownValue> shown_values(const Graph& graph);

/// The exact form's name of every value by ValueId: "%x", "%0". Values of no node or input: "%?".
std::vector<std::string> value_names(const Graph& graph);

/// One node without its location: "%0 = mul %x, %x : f32[s0, 64]". For messages and logs.
std::string print(const Graph& graph, const Node& node);

std::string text(const Attr& attr);
std::string text(const Scalar& scalar);

/// True for an attribute the result's type repeats.
bool repeats_result_shape(Op op, std::string_view attr);

}  // namespace fj
