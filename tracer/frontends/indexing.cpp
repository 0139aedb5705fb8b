/// Indexing: keys are parsed once into items; basic items become view steps, an integer array a gather.
///
/// Axes are walked from the first: `axis` counts axes of the view made so far (a slice or None keeps its place, an
/// integer removes one), so each item is one step on the view of the items before it.
#include "tracer/frontends/indexing.h"

#include <algorithm>

namespace fj {
namespace {

using Kind = Index::Item::Kind;

bool absent(Tracer& tracer, const V& value) { return !value || tracer.is_none(value); }

/// An Array key, or a list of ints / bools turned into one; null if the item is something else.
Array array_key(Tracer& tracer, Library library, const V& item) {
  if (Array array = array_of(item)) return array;
  if (item->kind != ValueKind::List) return nullptr;
  std::vector<ValueId> elements;
  for (const V& element : tracer.sequence_items(item)) {
    PyObject* object = tracer.constant_object(element);
    if (!object || !PyLong_CheckExact(object)) unsupported("indexing by a list of other than ints");
    elements.push_back(constant(tracer, DType::I64, *tracer.constant_int(element)));
  }
  if (elements.empty()) unsupported("indexing by an empty list");
  return tracer.new_array(library, stack(tracer, elements, 0));
}

Index::Item parse_item(Tracer& tracer, Library library, const V& item) {
  Index::Item result{};
  if (auto* slice = as<SliceValue>(item)) {
    result.kind = Kind::Slice;
    result.start = slice->start;
    result.stop = slice->stop;
    result.step = slice->step;
    return result;
  }
  if (Array array = array_key(tracer, library, item)) {
    if (array->dtype == DType::Bool) {
      if (array->shape.empty()) unsupported("indexing by a boolean scalar");
      result.kind = Kind::Mask;
    } else if (is_integer(array->dtype)) {
      result.kind = Kind::IntegerArray;
    } else {
      refuse("arrays used as indices must be of integer or boolean type");
    }
    result.array = array;
    return result;
  }
  if (auto* symbolic = as<SymIntValue>(item)) {
    result.kind = Kind::Integer;
    result.integer = symbolic->expression;
    return result;
  }
  PyObject* object = tracer.constant_object(item);
  if (!object) unsupported("indexing by this object");
  if (object == Py_None) {
    result.kind = Kind::NewAxis;
  } else if (object == Py_Ellipsis) {
    result.kind = Kind::Ellipsis;
  } else if (PyBool_Check(object)) {
    unsupported("indexing by a boolean scalar");
  } else if (PySlice_Check(object)) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    result.kind = Kind::Slice;
    result.start = tracer.constant(Ref<>::borrow(slice->start));
    result.stop = tracer.constant(Ref<>::borrow(slice->stop));
    result.step = tracer.constant(Ref<>::borrow(slice->step));
  } else if (PyLong_CheckExact(object)) {
    result.kind = Kind::Integer;
    auto expression = tracer.int_expression(item);
    if (!expression) refuse("an index does not fit 64 bits");
    result.integer = *expression;
  } else if (numpy_scalar_dtype(object) && is_integer(*numpy_scalar_dtype(object))) {
    result.kind = Kind::Integer;
    result.integer = int_argument(tracer, item);
  } else {
    unsupported("indexing by this object");
  }
  return result;
}

/// A Python index on an axis: negative counts from the end; out of range is the library's IndexError.
SymDim wrap_index(Tracer& tracer, const SymDim& index, const SymDim& size) {
  const SymDim result = tracer.decide(index, Py_LT, 0) ? index + size : index;
  if (tracer.decide(result, Py_LT, 0) || tracer.decide(result, Py_GE, size))
    refuse("index " + index.text() + " is out of bounds for an axis of size " + size.text());
  return result;
}

bool full_slice(Tracer& tracer, const Index::Item& item) {
  return item.kind == Kind::Slice && absent(tracer, item.start) && absent(tracer, item.stop) && absent(tracer, item.step);
}

/// Ellipsis written out as full slices, and full slices appended, so that items and axes correspond.
std::vector<Index::Item> complete(const Index& index, int rank) {
  auto axes_used = [](const Index::Item& item) -> int {
    switch (item.kind) {
      case Kind::NewAxis:
      case Kind::Ellipsis: return 0;
      case Kind::Mask: return as<ArrayValue>(item.array)->rank();
      default: return 1;
    }
  };
  int used = 0;
  for (const auto& item : index.items) used += axes_used(item);
  if (used > rank) refuse("too many indices for array");
  std::vector<Index::Item> items;
  bool expanded = false;
  const Index::Item everything{Kind::Slice, 0, nullptr, nullptr, nullptr, nullptr};
  for (const auto& item : index.items) {
    if (item.kind != Kind::Ellipsis) {
      items.push_back(item);
      continue;
    }
    if (expanded) refuse("an index can only have a single ellipsis ('...')");
    expanded = true;
    items.insert(items.end(), std::size_t(rank - used), everything);
  }
  if (!expanded) items.insert(items.end(), std::size_t(rank - used), everything);
  return items;
}

Array apply_basic(Tracer& tracer, const Array& x, const std::vector<Index::Item>& items) {
  Array view = x;
  std::int64_t axis = 0;
  Axes removed, inserted;   // in the axes of the sliced view; in the axes of the result
  Strides fresh;            // of the inserted axes
  std::int64_t position = 0;
  for (const auto& item : items) {
    if (item.kind == Kind::NewAxis) {
      inserted.push_back(position++);
      // torch adds an axis before it indexes those behind it.
      fresh.push_back(axis < view->rank() ? view->shape[axis] * view->strides[axis] : SymDim(1));
      continue;
    }
    const SymDim size = view->shape[axis];
    if (item.kind == Kind::Integer) {
      view = view_slice(tracer, view, axis, wrap_index(tracer, item.integer, size), 1, 1);
      removed.push_back(axis);
    } else {
      if (!full_slice(tracer, item)) {
        const SliceBounds bounds = slice_bounds(tracer, item, size);
        if (!(bounds.start == SymDim(0) && bounds.size == size && bounds.step == 1))
          view = view_slice(tracer, view, axis, bounds.start, bounds.size, bounds.step);
      }
      ++position;
    }
    ++axis;
  }
  if (!removed.empty()) view = view_squeeze(tracer, view, removed);
  if (!inserted.empty()) {
    view = view_expand_axes(tracer, view, inserted);
    for (std::size_t i = 0; i < inserted.size() && view->library == Library::Torch; ++i) view->strides[inserted[i]] = fresh[i];
  }
  return view == x ? view_alias(tracer, x) : view;
}

/// Where the integer array or mask stands: the items with it replaced by a full slice, and the axis of that view.
struct Fancy {
  std::vector<Index::Item> basic;
  std::int64_t axis = 0;      // in the view
  Array key;
  bool mask = false;
};

Fancy take_fancy(Tracer& tracer, const Index& index, int rank) {
  Fancy fancy;
  std::int64_t axis = 0;
  bool scalar = false;
  for (auto& item : complete(index, rank)) {
    if (item.kind == Kind::IntegerArray || item.kind == Kind::Mask) {
      if (fancy.key) unsupported("indexing by several arrays");
      fancy.key = array_of(item.array);
      fancy.mask = item.kind == Kind::Mask;
      fancy.axis = axis;
      const int covered = fancy.mask ? fancy.key->rank() : 1;
      for (int i = 0; i < covered; ++i) fancy.basic.push_back({Kind::Slice, 0, nullptr, nullptr, nullptr, nullptr});
      axis += covered;
      continue;
    }
    scalar = scalar || item.kind == Kind::Integer;
    if (item.kind != Kind::Integer) ++axis;
    fancy.basic.push_back(std::move(item));
  }
  // An integer beside an array is itself an advanced index and moves the result's axes.
  if (scalar) unsupported("indexing by an array and integers together");
  (void)tracer;
  return fancy;
}

}  // namespace

bool Index::has(Item::Kind kind) const {
  return std::any_of(items.begin(), items.end(), [&](const Item& item) { return item.kind == kind; });
}

Index parse_index(Tracer& tracer, Library library, const V& key, int rank) {
  Index index;
  bool tuple = key->kind == ValueKind::Tuple;
  if (auto* object = as<ObjectValue>(key)) tuple = PyTuple_CheckExact(object->object.get());
  if (tuple) {
    for (const V& item : tracer.sequence_items(key)) index.items.push_back(parse_item(tracer, library, item));
  } else {
    index.items.push_back(parse_item(tracer, library, key));
  }
  // Ellipses and counts are checked against the rank here so that every user of the index agrees.
  complete(index, rank);
  return index;
}

SliceBounds slice_bounds(Tracer& tracer, const Index::Item& item, const SymDim& size) {
  SliceBounds bounds;
  if (!absent(tracer, item.step)) {
    bounds.step = int_argument(tracer, item.step);
    if (bounds.step == 0) refuse("slice step cannot be zero");
  }
  const bool forward = bounds.step > 0;
  // PySlice_AdjustIndices: an absent, negative or too large bound, clamped to [0, size] or [-1, size-1].
  auto adjust = [&](const V& value, const SymDim& otherwise) {
    if (absent(tracer, value)) return otherwise;
    SymDim bound = dim_argument(tracer, value);
    if (bound == size) return forward ? size : size - 1;
    if (tracer.decide(bound, Py_LT, 0)) {
      bound = bound + size;
      if (tracer.decide(bound, Py_LT, 0)) return forward ? SymDim(0) : SymDim(-1);
      return bound;
    }
    if (tracer.decide(bound, Py_GE, size)) return forward ? size : size - 1;
    return bound;
  };
  bounds.start = adjust(item.start, forward ? SymDim(0) : size - 1);
  const SymDim stop = adjust(item.stop, forward ? size : SymDim(-1));
  const SymDim span = forward ? stop - bounds.start : bounds.start - stop;
  const std::int64_t step = forward ? bounds.step : -bounds.step;
  const bool whole = bounds.start == SymDim(0) && stop == size;
  if (!whole && tracer.decide(span, Py_LE, 0)) {
    bounds.size = 0;
    if (!forward && tracer.decide(bounds.start, Py_LT, 0)) bounds.start = 0;
    return bounds;
  }
  bounds.size = step == 1 ? span : floor_divide(tracer, span + (step - 1), step);
  return bounds;
}

Array index_view(Tracer& tracer, const Array& x, const Index& index) {
  return apply_basic(tracer, x, complete(index, x->rank()));
}

ValueId gather(Tracer& tracer, ValueId source, ValueId indices, std::int64_t axis) {
  const Dims shape = shape_of(tracer, source);
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (std::int64_t(i) != axis && tracer.decide(shape[i], Py_EQ, 0)) unsupported("indices into an array without elements");
  Attrs attrs;
  attrs.set("axis", axis);
  return emit(tracer, Op::gather, {source, indices}, std::move(attrs));
}

Array index_gather(Tracer& tracer, const Array& x, const Index& index) {
  Fancy fancy = take_fancy(tracer, index, x->rank());
  if (fancy.mask) break_graph(BreakReason::DataDependentShape, "indexing by a boolean mask");
  const bool plain = std::all_of(fancy.basic.begin(), fancy.basic.end(), [&](const auto& item) { return full_slice(tracer, item); });
  Array base = plain ? x : apply_basic(tracer, x, fancy.basic);
  const ValueId source = tracer.read(*base), key = cast(tracer, tracer.read(*fancy.key), DType::I64);
  const ValueId gathered = gather(tracer, source, key, fancy.axis);
  const Dims shape = shape_of(tracer, gathered);
  if (x->library == Library::Torch) return tracer.new_array(x->library, gathered, row_major(shape));
  // NumPy allocates the index's axes first, in the index's order, then the others in the source's order, and moves the
  // index's axes to where they belong.
  Dims rest;
  Strides rest_strides;
  for (std::size_t i = 0; i < base->shape.size(); ++i) {
    if (std::int64_t(i) == fancy.axis) continue;
    rest.push_back(base->shape[i]);
    rest_strides.push_back(base->strides[i]);
  }
  const Layout rest_layout{rest, rest_strides};
  const Strides inner = elementwise_strides(tracer, Library::Numpy, rest, std::span(&rest_layout, 1));
  const Layout key_layout{fancy.key->shape, fancy.key->strides};
  Strides outer = elementwise_strides(tracer, Library::Numpy, fancy.key->shape, std::span(&key_layout, 1));
  const SymDim block = product(rest);
  Strides strides(inner.begin(), inner.begin() + fancy.axis);
  for (SymDim& stride : outer) strides.push_back(stride * block);
  strides.insert(strides.end(), inner.begin() + fancy.axis, inner.end());
  Array result = tracer.new_array(x->library, gathered, std::move(strides));
  return fancy.axis == 0 ? result : view_alias(tracer, result);
}

void index_assign(Tracer& tracer, const Array& x, const Index& index, ValueId value) {
  if (!index.has(Kind::Mask) && !index.has(Kind::IntegerArray)) {
    Array target = index_view(tracer, x, index);
    assign(tracer, *target, value);
    return;
  }
  Fancy fancy = take_fancy(tracer, index, x->rank());
  if (!fancy.mask) unsupported("writing through an index array");
  if (!std::all_of(fancy.basic.begin(), fancy.basic.end(), [&](const auto& item) { return full_slice(tracer, item); }) ||
      fancy.axis != 0)
    unsupported("writing through a mask and other indices");
  // With a scalar the mask's size does not matter; a value per selected element needs the count.
  for (const SymDim& size : shape_of(tracer, value))
    if (!(size == SymDim(1))) break_graph(BreakReason::DataDependentShape, "writing an array through a boolean mask");
  Dims shape = fancy.key->shape;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (!(shape[i] == x->shape[i]) && !tracer.decide(shape[i], Py_EQ, x->shape[i]))
      refuse("boolean index did not match indexed array");
  shape = Dims(x->shape.begin(), x->shape.begin() + std::ptrdiff_t(shape.size()));
  Dims aligned = shape;
  aligned.resize(x->shape.size(), SymDim(1));
  const ValueId mask = reshape(tracer, reshape(tracer, tracer.read(*fancy.key), shape), aligned);
  const ValueId scalar = reshape(tracer, cast(tracer, value, x->dtype), {});
  tracer.write(*x, pointwise(tracer, Op::where, {mask, scalar, tracer.read(*x)}));
}

}  // namespace fj
