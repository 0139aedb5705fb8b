#include "graph_ir/region/loop_form.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>


namespace fj::region {

bool is_checked(const Instruction& made) {
  return made.code == Code::CheckedAdd || made.code == Code::CheckedSub || made.code == Code::CheckedMul;
}

std::optional<Op> arithmetic(const Instruction& made) {
  switch (made.code) {
    case Code::CheckedAdd: case Code::AddNoWrap: return Op::add;
    case Code::CheckedSub: return Op::sub;
    case Code::CheckedMul: return Op::mul;
    case Code::Pointwise:
      if (made.op == Op::add || made.op == Op::sub || made.op == Op::mul) return made.op;
      return std::nullopt;
    default: return std::nullopt;
  }
}

Makers::Makers(const Region& region) : made_by_(region.types.size()) {
  for (const Block& block : region.blocks)
    for (const Instruction& instruction : block.body)
      if (instruction.result.valid()) made_by_[instruction.result.index] = &instruction;
}

std::optional<std::int64_t> Makers::constant(ValueId value) const {
  const Instruction* made = (*this)(value);
  if (!made || made->code != Code::Constant) return std::nullopt;
  const auto* number = std::get_if<std::int64_t>(&made->constant);
  return number ? std::optional(*number) : std::nullopt;
}

std::optional<std::int64_t> Makers::change(ValueId value, ValueId from) const {
  std::int64_t sum = 0;
  while (value != from) {
    const Instruction* made = (*this)(value);
    const auto does = made ? arithmetic(*made) : std::nullopt;
    if (does != Op::add && does != Op::sub) return std::nullopt;
    auto by = constant(made->operands[1]);
    value = made->operands[0];
    if (!by && does == Op::add) by = constant(made->operands[0]), value = made->operands[1];
    if (!by || *by > kMostStep || *by < -kMostStep) return std::nullopt;
    sum += does == Op::sub ? -*by : *by;
  }
  return sum;
}

namespace {

constexpr std::size_t kMostOfAJump = 16;  // instructions of a block that jumps back

/// Parameters that are the same value on all ways are that value.
void remove_constant_parameters(Region& region) {
  std::vector<ValueId> is(region.types.size());
  for (std::uint32_t i = 0; i < is.size(); ++i) is[i] = ValueId{i};
  const auto resolved = [&](ValueId value) {
    while (is[value.index] != value) value = is[value.index];
    return value;
  };
  const auto each_target = [&](const auto& visit) {
    for (Block& block : region.blocks)
      for (Target* target : {&block.end.yes, &block.end.no})
        if (target->block >= 0) visit(*target);
  };
  for (bool changed = true; changed;) {
    changed = false;
    std::vector<std::vector<std::optional<ValueId>>> given(region.blocks.size());
    std::vector<std::vector<char>> differs(region.blocks.size());
    for (std::size_t i = 0; i < region.blocks.size(); ++i) {
      given[i].resize(region.blocks[i].parameters.size());
      differs[i].resize(region.blocks[i].parameters.size());
    }
    each_target([&](const Target& target) {
      const auto at = std::size_t(target.block);
      for (std::size_t i = 0; i < target.arguments.size(); ++i) {
        const ValueId argument = resolved(target.arguments[i]);
        if (argument == resolved(region.blocks[at].parameters[i])) continue;
        if (given[at][i] && *given[at][i] != argument) differs[at][i] = true;
        given[at][i] = argument;
      }
    });
    for (std::size_t at = 0; at < region.blocks.size(); ++at)
      for (std::size_t i = 0; i < given[at].size(); ++i) {
        const ValueId parameter = region.blocks[at].parameters[i];
        if (is[parameter.index] != parameter || differs[at][i] || !given[at][i]) continue;
        if (const ValueId same = resolved(*given[at][i]); same != parameter) {
          is[parameter.index] = same;
          changed = true;
        }
      }
  }
  each_target([&](Target& target) {
    const std::vector<ValueId>& parameters = region.blocks[std::size_t(target.block)].parameters;
    std::vector<ValueId> kept;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (is[parameters[i].index] == parameters[i]) kept.push_back(target.arguments[i]);
    target.arguments = std::move(kept);
  });
  for (Block& block : region.blocks) {
    std::erase_if(block.parameters, [&](ValueId parameter) { return is[parameter.index] != parameter; });
    const auto renew = [&](ValueId& value) { value = resolved(value); };
    for (Instruction& instruction : block.body) change_uses(instruction, renew);
    change_uses(block.end, renew);
  }
}

/// A block that jumps back, once for each way to it. Passes of another loop over the same code, which come to it for
/// the first time, would enter the loop in its middle: nobody would take that for a loop.
void duplicate_jumps_back(Region& region) {
  const Flow flow(region);
  std::vector<char> used_elsewhere(region.types.size());
  std::vector<int> defined_in(region.types.size(), -1);
  for (std::size_t i = 0; i < region.blocks.size(); ++i) {
    for (ValueId parameter : region.blocks[i].parameters) defined_in[parameter.index] = int(i);
    for (const Instruction& instruction : region.blocks[i].body)
      if (instruction.result.valid()) defined_in[instruction.result.index] = int(i);
  }
  for (std::size_t i = 0; i < region.blocks.size(); ++i) {
    const auto note = [&](ValueId value) {
      if (defined_in[value.index] != int(i)) used_elsewhere[value.index] = 1;
    };
    for (const Instruction& instruction : region.blocks[i].body) for_each_use(instruction, note);
    for_each_use(region.blocks[i].end, note);
  }
  const auto reaches = [&](int from, int to) {
    std::set<int> seen{from};
    std::vector<int> open{from};
    while (!open.empty()) {
      const int at = open.back();
      open.pop_back();
      if (at == to) return true;
      const Terminator& end = region.blocks[std::size_t(at)].end;
      for (int next : {end.yes.block, end.no.block})
        if (next >= 0 && seen.insert(next).second) open.push_back(next);
    }
    return false;
  };
  for (int at : flow.order()) {
    const Block& block = region.blocks[std::size_t(at)];
    if (block.end.kind != Terminator::Kind::Jump || block.body.size() > kMostOfAJump || flow.before(at).size() < 2)
      continue;
    const auto stays = [&](ValueId value) { return !used_elsewhere[value.index]; };
    if (!std::all_of(block.parameters.begin(), block.parameters.end(), stays)) continue;
    if (!std::all_of(block.body.begin(), block.body.end(), [&](const Instruction& instruction) {
          return !instruction.result.valid() || stays(instruction.result);
        }))
      continue;
    if (!reaches(block.end.yes.block, at)) continue;
    bool first = true;
    for (int from : flow.before(at))
      for (const bool yes : {true, false}) {
        const Terminator& end = region.blocks[std::size_t(from)].end;
        if ((yes ? end.yes : end.no).block != at || std::exchange(first, false)) continue;
        Block copy = region.blocks[std::size_t(at)];
        std::unordered_map<std::uint32_t, ValueId> renamed;
        const auto define = [&](ValueId& value) {
          const ValueId made = region.new_value(region.type(value));
          renamed[value.index] = made;
          value = made;
        };
        const auto renew = [&](ValueId& value) {
          if (const auto found = renamed.find(value.index); found != renamed.end()) value = found->second;
        };
        for (ValueId& parameter : copy.parameters) define(parameter);
        for (Instruction& instruction : copy.body) {
          change_uses(instruction, renew);
          if (instruction.result.valid()) define(instruction.result);
        }
        change_uses(copy.end, renew);
        region.blocks.push_back(std::move(copy));
        Terminator& changed = region.blocks[std::size_t(from)].end;
        (yes ? changed.yes : changed.no).block = int(region.blocks.size()) - 1;
      }
  }
}

/// A loop and the one around it may have one header, where the inner one begins: what jumps back with a number that
/// has grown by a constant is the inner loop, and what sets the number anew gets a header of its own.
void separate_loops_of_one_header(Region& region) {
  const Flow flow(region);
  const Makers makers(region);
  for (int header : flow.order()) {
    std::set<int> back;
    for (int from : flow.before(header))
      if (flow.dominates(header, from)) back.insert(from);
    if (back.size() < 2) continue;
    const std::vector<ValueId> parameters = region.blocks[std::size_t(header)].parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (region.type(parameters[i]) != DType::I64) continue;
      std::set<int> inner;
      bool stays = false;
      for (int from : back) {
        const Terminator& end = region.blocks[std::size_t(from)].end;
        const Target& target = end.yes.block == header ? end.yes : end.no;
        const auto by = makers.change(target.arguments[i], parameters[i]);
        if (by && *by != 0) inner.insert(from);
        stays = stays || by == 0;
      }
      if (stays || inner.empty() || inner.size() == back.size()) continue;
      const int outer = int(region.blocks.size());
      region.blocks.emplace_back();
      Block& made = region.blocks.back();
      for (ValueId parameter : parameters) made.parameters.push_back(region.new_value(region.type(parameter)));
      for (int from : flow.before(header)) {
        if (inner.contains(from)) continue;
        Terminator& end = region.blocks[std::size_t(from)].end;
        for (Target* target : {&end.yes, &end.no})
          if (target->block == header) target->block = outer;
      }
      made.end = {Terminator::Kind::Jump, {}, {header, made.parameters}, {}, {}};
      break;
    }
  }
}

}  // namespace

std::vector<int> definitions(const Region& region, const Flow& flow) {
  std::vector<int> made(region.types.size(), -1);
  for (int at : flow.order()) {
    for (ValueId parameter : region.blocks[std::size_t(at)].parameters) made[parameter.index] = at;
    for (const Instruction& instruction : region.blocks[std::size_t(at)].body)
      if (instruction.result.valid()) made[instruction.result.index] = at;
  }
  return made;
}

bool pass_on_exits(Region& region, const Flow& flow, const NaturalLoop& loop) {
  const auto block = [&](int at) -> Block& { return region.blocks[std::size_t(at)]; };
  const std::vector<int> defined_in = definitions(region, flow);
  const std::set<int> inside(loop.blocks.begin(), loop.blocks.end());
  std::set<int> exits;
  for (int at : loop.blocks)
    for (const Target* target : {&block(at).end.yes, &block(at).end.no})
      if (target->block >= 0 && !inside.contains(target->block)) exits.insert(target->block);
  std::map<int, std::set<std::uint32_t>> used;  // by exit
  bool known = true;
  for (int at : flow.order()) {
    if (inside.contains(at)) continue;
    const auto note = [&](ValueId value) {
      if (!inside.contains(defined_in[value.index])) return;
      const auto exit = std::find_if(exits.begin(), exits.end(), [&](int one) { return flow.dominates(one, at); });
      if (exit == exits.end()) known = false;
      else used[*exit].insert(value.index);
    };
    for (const Instruction& instruction : block(at).body) for_each_use(instruction, note);
    for_each_use(block(at).end, note);
  }
  if (!known) return false;
  for (const auto& [exit, values] : used) {
    for (int from : flow.before(exit))
      if (!inside.contains(from)) return false;
    for (int other : exits)
      if (other != exit && flow.dominates(other, exit)) return false;
  }
  for (const auto& [exit, values] : used) {
    std::unordered_map<std::uint32_t, ValueId> passed;
    for (std::uint32_t value : values) {
      const ValueId parameter = region.new_value(region.type(ValueId{value}));
      passed[value] = parameter;
      block(exit).parameters.push_back(parameter);
    }
    for (int at : loop.blocks)
      for (Target* target : {&block(at).end.yes, &block(at).end.no})
        if (target->block == exit)
          for (std::uint32_t value : values) target->arguments.push_back(ValueId{value});
    const auto renew = [&](ValueId& value) {
      if (const auto found = passed.find(value.index); found != passed.end()) value = found->second;
    };
    for (int at : flow.order()) {
      if (!flow.dominates(exit, at)) continue;
      for (Instruction& instruction : block(at).body) change_uses(instruction, renew);
      change_uses(block(at).end, renew);
    }
  }
  return true;
}

void give_loops_form(Region& region) {
  duplicate_jumps_back(region);
  remove_constant_parameters(region);
  separate_loops_of_one_header(region);
}

}  // namespace fj::region
