// Start at Chunks::run(). What is known of the loop: loop_values.h; what is not known before it has run: assumptions.h.
#include "graph_ir/region/chunks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "graph_ir/ops.h"
#include "graph_ir/region/assumptions.h"
#include "graph_ir/region/flow.h"
#include "graph_ir/region/loop_form.h"
#include "graph_ir/region/loop_values.h"
#include "graph_ir/region/unroll.h"
#include "runtime/region_library.h"

namespace fj::region {
namespace {

constexpr std::int64_t kChunk = 1024;      // passes between two looks at signals
constexpr std::int64_t kFewPasses = 8;     // are not worth the dispatch
constexpr std::int64_t kSlowPasses = 16;   // before the dispatch is tried again: then four times as many
constexpr std::int64_t kMostSlowPasses = 1 << 20;  // the most of them
constexpr std::size_t kMostInstructions = 1000;  // of a loop that is copied
constexpr int kFactorBits = 20;            // of loaded integers of which three are multiplied
constexpr std::int64_t kUndone = 256;      // passes of a stretch whose stores may be undone
constexpr std::int64_t kMostBytes = 1 << 15;  // that a region notes of what it overwrites: they are on the stack
constexpr std::int64_t kPatience = 32;     // stretches that take nothing for granted, behind one that had to be undone

/// One loop of a region, which is changed.
class Chunks : LoopValues {
 public:
  Chunks(Region& region, const NaturalLoop& loop, bool granting) : LoopValues(region, loop), granting_(granting) {}

  void run() {
    if (!is_worth() || !has_one_way() || !pass_on_exits(region_, flow_, loop_)) return;
    find_definitions();
    // Instructions of the region as it was stay where they are: a body moves with its block.
    maker_.emplace(region_);
    find_inductions();
    look_at_checks();
    if (ends_.empty()) return;  // how many passes there are is not known before: nor what their numbers will be
    find_counters();
    if (granting_) take_for_granted();
    make();
  }

 private:
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

  void take_for_granted() {
    const LoopFacts facts{
        [&](ValueId value) { return affine(value) ? std::optional(affine(value)->most) : std::nullopt; },
        [&](ValueId value) { return is_invariant(value); },
        [&](const Instruction& made) {
          if (made.code == Code::LeaveIf) return needed_.contains({made.operands[0], false});
          return is_checked(made) && is_known(made);
        },
        [&](int at) { return decided_.contains(at); }};
    for (int loaded : {kLeafBits, kFactorBits}) {
      granted_.emplace(region_, flow_, loop_, *maker_, facts);
      loaded_ = loaded;
      if (granted_->find(loaded)) break;
      granted_.reset();
    }
    if (!granted_) return;
    std::int64_t bytes = kUndone * std::int64_t(sizeof(double)) * std::int64_t(granted_->stores.size());
    for (const Memory& memory : region_.memories) bytes += memory.scratch * std::int64_t(size_in_bytes(memory.dtype));
    if (bytes > kMostBytes) return granted_.reset();
    const auto memory = [&](const char* name, DType dtype, std::int64_t elements) {
      region_.memories.push_back({name + std::to_string(region_.memories.size()), dtype, false, elements});
      return int(region_.memories.size()) - 1;
    };
    patience_ = memory("patience", DType::I64, 1);
    for (const Assumptions::Stored& one : granted_->stores) {
      const DType dtype = region_.memories[std::size_t(one.store().memory)].dtype;
      undo_.push_back({memory("undo", dtype, one.once ? 1 : kUndone),
                       one.always ? -1 : memory("stored", DType::Bool, kUndone)});
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
  ValueId new_parameter(int at, DType dtype = DType::I64) {
    const ValueId made = new_value(dtype);
    block(at).parameters.push_back(made);
    return made;
  }
  void branch(ValueId condition, Target yes, Target no) {
    block(at_).end = {Terminator::Kind::Branch, condition, std::move(yes), std::move(no), {}};
  }
  void jump(Target to) { block(at_).end = {Terminator::Kind::Jump, {}, std::move(to), {}, {}}; }

  /// Of the next ones.
  enum class Pass : std::uint8_t { First, Second, Last, Copied };  // Copied: the one that a copy of the loop is in
  /// A value of the loop, as it is in that pass.
  ValueId in_pass(ValueId value, Pass pass) {
    if (!is_defined_inside(value)) return value;
    const auto known = in_pass_.find({value.index, pass});
    if (known != in_pass_.end()) return known->second;
    ValueId made;
    if (const auto step = steps_.find(value.index);
        step != steps_.end() && (pass == Pass::Second || pass == Pass::Last)) {
      const ValueId by = integer(step->second);
      made = op(Op::add, {in_pass(value, Pass::First), pass == Pass::Last ? op(Op::mul, {last_, by}, DType::I64) : by},
                DType::I64);
    } else if (const auto stride = strides_.find(value.index);
               stride != strides_.end() && (pass == Pass::Second || pass == Pass::Last)) {
      const ValueId by = in_pass(stride->second, Pass::First);
      made = op(Op::add, {in_pass(value, Pass::First), pass == Pass::Last ? op(Op::mul, {last_, by}, DType::I64) : by},
                DType::I64);
    } else if (const auto taken = taken_.find(value.index); taken != taken_.end()) {
      made = in_pass(maker(value)->operands[2], pass);
    } else if (!maker(value)) {
      made = in_pass(value, Pass::First);  // a parameter that stays what it is
    } else {
      const Instruction& of = *maker(value);
      Instruction copy = of;
      copy.leave = {};
      for (ValueId& operand : copy.operands) operand = in_pass(operand, pass);
      // Where the type does not hold its result, a number that it is made of is too large, which is checked.
      if (const auto does = arithmetic(of)) copy.code = Code::Pointwise, copy.op = *does;
      made = add(std::move(copy), region_.type(value));
    }
    in_pass_[{value.index, pass}] = made;
    return made;
  }

  /// The numbers that an affine one is made of.
  void leaves_of(ValueId value, std::set<std::uint32_t>& leaves, std::set<std::uint32_t>& seen) {
    if (!seen.insert(value.index).second || constant(value)) return;
    const auto known = affine_.find(value.index);
    const Instruction* made = maker(value);
    const bool is_made = known != affine_.end() && known->second && made && is_defined_inside(value);
    if (is_made && taken_.contains(value.index)) return leaves_of(made->operands[2], leaves, seen);
    if (!is_made || !arithmetic(*made) || is_invariant(value)) {
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
    if (const auto stride = strides_.find(low.index); stride != strides_.end() && affine(high)->is_invariant()) {
      const ValueId by = op(Op::maximum, {in_pass(stride->second, Pass::First), integer(1)}, DType::I64);
      const ValueId distance = op(Op::sub, {in_pass(high, Pass::First), in_pass(low, Pass::First)}, DType::I64);
      return op(Op::floor_div, {plus(op(Op::add, {distance, by}, DType::I64), more - 1), by}, DType::I64);
    }
    const auto of_low = affine(low)->slope, of_high = affine(high)->slope;
    if (!of_low || !of_high || *of_low <= *of_high) return std::nullopt;
    const std::int64_t by = *of_low - *of_high;
    ValueId distance = op(Op::sub, {in_pass(high, Pass::First), in_pass(low, Pass::First)}, DType::I64);
    if (more + by - 1 != 0) distance = plus(distance, more + by - 1);
    return by == 1 ? distance : op(Op::floor_div, {distance, integer(by)}, DType::I64);
  }

  void make() {
    parameters_ = block(header_).parameters;
    dispatch_ = new_block(), check_ = new_block(), half_ = new_block();
    if (!granted_) fast_ = new_block();
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
    if (granted_) make_granted_copy(blocks);
    else make_copy(blocks);
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
    if (!granted_) return;
    at_ = 0;
    store(patience_, integer(0), integer(0));
  }

  /// How many passes, and whether the checks hold in them.
  void make_dispatch() {
    given_ = new_parameters(dispatch_, parameters_);
    const std::vector<ValueId>& given = given_;
    const ValueId most = new_parameter(dispatch_), slow = new_parameter(dispatch_);
    for (std::size_t i = 0; i < given.size(); ++i) in_pass_[{parameters_[i].index, Pass::First}] = given[i];
    at_ = dispatch_;
    ValueId n = most;
    for (const auto& [condition, wanted] : ends_)
      if (const auto passes = passes_while(condition, wanted)) n = op(Op::minimum, {n, *passes}, DType::I64);
    const ValueId larger =
        op(Op::minimum, {op(Op::mul, {slow, integer(4)}, DType::I64), integer(kMostSlowPasses)}, DType::I64);
    branch(less(n, integer(kFewPasses)), to(header_, given, {slow, larger}), {check_, {}});

    at_ = check_;
    last_ = plus(n, -1);
    passes_ = n, slow_ = slow;
    if (granted_) pick_ = new_block();
    const std::optional<ValueId> holds = all_checks();
    const Target on = granted_ ? Target{pick_, {}} : to(fast_, given, {n});
    if (holds) branch(*holds, on, {half_, {}});
    else jump(on);

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
    for (std::uint32_t leaf : leaves) each_look_at(leaf, need);
    for (ValueId counter : counters_) need(is_within(in_pass(counter, Pass::First), kCounterBits));
    for (const auto& [parameter, stride] : strides_) need(is_within(in_pass(stride, Pass::First), kLeafBits));
    return holds;
  }

  /// Between -2^bits and 2^bits.
  ValueId is_within(ValueId value, int bits) {
    const ValueId shifted = op(Op::cast, {plus(value, std::int64_t(1) << bits)}, DType::U64);
    return less(shifted, op(Op::cast, {integer(std::int64_t(1) << (bits + 1))}, DType::U64));
  }

  template <class Need>
  void each_look_at(std::uint32_t leaf, const Need& need) {
    need(is_within(in_pass(ValueId{leaf}, Pass::First), kLeafBits));
    if (!steps_.contains(leaf) && !strides_.contains(leaf)) return;
    need(is_within(in_pass(ValueId{leaf}, Pass::Last), kLeafBits));
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

  /// A copy of the loop that is being made.
  struct Copy {
    std::vector<ValueId> values;  // by value of the loop
    std::map<int, int> blocks;
    int first;                    // block of the loop
    int again;                    // one jump back: an optimiser takes several for loops in loops
    ValueId done{}, wrong{};      // of the granted one: passes, and whether what is taken for granted was not so
    bool is_granted() const { return wrong.valid(); }
  };

  Copy begin_copy(const std::vector<int>& blocks, const std::vector<ValueId>& carried) {
    Copy copy{std::vector<ValueId>(region_.types.size()), {}, blocks[0], -1};
    for (std::size_t i = 0; i < carried.size(); ++i) copy.values[parameters_[i].index] = carried[i];
    for (int at : blocks) copy.blocks[at] = new_block();
    copy.again = new_block();
    return copy;
  }

  void make_copy(const std::vector<int>& blocks) {
    const std::vector<ValueId> carried = new_parameters(fast_, parameters_);
    const ValueId left = new_parameter(fast_);
    Copy copy = begin_copy(blocks, carried);
    at_ = fast_;
    branch(less(left, integer(1)), to(header_, carried, {integer(1), integer(kSlowPasses)}),
           {copy.blocks.at(blocks[0]), {}});
    at_ = copy.again;
    const std::vector<ValueId> ahead = new_parameters(copy.again, parameters_);
    jump(to(fast_, ahead, {plus(left, -1)}));
    for (int at : blocks) copy_block(at, copy);
  }

  ValueId load(int memory, ValueId at) {
    Instruction made{};
    made.code = Code::Load;
    made.memory = memory;
    made.operands = {at};
    return add(std::move(made), region_.memories[std::size_t(memory)].dtype);
  }
  void store(int memory, ValueId at, ValueId value) {
    Instruction made{};
    made.code = Code::Store;
    made.memory = memory;
    made.operands = {at, value};
    block(at_).body.push_back(std::move(made));
  }
  ValueId truth(bool value) {
    Instruction made{};
    made.code = Code::Constant;
    made.constant = value;
    return add(std::move(made), DType::Bool);
  }
  ValueId either(ValueId a, ValueId b) { return op(Op::bit_or, {a, b}, DType::Bool); }
  ValueId is_not_finite(ValueId value) {
    return op(Op::logical_not, {op(Op::is_finite, {value}, DType::Bool)}, DType::Bool);
  }

  /// Nothing leaves in it. Behind it is known whether it may be kept; else the memory is made what it was.
  void make_granted_copy(const std::vector<int>& blocks) {
    const int head = new_block(), done = new_block(), wait = new_block(), ask = new_block(), undo = new_block(),
              restore = new_block(), redo = new_block(), declined = new_block();
    at_ = pick_;
    const ValueId zero = integer(0), waits = load(patience_, zero);
    branch(less(zero, waits), {wait, {}}, {ask, {}});

    at_ = wait;
    store(patience_, zero, plus(waits, -1));
    jump(to(header_, given_, {passes_, slow_}));

    at_ = ask;
    ValueId picked = truth(true);
    const auto need = [&](ValueId condition) { picked = op(Op::bit_and, {picked, condition}, DType::Bool); };
    std::set<std::uint32_t> leaves, seen;
    for (ValueId of_pass : granted_->functions) leaves_of(of_pass, leaves, seen);
    for (std::uint32_t leaf : leaves) each_look_at(leaf, need);
    for (const Assumptions::Begin& one : granted_->begin) need(is_within(given_[one.parameter], one.bits));
    const ValueId n = undo_.empty() ? passes_ : op(Op::minimum, {passes_, integer(kUndone)}, DType::I64);
    std::vector<ValueId> first, step;
    for (std::size_t i = 0; i < undo_.size(); ++i) {
      const Assumptions::Stored& one = granted_->stores[i];
      const ValueId place = one.store().operands[0];
      first.push_back(in_pass(place, Pass::First));
      if (one.once) store(undo_[i].before, zero, load(one.store().memory, first[i]));
      step.push_back(one.once ? zero : op(Op::sub, {in_pass(place, Pass::Second), first[i]}, DType::I64));
    }
    branch(picked, to(head, given_, {zero, truth(false)}), {declined, {}});

    at_ = declined;
    store(patience_, integer(0), integer(kPatience));
    jump(to(header_, given_, {passes_, slow_}));

    const std::vector<ValueId> carried = new_parameters(head, parameters_);
    Copy copy = begin_copy(blocks, carried);
    copy.done = new_parameter(head);
    copy.wrong = new_parameter(head, DType::Bool);
    at_ = head;
    branch(less(copy.done, n), {copy.blocks.at(blocks[0]), {copy.wrong}}, to(done, carried, {copy.wrong}));
    at_ = copy.again;
    std::vector<ValueId> ahead = new_parameters(copy.again, parameters_);
    const ValueId wrong = new_parameter(copy.again, DType::Bool);
    store_joined(header_, copy);
    jump(to(head, std::move(ahead), {plus(copy.done, 1), wrong}));
    for (int at : blocks) copy_block(at, copy);

    const std::vector<ValueId> made = new_parameters(done, parameters_);
    ValueId is_wrong = new_parameter(done, DType::Bool);
    at_ = done;
    for (std::size_t sum : granted_->sums) is_wrong = either(is_wrong, is_not_finite(made[sum]));
    for (std::size_t i = 0; i < undo_.size(); ++i)
      if (const Assumptions::Stored& one = granted_->stores[i]; one.total)
        is_wrong = either(is_wrong, is_not_finite(load(one.store().memory, first[i])));
    const Target back{undo, {plus(n, -1)}};
    branch(is_wrong, back, to(header_, made, {integer(1), integer(kSlowPasses)}));

    const ValueId pass = new_parameter(undo);
    const int one_pass = new_block();
    at_ = undo;
    branch(less(pass, integer(0)), {restore, {}}, {one_pass, {}});
    at_ = one_pass;
    for (std::size_t i = undo_.size(); i-- > 0;) {
      const Assumptions::Stored& one = granted_->stores[i];
      if (one.once) continue;
      const int next = new_block(), put = one.always ? -1 : new_block();
      if (!one.always) {
        branch(load(undo_[i].stored, pass), {put, {}}, {next, {}});
        at_ = put;
      }
      const ValueId at = op(Op::add, {first[i], op(Op::mul, {step[i], pass}, DType::I64)}, DType::I64);
      store(one.store().memory, at, load(undo_[i].before, pass));
      jump({next, {}});
      at_ = next;
    }
    jump({undo, {plus(pass, -1)}});

    at_ = restore;
    // What stands at one place from the first pass on is older than what the passes have found elsewhere.
    for (std::size_t i = undo_.size(); i-- > 0;)
      if (const Assumptions::Stored& one = granted_->stores[i]; one.once)
        store(one.store().memory, first[i], load(undo_[i].before, integer(0)));
    jump({redo, {}});

    at_ = redo;
    store(patience_, integer(0), integer(kPatience));
    Instruction note{};
    note.code = Code::Run;
    note.function = library_number("note_undone");
    block(at_).body.push_back(std::move(note));
    jump(to(header_, given_, {passes_, slow_}));
  }

  template <class Need>
  void require(ValueId condition, bool wanted, const Need& need, std::set<std::uint32_t>& leaves,
               std::set<std::uint32_t>& seen) {
    const Instruction* made = maker(condition);
    const auto ask = [&](Pass pass) {
      const ValueId found = in_pass(condition, pass);
      need(wanted ? found : op(Op::logical_not, {found}, DType::Bool));
    };
    if (is_invariant(condition)) return ask(Pass::First);
    if (made->op == Op::logical_not) return require(made->operands[0], !wanted, need, leaves, seen);
    if (made->op == Op::bit_or || made->op == Op::bit_and) {
      for (ValueId operand : made->operands) require(operand, wanted, need, leaves, seen);
      return;
    }
    ask(Pass::First);
    ask(Pass::Last);
    const Compared sides = *compared(condition);
    leaves_of(sides.a, leaves, seen);
    leaves_of(sides.b, leaves, seen);
    if (sides.is_unsigned) need(op(Op::ge, {in_pass(sides.b, Pass::First), integer(0)}, DType::Bool));
  }

  bool is_in(const Instruction& one, int at) {
    return &one >= block(at).body.data() && &one < block(at).body.data() + block(at).body.size();
  }

  /// What a store of the granted copy is about to overwrite.
  void note_before(std::size_t stored, ValueId place, const Copy& copy) {
    const Assumptions::Stored& one = granted_->stores[stored];
    if (!one.once) store(undo_[stored].before, copy.done, load(one.store().memory, place));
    if (!one.always) store(undo_[stored].stored, copy.done, truth(true));
  }

  /// Stores that all blocks make which lead here, made here; the block gets parameters for what is stored.
  void store_joined(int join, const Copy& copy) {
    std::erase_if(in_pass_, [](const auto& of) { return of.first.second == Pass::Copied; });
    for (ValueId parameter : parameters_) in_pass_[{parameter.index, Pass::Copied}] = copy.values[parameter.index];
    for (std::size_t i = 0; i < granted_->stores.size(); ++i) {
      const Assumptions::Stored& one = granted_->stores[i];
      if (one.join != join) continue;
      Instruction made = one.store();
      const ValueId value = new_parameter(at_, region_.type(made.operands[1]));
      made.operands = {in_pass(made.operands[0], Pass::Copied), value};
      note_before(i, made.operands[0], copy);
      block(at_).body.push_back(std::move(made));
    }
  }

  void copy_block(int from, Copy& copy) {
    at_ = copy.blocks.at(from);
    const auto mapped = [&](ValueId value) {
      return value.index < copy.values.size() && copy.values[value.index].valid() ? copy.values[value.index] : value;
    };
    const auto renewed = [&](ValueId value) {
      const ValueId made = new_value(region_.type(value));
      copy.values[value.index] = made;
      return made;
    };
    for (ValueId parameter : block(from).parameters) block(at_).parameters.push_back(renewed(parameter));
    ValueId wrong = copy.is_granted() ? new_parameter(at_, DType::Bool) : ValueId{};
    if (copy.is_granted() && from != copy.first) store_joined(from, copy);
    if (copy.is_granted() && from == copy.first)
      for (const Undo& undo : undo_)
        if (undo.stored >= 0) store(undo.stored, copy.done, truth(false));
    for (const Instruction& instruction : block(from).body) {
      if (instruction.code == Code::LeaveIfAsked) continue;
      if (instruction.code == Code::LeaveIf &&
          (copy.is_granted() || needed_.contains({instruction.operands[0], false}))) {
        if (copy.is_granted() && granted_->unmet.contains(instruction.operands[0].index))
          wrong = either(wrong, mapped(instruction.operands[0]));
        continue;
      }
      if (copy.is_granted() && instruction.code == Code::LeaveIfReported) {
        if (granted_->finite.contains(instruction.operands[0].index))
          wrong = either(wrong, is_not_finite(mapped(instruction.operands[0])));
        continue;
      }
      if (instruction.result.valid() && taken_.contains(instruction.result.index)) {
        copy.values[instruction.result.index] = mapped(instruction.operands[2]);
        continue;
      }
      Instruction made = instruction;
      for (ValueId& operand : made.operands) operand = mapped(operand);
      for (ValueId& value : made.leave.values) value = mapped(value);
      if (instruction.result.valid()) {
        const bool is_held = is_known(instruction);
        if (is_checked(made) && (copy.is_granted() || is_held)) {
          made.op = *arithmetic(made);
          made.code = made.op == Op::add ? Code::AddNoWrap : Code::Pointwise;
          made.leave = {};
        }
        // What is granted need not be so: nothing may be concluded from it.
        if (copy.is_granted() && made.code == Code::AddNoWrap && !is_held)
          made.code = Code::Pointwise, made.op = Op::add;
        made.result = renewed(instruction.result);
      }
      if (copy.is_granted() && made.code == Code::Store) {
        const auto& stores = granted_->stores;
        const auto stored =
            std::find_if(stores.begin(), stores.end(), [&](const auto& one) { return one.is(instruction); });
        if (stored->join >= 0) continue;
        note_before(std::size_t(stored - stores.begin()), made.operands[0], copy);
      }
      const ValueId result = made.result;
      block(at_).body.push_back(std::move(made));
      if (copy.is_granted() && instruction.result.valid() && granted_->small.contains(instruction.result.index))
        wrong = either(wrong, op(Op::logical_not, {is_within(result, loaded_)}, DType::Bool));
    }
    Terminator end = block(from).end;
    const auto retarget = [&](Target& target) {
      const int target_of = target.block;
      for (ValueId& argument : target.arguments) argument = mapped(argument);
      const auto found = copy.blocks.find(target.block);
      if (target.block == header_) target.block = copy.again;
      else if (found != copy.blocks.end()) target.block = found->second;
      else return;
      if (!copy.is_granted()) return;
      target.arguments.push_back(wrong);
      for (const Assumptions::Stored& one : granted_->stores)
        if (one.join == target_of)
          for (const Instruction* way : one.ways)
            if (is_in(*way, from)) target.arguments.push_back(mapped(way->operands[1]));
    };
    for (Target* target : {&end.yes, &end.no})
      if (target->block >= 0) retarget(*target);
    for (ValueId& value : end.leave.values) value = mapped(value);
    if (const auto decided = decided_.find(from); decided != decided_.end()) {
      end = {Terminator::Kind::Jump, {}, decided->second ? end.yes : end.no, {}, {}};
    } else if (end.condition.valid()) {
      end.condition = mapped(end.condition);
    }
    block(at_).end = std::move(end);
  }

  const bool granting_;
  std::map<std::pair<std::uint32_t, Pass>, ValueId> in_pass_;
  std::optional<Assumptions> granted_;           // nothing: there is no copy that takes anything for granted
  int loaded_ = 0;                               // bits of loaded integers, in it
  int patience_ = -1;                            // memory: for how many stretches not to
  struct Undo {
    int before, stored;                          // memories: what was there, and whether it was stored; -1: always
  };
  std::vector<Undo> undo_;                       // by store of granted_
  std::vector<ValueId> parameters_;              // of the header
  int dispatch_ = -1, check_ = -1, half_ = -1, fast_ = -1;
  int pick_ = -1;
  ValueId passes_, slow_;                        // of the stretch; of the loop as it is, the next time
  std::vector<ValueId> given_;                   // what parameters_ are before it
  ValueId last_;                                 // the number of the last pass, from the first one
  int at_ = 0;
};

}  // namespace

Region in_chunks(Region region, bool granting) {
  give_loops_form(region);
  unroll_short_loops(region);
  for (const NaturalLoop& loop : innermost_loops(Flow(region))) Chunks(region, loop, granting).run();
  return region;
}

}  // namespace fj::region
