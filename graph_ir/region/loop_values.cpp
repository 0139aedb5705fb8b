#include "graph_ir/region/loop_values.h"

#include <algorithm>
#include <cmath>

#include "graph_ir/ops.h"
#include "graph_ir/region/assumptions.h"

namespace fj::region {

namespace {
constexpr double kMost = 0x1.fp62;  // what 64 bits hold, about
}

LoopValues::LoopValues(Region& region, const NaturalLoop& loop)
    : region_(region), flow_(region), loop_(loop), header_(loop.header), inside_(region.blocks.size()) {
  for (int block : loop.blocks) inside_[std::size_t(block)] = 1;
  find_definitions();
}

void LoopValues::find_definitions() { defined_in_ = definitions(region_, flow_); }

ValueId LoopValues::new_value(DType dtype) {
  const ValueId made = region_.new_value(dtype);
  defined_in_.resize(region_.types.size(), -1);
  return made;
}

void LoopValues::find_inductions() {
  const std::vector<ValueId>& parameters = block(header_).parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::optional<std::int64_t> step;
    bool same = true;
    each_jump_back([&](const Target& target) {
      const auto by = maker_->change(target.arguments[i], parameters[i]);
      same = same && by && (!step || *step == *by);
      step = by;
    });
    if (!same || !step) continue;
    if (*step == 0) invariant_[parameters[i].index] = true;
    else if (region_.type(parameters[i]) == DType::I64) steps_[parameters[i].index] = *step;
  }
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (!invariant_.contains(parameters[i].index) && !steps_.contains(parameters[i].index))
      if (const auto by = stride(i)) strides_[parameters[i].index] = *by;
}

std::optional<ValueId> LoopValues::stride(std::size_t parameter) {
  const ValueId given = block(header_).parameters[parameter];
  std::optional<ValueId> stride;
  bool same = region_.type(given) == DType::I64;
  each_jump_back([&](const Target& target) {
    const Instruction* made = maker(target.arguments[parameter]);
    same = same && made && arithmetic(*made) == Op::add && (made->operands[0] == given || made->operands[1] == given);
    if (!same) return;
    const ValueId by = made->operands[made->operands[0] == given ? 1 : 0];
    same = is_invariant(by) && (!stride || *stride == by);
    stride = by;
  });
  return same ? stride : std::nullopt;
}

bool LoopValues::is_pure(Op op) {
  switch (op) {
    case Op::add: case Op::sub: case Op::mul: case Op::cast: case Op::where: case Op::minimum: case Op::maximum:
    case Op::lt: case Op::le: case Op::gt: case Op::ge: case Op::eq: case Op::ne: case Op::bit_and: case Op::bit_or:
    case Op::bit_xor: case Op::logical_not: return true;
    default: return false;
  }
}

/// It is the same in each pass, and computed outside of the loop or from what is.
bool LoopValues::is_invariant(ValueId value) {
  if (!is_defined_inside(value)) return true;
  const auto known = invariant_.find(value.index);
  if (known != invariant_.end()) return known->second;
  const Instruction* made = maker(value);
  bool is = false;
  if (made && made->code == Code::Constant) is = true;
  if (made && (made->code == Code::AddNoWrap || (made->code == Code::Pointwise && is_pure(made->op)))) {
    is = true;
    for (ValueId operand : made->operands)
      is = is && is_invariant(operand) && !is_float(region_.type(operand)) && !is_complex(region_.type(operand));
  }
  return invariant_[value.index] = is;
}

const std::optional<LoopValues::Affine>& LoopValues::affine(ValueId value) {
  const auto known = affine_.find(value.index);
  if (known != affine_.end()) return known->second;
  std::optional<Affine> found = look_at(value);
  if (found && found->most > kMost) found = std::nullopt;
  return affine_[value.index] = found;
}

std::optional<LoopValues::Affine> LoopValues::look_at(ValueId value) {
  if (region_.type(value) != DType::I64) return std::nullopt;
  if (const auto number = constant(value)) {
    return Affine{std::abs(double(*number)), 0};
  }
  constexpr double kLeaf = double(std::int64_t(1) << kLeafBits);
  if (const auto step = steps_.find(value.index); step != steps_.end()) return Affine{kLeaf, step->second};
  if (strides_.contains(value.index)) return Affine{kLeaf, std::nullopt};
  if (is_invariant(value)) return Affine{kLeaf, 0};
  const Instruction* made = maker(value);
  if (made && is_defined_inside(value)) {
    const auto operand = [&](int i) { return affine(made->operands[std::size_t(i)]); };
    if (const auto does = arithmetic(*made)) {
      const auto a = operand(0), b = operand(1);
      if (!a || !b) return std::nullopt;
      if (does != Op::mul) {
        Affine sum{a->most + b->most, std::nullopt};
        if (a->slope && b->slope) sum.slope = does == Op::sub ? *a->slope - *b->slope : *a->slope + *b->slope;
        return sum;
      }
      Affine product{a->most * b->most, std::nullopt};
      if (product.most > kMost || (!a->is_invariant() && !b->is_invariant())) return std::nullopt;
      if (a->is_invariant() && b->is_invariant()) product.slope = 0;
      for (int i : {0, 1})
        if (const auto by = constant(made->operands[std::size_t(i)]))
          if (const auto& other = i == 0 ? b : a; other->slope) product.slope = *other->slope * *by;
      return product;
    }
    // An index that may be negative: in the fast copy it is not.
    if (made->code == Code::Pointwise && made->op == Op::where && is_sign(made->operands[0]) &&
        can_be(made->operands[0], false)) {
      const auto of = operand(2);
      if (of) taken_[value.index] = made->operands[0];
      return of;
    }
  }
  return std::nullopt;
}

bool LoopValues::is_sign(ValueId condition) {
  const Instruction* made = maker(condition);
  return made && made->code == Code::Pointwise && made->op == Op::lt && constant(made->operands[1]) == 0;
}

std::optional<LoopValues::Compared> LoopValues::compared(ValueId condition) {
  const Instruction* made = maker(condition);
  if (!made || made->code != Code::Pointwise || made->operands.size() != 2) return std::nullopt;
  Compared found{made->operands[0], made->operands[1], made->op, false};
  if (region_.type(found.a) != DType::U64) return found;
  for (ValueId* side : {&found.a, &found.b}) {
    const Instruction* cast = maker(*side);
    if (!cast || cast->code != Code::Pointwise || cast->op != Op::cast) return std::nullopt;
    *side = cast->operands[0];
  }
  found.is_unsigned = true;
  return found;
}

/// Whether two looks, in the first and the last pass, are enough to know that the condition has this value in all.
bool LoopValues::can_be(ValueId condition, bool wanted) {
  if (region_.type(condition) == DType::Bool && is_invariant(condition)) return true;
  const Instruction* made = maker(condition);
  if (!made || made->code != Code::Pointwise) return false;
  if (made->op == Op::logical_not) return can_be(made->operands[0], !wanted);
  if (made->op == Op::bit_or && !wanted) return can_be(made->operands[0], false) && can_be(made->operands[1], false);
  if (made->op == Op::bit_and && wanted)
    return can_be(made->operands[0], true) && can_be(made->operands[1], true);
  const auto sides = compared(condition);
  if (!sides) return false;
  switch (sides->op) {
    case Op::lt: case Op::le: case Op::gt: case Op::ge: break;
    case Op::eq: if (!wanted) return false; break;
    case Op::ne: if (wanted) return false; break;
    default: return false;
  }
  const auto a = affine(sides->a), b = affine(sides->b);
  if (!a || !b) return false;
  // 0 <= a < b
  if (sides->is_unsigned) return sides->op == Op::ge && !wanted && b->is_invariant();
  return true;
}

void LoopValues::look_at_checks() {
  for (int at : loop_.blocks) {
    for (const Instruction& instruction : block(at).body) {
      if (instruction.code == Code::LeaveIf && can_be(instruction.operands[0], false))
        needed_.insert({instruction.operands[0], false});
      if (instruction.result.valid()) affine(instruction.result);
    }
    const Terminator& end = block(at).end;
    if (end.kind != Terminator::Kind::Branch) continue;
    const bool yes = is_inside(end.yes.block), no = is_inside(end.no.block);
    if (yes != no && can_be(end.condition, yes)) {
      needed_.insert({end.condition, yes});
      ends_.insert({end.condition, yes});
      decided_[at] = yes;
    }
  }
  for (const auto& [value, condition] : taken_) needed_.insert({condition, false});
}

/// By how many bits a number differs at most from the parameter of the header; nothing: it is not known. `sums`: the
/// checked instructions between the two.
std::optional<int> LoopValues::growth(ValueId value, ValueId parameter,
                                      std::map<std::uint32_t, std::optional<int>>& seen, std::vector<ValueId>& sums) {
  if (value == parameter) return 0;
  if (!is_defined_inside(value)) return std::nullopt;
  const auto known = seen.find(value.index);
  if (known != seen.end()) return known->second;
  seen[value.index] = std::nullopt;
  std::optional<int> found;
  const Instruction* made = maker(value);
  const auto either = [&](std::optional<int> a, std::optional<int> b) {
    return a && b ? std::optional(std::max(*a, *b)) : std::nullopt;
  };
  if (!made) {
    const int at = defined_in_[value.index];
    const auto& parameters = block(at).parameters;
    const auto place = std::size_t(std::find(parameters.begin(), parameters.end(), value) - parameters.begin());
    if (at == header_) return std::nullopt;
    found = 0;
    for (int from : loop_.blocks)
      for (const Target* target : {&block(from).end.yes, &block(from).end.no})
        if (target->block == at) found = either(found, growth(target->arguments[place], parameter, seen, sums));
  } else if (made->code == Code::Pointwise && made->op == Op::where) {
    found = either(growth(made->operands[1], parameter, seen, sums),
                   growth(made->operands[2], parameter, seen, sums));
  } else if (made->code == Code::CheckedAdd || made->code == Code::CheckedSub) {
    for (int of : {0, 1}) {
      if (of == 1 && made->code == Code::CheckedSub) break;
      const auto by = bits(made->operands[std::size_t(1 - of)]);
      const auto before = by ? growth(made->operands[std::size_t(of)], parameter, seen, sums) : std::nullopt;
      if (!before) continue;
      found = std::max(*before, *by) + 1;
      sums.push_back(value);
      break;
    }
  }
  return seen[value.index] = found;
}

/// Of a constant, or of a number that is small by its type.
std::optional<int> LoopValues::bits(ValueId value) {
  if (const auto number = constant(value))
    return *number <= kMostStep && *number >= -kMostStep ? std::optional(22) : std::nullopt;
  const Instruction* made = maker(value);
  if (!made || made->code != Code::Pointwise || made->op != Op::cast) return std::nullopt;
  switch (region_.type(made->operands[0])) {
    case DType::Bool: case DType::U8: case DType::I8: return 9;
    case DType::I16: case DType::I32: return 32;
    default: return std::nullopt;
  }
}

void LoopValues::find_counters() {
  const std::vector<ValueId>& parameters = block(header_).parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (region_.type(parameters[i]) != DType::I64 || affine(parameters[i])) continue;
    std::map<std::uint32_t, std::optional<int>> seen;
    std::vector<ValueId> sums;
    bool known = true;
    each_jump_back([&](const Target& target) {
      const auto by = growth(target.arguments[i], parameters[i], seen, sums);
      known = known && by && *by <= kGrowthBits;
    });
    if (!known || sums.empty()) continue;
    for (ValueId sum : sums) counted_.insert(sum.index);
    counters_.push_back(parameters[i]);
  }
}

/// The type holds the result of the checked instruction in all passes.
bool LoopValues::is_known(const Instruction& made) const {
  const auto of = affine_.find(made.result.index);
  return counted_.contains(made.result.index) || (of != affine_.end() && of->second);
}

}  // namespace fj::region
