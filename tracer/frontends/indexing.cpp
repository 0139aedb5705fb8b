/// Indexing: keys are parsed once into items; basic items become view steps, integer arrays a gather or a scatter.
///
/// Axes are walked from the first: `axis` counts axes of the view made so far (a slice or None keeps its place, an
/// integer removes one), so each item is one step on the view of the items before it.
#include "tracer/frontends/indexing.h"

#include <algorithm>

namespace fj {
namespace {

using Kind = Index::Item::Kind;

bool absent(Tracer& tracer, const V& value) { return !value || tracer.is_none(value); }

/// An Array key, or a sequence of ints turned into one; null if the item is something else.
Array array_key(Tracer& tracer, Library library, const V& item) {
  if (Array array = array_of(item)) return array;
  auto* range = as<RangeValue>(item);
  if (range && range->step == 1 && tracer.decide(range->stop, Py_GT, range->start)) {
    const Dims shape{range->stop - range->start};
    const ValueId start = broadcast_to(tracer, size_value(tracer, range->start, DType::I64), shape);
    return tracer.new_array(
        library, emit(tracer, Op::add,
                      {arange(tracer, DType::I64, Scalar(std::int64_t(0)), Scalar(std::int64_t(1)), shape[0]), start}));
  }
  auto* tuple = as<TupleValue>(item);
  if (!range && item->kind != ValueKind::List && (!tuple || tuple->type || tuple->view_of)) return nullptr;
  std::vector<ValueId> elements;
  for (const V& element : tracer.sequence_items(item)) {
    auto expression = tracer.int_expression(element);
    if (!expression) unsupported("indexing by a list of other than ints");
    elements.push_back(size_value(tracer, *expression, DType::I64));
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
    // To NumPy a tensor of one element is an integer (it has __index__), and whatever has no elements and is no array
    // of its own, as [], is of integers.
    if (library == Library::Numpy && array->library == Library::Torch && tracer.decide(product(array->shape), Py_LE, 1))
      unsupported("indexing a NumPy array by a tensor of no or one element");
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
  if (V number = tracer.scalar_index(item)) return parse_item(tracer, library, number);
  if (const ValueId computed = computed_integer(tracer, item); computed.valid()) {
    result.kind = Kind::Integer;
    result.computed = computed;
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
    result.integer = dim_argument(tracer, item);
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
  return item.kind == Kind::Slice && absent(tracer, item.start) && absent(tracer, item.stop) &&
         absent(tracer, item.step);
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
      const SymDim place = item.computed.valid() ? computed_index(tracer, item.computed, size)
                                                 : wrap_index(tracer, item.integer, size);
      view = view_slice(tracer, view, axis, place, 1, 1);
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
    for (std::size_t i = 0; i < inserted.size() && view->library == Library::Torch; ++i)
      view->strides[inserted[i]] = fresh[i];
  }
  return view == x ? view_alias(tracer, x) : view;
}

bool is_array(const Index::Item& item) { return item.kind == Kind::IntegerArray || item.kind == Kind::Mask; }

/// An index with arrays taken apart: the view its other items give, and what the arrays pick from it.
struct Advanced {
  Array base;
  std::vector<Array> keys;   // of integers
  Axes axes;                 // of `base`, for each key; increasing
  Array mask;                // its coordinates are among the keys, unless it is the only one and taken as it is
  std::int64_t mask_axis = 0;
  bool plain = true;         // `base` is the array itself
  bool first = false;        // the dimensions of the keys come first in the result, not where the keys stand
};

/// NumPy's rule: the arrays' dimensions stand where the arrays do, unless something stands between two of them. An
/// integer beside an array is one of them.
bool separated(const Index& index) {
  bool seen = false, left = false;
  for (const auto& item : index.items) {
    const bool advanced = is_array(item) || item.kind == Kind::Integer;
    if (advanced && left) return true;
    seen = seen || advanced;
    left = seen && !advanced;
  }
  return false;
}

/// A mask has the sizes of the axes it stands for, or the library raises.
Dims masked_shape(Tracer& tracer, const Array& x, const Array& mask, std::int64_t axis) {
  Dims shape;
  for (std::size_t i = 0; i < mask->shape.size(); ++i) {
    const SymDim& size = x->shape[std::size_t(axis) + i];
    if (!(mask->shape[i] == size) && !tracer.decide(mask->shape[i], Py_EQ, size))
      refuse("boolean index did not match indexed array");
    shape.push_back(size);
  }
  return shape;
}

Advanced take_advanced(Tracer& tracer, const Array& x, const Index& index, bool mask_as_it_is = false) {
  Advanced result;
  std::vector<Index::Item> basic;
  std::int64_t axis = 0;
  for (auto& item : complete(index, x->rank())) {
    if (!is_array(item)) {
      result.plain = result.plain && full_slice(tracer, item);
      axis += item.kind != Kind::Integer;
      basic.push_back(std::move(item));
      continue;
    }
    Array key = array_of(item.array);
    const int covered = item.kind == Kind::Mask ? key->rank() : 1;
    if (item.kind == Kind::Mask) {
      if (result.mask) unsupported("indexing by several masks");
      result.mask = key;
      result.mask_axis = axis;
    } else {
      result.keys.push_back(key);
      result.axes.push_back(axis);
    }
    for (int i = 0; i < covered; ++i) basic.push_back({Kind::Slice, 0, nullptr, nullptr, nullptr, nullptr});
    axis += covered;
  }
  if (x->library == Library::Numpy) {
    result.first = separated(index);
  } else {
    for (std::size_t i = 1; i < result.axes.size(); ++i)
      result.first = result.first || result.axes[i] != result.axes[i - 1] + 1;
  }
  result.base = result.plain ? x : apply_basic(tracer, x, basic);
  if (!result.mask || mask_as_it_is) return result;
  const Dims shape = masked_shape(tracer, result.base, result.mask, result.mask_axis);
  const std::vector<ValueId> indices = coordinates(tracer, reshape(tracer, tracer.read(*result.mask), shape));
  const auto place = std::lower_bound(result.axes.begin(), result.axes.end(), result.mask_axis) - result.axes.begin();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    result.axes.insert(result.axes.begin() + place + std::ptrdiff_t(i), result.mask_axis + std::int64_t(i));
    result.keys.insert(result.keys.begin() + place + std::ptrdiff_t(i), tracer.new_array(x->library, indices[i]));
  }
  if (x->library == Library::Torch)
    for (std::size_t i = 1; i < result.axes.size(); ++i)
      result.first = result.first || result.axes[i] != result.axes[i - 1] + 1;
  return result;
}

/// What a gather or a scatter needs of integer arrays.
struct Picks {
  std::vector<ValueId> indices;  // of one shape: the keys' common one, then that of the axes of `base` between them
  std::int64_t axis = 0;         // of the first
  Dims shape;                    // the keys' common one
  Axes order;                    // result dimension i is the gather's dimension order[i]
  Dims result;
};

Picks take_picks(Tracer& tracer, const Advanced& advanced) {
  Picks picks;
  std::vector<Dims> shapes;
  for (const Array& key : advanced.keys) shapes.push_back(key->shape);
  picks.shape = broadcast_shapes(tracer, shapes);
  // Indices that are repeated no times are not looked at, or deprecated.
  if (advanced.keys.size() > (advanced.mask ? advanced.mask->shape.size() : 1) &&
      tracer.decide(product(picks.shape), Py_EQ, 0))
    unsupported("indexing by several arrays without elements");
  picks.axis = advanced.axes.front();
  const Dims& from = advanced.base->shape;
  Dims whole = picks.shape;
  for (std::int64_t axis = picks.axis, key = 0; axis <= advanced.axes.back(); ++axis)
    if (axis == advanced.axes[std::size_t(key)]) ++key;
    else whole.push_back(from[std::size_t(axis)]);
  std::int64_t between = std::int64_t(picks.shape.size());
  for (std::int64_t axis = picks.axis, key = 0; axis <= advanced.axes.back(); ++axis) {
    if (axis != advanced.axes[std::size_t(key)]) {
      Attrs attrs;
      attrs.set("shape", whole);
      attrs.set("axis", between++);
      picks.indices.push_back(emit(tracer, Op::iota, {}, std::move(attrs)));
      continue;
    }
    const ValueId index =
        broadcast_to(tracer, cast(tracer, tracer.read(*advanced.keys[std::size_t(key++)]), DType::I64), picks.shape);
    Attrs attrs;
    Axes dims;
    for (std::size_t d = 0; d < picks.shape.size(); ++d) dims.push_back(std::int64_t(d));
    attrs.set("dims", dims);
    attrs.set("shape", whole);
    picks.indices.push_back(
        whole.size() == picks.shape.size() ? index : emit(tracer, Op::broadcast, {index}, std::move(attrs)));
  }
  Dims gathered(from.begin(), from.begin() + picks.axis);
  gathered.insert(gathered.end(), whole.begin(), whole.end());
  gathered.insert(gathered.end(), from.begin() + advanced.axes.back() + 1, from.end());
  const auto count = std::int64_t(picks.shape.size());
  if (advanced.first)
    for (std::int64_t i = 0; i < count; ++i) picks.order.push_back(picks.axis + i);
  for (std::int64_t i = 0; i < std::int64_t(gathered.size()); ++i)
    if (!advanced.first || i < picks.axis || i >= picks.axis + count) picks.order.push_back(i);
  for (std::int64_t i : picks.order) picks.result.push_back(gathered[std::size_t(i)]);
  return picks;
}

bool in_order(const Axes& order) {
  for (std::size_t i = 0; i < order.size(); ++i)
    if (order[i] != std::int64_t(i)) return false;
  return true;
}

/// Indices into an array without elements are not looked at by the kernels, and are by the libraries.
void require_elements(Tracer& tracer, const Dims& from, std::int64_t axis, std::size_t count) {
  for (std::size_t i = 0; i < from.size(); ++i)
    if ((std::int64_t(i) < axis || i >= std::size_t(axis) + count) && tracer.decide(from[i], Py_EQ, 0))
      unsupported("indices into an array without elements");
}

/// Strides of what NumPy allocates for a read: the keys' dimensions, then the others in the order of their strides;
/// moved to where they belong. The keys' dimensions are in the keys' own order if the others hold one element, else
/// row-major.
Strides picked_strides(Tracer& tracer, const Advanced& advanced, const Picks& picks) {
  const Array& base = advanced.base;
  Dims rest;
  Strides rest_strides;
  for (std::int64_t i = 0; i < base->rank(); ++i) {
    if (std::find(advanced.axes.begin(), advanced.axes.end(), i) != advanced.axes.end()) continue;
    rest.push_back(base->shape[std::size_t(i)]);
    rest_strides.push_back(base->strides[std::size_t(i)]);
  }
  const Strides inner = numpy_sorted_strides(tracer, {rest, rest_strides});
  const SymDim block = product(rest);
  Strides outer = row_major(picks.shape);
  if (tracer.decide(block, Py_EQ, 1)) {
    std::vector<Layout> keys;
    for (const Array& key : advanced.keys) keys.push_back({key->shape, key->strides});
    outer = elementwise_strides(tracer, Library::Numpy, picks.shape, keys);
  }
  for (SymDim& stride : outer) stride = stride * (block == SymDim(0) ? SymDim(1) : block);
  const auto place = inner.begin() + (advanced.first ? 0 : picks.axis);
  Strides strides(inner.begin(), place);
  strides.insert(strides.end(), outer.begin(), outer.end());
  strides.insert(strides.end(), place, inner.end());
  return strides;
}

/// Whether NumPy writes in the order of the result's elements, so that of repeated indices the last counts. Its
/// iterator goes through memory: an array in row-major order that needs no repeating decides, and where each axis
/// belongs to one array no order differs.
bool written_in_order(Tracer& tracer, const Advanced& advanced, const Picks& picks) {
  std::vector<bool> owned(picks.shape.size());
  bool product_of_axes = true;
  for (const Array& key : advanced.keys) {
    const std::size_t before = picks.shape.size() - key->shape.size();
    int axes = 0;
    for (std::size_t i = 0; i < key->shape.size(); ++i) {
      if (key->shape[i] == SymDim(1)) continue;
      if (owned[before + i] || ++axes > 1 || !tracer.decide(key->strides[i], Py_GT, 0)) product_of_axes = false;
      owned[before + i] = true;
    }
    if (key->shape == picks.shape && is_contiguous(tracer, key->shape, key->strides)) return true;
    if (picks.shape.size() == 1 && key->shape == picks.shape && tracer.decide(key->strides[0], Py_GT, 0)) return true;
  }
  return product_of_axes;
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

namespace {

/// Bounds of a slice with steps of 1 that the program computes: `from` or `to` is valid. How many elements there are is
/// a size that depends on data, whatever the numbers are.
SliceBounds computed_bounds(Tracer& tracer, const Index::Item& item, const SymDim& size, ValueId from, ValueId to) {
  const ValueId count = size_value(tracer, size, DType::I64), zero = constant_like(tracer, count, 0);
  auto adjust = [&](const V& value, ValueId computed) {
    const ValueId bound = computed.valid() ? computed : size_value(tracer, dim_argument(tracer, value), DType::I64);
    const ValueId negative = pointwise(tracer, Op::lt, {bound, zero});
    const ValueId from_start =
        pointwise(tracer, Op::where, {negative, pointwise(tracer, Op::add, {bound, count}), bound});
    return pointwise(tracer, Op::minimum, {pointwise(tracer, Op::maximum, {from_start, zero}), count});
  };
  SliceBounds bounds;
  if (absent(tracer, item.start)) {
    bounds.size = tracer.size_of_number(adjust(item.stop, to), size);
    return bounds;
  }
  const ValueId start = adjust(item.start, from);
  if (absent(tracer, item.stop)) {
    bounds.size = tracer.size_of_number(pointwise(tracer, Op::sub, {count, start}), size);
    bounds.start = size - bounds.size;
    return bounds;
  }
  const ValueId length = pointwise(tracer, Op::sub, {adjust(item.stop, to), start});
  bounds.size = tracer.size_of_number(pointwise(tracer, Op::maximum, {length, zero}), size);
  bounds.start = tracer.size_of_number(start, size);
  return bounds;
}

}  // namespace

SliceBounds slice_bounds(Tracer& tracer, const Index::Item& item, const SymDim& size) {
  SliceBounds bounds;
  if (!absent(tracer, item.step)) {
    bounds.step = int_argument(tracer, item.step);
    if (bounds.step == 0) refuse("slice step cannot be zero");
  }
  auto computed = [&](const V& value) {
    return absent(tracer, value) ? ValueId{} : computed_integer(tracer, value);
  };
  const ValueId from = computed(item.start), to = computed(item.stop);
  if (bounds.step == 1 && (from.valid() || to.valid())) return computed_bounds(tracer, item, size, from, to);
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

namespace {
/// What a view at computed places shows, as an array of its own: see Tracer::copies_views.
Array copy_at_computed(Tracer& tracer, const Array& x, std::vector<Index::Item> items) {
  std::vector<std::pair<std::int64_t, ValueId>> places;  // axes of the view without those places
  std::int64_t axis = 0;
  for (Index::Item& item : items) {
    if (item.computed.valid()) {
      places.emplace_back(axis, item.computed);
      item = {Kind::Slice, 0, nullptr, nullptr, nullptr, nullptr};
    }
    axis += item.kind != Kind::Integer;
  }
  const Array base = apply_basic(tracer, x, items);
  ValueId value = tracer.read(*base);
  Strides strides = base->strides;
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    const auto& [at, index] = *place;
    value = gather(tracer, value, index, at);
    strides.erase(strides.begin() + std::ptrdiff_t(at));
  }
  const Dims shape = shape_of(tracer, value);
  if (!(strides == contiguous_strides(shape))) unsupported("a view at a computed place");
  Array copy = tracer.new_array(x->library, value);
  const bool is_element = x->library == Library::Numpy && shape.empty();  // which is no view
  if (!is_element) tracer.stands_for_view(*copy, *x);
  return copy;
}

bool has_computed(const Index& index) {
  return std::any_of(index.items.begin(), index.items.end(),
                     [](const Index::Item& item) { return item.computed.valid(); });
}
}  // namespace

SymDim computed_index(Tracer& tracer, ValueId index, const SymDim& size) {
  const ValueId count = size_value(tracer, size, DType::I64), zero = constant_like(tracer, count, 0);
  const ValueId negative = pointwise(tracer, Op::lt, {index, zero});
  const ValueId place = pointwise(tracer, Op::where, {negative, pointwise(tracer, Op::add, {index, count}), index});
  const ValueId holds = pointwise(tracer, Op::bit_and, {pointwise(tracer, Op::ge, {place, zero}),
                                                        pointwise(tracer, Op::lt, {place, count})});
  return tracer.size_of_number(tracer.checked(place, holds), size);
}

Array index_view(Tracer& tracer, const Array& x, const Index& index) {
  const std::vector<Index::Item> items = complete(index, x->rank());
  if (tracer.copies_views() && has_computed(index)) return copy_at_computed(tracer, x, items);
  return apply_basic(tracer, x, items);
}

std::vector<ValueId> coordinates(Tracer& tracer, ValueId mask) {
  const Dims shape = shape_of(tracer, mask);
  const ValueId flat = tracer.positions(mask);
  if (shape.size() == 1) return {flat};
  std::vector<ValueId> result;
  const Dims strides = contiguous_strides(shape);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    ValueId index = flat;
    if (d + 1 < shape.size())
      index = pointwise(tracer, Op::trunc_div, {index, size_value(tracer, strides[d], DType::I64)});
    if (d > 0) index = pointwise(tracer, Op::fmod, {index, size_value(tracer, shape[d], DType::I64)});
    result.push_back(index);
  }
  return result;
}

ValueId gather(Tracer& tracer, ValueId source, ValueId indices, std::int64_t axis) {
  require_elements(tracer, shape_of(tracer, source), axis, 1);
  Attrs attrs;
  attrs.set("axis", axis);
  return emit(tracer, Op::gather, {source, indices}, std::move(attrs));
}

Array index_gather(Tracer& tracer, const Array& x, const Index& index) {
  const Advanced advanced = take_advanced(tracer, x, index);
  const Picks picks = take_picks(tracer, advanced);
  // Of one dimension there is one layout. Of others torch decides by the strides, those of axes of one element too.
  if (x->library == Library::Torch && picks.result.size() > 1)
    for (const Array& source : {x, advanced.base})
      if (!(source->strides == row_major(source->shape)))
        unsupported("a tensor that is not contiguous indexed by tensors");
  std::vector<ValueId> operands{tracer.read(*advanced.base)};
  require_elements(tracer, advanced.base->shape, picks.axis, picks.indices.size());
  operands.insert(operands.end(), picks.indices.begin(), picks.indices.end());
  Attrs attrs;
  attrs.set("axis", picks.axis);
  ValueId value = emit(tracer, Op::gather, std::move(operands), std::move(attrs));
  if (!in_order(picks.order)) value = transpose(tracer, value, picks.order);
  if (x->library == Library::Torch) return tracer.new_array(x->library, value, row_major(picks.result));
  Array result = tracer.new_array(x->library, value, picked_strides(tracer, advanced, picks));
  return advanced.first || picks.axis == 0 || picks.shape.empty() ? result : view_alias(tracer, result);
}

void index_scatter(Tracer& tracer, const Array& x, const Index& index, ValueId value, Op op) {
  // Of repeated indices torch writes any; a mask repeats none, nor does a place that is computed.
  const auto repeats = [](const Index::Item& item) {
    return item.kind == Kind::IntegerArray && !as<ArrayValue>(item.array)->shape.empty();
  };
  if (x->library == Library::Torch && index.has(Kind::IntegerArray) &&
      (!tracer.copies_views() || std::any_of(index.items.begin(), index.items.end(), repeats)))
    unsupported("writing through an index array");
  const Advanced advanced = take_advanced(tracer, x, index);
  for (const Array& key : advanced.keys)
    if (key->storage == x->storage) unsupported("writing through an index that shares memory with the array");
  const Picks picks = take_picks(tracer, advanced);
  require_elements(tracer, advanced.base->shape, picks.axis, picks.indices.size());
  // One value for all of them needs no order.
  Dims shape = shape_of(tracer, value);
  if (op == Op::scatter) {  // an assignment drops leading ones, a ufunc's at() takes none
    while (shape.size() > picks.result.size() && shape.front() == SymDim(1)) shape.erase(shape.begin());
    value = reshape(tracer, value, shape);
  }
  if (shape.size() > picks.result.size()) refuse("values of more dimensions than the indices give");
  const std::size_t place = advanced.first ? 0 : std::size_t(picks.axis);
  const std::size_t absent = picks.result.size() - std::min(shape.size(), picks.result.size());
  bool varies = false;
  for (std::size_t d = place; d < place + picks.shape.size(); ++d)
    varies = varies || (d >= absent && !(shape[d - absent] == SymDim(1)));
  if (varies && index.has(Kind::IntegerArray) && !written_in_order(tracer, advanced, picks))
    unsupported("writing through index arrays in another order than that of memory");
  value = broadcast_to(tracer, cast(tracer, value, x->dtype), picks.result);
  if (!in_order(picks.order)) {
    Axes back(picks.order.size());
    for (std::size_t i = 0; i < back.size(); ++i) back[std::size_t(picks.order[i])] = std::int64_t(i);
    value = transpose(tracer, value, back);
  }
  std::vector<ValueId> operands{tracer.read(*advanced.base), value};
  operands.insert(operands.end(), picks.indices.begin(), picks.indices.end());
  Attrs attrs;
  attrs.set("axis", picks.axis);
  tracer.write(*advanced.base, emit(tracer, op, std::move(operands), std::move(attrs)));
}

void index_assign(Tracer& tracer, const Array& x, const Index& index, ValueId value) {
  if (tracer.copies_views() && has_computed(index)) {
    Index by_arrays = index;
    for (Index::Item& item : by_arrays.items)
      if (item.computed.valid()) {
        const Array place = tracer.new_array(x->library, item.computed);
        item = {Kind::IntegerArray, 0, nullptr, nullptr, nullptr, place};
      }
    return index_scatter(tracer, x, by_arrays, value);
  }
  if (!index.has(Kind::Mask) && !index.has(Kind::IntegerArray)) {
    Array target = index_view(tracer, x, index);
    assign(tracer, *target, value);
    return;
  }
  if (index.has(Kind::IntegerArray)) return index_scatter(tracer, x, index, value);
  const Advanced advanced = take_advanced(tracer, x, index, true);
  const bool whole_mask = advanced.plain && advanced.mask && advanced.mask->shape.size() == x->shape.size();
  if (whole_mask && x->library == Library::Numpy && shape_of(tracer, value).size() > 1)
    refuse("values of more than one dimension for a mask of all axes");
  // One value for all needs no count of them.
  bool one = advanced.plain && advanced.mask_axis == 0;
  for (const SymDim& size : shape_of(tracer, value)) one = one && size == SymDim(1);
  if (!one) return index_scatter(tracer, x, index, value);
  const Dims shape = masked_shape(tracer, x, advanced.mask, 0);
  Dims aligned = shape;
  aligned.resize(x->shape.size(), SymDim(1));
  const ValueId mask = reshape(tracer, reshape(tracer, tracer.read(*advanced.mask), shape), aligned);
  const ValueId scalar = reshape(tracer, cast(tracer, value, x->dtype), {});
  tracer.write(*x, pointwise(tracer, Op::where, {mask, scalar, tracer.read(*x)}));
}

}  // namespace fj
