/// Inputs of which a program writes a small part: the part is written, not the array.
///     a[5] = 1;  a[7] = 2     graph:   %2 = slice_update(slice_update(a, 1, [5]), 2, [7]);  write a <- %2
///                             parts:   a[5] <- 1, a[7] <- 2
#pragma once

#include <vector>

#include "codegen/loops/loop_ir.h"
#include "graph_ir/graph.h"

namespace fj {

/// One copy at the end of a program.
struct WrittenPart {
  int input;        // whose memory is written
  ValueId value;    // what it then holds, in memory by then
  loop::Index at;   // where in the input the element of the value lies whose index is the loop variables 0, 1, 2, ...
};

/// What the graph's writes come to, in the order in which it is to be written: later parts may lie over earlier ones. A
/// write is in parts if it updates slices of the input's own contents, and those are less than half of it; else it is
/// one part, all of the input.
std::vector<WrittenPart> written_parts(const Graph& graph);

}  // namespace fj
