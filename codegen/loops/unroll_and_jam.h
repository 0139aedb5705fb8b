/// Unroll and jam: neighbouring rows computed together, inside one pass over what they reduce.
///
///     for i < n                            for i < n/4
///       for j: acc += a[i, j] * b[j]   =>    for j: acc0 += a[4i, j] * b[j], .., acc3 += a[4i+3, j] * b[j]
///       c[i] = acc                           c[4i] = acc0, .., c[4i+3] = acc3
///
/// What doesn't depend on the row is computed once for all of them (here a load of b), and their accumulators are
/// independent: this is the register tile of a matrix product, and what keeps a sum over pairs from gathering one side
/// again for every row of the other.
#pragma once

#include <vector>

#include "codegen/loops/arrange.h"

namespace fj {

/// Which rows to jam (at most two variables of body.rows, never the vector variable) and how many of each; none where
/// nothing is shared that is worth it. Decided by what an inner step costs and by sizes that are constants.
struct Jam {
  loop::VarId row;
  std::int64_t factor;
};
std::vector<Jam> choose_jams(const loop::Kernel& kernel, const Body& body);

/// Rows [first, first + blocks * factor) of `row`, `factor` of them at once. `row` then counts blocks; with one block
/// it is gone.
void jam_rows(loop::Kernel& kernel, Body& body, loop::VarId row, const SymDim& first, const SymDim& blocks,
              std::int64_t factor);

}  // namespace fj
