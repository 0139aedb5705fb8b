// Loops whose passes several threads run: `for i in framejit.prange(n)`. What a pass takes from the one before is found
// in the bytecode, and that it is only gathered (a sum, the largest) in the region (graph_ir/region/independence.h).
#include <algorithm>
#include <set>
#include <utility>

#include "cpython/objects.h"
#include "graph_ir/region/independence.h"
#include "tracer/interpreter/liveness.h"
#include "tracer/regions/region_builder.h"

namespace fj {

namespace {

/// By how much an instruction of an expression without branches changes the stack; nothing: it is another one.
std::optional<int> pushes(const FjInstr& instr) {
  switch (instr.opcode) {
    case FJ_NOP: case FJ_LOAD_ATTR: case FJ_UNARY_NEGATIVE: case FJ_UNARY_POSITIVE: case FJ_UNARY_INVERT: return 0;
    case FJ_PUSH_NULL: case FJ_LOAD_CONST: case FJ_LOAD_SMALL_INT: case FJ_LOAD_FAST: case FJ_LOAD_DEREF:
    case FJ_LOAD_METHOD:
      return 1;
    case FJ_LOAD_GLOBAL: return 1 + instr.arg2;
    case FJ_BINARY_OP: case FJ_BINARY_SUBSCR: return -1;
    case FJ_BINARY_SLICE: return -2;
    case FJ_BUILD_TUPLE: case FJ_BUILD_SLICE: return 1 - instr.arg;
    case FJ_CALL: return -(instr.arg + 1);
    default: return std::nullopt;
  }
}

/// Every way from a block back to it begins a pass, and no function of the region library is called.
bool is_light(const region::Region& region, const std::vector<region::PassBegin>& begins) {
  for (const region::Block& block : region.blocks)
    for (const region::Instruction& made : block.body)
      if (made.code == region::Code::Run) return false;
  std::vector<char> state(region.blocks.size());  // 1: on the way that is being gone; 2: done
  for (const region::PassBegin& begin : begins) state[std::size_t(begin.block)] = 2;
  const auto visit = [&](const auto& self, int at) -> bool {
    if (at < 0 || state[std::size_t(at)] == 2) return true;
    if (std::exchange(state[std::size_t(at)], 1) == 1) return false;
    const region::Terminator& end = region.blocks[std::size_t(at)].end;
    if (!self(self, end.yes.block) || !self(self, end.no.block)) return false;
    state[std::size_t(at)] = 2;
    return true;
  };
  for (const region::PassBegin& begin : begins) {
    const region::Terminator& end = region.blocks[std::size_t(begin.block)].end;
    if (!visit(visit, end.yes.block) || !visit(visit, end.no.block)) return false;
  }
  return true;
}

/// Where what the loop's iterable is a call of is loaded; -1: it is no call, or one that is not followed.
int called_at(const FjCode& code, const Loop& loop) {
  int at = loop.header - fj_iterator_entries();  // of which the last ones are pushed as they are
  if (at < 1 || code.instrs[at].opcode != FJ_GET_ITER || code.instrs[--at].opcode != FJ_CALL) return -1;
  int missing = code.instrs[at].arg + 2;  // with what is called, and its first argument or NULL
  while (missing > 0 && --at >= 0) {
    const auto more = pushes(code.instrs[at]);
    if (!more) return -1;
    missing -= *more;
  }
  while (at >= 0 && code.instrs[at].opcode == FJ_PUSH_NULL) ++at;
  return missing == 0 ? at : -1;
}

/// The slots of the loop that are assigned in it.
struct Assigned {
  std::vector<bool> read_before;  // by a pass, before it assigns them
  std::vector<bool> always;       // by every pass that goes on to the next one
  std::vector<bool> any;
};

Assigned assigned_slots(const FjCode& code, const Loop& loop) {
  const auto slots = std::size_t(reinterpret_cast<PyCodeObject*>(code.code)->co_nlocalsplus);
  const auto count = std::size_t(loop.last - loop.header + 1);
  const auto row = [&](std::size_t i) { return fj_opcode_rows[code.instrs[std::size_t(loop.header) + i].opcode]; };
  const auto slot = [&](std::size_t i) { return std::size_t(code.instrs[std::size_t(loop.header) + i].arg); };
  const auto assigns = [&](std::size_t i) {
    return row(i).slot == FJ_SLOT_Assigns || code.instrs[std::size_t(loop.header) + i].opcode == FJ_DELETE_FAST;
  };
  // Behind each instruction of the loop, those of the loop that may be next.
  const auto each_next = [&](std::size_t i, const auto& visit) {
    const auto go = [&](int to) {
      if (loop.contains(to)) visit(std::size_t(to - loop.header));
    };
    const FjInstr& instr = code.instrs[std::size_t(loop.header) + i];
    const auto flow = row(i).flow;
    if (flow == FJ_FLOW_Jump || flow == FJ_FLOW_Branch) go(instr.arg);
    if (flow == FJ_FLOW_Next || flow == FJ_FLOW_Branch) go(loop.header + int(i) + 1);
  };
  std::vector<std::vector<bool>> read(count, std::vector<bool>(slots)), set(count, std::vector<bool>(slots, true));
  set[0].assign(slots, false);
  Assigned made{{}, std::vector<bool>(slots, true), std::vector<bool>(slots)};
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = count; i-- > 0;) {
      std::vector<bool> now(slots);
      each_next(i, [&](std::size_t to) {
        for (std::size_t s = 0; s < slots && to != 0; ++s) now[s] = now[s] || read[to][s];
      });
      if (assigns(i)) now[slot(i)] = false;
      if (row(i).slot == FJ_SLOT_Reads) now[slot(i)] = true;
      changed = changed || now != read[i];
      read[i] = std::move(now);
    }
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<bool> after = set[i];
      if (assigns(i)) after[slot(i)] = true;
      each_next(i, [&](std::size_t to) {
        std::vector<bool>& there = to == 0 ? made.always : set[to];
        for (std::size_t s = 0; s < slots; ++s)
          if (there[s] && !after[s]) {
            there[s] = false;
            changed = true;
          }
      });
    }
  }
  for (std::size_t i = 0; i < count; ++i)
    if (assigns(i)) made.any[slot(i)] = true;
  made.read_before = std::move(read[0]);
  return made;
}

/// Whether a pass may be the last one before there are none left: by `break` or `return`.
bool ends_early(const FjCode& code, const Loop& loop) {
  for (int i = loop.header + 1; i <= loop.last; ++i) {
    const FjInstr& instr = code.instrs[i];
    const auto flow = fj_opcode_rows[instr.opcode].flow;
    if ((flow == FJ_FLOW_Jump || flow == FJ_FLOW_Branch) && !loop.contains(instr.arg)) return true;
    if (instr.opcode == FJ_RETURN_VALUE || instr.opcode == FJ_RETURN_CONST) return true;
  }
  return false;
}

/// The slots that are read behind the loop, where it has ended or an exception has ended it.
std::vector<bool> read_behind(const FjCode& code, const Loop& loop) {
  std::vector<bool> made = live_slots(code, code.instrs[loop.header].arg);
  std::set<int> handlers;
  for (int i = loop.header; i <= loop.last; ++i) {
    FjHandler handler;
    if (fj_find_handler(reinterpret_cast<PyCodeObject*>(code.code), code.instrs[i].executing, &handler))
      handlers.insert(code.index_of[handler.target]);
  }
  for (int handler : handlers) {
    const std::vector<bool> there = live_slots(code, handler);
    for (std::size_t slot = 0; slot < made.size(); ++slot) made[slot] = made[slot] || there[slot];
  }
  return made;
}

}  // namespace

bool RegionBuilder::is_for_threads(const Loop& loop) {
  const Context& own = *contexts_.front();
  const int at = called_at(*own.code, loop);
  if (at < 0 || !PyDict_CheckExact(own.globals)) return false;
  // One of two ways may lead to the loop with another iterable.
  for (int i = at + 1; i < loop.header; ++i)
    if (own.entrances[std::size_t(i)] > 1) return false;
  const auto name_of = [&](int instruction) {
    return PyTuple_GET_ITEM(own.object->co_names, own.code->instrs[instruction].arg);
  };
  if (own.code->instrs[at].opcode != FJ_LOAD_GLOBAL) return false;
  PyObject* found = PyDict_GetItemWithError(own.globals, name_of(at));
  PyErr_Clear();
  const int next = own.code->instrs[at + 1].opcode;
  const bool of_module = found != nullptr && PyModule_CheckExact(found);
  if (of_module) {
    if (next != FJ_LOAD_ATTR && next != FJ_LOAD_METHOD) return false;
    PyObject* const names = PyModule_GetDict(found);
    found = PyDict_GetItemWithError(names, name_of(at + 1));
    PyErr_Clear();
    if (!is_prange(found)) return false;
    named(names, name_of(at + 1));
  }
  if (!is_prange(found)) return false;
  named(own.globals, name_of(at));
  return true;
}

void RegionBuilder::note_pass_begin() {
  if (!for_threads_) return;
  begins_.push_back({block_, state_.places});
}

/// What the region has for several threads, or why it has nothing.
void RegionBuilder::find_threads() {
  if (!for_threads_) return;
  const Context& own = *contexts_.front();
  PassThreads made;
  const auto refuse = [&](std::string why) {
    made.why = std::move(why);
    made_.threads = std::move(made);
  };
  const auto name_of = [&](std::size_t slot) {
    return "`" + text_of(PyTuple_GET_ITEM(own.object->co_localsplusnames, Py_ssize_t(slot))) + "`";
  };
  made.header = loop_.header;
  made.place = int(values_.slots.size()) - fj_iterator_entries();
  const auto iterator = resolved_.find(made.place);
  if (iterator == resolved_.end() || iterator->second.kind != Known::Kind::RangeIterator)
    return refuse("it is not over a range");
  if (made_.has_lists) return refuse("it works on lists");
  for (const RegionExit& exit : made_.exits) {
    if (!exit.stored.empty()) return refuse("it stores attributes");
    if (!exit.written.empty()) return refuse("it writes to tensors, whose versions are counted");
  }
  made.step = iterator->second.step;

  if (ends_early(*own.code, loop_)) return refuse("a pass may end it");
  const Assigned assigned = assigned_slots(*own.code, loop_);
  const std::vector<bool> read_later = read_behind(*own.code, loop_);
  region::PassFacts facts;
  facts.counts_up = made.step > 0 && region_.is_natural(iterator->second.items[0].value);
  for (const Begin& begin : begins_) {
    const Known& number = begin.places[std::size_t(made.place)];
    if (number.kind != Known::Kind::RangeIterator) return refuse("it is not over a range");
    facts.begins.push_back({begin.block, number.items[0].value, {}});
  }
  for (std::size_t slot = 0; slot < assigned.any.size(); ++slot) {
    if (!assigned.any[slot]) continue;
    if (!assigned.read_before[slot]) {
      if (!assigned.always[slot] && read_later[slot])
        return refuse(name_of(slot) + " is read behind it, and not every pass sets it");
      continue;
    }
    const auto initial = resolved_.find(int(slot));
    const bool is_number = initial != resolved_.end() && initial->second.is_number();
    if (!is_number) return refuse("each pass takes " + name_of(slot) + " from the one before");
    facts.initial.push_back(initial->second.value);
    made.gathered.push_back({int(slot), -1, region::Gathered::Unchanged});
    for (std::size_t i = 0; i < begins_.size(); ++i) {
      const Known& there = begins_[i].places[slot];
      facts.begins[i].carried.push_back(there.is_number() ? there.value : ValueId());
    }
  }
  for (std::size_t memory = 0; memory < region_.memories.size(); ++memory) {
    facts.strides.emplace_back();
    if (made_.memories[memory] >= 0) facts.strides.back() = arrays_.at(made_.memories[memory]).strides;
  }
  const region::Independence found = region::find_independence(region_, facts);
  if (found.carried >= 0) {
    const int slot = made.gathered[std::size_t(found.carried)].slot;
    return refuse("each pass takes " + name_of(std::size_t(slot)) + " from the one before");
  }
  if (found.memory >= 0) {
    const int place = made_.memories[std::size_t(found.memory)];
    const bool is_variable = place >= 0 && place < int(assigned.any.size());
    return refuse(found.why + (is_variable ? " in " + name_of(std::size_t(place)) : ""));
  }
  for (std::size_t i = 0; i < made.gathered.size(); ++i) {
    made.gathered[i].how = found.gathered[i];
    const auto input = std::find(region_.inputs.begin(), region_.inputs.end(), facts.initial[i]);
    made.gathered[i].input = int(input - region_.inputs.begin());
    made.gathers_floats |= found.gathered[i] != region::Gathered::Unchanged && is_float(region_.type(facts.initial[i]));
  }
  made.is_light = is_light(region_, facts.begins);
  made.stored = found.stored;
  made.rewritten = found.rewritten;
  made_.threads = std::move(made);
}

}  // namespace fj
