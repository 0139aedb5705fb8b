#include "tracer/interpreter/loops.h"

#include <algorithm>

namespace fj {

std::vector<Loop> loops_of(const FjCode& code) {
  std::vector<Loop> loops;
  for (int i = 0; i < code.count; ++i) {
    const FjInstr& instr = code.instrs[i];
    switch (instr.opcode) {
      case FJ_JUMP: case FJ_POP_JUMP_IF_FALSE: case FJ_POP_JUMP_IF_TRUE: case FJ_POP_JUMP_IF_NONE: case FJ_POP_JUMP_IF_NOT_NONE:
        if (instr.arg > i) break;
        if (auto known = std::find_if(loops.begin(), loops.end(), [&](const Loop& loop) { return loop.header == instr.arg; });
            known != loops.end())
          known->last = i;
        else
          loops.push_back({instr.arg, i});
        break;
      default: break;
    }
  }
  return loops;
}

}  // namespace fj
