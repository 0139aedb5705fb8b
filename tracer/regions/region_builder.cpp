// Bytecode to blocks. Start at build(), then run(): each instruction changes the state, or is where the region is left.
#include "tracer/regions/region_builder.h"

#include <algorithm>
#include <utility>

#include "arrays/arrays.h"
#include "cpython/objects.h"
#include "graph_ir/ops.h"
#include "graph_ir/print.h"
#include "runtime/base/error.h"

namespace fj {

namespace {

// Code is bounded by these, whatever the types do.
constexpr int kVersions = 12;        // of a block that is jumped to
constexpr std::size_t kInstructions = 6000;

/// The types, as text: states with the same text have their numbers in the same places. `tensors`: those that have been
/// met, by what tells them apart.
void describe_types(const Known& known, std::vector<ValueId>& tensors, std::string& out) {
  out += char('A' + int(known.kind));
  switch (known.kind) {
    case Known::Kind::Number: out += char('0' + int(known.boxing)); out += char('a' + int(known.dtype)); break;
    case Known::Kind::Object: case Known::Kind::Method:
      out += std::to_string(std::uintptr_t(known.object.get()));
      break;
    case Known::Kind::Fresh: out += char('a' + int(known.dtype)); break;
    case Known::Kind::View: out += char('0' + int(known.step)); break;
    case Known::Kind::Range: case Known::Kind::RangeIterator: case Known::Kind::TupleIterator:
      out += (known.forwards ? "+" : "") + std::to_string(known.step);
      break;
    case Known::Kind::InnerList: out += std::to_string(known.place) + "." + std::to_string(known.step); break;
    case Known::Kind::Tensor: case Known::Kind::TensorNumber: {
      const bool part = known.kind == Known::Kind::Tensor;
      out += part ? std::to_string(known.place) : std::string(1, char('a' + int(known.dtype)));
      if (known.is_whole()) break;
      if (known.unbound) out += 'u';
      const auto met = std::find(tensors.begin(), tensors.end(), known.identity());
      out += "." + std::to_string(met - tensors.begin());
      if (met == tensors.end()) tensors.push_back(known.identity());
      break;
    }
    default: out += std::to_string(known.place); break;
  }
  out += '(';
  for (const Known& item : known.items) describe_types(item, tensors, out);
  out += ')';
}

/// `visit_tensor` sees a tensor that several hold each time.
template <class Visit, class VisitTensor>
void each_value(Known& known, const Visit& visit, const VisitTensor& visit_tensor) {
  if (known.kind == Known::Kind::TensorNumber || known.is_part_of_tensor()) return visit_tensor(known);
  if (known.kind == Known::Kind::Number) {
    visit(known.value);
    known.object = {};
    known.item = {};
  }
  if (known.kind == Known::Kind::View || known.kind == Known::Kind::Fresh || known.kind == Known::Kind::Complex ||
      known.kind == Known::Kind::InnerList)
    visit(known.value);
  if (known.kind == Known::Kind::Complex || known.kind == Known::Kind::Fresh) visit(known.imaginary);
  for (Known& item : known.items) each_value(item, visit, visit_tensor);
}

}  // namespace

std::vector<int> count_entrances(const FjCode& code) {
  std::vector<int> entrances(std::size_t(code.count) + 1);
  for (int i = 0; i < code.count; ++i) {
    const auto flow = fj_opcode_rows[code.instrs[i].opcode].flow;
    if (flow == FJ_FLOW_Jump || flow == FJ_FLOW_Branch) ++entrances[std::size_t(code.instrs[i].arg)];
    if (flow == FJ_FLOW_Next || flow == FJ_FLOW_Branch) ++entrances[std::size_t(i + 1)];
  }
  return entrances;
}

RegionBuilder::RegionBuilder(const FjCode& code, const Loop& loop, const FrameValues& values, Findings met)
    : loop_(loop), values_(values), met_(std::move(met)) {
  found_.list_makers = met_.list_makers;  // places are the same in each look
  objects_.assign(values.slots.begin(), values.slots.end());
  const std::shared_ptr<const FjCode> own(std::shared_ptr<void>(), &code);  // the caller's
  contexts_.emplace_back(new Context{own, reinterpret_cast<PyCodeObject*>(code.code), values.function->func_globals,
                                     values.function->func_builtins, loop.header, loop.last, count_entrances(code)});
  context_ = contexts_.front().get();
}

std::optional<LoopRegion> RegionBuilder::build(std::string& why) {
  region_.name = text_of(context_->object->co_name);
  region_.blocks.emplace_back();
  block_ = 0;
  State entry;
  const int slots = int(values_.slots.size());
  for (int place = 0; place < slots; ++place) {
    Known known;
    known.kind = Known::Kind::Entry;
    known.place = place;
    entry.places.push_back(std::move(known));
  }
  // What the loop assigns has a type of its own from the first pass on.
  try {
    for_threads_ = is_for_threads(loop_);
    for (const Loop& inner : loops_of(*context_->code))
      if (!for_threads_ && inner.header > loop_.header && inner.last <= loop_.last && is_for_threads(inner))
        throw Unknown{"a loop in it is for several threads"};
    const int locals = int(values_.slots.size());
    for (int i = loop_.header; i <= loop_.last; ++i) {
      const FjInstr& instr = context_->code->instrs[i];
      if (fj_opcode_rows[instr.opcode].slot == FJ_SLOT_Assigns || instr.opcode == FJ_DELETE_FAST)
        if (instr.arg < locals) entry.places[std::size_t(instr.arg)] = resolve(entry.places[std::size_t(instr.arg)]);
    }
    if (const int entries = fj_iterator_entries();
        slots >= entries && context_->code->instrs[loop_.header].opcode == FJ_FOR_ITER) {
      Known& iterator = entry.places[std::size_t(slots - entries)];
      iterator = resolve(iterator);
    }
  } catch (const Unknown& unknown) {
    why = unknown.what;
    return std::nullopt;
  }
  entry.passes = for_threads_ ? input(RegionInput::Kind::Passes, -1, DType::I64) : integer(0);
  region::Terminator first;
  first.kind = region::Terminator::Kind::Jump;
  first.yes = target(loop_.header, std::move(entry));
  region_.blocks[0].end = std::move(first);
  std::size_t size = 0;
  while (!pending_.empty()) {
    Pending next = std::move(pending_.back());
    pending_.pop_back();
    run(std::move(next));
    size += block().body.size() + 1;
    if (size > kInstructions) {
      why = "the loop has more types in more places than are worth code";
      return std::nullopt;
    }
  }
  if (finished_passes_ == 0) {
    why = made_.unknown.empty() ? "no pass of it ends" : made_.unknown.front().second;
    return std::nullopt;
  }
  find_threads();
  return std::move(made_);
}

/// Where values are shared, what computes the same as something before it is that.
ValueId RegionBuilder::compute(region::Instruction made, DType dtype) {
  if (sharing_ == 0 && made.code != Code::Constant) {
    const ValueId result = made.result = region_.new_value(dtype);
    note_hint(made);
    block().body.push_back(std::move(made));
    return result;
  }
  std::vector<std::uint32_t> operands;
  for (ValueId operand : made.operands) operands.push_back(operand.index);
  std::string constant;
  if (made.code == Code::Constant) constant = fj::text(made.constant);
  const auto [known, is_new] =
      computed_.try_emplace({made.code, made.op, std::move(operands), int(dtype), std::move(constant)});
  if (!is_new) return known->second;
  known->second = made.result = region_.new_value(dtype);
  note_hint(made);
  block().body.push_back(std::move(made));
  return known->second;
}

ValueId RegionBuilder::constant(DType dtype, const Scalar& value) {
  region::Instruction made{};
  made.code = Code::Constant;
  made.constant = value;
  return compute(std::move(made), dtype);
}

ValueId RegionBuilder::op(Op op, std::vector<ValueId> operands) {
  region::Instruction made{};
  made.code = Code::Pointwise;
  made.op = op;
  const DType dtype = row(op).type_rule == "Bool" ? DType::Bool : type(operands.back());
  made.operands = std::move(operands);
  return compute(std::move(made), dtype);
}

ValueId RegionBuilder::cast(ValueId value, DType to) {
  if (type(value) == to) return value;
  region::Instruction made{};
  made.code = Code::Pointwise;
  made.op = Op::cast;
  made.operands = {value};
  return compute(std::move(made), to);
}

std::optional<std::int64_t> RegionBuilder::hint(ValueId value) const {
  return value.index < hints_.size() ? hints_[value.index] : std::nullopt;
}

void RegionBuilder::set_hint(ValueId value, std::optional<std::int64_t> to) {
  if (hints_.size() <= value.index) hints_.resize(value.index + 1);
  hints_[value.index] = to;
}

/// What an instruction on integers gives for the values of where the region is built.
void RegionBuilder::note_hint(const region::Instruction& made) {
  if (made.code == Code::Opaque) return;
  if (made.code == Code::Constant) {
    if (const auto* number = std::get_if<std::int64_t>(&made.constant)) set_hint(made.result, *number);
    return;
  }
  std::int64_t given[3];
  for (std::size_t i = 0; i < made.operands.size(); ++i) {
    const auto known = hint(made.operands[i]);
    if (!known || i == 3) return;
    given[i] = *known;
  }
  const std::int64_t a = given[0], b = given[1];
  const auto wrapped = [&](auto&& with) { return std::int64_t(with(std::uint64_t(a), std::uint64_t(b))); };
  switch (made.op) {
    case Op::add: return set_hint(made.result, wrapped(std::plus<>()));
    case Op::sub: return set_hint(made.result, wrapped(std::minus<>()));
    case Op::mul: return set_hint(made.result, wrapped(std::multiplies<>()));
    case Op::abs: return set_hint(made.result, a < 0 ? std::int64_t(0 - std::uint64_t(a)) : a);
    case Op::cast: return type(made.operands[0]) == DType::I64 ? set_hint(made.result, a) : void();
    case Op::eq: return set_hint(made.result, a == b);
    case Op::ne: return set_hint(made.result, a != b);
    case Op::lt: return set_hint(made.result, a < b);
    case Op::le: return set_hint(made.result, a <= b);
    case Op::gt: return set_hint(made.result, a > b);
    case Op::ge: return set_hint(made.result, a >= b);
    case Op::where: return set_hint(made.result, given[a ? 1 : 2]);
    case Op::floor_div: return b > 0 && a >= 0 ? set_hint(made.result, a / b) : void();
    default: return;
  }
}

ValueId RegionBuilder::call(std::string_view function, std::vector<ValueId> operands) {
  region::Instruction made{};
  made.code = Code::Call;
  made.function = region::function_number(function);
  made.operands = std::move(operands);
  made.result = region_.new_value(DType::F64);
  block().body.push_back(made);
  return made.result;
}

ValueId RegionBuilder::checked(Code code, ValueId a, ValueId b) {
  region::Instruction made{};
  made.code = code;
  made.operands = {a, b};
  made.result = region_.new_value(type(a));
  made.leave = leave_here();
  const auto known_a = hint(a), known_b = hint(b);
  std::int64_t result;
  if (known_a && known_b &&
      !(code == Code::CheckedAdd   ? __builtin_add_overflow(*known_a, *known_b, &result)
        : code == Code::CheckedSub ? __builtin_sub_overflow(*known_a, *known_b, &result)
                                   : __builtin_mul_overflow(*known_a, *known_b, &result)))
    set_hint(made.result, result);
  block().body.push_back(made);
  return made.result;
}

ValueId RegionBuilder::add_no_wrap(ValueId a, ValueId b) {
  region::Instruction made{};
  made.code = Code::AddNoWrap;
  made.operands = {a, b};
  made.result = region_.new_value(type(a));
  if (hint(a) && hint(b)) set_hint(made.result, *hint(a) + *hint(b));
  block().body.push_back(made);
  return made.result;
}

const RegionBuilder::Context* RegionBuilder::repeatable(const Context* context) const {
  const Context* found = nullptr;
  for (; context->caller != nullptr; context = context->caller)
    if (!writes(*context)) found = context;
  return found;
}

RegionBuilder::Leaving RegionBuilder::leaving() const {
  const Context* const called = repeatable(context_);
  if (called == nullptr) return {context_, replay_at_, replay_};
  State state = before_;
  state.places.resize(called->base);
  state.stored = std::exchange(state.stored_at_call, {});
  return {called->caller, called->call, std::move(state)};
}

region::Leave RegionBuilder::leave_here() {
  look_at_reports();
  if (left_.context == context_ && left_.block == block_ && left_.at == at_) return left_.leave;
  const auto [context, instruction, state] = leaving();
  left_ = {context_, block_, at_, leave(*context, instruction, state)};
  return left_.leave;
}

void RegionBuilder::leave_if_asked() {
  region::Instruction asked{};
  asked.code = Code::LeaveIfAsked;
  asked.leave = leave_here();
  block().body.push_back(std::move(asked));
  // Names are looked at again, and signals that another thread has set off, after tens of milliseconds, about.
  leave_if(op(Op::ge, {state_.passes, integer(1 << 24)}));
}

std::int64_t RegionBuilder::go_back(int header) {
  constexpr std::int64_t kHeld = 1 << 24;  // bytes
  constexpr std::int64_t kMakes = 256;     // passes over numbers that one which makes arrays counts as
  const auto first = met_.makers.lower_bound({context_->object, header});
  const bool makes = first != met_.makers.end() && first->first == context_->object && first->second <= at_;
  forget_items(false);
  leave_if_asked();
  const auto list = met_.list_makers.lower_bound({context_->object, header});
  if (list != met_.list_makers.end() && list->first.first == context_->object && list->first.second <= at_) {
    const auto mark = [&](auto&& self, const Known& known) -> void {
      if (known.kind == Known::Kind::InnerList) run("mark_list", {known.value});
      for (const Known& item : known.items) self(self, item);
    };
    for (const Known& known : state_.places) mark(mark, known);
    run("sweep_lists", {});
    leave_if(op(Op::gt, {run("held_lists", {}), integer(kHeld)}));
  }
  if (!makes) return 1;
  const auto mark = [&](auto&& self, const Known& known) -> void {
    if (known.kind == Known::Kind::Fresh) run("mark", {known.value});
    for (const Known& item : known.items) self(self, item);
  };
  for (const Known& known : state_.places) mark(mark, known);
  run("sweep", {});
  return kMakes;
}

void RegionBuilder::leave_if(ValueId condition) {
  // What has been asked already is not asked again.
  if (!computed_.try_emplace({Code::LeaveIf, Op::add, {condition.index}, 0, ""}, condition).second) return;
  region::Instruction made{};
  made.code = Code::LeaveIf;
  made.operands = {condition};
  made.leave = leave_here();
  block().body.push_back(std::move(made));
}

Holding RegionBuilder::holding(const Known& known, std::vector<ValueId>& values) {
  Holding made;
  made.place = known.place;
  const auto value = [&](ValueId id) {
    values.push_back(id);
    return int(values.size()) - 1;
  };
  // Numbers that are one value are one object.
  const auto number = [&](ValueId id) {
    const auto known = std::find(values.begin() + 1, values.end(), id);
    return known == values.end() ? value(id) : int(known - values.begin());
  };
  const auto items = [&] {
    for (const Known& item : known.items) made.items.push_back(holding(item, values));
  };
  switch (known.kind) {
    case Known::Kind::Entry: case Known::Kind::Array: case Known::Kind::List: made.kind = Holding::Kind::Kept; break;
    case Known::Kind::InnerList:
      made.kind = Holding::Kind::Pointer;
      made.value = value(known.value);
      break;
    case Known::Kind::Empty: made.kind = Holding::Kind::Empty; break;
    case Known::Kind::Object:
      made.kind = Holding::Kind::Object;
      made.object = known.object;
      break;
    case Known::Kind::Number: {
      // The number of an object of the frame's: that object, not one like it.
      const auto own = std::find_if(resolved_.begin(), resolved_.end(), [&](const auto& resolved) {
        return resolved.second.is_number() && resolved.second.value == known.value &&
               resolved.second.boxing == known.boxing;
      });
      if (own != resolved_.end()) {
        made.kind = Holding::Kind::Kept;
        made.place = own->first;
        break;
      }
      if (known.object) {
        made.kind = Holding::Kind::Object;
        made.object = known.object;
        break;
      }
      if (is_there(known)) {
        made.kind = Holding::Kind::Pointer;
        made.value = number(known.item);
        break;
      }
      made.kind = Holding::Kind::Number;
      made.boxing = known.boxing;
      made.dtype = known.dtype;
      made.value = number(known.value);
      break;
    }
    case Known::Kind::Complex:
      made.kind = Holding::Kind::Complex;
      made.value = value(known.value);
      value(known.imaginary);
      break;
    case Known::Kind::Range: case Known::Kind::RangeIterator:
      made.kind = Holding::Kind::Range;
      made.step = known.step;
      made.iterates = known.kind == Known::Kind::RangeIterator;
      made.value = value(known.items[0].value);
      value(known.items[1].value);
      if (known.step == 0) value(known.items[2].value);
      break;
    case Known::Kind::TupleIterator: {
      made.kind = Holding::Kind::Items;
      Known tuple = known;
      tuple.kind = Known::Kind::Tuple;
      made.items.push_back(holding(tuple, values));
      made.value = value(integer(known.step));
      break;
    }
    case Known::Kind::Items:
      made.kind = Holding::Kind::Items;
      made.items.push_back(holding(known.items[0], values));
      made.value = value(known.items[1].value);
      break;
    case Known::Kind::Enumerate:
      made.kind = Holding::Kind::Enumerate;
      made.items.push_back(holding(known.items[0], values));
      made.value = value(known.items[1].value);
      break;
    case Known::Kind::Zip:
      made.kind = Holding::Kind::Zip;
      items();
      break;
    case Known::Kind::Tuple:
      made.kind = Holding::Kind::Tuple;
      items();
      break;
    case Known::Kind::Fresh:
      made.kind = Holding::Kind::Fresh;
      made.dtype = known.dtype;
      made.rank = int(known.items.size());
      made.value = value(known.value);
      for (const Known& size : known.items) value(size.value);
      break;
    case Known::Kind::View:
      made.kind = Holding::Kind::View;
      made.dtype = dtype(known);
      made.rank = int(known.items.size() / 2);
      made.items.push_back(holding(known.items[0], values));
      made.value = value(known.value);
      for (std::size_t i = 1; i < known.items.size(); ++i) value(known.items[i].value);
      break;
    case Known::Kind::Slice:
      made.kind = Holding::Kind::Slice;
      items();
      break;
    case Known::Kind::Tensor:
      made.kind = Holding::Kind::Kept;
      if (known.is_whole()) break;
      made.unbound = known.unbound;
      made.items.push_back(made);
      made.items.push_back({});
      made.items.back().value = number(known.imaginary);
      made.kind = Holding::Kind::View;
      made.dtype = dtype(known);
      made.rank = int(known.items.size() / 2);
      made.value = value(known.value);
      for (const Known& item : known.items) value(item.value);
      break;
    case Known::Kind::TensorNumber:
      made.kind = Holding::Kind::TensorNumber;
      made.dtype = known.dtype;
      made.value = number(known.value);
      made.items.push_back(holding(python_int(known.imaginary), values));
      break;
    case Known::Kind::Method: case Known::Kind::Expression: case Known::Kind::Wide: case Known::Kind::Sizes:
      FJ_CHECK(false, "a pending value where the region is left");
      break;
  }
  return made;
}

/// `context`: the function whose instruction it is, and whose places are the last ones of the state.
region::Leave RegionBuilder::leave(const Context& context, int instruction, const State& state) {
  region::Leave made;
  RegionExit exit{instruction, {}, {}, {}};
  made.values.push_back(state.passes);
  std::vector<const Context*> called;  // the outermost first
  for (const Context* one = &context; one->caller != nullptr; one = one->caller) called.insert(called.begin(), one);
  if (!called.empty()) exit.instruction = called.front()->call;
  for (std::size_t i = 0; i < called.size(); ++i)
    exit.called.push_back({called[i]->code, i + 1 < called.size() ? called[i + 1]->call : instruction, {}});
  for (std::size_t place = 0, function = 0; place < state.places.size(); ++place) {
    while (function < called.size() && place >= called[function]->base) ++function;
    auto& places = function == 0 ? exit.places : exit.called[function - 1].places;
    places.push_back(holding(state.places[place], made.values));
  }
  for (const auto& [place, known] : state.stored)
    for (const RegionGuard& guard : made_.guards)
      if (guard.kind == RegionGuard::Kind::Attribute && guard.place == place)
        exit.stored.push_back({guard.owner, guard.object, holding(known, made.values)});
  for (const auto& [place, times] : state.written) {
    exit.written.push_back({place, int(made.values.size())});
    made.values.push_back(times.value);
  }
  made.exit = region_.exits++;
  made_.exits.push_back(std::move(exit));
  return made;
}

void RegionBuilder::end(region::Terminator terminator) {
  look_at_reports();
  block().end = std::move(terminator);
  ended_ = true;
}

/// The block for the state, which is passed what differs. Where only one way leads to an instruction, the block knows
/// all that is known here.
region::Target RegionBuilder::target(int to, State state) {
  look_at_reports();
  const bool joins = entrances(to) > 1 || is_header(to);
  region::Target made;
  if (!is_inside(to)) {
    made.block = int(region_.blocks.size());
    region_.blocks.emplace_back();
    region_.blocks.back().end.leave = leave(*context_, to, state);
    return made;
  }
  if (!joins) {
    made.block = int(region_.blocks.size());
    region_.blocks.emplace_back();
    pending_.push_back({made.block, to, std::move(state), context_});
    return made;
  }
  std::string key;
  std::vector<ValueId> tensors;
  for (const Known& known : state.places) describe_types(known, tensors, key);
  for (const auto* numbers : {&state.stored, &state.stored_at_call, &state.written}) {
    for (const auto& [place, known] : *numbers) describe_types(known, tensors, key += " " + std::to_string(place));
    key += ";";
  }
  const auto pass = [&](ValueId value) { made.arguments.push_back(value); };
  std::map<ValueId, std::optional<Known>> renewed;  // tensors, each of which is passed once
  const auto each_of_tensor = [](Known& tensor, const auto& visit) {
    visit(tensor.value);
    visit(tensor.imaginary);
    for (Known& item : tensor.items) visit(item.value);
  };
  const auto pass_tensor = [&](Known& tensor) {
    if (renewed.try_emplace(tensor.identity()).second) each_of_tensor(tensor, pass);
  };
  State passed = state;
  passed.each_known([&](Known& known) { each_value(known, pass, pass_tensor); });
  pass(passed.passes);
  if (is_header(to) && !blocks_.empty()) ++finished_passes_;
  const auto [known, fresh] = blocks_.try_emplace({context_, to, key}, int(region_.blocks.size()));
  made.block = known->second;
  if (!fresh) return made;
  std::string passes;  // of loops over tuples, each of which is a block of its own
  for (const Known& one : state.places)
    if (one.kind == Known::Kind::TupleIterator) passes += std::to_string(one.step) + " ";
  if (++versions_[{context_, to, passes}] > kVersions) {
    blocks_.erase(known);
    made.arguments.clear();
    made.block = int(region_.blocks.size());
    region_.blocks.emplace_back();
    region_.blocks.back().end.leave = repeatable(context_) == nullptr ? leave(*context_, to, state) : leave_here();
    return made;
  }
  region_.blocks.emplace_back();
  region::Block& block = region_.blocks.back();
  const auto renew = [&](ValueId& value) {
    const auto known = hint(value);
    value = region_.new_value(type(value));
    set_hint(value, known);
    block.parameters.push_back(value);
  };
  const auto renew_tensor = [&](Known& tensor) {
    std::optional<Known>& known = renewed.at(tensor.identity());
    if (!known) {
      known = tensor;
      each_of_tensor(*known, renew);
    }
    tensor = *known;
  };
  passed.each_known([&](Known& known) { each_value(known, renew, renew_tensor); });
  renew(passed.passes);
  pending_.push_back({made.block, to, std::move(passed), context_});
  return made;
}

void RegionBuilder::jump(int to, State state) {
  region::Terminator terminator;
  terminator.kind = region::Terminator::Kind::Jump;
  terminator.yes = target(to, std::move(state));
  end(std::move(terminator));
}

bool RegionBuilder::branch(ValueId condition, int yes, int no, const State& yes_state, const State& no_state) {
  region::Terminator terminator;
  terminator.kind = region::Terminator::Kind::Branch;
  terminator.condition = condition;
  terminator.yes = target(yes, yes_state);
  terminator.no = target(no, no_state);
  end(std::move(terminator));
  return false;
}

void RegionBuilder::fork(ValueId condition, const Known& yes, const Known& no) {
  force();
  State yes_state = state_, no_state = state_;
  yes_state.places.push_back(yes);
  no_state.places.push_back(no);
  ++entrances(at_ + 1);  // two blocks of different types
  branch(condition, at_ + 1, at_ + 1, yes_state, no_state);
}

/// One of two ways that meet again.
void RegionBuilder::either(ValueId condition, const std::function<void()>& yes, const std::function<void()>& no) {
  look_at_reports();
  region::Terminator terminator;
  terminator.kind = region::Terminator::Kind::Branch;
  terminator.condition = condition;
  terminator.yes.block = int(region_.blocks.size());
  terminator.no.block = terminator.yes.block + 1;
  const int after = terminator.no.block + 1;
  region_.blocks.resize(region_.blocks.size() + 3);
  block().end = terminator;
  const auto computed = computed_;
  const auto way = [&](int at, const std::function<void()>& body) {
    block_ = at;
    body();
    region::Terminator on;
    on.kind = region::Terminator::Kind::Jump;
    on.yes.block = after;
    block().end = on;
    computed_ = computed;
  };
  way(terminator.yes.block, yes);
  way(terminator.no.block, no);
  block_ = after;
}

std::optional<LoopRegion> build_region(const FjCode& code, const Loop& loop, const FrameValues& values,
                                       std::string& why) {
  remember_known_functions();
  constexpr int kLooks = 4;
  Findings met;
  for (int look = 1;; ++look) {
    RegionBuilder builder(code, loop, values, met);
    std::optional<LoopRegion> made = builder.build(why);
    if (!made || builder.found() == met) return made;
    if (look == kLooks && builder.found().writers == met.writers) return made;
    if (look == kLooks) {
      why = "functions that are called store in ways that are not all known";
      return std::nullopt;
    }
    met = builder.found();
  }
}

}  // namespace fj
