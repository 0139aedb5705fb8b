/// Sizes that are symbols: what they can be.
#pragma once

#include <cstdint>
#include <optional>

#include "graph_ir/graph.h"

namespace fj {

class TraceRun;

/// As it is in this call; of a size that depends on data, a guess.
std::int64_t hint(TraceRun& t, const SymDim& expression);
/// The sum, difference or product (NB_ADD, NB_SUBTRACT, NB_MULTIPLY) of two ints as Python has it; nullopt where that
/// can't be an int of 64 bits at each call.
std::optional<SymDim> exact(TraceRun& t, int op, const SymDim& a, const SymDim& b);
/// Known without a guard.
bool never_negative(const Graph& graph, const SymDim& expression);

}  // namespace fj
