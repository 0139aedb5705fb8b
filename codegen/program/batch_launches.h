/// Many small launches of one kernel become one: an optimiser's update of each parameter is the same work on other
/// arrays. The launch is over a table of them, threads over all.
///     k0: p0 -= lr * g0;  k1: p1 -= lr * g1;  k2: p2 -= lr * g2        =>        k0, k1, k2 in one step
/// A kernel joins an earlier launch if nothing it needs comes after that; it is left where it is if it is long enough
/// to fill threads by itself, or if the arrays it makes would have to be kept for longer.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/loops/lower.h"

namespace fj {

struct BatchLimits {
  double nanoseconds;        // of one core: longer launches gain nothing from company
  std::int64_t array_bytes;  // of an array that is made earlier than needed
};

/// `work[k]`, equal for kernels that are to run the same code. `may_trap`: IEEE conditions fail the program.
void batch_launches(LoweredProgram& program, const std::vector<int>& work, bool may_trap, const BatchLimits& limits);

}  // namespace fj
