/// Conditions of a branch that are computed of constants alone: library code asks so of its arguments (`if M < 1`, M an
/// array).
#pragma once

#include <optional>

#include "graph_ir/graph.h"

namespace fj {

/// Whether the one element is true; nothing: it depends on an input, on a symbol, or on an operation whose last bit is
/// not promised.
std::optional<bool> constant_condition(const Graph& graph, ValueId value);

/// The one element of an array of integers; nothing: as above.
std::optional<std::int64_t> constant_integer(const Graph& graph, ValueId value);

/// Whether numbers among these, computed of constants alone, are none of the integers of `to`.
bool is_out_of_range(const Graph& graph, ValueId value, DType to);

}  // namespace fj
