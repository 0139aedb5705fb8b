/// The passes every captured graph goes through before code generation, in order.
#pragma once

#include "graph_ir/graph.h"

namespace fj {

/// The graph means the same afterwards. Debug builds verify after every pass and name the one that broke it.
/// `conditions`: IEEE conditions raised by any node are part of the meaning (NumPy).
void optimise(Graph& graph, bool conditions = false);

}  // namespace fj
