#include "tracer/interpreter/loops.h"

#include <algorithm>
#include <utility>

namespace fj {

std::vector<Loop> loops_of(const FjCode& code) {
  std::vector<Loop> loops;
  for (int i = 0; i < code.count; ++i) {
    const FjInstr& instr = code.instrs[i];
    const auto flow = fj_opcode_rows[instr.opcode].flow;
    if ((flow != FJ_FLOW_Jump && flow != FJ_FLOW_Branch) || instr.arg > i) continue;
    const auto known =
        std::find_if(loops.begin(), loops.end(), [&](const Loop& loop) { return loop.header == instr.arg; });
    if (known != loops.end())
      known->last = i;
    else
      loops.push_back({instr.arg, i});
  }
  // `continue` goes back to a `while`'s condition, the end of the body to the condition's copy there, and so to the
  // body: a loop that begins within another one ends in it.
  for (bool changed = true; std::exchange(changed, false);)
    for (Loop& around : loops)
      for (const Loop& loop : loops)
        if (around.header < loop.header && loop.header <= around.last && around.last < loop.last) {
          around.last = loop.last;
          changed = true;
        }
  return loops;
}

}  // namespace fj
