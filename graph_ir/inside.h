/// What stands inside of the operation that reads it, in the short form of graphs (print.h). Printer and parser agree
/// here.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "graph_ir/graph.h"

namespace fj {

/// The dtype of a number written as operand `index`: nullopt where the operation takes no number there. `others`: the
/// dtypes of the operands that are no numbers.
std::optional<DType> number_dtype(Op op, std::size_t index, DType result, std::span<const std::optional<DType>> others);

/// The shape of a number written as operand `index` of an operation with this result.
Dims number_shape(Op op, const Dims& result);

/// Whether NumPy widens an array of this shape to the other one, which is not the same, by itself: sizes are compared
/// from the last on, and are equal or 1.
bool widens(const Dims& shape, const Dims& to);

/// The value of an attribute that is left out in the short form: of calls without a handle or layouts of their own.
std::optional<Attr> assumed(const Node& node, std::string_view attr);

/// How deep operations may stand in one another.
inline constexpr int kDeepestInside = 2;

}  // namespace fj
