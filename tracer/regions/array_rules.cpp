// Arrays, their parts and what goes through them.
#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "tracer/regions/region_builder.h"

namespace fj {

namespace {

bool is_object(const Known& known, PyObject* object) {
  return known.kind == Known::Kind::Object && known.object.get() == object;
}

}  // namespace

RegionBuilder::ArrayFacts& RegionBuilder::facts(const Known& array) { return arrays_.at(array.place); }

/// The memory that is the whole heap, as elements of a dtype.
int RegionBuilder::heap(DType dtype) {
  const auto [known, is_new] = heaps_.try_emplace(dtype, int(region_.memories.size()));
  if (is_new) {
    region_.memories.push_back({"heap_" + std::string(fj::name(dtype)), dtype, true});
    made_.memories.push_back(-1);
  }
  return known->second;
}

DType RegionBuilder::dtype(const Known& array) {
  switch (array.kind) {
    case Known::Kind::Array: case Known::Kind::Tensor: return facts(array).dtype;
    case Known::Kind::View: return dtype(array.items[0]);
    case Known::Kind::Expression: return array.expression->dtype;
    default: return array.dtype;
  }
}

ArrayPlace RegionBuilder::layout(const Known& array) {
  const Sharing sharing(*this);
  ArrayPlace made;
  made.dtype = dtype(array);
  switch (array.kind) {
    case Known::Kind::Array: case Known::Kind::Tensor: {
      const ArrayFacts& of = facts(array);
      made.memory = of.memory;
      if (array.is_part_of_tensor()) {
        made.offset = array.value;
        for (std::size_t i = 0; i + 1 < array.items.size(); i += 2)
          made.axes.push_back({array.items[i].value, array.items[i + 1].value});
        return made;
      }
      for (std::size_t i = 0; i < of.sizes.size(); ++i) made.axes.push_back({of.sizes[i], of.strides[i]});
      return made;
    }
    case Known::Kind::Fresh: {
      made.memory = heap(made.dtype);
      made.offset = array.imaginary;
      for (const Known& size : array.items) made.axes.push_back({size.value, {}});
      for (std::size_t i = made.axes.size(); i-- > 1;) {
        const Axis& inner = made.axes[i];
        made.axes[i - 1].stride = inner.stride.valid() ? op(Op::mul, {inner.size, inner.stride}) : inner.size;
      }
      return made;
    }
    default: {
      FJ_CHECK(array.kind == Known::Kind::View, "an array in memory");
      made.memory = array.items[0].kind == Known::Kind::Fresh ? heap(made.dtype) : facts(array.items[0]).memory;
      made.offset = array.value;
      for (std::size_t i = 1; i + 1 < array.items.size(); i += 2)
        made.axes.push_back({array.items[i].value, array.items[i + 1].value});
      if (array.step == 1) made.axes.back().stride = {};
      return made;
    }
  }
}

int RegionBuilder::rank(const Known& array) {
  if (array.kind == Known::Kind::Expression) return int(array.expression->sizes.size());
  if (array.kind == Known::Kind::TensorNumber) return 0;
  return int(layout(array).axes.size());
}

ValueId RegionBuilder::size(const Known& array, int axis) {
  if (array.kind == Known::Kind::Expression) return array.expression->sizes[std::size_t(axis)];
  return layout(array).axes[std::size_t(axis)].size;
}

ValueId RegionBuilder::count(const std::vector<ValueId>& sizes) {
  const Sharing sharing(*this);
  ValueId made = sizes.empty() ? integer(1) : sizes[0];
  for (std::size_t i = 1; i < sizes.size(); ++i) made = op(Op::mul, {made, sizes[i]});
  return made;
}

/// The indices that a subscript names: one, or those of a tuple.
std::vector<Known> RegionBuilder::indices_of(const Known& index) {
  if (auto items = tuple_items(index)) return *items;
  return {index};
}

Known RegionBuilder::view(const Known& array, ValueId offset, const std::vector<Axis>& axes) {
  Known made;
  made.kind = Known::Kind::View;
  made.value = offset.valid() ? offset : integer(0);
  made.step = axes.back().stride.valid() ? 0 : 1;
  made.items.push_back(array.kind == Known::Kind::View ? array.items[0] : array);
  for (const Axis& axis : axes) {
    made.items.push_back(python_int(axis.size));
    made.items.push_back(python_int(step_of(axis)));
  }
  return made;
}

Known RegionBuilder::transposed(const Known& array) {
  const Sharing sharing(*this);
  const Known whole = computed(array);
  ArrayPlace of = layout(whole);
  std::reverse(of.axes.begin(), of.axes.end());
  return view(whole, of.offset, of.axes);
}

ValueId RegionBuilder::index(const Known& value) {
  if (value.is_number() && value.dtype == DType::U64 && !value.is_numpy()) return as_int(value);
  if (!value.is_number() || value.dtype == DType::Bool || is_float(value.dtype) || value.dtype == DType::U64)
    throw Unknown{"an index that is no int"};
  return cast(value.value, DType::I64);
}

/// Counted from the front; out of range leaves the region.
ValueId RegionBuilder::counted_index(const Known& known, ValueId size) {
  const ValueId asked = index(known);
  const ValueId counted = op(Op::where, {op(Op::lt, {asked, integer(0)}), op(Op::add, {asked, size}), asked});
  leave_if(op(Op::ge, {cast(counted, DType::U64), cast(size, DType::U64)}));
  return counted;
}

ValueId RegionBuilder::moved(ValueId offset, ValueId index, ValueId stride) {
  const ValueId part = stride.valid() ? op(Op::mul, {index, stride}) : index;
  return offset.valid() ? op(Op::add, {offset, part}) : part;
}

/// What a slice leaves of an axis, by the rules of Python's slices.
Axis RegionBuilder::sliced(const Known& slice, const Axis& axis, ValueId& offset) {
  const auto is_none = [](const Known& known) { return is_object(known, Py_None); };
  const std::optional<std::int64_t> step =
      is_none(slice.items[2]) ? std::optional<std::int64_t>(1) : known_int(slice.items[2]);
  if (!step || *step == 0 || std::abs(*step) > (1 << 20)) throw Unknown{"a slice whose step is not known"};
  const ValueId zero = integer(0), size = axis.size;
  const bool forwards = *step > 0;
  const ValueId least = forwards ? zero : integer(-1);
  const ValueId most = forwards ? size : op(Op::sub, {size, integer(1)});
  const auto bound = [&](const Known& known, ValueId otherwise) {
    if (is_none(known)) return otherwise;
    const ValueId asked = index(known);
    const auto constant = known_int(known);
    const auto below = [&](ValueId value) { return op(Op::where, {op(Op::gt, {value, most}), most, value}); };
    const auto above = [&](ValueId value) { return op(Op::where, {op(Op::lt, {value, least}), least, value}); };
    const ValueId back = op(Op::add, {asked, size});
    if (constant) return *constant < 0 ? above(back) : below(asked);
    return op(Op::where, {op(Op::lt, {asked, zero}), above(back), below(asked)});
  };
  const ValueId start = bound(slice.items[0], forwards ? zero : most);
  const ValueId stop = bound(slice.items[1], forwards ? size : least);
  const std::int64_t stride = std::abs(*step);
  ValueId length = forwards ? op(Op::sub, {stop, start}) : op(Op::sub, {start, stop});
  if (stride != 1) length = op(Op::floor_div, {op(Op::add, {length, integer(stride - 1)}), integer(stride)});
  length = op(Op::where, {op(Op::lt, {length, zero}), zero, length});
  if (!is_none(slice.items[0]) || !forwards) offset = moved(offset, start, axis.stride);
  Axis made{length, axis.stride};
  if (*step == 1) return made;
  // Of nothing NumPy takes each element.
  const ValueId taken = op(Op::where, {op(Op::eq, {length, zero}), integer(1), integer(*step)});
  made.stride = axis.stride.valid() ? op(Op::mul, {axis.stride, taken}) : taken;
  return made;
}

Known RegionBuilder::loaded(const Known& array, ValueId offset) {
  const ArrayPlace of = layout(array);
  region::Instruction load{};
  load.code = Code::Load;
  load.memory = of.memory;
  load.operands = {offset.valid() ? offset : integer(0)};
  load.result = region_.new_value(of.dtype);
  block().body.push_back(load);
  return is_bytes(array) ? python_int(cast(load.result, DType::I64)) : numpy(load.result, of.dtype);
}

/// An element where the indices name all axes, else the part that they leave.
Known RegionBuilder::part(const Known& array, const std::vector<Known>& indices) {
  if (array.kind == Known::Kind::Expression) return part(computed(array), indices);
  if (indices.size() == 1 && indices[0].is_array()) return gathered(array, indices[0]);
  const ArrayPlace of = layout(array);
  std::size_t taken = 0;
  bool rest = false;
  for (const Known& index : indices) {
    const bool ellipsis = is_object(index, Py_Ellipsis);
    if (ellipsis && std::exchange(rest, true)) throw Unknown{"an index with more than one `...`"};
    if (!ellipsis && !is_object(index, Py_None)) ++taken;
  }
  if (taken > of.axes.size() || indices.empty()) throw Unknown{"an index of another rank than the array's"};
  ValueId offset = of.offset;
  std::vector<Axis> left;
  std::size_t axis = 0;
  bool parts = rest;
  for (const Known& known : indices) {
    if (is_object(known, Py_None)) {
      left.push_back({integer(1), integer(0)});
    } else if (is_object(known, Py_Ellipsis)) {
      for (std::size_t i = taken; i < of.axes.size(); ++i) left.push_back(of.axes[axis++]);
    } else if (known.kind == Known::Kind::Slice) {
      left.push_back(sliced(known, of.axes[axis++], offset));
    } else {
      const Axis& at = of.axes[axis++];
      offset = moved(offset, counted_index(known, at.size), at.stride);
    }
  }
  for (; axis < of.axes.size(); ++axis) left.push_back(of.axes[axis]);
  if (!left.empty() && is_bytes(array)) throw Unknown{"a part of bytes"};
  if (left.empty() && parts) throw Unknown{"an array without axes"};
  return left.empty() ? loaded(array, offset) : view(array, offset, left);
}

/// The elements that an array of integers names.
Known RegionBuilder::gathered(const Known& array, const Known& indices) {
  if (!is_integer(dtype(indices)) || dtype(indices) == DType::U64 || rank(indices) != 1 || rank(array) != 1 ||
      is_bytes(array) || is_bytes(indices))
    throw Unknown{"an index that is an array of such a type"};
  const bool as_it_is = indices.kind != Known::Kind::Expression && dtype(indices) == DType::I64;
  const Known numbers = as_it_is ? indices : temporary(cast(expression(indices), DType::I64));
  const ArrayPlace from = layout(array), at = layout(numbers);
  const Known made = fresh(from.dtype, {at.axes[0].size});
  const ValueId wrong = run("gather", {address(from), step_of(from.axes[0]), from.axes[0].size, address(at),
                                       step_of(at.axes[0]), at.axes[0].size,
                                       integer(std::int64_t(size_in_bytes(from.dtype))), made.value});
  leave_if(op(Op::ne, {wrong, integer(0)}));
  return made;
}

void RegionBuilder::subscript(const Known& container, const Known& index) {
  const Sharing sharing(*this);
  if (const auto items = tuple_items(container)) {
    const auto number = known_int(index);
    const std::int64_t count = std::int64_t(items->size());
    if (!number || *number >= count || *number < -count) throw Unknown{"an index of a tuple that is not known"};
    return push((*items)[std::size_t(*number < 0 ? *number + count : *number)]);
  }
  if (container.is_list() && index.kind == Known::Kind::Slice) return push(list_part(container, index));
  if (container.is_list()) return push_item(container, list_index(container, index));
  if (container.is_tensor()) return push(tensor_part(container, indices_of(index)));
  if (!container.is_array()) throw Unknown{"an element of what is no array"};
  if (is_bytes(container) && tuple_items(index)) throw Unknown{"an index that is no int"};
  push(part(container, indices_of(index)));
}

void RegionBuilder::store(const ArrayPlace& to, ValueId offset, ValueId value, int apart) {
  look_at_reports();
  region::Instruction store{};
  store.code = Code::Store;
  store.memory = to.memory;
  store.operands = {offset.valid() ? offset : integer(0), value};
  store.apart = apart;
  block().body.push_back(store);
}

/// The function that is being run stores something, which is done once.
void RegionBuilder::note_writer() {
  for (const Context* context = context_; context->caller != nullptr; context = context->caller)
    found_.writers.insert(context->object);
}

/// The region writes into the array: what is not computed yet may read it.
void RegionBuilder::written(const Known& array) {
  note_writer();
  if (is_bytes(array)) throw Unknown{"an assignment to bytes"};
  const Known& base = array.kind == Known::Kind::View ? array.items[0] : array;
  if (base.kind == Known::Kind::Array) made_.guards[facts(base).guard].writes = true;
  expect_none_pending();
}

void RegionBuilder::store_subscript(const Known& container, const Known& index, const Known& value) {
  const Sharing sharing(*this);
  if (container.is_list()) return put(container, index, value);
  if (container.is_tensor()) return store_element(container, indices_of(index), value);
  if (!container.is_array() || container.kind == Known::Kind::Expression)
    throw Unknown{"an assignment to an element of what is no array"};
  const ArrayPlace of = layout(container);
  const std::vector<Known> indices = indices_of(index);
  ValueId offset = of.offset;
  if (indices.size() == of.axes.size() &&
      std::all_of(indices.begin(), indices.end(), [](const Known& known) { return known.is_number(); })) {
    if (!value.is_number()) throw Unknown{"an element that becomes what is no number"};
    for (std::size_t i = 0; i < indices.size(); ++i)
      offset = moved(offset, counted_index(indices[i], of.axes[i].size), of.axes[i].stride);
    const ValueId element = stored(value, of.dtype);
    written(container);
    return store(of, offset, element);
  }
  if (std::any_of(indices.begin(), indices.end(), [](const Known& known) { return known.is_array(); }))
    throw Unknown{"an assignment to elements that an array names"};
  assign(part(container, indices), value);
}

std::optional<std::vector<Known>> RegionBuilder::tuple_items(const Known& tuple) {
  constexpr std::size_t kLong = 16;
  const bool literals = tuple.kind == Known::Kind::Object && PyTuple_CheckExact(tuple.object.get());
  if (!literals && tuple.kind != Known::Kind::Tuple && tuple.kind != Known::Kind::Sizes) return std::nullopt;
  const std::size_t count = literals ? std::size_t(PyTuple_GET_SIZE(tuple.object.get())) : tuple.items.size();
  if (count > kLong) throw Unknown{"a long tuple"};
  if (!literals) return tuple.items;
  std::vector<Known> items;
  for (std::size_t i = 0; i < count; ++i) items.push_back(literal(PyTuple_GET_ITEM(tuple.object.get(), Py_ssize_t(i))));
  return items;
}

Known RegionBuilder::iterator(const Known& iterable) {
  if (iterable.is_iterator()) return iterable;  // of which there is no other: variables hold none
  Known made;
  if (auto items = tuple_items(iterable)) {
    made.kind = Known::Kind::TupleIterator;
    made.step = 0;
    made.items = std::move(*items);
    return made;
  }
  if (iterable.kind == Known::Kind::Range) {
    made = iterable;
    made.kind = Known::Kind::RangeIterator;
    return made;
  }
  const bool axes = iterable.is_array() || (iterable.is_tensor() && rank(iterable) > 0);
  if (!axes && !iterable.is_list()) throw Unknown{"a loop over what is neither a range nor an array"};
  made.kind = Known::Kind::Items;
  made.items = {iterable.is_array() ? computed(iterable) : iterable, python_int(integer(0))};
  return made;
}

bool RegionBuilder::next_item(const FjInstr& instr, int at) {
  const int entries = fj_iterator_entries();
  Known& iterator = peek(entries);
  iterator = resolve(iterator);
  State over = state_;
  over.places.resize(over.places.size() - std::size_t(entries));
  if (iterator.kind == Known::Kind::TupleIterator) {
    // Each pass is a block of its own.
    if (std::size_t(iterator.step) == iterator.items.size()) {
      jump(instr.arg, std::move(over));
      return false;
    }
    const Known item = iterator.items[std::size_t(iterator.step++)];
    push(item);
    return true;
  }
  // Of a zip the first that ends ends it, when those before it have gone on: only zips of which all go on are followed.
  std::vector<ValueId> goes_on;
  auto step = [&](auto&& self, Known& of) -> Known {
    switch (of.kind) {
      case Known::Kind::RangeIterator: {
        const ValueId next = of.items[0].value;
        const ValueId end = of.items[1].value;
        if (of.step != 0) {
          goes_on.push_back(op(of.step > 0 ? Op::lt : Op::gt, {next, end}));
          of.items[0] = python_int(add_no_wrap(next, integer(of.step)));
        } else {
          const ValueId step = of.items[2].value;
          const ValueId before = op(Op::lt, {next, end});
          const auto either_way = [&] {
            return op(Op::where, {op(Op::gt, {step, integer(0)}), before, op(Op::gt, {next, end})});
          };
          goes_on.push_back(of.forwards ? before : either_way());
          of.items[0] = python_int(add_no_wrap(next, step));
        }
        return python_int(next);
      }
      case Known::Kind::Items: {
        const Known index = of.items[1];
        const Known& over = of.items[0];
        goes_on.push_back(op(Op::lt, {index.value, over.is_list() ? length(over) : size(over, 0)}));
        of.items[1] = python_int(add_no_wrap(index.value, integer(1)));
        // The element is loaded where there is one: behind the branch.
        Known later;
        later.kind = Known::Kind::Tuple;
        later.place = -2;
        later.items = {of.items[0], index};
        return later;
      }
      case Known::Kind::Enumerate: {
        const ValueId count = of.items[1].value;
        Known item = self(self, of.items[0]);
        of.items[1] = python_int(checked(Code::CheckedAdd, count, integer(1)));
        Known pair;
        pair.kind = Known::Kind::Tuple;
        pair.items = {python_int(count), std::move(item)};
        return pair;
      }
      case Known::Kind::Zip: {
        Known made;
        made.kind = Known::Kind::Tuple;
        for (Known& item : of.items) made.items.push_back(self(self, item));
        return made;
      }
      default: throw Unknown{"a loop over what is neither a range nor an array"};
    }
  };
  Known gone_on = iterator;
  const Known item = step(step, gone_on);
  if (goes_on.empty()) throw Unknown{"a loop over nothing"};
  ValueId condition = goes_on[0];
  for (std::size_t i = 1; i < goes_on.size(); ++i) condition = op(Op::bit_and, {condition, goes_on[i]});
  // What an exhausted iterator leaves behind can be seen where several go together: that is CPython's.
  const bool several = goes_on.size() > 1;
  if (several) leave_if(op(Op::logical_not, {condition}));
  look_at_reports();
  region::Terminator terminator;
  terminator.kind = region::Terminator::Kind::Branch;
  terminator.condition = condition;
  const int body = int(region_.blocks.size());
  region_.blocks.emplace_back();
  terminator.yes.block = body;
  if (several) {
    terminator.kind = region::Terminator::Kind::Jump;
    terminator.condition = {};
  } else {
    terminator.no = target(instr.arg, over);
    if (is_header(at) && !is_inside(instr.arg))
      made_.ends.push_back(region_.blocks[std::size_t(terminator.no.block)].end.leave.exit);
  }
  block().end = std::move(terminator);
  block_ = body;
  auto there = [&](auto&& self, const Known& known) -> Known {
    if (known.kind != Known::Kind::Tuple) return known;
    if (known.place == -2) {
      // In range: the iterator has looked.
      const Known& array = known.items[0];
      if (array.is_list()) return likeliest_item(array, known.items[1].value);
      ArrayPlace of = layout(array);
      const ValueId start = moved(of.offset, known.items[1].value, of.axes[0].stride);
      of.axes.erase(of.axes.begin());
      if (array.is_tensor()) return tensor_at(array, start, of.axes, true);
      return of.axes.empty() ? loaded(array, start) : view(array, start, of.axes);
    }
    Known made = known;
    for (Known& part : made.items) part = self(self, part);
    return made;
  };
  peek(entries) = gone_on;
  if (item.place == -2 && item.items[0].is_list()) {
    push_item(item.items[0], item.items[1].value);
    if (ended_) return false;
  } else {
    push(there(there, item));
  }
  jump(at + 1, state_);
  return false;
}

}  // namespace fj
