/// Branches and loops as they are put into a graph: none where their bodies say that none is needed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "graph_ir/graph.h"

namespace fj {

ValueId add_constant(Graph& graph, bool value);
ValueId add_constant(Graph& graph, std::int64_t value);

/// The program fails where `holds`, a bool[], is false.
void add_check(Graph& graph, ValueId holds, const Location& location);

/// What a branch gives: its results, the condition or its contrary where the ways give true and false, an operand where
/// both give that. A
/// way that is a loop beside one that gives what the loop begins with is a loop that the condition enters.
std::vector<ValueId> add_branch(Graph& graph, ValueId condition, std::vector<ValueId> operands, Graph one, Graph other,
                                const Location& location);

/// What a loop that is entered gives, by state; `wanted`: the states that are read behind it. Those that neither this
/// nor a pass reads are left out, without a result. operands: the states, and what passes read besides.
std::vector<ValueId> add_loop(Graph& graph, std::vector<ValueId> operands, Graph pass, std::vector<bool> wanted,
                              const Location& location);

}  // namespace fj
