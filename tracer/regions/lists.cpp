// Lists: read where they are, as CPython's own objects, and changed through RegionLists (runtime/region_library.h). The GIL
// is held, so that nobody else changes them while the region runs.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "cpython/objects.h"
#include "runtime/base/error.h"
#include "tracer/regions/region_builder.h"

namespace fj {

namespace {

// In words of 8 bytes from where an object begins.
constexpr std::int64_t kWord = 8;
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
    else if (PyList_CheckExact(item) && levels > 0) one = contents_of(item, levels - 1), ++one.depth;
    else return {0, 0};
    if (one.depth == 1 && PyList_CheckExact(item)) return {0, 0};
    if (depth.value_or(one.depth) != one.depth) return {0, 0};
    depth = one.depth;
    all.kinds |= one.kinds;
  }
  all.depth = depth.value_or(1);
  return all;
}

}  // namespace

bool list_ends_unseen(PyObject* list) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    PyObject* const item = PyList_GET_ITEM(list, i);
    if (!PyFloat_CheckExact(item) && !PyLong_CheckExact(item) && !PyBool_Check(item) && item != Py_None) return false;
  }
  return true;
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

/// The word of an object that begins at an address.
ValueId RegionBuilder::word(ValueId address, std::int64_t at) {
  region::Instruction load{};
  load.code = Code::Load;
  load.memory = heap(DType::I64);
  load.operands = {op(Op::add, {address, integer(at)})};
  load.result = region_.new_value(DType::I64);
  block().body.push_back(load);
  return load.result;
}

ValueId RegionBuilder::length(const Known& list) { return word(list.value, kSize); }

/// The int that is at an address, where `fits` holds: others have more than two digits.
ValueId RegionBuilder::int_in(ValueId object, ValueId& fits) {
  constexpr std::int64_t kBits = 30, kDigit = (std::int64_t(1) << kBits) - 1;
  const ValueId sign = word(object, kSign), digits = word(object, kDigits), zero = integer(0), two = integer(2);
  const bool tag = fj_int_has_tag();
  const ValueId count = tag ? op(Op::shift_right, {sign, integer(3)}) : op(Op::abs, {sign});
  const ValueId low = op(Op::bit_and, {digits, integer(kDigit)});
  const ValueId above = op(Op::bit_and, {op(Op::shift_right, {digits, integer(32)}), integer(kDigit)});
  const ValueId both = op(Op::bit_or, {low, op(Op::shift_left, {above, integer(kBits)})});
  const ValueId size = op(Op::where, {op(Op::eq, {count, two}), both, low});
  const ValueId negative = tag ? op(Op::eq, {op(Op::bit_and, {sign, integer(3)}), two}) : op(Op::lt, {sign, zero});
  const ValueId none = tag ? op(Op::eq, {op(Op::bit_and, {sign, integer(3)}), integer(1)}) : op(Op::eq, {sign, zero});
  fits = op(Op::le, {count, two});
  const ValueId value = op(Op::where, {negative, op(Op::sub, {zero, size}), size});
  return op(Op::where, {none, zero, value});
}

std::vector<std::pair<ValueId, Known>> RegionBuilder::items_at(const Known& list, ValueId index) {
  std::set<int> seen;
  const unsigned kinds = kinds_in(list.place, seen);
  if (list.step == 0 || (list.step == 1 && kinds == 0)) throw Unknown{"an item of a list of what are no numbers"};
  const ValueId items = op(Op::shift_right, {word(list.value, kItems), integer(3)});
  const ValueId object = op(Op::shift_right, {word(op(Op::add, {items, index}), 0), integer(3)});
  const ValueId type = word(object, kClass);
  const auto is = [&](PyTypeObject& of) { return op(Op::eq, {type, integer(address_of(&of))}); };
  if (list.step > 1) {
    leave_if(op(Op::logical_not, {is(PyList_Type)}));
    Known inner = list;
    inner.kind = Known::Kind::InnerList;
    inner.value = object;
    --inner.step;
    return {{constant(DType::Bool, true), inner}};
  }
  std::vector<std::pair<ValueId, Known>> made;
  ValueId any;
  const auto may_be = [&](ValueId condition, Known number) {
    any = any.valid() ? op(Op::bit_or, {any, condition}) : condition;
    made.emplace_back(condition, std::move(number));
  };
  if (kinds & kFloats) {
    region::Instruction load{};
    load.code = Code::Load;
    load.memory = heap(DType::F64);
    load.operands = {op(Op::add, {object, integer(kReal)})};
    load.result = region_.new_value(DType::F64);
    const ValueId is_float = is(PyFloat_Type);
    block().body.push_back(load);
    may_be(is_float, python_float(load.result));
  }
  if (kinds & kInts) {
    ValueId fits;
    const ValueId number = int_in(object, fits);
    may_be(op(Op::bit_and, {is(PyLong_Type), fits}), python_int(number));
  }
  if (kinds & kBools && made.size() < 2) {
    const ValueId holds = op(Op::eq, {object, integer(address_of(Py_True) / kWord)});
    may_be(is(PyBool_Type), python_bool(holds));
  }
  leave_if(op(Op::logical_not, {any}));
  return made;
}

/// Counted from the front; out of range leaves the region. True is 1.
ValueId RegionBuilder::list_index(const Known& list, const Known& index) {
  const bool is_bool = index.is_number() && index.boxing == Boxing::Bool;
  return counted_index(is_bool ? python_int(as_int(index)) : index, length(list));
}

void RegionBuilder::push_one_of(const std::vector<std::pair<ValueId, Known>>& items) {
  if (items.size() == 1) return push(items[0].second);
  fork(items[0].first, items[0].second, items[1].second);
}

/// The first of them; the others leave the region.
Known RegionBuilder::likeliest(const std::vector<std::pair<ValueId, Known>>& items) {
  if (items.size() > 1) leave_if(op(Op::logical_not, {items[0].first}));
  return items[0].second;
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
  if (!item.is_list() && (!item.is_number() || item.is_numpy()))
    throw Unknown{"an item of a list that is no number of Python's"};
  expect_own_function("a function that writes into a list");
  expect_none_pending();
  const Boxing boxing = item.boxing;
  Findings::Stored& stored = found_.stored[list.place];
  if (item.is_list()) {
    list_maker();
    const int level = lists_.at(list.place).depth - int(list.step);
    stored.depth = std::max(stored.depth, std::max(level, 0) + 1 + int(item.step));
    if (item.place != list.place) stored.lists.insert(item.place);
    return "_list";
  }
  if (list.step == 1) stored.kinds |= boxing == Boxing::Float ? kFloats : boxing == Boxing::Int ? kInts : kBools;
  return boxing == Boxing::Float ? "_f64" : boxing == Boxing::Int ? "_i64" : "_bool";
}

void RegionBuilder::put(const Known& list, const Known& index, const Known& item) {
  const ValueId at = list_index(list, index);
  const std::string type = stored_in_list(list, item);
  leave_if(op(Op::logical_not, {run("put" + type, {list.value, at, item.value})}));
}

/// Whether it has been.
ValueId RegionBuilder::appended(const Known& list, const Known& item) {
  return run("append" + stored_in_list(list, item), {list.value, item.value});
}

void RegionBuilder::append(const Known& list, const Known& item) {
  leave_if(op(Op::logical_not, {appended(list, item)}));
}

unsigned RegionBuilder::kinds_of(const Known& list) const {
  std::set<int> seen;
  return kinds_in(list.place, seen);
}

/// Notes that this instruction makes lists, or takes them from others, which last until the region is left.
int RegionBuilder::list_maker() {
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
  made.place = list_maker();
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
    if (!item.is_list() && (!item.is_number() || item.is_numpy())) throw Unknown{"a list of what is no number of Python's"};
    depth = std::max(depth, item.is_list() ? int(item.step) + 1 : 1);
  }
  expect_none_pending();
  const Known made = made_list(run("make_list", {}), depth, 0);
  for (const Known& item : items) leave_if(op(Op::logical_not, {appended(made, item)}));
  return made;
}

Known RegionBuilder::repeated(const Known& list, const Known& times) {
  if (times.boxing == Boxing::Float || times.is_numpy()) throw Unknown{"a list times what is no int"};
  return made_list(run("repeat_list", {list.value, as_int(times)}), int(list.step), kinds_of(list));
}

Known RegionBuilder::joined(const Known& a, const Known& b) {
  const Known made = made_list(run("join_lists", {a.value, b.value}), int(std::max(a.step, b.step)), 0);
  lists_.at(made.place).kinds |= kinds_of(a) | kinds_of(b);
  return made;
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
  if (list.step > 1) list_maker();
  expect_own_function("a function that takes from a list");
  const ValueId count = length(list);
  leave_if(op(Op::eq, {count, integer(0)}));
  const auto items = items_at(list, op(Op::sub, {count, integer(1)}));
  leave_if(op(Op::logical_not, {run("drop_last", {list.value})}));
  push_one_of(items);
  return true;
}

}  // namespace fj
