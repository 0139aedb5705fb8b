#include "graph_ir/region/constants.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "graph_ir/region/loop_form.h"

namespace fj::region {

Constants::Constants(const Region& region)
    : region_(region), known_(region.types.size()), reached_(region.blocks.size()) {
  for (ValueId input : region.inputs) known_[input.index].state = Known::State::Varies;
  reached_[0] = 1;
  while (std::exchange(changed_, false))
    for (std::size_t at = 0; at < region.blocks.size(); ++at)
      if (reached_[at]) visit(region.blocks[at]);
}

std::optional<std::int64_t> Constants::operator()(ValueId value) const {
  const Known& known = known_[value.index];
  const bool is_constant = known.state == Known::State::Constant && region_.type(value) != DType::U64;
  return is_constant ? std::optional(known.number) : std::nullopt;
}

std::optional<bool> Constants::compare(Op op, bool is_unsigned, std::int64_t a, std::int64_t b) {
  const bool less = is_unsigned ? std::uint64_t(a) < std::uint64_t(b) : a < b;
  switch (op) {
    case Op::lt: return less;
    case Op::le: return less || a == b;
    case Op::gt: return !less && a != b;
    case Op::ge: return !less;
    case Op::eq: return a == b;
    case Op::ne: return a != b;
    default: return std::nullopt;
  }
}

void Constants::note(ValueId value, const Known& found) {
  Known& known = known_[value.index];
  if (found.state == Known::State::Open || known.state == Known::State::Varies) return;
  const bool are_both = known.state == Known::State::Constant && found.state == Known::State::Constant;
  if (are_both && known.number == found.number) return;
  known = known.state == Known::State::Open ? found : Known{Known::State::Varies};
  changed_ = true;
}

void Constants::go(const Target& target) {
  const Block& to = region_.blocks[std::size_t(target.block)];
  for (std::size_t i = 0; i < target.arguments.size(); ++i) note(to.parameters[i], known_[target.arguments[i].index]);
  if (!std::exchange(reached_[std::size_t(target.block)], 1)) changed_ = true;
}

void Constants::visit(const Block& block) {
  for (const Instruction& made : block.body)
    if (made.result.valid()) note(made.result, result(made));
  switch (block.end.kind) {
    case Terminator::Kind::Exit: return;
    case Terminator::Kind::Jump: return go(block.end.yes);
    case Terminator::Kind::Branch: {
      const Known& condition = known_[block.end.condition.index];
      if (condition.state == Known::State::Open) return;
      const bool varies = condition.state == Known::State::Varies;
      if (varies || condition.number != 0) go(block.end.yes);
      if (varies || condition.number == 0) go(block.end.no);
    }
  }
}

Constants::Known Constants::result(const Instruction& made) const {
  constexpr Known kVaries{Known::State::Varies};
  const DType dtype = region_.type(made.result);
  if (dtype != DType::I64 && dtype != DType::U64 && dtype != DType::Bool) return kVaries;
  if (made.code == Code::Constant) {
    if (const auto* number = std::get_if<std::int64_t>(&made.constant)) return {Known::State::Constant, *number};
    if (const auto* truth = std::get_if<bool>(&made.constant)) return {Known::State::Constant, *truth};
    return kVaries;
  }
  const auto does = arithmetic(made);
  if (made.code != Code::Pointwise && !does) return kVaries;
  std::vector<std::int64_t> numbers;
  for (ValueId operand : made.operands) {
    const Known& known = known_[operand.index];
    if (known.state == Known::State::Open) return {};
    if (known.state == Known::State::Varies) return kVaries;
    numbers.push_back(known.number);
  }
  const std::optional<std::int64_t> number = computed(made, does, dtype, numbers);
  return number ? Known{Known::State::Constant, *number} : kVaries;
}

std::optional<std::int64_t> Constants::computed(const Instruction& made, std::optional<Op> does, DType dtype,
                                                const std::vector<std::int64_t>& of) const {
  const DType operand = region_.type(made.operands.back());
  if (does) {
    std::int64_t sum = 0;
    if (dtype != DType::I64) return std::nullopt;
    const bool wraps = *does == Op::add   ? __builtin_add_overflow(of[0], of[1], &sum)
                       : *does == Op::sub ? __builtin_sub_overflow(of[0], of[1], &sum)
                                          : __builtin_mul_overflow(of[0], of[1], &sum);
    return wraps ? std::nullopt : std::optional(sum);
  }
  switch (made.op) {
    case Op::where: return of[0] != 0 ? of[1] : of[2];
    case Op::logical_not: return of[0] == 0;
    case Op::bit_and: return dtype == DType::Bool ? std::optional(of[0] & of[1]) : std::nullopt;
    case Op::bit_or: return dtype == DType::Bool ? std::optional(of[0] | of[1]) : std::nullopt;
    case Op::cast:
      if (operand == DType::Bool || dtype == DType::Bool || of[0] < 0) return std::nullopt;
      return of[0];
    default:
      if (dtype != DType::Bool || operand == DType::Bool) return std::nullopt;
      if (const auto truth = compare(made.op, operand == DType::U64, of[0], of[1])) return *truth;
      return std::nullopt;
  }
}

namespace {

Instruction constant_of(ValueId value, DType dtype, std::int64_t number) {
  Instruction made{};
  made.code = Code::Constant;
  made.result = value;
  if (dtype == DType::Bool) made.constant = number != 0;
  else made.constant = number;
  return made;
}

}  // namespace

void fold_constants(Region& region) {
  const Constants constants(region);
  std::vector<Instruction> first;
  std::vector<int> place(region.blocks.size(), -1);
  std::vector<Block> kept;
  for (std::size_t at = 0; at < region.blocks.size(); ++at) {
    if (!constants.is_reached(int(at))) continue;
    Block& block = region.blocks[at];
    std::vector<Instruction> body;
    for (Instruction& made : block.body) {
      if (made.code == Code::LeaveIf && constants(made.operands[0]) == 0) continue;  // its exit is never taken
      const auto number = made.result.valid() ? constants(made.result) : std::nullopt;
      body.push_back(number ? constant_of(made.result, region.type(made.result), *number) : std::move(made));
    }
    block.body = std::move(body);
    if (block.end.kind == Terminator::Kind::Branch)
      if (const auto truth = constants(block.end.condition))
        block.end = {Terminator::Kind::Jump, {}, *truth != 0 ? block.end.yes : block.end.no, {}, {}};
    for (Target* target : {&block.end.yes, &block.end.no}) {
      if (target->block < 0) continue;
      const std::vector<ValueId>& parameters = region.blocks[std::size_t(target->block)].parameters;
      std::vector<ValueId> arguments;
      for (std::size_t i = 0; i < parameters.size(); ++i)
        if (!constants(parameters[i])) arguments.push_back(target->arguments[i]);
      target->arguments = std::move(arguments);
    }
    place[at] = int(kept.size());
    kept.emplace_back();
  }
  for (std::size_t at = 0; at < region.blocks.size(); ++at) {
    if (place[at] < 0) continue;
    Block& block = region.blocks[at];
    std::erase_if(block.parameters, [&](ValueId parameter) {
      const auto number = constants(parameter);
      if (number) first.push_back(constant_of(parameter, region.type(parameter), *number));
      return number.has_value();
    });
    for (Target* target : {&block.end.yes, &block.end.no})
      if (target->block >= 0) target->block = place[std::size_t(target->block)];
    kept[std::size_t(place[at])] = std::move(block);
  }
  kept[0].body.insert(kept[0].body.begin(), std::make_move_iterator(first.begin()),
                      std::make_move_iterator(first.end()));
  region.blocks = std::move(kept);
}

}  // namespace fj::region
