#include "graph_ir/region/assumptions.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "graph_ir/ops.h"

namespace fj::region {

namespace {

constexpr std::size_t kMostStores = 8;

/// Of a constant.
int bits_of_constant(std::int64_t number) {
  int bits = 0;
  while (bits < 63 && (number >> bits) != 0 && (number >> bits) != -1) ++bits;
  return bits;
}

/// What is loaded and stored again is the same, to the bit: of a bool any byte but 0 is true, and a NaN of 16 bits may
/// become another one.
bool keeps_its_bits(DType dtype) { return dtype != DType::Bool && dtype != DType::F16 && dtype != DType::BF16; }

}  // namespace

template <class Visit>
void Assumptions::each_way_to(int block, Visit visit) const {
  for (int from : loop_.blocks) {
    const Terminator& end = region_.blocks[std::size_t(from)].end;
    for (const Target* target : {&end.yes, &end.no})
      if (target->block == block) visit(from, *target);
  }
}

bool Assumptions::find(int loaded) {
  loaded_ = loaded;
  for (int at : loop_.blocks)
    for (ValueId parameter : region_.blocks[std::size_t(at)].parameters) defined_in_[parameter.index] = at;
  find_parameters();
  std::ptrdiff_t leaves = 0;
  for (int at : loop_.blocks) {
    const Block& block = region_.blocks[std::size_t(at)];
    for (const Instruction& made : block.body) {
      if (made.code == Code::Run || !look_at(made)) return false;
      leaves += made.leave.exit >= 0 && made.code != Code::LeaveIfAsked && !facts_.is_checked_before(made);
    }
    if (block.end.kind == Terminator::Kind::Exit) return false;
    for (const Target* target : {&block.end.yes, &block.end.no})
      if (target->block >= 0 && !facts_.is_decided(at) &&
          std::find(loop_.blocks.begin(), loop_.blocks.end(), target->block) == loop_.blocks.end())
        return false;
  }
  if (!find_stores()) return false;
  // Whether something was stored is noted in each pass: that takes as long as to leave or not.
  const auto seldom = std::count_if(stores.begin(), stores.end(), [](const Stored& one) { return !one.always; });
  return leaves > 0 && leaves >= seldom;
}

/// False: one of them can't be undone.
bool Assumptions::find_stores() {
  std::map<int, std::vector<std::vector<const Instruction*>>> joined;
  std::set<const Instruction*> taken;
  for (int join : loop_.blocks)
    for (;;) {
      const auto ways = stores_before(join, taken);
      if (ways.empty()) break;
      taken.insert(ways.begin(), ways.end());
      auto& before = joined[join];
      before.insert(before.begin(), ways);
    }
  const auto add_joined = [&](int join) {
    return std::all_of(joined[join].begin(), joined[join].end(),
                       [&](const auto& ways) { return add_store(ways, join, join); });
  };
  for (int at : loop_.blocks) {
    if (at != loop_.header && !add_joined(at)) return false;
    for (const Instruction& made : region_.blocks[std::size_t(at)].body)
      if (made.code == Code::Store && !taken.contains(&made) && !add_store({&made}, at, -1)) return false;
  }
  if (!add_joined(loop_.header)) return false;
  for (Stored& one : stores) {
    const auto is = [&](const Instruction* store) { return is_total(*store); };
    one.total = one.once && stores.size() == 1 && std::all_of(one.ways.begin(), one.ways.end(), is);
    if (!one.total) continue;
    for (const Instruction* store : one.ways) finite.erase(store->operands[1].index);
  }
  return true;
}

bool Assumptions::add_store(std::vector<const Instruction*> ways, int at, int join) {
  const ValueId place = ways.front()->operands[0];
  bool always = true;
  if (join != loop_.header)
    each_way_to(loop_.header, [&](int from, const Target&) { always = always && flow_.dominates(at, from); });
  // What the region allocates is at addresses, which are no small numbers.
  const Memory& memory = region_.memories[std::size_t(ways.front()->memory)];
  if (stores.size() == kMostStores || !facts_.affine(place) || memory.heap || !keeps_its_bits(memory.dtype))
    return false;
  functions.push_back(place);
  stores.push_back({std::move(ways), join, always, always && facts_.is_invariant(place), false});
  return true;
}

/// The last thing that each block does with memory that leads to `join`, and nowhere else, if they all store the same
/// element. `taken`: stores that come later. Empty: it is not so.
std::vector<const Instruction*> Assumptions::stores_before(int join,
                                                           const std::set<const Instruction*>& taken) const {
  std::vector<const Instruction*> ways;
  bool are = true;
  each_way_to(join, [&](int from, const Target&) {
    const Block& block = region_.blocks[std::size_t(from)];
    const auto last = std::find_if(block.body.rbegin(), block.body.rend(), [&](const Instruction& made) {
      return made.code == Code::Load || (made.code == Code::Store && !taken.contains(&made));
    });
    are = are && block.end.kind == Terminator::Kind::Jump && last != block.body.rend() && last->code == Code::Store;
    if (!are) return;
    constexpr int kDeep = 8;
    are = ways.empty() ||
          (ways.front()->memory == last->memory && is_same(ways.front()->operands[0], last->operands[0], kDeep));
    ways.push_back(&*last);
  });
  return are && ways.size() > 1 ? ways : std::vector<const Instruction*>{};
}

/// The same number whatever way a pass takes, as far as `depth` instructions tell.
bool Assumptions::is_same(ValueId a, ValueId b, int depth) const {
  if (a == b) return true;
  if (const auto number = maker_.constant(a)) return maker_.constant(b) == number;
  const Instruction *of_a = maker_(a), *of_b = maker_(b);
  if (depth == 0 || !of_a || !of_b || of_a->operands.size() != of_b->operands.size()) return false;
  const auto does_a = arithmetic(*of_a), does_b = arithmetic(*of_b);
  const bool same = does_a ? does_a == does_b
                           : of_a->code == Code::Pointwise && of_b->code == Code::Pointwise && of_a->op == of_b->op;
  return same && region_.type(a) == region_.type(b) &&
         std::equal(of_a->operands.begin(), of_a->operands.end(), of_b->operands.begin(),
                    [&](ValueId one, ValueId other) { return is_same(one, other, depth - 1); });
}

/// Integers that the header is given: those that stay small, and those that grow by little in each pass.
void Assumptions::find_parameters() {
  const std::vector<ValueId>& given = region_.blocks[std::size_t(loop_.header)].parameters;
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < given.size(); ++i)
    if (region_.type(given[i]) == DType::I64 && !facts_.affine(given[i])) open.push_back(i);
  for (std::size_t i : open) parameters_[given[i].index] = kLeafBits;
  constexpr int kRounds = 4;
  bool changed = true;
  for (int round = 0; std::exchange(changed, false); ++round) {
    bits_.clear();
    for (std::size_t i : open) {
      std::optional<int>& known = parameters_[given[i].index];
      if (!known) continue;
      std::optional<int> most = known;
      each_way_to(loop_.header, [&](int, const Target& target) {
        const auto next = bits(target.arguments[i]);
        most = most && next ? std::optional(std::max(*most, *next)) : std::nullopt;
      });
      if (most == known) continue;
      changed = true;
      known = round < kRounds && most && *most < kGrantedBits ? most : std::nullopt;
    }
  }
  bits_.clear();
  relies_ = true;
  std::vector<ValueId> counters;
  for (std::size_t i : open)
    if (!parameters_[given[i].index] && is_counter(i)) {
      begin.push_back({i, kGrantedBits});
      counters.push_back(given[i]);
    }
  for (ValueId counter : counters) parameters_[counter.index] = kGrantedBits + 1;
  bits_.clear();
}

bool Assumptions::is_counter(std::size_t parameter) {
  const ValueId given = region_.blocks[std::size_t(loop_.header)].parameters[parameter];
  std::map<std::uint32_t, std::optional<Growth>> seen;
  bool known = true;
  each_way_to(loop_.header, [&](int, const Target& target) {
    const auto found = growth(target.arguments[parameter], given, seen);
    known = known && found && found->by <= kGrowthBits && (!found->most || *found->most <= kGrantedBits);
  });
  if (!known) return false;
  for (const auto& [value, found] : seen)
    if (const Instruction* made = maker_(ValueId{value}); found && made && is_checked(*made)) unchecked_.insert(value);
  return true;
}

/// A value as the parameter and what is added to it.
std::optional<Assumptions::Growth> Assumptions::growth(ValueId value, ValueId parameter,
                                                       std::map<std::uint32_t, std::optional<Growth>>& seen) {
  if (value == parameter) return Growth{0, std::nullopt};
  const auto known = seen.find(value.index);
  if (known != seen.end()) return known->second;
  seen[value.index] = std::nullopt;
  const auto either = [](const std::optional<Growth>& a, const std::optional<Growth>& b) -> std::optional<Growth> {
    if (!a || !b) return std::nullopt;
    return Growth{std::max(a->by, b->by), std::max(a->most, b->most)};
  };
  std::optional<Growth> found;
  const Instruction* made = maker_(value);
  if (const auto small = bits(value); small && *small <= kGrantedBits) {
    found = Growth{0, *small};
  } else if (!made) {
    const auto at = defined_in_.find(value.index);
    if (at == defined_in_.end() || at->second == loop_.header) return std::nullopt;
    const auto& parameters = region_.blocks[std::size_t(at->second)].parameters;
    const auto place = std::size_t(std::find(parameters.begin(), parameters.end(), value) - parameters.begin());
    bool first = true;
    each_way_to(at->second, [&](int, const Target& target) {
      const auto next = growth(target.arguments[place], parameter, seen);
      found = first ? next : either(found, next);
      first = false;
    });
  } else if (made->code == Code::Pointwise &&
             (made->op == Op::where || made->op == Op::minimum || made->op == Op::maximum)) {
    found = either(growth(made->operands[made->operands.size() - 2], parameter, seen),
                   growth(made->operands.back(), parameter, seen));
  } else if (const auto does = arithmetic(*made); does == Op::add || does == Op::sub) {
    for (std::size_t of : {0u, 1u}) {
      if (of == 1 && does == Op::sub) break;
      const auto by = bits(made->operands[1 - of]);
      const auto before = by ? growth(made->operands[of], parameter, seen) : std::nullopt;
      if (!before) continue;
      found = Growth{std::max(before->by, *by) + 1, before->most};
      break;
    }
  }
  return seen[value.index] = found;
}

std::optional<int> Assumptions::bits(ValueId value) {
  if (parameters_.contains(value.index)) return bits_of_parameter(value);
  const auto known = bits_.find(value.index);
  if (known != bits_.end()) return known->second;
  bits_[value.index] = std::nullopt;  // of itself
  std::optional<int> found = bits_of(value);
  if (found && *found > kMostBits) found = std::nullopt;
  return bits_[value.index] = found;
}

std::optional<int> Assumptions::bits_of(ValueId value) {
  if (region_.type(value) != DType::I64) return std::nullopt;
  if (const auto number = maker_.constant(value)) return bits_of_constant(*number);
  if (const auto of_pass = facts_.affine(value)) {
    if (relies_) functions.push_back(value);
    return int(std::ceil(std::log2(std::max(*of_pass, 1.0))));
  }
  const auto most = [](std::optional<int> a, std::optional<int> b) {
    return a && b ? std::optional(std::max(*a, *b)) : std::nullopt;
  };
  const Instruction* made = maker_(value);
  if (!made) {
    const auto at = defined_in_.find(value.index);
    if (at == defined_in_.end()) return std::nullopt;
    const auto& parameters = region_.blocks[std::size_t(at->second)].parameters;
    const auto place = std::size_t(std::find(parameters.begin(), parameters.end(), value) - parameters.begin());
    std::optional<int> found = 0;
    each_way_to(at->second, [&](int, const Target& target) { found = most(found, bits(target.arguments[place])); });
    return found;
  }
  if (unchecked_.contains(value.index)) return kGrantedBits + 1;  // a counter, with something added
  const auto operand = [&](std::size_t i) { return bits(made->operands[i]); };
  if (const auto does = arithmetic(*made)) {
    const auto a = operand(0), b = operand(1);
    if (!a || !b) return std::nullopt;
    return does == Op::mul ? *a + *b : std::max(*a, *b) + 1;
  }
  if (made->code == Code::Load) {
    if (relies_) small.insert(value.index);
    return loaded_;
  }
  if (made->code != Code::Pointwise) return std::nullopt;
  switch (made->op) {
    case Op::where: return most(operand(1), operand(2));
    case Op::minimum: case Op::maximum: return most(operand(0), operand(1));
    case Op::abs: case Op::neg: return operand(0);
    case Op::cast:
      switch (region_.type(made->operands[0])) {
        case DType::Bool: return 1;
        case DType::U8: case DType::I8: return 8;
        case DType::U16: case DType::I16: return 16;
        case DType::U32: case DType::I32: return 32;
        default: return std::nullopt;
      }
    default: return std::nullopt;
  }
}

/// Of the header, as far as it is known.
std::optional<int> Assumptions::bits_of_parameter(ValueId value) {
  const std::optional<int> known = parameters_[value.index];
  if (!relies_ || !known || *known > kGrantedBits) return known;
  // It is as small in the next pass, if it is at the beginning.
  const auto& given = region_.blocks[std::size_t(loop_.header)].parameters;
  const auto place = std::size_t(std::find(given.begin(), given.end(), value) - given.begin());
  if (std::any_of(begin.begin(), begin.end(), [&](const Begin& one) { return one.parameter == place; })) return known;
  begin.push_back({place, *known});
  each_way_to(loop_.header, [&](int, const Target& target) { bits(target.arguments[place]); });
  return known;
}

/// It may be computed of any numbers: it is no integer of a float that is too large for it, and no quotient of
/// integers.
bool Assumptions::is_harmless(const Instruction& made) const {
  const DType of = region_.type(made.operands.back()), to = region_.type(made.result);
  if (made.op == Op::cast) return !is_float(of) || !is_integer(to);
  if (!is_integer(to) || made.operands.size() != 2) return true;
  switch (made.op) {
    case Op::add: case Op::sub: case Op::mul: case Op::minimum: case Op::maximum: case Op::bit_and: case Op::bit_or:
    case Op::bit_xor: return true;
    default: {
      const auto by = maker_.constant(made.operands[1]);
      return by && *by > 0 && *by < 64;
    }
  }
}

/// The condition holds in no pass, if numbers are as small as they are taken to be.
bool Assumptions::is_never(ValueId condition) {
  const Instruction* made = maker_(condition);
  if (!made || made->code != Code::Pointwise || made->operands.size() != 2) return false;
  if (made->op == Op::bit_or) return is_never(made->operands[0]) && is_never(made->operands[1]);
  if (made->op == Op::bit_and) return is_never(made->operands[0]) || is_never(made->operands[1]);
  const auto of = bits(made->operands[0]);
  const auto limit = maker_.constant(made->operands[1]);
  if (!of || !limit) return false;
  const std::int64_t most = std::int64_t(1) << *of;
  switch (made->op) {
    case Op::gt: return *limit >= most;
    case Op::ge: return *limit > most;
    case Op::lt: return *limit <= -most;
    case Op::le: return *limit < -most;
    case Op::eq: return *limit > most || *limit < -most;
    default: return false;
  }
}

/// Nothing that comes behind it has to know that it doesn't hold, as an index or a divisor has to.
bool Assumptions::is_of_floats(ValueId condition) const {
  const Instruction* made = maker_(condition);
  if (!made || made->code != Code::Pointwise) return false;
  const auto all = [&](const auto& is) { return std::all_of(made->operands.begin(), made->operands.end(), is); };
  switch (made->op) {
    case Op::bit_or: case Op::bit_and: case Op::logical_not:
      return all([&](ValueId operand) { return is_of_floats(operand); });
    case Op::lt: case Op::le: case Op::gt: case Op::ge: case Op::eq: case Op::ne: case Op::is_nan: case Op::is_finite:
      return all([&](ValueId operand) { return is_float(region_.type(operand)); });
    default: return false;
  }
}

/// It is a parameter of the header with something added, and that parameter in the next pass: one that is not finite
/// stays so.
bool Assumptions::is_sum(ValueId value) {
  const Instruction* made = maker_(value);
  const auto does = made && made->code == Code::Pointwise ? arithmetic(*made) : std::nullopt;
  if (does != Op::add && does != Op::sub) return false;
  const auto& given = region_.blocks[std::size_t(loop_.header)].parameters;
  for (std::size_t i = 0; i < given.size(); ++i) {
    bool is = std::find(made->operands.begin(), made->operands.end(), given[i]) != made->operands.end();
    each_way_to(loop_.header, [&](int, const Target& target) { is = is && target.arguments[i] == value; });
    if (!is) continue;
    sums.push_back(i);
    return true;
  }
  return false;
}

bool Assumptions::is_in_the_loop(const Instruction& made) const {
  return std::any_of(loop_.blocks.begin(), loop_.blocks.end(), [&](int at) {
    const auto& body = region_.blocks[std::size_t(at)].body;
    return std::any_of(body.begin(), body.end(), [&](const Instruction& one) { return &one == &made; });
  });
}

/// It stores what was there, with something added.
bool Assumptions::is_total(const Instruction& store) const {
  const Instruction* made = maker_(store.operands[1]);
  const auto does = made && made->code == Code::Pointwise ? arithmetic(*made) : std::nullopt;
  if (does != Op::add && does != Op::sub) return false;
  return std::any_of(made->operands.begin(), made->operands.end(), [&](ValueId operand) {
    const Instruction* loaded = maker_(operand);
    return loaded && loaded->code == Code::Load && loaded->memory == store.memory &&
           loaded->operands[0] == store.operands[0] && is_in_the_loop(*loaded);
  });
}

/// False: it leaves whatever is taken for granted.
bool Assumptions::look_at(const Instruction& made) {
  if (made.code == Code::Pointwise && !is_harmless(made)) return false;
  if (made.leave.exit < 0 || made.code == Code::LeaveIfAsked || facts_.is_checked_before(made)) return true;
  if (is_checked(made)) {
    if (region_.type(made.result) != DType::I64) return false;
    if (!unchecked_.contains(made.result.index) && !bits(made.result)) return false;
    unchecked_.insert(made.result.index);
    return true;
  }
  if (made.code == Code::LeaveIf) {
    if (is_of_floats(made.operands[0])) unmet.insert(made.operands[0].index);
    else return is_never(made.operands[0]);
    return true;
  }
  if (!is_sum(made.operands[0])) finite.insert(made.operands[0].index);
  return true;
}

}  // namespace fj::region
