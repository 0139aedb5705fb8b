// Bytecode to blocks. Start at build(), then run(): each instruction changes the state, or is where the region is left.
#include "tracer/regions/region_builder.h"

#include <algorithm>

#include "arrays/arrays.h"
#include "cpython/objects.h"
#include "graph_ir/ops.h"
#include "runtime/base/error.h"

namespace fj {

namespace {

// Code is bounded by these, whatever the types do.
constexpr int kVersions = 12;        // of a block that is jumped to
constexpr std::size_t kInstructions = 6000;
constexpr std::int64_t kFar = std::int64_t(1) << 62;  // ranges that end beyond it are CPython's

/// The types, as text: states with the same text have their numbers in the same places.
void describe_types(const Known& known, std::string& out) {
  out += char('A' + int(known.kind));
  switch (known.kind) {
    case Known::Kind::Number: out += char('0' + int(known.boxing)); out += char('a' + int(known.dtype)); break;
    case Known::Kind::Object: out += std::to_string(std::uintptr_t(known.object.get())); break;
    case Known::Kind::Range: case Known::Kind::RangeIterator: case Known::Kind::TupleIterator:
      out += std::to_string(known.step);
      break;
    default: out += std::to_string(known.place); break;
  }
  out += '(';
  for (const Known& item : known.items) describe_types(item, out);
  out += ')';
}

template <class Visit>
void each_value(Known& known, const Visit& visit) {
  if (known.kind == Known::Kind::Number) {
    visit(known.value);
    known.object = {};
  }
  if (known.kind == Known::Kind::Row || known.kind == Known::Kind::Complex) visit(known.value);
  if (known.kind == Known::Kind::Complex) visit(known.imaginary);
  for (Known& item : known.items) each_value(item, visit);
}

}  // namespace

IteratorState read_iterator(PyObject* object) {
  IteratorState state;
  PyTypeObject* const bytes_type = once([] {
    const Ref<> bytes = Ref<>::steal(PyBytes_FromStringAndSize("", 0));
    const Ref<> iterator = bytes ? Ref<>::steal(PyObject_GetIter(bytes.get())) : Ref<>();
    PyErr_Clear();
    return iterator ? Py_TYPE(iterator.get()) : nullptr;
  });
  PyTypeObject* const range_type = once([] {
    const Ref<> range = Ref<>::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyRange_Type), "i", 0));
    const Ref<> iterator = range ? Ref<>::steal(PyObject_GetIter(range.get())) : Ref<>();
    PyErr_Clear();
    return iterator ? Py_TYPE(iterator.get()) : nullptr;
  });
  const bool range = Py_TYPE(object) == range_type;
  const bool items = Py_TYPE(object) == &PySeqIter_Type || Py_TYPE(object) == bytes_type;
  const bool zip = Py_TYPE(object) == &PyZip_Type, enumerate = Py_TYPE(object) == &PyEnum_Type;
  if (!range && !items && !zip && !enumerate) return state;
  // zip(strict=True) has a third item, exhausted iterators have another first one.
  const Ref<> reduced = Ref<>::steal(PyObject_CallMethod(object, "__reduce__", nullptr));
  if (!reduced || !PyTuple_Check(reduced.get()) || PyTuple_GET_SIZE(reduced.get()) < 2) return PyErr_Clear(), state;
  PyObject* const arguments = PyTuple_GET_ITEM(reduced.get(), 1);
  PyObject* const extra = PyTuple_GET_SIZE(reduced.get()) > 2 ? PyTuple_GET_ITEM(reduced.get(), 2) : Py_None;
  if (!PyTuple_Check(arguments)) return state;
  const auto number = [](PyObject* value, std::int64_t& to) {
    int overflow = 0;
    to = PyLong_Check(value) ? PyLong_AsLongLongAndOverflow(value, &overflow) : 0;
    return PyLong_Check(value) && !overflow;
  };
  if (zip || enumerate) {
    if (zip && extra != Py_None) return state;
    const Py_ssize_t count = enumerate ? 1 : PyTuple_GET_SIZE(arguments);
    if (enumerate && (PyTuple_GET_SIZE(arguments) != 2 || !number(PyTuple_GET_ITEM(arguments, 1), state.position)))
      return state;
    for (Py_ssize_t i = 0; i < count; ++i) state.over.push_back(Ref<>::borrow(PyTuple_GET_ITEM(arguments, i)));
    state.kind = zip ? IteratorState::Kind::Zip : IteratorState::Kind::Enumerate;
    return state;
  }
  if (PyTuple_GET_SIZE(arguments) != 1) return state;
  PyObject* const of = PyTuple_GET_ITEM(arguments, 0);
  if (range) {
    std::int64_t start = 0, index = 0;
    const Py_ssize_t length = PyRange_Check(of) ? PyObject_Length(of) : -1;
    const Ref<> start_object = Ref<>::steal(PyObject_GetAttrString(of, "start"));
    const Ref<> step = Ref<>::steal(PyObject_GetAttrString(of, "step"));
    if (length < 0 || !start_object || !step || !number(start_object.get(), start) || !number(step.get(), state.step) ||
        (extra != Py_None && !number(extra, index)))
      return PyErr_Clear(), state;
    const __int128 position = __int128(start) + __int128(index) * state.step;
    const __int128 end = __int128(start) + __int128(length) * state.step;
    // A step more holds 64 bits still.
    if (position > kFar || position < -kFar || end > kFar || end < -kFar) return state;
    if (state.step > kFar / 2 || state.step < -kFar / 2) return state;
    state.position = std::int64_t(position);
    state.end = std::int64_t(end);
    state.kind = IteratorState::Kind::Range;
    return state;
  }
  if (extra == Py_None || !number(extra, state.position)) return state;
  state.over.push_back(Ref<>::borrow(of));
  state.kind = IteratorState::Kind::Items;
  return state;
}

namespace {

std::vector<int> count_entrances(const FjCode& code) {
  std::vector<int> entrances(std::size_t(code.count) + 1);
  for (int i = 0; i < code.count; ++i) {
    const auto flow = fj_opcode_rows[code.instrs[i].opcode].flow;
    if (flow == FJ_FLOW_Jump || flow == FJ_FLOW_Branch) ++entrances[std::size_t(code.instrs[i].arg)];
    if (flow == FJ_FLOW_Next || flow == FJ_FLOW_Branch) ++entrances[std::size_t(i + 1)];
  }
  return entrances;
}

}  // namespace

RegionBuilder::RegionBuilder(const FjCode& code, const Loop& loop, const FrameValues& values, bool rereads)
    : loop_(loop), values_(values), rereads_(rereads) {
  objects_.assign(values.slots.begin(), values.slots.end());
  contexts_.emplace_back(new Context{&code, reinterpret_cast<PyCodeObject*>(code.code), values.function->func_globals,
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
    const int locals = int(values_.slots.size());
    for (int i = loop_.header; i <= loop_.last; ++i) {
      const FjInstr& instr = context_->code->instrs[i];
      if (fj_opcode_rows[instr.opcode].slot == FJ_SLOT_Assigns || instr.opcode == FJ_DELETE_FAST)
        if (instr.arg < locals) entry.places[std::size_t(instr.arg)] = resolve(entry.places[std::size_t(instr.arg)]);
    }
    if (slots > 0 && context_->code->instrs[loop_.header].opcode == FJ_FOR_ITER) entry.places.back() = resolve(entry.places.back());
  } catch (const Unknown& unknown) {
    why = unknown.what;
    return std::nullopt;
  }
  entry.passes = integer(0);
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
  return std::move(made_);
}

// ---- emission --------------------------------------------------------------------------------------------------------

ValueId RegionBuilder::constant(DType dtype, const Scalar& value) {
  region::Instruction made{};
  made.code = Code::Constant;
  made.constant = value;
  made.result = region_.new_value(dtype);
  block().body.push_back(made);
  return made.result;
}

ValueId RegionBuilder::op(Op op, std::vector<ValueId> operands) {
  region::Instruction made{};
  made.code = Code::Pointwise;
  made.op = op;
  const bool asks = row(op).type_rule == "Bool";
  made.result = region_.new_value(asks ? DType::Bool : type(operands.back()));
  made.operands = std::move(operands);
  block().body.push_back(made);
  return made.result;
}

ValueId RegionBuilder::cast(ValueId value, DType to) {
  if (type(value) == to) return value;
  region::Instruction made{};
  made.code = Code::Pointwise;
  made.op = Op::cast;
  made.operands = {value};
  made.result = region_.new_value(to);
  block().body.push_back(made);
  return made.result;
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
  block().body.push_back(made);
  return made.result;
}

ValueId RegionBuilder::add_no_wrap(ValueId a, ValueId b) {
  region::Instruction made{};
  made.code = Code::AddNoWrap;
  made.operands = {a, b};
  made.result = region_.new_value(type(a));
  block().body.push_back(made);
  return made.result;
}

region::Leave RegionBuilder::leave_here() {
  if (context_->caller == nullptr) return leave(at_, before_);
  const Context* outermost = context_;
  while (outermost->caller->caller != nullptr) outermost = outermost->caller;
  State state = before_;
  state.places.resize(outermost->base);
  return leave(outermost->call, state);
}

void RegionBuilder::leave_if_asked() {
  region::Instruction asked{};
  asked.code = Code::LeaveIfAsked;
  asked.leave = leave_here();
  block().body.push_back(std::move(asked));
  // Tens of milliseconds, about.
  if (rereads_) leave_if(op(Op::ge, {state_.passes, integer(std::int64_t(1) << 24)}));
}

void RegionBuilder::leave_if(ValueId condition) {
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
    case Known::Kind::Entry: case Known::Kind::Array: made.kind = Holding::Kind::Kept; break;
    case Known::Kind::Empty: made.kind = Holding::Kind::Empty; break;
    case Known::Kind::Object:
      made.kind = Holding::Kind::Object;
      made.object = known.object;
      break;
    case Known::Kind::Number: {
      // The number of an object of the frame's: that object, not one like it.
      const auto own = std::find_if(resolved_.begin(), resolved_.end(), [&](const auto& resolved) {
        return resolved.second.is_number() && resolved.second.value == known.value && resolved.second.boxing == known.boxing;
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
    case Known::Kind::Row: {
      made.kind = Holding::Kind::Row;
      Holding array;
      array.place = known.place;
      made.place = -1;
      made.items.push_back(std::move(array));
      items();
      break;
    }
  }
  return made;
}

region::Leave RegionBuilder::leave(int instruction, const State& state) {
  region::Leave made;
  RegionExit exit{instruction, {}};
  made.values.push_back(state.passes);
  for (const Known& known : state.places) exit.places.push_back(holding(known, made.values));
  made.exit = region_.exits++;
  made_.exits.push_back(std::move(exit));
  return made;
}

void RegionBuilder::end(region::Terminator terminator) {
  block().end = std::move(terminator);
  ended_ = true;
}

/// The block for the state, which is passed what differs. Where only one way leads to an instruction, the block knows
/// all that is known here.
region::Target RegionBuilder::target(int to, State state) {
  const bool joins = entrances(to) > 1 || is_header(to);
  region::Target made;
  if (!is_inside(to)) {
    made.block = int(region_.blocks.size());
    region_.blocks.emplace_back();
    region_.blocks.back().end.leave = leave(to, state);
    return made;
  }
  if (!joins) {
    made.block = int(region_.blocks.size());
    region_.blocks.emplace_back();
    pending_.push_back({made.block, to, std::move(state), context_});
    return made;
  }
  std::string key;
  for (const Known& known : state.places) describe_types(known, key);
  const auto pass = [&](ValueId value) { made.arguments.push_back(value); };
  State passed = state;
  for (Known& known : passed.places) each_value(known, pass);
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
    region_.blocks.back().end.leave = context_->caller == nullptr ? leave(to, state) : leave_here();
    return made;
  }
  region_.blocks.emplace_back();
  region::Block& block = region_.blocks.back();
  const auto renew = [&](ValueId& value) {
    value = region_.new_value(type(value));
    block.parameters.push_back(value);
  };
  for (Known& known : passed.places) each_value(known, renew);
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
  State yes_state = state_, no_state = state_;
  yes_state.places.push_back(yes);
  no_state.places.push_back(no);
  ++entrances(at_ + 1);  // two blocks of different types
  branch(condition, at_ + 1, at_ + 1, yes_state, no_state);
}

// ---- what the frame holds --------------------------------------------------------------------------------------------

ValueId RegionBuilder::input(RegionInput::Kind kind, int place, DType dtype, int axis, bool natural) {
  const ValueId value = region_.new_value(dtype);
  region_.inputs.push_back(value);
  if (kind == RegionInput::Kind::Size || (kind == RegionInput::Kind::Position && natural)) region_.natural.push_back(value);
  made_.inputs.push_back({kind, place, axis});
  return value;
}

int RegionBuilder::reach(ReachedPlace::How how, int from, int index, PyObject* object) {
  made_.reached.push_back({how, from, index});
  held_.push_back(Ref<>::borrow(object));
  objects_.push_back(object);
  return int(objects_.size()) - 1;
}

Known RegionBuilder::resolve(const Known& known) {
  if (known.kind != Known::Kind::Entry) return known;
  const auto found = resolved_.find(known.place);
  if (found != resolved_.end()) return found->second;
  Known made = resolve_object(known.place);
  if (made.kind == Known::Kind::Entry) {
    RegionGuard guard{};
    guard.kind = RegionGuard::Kind::Bound;
    guard.place = known.place;
    made_.guards.push_back(guard);
  }
  resolved_.emplace(known.place, made);
  return made;
}

Known RegionBuilder::resolve_iterator(int place, const IteratorState& state) {
  Known made;
  RegionGuard guard{};
  guard.place = place;
  guard.natural = state.position >= 0;
  const auto position = [&] { return python_int(input(RegionInput::Kind::Position, place, DType::I64, 0, guard.natural)); };
  const auto child = [&](std::size_t i) {
    Known entry;
    entry.kind = Known::Kind::Entry;
    entry.place = reach(ReachedPlace::How::Iterated, place, int(i), state.over[i].get());
    return resolve(entry);
  };
  switch (state.kind) {
    case IteratorState::Kind::Range:
      made.kind = Known::Kind::RangeIterator;
      guard.kind = RegionGuard::Kind::Range;
      guard.step = made.step = state.step;
      made_.guards.push_back(guard);
      made.items.push_back(position());
      made.items.push_back(python_int(input(RegionInput::Kind::End, place, DType::I64)));
      return made;
    case IteratorState::Kind::Items:
      made.kind = Known::Kind::Items;
      guard.kind = RegionGuard::Kind::Items;
      made_.guards.push_back(guard);
      made.items.push_back(child(0));
      if (made.items[0].kind != Known::Kind::Array) throw Unknown{"an iterator over what is no array"};
      made.items.push_back(position());
      return made;
    case IteratorState::Kind::Enumerate:
      made.kind = Known::Kind::Enumerate;
      guard.kind = RegionGuard::Kind::Enumerate;
      made_.guards.push_back(guard);
      made.items.push_back(child(0));
      made.items.push_back(position());
      break;
    default:
      made.kind = Known::Kind::Zip;
      guard.kind = RegionGuard::Kind::Zip;
      guard.rank = int(state.over.size());
      made_.guards.push_back(guard);
      for (std::size_t i = 0; i < state.over.size(); ++i) made.items.push_back(child(i));
      break;
  }
  for (const Known& item : made.items)
    if (!item.is_number() && item.kind != Known::Kind::RangeIterator && item.kind != Known::Kind::Items &&
        item.kind != Known::Kind::Zip && item.kind != Known::Kind::Enumerate)
      throw Unknown{"an iterator over what is neither a range nor an array"};
  return made;
}

Known RegionBuilder::resolve_object(int place) {
  Known made;
  made.kind = Known::Kind::Entry;
  made.place = place;
  PyObject* const object = object_at(place);
  RegionGuard guard{};
  guard.place = place;
  if (object == nullptr) {
    guard.kind = RegionGuard::Kind::Unbound;
    made_.guards.push_back(guard);
    made.kind = Known::Kind::Empty;
    return made;
  }
  const auto is_number = [&](Boxing boxing, DType dtype) {
    guard.kind = RegionGuard::Kind::Number;
    guard.boxing = boxing;
    guard.dtype = dtype;
    made_.guards.push_back(guard);
    return number(boxing, dtype, input(RegionInput::Kind::Number, place, dtype));
  };
  if (PyLong_CheckExact(object)) {
    int overflow = 0;
    (void)PyLong_AsLongLongAndOverflow(object, &overflow);
    return overflow ? made : is_number(Boxing::Int, DType::I64);
  }
  if (PyFloat_CheckExact(object)) return is_number(Boxing::Float, DType::F64);
  if (PyBool_Check(object)) return is_number(Boxing::Bool, DType::Bool);
  if (PyComplex_CheckExact(object)) {
    guard.kind = RegionGuard::Kind::Complex;
    made_.guards.push_back(guard);
    const ValueId real = input(RegionInput::Kind::Number, place, DType::F64);
    return complex(real, input(RegionInput::Kind::Imaginary, place, DType::F64));
  }
  if (const auto dtype = numpy_scalar_dtype(object))
    return is_complex(*dtype) || is_half(*dtype) ? made : is_number(Boxing::Numpy, *dtype);
  if (PyBytes_CheckExact(object)) {
    ArrayFacts facts;
    facts.dtype = DType::U8;
    facts.bytes = true;
    guard.kind = RegionGuard::Kind::Bytes;
    facts.guard = made_.guards.size();
    made_.guards.push_back(guard);
    facts.sizes.push_back(input(RegionInput::Kind::Size, place, DType::I64));
    facts.strides.push_back({});
    facts.memory = int(region_.memories.size());
    region_.memories.push_back({"m" + std::to_string(facts.memory), DType::U8});
    made_.memories.push_back(place);
    arrays_.emplace(place, std::move(facts));
    made.kind = Known::Kind::Array;
    return made;
  }
  if (array_library(object) == Library::Numpy) {
    const ArrayInfo info = describe(object);
    ArrayView view;
    if (!info.unsupported.empty() || is_complex(info.dtype) || is_half(info.dtype) || info.shape.empty() ||
        !read_numpy(object, view) || !view.aligned)
      return made;
    ArrayFacts facts;
    facts.dtype = info.dtype;
    guard.kind = RegionGuard::Kind::Array;
    guard.dtype = info.dtype;
    guard.rank = int(info.shape.size());
    guard.dense = info.strides.back() == 1;
    facts.guard = made_.guards.size();
    made_.guards.push_back(guard);
    for (int axis = 0; axis < guard.rank; ++axis) {
      facts.sizes.push_back(input(RegionInput::Kind::Size, place, DType::I64, axis));
      facts.strides.push_back(axis + 1 == guard.rank && guard.dense
                                  ? ValueId()
                                  : input(RegionInput::Kind::Stride, place, DType::I64, axis));
    }
    facts.memory = int(region_.memories.size());
    region_.memories.push_back({"m" + std::to_string(facts.memory), info.dtype});
    made_.memories.push_back(place);
    arrays_.emplace(place, std::move(facts));
    made.kind = Known::Kind::Array;
    return made;
  }
  // A variable's iterator stays in the variable while a loop goes through it.
  const int stack = contexts_.front()->object->co_nlocalsplus, reached = place - int(values_.slots.size());
  const bool on_the_stack = reached < 0 ? place >= stack : made_.reached[std::size_t(reached)].how == ReachedPlace::How::Iterated;
  if (on_the_stack)
    if (const IteratorState state = read_iterator(object); state.kind != IteratorState::Kind::None)
      return resolve_iterator(place, state);
  if (PyModule_CheckExact(object) || PyCFunction_CheckExact(object) || PyFunction_Check(object) || object == Py_None) {
    guard_same(place);
    return RegionBuilder::object(object);
  }
  return made;
}

void RegionBuilder::guard_same(int place) {
  RegionGuard guard{};
  guard.kind = RegionGuard::Kind::Same;
  guard.place = place;
  guard.value = Ref<>::borrow(object_at(place));
  made_.guards.push_back(std::move(guard));
}

// ---- instructions ----------------------------------------------------------------------------------------------------

Known RegionBuilder::pop() {
  FJ_CHECK(!state_.places.empty(), "a value on the stack");
  Known top = std::move(state_.places.back());
  state_.places.pop_back();
  return top;
}

Known RegionBuilder::pop_number() {
  Known top = resolve(pop());
  if (!top.is_number()) throw Unknown{"an operation on what is no number"};
  return top;
}

void RegionBuilder::run(Pending pending) {
  block_ = pending.block;
  context_ = pending.context;
  state_ = std::move(pending.state);
  ended_ = false;
  for (int at = pending.instruction; !ended_; ++at) {
    at_ = at;
    before_ = state_;
    bool on = true;
    try {
      if (!is_inside(at)) throw Unknown{""};
      on = execute(context_->code->instrs[at], at);
    } catch (const Unknown& unknown) {
      if (!unknown.what.empty()) made_.unknown.emplace_back(context_->code->instrs[at].line, unknown.what);
      region::Terminator terminator;
      terminator.leave = leave_here();
      end(std::move(terminator));
      return;
    }
    if (!on || ended_) return;
    if (entrances(at + 1) > 1 || !is_inside(at + 1)) return jump(at + 1, state_);
  }
}

bool RegionBuilder::execute(const FjInstr& instr, int at) {
  const int arg = instr.arg;
  switch (instr.opcode) {
    case FJ_NOP: return true;
    case FJ_POP_TOP: pop(); return true;
    case FJ_PUSH_NULL: push({}); return true;
    case FJ_COPY:
      if (peek(arg).is_iterator()) throw Unknown{"an iterator that is held twice"};
      push(peek(arg));
      return true;
    case FJ_SWAP: std::swap(peek(1), peek(arg)); return true;
    case FJ_LOAD_CONST: push(literal(PyTuple_GET_ITEM(context_->object->co_consts, arg))); return true;
    case FJ_LOAD_FAST: {
      const Known slot = resolve(slot_of(arg));
      if (slot.kind == Known::Kind::Empty) throw Unknown{"a variable that is not bound"};
      push(slot);
      return true;
    }
    case FJ_STORE_FAST: {
      Known value = pop();
      if (value.is_iterator()) throw Unknown{"an iterator in a variable"};
      let_go(arg);
      slot_of(arg) = std::move(value);
      return true;
    }
    case FJ_DELETE_FAST:
      if (resolve(slot_of(arg)).kind == Known::Kind::Empty) throw Unknown{"a variable that is not bound"};
      let_go(arg);
      slot_of(arg) = {};
      return true;
    case FJ_LOAD_DEREF: {
      if (context_->caller != nullptr) throw Unknown{"a variable of another function"};
      Known& slot = state_.places[std::size_t(arg)];
      PyObject* const cell = slot.kind == Known::Kind::Entry ? object_at(slot.place) : nullptr;
      if (cell == nullptr || !PyCell_Check(cell) || PyCell_GET(cell) == nullptr) throw Unknown{"a variable that is not bound"};
      int place = -1;
      for (std::size_t i = 0; i < made_.reached.size(); ++i)
        if (made_.reached[i].how == ReachedPlace::How::Cell && made_.reached[i].from == slot.place)
          place = int(values_.slots.size() + i);
      if (place < 0) {
        RegionGuard guard{};
        guard.kind = RegionGuard::Kind::Cell;
        guard.place = slot.place;
        made_.guards.push_back(guard);
        place = reach(ReachedPlace::How::Cell, slot.place, 0, PyCell_GET(cell));
        reread_ = true;
      }
      Known entry;
      entry.kind = Known::Kind::Entry;
      entry.place = place;
      push(resolve(entry));
      return true;
    }
    case FJ_LOAD_GLOBAL: load_global(instr); return true;
    case FJ_LOAD_ATTR: load_attribute(PyTuple_GET_ITEM(context_->object->co_names, arg)); return true;
    case FJ_LOAD_METHOD: {
      load_attribute(PyTuple_GET_ITEM(context_->object->co_names, arg));
      Known method = pop();
      if (method.kind != Known::Kind::Object) throw Unknown{"a method of an array"};
      if (fj_call_layout_callable_first()) {
        push(std::move(method));
        push({});
      } else {
        push({});
        push(std::move(method));
      }
      return true;
    }
    case FJ_UNARY_NEGATIVE:
      if (const Known value = resolve(peek(1)); value.kind == Known::Kind::Complex) {
        peek(1) = complex(op(Op::neg, {value.value}), op(Op::neg, {value.imaginary}));
        return true;
      }
      push(negative(pop_number()));
      return true;
    case FJ_UNARY_POSITIVE: {
      Known value = pop_number();
      if (value.boxing == Boxing::Bool || value.dtype == DType::Bool) throw Unknown{"`+` of a bool"};
      push(std::move(value));
      return true;
    }
    case FJ_UNARY_NOT: push(python_bool(op(Op::logical_not, {truth(pop_number())}))); return true;
    case FJ_UNARY_INVERT: push(inverted(pop_number())); return true;
    case FJ_TO_BOOL: push(python_bool(truth(pop_number()))); return true;
    case FJ_BINARY_OP: {
      if (resolve(peek(1)).kind == Known::Kind::Complex || resolve(peek(2)).kind == Known::Kind::Complex) {
        const Known b = resolve(pop()), a = resolve(pop());
        push(complex_binary(arg, a, b));
        return true;
      }
      const Known b = pop_number(), a = pop_number();
      push(binary(arg, a, b));
      return true;
    }
    case FJ_COMPARE_OP: {
      const Known b = pop_number(), a = pop_number();
      Known made = compare(arg, a, b);
      if (instr.arg2) made = python_bool(truth(made));
      push(std::move(made));
      return true;
    }
    case FJ_IS_OP: {
      const Known b = resolve(pop()), a = resolve(pop());
      const bool known_a = a.kind == Known::Kind::Object, known_b = b.kind == Known::Kind::Object;
      const auto is_none = [](const Known& known) { return known.kind == Known::Kind::Object && known.object.get() == Py_None; };
      if (!(known_a && known_b) && !is_none(a) && !is_none(b)) throw Unknown{"`is` of what is not known"};
      if (a.kind == Known::Kind::Entry || b.kind == Known::Kind::Entry) throw Unknown{"`is` of what is not known"};
      const bool same = known_a && known_b && a.object.get() == b.object.get();
      push(literal(same != bool(arg) ? Py_True : Py_False));
      return true;
    }
    case FJ_CONTAINS_OP: return contains(instr);
    case FJ_BINARY_SUBSCR: subscript(); return true;
    case FJ_STORE_SUBSCR: store_subscript(); return true;
    case FJ_BUILD_TUPLE: {
      Known made;
      made.kind = Known::Kind::Tuple;
      for (int i = arg; i > 0; --i) made.items.push_back(resolve(peek(i)));
      for (const Known& item : made.items)
        if (item.kind == Known::Kind::Empty || item.is_iterator()) throw Unknown{"a tuple of what is not known"};
      state_.places.resize(state_.places.size() - std::size_t(arg));
      push(std::move(made));
      return true;
    }
    case FJ_UNPACK_SEQUENCE: {
      const Known sequence = resolve(pop());
      if (sequence.kind == Known::Kind::Array || sequence.kind == Known::Kind::Row) {
        leave_if(op(Op::ne, {size(sequence, 0), integer(arg)}));
        for (int i = arg; i-- > 0;) push(element(sequence, {python_int(integer(i))}));
        return true;
      }
      if (sequence.kind != Known::Kind::Tuple || int(sequence.items.size()) != arg) throw Unknown{"unpacking of what is no tuple"};
      for (std::size_t i = sequence.items.size(); i-- > 0;) push(sequence.items[i]);
      return true;
    }
    case FJ_GET_ITER: push(iterator(resolve(pop()))); return true;
    case FJ_FOR_ITER: return next_item(instr, at);
    case FJ_CALL: return call_instruction(instr);
    case FJ_JUMP:
      if (instr.arg2 && is_inside(arg)) {
        leave_if_asked();
        state_.passes = op(Op::add, {state_.passes, integer(1)});
      }
      jump(arg, state_);
      return false;
    case FJ_POP_JUMP_IF_FALSE: case FJ_POP_JUMP_IF_TRUE:
    case FJ_JUMP_IF_FALSE_OR_POP: case FJ_JUMP_IF_TRUE_OR_POP: {
      const bool jumps_if = instr.opcode == FJ_POP_JUMP_IF_TRUE || instr.opcode == FJ_JUMP_IF_TRUE_OR_POP;
      const bool pops = instr.opcode == FJ_POP_JUMP_IF_TRUE || instr.opcode == FJ_POP_JUMP_IF_FALSE;
      const Known value = pop_number();
      const ValueId condition = truth(value);
      State onward = state_, jumping = state_;
      if (!pops) jumping.places.push_back(value);
      if (instr.arg2 && is_inside(arg)) {
        leave_if_asked();
        jumping.passes = op(Op::add, {state_.passes, integer(1)});
      }
      if (value.object && value.boxing != Boxing::Numpy) {
        const int known = PyObject_IsTrue(value.object.get());
        if (known < 0) throw Unknown{"a condition that raises"};
        const bool taken = bool(known) == jumps_if;
        jump(taken ? arg : at + 1, taken ? jumping : onward);
        return false;
      }
      return jumps_if ? branch(condition, arg, at + 1, jumping, onward)
                      : branch(condition, at + 1, arg, onward, jumping);
    }
    case FJ_POP_JUMP_IF_NONE: case FJ_POP_JUMP_IF_NOT_NONE: {
      const Known value = resolve(pop());
      if (value.kind == Known::Kind::Entry || instr.arg2) throw Unknown{"`is None` of what is not known"};
      const bool none = value.kind == Known::Kind::Object && value.object.get() == Py_None;
      jump(none == (instr.opcode == FJ_POP_JUMP_IF_NONE) ? arg : at + 1, state_);
      return false;
    }
    case FJ_RETURN_VALUE:
      if (context_->caller == nullptr) throw Unknown{""};
      return return_from_function();
    case FJ_RETURN_CONST:
      if (context_->caller == nullptr) throw Unknown{""};
      push(literal(PyTuple_GET_ITEM(context_->object->co_consts, arg)));
      return return_from_function();
    default: throw Unknown{std::string("the instruction ") + fj_opcode_name(instr.opcode)};
  }
}

/// Objects that are let go of in the region end when it is left: the end of one that is not known, or of an array, may be
/// seen.
void RegionBuilder::let_go(int slot) {
  const Known& known = slot_of(slot);
  if (known.kind != Known::Kind::Entry && known.kind != Known::Kind::Array) return;
  const auto holds = [&](const Known& other) {
    return &other != &known && other.kind == known.kind && other.place == known.place;
  };
  if (known.kind == Known::Kind::Entry || std::none_of(state_.places.begin(), state_.places.end(), holds))
    throw Unknown{"a variable whose object may end here"};
}

bool RegionBuilder::contains(const FjInstr& instr) {
  const Known sequence = pop();
  const Known value = pop_number();
  const std::optional<std::vector<Known>> items = tuple_items(sequence);
  if (!items) throw Unknown{"`in` of what is no tuple"};
  // What is in a tuple as the same object is found, equal to itself or not.
  if (is_float(value.dtype)) leave_if(op(Op::is_nan, {value.value}));
  ValueId found = constant(DType::Bool, false);
  for (const Known& item : *items) {
    if (!item.is_number()) throw Unknown{"`in` of a tuple of what are no numbers"};
    found = op(Op::bit_or, {found, truth(compare(Py_EQ, item, value))});
  }
  push(python_bool(instr.arg ? op(Op::logical_not, {found}) : found));
  return true;
}

void RegionBuilder::load_global(const FjInstr& instr) {
  PyObject* const name = PyTuple_GET_ITEM(context_->object->co_names, instr.arg);
  PyObject* const globals = context_->globals;
  PyObject* const builtins = context_->builtins;
  if (!PyDict_CheckExact(globals) || !PyDict_CheckExact(builtins)) throw Unknown{"a namespace that is no dict"};
  PyObject* value = PyDict_GetItemWithError(globals, name);
  RegionGuard guard{};
  guard.kind = RegionGuard::Kind::Name;
  guard.object = Ref<>::borrow(name);
  if (value == nullptr) {
    PyErr_Clear();
    guard.names = Ref<>::borrow(globals);
    made_.guards.push_back(guard);
    value = PyDict_GetItemWithError(builtins, name);
    guard.names = Ref<>::borrow(builtins);
  } else {
    guard.names = Ref<>::borrow(globals);
  }
  if (value == nullptr) {
    PyErr_Clear();
    throw Unknown{"a name that is not bound"};
  }
  guard.value = Ref<>::borrow(value);
  made_.guards.push_back(std::move(guard));
  Known known = literal(value);
  reread_ = reread_ || !PyCallable_Check(value);
  if (instr.arg2 && !fj_call_layout_callable_first()) push({});
  push(std::move(known));
  if (instr.arg2 && fj_call_layout_callable_first()) push({});
}

void RegionBuilder::load_attribute(PyObject* name) {
  const Known owner = resolve(pop());
  if (owner.kind == Known::Kind::Object && PyModule_CheckExact(owner.object.get())) {
    PyObject* const names = PyModule_GetDict(owner.object.get());
    PyObject* const value = PyDict_GetItemWithError(names, name);
    if (value == nullptr) {
      PyErr_Clear();
      throw Unknown{"an attribute `" + text_of(name) + "`"};
    }
    RegionGuard guard{};
    guard.kind = RegionGuard::Kind::Name;
    guard.names = Ref<>::borrow(names);
    guard.object = Ref<>::borrow(name);
    guard.value = Ref<>::borrow(value);
    made_.guards.push_back(std::move(guard));
    reread_ = reread_ || !PyCallable_Check(value);
    push(literal(value));
    return;
  }
  if ((owner.kind == Known::Kind::Array || owner.kind == Known::Kind::Row) && !facts(owner).bytes) {
    const std::string text = text_of(name);
    if (text == "ndim") return push(python_int(integer(rank(owner))));
    if (text == "shape") {
      Known shape;
      shape.kind = Known::Kind::Tuple;
      for (int axis = 0; axis < rank(owner); ++axis) shape.items.push_back(python_int(size(owner, axis)));
      return push(std::move(shape));
    }
    if (text == "size") {
      ValueId count = integer(1);
      for (int axis = 0; axis < rank(owner); ++axis) count = op(Op::mul, {count, size(owner, axis)});
      return push(python_int(count));
    }
  }
  if (owner.kind == Known::Kind::Complex) {
    const std::string text = text_of(name);
    if (text == "real") return push(python_float(owner.value));
    if (text == "imag") return push(python_float(owner.imaginary));
  }
  throw Unknown{"an attribute `" + text_of(name) + "`"};
}

bool RegionBuilder::call_instruction(const FjInstr& instr) {
  if (instr.arg2 >= 0) throw Unknown{"a call with keywords"};
  std::vector<Known> arguments;
  for (int i = instr.arg; i > 0; --i) arguments.push_back(resolve(peek(i)));
  state_.places.resize(state_.places.size() - std::size_t(instr.arg));
  Known second = pop(), first = pop();
  const bool callable_first = fj_call_layout_callable_first();
  Known callable = callable_first ? first : second;
  const Known self = callable_first ? second : first;
  if (self.kind != Known::Kind::Empty) throw Unknown{"a call of a method"};
  callable = resolve(callable);
  if (callable.kind != Known::Kind::Object) throw Unknown{"a call of what is not known"};
  if (PyFunction_Check(callable.object.get()))
    return enter_function(reinterpret_cast<PyFunctionObject*>(callable.object.get()), arguments, at_);
  auto made = call_known(callable.object.get(), arguments);
  if (ended_) return false;
  if (!made) throw Unknown{"a call of `" + text_of(callable.object.get()) + "`"};
  push(std::move(*made));
  return true;
}

RegionBuilder::Context* RegionBuilder::inlined(PyFunctionObject* function, int call) {
  for (const auto& known : contexts_)
    if (known->caller == context_ && known->call == call && known->globals == function->func_globals &&
        known->object == reinterpret_cast<PyCodeObject*>(function->func_code))
      return known.get();
  FjCode* code = nullptr;
  for (const auto& decoded : decoded_)
    if (decoded->code == function->func_code) code = decoded.get();
  if (code == nullptr) {
    code = fj_decode(reinterpret_cast<PyCodeObject*>(function->func_code));
    if (code == nullptr) {
      PyErr_Clear();
      throw Unknown{"a function that can't be decoded"};
    }
    decoded_.emplace_back(code, fj_free_code);
  }
  contexts_.emplace_back(new Context{code, reinterpret_cast<PyCodeObject*>(code->code), function->func_globals,
                                     function->func_builtins, 0, code->count - 1, count_entrances(*code), context_, call});
  ++contexts_.back()->entrances[0];  // by the call
  return contexts_.back().get();
}

/// `before_` is the state at the call; the places of the function come behind it.
bool RegionBuilder::enter_function(PyFunctionObject* function, const std::vector<Known>& arguments, int call) {
  constexpr int kDepth = 4;
  int depth = 0;
  for (const Context* context = context_; context != nullptr; context = context->caller) ++depth;
  if (depth > kDepth) throw Unknown{"calls nested deeply"};
  if (function->func_dict != nullptr && PyDict_GET_SIZE(function->func_dict) != 0)
    throw Unknown{"a call of a function with attributes"};  // framejit.disable and its like
  const auto* object = reinterpret_cast<PyCodeObject*>(function->func_code);
  const int taken = object->co_argcount;
  PyObject* const defaults = function->func_defaults;
  const int given_by_default = defaults ? int(PyTuple_GET_SIZE(defaults)) : 0;
  if (object->co_flags & (CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR) ||
      object->co_kwonlyargcount != 0 || int(arguments.size()) > taken || int(arguments.size()) + given_by_default < taken ||
      !PyDict_CheckExact(function->func_globals) || !PyDict_CheckExact(function->func_builtins))
    throw Unknown{"a call of `" + text_of(function->func_qualname) + "` with such arguments"};
  RegionGuard guard{};
  guard.kind = RegionGuard::Kind::Function;
  guard.object = Ref<>::borrow(reinterpret_cast<PyObject*>(function));
  guard.value = Ref<>::borrow(function->func_code);
  guard.names = Ref<>::borrow(defaults);
  made_.guards.push_back(std::move(guard));
  Context* const context = inlined(function, call);
  State inside = before_;
  context->base = inside.places.size();
  for (const Known& argument : arguments) {
    if (argument.kind == Known::Kind::Empty || argument.is_iterator()) throw Unknown{"a call with an iterator"};
    inside.places.push_back(argument);
  }
  for (int i = int(arguments.size()); i < taken; ++i)
    inside.places.push_back(literal(PyTuple_GET_ITEM(defaults, i - taken + given_by_default)));
  inside.places.resize(context->base + std::size_t(object->co_nlocalsplus));
  inside.passes = state_.passes;
  ++entrances(call + 1);  // the function may return at several places
  region::Terminator terminator;
  terminator.kind = region::Terminator::Kind::Jump;
  terminator.yes.block = int(region_.blocks.size());
  region_.blocks.emplace_back();
  pending_.push_back({terminator.yes.block, 0, std::move(inside), context});
  end(std::move(terminator));
  return false;
}

bool RegionBuilder::return_from_function() {
  Known result = resolve(pop());
  const Context& context = *context_;
  State state = state_;
  state.places.resize(context.base);
  // The call's operands: what is called, its NULL and the arguments.
  state.places.resize(state.places.size() - std::size_t(context.caller->code->instrs[context.call].arg) - 2);
  state.places.push_back(std::move(result));
  const int after = context.call + 1;
  context_ = context.caller;
  jump(after, std::move(state));
  return false;
}

std::optional<LoopRegion> build_region(const FjCode& code, const Loop& loop, const FrameValues& values,
                                       std::string& why) {
  remember_known_functions();
  RegionBuilder builder(code, loop, values, false);
  std::optional<LoopRegion> made = builder.build(why);
  return made && builder.needs_rereading() ? RegionBuilder(code, loop, values, true).build(why) : std::move(made);
}

}  // namespace fj
