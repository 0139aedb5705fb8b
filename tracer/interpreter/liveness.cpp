/// Backward data flow over the decoded instructions: a slot is live where it is read later on some path, exception
/// handlers included.
#include "tracer/interpreter/liveness.h"

#include <algorithm>

namespace fj {

namespace {

bool looks_at_locals(PyCodeObject* code) {
  constexpr const char* kNames[] = {"locals",     "vars",      "dir",       "eval",         "exec",
                                    "breakpoint", "set_trace", "_getframe", "currentframe", "super"};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_names); ++i)
    for (const char* name : kNames)
      if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(code->co_names, i), name) == 0) return true;
  return false;
}

struct Flow {
  int reads = -1, assigns = -1;
  bool falls_through = true;
  int jump = -1;
};

Flow flow_of(const FjInstr& instr) {
  Flow flow;
  const FjOpcodeRow& row = fj_opcode_rows[instr.opcode];
  if (row.slot == FJ_SLOT_Reads) flow.reads = instr.arg;
  if (row.slot == FJ_SLOT_Assigns) flow.assigns = instr.arg;
  if (row.flow == FJ_FLOW_Jump || row.flow == FJ_FLOW_Branch) flow.jump = instr.arg;
  flow.falls_through = row.flow == FJ_FLOW_Next || row.flow == FJ_FLOW_Branch;
  return flow;
}

}  // namespace

std::vector<bool> live_slots(const FjCode& code, int instruction) {
  auto* co = reinterpret_cast<PyCodeObject*>(code.code);
  const auto slots = std::size_t(co->co_nlocalsplus);
  bool all = looks_at_locals(co);
  for (int i = 0; i < code.count; ++i)
    all = all || code.instrs[i].opcode == FJ_UNSUPPORTED || code.instrs[i].opcode == FJ_LOAD_SUPER_ATTR;
  if (all) return std::vector<bool>(slots, true);

  std::vector<Flow> flows;
  std::vector<int> handlers;
  for (int i = 0; i < code.count; ++i) {
    flows.push_back(flow_of(code.instrs[i]));
    FjHandler handler;
    handlers.push_back(fj_find_handler(co, code.instrs[i].executing, &handler) ? code.index_of[handler.target] : -1);
  }
  std::vector<std::vector<bool>> live(std::size_t(code.count) + 1, std::vector<bool>(slots));
  for (bool changed = true; changed;) {
    changed = false;
    for (int i = code.count; i-- > 0;) {
      std::vector<bool> now(slots);
      auto join = [&](int target) {
        for (std::size_t slot = 0; slot < slots; ++slot) now[slot] = now[slot] || live[std::size_t(target)][slot];
      };
      const Flow& flow = flows[std::size_t(i)];
      if (flow.falls_through) join(i + 1);
      if (flow.jump >= 0) join(flow.jump);
      if (flow.assigns >= 0) now[std::size_t(flow.assigns)] = false;
      if (flow.reads >= 0) now[std::size_t(flow.reads)] = true;
      if (handlers[std::size_t(i)] >= 0) join(handlers[std::size_t(i)]);
      if (now != live[std::size_t(i)]) {
        live[std::size_t(i)] = std::move(now);
        changed = true;
      }
    }
  }
  std::vector<bool> result = live[std::size_t(instruction)];
  for (int i = 0; i < code.count; ++i) {
    const FjInstr& instr = code.instrs[i];
    const auto slot = fj_opcode_rows[instr.opcode].slot;
    if (slot == FJ_SLOT_Cell) result[std::size_t(instr.arg)] = true;
    if (slot == FJ_SLOT_Cells) std::fill(result.end() - instr.arg, result.end(), true);
  }
  return result;
}

}  // namespace fj
