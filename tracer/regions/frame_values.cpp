// What the frame holds where a region is entered: numbers, arrays, iterators, and what has to be asked of them.
#include "tracer/regions/region_builder.h"

#include "arrays/arrays.h"
#include "cpython/objects.h"

namespace fj {

IteratorState read_iterator(PyObject* object) {
  const FjIterator found = fj_iterator(object);
  switch (found.kind) {
    case FJ_ITERATOR_RANGE: {
      const auto range = range_position(object);
      if (!range) return {};
      return {IteratorState::Kind::Range, range->next, range->end, range->step, nullptr};
    }
    case FJ_ITERATOR_ITEMS:
      if (Py_TYPE(object) == &PyTupleIter_Type) {
        PyObject* const rows = found.over;
        const bool tensors = rows != nullptr && PyTuple_GET_SIZE(rows) > 0 &&
                             array_library(PyTuple_GET_ITEM(rows, 0)) == Library::Torch;
        if (!tensors) return {};
        return {IteratorState::Kind::Rows, found.next, 0, 1, rows};
      }
      return {IteratorState::Kind::Items, found.next, 0, 1, found.over};
    case FJ_ITERATOR_ENUMERATE: return {IteratorState::Kind::Enumerate, found.next, 0, 1, found.over};
    case FJ_ITERATOR_ZIP: return {IteratorState::Kind::Zip, 0, 0, 1, found.over};
    default: return {};
  }
}

ValueId RegionBuilder::input(RegionInput::Kind kind, int place, DType dtype, int axis, bool natural) {
  const ValueId value = region_.new_value(dtype);
  region_.inputs.push_back(value);
  if (kind == RegionInput::Kind::Size || (kind == RegionInput::Kind::Position && natural))
    region_.natural.push_back(value);
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
  const auto position = [&] {
    const ValueId value = input(RegionInput::Kind::Position, place, DType::I64, 0, guard.natural);
    set_hint(value, state.position);
    return python_int(value);
  };
  const auto child = [&](std::size_t i) {
    Known entry;
    entry.kind = Known::Kind::Entry;
    entry.place = reach(ReachedPlace::How::Iterated, place, int(i), state.item(i));
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
      set_hint(made.items.back().value, state.end);
      return made;
    case IteratorState::Kind::Items:
      made.kind = Known::Kind::Items;
      guard.kind = RegionGuard::Kind::Items;
      made_.guards.push_back(guard);
      made.items.push_back(child(0));
      if (made.items[0].kind != Known::Kind::Array && made.items[0].kind != Known::Kind::List)
        throw Unknown{"an iterator over what is neither an array nor a list"};
      made.items.push_back(position());
      return made;
    case IteratorState::Kind::Rows: {
      const Ref<> rows = joined_rows(state.over, state.position);
      if (!rows) throw Unknown{"an iterator over tensors that are not the rows of one"};
      made.kind = Known::Kind::Items;
      guard.kind = RegionGuard::Kind::Rows;
      made_.guards.push_back(guard);
      Known entry;
      entry.kind = Known::Kind::Entry;
      entry.place = reach(ReachedPlace::How::Iterated, place, 0, rows.get());
      made.items.push_back(resolve(entry));
      if (!made.items[0].is_tensor()) throw Unknown{"an iterator over tensors of such a type"};
      made.items.push_back(position());
      return made;
    }
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
      guard.rank = int(state.count());
      made_.guards.push_back(guard);
      for (std::size_t i = 0; i < state.count(); ++i) made.items.push_back(child(i));
      break;
  }
  for (const Known& item : made.items)
    if (!item.is_number() && item.kind != Known::Kind::RangeIterator && item.kind != Known::Kind::Items &&
        item.kind != Known::Kind::Zip && item.kind != Known::Kind::Enumerate)
      throw Unknown{"an iterator over what is neither a range nor an array"};
  return made;
}

bool are_tensors_plain() { return torch_modes() == 0 && !torch_observed(); }

/// An array, or bytes, whose memory the region works on.
Known RegionBuilder::memory(int place, RegionGuard guard, bool bytes) {
  ArrayFacts facts;
  facts.dtype = guard.dtype;
  facts.bytes = bytes;
  for (int axis = 0; axis < guard.rank; ++axis) {
    facts.sizes.push_back(input(RegionInput::Kind::Size, place, DType::I64, axis));
    const bool dense = guard.dense && axis + 1 == guard.rank;
    facts.strides.push_back(dense ? ValueId() : input(RegionInput::Kind::Stride, place, DType::I64, axis));
  }
  const ArrayInfo info = bytes ? ArrayInfo{} : describe(object_at(place));
  for (std::size_t axis = 0; axis < info.shape.size(); ++axis) {
    set_hint(facts.sizes[axis], info.shape[axis]);
    if (facts.strides[axis].valid()) set_hint(facts.strides[axis], info.strides[axis]);
  }
  facts.memory = int(region_.memories.size());
  region_.memories.push_back({"m" + std::to_string(facts.memory), guard.dtype});
  made_.memories.push_back(place);
  facts.guard = made_.guards.size();
  made_.guards.push_back(std::move(guard));
  arrays_.emplace(place, std::move(facts));
  Known made;
  made.kind = Known::Kind::Array;
  made.place = place;
  return made;
}

PyObject* RegionBuilder::named(PyObject* names, PyObject* name) {
  PyObject* const value = PyDict_GetItemWithError(names, name);
  if (value == nullptr) PyErr_Clear();
  else if (fj_is_lazy_import(value)) throw Unknown{"an import that waits for its first use"};
  RegionGuard guard{};
  guard.kind = RegionGuard::Kind::Name;
  guard.names = Ref<>::borrow(names);
  guard.object = Ref<>::borrow(name);
  guard.value = Ref<>::borrow(value);
  made_.guards.push_back(std::move(guard));
  return value;
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
    const ValueId value = input(RegionInput::Kind::Number, place, dtype);
    if (boxing == Boxing::Int && dtype == DType::I64) set_hint(value, PyLong_AsLongLong(object));
    return number(boxing, dtype, value);
  };
  if (PyLong_CheckExact(object)) {
    int overflow = 0;
    (void)PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow == 0) return is_number(Boxing::Int, DType::I64);
    const bool fits = is_unsigned_int(object);
    return fits ? is_number(Boxing::Int, DType::U64) : made;
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
  if (PyList_CheckExact(object)) return list_at(place);
  if (PyBytes_CheckExact(object)) {
    guard.kind = RegionGuard::Kind::Bytes;
    guard.dtype = DType::U8;
    guard.rank = 1;
    guard.dense = true;
    return memory(place, std::move(guard), true);
  }
  if (array_library(object) == Library::Numpy) {
    const ArrayInfo info = describe(object);
    ArrayView view;
    if (!info.unsupported.empty() || is_complex(info.dtype) || is_half(info.dtype) || info.shape.empty() ||
        !read_numpy(object, view) || !view.aligned)
      return made;
    guard.kind = RegionGuard::Kind::Array;
    guard.dtype = info.dtype;
    guard.rank = int(info.shape.size());
    guard.dense = info.strides.back() == 1;
    return memory(place, std::move(guard), false);
  }
  if (array_library(object) == Library::Torch && are_tensors_plain()) {
    const ArrayInfo info = describe(object);
    ArrayView view;
    if (!info.unsupported.empty() || is_complex(info.dtype) || is_half(info.dtype) || info.requires_grad ||
        info.inference || info.device != kHost || !read_torch(object, view) || !view.aligned)
      return made;
    guard.kind = RegionGuard::Kind::Tensor;
    guard.dtype = info.dtype;
    guard.rank = int(info.shape.size());
    guard.dense = !info.strides.empty() && info.strides.back() == 1;
    guard.keys = info.key_set;
    made_.has_tensors = true;
    Known tensor = memory(place, std::move(guard), false);
    tensor.kind = Known::Kind::Tensor;
    tensor.step = 1;
    return tensor;
  }
  // A variable's iterator stays in the variable while a loop goes through it.
  const int stack = contexts_.front()->object->co_nlocalsplus, reached = place - int(values_.slots.size());
  const bool on_the_stack =
      reached < 0 ? place >= stack : made_.reached[std::size_t(reached)].how == ReachedPlace::How::Iterated;
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

}  // namespace fj
