/// Which operations can fail, or raise an IEEE condition: divide by zero, overflow, underflow, invalid.
///
/// NumPy reports conditions, so in a graph that collects conditions such a node is executed, for every element,
/// although nobody reads its result. True of an operation that is not known to be quiet: a node too many costs time,
/// one too few a warning.
#pragma once

#include <cstdint>
#include <vector>

#include "graph_ir/graph.h"

namespace fj {

/// Bits of KernelStatus. That of a library call is its own affair: none.
std::uint32_t conditions_of(const Graph& graph, const Node& node);
inline bool may_raise_condition(const Graph& graph, const Node& node) { return conditions_of(graph, node) != 0; }

/// Whether computing it can fail the program whoever collects conditions: an index out of range, an integer divided by
/// zero. `definition`: the nodes of the values, null for inputs.
bool may_fail(const Graph& graph, const std::vector<const Node*>& definition, const Node& node);
/// Whatever the operands are, the node neither fails nor calls a library.
bool only_computes(const Node& node);

}  // namespace fj
