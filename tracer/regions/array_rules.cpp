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

/// Where the element or row begins that the indices name, and by how many axes they go.
std::pair<ValueId, int> RegionBuilder::offset(const Known& array, const std::vector<Known>& indices) {
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
  return {at, int(indices.size())};
}

Known RegionBuilder::element(const Known& array, const std::vector<Known>& indices) {
  const auto [at, used] = offset(array, indices);
  if (used == rank(array)) {
    region::Instruction load{};
    load.code = Code::Load;
    load.memory = facts(array).memory;
    load.operands = {at};
    load.result = region_.new_value(facts(array).dtype);
    block().body.push_back(load);
    return facts(array).bytes ? python_int(cast(load.result, DType::I64)) : numpy(load.result, facts(array).dtype);
  }
  Known row = array;
  row.kind = Known::Kind::Row;
  row.value = at;
  for (const Known& index : indices) row.items.push_back(index);
  return row;
}

void RegionBuilder::subscript() {
  const Known index = resolve(pop());
  Known container = resolve(pop());
  if (container.kind == Known::Kind::Object && PyTuple_CheckExact(container.object.get())) {
    Known items;
    items.kind = Known::Kind::Tuple;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(container.object.get()); ++i)
      items.items.push_back(literal(PyTuple_GET_ITEM(container.object.get(), i)));
    container = std::move(items);
  }
  if (container.kind == Known::Kind::Tuple) {
    const auto number = known_int(index);
    const std::int64_t count = std::int64_t(container.items.size());
    if (!number || *number >= count || *number < -count) throw Unknown{"an index of a tuple that is not known"};
    return push(container.items[std::size_t(*number < 0 ? *number + count : *number)]);
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
  const auto [at, used] = offset(container, indices_of(index));
  if (context_->caller != nullptr) throw Unknown{"a function that writes into an array"};
  if (facts(container).bytes) throw Unknown{"an assignment to bytes"};
  if (used != rank(container)) throw Unknown{"an assignment to a part of an array"};
  region::Instruction store{};
  store.code = Code::Store;
  store.memory = facts(container).memory;
  store.operands = {at, stored(value, facts(container).dtype)};
  made_.guards[facts(container).guard].writes = true;
  block().body.push_back(store);
}

Known RegionBuilder::iterator(const Known& iterable) {
  if (iterable.is_iterator()) return iterable;  // of which there is no other: variables hold none
  Known made;
  switch (iterable.kind) {
    case Known::Kind::Range:
      made = iterable;
      made.kind = Known::Kind::RangeIterator;
      return made;
    case Known::Kind::Object:
      if (!PyTuple_CheckExact(iterable.object.get())) throw Unknown{"a loop over what is neither a range nor an array"};
      made.kind = Known::Kind::TupleIterator;
      made.step = 0;
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(iterable.object.get()); ++i)
        made.items.push_back(literal(PyTuple_GET_ITEM(iterable.object.get(), i)));
      return made;
    case Known::Kind::Tuple:
      made = iterable;
      made.kind = Known::Kind::TupleIterator;
      made.step = 0;
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
      Known element = known.items[0];
      const ArrayFacts& of = facts(element);
      const ValueId stride = of.strides[element.items.size()];
      ValueId start = stride.valid() ? op(Op::mul, {known.items[1].value, stride}) : known.items[1].value;
      if (element.kind == Known::Kind::Row) start = op(Op::add, {element.value, start});
      if (rank(element) == 1) {
        region::Instruction load{};
        load.code = Code::Load;
        load.memory = of.memory;
        load.operands = {start};
        load.result = region_.new_value(of.dtype);
        block().body.push_back(load);
        return of.bytes ? python_int(cast(load.result, DType::I64)) : numpy(load.result, of.dtype);
      }
      element.kind = Known::Kind::Row;
      element.value = start;
      element.items.push_back(known.items[1]);
      return element;
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
