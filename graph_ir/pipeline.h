/// The passes every captured graph goes through before code generation, in order.
#pragma once

#include "graph_ir/graph.h"

namespace fj {

/// The graph means the same afterwards. Debug builds verify after every pass and name the one that broke it.
void optimise(Graph& graph);

}  // namespace fj
