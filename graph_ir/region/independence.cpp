#include "graph_ir/region/independence.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "graph_ir/region/loop_form.h"
#include "runtime/region_library.h"

namespace fj::region {

namespace {

/// Where values come from and where they go.
class Uses {
 public:
  explicit Uses(const Region& region)
      : used_(region.types.size()), passed_(region.types.size()), given_(region.types.size()),
        decides_(region.types.size()), is_parameter_(region.types.size()) {
    for (std::size_t at = 0; at < region.blocks.size(); ++at) {
      const Block& block = region.blocks[at];
      for (ValueId parameter : block.parameters) is_parameter_[parameter.index] = 1;
      for (const Instruction& made : block.body)
        for (ValueId operand : made.operands) used_[operand.index].push_back(&made);
      if (block.end.condition.valid()) decides_[block.end.condition.index].push_back(int(at));
      for (const Target* target : {&block.end.yes, &block.end.no})
        for (std::size_t i = 0; i < target->arguments.size(); ++i) {
          const ValueId from = target->arguments[i];
          const ValueId to = region.blocks[std::size_t(target->block)].parameters[i];
          passed_[from.index].push_back(to);
          given_[to.index].push_back(from);
        }
    }
  }

  const std::vector<const Instruction*>& used_by(ValueId value) const { return used_[value.index]; }
  const std::vector<ValueId>& passed_to(ValueId value) const { return passed_[value.index]; }
  /// What a parameter is given.
  const std::vector<ValueId>& given(ValueId parameter) const { return given_[parameter.index]; }
  /// The blocks whose branches it decides.
  const std::vector<int>& decides(ValueId value) const { return decides_[value.index]; }
  bool is_parameter(ValueId value) const { return is_parameter_[value.index] != 0; }

 private:
  std::vector<std::vector<const Instruction*>> used_;
  std::vector<std::vector<ValueId>> passed_, given_;
  std::vector<std::vector<int>> decides_;
  std::vector<char> is_parameter_;
};

/// How an index goes along an axis.
struct Along {
  enum class Kind : std::uint8_t {
    Any,      // as the rest says
    Nothing,  // not at all
    Number,   // it is the number of the pass, and so much more
    Other,
  } kind;
  std::int64_t more = 0;
  bool operator==(const Along&) const = default;
};
constexpr Along kAny{Along::Kind::Any}, kNothing{Along::Kind::Nothing}, kOther{Along::Kind::Other};

class Passes {
 public:
  Passes(const Region& region, const PassFacts& facts)
      : region_(region), facts_(facts), uses_(region), made_by_(region) {}

  Independence find() {
    find_same();
    for (const PassBegin& begin : facts_.begins) {
      numbers_.insert(same(begin.number).index);
      for (ValueId parameter : region_.blocks[std::size_t(begin.block)].parameters)
        begins_with_.insert(parameter.index);
    }
    find_accesses();
    Independence found;
    found.stored.resize(region_.memories.size());
    found.rewritten.resize(region_.memories.size());
    for (std::size_t i = 0; i < facts_.initial.size(); ++i) {
      const std::optional<Gathered> gathered = gather(i);
      if (!gathered) {
        found.why = "a pass takes it from the one before";
        found.carried = int(i);
        return found;
      }
      found.gathered.push_back(*gathered);
    }
    find_dependent();
    for (std::size_t memory = 0; memory < region_.memories.size(); ++memory) {
      found.why = look_at_memory(memory, found);
      if (found.why.empty()) continue;
      found.memory = int(memory);
      return found;
    }
    return found;
  }

 private:
  /// Parameters that are given one value alone are that value.
  void find_same() {
    same_.resize(region_.types.size());
    for (std::uint32_t i = 0; i < same_.size(); ++i)
      if (!uses_.is_parameter(ValueId{i})) same_[i] = ValueId{i};
    for (bool changed = true; changed;) {
      changed = false;
      for (const Block& block : region_.blocks)
        for (ValueId parameter : block.parameters) {
          ValueId& known = same_[parameter.index];
          if (known == parameter) continue;
          ValueId met;
          for (ValueId given : uses_.given(parameter)) {
            const ValueId is = same_[given.index];
            if (!is.valid() || is == parameter) continue;
            met = !met.valid() || met == is ? is : parameter;
            if (met == parameter) break;
          }
          changed = changed || met != known;
          known = met;
        }
    }
  }
  ValueId same(ValueId value) const { return same_[value.index].valid() ? same_[value.index] : value; }

  // ---- what passes take from each other

  static std::optional<Gathered> gathering(const Instruction& made, std::size_t which) {
    if (made.operands.size() != 2) return std::nullopt;
    const auto op = arithmetic(made);
    const Op does = op ? *op : made.code == Code::Pointwise ? made.op : Op::constant;
    if (does == Op::add || (does == Op::sub && which == 0)) return Gathered::Sum;
    if (does == Op::mul) return Gathered::Product;
    return std::nullopt;
  }

  /// Nothing but whether the region is left hangs on it.
  bool only_asks(ValueId value, int depth = 0) const {
    if (depth > 8 || !uses_.decides(value).empty() || !uses_.passed_to(value).empty()) return false;
    for (const Instruction* use : uses_.used_by(value)) {
      if (use->code == Code::LeaveIf || use->code == Code::LeaveIfReported) continue;
      if (use->code != Code::Pointwise && use->code != Code::Opaque) return false;
      if (!only_asks(use->result, depth + 1)) return false;
    }
    return true;
  }

  /// What is larger or smaller of a value and another: `better`, a comparison, chooses. Nothing: it is used otherwise.
  std::optional<Gathered> choice(const Instruction& chosen) const {
    if (chosen.code != Code::Pointwise || chosen.op != Op::where) return std::nullopt;
    const Instruction* const better = made_by_(chosen.operands[0]);
    if (better == nullptr || better->code != Code::Pointwise) return std::nullopt;
    const ValueId next = chosen.operands[1], best = chosen.operands[2];
    const bool straight = better->operands == std::vector<ValueId>{next, best};
    if (!straight && better->operands != std::vector<ValueId>{best, next}) return std::nullopt;
    if (better->op == Op::gt) return straight ? Gathered::Largest : Gathered::Least;
    if (better->op == Op::lt) return straight ? Gathered::Least : Gathered::Largest;
    return std::nullopt;
  }

  /// Both are computed alike, of what does not change.
  bool are_equal(ValueId a, ValueId b, int depth = 0) const {
    a = same(a);
    b = same(b);
    if (a == b) return true;
    const Instruction *const x = made_by_(a), *const y = made_by_(b);
    if (x == nullptr || y == nullptr || depth > 12 || region_.type(a) != region_.type(b)) return false;
    if (x->code != y->code || x->op != y->op || x->function != y->function || x->memory != y->memory) return false;
    if (x->operands.size() != y->operands.size() || !(x->constant == y->constant)) return false;
    if (x->code == Code::Run || x->code == Code::Address) return false;
    const auto stores = [&](const Access& access) { return access.memory == x->memory && access.stores; };
    if (x->code == Code::Load && (facts_.strides[std::size_t(x->memory)].empty() ||
                                  std::any_of(accesses_.begin(), accesses_.end(), stores)))
      return false;
    for (std::size_t i = 0; i < x->operands.size(); ++i)
      if (!are_equal(x->operands[i], y->operands[i], depth + 1)) return false;
    return true;
  }

  /// `if x > best: best = x`: what joins the two ways is the larger of both, and nothing else differs.
  struct Joined {
    ValueId parameter, chosen;  // that is given this one where the comparison holds
    Gathered how;
  };
  /// Where a way of a branch comes to when it has done nothing that is seen; null: it does something.
  const Target* behind(const Target& way) const {
    const Block& block = region_.blocks[std::size_t(way.block)];
    if (!block.parameters.empty()) return &way;
    const bool does = std::any_of(block.body.begin(), block.body.end(), [](const Instruction& made) {
      return made.code == Code::Store || made.code == Code::Run;
    });
    return does || block.end.kind != Terminator::Kind::Jump ? nullptr : &block.end.yes;
  }
  std::optional<Joined> joined(ValueId better, ValueId best, int at) const {
    const Instruction* const compared = made_by_(better);
    const Terminator& end = region_.blocks[std::size_t(at)].end;
    if (compared == nullptr || compared->code != Code::Pointwise) return std::nullopt;
    if (compared->op != Op::gt && compared->op != Op::lt) return std::nullopt;
    const bool straight = compared->operands[1] == best;
    const ValueId next = compared->operands[straight ? 0 : 1];
    const Target *const larger = behind(end.yes), *const other = behind(end.no);
    if (larger == nullptr || other == nullptr || larger->block != other->block) return std::nullopt;
    const auto& parameters = region_.blocks[std::size_t(other->block)].parameters;
    std::optional<Joined> found;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const ValueId yes = larger->arguments[i], no = other->arguments[i];
      if (are_equal(yes, no)) continue;
      if (found || same(no) != same(best) || !are_equal(yes, next)) return std::nullopt;
      found = Joined{parameters[i], yes, (compared->op == Op::gt) == straight ? Gathered::Largest : Gathered::Least};
    }
    return found;
  }

  /// A NaN that another number is compared with is not chosen: one that has been met is not forgotten, nor is what was
  /// before it.
  bool gathers(const Instruction& chosen, ValueId number) const {
    return chosen.operands[2] == number || (chosen.operands[1] == number && !is_float(region_.type(number)));
  }

  std::optional<Gathered> gather(std::size_t which) const {
    std::set<std::uint32_t> is;  // the number, as it is here and there
    std::vector<ValueId> open;
    Gathered found = Gathered::Unchanged;
    const auto add = [&](ValueId value) {
      if (is.insert(value.index).second) open.push_back(value);
    };
    std::set<std::pair<ValueId, ValueId>> chosen_at;  // parameters, and what they are given where it is larger
    const auto note = [&](std::optional<Gathered> how) {
      if (!how || (found != Gathered::Unchanged && found != *how)) return false;
      found = *how;
      return true;
    };
    if (facts_.initial[which].valid()) add(facts_.initial[which]);
    for (const PassBegin& begin : facts_.begins) {
      if (!begin.carried[which].valid()) return std::nullopt;
      add(begin.carried[which]);
    }
    const auto follow = [&](ValueId value) {
      if (!uses_.decides(value).empty()) return false;
      for (ValueId parameter : uses_.passed_to(value)) add(parameter);
      for (const Instruction* use : uses_.used_by(value)) {
        if (use->code == Code::LeaveIf || use->code == Code::LeaveIfReported) continue;
        if (use->code == Code::Opaque || (use->code == Code::Pointwise && use->op == Op::cast)) {
          if (only_asks(use->result)) continue;
          if (!is_widened(*use)) return false;
          add(use->result);
        } else if (const auto how = gathering(*use, use->operands[0] == value ? 0 : 1)) {
          if (only_asks(use->result)) continue;
          if (use->operands[0] == use->operands[1] || !note(how)) return false;
          add(use->result);
        } else if (const auto chosen = choice(*use); chosen && gathers(*use, value)) {
          if (!note(chosen)) return false;
          add(use->result);
        } else if (use->code == Code::Pointwise && (use->op == Op::gt || use->op == Op::lt)) {
          for (int at : uses_.decides(use->result)) {
            const auto way = joined(use->result, value, at);
            if (!way || !note(way->how)) return false;
            chosen_at.insert({way->parameter, way->chosen});
          }
          if (!chooses_or_asks(use->result, value)) return false;
        } else if (use->code != Code::Pointwise || !only_asks(use->result)) {
          return false;
        }
      }
      return true;
    };
    // Whatever a parameter that is the number is given has to be it too.
    const auto add_given = [&](ValueId parameter) {
      for (ValueId given : uses_.given(parameter)) {
        const Instruction* const made = made_by_(given);
        // One that is chosen at a branch is that there, whatever else it is.
        if (is.contains(given.index) || chosen_at.contains({parameter, given})) continue;
        const bool is_input = made == nullptr && !uses_.is_parameter(given);
        const bool can_be = made != nullptr ? is_kept(*made) : !is_input || given == facts_.initial[which];
        if (!can_be) return false;
        add(given);
      }
      return true;
    };
    while (!open.empty()) {
      while (!open.empty()) {
        const ValueId value = open.back();
        open.pop_back();
        if (!follow(value)) return std::nullopt;
      }
      const std::set<std::uint32_t> known = is;
      for (std::uint32_t index : known)
        if (uses_.is_parameter(ValueId{index}) && !add_given(ValueId{index})) return std::nullopt;
    }
    // No other thing that passes leave for the next ones is it.
    for (std::uint32_t index : is) {
      const auto is_own = [&](const PassBegin& begin) { return begin.carried[which].index == index; };
      if (begins_with_.contains(index) && std::none_of(facts_.begins.begin(), facts_.begins.end(), is_own))
        return std::nullopt;
    }
    // What it is made of is the number, and one thing more: none of it was taken for what it is not.
    for (std::uint32_t index : is) {
      const Instruction* const made = made_by_(ValueId{index});
      if (made == nullptr) continue;
      const auto holds = [&](ValueId operand) { return is.contains(operand.index); };
      if (std::count_if(made->operands.begin(), made->operands.end(), holds) != 1) return std::nullopt;
      const bool chooses = made->op == Op::where && made->code == Code::Pointwise;
      if (chooses && !gathers(*made, made->operands[holds(made->operands[2]) ? 2 : 1])) return std::nullopt;
      if (const bool subtracts = arithmetic(*made) == Op::sub; subtracts && !holds(made->operands[0]))
        return std::nullopt;
    }
    return found;
  }

  bool is_widened(const Instruction& made) const {
    const DType from = region_.type(made.operands[0]), to = region_.type(made.result);
    return from == to || (from == DType::I64 && to == DType::F64);
  }
  bool is_kept(const Instruction& made) const {
    return gathering(made, 0) || gathering(made, 1) || choice(made) ||
           ((made.code == Code::Opaque || (made.code == Code::Pointwise && made.op == Op::cast)) && is_widened(made));
  }
  /// But for branches, a comparison of the number with another one chooses the larger or smaller of the two, or only
  /// asks.
  bool chooses_or_asks(ValueId compared, ValueId number) const {
    if (!uses_.passed_to(compared).empty()) return false;
    const auto& all = uses_.used_by(compared);
    return std::all_of(all.begin(), all.end(), [&](const Instruction* use) {
      if (use->code == Code::LeaveIf) return true;
      if (use->code == Code::Pointwise && use->op != Op::where) return only_asks(use->result);
      return choice(*use) && gathers(*use, number);
    });
  }

  // ---- which elements a pass works on

  struct Access {
    int memory;
    ValueId index;
    bool stores = false, loads = false;
    std::vector<ValueId> steps;  // beside the index, what is worked on goes on by these
    bool is_known = true;        // else it may be any element
  };

  /// What is done where an address is, by a function of the region library.
  Access access_by(const Instruction& use, const Instruction& address) const {
    constexpr std::string_view kOfElements[] = {"sum_",          "least_",          "greatest_", "where_least_",
                                                "where_greatest_", "count_true"};
    const std::string_view name = use.code == Code::Run ? region_library()[std::size_t(use.function)].name : "";
    Access access{address.memory, address.operands[0], false, true, {}};
    if (name == "copy" && use.operands[0] == address.result) {
      access.loads = false;
      access.stores = true;
      access.steps = {use.operands[1], use.operands[2]};
    } else if (std::any_of(std::begin(kOfElements), std::end(kOfElements),
                           [&](std::string_view of) { return name.starts_with(of); })) {
      access.steps = {use.operands[2]};  // behind the number of elements
    } else {
      access.is_known = false;
    }
    return access;
  }

  void find_accesses() {
    for (const Block& block : region_.blocks)
      for (const Instruction& made : block.body) {
        if (made.memory < 0 || facts_.strides[std::size_t(made.memory)].empty()) continue;
        Access access{made.memory, made.operands[0], made.code == Code::Store, made.code == Code::Load, {}};
        if (made.code == Code::Address) {
          for (const Instruction* use : uses_.used_by(made.result)) accesses_.push_back(access_by(*use, made));
          access.loads = access.stores = true;
          access.is_known = false;
          if (!uses_.passed_to(made.result).empty()) accesses_.push_back(std::move(access));
          continue;
        }
        accesses_.push_back(std::move(access));
      }
  }

  /// What differs from pass to pass because the number of the pass does.
  void find_dependent() {
    depends_.assign(region_.types.size(), 0);
    std::vector<ValueId> open;
    const auto add = [&](ValueId value) {
      if (value.valid() && !std::exchange(depends_[value.index], 1)) open.push_back(value);
    };
    for (const PassBegin& begin : facts_.begins) add(begin.number);
    while (!open.empty()) {
      const ValueId value = open.back();
      open.pop_back();
      for (const Instruction* use : uses_.used_by(value)) add(use->result);
      for (ValueId parameter : uses_.passed_to(value)) add(parameter);
    }
  }

  /// `x` of `where(x < 0, x + size, x)`, where no number of a pass is negative.
  ValueId counted(ValueId value) const {
    value = same(value);
    const Instruction* const made = made_by_(value);
    if (!facts_.counts_up || made == nullptr || made->code != Code::Pointwise || made->op != Op::where) return value;
    const Instruction* const asks = made_by_(made->operands[0]);
    const bool is_sign = asks != nullptr && asks->code == Code::Pointwise && asks->op == Op::lt &&
                         same(asks->operands[0]) == same(made->operands[2]) &&
                         made_by_.constant(asks->operands[1]) == 0;
    return is_sign ? same(made->operands[2]) : value;
  }

  static Along either(Along a, Along b) {
    if (a == kAny) return b;
    return b == kAny || a == b ? a : kOther;
  }
  static Along sum(Along a, Along b) {
    if (a == kOther || b == kOther) return kOther;
    if (a == kNothing) return b;
    if (b == kNothing) return a;
    return a == kAny && b == kAny ? kAny : kOther;
  }

  /// What is said of whatever a parameter is given, but for itself; nothing: it is none, or passes leave it for others.
  template <class Say>
  std::optional<Along> of_given(ValueId value, const Say& say) const {
    if (!uses_.is_parameter(value) || begins_with_.contains(value.index)) return std::nullopt;
    if (std::find(open_.begin(), open_.end(), value) != open_.end()) return kAny;
    if (++looks_ > kMostLooks) return kOther;
    open_.push_back(value);
    Along found = kAny;
    for (ValueId given : uses_.given(value)) found = either(found, say(given));
    open_.pop_back();
    return found;
  }

  /// Of an index that is counted from the end where it is negative.
  Along beyond_number(ValueId value) const {
    value = counted(value);
    if (numbers_.contains(value.index)) return {Along::Kind::Number};
    if (const auto found = of_given(value, [&](ValueId given) { return beyond_number(given); })) return *found;
    const Instruction* const made = made_by_(value);
    if (made == nullptr || arithmetic(*made) != Op::add) return kOther;
    for (std::size_t i = 0; i < 2; ++i) {
      const auto more = made_by_.constant(made->operands[1 - i]);
      if (!more || *more < 0 || *more > kMostStep) continue;
      Along found = beyond_number(made->operands[i]);
      if (found.kind == Along::Kind::Number) found.more += *more;
      return found.kind == Along::Kind::Number ? found : kOther;
    }
    return kOther;
  }

  struct Term {
    int axis;  // -1: it is not known
    std::vector<ValueId> factors;
  };
  void add_factors(ValueId value, std::vector<ValueId>& out) const {
    value = same(value);
    const Instruction* const made = made_by_(value);
    if (made != nullptr && made->code == Code::Pointwise && made->op == Op::mul) {
      for (ValueId operand : made->operands) add_factors(operand, out);
    } else {
      out.push_back(value);
    }
  }
  Term term(int memory, ValueId value) const {
    Term made{-1, {}};
    add_factors(value, made.factors);
    const auto& strides = facts_.strides[std::size_t(memory)];
    if (!strides.back().valid()) made.axis = int(strides.size()) - 1;
    for (std::size_t axis = 0; axis < strides.size(); ++axis)
      if (const auto at = std::find(made.factors.begin(), made.factors.end(), strides[axis]);
          strides[axis].valid() && at != made.factors.end()) {
        made.factors.erase(at);
        made.axis = int(axis);
        break;
      }
    return made;
  }

  Along along(int memory, ValueId value, int axis) const {
    value = same(value);
    if (made_by_.constant(value) == 0) return kNothing;
    const Instruction* const made = made_by_(value);
    const bool is_number = beyond_number(value).kind == Along::Kind::Number;
    if (!is_number) {
      const auto further = [&](ValueId given) { return along(memory, given, axis); };
      if (const auto found = of_given(value, further)) return *found;
      if (made != nullptr && arithmetic(*made) == Op::add)
        return sum(further(made->operands[0]), further(made->operands[1]));
    }
    const Term one = term(memory, value);
    if (one.axis < 0) return kOther;
    if (one.axis != axis) return kNothing;
    const Along found = one.factors.size() == 1 ? beyond_number(one.factors[0]) : kOther;
    return found.kind == Along::Kind::Number ? found : kOther;
  }

  /// By how much the index along the axis is more than the number of the pass; nothing: it is another one, or more of
  /// the axis is worked on.
  std::optional<std::int64_t> beyond_number(const Access& access, int axis) const {
    if (!access.is_known) return std::nullopt;
    for (ValueId step : access.steps) {
      if (made_by_.constant(step) == 0) continue;
      if (const Term along = term(access.memory, step); along.axis < 0 || along.axis == axis) return std::nullopt;
    }
    const Along found = along(access.memory, access.index, axis);
    return found.kind == Along::Kind::Number ? std::optional(found.more) : std::nullopt;
  }

  /// Each pass works on its own elements. Why not; empty: it does, or nothing is stored.
  std::string look_at_memory(std::size_t memory, Independence& found) const {
    std::vector<const Access*> all;
    bool stores = false, loads = false;
    for (const Access& access : accesses_)
      if (access.memory == int(memory)) {
        all.push_back(&access);
        stores = stores || access.stores;
        loads = loads || access.loads;
      }
    if (!stores) return {};
    found.stored[memory] = 1;
    const auto rank = int(facts_.strides[memory].size());
    for (int axis = 0; axis < rank && facts_.counts_up; ++axis) {
      const std::optional<std::int64_t> beyond = beyond_number(*all.front(), axis);
      if (beyond && std::all_of(all.begin(), all.end(),
                                [&](const Access* one) { return beyond_number(*one, axis) == beyond; })) {
        if (loads) found.rewritten[memory] = OwnElements{axis, *beyond};
        return {};
      }
    }
    if (loads) return "a pass may read what another one stores";
    for (const Access* access : all)
      if (!depends_[access->index.index]) return "each pass stores the same elements";
    return {};
  }

  const Region& region_;
  const PassFacts& facts_;
  const Uses uses_;
  const Makers made_by_;
  std::vector<ValueId> same_;
  static constexpr int kMostLooks = 20000;
  std::set<std::uint32_t> numbers_;      // values that are the number of a pass
  std::set<std::uint32_t> begins_with_;  // parameters of the blocks in which passes begin
  mutable std::vector<ValueId> open_;    // parameters that are looked at
  mutable int looks_ = 0;
  std::vector<Access> accesses_;
  std::vector<char> depends_;
};

}  // namespace

Independence find_independence(const Region& region, const PassFacts& facts) { return Passes(region, facts).find(); }

}  // namespace fj::region
