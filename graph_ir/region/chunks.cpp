// Start at Chunks::run(). Integers are followed as affine functions of the number of the pass: such a function is
// between its values in the first and the last pass, so that a comparison of two of them that has one result in both
// has it in all.
#include "graph_ir/region/chunks.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "graph_ir/ops.h"
#include "graph_ir/region/flow.h"
#include "graph_ir/region/loop_form.h"

namespace fj::region {
namespace {

constexpr std::int64_t kChunk = 1024;      // passes between two looks at signals
constexpr std::int64_t kFewPasses = 8;     // are not worth the dispatch
constexpr std::int64_t kSlowPasses = 16;   // before the dispatch is tried again: then four times as many
constexpr std::int64_t kMostSlowPasses = 1 << 20;  // the most of them
constexpr std::size_t kMostInstructions = 1000;  // of a loop that is copied
// Numbers that sums and products are made of are checked to be between -2^31 and 2^31; the results have as many bits as
// follows from that, and at most 62.
constexpr int kLeafBits = 31, kMostBits = 62;
// A number that grows by less than 2^33 in a pass is checked to be between -2^61 and 2^61.
constexpr int kCounterBits = 61, kGrowthBits = 33;

bool is_checked(const Instruction& made) {
  return made.code == Code::CheckedAdd || made.code == Code::CheckedSub || made.code == Code::CheckedMul;
}

/// One loop of a region, which is changed.
class Chunks {
 public:
  Chunks(Region& region, const NaturalLoop& loop)
      : region_(region), flow_(region), loop_(loop), header_(loop.header), inside_(region.blocks.size()),
        defined_in_(region.types.size(), -1) {
    for (int block : loop.blocks) inside_[std::size_t(block)] = 1;
    for (int block : flow_.order()) {
      for (ValueId parameter : region.blocks[std::size_t(block)].parameters) defined_in_[parameter.index] = block;
      for (const Instruction& instruction : region.blocks[std::size_t(block)].body)
        if (instruction.result.valid()) defined_in_[instruction.result.index] = block;
    }
  }

  void run() {
    if (!is_worth() || !has_one_way() || !pass_on_exits()) return;
    // Instructions of the region as it was stay where they are: a body moves with its block.
    maker_.emplace(region_);
    find_inductions();
    look_at_checks();
    if (ends_.empty()) return;  // how many passes there are is not known before: nor what their numbers will be
    find_counters();
    make();
  }

 private:
  Block& block(int at) { return region_.blocks[std::size_t(at)]; }
  bool is_inside(int at) const { return at >= 0 && at < int(inside_.size()) && inside_[std::size_t(at)]; }
  bool is_defined_inside(ValueId value) const { return is_inside(defined_in_[value.index]); }
  const Instruction* maker(ValueId value) const { return (*maker_)(value); }
  std::optional<std::int64_t> constant(ValueId value) const { return maker_->constant(value); }

  bool is_worth() {
    std::size_t size = 0;
    bool asks = false, works = false;
    for (int at : loop_.blocks)
      for (const Instruction& instruction : block(at).body) {
        if (instruction.code == Code::Run) return false;
        asks = asks || instruction.code == Code::LeaveIfAsked;
        works = works || instruction.code == Code::Load || instruction.code == Code::Store;
        ++size;
      }
    return asks && works && size <= kMostInstructions;
  }

  /// Blocks lead on to later ones, or back to the header.
  bool has_one_way() {
    std::set<int> before;
    for (int at : loop_.blocks) {
      before.insert(at);
      for (const Target* target : {&block(at).end.yes, &block(at).end.no})
        if (is_inside(target->block) && target->block != header_ && before.contains(target->block)) return false;
    }
    return true;
  }

  /// What is defined in the loop and used behind it becomes a parameter of the block that is gone to, which will be
  /// reached from two loops. False, and nothing has changed: another block is in the way.
  bool pass_on_exits() {
    std::set<int> exits;
    for (int at : loop_.blocks)
      for (const Target* target : {&block(at).end.yes, &block(at).end.no})
        if (target->block >= 0 && !is_inside(target->block)) exits.insert(target->block);
    std::map<int, std::set<std::uint32_t>> used;  // by exit
    bool known = true;
    for (int at : flow_.order()) {
      if (is_inside(at)) continue;
      const auto note = [&](ValueId value) {
        if (!is_defined_inside(value)) return;
        const auto exit = std::find_if(exits.begin(), exits.end(), [&](int one) { return flow_.dominates(one, at); });
        if (exit == exits.end()) known = false;
        else used[*exit].insert(value.index);
      };
      for (const Instruction& instruction : block(at).body) for_each_use(instruction, note);
      for_each_use(block(at).end, note);
    }
    if (!known) return false;
    for (const auto& [exit, values] : used) {
      for (int from : flow_.before(exit))
        if (!is_inside(from)) return false;
      for (int other : exits)
        if (other != exit && flow_.dominates(other, exit)) return false;
    }
    for (const auto& [exit, values] : used) {
      std::unordered_map<std::uint32_t, ValueId> passed;
      for (std::uint32_t value : values) {
        const ValueId parameter = new_value(region_.type(ValueId{value}));
        defined_in_[parameter.index] = exit;
        passed[value] = parameter;
        block(exit).parameters.push_back(parameter);
      }
      for (int at : loop_.blocks)
        for (Target* target : {&block(at).end.yes, &block(at).end.no})
          if (target->block == exit)
            for (std::uint32_t value : values) target->arguments.push_back(ValueId{value});
      const auto renew = [&](ValueId& value) {
        if (const auto found = passed.find(value.index); found != passed.end()) value = found->second;
      };
      for (int at : flow_.order()) {
        if (!flow_.dominates(exit, at)) continue;
        for (Instruction& instruction : block(at).body) change_uses(instruction, renew);
        change_uses(block(at).end, renew);
      }
    }
    return true;
  }

  ValueId new_value(DType dtype) {
    const ValueId made = region_.new_value(dtype);
    defined_in_.resize(region_.types.size(), -1);
    return made;
  }

  // ---- what is known of the values of the loop

  template <class Visit>
  void each_jump_back(const Visit& visit) {
    for (int at : loop_.blocks)
      for (const Target* target : {&block(at).end.yes, &block(at).end.no})
        if (target->block == header_) visit(*target);
  }

  /// Parameters of the header that grow by a constant in each pass, or stay what they are.
  void find_inductions() {
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
  }

  /// An integer as a function of the pass.
  struct Affine {
    int bits;
    std::optional<std::int64_t> slope;  // per pass; nothing: it is not known
    bool is_invariant() const { return slope == 0; }
  };

  static bool is_pure(Op op) {
    switch (op) {
      case Op::add: case Op::sub: case Op::mul: case Op::cast: case Op::where: case Op::minimum: case Op::maximum:
      case Op::lt: case Op::le: case Op::gt: case Op::ge: case Op::eq: case Op::ne: case Op::bit_and: case Op::bit_or:
      case Op::bit_xor: case Op::logical_not: return true;
      default: return false;
    }
  }

  /// It is the same in each pass, and computed outside of the loop or from what is.
  bool is_invariant(ValueId value) {
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

  const std::optional<Affine>& affine(ValueId value) {
    const auto known = affine_.find(value.index);
    if (known != affine_.end()) return known->second;
    std::optional<Affine> found = look_at(value);
    if (found && found->bits > kMostBits) found = std::nullopt;
    return affine_[value.index] = found;
  }

  std::optional<Affine> look_at(ValueId value) {
    if (region_.type(value) != DType::I64) return std::nullopt;
    if (const auto number = constant(value)) {
      int bits = 1;
      while (bits < 63 && (*number >> bits) != 0 && (*number >> bits) != -1) ++bits;
      return Affine{bits + 1, 0};
    }
    if (const auto step = steps_.find(value.index); step != steps_.end()) return Affine{kLeafBits, step->second};
    const Instruction* made = maker(value);
    if (made && is_defined_inside(value)) {
      const auto operand = [&](int i) { return affine(made->operands[std::size_t(i)]); };
      if (const auto does = arithmetic(*made)) {
        const auto a = operand(0), b = operand(1);
        if (!a || !b) return std::nullopt;
        if (does != Op::mul) {
          Affine sum{std::max(a->bits, b->bits) + 1, std::nullopt};
          if (a->slope && b->slope) sum.slope = does == Op::sub ? *a->slope - *b->slope : *a->slope + *b->slope;
          return sum;
        }
        Affine product{a->bits + b->bits, std::nullopt};
        if (product.bits > kMostBits || (!a->is_invariant() && !b->is_invariant())) return std::nullopt;
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
    if (is_invariant(value)) return Affine{kLeafBits, 0};
    return std::nullopt;
  }

  bool is_sign(ValueId condition) {
    const Instruction* made = maker(condition);
    return made && made->code == Code::Pointwise && made->op == Op::lt && constant(made->operands[1]) == 0;
  }

  /// What a comparison compares, as signed numbers, and whether it takes them as unsigned ones.
  struct Compared {
    ValueId a, b;
    Op op;
    bool is_unsigned;
  };
  std::optional<Compared> compared(ValueId condition) {
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
  bool can_be(ValueId condition, bool wanted) {
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

  void look_at_checks() {
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
  std::optional<int> growth(ValueId value, ValueId parameter, std::map<std::uint32_t, std::optional<int>>& seen,
                            std::vector<ValueId>& sums) {
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
  std::optional<int> bits(ValueId value) {
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

  void find_counters() {
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

  // ---- the blocks

  int new_block() {
    region_.blocks.emplace_back();
    return int(region_.blocks.size()) - 1;
  }

  ValueId add(Instruction made, DType dtype) {
    made.result = new_value(dtype);
    block(at_).body.push_back(made);
    return made.result;
  }
  ValueId op(Op op, std::vector<ValueId> operands, DType dtype) {
    Instruction made{};
    made.code = Code::Pointwise;
    made.op = op;
    made.operands = std::move(operands);
    return add(std::move(made), dtype);
  }
  ValueId integer(std::int64_t value) {
    Instruction made{};
    made.code = Code::Constant;
    made.constant = value;
    return add(std::move(made), DType::I64);
  }
  ValueId plus(ValueId a, std::int64_t b) { return op(Op::add, {a, integer(b)}, DType::I64); }
  ValueId less(ValueId a, ValueId b) { return op(Op::lt, {a, b}, DType::Bool); }
  Target to(int block, std::vector<ValueId> arguments, std::initializer_list<ValueId> more) {
    arguments.insert(arguments.end(), more);
    return {block, std::move(arguments)};
  }
  std::vector<ValueId> new_parameters(int at, const std::vector<ValueId>& like) {
    std::vector<ValueId> made;
    for (ValueId parameter : like) made.push_back(new_value(region_.type(parameter)));
    block(at).parameters = made;
    return made;
  }
  ValueId new_parameter(int at) {
    const ValueId made = new_value(DType::I64);
    block(at).parameters.push_back(made);
    return made;
  }
  void branch(ValueId condition, Target yes, Target no) {
    block(at_).end = {Terminator::Kind::Branch, condition, std::move(yes), std::move(no), {}};
  }
  void jump(Target to) { block(at_).end = {Terminator::Kind::Jump, {}, std::move(to), {}, {}}; }

  /// A value of the loop, as it is in the first of the next passes or in the last one.
  ValueId in_pass(ValueId value, bool last) {
    if (!is_defined_inside(value)) return value;
    const auto known = in_pass_.find({value.index, last});
    if (known != in_pass_.end()) return known->second;
    ValueId made;
    if (const auto step = steps_.find(value.index); step != steps_.end() && last) {
      made = op(Op::add, {in_pass(value, false), op(Op::mul, {last_, integer(step->second)}, DType::I64)}, DType::I64);
    } else if (const auto taken = taken_.find(value.index); taken != taken_.end()) {
      made = in_pass(maker(value)->operands[2], last);
    } else if (!maker(value)) {
      made = in_pass(value, false);  // a parameter that stays what it is
    } else {
      const Instruction& of = *maker(value);
      Instruction copy = of;
      copy.leave = {};
      for (ValueId& operand : copy.operands) operand = in_pass(operand, last);
      // Where the type does not hold its result, a number that it is made of is too large, which is checked.
      if (const auto does = arithmetic(of)) copy.code = Code::Pointwise, copy.op = *does;
      made = add(std::move(copy), region_.type(value));
    }
    in_pass_[{value.index, last}] = made;
    return made;
  }

  /// The numbers that an affine one is made of.
  void leaves_of(ValueId value, std::set<std::uint32_t>& leaves, std::set<std::uint32_t>& seen) {
    if (!seen.insert(value.index).second || constant(value)) return;
    const auto known = affine_.find(value.index);
    const Instruction* made = maker(value);
    const bool is_made = known != affine_.end() && known->second && made && is_defined_inside(value);
    if (is_made && taken_.contains(value.index)) return leaves_of(made->operands[2], leaves, seen);
    if (!is_made || !arithmetic(*made)) {
      leaves.insert(value.index);
      return;
    }
    for (ValueId operand : made->operands) leaves_of(operand, leaves, seen);
  }

  /// For how many passes the condition has this value, if it has it in the first; nothing: in all, or it is not known.
  std::optional<ValueId> passes_while(ValueId condition, bool wanted) {
    const Instruction* made = maker(condition);
    if (made && made->op == Op::logical_not) return passes_while(made->operands[0], !wanted);
    const auto sides = compared(condition);
    if (!sides || !affine(sides->a) || !affine(sides->b)) return std::nullopt;
    // low < high + more
    ValueId low = sides->a, high = sides->b;
    std::int64_t more = 0;
    switch (sides->op) {
      case Op::lt: break;
      case Op::le: more = 1; break;
      case Op::gt: std::swap(low, high); break;
      case Op::ge: std::swap(low, high), more = 1; break;
      default: return std::nullopt;
    }
    if (!wanted) std::swap(low, high), more = 1 - more;
    const auto of_low = affine(low)->slope, of_high = affine(high)->slope;
    if (!of_low || !of_high || *of_low <= *of_high) return std::nullopt;
    const std::int64_t by = *of_low - *of_high;
    ValueId distance = op(Op::sub, {in_pass(high, false), in_pass(low, false)}, DType::I64);
    if (more + by - 1 != 0) distance = plus(distance, more + by - 1);
    return by == 1 ? distance : op(Op::floor_div, {distance, integer(by)}, DType::I64);
  }

  void make() {
    parameters_ = block(header_).parameters;
    dispatch_ = new_block(), check_ = new_block(), half_ = new_block(), fast_ = new_block();
    // The instructions of the header go into a block of their own, behind the count of passes.
    const int inner = new_block();
    block(inner).body = std::move(block(header_).body);
    block(inner).end = std::move(block(header_).end);
    block(header_).body.clear();
    if (const auto decided = decided_.find(header_); decided != decided_.end()) decided_[inner] = decided->second;
    std::vector<int> blocks{inner};
    for (int at : loop_.blocks)
      if (at != header_) blocks.push_back(at);
    make_dispatch();
    make_copy(blocks);
    count_passes(inner, blocks);
    for (int at : flow_.order()) {
      if (is_inside(at)) continue;
      for (Target* target : {&block(at).end.yes, &block(at).end.no})
        if (target->block == header_) {
          at_ = at;
          target->block = dispatch_;
          target->arguments.insert(target->arguments.end(), {integer(kChunk), integer(kSlowPasses)});
        }
    }
  }

  /// How many passes, and whether the checks hold in them.
  void make_dispatch() {
    const std::vector<ValueId> given = new_parameters(dispatch_, parameters_);
    const ValueId most = new_parameter(dispatch_), slow = new_parameter(dispatch_);
    for (std::size_t i = 0; i < given.size(); ++i) in_pass_[{parameters_[i].index, false}] = given[i];
    at_ = dispatch_;
    ValueId n = most;
    for (const auto& [condition, wanted] : ends_)
      if (const auto passes = passes_while(condition, wanted)) n = op(Op::minimum, {n, *passes}, DType::I64);
    const ValueId larger =
        op(Op::minimum, {op(Op::mul, {slow, integer(4)}, DType::I64), integer(kMostSlowPasses)}, DType::I64);
    branch(less(n, integer(kFewPasses)), to(header_, given, {slow, larger}), {check_, {}});

    at_ = check_;
    last_ = plus(n, -1);
    const std::optional<ValueId> holds = all_checks();
    if (holds) branch(*holds, to(fast_, given, {n}), {half_, {}});
    else jump(to(fast_, given, {n}));

    at_ = half_;
    const ValueId fewer = op(Op::shift_right, {n, integer(1)}, DType::I64);
    jump(to(dispatch_, given, {fewer, slow}));
  }

  /// Nothing: there is none.
  std::optional<ValueId> all_checks() {
    std::optional<ValueId> holds;
    const auto need = [&](ValueId condition) {
      holds = holds ? op(Op::bit_and, {*holds, condition}, DType::Bool) : condition;
    };
    std::set<std::uint32_t> leaves, seen;
    for (const auto& [condition, wanted] : needed_) require(condition, wanted, need, leaves, seen);
    for (const auto& [value, of] : affine_)
      if (const Instruction* made = maker(ValueId{value}); of && made && is_checked(*made))
        leaves_of(ValueId{value}, leaves, seen);
    const auto is_within = [&](ValueId value, int bits) {
      const ValueId shifted = op(Op::cast, {plus(value, std::int64_t(1) << bits)}, DType::U64);
      const ValueId end = op(Op::cast, {integer(std::int64_t(1) << (bits + 1))}, DType::U64);
      need(less(shifted, end));
    };
    for (std::uint32_t leaf : leaves) {
      is_within(in_pass(ValueId{leaf}, false), kLeafBits);
      if (steps_.contains(leaf)) is_within(in_pass(ValueId{leaf}, true), kLeafBits);
    }
    for (ValueId counter : counters_) is_within(in_pass(counter, false), kCounterBits);
    return holds;
  }

  /// The loop as it was, for as many passes as it is given; and how many it is given next time.
  void count_passes(int inner, const std::vector<int>& blocks) {
    const ValueId left = new_parameter(header_), next = new_parameter(header_);
    at_ = header_;
    const ValueId none = less(left, integer(1)), fewer = plus(left, -1);
    branch(none, to(dispatch_, parameters_, {integer(kChunk), next}), {inner, {}});
    for (int at : blocks)
      for (Target* target : {&block(at).end.yes, &block(at).end.no})
        if (target->block == header_) target->arguments.insert(target->arguments.end(), {fewer, next});
  }

  void make_copy(const std::vector<int>& blocks) {
    std::vector<ValueId> copy(region_.types.size());
    const std::vector<ValueId> carried = new_parameters(fast_, parameters_);
    for (std::size_t i = 0; i < carried.size(); ++i) copy[parameters_[i].index] = carried[i];
    const ValueId left = new_parameter(fast_);
    std::map<int, int> copies;
    for (int at : blocks) copies[at] = new_block();
    at_ = fast_;
    branch(less(left, integer(1)), to(header_, carried, {integer(1), integer(kSlowPasses)}),
           {copies.at(blocks[0]), {}});
    // One jump back: an optimiser takes several for loops in loops.
    const int again = new_block();
    at_ = again;
    const std::vector<ValueId> ahead = new_parameters(again, parameters_);
    jump(to(fast_, ahead, {plus(left, -1)}));
    for (int at : blocks) copy_block(at, copies.at(at), copy, copies, again);
  }

  template <class Need>
  void require(ValueId condition, bool wanted, const Need& need, std::set<std::uint32_t>& leaves,
               std::set<std::uint32_t>& seen) {
    const Instruction* made = maker(condition);
    const auto ask = [&](bool last) {
      const ValueId found = in_pass(condition, last);
      need(wanted ? found : op(Op::logical_not, {found}, DType::Bool));
    };
    if (is_invariant(condition)) return ask(false);
    if (made->op == Op::logical_not) return require(made->operands[0], !wanted, need, leaves, seen);
    if (made->op == Op::bit_or || made->op == Op::bit_and) {
      for (ValueId operand : made->operands) require(operand, wanted, need, leaves, seen);
      return;
    }
    ask(false);
    ask(true);
    const Compared sides = *compared(condition);
    leaves_of(sides.a, leaves, seen);
    leaves_of(sides.b, leaves, seen);
    if (sides.is_unsigned) need(op(Op::ge, {in_pass(sides.b, false), integer(0)}, DType::Bool));
  }

  void copy_block(int from, int into, std::vector<ValueId>& copy, const std::map<int, int>& copies, int again) {
    const auto mapped = [&](ValueId value) {
      return value.index < copy.size() && copy[value.index].valid() ? copy[value.index] : value;
    };
    const auto renewed = [&](ValueId value) {
      const ValueId made = new_value(region_.type(value));
      copy[value.index] = made;
      return made;
    };
    for (ValueId parameter : block(from).parameters) block(into).parameters.push_back(renewed(parameter));
    for (const Instruction& instruction : block(from).body) {
      if (instruction.code == Code::LeaveIfAsked) continue;
      if (instruction.code == Code::LeaveIf && needed_.contains({instruction.operands[0], false})) continue;
      if (instruction.result.valid() && taken_.contains(instruction.result.index)) {
        copy[instruction.result.index] = mapped(instruction.operands[2]);
        continue;
      }
      Instruction made = instruction;
      for (ValueId& operand : made.operands) operand = mapped(operand);
      for (ValueId& value : made.leave.values) value = mapped(value);
      if (instruction.result.valid()) {
        const auto of = affine_.find(instruction.result.index);
        const bool known = counted_.contains(instruction.result.index) || (of != affine_.end() && of->second);
        if (known && is_checked(made)) {
          made.op = *arithmetic(made);
          made.code = made.op == Op::add ? Code::AddNoWrap : Code::Pointwise;
          made.leave = {};
        }
        made.result = renewed(instruction.result);
      }
      block(into).body.push_back(std::move(made));
    }
    Terminator end = block(from).end;
    const auto retarget = [&](Target& target) {
      for (ValueId& argument : target.arguments) argument = mapped(argument);
      if (target.block == header_) target.block = again;
      else if (const auto found = copies.find(target.block); found != copies.end()) target.block = found->second;
    };
    for (Target* target : {&end.yes, &end.no})
      if (target->block >= 0) retarget(*target);
    for (ValueId& value : end.leave.values) value = mapped(value);
    if (const auto decided = decided_.find(from); decided != decided_.end()) {
      end = {Terminator::Kind::Jump, {}, decided->second ? end.yes : end.no, {}, {}};
    } else if (end.condition.valid()) {
      end.condition = mapped(end.condition);
    }
    block(into).end = std::move(end);
  }

  Region& region_;
  const Flow flow_;
  const NaturalLoop& loop_;
  const int header_;
  std::vector<char> inside_;
  std::vector<int> defined_in_;
  std::optional<Makers> maker_;
  std::map<std::uint32_t, std::int64_t> steps_;  // of parameters of the header that grow by a constant in each pass
  std::map<std::uint32_t, bool> invariant_;
  std::map<std::uint32_t, std::optional<Affine>> affine_;
  std::map<std::uint32_t, ValueId> taken_;       // indices that are not negative, by which condition
  std::set<std::pair<ValueId, bool>> needed_, ends_;  // conditions, and what each has to be; ends_: of passes
  std::map<int, bool> decided_;                  // branches: the way that stays in the loop
  std::set<std::uint32_t> counted_;
  std::vector<ValueId> counters_;
  std::map<std::pair<std::uint32_t, bool>, ValueId> in_pass_;
  std::vector<ValueId> parameters_;              // of the header
  int dispatch_ = -1, check_ = -1, half_ = -1, fast_ = -1;
  ValueId last_;                                 // the number of the last pass, from the first one
  int at_ = 0;
};

}  // namespace

Region in_chunks(Region region) {
  give_loops_form(region);
  for (const NaturalLoop& loop : innermost_loops(Flow(region))) Chunks(region, loop).run();
  return region;
}

}  // namespace fj::region
