/// Loops in stretches of passes, whose checks are made before or behind.
///
/// What a pass of an innermost loop asks is mostly known long before: an index that grows by 1 is in range in all of
/// the next thousand passes if it is in the first and in the last one. in_chunks() gives each such loop a second copy
/// without those checks:
///
///     dispatch:  n = how many passes there are, at most kChunk
///                few passes: loop;  all checks hold in the next n passes: fast;  else dispatch with n / 2
///     fast:      n passes without what was checked, then loop for one pass, which looks at signals and has the exits
///     loop:      the loop as it was; after some passes dispatch
///
/// What is left of a pass in `fast` is the program's own arithmetic and the checks that depend on data. Where those too
/// can be put off (assumptions.h), `fast` has none: it notes what it overwrites, and whether anything was not as it
/// took for granted. If so, its stores are undone, and `loop` runs the n passes. All exits are those of the region that
/// is given, with the same values.
#pragma once

#include "graph_ir/region/region.h"

namespace fj::region {

/// The same program, in which some exits may never be taken. Loops of few passes whose number is a constant are passes
/// one after the other (unroll.h), so that what is around them is in chunks. `granting`: checks are put off where they
/// can be; the region's heap is told how often in vain. Loops stay as they are that call functions of the region
/// library, or that have no check for a signal: those are of array operations, and have nothing to be checked.
Region in_chunks(Region region, bool granting);

}  // namespace fj::region
