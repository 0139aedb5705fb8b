// Lists: read where they are, as CPython's own objects, and changed through RegionLists (runtime/region_library.h). The
// GIL is held, so that nobody else changes them while the region runs.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "arrays/arrays.h"
#include "cpython/objects.h"
#include "runtime/base/error.h"
#include "runtime/region_library.h"
#include "tracer/regions/region_builder.h"

namespace fj {

namespace {

// In words of 8 bytes from where an object begins.
constexpr std::int64_t kWord = 8;
constexpr std::int64_t kReferences = offsetof(PyObject, ob_refcnt) / kWord;  // with what else is in the word since 3.14
constexpr std::int64_t kClass = offsetof(PyObject, ob_type) / kWord;
constexpr std::int64_t kSize = offsetof(PyVarObject, ob_size) / kWord;
constexpr std::int64_t kItems = offsetof(PyListObject, ob_item) / kWord;
constexpr std::int64_t kReal = offsetof(PyFloatObject, ob_fval) / kWord;
constexpr std::int64_t kSign = 2, kDigits = 3;  // of an int: fj_int_has_tag
static_assert(offsetof(PyObject, ob_type) % kWord == 0 && offsetof(PyFloatObject, ob_fval) % kWord == 0);

bool is_none(const Known& known) { return known.kind == Known::Kind::Object && known.object.get() == Py_None; }

std::int64_t address_of(const void* object) { return std::int64_t(reinterpret_cast<std::uintptr_t>(object)); }

/// What a list holds, by a look at some of its items. `depth`: 0 for what is neither numbers nor lists of them.
struct Contents {
  int depth = 1;
  unsigned kinds = 0;
};
Contents contents_of(PyObject* list, int levels) {
  constexpr Py_ssize_t kLooks = 16;
  const Py_ssize_t count = PyList_GET_SIZE(list);
  std::optional<int> depth;
  Contents all;
  for (Py_ssize_t i = 0; i < std::min(count, kLooks); ++i) {
    PyObject* const item = PyList_GET_ITEM(list, i * count / std::min(count, kLooks));
    Contents one;
    if (PyFloat_CheckExact(item)) one.kinds = kFloats;
    else if (PyLong_CheckExact(item)) one.kinds = kInts;
    else if (PyBool_Check(item)) one.kinds = kBools;
    else if (PyList_CheckExact(item) && levels > 0) one = contents_of(item, levels - 1);
    else return {0, 0};
    if (one.depth == 0) return {0, 0};
    if (PyList_CheckExact(item)) ++one.depth;
    if (depth.value_or(one.depth) != one.depth) return {0, 0};
    depth = one.depth;
    all.kinds |= one.kinds;
  }
  all.depth = depth.value_or(1);
  return all;
}

}  // namespace

bool is_number_or_none(PyObject* object) {
  return PyFloat_CheckExact(object) || PyLong_CheckExact(object) || PyBool_Check(object) || object == Py_None ||
         numpy_scalar_dtype(object).has_value();
}

bool list_ends_unseen(PyObject* list) {
  PyObject** const items = reinterpret_cast<PyListObject*>(list)->ob_item;
  return std::all_of(items, items + PyList_GET_SIZE(list), is_number_or_none);
}

Known RegionBuilder::list_at(int place) {
  constexpr int kLevels = 3;
  const Contents contents = contents_of(object_at(place), kLevels);
  RegionGuard guard{};
  guard.kind = RegionGuard::Kind::List;
  guard.place = place;
  const bool empty = PyList_GET_SIZE(object_at(place)) == 0;
  const int depth = empty ? depth_of(place, contents.depth) : contents.depth;
  lists_[place] = {made_.guards.size(), contents.kinds, depth};
  made_.guards.push_back(std::move(guard));
  made_.has_lists = true;
  Known made;
  made.kind = Known::Kind::List;
  made.place = place;
  made.step = depth;
  made.value = input(RegionInput::Kind::Address, place, DType::I64);
  return made;
}

/// The value of a float is in no word of a list, a class or an int.
int RegionBuilder::apart_from_floats() {
  if (apart_from_floats_ < 0) apart_from_floats_ = nests_++;
  return apart_from_floats_;
}

/// What is at an address, which counts elements of the type.
ValueId RegionBuilder::from_heap(DType dtype, ValueId address) {
  region::Instruction load{};
  load.code = Code::Load;
  load.memory = heap(dtype);
  load.operands = {address};
  if (dtype != DType::F64) load.apart = apart_from_floats();
  load.result = region_.new_value(dtype);
  block().body.push_back(load);
  return load.result;
}

/// The word of an object that begins at an address.
ValueId RegionBuilder::word(ValueId address, std::int64_t at) {
  return from_heap(DType::I64, op(Op::add, {address, integer(at)}));
}

ValueId RegionBuilder::length(const Known& list) { return word(list.value, kSize); }

/// The int of two digits at most that is at an address; others leave the region.
ValueId RegionBuilder::int_in(ValueId object) {
  constexpr std::int64_t kBits = 30;
  const ValueId sign = word(object, kSign), zero = integer(0), two = integer(2);
  const bool tag = fj_int_has_tag();
  const ValueId count = tag ? op(Op::shift_right, {sign, integer(3)}) : op(Op::abs, {sign});
  leave_if(op(Op::gt, {count, two}));
  // The memory of an int of one digit has no other one.
  const ValueId has_two = op(Op::eq, {count, two}), first = op(Op::mul, {object, two});
  const auto digit = [&](ValueId at) {
    return cast(from_heap(DType::I32, op(Op::add, {first, at})), DType::I64);
  };
  const ValueId low = digit(integer(2 * kDigits));
  const ValueId above = digit(op(Op::where, {has_two, integer(2 * kDigits + 1), integer(2 * kDigits)}));
  const ValueId both = op(Op::bit_or, {low, op(Op::shift_left, {above, integer(kBits)})});
  const ValueId size = op(Op::where, {has_two, both, low});
  const ValueId negative = tag ? op(Op::eq, {op(Op::bit_and, {sign, integer(3)}), two}) : op(Op::lt, {sign, zero});
  const ValueId none = tag ? op(Op::eq, {op(Op::bit_and, {sign, integer(3)}), integer(1)}) : op(Op::eq, {sign, zero});
  const ValueId value = op(Op::where, {negative, op(Op::sub, {zero, size}), size});
  return op(Op::where, {none, zero, value});
}

/// Whether the object that the number was read from is still there, and has not been given another value.
bool RegionBuilder::is_there(const Known& number) const {
  return number.item.valid() && state_.gone - number.read_at < RegionLists::kGone;
}

/// What is read from lists is known by value alone from here on.
void RegionBuilder::forget_items(bool floats_alone) {
  const auto forget = [&](auto&& self, Known& known) -> void {
    if (!floats_alone || known.boxing == Boxing::Float) known.item = {};
    for (Known& item : known.items) self(self, item);
  };
  for (State* state : {&state_, &replay_, &before_})
    state->each_known([&](Known& known) { forget(forget, known); });
  left_ = {};
}

/// The number that an object of this type is.
Known RegionBuilder::number_in(ValueId object, ListItems kind) {
  const auto read = [&](Known number) {
    number.item = object;
    number.read_at = state_.gone;
    return number;
  };
  if (kind == kInts) return read(python_int(int_in(object)));
  if (kind == kBools) return python_bool(op(Op::eq, {object, integer(address_of(Py_True) / kWord)}));
  const ValueId real = from_heap(DType::F64, op(Op::add, {object, integer(kReal)}));
  leave_if(op(Op::is_nan, {real}));  // equal to itself as long as it is the same object
  return read(python_float(real));
}

RegionBuilder::ListItem RegionBuilder::object_at(const Known& list, ValueId index) {
  ListItem item;
  const ValueId items = op(Op::shift_right, {word(list.value, kItems), integer(3)});
  item.object = op(Op::shift_right, {word(op(Op::add, {items, index}), 0), integer(3)});
  item.type = word(item.object, kClass);
  return item;
}

RegionBuilder::ListItem RegionBuilder::item_at(const Known& list, ValueId index) {
  const unsigned kinds = kinds_of(list);
  if (list.step == 0 || (list.step == 1 && kinds == 0)) throw Unknown{"an item of a list of what are no numbers"};
  ListItem item = object_at(list, index);
  item.kinds = kinds;
  return item;
}

ValueId RegionBuilder::is_of(const ListItem& item, ListItems kind) {
  const PyTypeObject& type = kind == kFloats ? PyFloat_Type : kind == kInts ? PyLong_Type : PyBool_Type;
  return op(Op::eq, {item.type, integer(address_of(&type))});
}

Known RegionBuilder::list_in(const Known& list, const ListItem& item) {
  leave_if(op(Op::ne, {item.type, integer(address_of(&PyList_Type))}));
  Known inner = list;
  inner.kind = Known::Kind::InnerList;
  inner.value = item.object;
  --inner.step;
  return inner;
}

Known RegionBuilder::likeliest_item(const Known& list, ValueId index) {
  const ListItem item = item_at(list, index);
  if (list.step > 1) return list_in(list, item);
  const ListItems kind = item.kinds & kFloats ? kFloats : item.kinds & kInts ? kInts : kBools;
  leave_if(op(Op::logical_not, {is_of(item, kind)}));
  return number_in(item.object, kind);
}

void RegionBuilder::push_item(const Known& list, ValueId index, bool takes) {
  const ListItem item = item_at(list, index);
  const auto finish = [&](Known known) {
    if (takes) {
      leave_if(op(Op::logical_not, {run("drop_last", {list.value})}));
      ++state_.gone;
    }
    push(std::move(known));
  };
  if (list.step > 1) return finish(list_in(list, item));
  std::vector<ListItems> kinds;
  for (ListItems kind : {kFloats, kInts, kBools})
    if (item.kinds & kind) kinds.push_back(kind);
  // A way for each type; what is of none leaves the region.
  if (kinds.size() > 1) ++entrances(at_ + 1);
  for (std::size_t i = 0; i + 1 < kinds.size(); ++i) {
    look_at_reports();
    region::Terminator terminator;
    terminator.kind = region::Terminator::Kind::Branch;
    terminator.condition = is_of(item, kinds[i]);
    terminator.yes.block = int(region_.blocks.size());
    terminator.no.block = terminator.yes.block + 1;
    region_.blocks.resize(region_.blocks.size() + 2);
    block().end = terminator;
    const State state = state_;
    const auto computed = computed_;
    block_ = terminator.yes.block;
    finish(number_in(item.object, kinds[i]));
    jump(at_ + 1, state_);
    state_ = state;
    computed_ = computed;
    block_ = terminator.no.block;
  }
  leave_if(op(Op::logical_not, {is_of(item, kinds.back())}));
  finish(number_in(item.object, kinds.back()));
  if (kinds.size() > 1) jump(at_ + 1, state_);
}

/// Counted from the front; out of range leaves the region. True is 1.
ValueId RegionBuilder::list_index(const Known& list, const Known& index) {
  const bool is_bool = index.is_number() && index.boxing == Boxing::Bool;
  return counted_index(is_bool ? python_int(as_int(index)) : index, length(list));
}

unsigned RegionBuilder::kinds_in(int place, std::set<int>& seen) const {
  if (!seen.insert(place).second) return 0;
  const auto known = lists_.find(place);
  unsigned kinds = known == lists_.end() ? 0 : known->second.kinds;
  for (const Findings* of : {&met_, &found_}) {
    const auto stored = of->stored.find(place);
    if (stored == of->stored.end()) continue;
    kinds |= stored->second.kinds;
    for (int list : stored->second.lists) kinds |= kinds_in(list, seen);
  }
  return kinds;
}

/// Of a list that is empty, by what comes into it.
int RegionBuilder::depth_of(int place, int otherwise) const {
  const auto stored = met_.stored.find(place);
  return stored == met_.stored.end() ? otherwise : std::max(otherwise, stored->second.depth);
}

std::string RegionBuilder::stored_in_list(const Known& list, const Known& item) {
  if (!item.is_list() && !item.is_number()) throw Unknown{"an item of a list that is no number"};
  expect_none_pending();
  if (item.is_number() && is_float(item.dtype)) leave_if(op(Op::is_nan, {item.value}));  // see number_in
  if (item.is_numpy()) return "_numpy_" + std::string(fj::name(item.dtype));
  const Boxing boxing = item.boxing;
  Findings::Stored& stored = found_.stored[list.place];
  if (item.is_list()) {
    note_list_maker();
    const int level = lists_.at(list.place).depth - int(list.step);
    stored.depth = std::max(stored.depth, std::max(level, 0) + 1 + int(item.step));
    if (item.place != list.place) stored.lists.insert(item.place);
    return "_list";
  }
  if (list.step == 1) stored.kinds |= boxing == Boxing::Float ? kFloats : boxing == Boxing::Int ? kInts : kBools;
  return "_" + std::string(fj::name(item.dtype));
}

void RegionBuilder::put(const Known& list, const Known& index, const Known& item) {
  note_writer();
  const ValueId at = list_index(list, index);
  const std::string type = stored_in_list(list, item);
  const auto put_object = [&] { leave_if(op(Op::logical_not, {run("put" + type, {list.value, at, item.value})})); };
  if (is_there(item)) {
    leave_if(op(Op::logical_not, {run("put_item", {list.value, at, item.item})}));
    ++state_.gone;
    return;
  }
  ++state_.gone;
  if (item.is_list() || item.boxing == Boxing::Int || item.is_numpy()) return put_object();
  const ListItem before = object_at(list, at);
  if (item.boxing == Boxing::Bool) {
    const auto place = [&](PyObject* object) { return integer(address_of(object) / kWord); };
    const ValueId now = op(Op::where, {item.value, place(Py_True), place(Py_False)});
    return either(op(Op::eq, {before.object, now}), [] {}, put_object);
  }
  // As PythonLists::put does.
  const ValueId alone = op(Op::eq, {word(before.object, kReferences), integer(1)});
  either(op(Op::bit_and, {is_of(before, kFloats), alone}), [&] {
    region::Instruction store{};
    store.code = Code::Store;
    store.memory = heap(DType::F64);
    store.operands = {op(Op::add, {before.object, integer(kReal)}), item.value};
    store.apart = apart_from_floats();
    block().body.push_back(store);
  }, put_object);
  forget_items(true);
}

void RegionBuilder::append(const Known& list, const Known& item) {
  note_writer();
  const std::string type = stored_in_list(list, item);
  const bool same = is_there(item);
  leave_if(op(Op::logical_not, {run("append" + (same ? "_item" : type), {list.value, same ? item.item : item.value})}));
}

unsigned RegionBuilder::kinds_of(const Known& list) const {
  std::set<int> seen;
  return kinds_in(list.place, seen);
}

/// Notes that this instruction makes lists, or takes them from others, which last until the region is left; its place.
int RegionBuilder::note_list_maker() {
  for (const Context* context = context_, *called = nullptr; context != nullptr; context = context->caller) {
    const int next = -1 - int(found_.list_makers.size());
    found_.list_makers.try_emplace({context->object, called == nullptr ? at_ : called->call}, next);
    called = context;
  }
  return found_.list_makers.at({context_->object, at_});
}

/// A list that the region has made, in this instruction.
Known RegionBuilder::made_list(ValueId address, int depth, unsigned kinds) {
  Known made;
  made.kind = Known::Kind::InnerList;
  made.place = note_list_maker();
  made.value = address;
  made.step = depth_of(made.place, depth);
  ListFacts& facts = lists_[made.place];
  facts.kinds |= kinds;
  facts.depth = std::max(facts.depth, int(made.step));
  made_.has_lists = true;
  leave_if(op(Op::eq, {address, integer(0)}));
  return made;
}

Known RegionBuilder::build_list(const std::vector<Known>& items) {
  int depth = 1;
  for (const Known& item : items) {
    if (!item.is_list() && !item.is_number()) throw Unknown{"a list of what is no number"};
    depth = std::max(depth, item.is_list() ? int(item.step) + 1 : 1);
  }
  const Known made = made_list(run("make_list", {integer(std::int64_t(items.size()))}), depth, 0);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string type = stored_in_list(made, items[i]);
    const bool same = is_there(items[i]);
    const ValueId at = integer(std::int64_t(i)), item = same ? items[i].item : items[i].value;
    leave_if(op(Op::logical_not, {run("put" + (same ? "_item" : type), {made.value, at, item})}));
    ++state_.gone;
  }
  return made;
}

/// `[1, 2, 3]` as CPython makes it: a list without items, which gets those of a tuple.
void RegionBuilder::extend_new_list(int depth) {
  const Known tuple = pop();
  const Known list = resolve(peek(depth));
  const FjInstr* const instr = context_->code->instrs + at_;
  const bool is_new =
      at_ >= 2 && instr[-1].opcode == FJ_LOAD_CONST && instr[-2].opcode == FJ_BUILD_LIST && instr[-2].arg == 0;
  const auto items = tuple_items(tuple);
  if (!is_new || !items || !list.is_list() || tuple.kind != Known::Kind::Object)
    throw Unknown{"a list that another one is added to"};
  for (const Known& item : *items) (void)stored_in_list(list, item);
  const ValueId address = integer(address_of(tuple.object.get()) / kWord);
  leave_if(op(Op::logical_not, {run("extend_list", {list.value, address})}));
}

Known RegionBuilder::repeated(const Known& list, const Known& times) {
  if (times.boxing == Boxing::Float || times.is_numpy()) throw Unknown{"a list times what is no int"};
  return made_list(run("repeat_list", {list.value, as_int(times)}), int(list.step), kinds_of(list));
}

Known RegionBuilder::joined(const Known& a, const Known& b) {
  const ValueId made = run("join_lists", {a.value, b.value});
  return made_list(made, int(std::max(a.step, b.step)), kinds_of(a) | kinds_of(b));
}

Known RegionBuilder::list_part(const Known& list, const Known& slice) {
  const std::optional<std::int64_t> step =
      is_none(slice.items[2]) ? std::optional<std::int64_t>(1) : known_int(slice.items[2]);
  if (step != 1) throw Unknown{"a part of a list whose step is not 1"};
  ValueId start;
  const Axis taken = sliced(slice, {length(list), {}}, start);
  if (!start.valid()) start = integer(0);
  const ValueId stop = op(Op::add, {start, taken.size});
  return made_list(run("slice_list", {list.value, start, stop}), int(list.step), kinds_of(list));
}

bool RegionBuilder::list_method(const std::string& name, const Known& list, const std::vector<Known>& arguments) {
  if (name == "append" && arguments.size() == 1) {
    append(list, arguments[0]);
    push(object(Py_None));
    return true;
  }
  if (name == "copy" && arguments.empty()) {
    push(made_list(run("slice_list", {list.value, integer(0), length(list)}), int(list.step), kinds_of(list)));
    return true;
  }
  if (name != "pop" || !arguments.empty()) return false;
  if (list.step > 1) note_list_maker();
  note_writer();
  const ValueId count = length(list);
  leave_if(op(Op::eq, {count, integer(0)}));
  push_item(list, op(Op::sub, {count, integer(1)}), true);
  return true;
}

}  // namespace fj
