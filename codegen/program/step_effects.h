/// What a step of a lowered program touches and whether it can fail: what decides which steps may change places.
#pragma once

#include <vector>

#include "codegen/loops/lower.h"
#include "runtime/base/lists.h"

namespace fj {

/// Buffers, each once.
struct StepTouches {
  std::vector<int> reads, writes;
};

StepTouches touches(const LoweredProgram& program, const ProgramStep& step);

/// `may_trap`: IEEE conditions fail the program. A commit does not fail: what it could report, an earlier step has.
bool may_fail(const LoweredProgram& program, const ProgramStep& step, bool may_trap);

}  // namespace fj
