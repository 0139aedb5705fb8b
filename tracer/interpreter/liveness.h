/// Which locals of a frame the code ahead can still read.
#pragma once

#include <vector>

#include "cpython/cpython.h"

namespace fj {

/// One flag per slot: whether some path from `instruction` reads it before it is assigned. Cells are always live, and
/// so is everything in code that names a way to look at its own locals (locals, eval, breakpoint...).
std::vector<bool> live_slots(const FjCode& code, int instruction);

}  // namespace fj
