/// Where the loops of a code object are.
#pragma once

#include <vector>

#include "cpython/cpython.h"

namespace fj {

/// Instructions from the target of a jump back to the last jump there, both inclusive, or to the end of a loop that begins
/// in it: two that end together are a `while` with a `continue`.
struct Loop {
  int header, last;
  bool contains(int instruction) const { return instruction >= header && instruction <= last; }
};

/// By the place of their jumps in the code; one for each header.
std::vector<Loop> loops_of(const FjCode& code);

}  // namespace fj
