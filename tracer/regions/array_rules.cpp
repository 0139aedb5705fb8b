// Elements, rows and what goes through them.
#include "tracer/regions/region_builder.h"

namespace fj {

namespace {

/// The indices that a subscript names: one, or those of a tuple.
std::vector<Known> indices_of(const Known& index) {
  if (index.kind == Known::Kind::Tuple) return index.items;
  return {index};
}

}  // namespace

RegionBuilder::ArrayFacts& RegionBuilder::facts(const Known& array) { return arrays_.at(array.place); }

int RegionBuilder::rank(const Known& array) const {
  return int(arrays_.at(array.place).sizes.size()) - int(array.items.size());
}

ValueId RegionBuilder::size(const Known& array, int axis) {
  return facts(array).sizes[std::size_t(axis) + array.items.size()];
}

ValueId RegionBuilder::index(const Known& value) {
  if (!value.is_number() || value.dtype == DType::Bool || is_float(value.dtype) || value.dtype == DType::U64)
    throw Unknown{"an index that is no int"};
  return cast(value.value, DType::I64);
}

/// Where the element or row begins that the indices name.
ValueId RegionBuilder::offset(const Known& array, const std::vector<Known>& indices) {
  if (int(indices.size()) > rank(array) || indices.empty()) throw Unknown{"an index of another rank than the array's"};
  ValueId at = array.kind == Known::Kind::Row ? array.value : ValueId();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const ValueId asked = index(indices[i]), length = size(array, int(i));
    const ValueId counted = op(Op::where, {op(Op::lt, {asked, integer(0)}), op(Op::add, {asked, length}), asked});
    leave_if(op(Op::ge, {cast(counted, DType::U64), cast(length, DType::U64)}));
    const ValueId stride = facts(array).strides[i + array.items.size()];
    const ValueId part = stride.valid() ? op(Op::mul, {counted, stride}) : counted;
    at = at.valid() ? op(Op::add, {at, part}) : part;
  }
  return at;
}

Known RegionBuilder::element(const Known& array, const std::vector<Known>& indices) {
  return part_at(array, offset(array, indices), indices);
}

/// The element that begins there, or the row where the indices leave axes.
Known RegionBuilder::part_at(const Known& array, ValueId at, const std::vector<Known>& indices) {
  const ArrayFacts& of = facts(array);
  if (int(indices.size()) == rank(array)) {
    region::Instruction load{};
    load.code = Code::Load;
    load.memory = of.memory;
    load.operands = {at};
    load.result = region_.new_value(of.dtype);
    block().body.push_back(load);
    return of.bytes ? python_int(cast(load.result, DType::I64)) : numpy(load.result, of.dtype);
  }
  Known row = array;
  row.kind = Known::Kind::Row;
  row.value = at;
  for (const Known& index : indices) row.items.push_back(index);
  return row;
}

void RegionBuilder::subscript() {
  const Known index = resolve(pop());
  const Known container = resolve(pop());
  if (const auto items = tuple_items(container)) {
    const auto number = known_int(index);
    const std::int64_t count = std::int64_t(items->size());
    if (!number || *number >= count || *number < -count) throw Unknown{"an index of a tuple that is not known"};
    return push((*items)[std::size_t(*number < 0 ? *number + count : *number)]);
  }
  if (container.kind != Known::Kind::Array && container.kind != Known::Kind::Row)
    throw Unknown{"an element of what is no array"};
  if (facts(container).bytes && index.kind == Known::Kind::Tuple) throw Unknown{"an index that is no int"};
  push(element(container, indices_of(index)));
}

void RegionBuilder::store_subscript() {
  const Known index = resolve(pop());
  const Known container = resolve(pop());
  const Known value = pop_number();
  if (container.kind != Known::Kind::Array && container.kind != Known::Kind::Row)
    throw Unknown{"an assignment to an element of what is no array"};
  const std::vector<Known> indices = indices_of(index);
  const ValueId at = offset(container, indices);
  if (context_->caller != nullptr) throw Unknown{"a function that writes into an array"};
  if (facts(container).bytes) throw Unknown{"an assignment to bytes"};
  if (int(indices.size()) != rank(container)) throw Unknown{"an assignment to a part of an array"};
  region::Instruction store{};
  store.code = Code::Store;
  store.memory = facts(container).memory;
  store.operands = {at, stored(value, facts(container).dtype)};
  made_.guards[facts(container).guard].writes = true;
  block().body.push_back(store);
}

std::optional<std::vector<Known>> RegionBuilder::tuple_items(const Known& tuple) {
  constexpr std::size_t kLong = 16;
  const bool literals = tuple.kind == Known::Kind::Object && PyTuple_CheckExact(tuple.object.get());
  if (!literals && tuple.kind != Known::Kind::Tuple) return std::nullopt;
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
  switch (iterable.kind) {
    case Known::Kind::Range:
      made = iterable;
      made.kind = Known::Kind::RangeIterator;
      return made;
    case Known::Kind::Array: case Known::Kind::Row:
      made.kind = Known::Kind::Items;
      made.items = {iterable, python_int(integer(0))};
      return made;
    default: throw Unknown{"a loop over what is neither a range nor an array"};
  }
}

bool RegionBuilder::next_item(const FjInstr& instr, int at) {
  Known& iterator = peek(1);
  iterator = resolve(iterator);
  State over = state_;
  over.places.pop_back();
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
          const ValueId forwards = op(Op::gt, {step, integer(0)});
          goes_on.push_back(op(Op::where, {forwards, op(Op::lt, {next, end}), op(Op::gt, {next, end})}));
          of.items[0] = python_int(add_no_wrap(next, step));
        }
        return python_int(next);
      }
      case Known::Kind::Items: {
        const Known index = of.items[1];
        goes_on.push_back(op(Op::lt, {index.value, size(of.items[0], 0)}));
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
  Known moved = iterator;
  const Known item = step(step, moved);
  if (goes_on.empty()) throw Unknown{"a loop over nothing"};
  ValueId condition = goes_on[0];
  for (std::size_t i = 1; i < goes_on.size(); ++i) condition = op(Op::bit_and, {condition, goes_on[i]});
  // What an exhausted iterator leaves behind can be seen where several go together: that is CPython's.
  const bool several = goes_on.size() > 1;
  if (several) leave_if(op(Op::logical_not, {condition}));
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
  }
  block().end = std::move(terminator);
  block_ = body;
  auto loaded = [&](auto&& self, const Known& known) -> Known {
    if (known.kind != Known::Kind::Tuple) return known;
    if (known.place == -2) {
      // In range: the iterator has looked.
      const Known& array = known.items[0];
      const ValueId stride = facts(array).strides[array.items.size()], index = known.items[1].value;
      ValueId start = stride.valid() ? op(Op::mul, {index, stride}) : index;
      if (array.kind == Known::Kind::Row) start = op(Op::add, {array.value, start});
      return part_at(array, start, {known.items[1]});
    }
    Known made = known;
    for (Known& part : made.items) part = self(self, part);
    return made;
  };
  state_.places.back() = moved;
  push(loaded(loaded, item));
  jump(at + 1, state_);
  return false;
}

}  // namespace fj
