/// Shapes, views, copies and casts: which results are views, and where copies lie, is eager's.
#include <algorithm>

#include "tracer/frontends/composites.h"
#include "tracer/frontends/indexing.h"
#include "tracer/frontends/torch/torch.h"

namespace fj {
namespace {

Array self(Tracer& tracer, const Arguments& arguments) {
  if (arguments.positional.empty()) unsupported("a tensor given by keyword");
  return torch_tensor(tracer, arguments.positional[0]);
}

/// Of a function of one tensor.
Array only(Tracer& tracer, const Arguments& arguments) {
  if (arguments.positional.size() > 1 || !arguments.keywords.empty()) refuse("takes no other arguments");
  return self(tracer, arguments);
}

/// suggest_memory_format: true if the strides are those of a channels-last tensor.
bool suggests_channels_last(Tracer& tracer, const Dims& shape, const Strides& strides) {
  std::vector<int> order;
  if (shape.size() == 4) order = {1, 3, 2, 0};
  else if (shape.size() == 5) order = {1, 4, 3, 2, 0};
  else return false;
  if (strides == row_major(shape)) return false;  // by the rule that follows, whatever the sizes are
  if (tracer.decide(strides[1], Py_EQ, 0)) return false;
  SymDim smallest = 0;
  for (int axis : order) {
    if (tracer.decide(shape[axis], Py_EQ, 0) || tracer.decide(strides[axis], Py_LT, smallest)) return false;
    // N1HW with equal strides of N and C is ambiguous and counts as contiguous.
    if (axis == 0 && tracer.decide(smallest, Py_EQ, strides[1])) return false;
    smallest = strides[axis] * shape[axis];
  }
  return true;
}

V in_suggested_format(Tracer& tracer, ValueId value, bool last) {
  const Dims shape = shape_of(tracer, value);
  return tracer.new_array(Library::Torch, value, last ? channels_last(shape) : row_major(shape));
}

bool suggests_channels_last(Tracer& tracer, const Array& x) {
  return suggests_channels_last(tracer, x->shape, x->strides);
}

bool is_preserve_or_absent(Tracer& tracer, const V& format) {
  if (!format || tracer.is_none(format)) return true;
  PyObject* object = tracer.constant_object(format);
  Ref<> preserve = torch_object("preserve_format");
  return object && object == preserve.get();
}

bool is_contiguous_format(Tracer& tracer, const V& format) {
  if (!format || tracer.is_none(format)) return true;
  PyObject* object = tracer.constant_object(format);
  return object && object == torch_object("contiguous_format").get();
}

Array converted(Tracer& tracer, const Array& x, DType dtype) {
  return tracer.new_array(Library::Torch, torch_cast(tracer, tracer.read(*x), dtype),
                          like_strides(tracer, Library::Torch, {x->shape, x->strides}));
}

V to_dtype(Tracer& tracer, const V& value, std::optional<DType> dtype, bool copy) {
  Array x = torch_tensor(tracer, value);
  if (!copy && (!dtype || *dtype == x->dtype)) return value;
  return converted(tracer, x, dtype ? *dtype : x->dtype);
}

template <DType dtype>
V to_fixed(Tracer& tracer, const char* name, const Arguments& arguments) {
  Parameters p(tracer, name, arguments, "input, *, memory_format");
  if (!is_preserve_or_absent(tracer, p["memory_format"])) p.refuse("a memory format");
  return to_dtype(tracer, p.required("input"), dtype, false);
}

V permuted(Tracer& tracer, const Array& x, std::int64_t a, std::int64_t b) {
  if (x->rank() == 0) return view_alias(tracer, x);
  Axes permutation = all_axes(x->rank());
  std::swap(permutation[a], permutation[b]);
  return view_transpose(tracer, x, permutation);
}

V viewed(Tracer& tracer, const Array& x, Dims shape) {
  Array view = view_reshape(tracer, x, resolve_reshape(tracer, x->shape, std::move(shape)));
  if (!view) refuse("view() of a tensor whose strides do not allow it");
  return view;
}

/// reshape: a view if strides allow (also in the same shape: an alias), else a copy.
V reshaped(Tracer& tracer, const Array& x, Dims shape) {
  return reshape_or_copy(tracer, x, resolve_reshape(tracer, x->shape, std::move(shape)));
}

V expanded(Tracer& tracer, const Array& x, Dims shape) {
  if (shape.size() < x->shape.size()) refuse("expand() to fewer dimensions");
  const std::size_t offset = shape.size() - x->shape.size();
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i] == SymDim(-1)) {
      if (i < offset) refuse("expand() with -1 in a new dimension");
      shape[i] = x->shape[i - offset];
    }
  return view_broadcast(tracer, x, shape);
}

V tuple_of(Tracer& tracer, std::vector<V> items) { return tracer.tuple(std::move(items)); }

SymDim wrapped_index(Tracer& tracer, const SymDim& index, const SymDim& size) {
  SymDim result = tracer.decide(index, Py_LT, 0) ? index + size : index;
  if (tracer.decide(result, Py_LT, 0) || tracer.decide(result, Py_GE, size)) refuse("an index out of range");
  return result;
}

}  // namespace

V torch_in_format_of(Tracer& tracer, const Array& x, ValueId value) {
  return in_suggested_format(tracer, value, suggests_channels_last(tracer, x));
}

// ---- views

V torch_view(Tracer& tracer, const Arguments& arguments) {
  Array x = self(tracer, arguments);
  if (arguments.positional.size() == 2 && arguments.keywords.empty()) {
    PyObject* object =
        arguments.positional[1]->kind == ValueKind::Object ? tracer.constant_object(arguments.positional[1]) : nullptr;
    const auto dtype = object ? dtype_from_object(object) : std::nullopt;
    if (dtype && *dtype == x->dtype)
      break_graph(BreakReason::UnsupportedObject, "view() as the same dtype, which shares memory but is no view");
    if (dtype) return torch_extern(tracer, "Tensor.view", arguments);
  }
  return viewed(tracer, x, torch_sizes(tracer, arguments, 1, "size"));
}

V torch_view_as(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "view_as", arguments, "input, other");
  return viewed(tracer, torch_tensor(tracer, p.required("input")), torch_tensor(tracer, p.required("other"))->shape);
}

V torch_reshape(Tracer& tracer, const Arguments& arguments) {
  return reshaped(tracer, self(tracer, arguments), torch_sizes(tracer, arguments, 1, "shape"));
}

/// Itself, if it lies in rows, or a copy.
Array in_rows(Tracer& tracer, const Array& x) {
  const Array result = is_contiguous(tracer, x->shape, x->strides) ? x : copy_contiguous(tracer, x);
  if (x->view.empty() && !x->storage->input_array) result->storage->laid = true;
  tracer.note_layout(*x, result.get());
  return result;
}

/// contiguous().view(-1): also of a copy a view.
V torch_ravel(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "ravel", arguments, "input");
  const Array x = torch_tensor(tracer, p.required("input"));
  return viewed(tracer, in_rows(tracer, x), {product(x->shape)});
}

V torch_reshape_as(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "reshape_as", arguments, "input, other");
  return reshaped(tracer, torch_tensor(tracer, p.required("input")), torch_tensor(tracer, p.required("other"))->shape);
}

V torch_flatten(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "flatten", arguments, "input, start_dim, end_dim");
  Array x = torch_tensor(tracer, p.required("input"));
  const std::int64_t start = torch_dim(p.integer("start_dim", 0), x->rank()),
                     end = torch_dim(p.integer("end_dim", -1), x->rank());
  if (x->rank() == 0) return reshaped(tracer, x, {SymDim(1)});
  if (start > end) refuse("flatten() whose start_dim comes after its end_dim");
  if (start == end) return p["input"];
  Dims shape(x->shape.begin(), x->shape.begin() + start);
  shape.push_back(product(std::span(x->shape).subspan(std::size_t(start), std::size_t(end - start + 1))));
  shape.insert(shape.end(), x->shape.begin() + end + 1, x->shape.end());
  return reshaped(tracer, x, shape);
}

V torch_unflatten(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "unflatten", arguments, "input, dim, sizes");
  Array x = torch_tensor(tracer, p.required("input"));
  const std::int64_t dim = normalise_axis(int_argument(tracer, p.required("dim")), x->rank());
  Dims inner = resolve_reshape(tracer, {x->shape[dim]}, dims_argument(tracer, p.required("sizes")));
  Dims shape = x->shape;
  shape.erase(shape.begin() + dim);
  shape.insert(shape.begin() + dim, inner.begin(), inner.end());
  return viewed(tracer, x, shape);
}

V torch_transpose(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "transpose", arguments, "input, dim0, dim1");
  Array x = torch_tensor(tracer, p.required("input"));
  return permuted(tracer, x, torch_dim(tracer, p.required("dim0"), x->rank()),
                  torch_dim(tracer, p.required("dim1"), x->rank()));
}

V torch_t(Tracer& tracer, const Arguments& arguments) {
  Array x = only(tracer, arguments);
  if (x->rank() > 2) refuse("t() of more than two dimensions");
  return x->rank() == 2 ? permuted(tracer, x, 0, 1) : V(view_alias(tracer, x));
}

V torch_permute(Tracer& tracer, const Arguments& arguments) {
  Array x = self(tracer, arguments);
  if (arguments.positional.size() < 2 && arguments.keywords.empty()) refuse("permute() without dims");
  Axes permutation = torch_ints(tracer, arguments, 1, "dims");
  if (int(permutation.size()) != x->rank()) refuse("permute() of another number of dimensions");
  std::vector<bool> seen(permutation.size());
  for (std::int64_t& axis : permutation) {
    axis = normalise_axis(axis, x->rank());
    if (seen[axis]) refuse("permute() with a repeated dimension");
    seen[axis] = true;
  }
  return view_transpose(tracer, x, permutation);
}

V torch_movedim(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "movedim", arguments, "input, source, destination");
  Array x = torch_tensor(tracer, p.required("input"));
  auto axes = [&](const char* name) {
    Axes result;
    for (const SymDim& dim : dims_argument(tracer, p.required(name)))
      result.push_back(normalise_axis(concrete(tracer, dim), x->rank()));
    return result;
  };
  const Axes source = axes("source"), destination = axes("destination");
  if (source.size() != destination.size()) refuse("movedim() between different numbers of dimensions");
  Axes permutation(x->rank(), -1), rest;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (permutation[destination[i]] >= 0) refuse("movedim() with a repeated dimension");
    permutation[destination[i]] = source[i];
  }
  for (std::int64_t axis = 0; axis < x->rank(); ++axis)
    if (std::find(source.begin(), source.end(), axis) == source.end()) rest.push_back(axis);
  if (rest.size() + source.size() != permutation.size()) refuse("movedim() with a repeated dimension");
  std::size_t next = 0;
  for (std::int64_t& axis : permutation)
    if (axis < 0) axis = rest[next++];
  return view_transpose(tracer, x, permutation);
}

V torch_squeeze(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "squeeze", arguments, "input, dim");
  Array x = torch_tensor(tracer, p.required("input"));
  Axes candidates;
  if (p["dim"])
    for (const SymDim& dim : dims_argument(tracer, p["dim"]))
      candidates.push_back(torch_dim(concrete(tracer, dim), x->rank()));
  else
    candidates = all_axes(x->rank());
  Axes axes;
  for (std::int64_t axis : candidates)
    if (x->rank() > 0 && tracer.decide(x->shape[axis], Py_EQ, 1)) axes.push_back(axis);
  std::sort(axes.begin(), axes.end());
  return view_squeeze(tracer, x, axes);
}

V torch_unsqueeze(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "unsqueeze", arguments, "input, dim");
  Array x = torch_tensor(tracer, p.required("input"));
  return view_expand_axes(tracer, x, {normalise_axis(int_argument(tracer, p.required("dim")), x->rank() + 1)});
}

V torch_expand(Tracer& tracer, const Arguments& arguments) {
  return expanded(tracer, self(tracer, arguments), torch_sizes(tracer, arguments, 1, "size"));
}

V torch_expand_as(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "expand_as", arguments, "input, other");
  return expanded(tracer, torch_tensor(tracer, p.required("input")), torch_tensor(tracer, p.required("other"))->shape);
}

V torch_broadcast_to(Tracer& tracer, const Arguments& arguments) {
  return expanded(tracer, self(tracer, arguments), torch_sizes(tracer, arguments, 1, "size"));
}

namespace {

/// Start and length of a part of an axis of `whole` elements, of which the program computes one or both. It fails where
/// they are out of range, and torch raises.
std::pair<SymDim, SymDim> computed_part(Tracer& tracer, const V& start, const V& length, const SymDim& whole) {
  const auto number = [&](const V& value) {
    const ValueId computed = computed_integer(tracer, value);
    return computed.valid() ? computed : size_value(tracer, dim_argument(tracer, value), DType::I64);
  };
  const ValueId count = size_value(tracer, whole, DType::I64), zero = constant_like(tracer, count, 0);
  const ValueId from = number(start), size = number(length);
  const ValueId negative = pointwise(tracer, Op::lt, {from, zero});
  const ValueId place = pointwise(tracer, Op::where, {negative, pointwise(tracer, Op::add, {from, count}), from});
  ValueId holds = pointwise(tracer, Op::bit_and, {pointwise(tracer, Op::ge, {place, zero}),
                                                  pointwise(tracer, Op::le, {place, count})});
  holds = pointwise(tracer, Op::bit_and, {holds, pointwise(tracer, Op::ge, {size, zero})});
  // The difference, which no size is too large for.
  const ValueId left = pointwise(tracer, Op::sub, {count, place});
  holds = pointwise(tracer, Op::bit_and, {holds, pointwise(tracer, Op::le, {size, left})});
  const auto as_size = [&](const V& given, ValueId value) {
    if (computed_integer(tracer, given).valid()) return tracer.size_of_number(tracer.checked(value, holds), whole);
    const SymDim known = dim_argument(tracer, given);
    return tracer.decide(known, Py_LT, 0) ? known + whole : known;
  };
  return {as_size(start, place), as_size(length, size)};
}

}  // namespace

V torch_narrow(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "narrow", arguments, "input, dim, start, length");
  Array x = torch_tensor(tracer, p.required("input"));
  const std::int64_t dim = normalise_axis(int_argument(tracer, p.required("dim")), x->rank());
  if (array_of(p.required("start"))) break_graph(BreakReason::ScalarFromArray, "narrow() from a start in a tensor");
  const auto is_computed = [&](const char* name) { return computed_integer(tracer, p.required(name)).valid(); };
  if (is_computed("start") || is_computed("length")) {
    const auto [first, size] = computed_part(tracer, p.required("start"), p.required("length"), x->shape[dim]);
    return view_slice(tracer, x, dim, first, size, 1);
  }
  SymDim start = dim_argument(tracer, p.required("start")), length = dim_argument(tracer, p.required("length"));
  if (tracer.decide(start, Py_LT, 0)) start = start + x->shape[dim];
  if (tracer.decide(length, Py_LT, 0) || tracer.decide(start, Py_LT, 0) ||
      tracer.decide(start + length, Py_GT, x->shape[dim]))
    refuse("narrow() out of range");
  return view_slice(tracer, x, dim, start, length, 1);
}

V torch_unfold(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "unfold", arguments, "input, dimension, size, step");
  Array x = torch_tensor(tracer, p.required("input"));
  if (x->rank() == 0) unsupported("unfold() of a tensor of rank 0");
  const std::int64_t dim = normalise_axis(int_argument(tracer, p.required("dimension")), x->rank());
  const std::int64_t size = int_argument(tracer, p.required("size")), step = int_argument(tracer, p.required("step"));
  if (size < 0 || step < 1) refuse("unfold() by this size or step");
  const SymDim& extent = x->shape[dim];
  if (tracer.decide(extent, Py_LT, size)) refuse("unfold() of more elements than there are");
  return view_windows(tracer, x, dim, floor_divide(tracer, extent + SymDim(step - size), step), size, step);
}

V torch_select(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "select", arguments, "input, dim, index");
  Array x = torch_tensor(tracer, p.required("input"));
  const std::int64_t dim = normalise_axis(int_argument(tracer, p.required("dim")), x->rank());
  const V index = p.required("index");
  const ValueId computed = computed_integer(tracer, index);
  const SymDim& size = x->shape[dim];
  return view_select(tracer, x, dim,
                     computed.valid() ? computed_index(tracer, computed, size)
                                      : wrapped_index(tracer, dim_argument(tracer, index), size));
}

namespace {

/// Views of `sizes` elements along dim, in order.
V pieces(Tracer& tracer, const Array& x, std::int64_t dim, const Dims& sizes) {
  std::vector<V> items;
  SymDim start = 0;
  for (const SymDim& size : sizes) {
    items.push_back(view_slice(tracer, x, dim, start, size, 1));
    start = start + size;
  }
  return tuple_of(tracer, std::move(items));
}

V equal_pieces(Tracer& tracer, const Array& x, std::int64_t dim, std::int64_t size) {
  const std::int64_t total = concrete(tracer, x->shape[dim]);
  if (size < 0 || (size == 0 && total != 0)) refuse("split() into pieces of no elements");
  Dims sizes;
  for (std::int64_t start = 0; start < total; start += size) sizes.push_back(std::min(size, total - start));
  if (sizes.empty()) sizes.push_back(0);
  return pieces(tracer, x, dim, sizes);
}

/// tensor_split() by a number of parts, `equal` ones or the first ones an element longer, or at indices. What torch
/// refuses is left to torch.
V split_at(Tracer& tracer, const Array& x, const V& given, std::int64_t dim, bool equal) {
  if (x->rank() == 0) unsupported("tensor_split() of a number");
  dim = normalise_axis(dim, x->rank());
  const SymDim& whole = x->shape[dim];
  if (!is_sequence(given)) {
    if (array_of(given)) unsupported("tensor_split() by a tensor");
    const std::int64_t count = int_argument(tracer, given), size = concrete(tracer, whole);
    if (count <= 0 || (equal && size % count)) unsupported("tensor_split() into such parts");
    Dims sizes;
    for (std::int64_t i = 0; i < count; ++i) sizes.push_back(size / count + (i < size % count ? 1 : 0));
    return pieces(tracer, x, dim, sizes);
  }
  const std::int64_t size = concrete(tracer, whole);
  std::vector<std::int64_t> bounds{0};
  for (const V& index : tracer.sequence_items(given)) bounds.push_back(int_argument(tracer, index));
  bounds.push_back(size);
  std::vector<V> items;
  const auto within = [&](std::int64_t bound, std::int64_t least) {
    return std::clamp(bound < 0 ? bound + size : bound, least, size);
  };
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    const std::int64_t start = within(bounds[i], 0), stop = within(bounds[i + 1], start);
    items.push_back(view_slice(tracer, x, dim, start, stop - start, 1));
  }
  return tuple_of(tracer, std::move(items));
}

/// Sizes of which the program computes some. It fails where they do not add up to `whole`.
Dims computed_sizes(Tracer& tracer, const std::vector<V>& given, const SymDim& whole) {
  std::vector<ValueId> values;
  ValueId total = constant(tracer, DType::I64, 0);
  for (const V& value : given) {
    const ValueId computed = computed_integer(tracer, value);
    values.push_back(computed.valid() ? computed : size_value(tracer, dim_argument(tracer, value), DType::I64));
    total = pointwise(tracer, Op::add, {total, values.back()});
  }
  const ValueId holds = pointwise(tracer, Op::eq, {total, size_value(tracer, whole, DType::I64)});
  Dims sizes;
  for (const ValueId value : values) sizes.push_back(tracer.size_of_number(tracer.checked(value, holds), whole));
  return sizes;
}

}  // namespace

V torch_split(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "split", arguments, "tensor, split_size_or_sections, dim");
  V sections = p["split_size_or_sections"];
  Array x = torch_tensor(tracer, p.required("tensor"));
  if (!sections) unsupported("split() with these arguments");
  const std::int64_t dim = normalise_axis(p.integer("dim", 0), x->rank());
  if (tracer.int_expression(sections)) return equal_pieces(tracer, x, dim, int_argument(tracer, sections));
  std::vector<V> given;
  if (is_sequence(sections)) given = tracer.sequence_items(sections);
  if (std::any_of(given.begin(), given.end(), [&](const V& v) { return computed_integer(tracer, v).valid(); }))
    return pieces(tracer, x, dim, computed_sizes(tracer, given, x->shape[dim]));
  const Dims sizes = dims_argument(tracer, sections);
  SymDim total = 0;
  for (const SymDim& size : sizes) {
    if (tracer.decide(size, Py_LT, 0)) refuse("split() into a negative size");
    total = total + size;
  }
  if (!(total == x->shape[dim]) && !tracer.decide(total, Py_EQ, x->shape[dim]))
    refuse("split() sizes that do not add up");
  return pieces(tracer, x, dim, sizes);
}

/// By a number of parts, or at indices, as slices.
V torch_tensor_split(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "tensor_split", arguments, "input, indices_or_sections, dim");
  Array x = torch_tensor(tracer, p.required("input"));
  return split_at(tracer, x, p.required("indices_or_sections"), p.integer("dim", 0), false);
}

/// Along the axis that the name means, into equal parts or at indices.
template <int least_rank>
V torch_split_along(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "hsplit", arguments, "input, indices_or_sections");
  Array x = torch_tensor(tracer, p.required("input"));
  constexpr int kHorizontal = 1;
  if (x->rank() < least_rank) unsupported("hsplit(), vsplit() or dsplit() of a tensor of this rank");
  const int axis = least_rank == kHorizontal ? (x->rank() == 1 ? 0 : 1) : least_rank == 2 ? 0 : 2;
  return split_at(tracer, x, p.required("indices_or_sections"), axis, true);
}
V torch_hsplit(Tracer& tracer, const Arguments& arguments) { return torch_split_along<1>(tracer, arguments); }
V torch_vsplit(Tracer& tracer, const Arguments& arguments) { return torch_split_along<2>(tracer, arguments); }
V torch_dsplit(Tracer& tracer, const Arguments& arguments) { return torch_split_along<3>(tracer, arguments); }

V torch_adjoint(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "adjoint", arguments, "input");
  Array x = torch_tensor(tracer, p.required("input"));
  if (x->rank() < 2 || is_complex(x->dtype)) unsupported("adjoint() of such a tensor");
  return torch_transpose(tracer, Arguments{{x, tracer.integer(-2), tracer.integer(-1)}, {}});
}

V torch_chunk(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "chunk", arguments, "input, chunks, dim");
  Array x = torch_tensor(tracer, p.required("input"));
  const std::int64_t chunks = int_argument(tracer, p.required("chunks")),
                     dim = normalise_axis(p.integer("dim", 0), x->rank());
  if (chunks <= 0) refuse("chunk() into no pieces");
  if (auto exact = x->shape[dim].divide_exactly(SymDim(chunks)); exact && !x->shape[dim].is_constant())
    return pieces(tracer, x, dim, Dims(std::size_t(chunks), *exact));
  const std::int64_t total = concrete(tracer, x->shape[dim]);
  if (total == 0) return pieces(tracer, x, dim, Dims(std::size_t(chunks), SymDim(0)));
  return equal_pieces(tracer, x, dim, (total + chunks - 1) / chunks);
}

V torch_unbind(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "unbind", arguments, "input, dim");
  Array x = torch_tensor(tracer, p.required("input"));
  const std::int64_t dim = normalise_axis(p.integer("dim", 0), x->rank());
  std::vector<V> items;
  const std::int64_t count = concrete(tracer, x->shape[dim]);
  for (std::int64_t i = 0; i < count; ++i) items.push_back(view_select(tracer, x, dim, i));
  return tuple_of(tracer, std::move(items));
}

namespace {
Array detached(Tracer& tracer, const Array& x, bool data) {
  tracer.note_stop();
  Array view = view_alias(tracer, x);
  view->requires_grad = false;
  view->detached =
      std::make_shared<DetachedTensor>(DetachedTensor{view.get(), view->shape, view->strides, view->offset, data});
  view->stops_gradient = true;
  return view;
}
}  // namespace

V torch_detach(Tracer& tracer, const Arguments& arguments) { return detached(tracer, only(tracer, arguments), false); }

V torch_data(Tracer& tracer, const Array& x) {
  if (x->storage->inference) unsupported("Tensor.data of an inference tensor");
  Array view = detached(tracer, x, true);
  view->torch_version = std::make_shared<int>(0);
  return view;
}

// ---- copies

V torch_clone(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "clone", arguments, "input, *, memory_format");
  Array x = torch_tensor(tracer, p.required("input"));
  const ValueId from = tracer.read(*x);
  if (!is_preserve_or_absent(tracer, p["memory_format"]) && !is_contiguous_format(tracer, p["memory_format"]))
    p.refuse("a memory format");
  const Array made = is_preserve_or_absent(tracer, p["memory_format"]) ? converted(tracer, x, x->dtype)
                                                                       : copy_contiguous(tracer, x);
  if (const ValueId copy = tracer.read(*made); copy != from) tracer.note_clone(copy);
  return made;
}

V torch_contiguous(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "contiguous", arguments, "input, memory_format");
  Array x = torch_tensor(tracer, p.required("input"));
  if (!is_contiguous_format(tracer, p["memory_format"])) p.refuse("a memory format");
  const Array result = in_rows(tracer, x);
  return result == x ? p["input"] : V(result);
}

namespace {
void require_plain_copy(Tracer& tracer, const Parameters& p) {
  if (!is_preserve_or_absent(tracer, p["memory_format"])) p.refuse("a memory format");
  p.flag("non_blocking", false);
}
}  // namespace

V torch_to(Tracer& tracer, const Arguments& arguments) {
  // to(dtype, ...), to(device, dtype, ...), to(other, ...)
  if (arguments.positional.size() < 2) {
    Parameters p(tracer, "to", arguments, "input, *, device, dtype, non_blocking, copy, memory_format, other");
    require_plain_copy(tracer, p);
    const int here = torch_tensor(tracer, p.required("input"))->storage->device;
    require_device(tracer, p["device"], here);
    std::optional<DType> dtype = torch_dtype_argument(tracer, p["dtype"]);
    if (p["other"]) {
      require_device_of(torch_tensor(tracer, p["other"]), here);
      dtype = torch_tensor(tracer, p["other"])->dtype;
    }
    return to_dtype(tracer, p.required("input"), dtype, p.flag("copy", false));
  }
  const V& second = arguments.positional[1];
  if (array_of(second)) {
    Parameters p(tracer, "to", arguments, "input, other, non_blocking, copy, *, memory_format");
    require_plain_copy(tracer, p);
    require_device_of(torch_tensor(tracer, second), torch_tensor(tracer, p.required("input"))->storage->device);
    return to_dtype(tracer, p.required("input"), torch_tensor(tracer, second)->dtype, p.flag("copy", false));
  }
  PyObject* object = tracer.constant_object(second);
  if (object && (PyType_Check(object) || dtype_from_object(object)) && !PyUnicode_Check(object)) {
    Parameters p(tracer, "to", arguments, "input, dtype, non_blocking, copy, *, memory_format");
    require_plain_copy(tracer, p);
    return to_dtype(tracer, p.required("input"), torch_dtype_argument(tracer, p["dtype"]), p.flag("copy", false));
  }
  Parameters p(tracer, "to", arguments, "input, device, dtype, non_blocking, copy, *, memory_format");
  require_plain_copy(tracer, p);
  require_device(tracer, p["device"], torch_tensor(tracer, p.required("input"))->storage->device);
  return to_dtype(tracer, p.required("input"), torch_dtype_argument(tracer, p["dtype"]), p.flag("copy", false));
}

V torch_type_as(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "type_as", arguments, "input, other");
  require_device_of(torch_tensor(tracer, p.required("other")),
                    torch_tensor(tracer, p.required("input"))->storage->device);
  return to_dtype(tracer, p.required("input"), torch_tensor(tracer, p.required("other"))->dtype, false);
}

V torch_type_method(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "type", arguments, "input, dtype");
  if (p.absent("dtype")) p.refuse("no dtype");
  return to_dtype(tracer, p.required("input"), torch_dtype_argument(tracer, p["dtype"]), false);
}

V torch_cpu(Tracer& tracer, const Arguments& arguments) {
  only(tracer, arguments);
  if (const int here = torch_tensor(tracer, arguments.positional[0])->storage->device; here != kHost)
    break_graph(BreakReason::SeveralDevices,
                "a tensor of " + device_text(here) + " is copied to cpu, for which Python waits");
  return arguments.positional[0];
}
V torch_cuda(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "cuda", arguments, "input, device, non_blocking, memory_format");
  require_plain_copy(tracer, p);
  const int here = torch_tensor(tracer, p.required("input"))->storage->device;
  // Without a device: to the one that is current.
  require_device(tracer, p.absent("device") ? tracer.string("cuda") : p["device"], here);
  return p["input"];
}
V torch_to_float(Tracer& tracer, const Arguments& arguments) {
  return to_fixed<DType::F32>(tracer, "float", arguments);
}
V torch_to_double(Tracer& tracer, const Arguments& arguments) {
  return to_fixed<DType::F64>(tracer, "double", arguments);
}
V torch_to_half(Tracer& tracer, const Arguments& arguments) { return to_fixed<DType::F16>(tracer, "half", arguments); }
V torch_to_bfloat16(Tracer& tracer, const Arguments& arguments) {
  return to_fixed<DType::BF16>(tracer, "bfloat16", arguments);
}
V torch_to_int(Tracer& tracer, const Arguments& arguments) { return to_fixed<DType::I32>(tracer, "int", arguments); }
V torch_to_long(Tracer& tracer, const Arguments& arguments) { return to_fixed<DType::I64>(tracer, "long", arguments); }
V torch_to_short(Tracer& tracer, const Arguments& arguments) {
  return to_fixed<DType::I16>(tracer, "short", arguments);
}
V torch_to_char(Tracer& tracer, const Arguments& arguments) { return to_fixed<DType::I8>(tracer, "char", arguments); }
V torch_to_byte(Tracer& tracer, const Arguments& arguments) { return to_fixed<DType::U8>(tracer, "byte", arguments); }
V torch_to_bool(Tracer& tracer, const Arguments& arguments) { return to_fixed<DType::Bool>(tracer, "bool", arguments); }

// ---- joining

namespace {

/// Among parts of other ranks torch skips a 1-d tensor without elements: a rule of the past that is still kept.
bool is_skipped(Tracer& tracer, const Array& part, const std::vector<Array>& parts) {
  return part->rank() == 1 &&
         std::any_of(parts.begin(), parts.end(), [](const Array& other) { return other->rank() != 1; }) &&
         tracer.decide(part->shape[0], Py_EQ, 0);
}

/// torch.cat: common dtype, also with that of parts that are skipped; channels-last only if every part is.
V concatenated(Tracer& tracer, const std::vector<Array>& parts, std::int64_t dim) {
  TorchOperands operands;
  for (const Array& part : parts) {
    if (part->rank() == 0) refuse("cat() of a 0-d tensor");
    operands.push_back({part, nullptr, part->dtype});
  }
  const DType dtype = torch_result_type(operands);
  std::vector<ValueId> values;
  bool last = true;
  for (const Array& part : parts) {
    if (!is_skipped(tracer, part, parts)) values.push_back(cast(tracer, tracer.read(*part), dtype));
    else if (tracer.requires_gradient(*part)) unsupported("cat() of an empty 1-d tensor that requires a gradient");
    last = last && suggests_channels_last(tracer, part);
  }
  return in_suggested_format(tracer, concatenate(tracer, std::move(values), dim), last);
}

}  // namespace

V torch_cat(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "cat", arguments, "tensors, dim, *, axis, out");
  p.unsupported("out");
  std::vector<Array> parts = torch_tensors(tracer, p.required("tensors"));
  if (parts.empty()) refuse("cat() of no tensors");
  const std::int64_t dim = p.integer(p["axis"] ? "axis" : "dim", 0);
  const auto first = std::find_if(parts.begin(), parts.end(), [&](const Array& part) {
    return !is_skipped(tracer, part, parts);
  });
  return concatenated(tracer, parts, torch_dim(dim, (*first)->rank()));
}

V torch_stack(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "stack", arguments, "tensors, dim, *, out");
  p.unsupported("out");
  std::vector<Array> parts = torch_tensors(tracer, p.required("tensors"));
  if (parts.empty()) refuse("stack() of no tensors");
  const std::int64_t dim = normalise_axis(p.integer("dim", 0), parts[0]->rank() + 1);
  std::vector<Array> wide;
  for (const Array& part : parts) {
    if (!same_shape(tracer, part->shape, parts[0]->shape)) refuse("stack() of tensors of different shapes");
    wide.push_back(view_expand_axes(tracer, part, {dim}));
  }
  V result = concatenated(tracer, wide, dim);
  if (dim == parts[0]->rank()) return result;
  // Eager concatenates along dim and splits that dimension: the layout is that of a view of the concatenation.
  const ValueId value = tracer.read(*array_of(result));
  const Array view = view_reshape(tracer, array_of(concatenated(tracer, parts, dim)), shape_of(tracer, value));
  return tracer.new_array(Library::Torch, value, view->strides);
}

namespace {
V joined(Tracer& tracer, const char* name, bool vertical, const Arguments& arguments) {
  Parameters p(tracer, name, arguments, "tensors, *, out");
  p.unsupported("out");
  std::vector<Array> parts = torch_tensors(tracer, p.required("tensors"));
  if (parts.empty()) refuse("stacking no tensors");
  for (Array& part : parts) {
    if (part->rank() == 0) part = array_of(reshaped(tracer, part, {SymDim(1)}));
    if (vertical && part->rank() == 1) part = view_expand_axes(tracer, part, {0});
  }
  return concatenated(tracer, parts, vertical || parts[0]->rank() == 1 ? 0 : 1);
}
}  // namespace

V torch_hstack(Tracer& tracer, const Arguments& arguments) { return joined(tracer, "hstack", false, arguments); }
V torch_vstack(Tracer& tracer, const Arguments& arguments) { return joined(tracer, "vstack", true, arguments); }

namespace {

V repeated(Tracer& tracer, const Array& x, std::vector<std::int64_t> repeats) {
  if (repeats.size() < x->shape.size()) refuse("repeat() of fewer dimensions than the tensor has");
  Dims padded = x->shape;
  padded.insert(padded.begin(), repeats.size() - x->shape.size(), SymDim(1));
  // [n, m] -> [1, n, 1, m] -> [r, n, s, m] -> [r*n, s*m]
  Dims apart, wide, result;
  for (std::size_t i = 0; i < repeats.size(); ++i) {
    if (repeats[i] < 0) refuse("repeat() a negative number of times");
    apart.insert(apart.end(), {SymDim(1), padded[i]});
    wide.insert(wide.end(), {SymDim(repeats[i]), padded[i]});
    result.push_back(SymDim(repeats[i]) * padded[i]);
  }
  ValueId value = broadcast_to(tracer, reshape(tracer, tracer.read(*x), apart), wide);
  return torch_fresh(tracer, reshape(tracer, value, result));
}

}  // namespace

V torch_repeat(Tracer& tracer, const Arguments& arguments) {
  return repeated(tracer, self(tracer, arguments), torch_ints(tracer, arguments, 1, "repeats"));
}

V torch_tile(Tracer& tracer, const Arguments& arguments) {
  Array x = self(tracer, arguments);
  std::vector<std::int64_t> repeats = torch_ints(tracer, arguments, 1, "dims");
  while (repeats.size() < x->shape.size()) repeats.insert(repeats.begin(), 1);
  return repeated(tracer, x, repeats);
}

V torch_flip(Tracer& tracer, const Arguments& arguments) {
  Array x = self(tracer, arguments);
  Axes axes;
  for (std::int64_t dim : torch_ints(tracer, arguments, 1, "dims")) {
    axes.push_back(torch_dim(dim, x->rank()));
    if (std::count(axes.begin(), axes.end(), axes.back()) > 1) refuse("flip() with a repeated dimension");
  }
  if (x->rank() == 0) axes.clear();
  ValueId value = flip(tracer, tracer.read(*x), axes);
  return tracer.new_array(Library::Torch, value, like_strides(tracer, Library::Torch, {x->shape, x->strides}));
}

V torch_roll(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "roll", arguments, "input, shifts, dims");
  Array x = torch_tensor(tracer, p.required("input"));
  const V by = p.required("shifts");
  for (const V& shift : is_sequence(by) ? tracer.sequence_items(by) : std::vector<V>{by})
    if (computed_integer(tracer, shift).valid()) unsupported("roll() by a number that is computed");
  std::vector<SymDim> shifts = dims_argument(tracer, by);
  std::vector<SymDim> dims = p.absent("dims") ? std::vector<SymDim>{} : dims_argument(tracer, p["dims"]);
  if (dims.size() != shifts.size() || x->rank() == 0) unsupported("roll() without one dim per shift");
  const ValueId from = tracer.read(*x);
  ValueId value = from;
  Axes axes;
  std::vector<std::int64_t> moved, lengths;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const std::int64_t dim = normalise_axis(concrete(tracer, dims[i]), x->rank());
    const std::int64_t size = concrete(tracer, x->shape[dim]);
    if (size == 0) continue;
    const std::int64_t shift = ((concrete(tracer, shifts[i]) % size) + size) % size;
    if (shift == 0) continue;
    value = concatenate(
        tracer, {slice(tracer, value, dim, size - shift, shift), slice(tracer, value, dim, 0, size - shift)}, dim);
    axes.push_back(dim);
    moved.push_back(shift);
    lengths.push_back(size);
  }
  if (value == from) value = same_again(tracer, value);
  composite(tracer, CompositeRule::Roll, {from}, value, {{"axes", axes}, {"shifts", moved}, {"lengths", lengths}});
  return torch_in_format_of(tracer, x, value);
}

namespace {
V triangle(Tracer& tracer, const char* name, bool upper, const Arguments& arguments) {
  Parameters p(tracer, name, arguments, "input, diagonal, *, out");
  p.unsupported("out");
  Array x = torch_tensor(tracer, p.required("input"));
  if (x->rank() < 2) refuse("a triangle of fewer than two dimensions");
  ValueId value = tracer.read(*x), mask = triangle_mask(tracer, x->shape, p.integer("diagonal", 0), upper);
  return torch_fresh(tracer, emit(tracer, Op::where, {mask, value, constant_like(tracer, value, 0)}));
}
}  // namespace

V torch_tril(Tracer& tracer, const Arguments& arguments) { return triangle(tracer, "tril", false, arguments); }
V torch_triu(Tracer& tracer, const Arguments& arguments) { return triangle(tracer, "triu", true, arguments); }

V torch_diff(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "diff", arguments, "input, n, dim, prepend, append, *, out");
  p.unsupported("out");
  Array x = torch_tensor(tracer, p.required("input"));
  if (p.integer("n", 1) != 1) p.refuse("n other than 1");
  if (x->rank() == 0) refuse("diff() of a 0-d tensor");
  const std::int64_t dim = normalise_axis(p.integer("dim", -1), x->rank());
  std::vector<Array> parts;
  if (!p.absent("prepend")) parts.push_back(torch_tensor(tracer, p["prepend"]));
  parts.push_back(x);
  if (!p.absent("append")) parts.push_back(torch_tensor(tracer, p["append"]));
  for (const Array& part : parts)
    if (part->rank() != x->rank() || part->dtype != x->dtype) unsupported("diff() with tensors of another kind around");
  if (parts.size() > 1) x = array_of(concatenated(tracer, parts, dim));
  const SymDim count = x->shape[dim] - 1;
  if (tracer.decide(count, Py_LE, 0)) unsupported("diff() of fewer than two elements");
  Array high = view_slice(tracer, x, dim, 1, count, 1), low = view_slice(tracer, x, dim, 0, count, 1);
  const Op op = x->dtype == DType::Bool ? Op::bit_xor : Op::sub;
  return torch_pointwise(tracer, op, {{high, nullptr, x->dtype}, {low, nullptr, x->dtype}});
}

// ---- gathering

namespace {

Array index_tensor(Tracer& tracer, const V& value) {
  Array index = torch_tensor(tracer, value);
  if (index->dtype != DType::I64 && index->dtype != DType::I32) refuse("an index tensor that is not of integers");
  return index;
}

/// torch's gathers take no negative indices: they are errors the program must meet too.
ValueId checked(Tracer& tracer, ValueId index, const SymDim& size) {
  ValueId wide = cast(tracer, index, DType::I64);
  // A negative index is sent out of range, where the program fails and eager raises.
  ValueId beyond = broadcast_to(tracer, size_value(tracer, size, DType::I64), shape_of(tracer, wide));
  return emit(tracer, Op::where, {with_constant(tracer, Op::lt, wide, 0), beyond, wide});
}

}  // namespace

V torch_index_select(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "index_select", arguments, "input, dim, index, *, out");
  p.unsupported("out");
  Array x = torch_tensor(tracer, p.required("input")), index = index_tensor(tracer, p.required("index"));
  if (x->rank() == 0 || index->rank() != 1) unsupported("index_select() of or by a 0-d tensor");
  const std::int64_t dim = normalise_axis(int_argument(tracer, p.required("dim")), x->rank());
  return torch_fresh(tracer, gather(tracer, tracer.read(*x), checked(tracer, tracer.read(*index), x->shape[dim]), dim));
}

V torch_index_add(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "index_add", arguments, "input, dim, index, source, *, alpha, out");
  p.unsupported("out");
  Array x = torch_tensor(tracer, p.required("input")), index = index_tensor(tracer, p.required("index")),
        source = torch_tensor(tracer, p.required("source"));
  if (p.number("alpha", 1) != 1) unsupported("index_add() of multiples");
  if (x->dtype != DType::F32 && x->dtype != DType::F64 && x->dtype != DType::I64 && x->dtype != DType::I32)
    unsupported("index_add() to " + std::string(name(x->dtype)));
  if (x->rank() == 0 || index->rank() != 1 || source->rank() != x->rank() || source->dtype != x->dtype)
    unsupported("index_add() of these tensors");
  const std::int64_t dim = normalise_axis(int_argument(tracer, p.required("dim")), x->rank());
  Dims shape = x->shape;
  shape[std::size_t(dim)] = index->shape[0];
  if (!same_shape(tracer, source->shape, shape)) refuse("index_add() of another shape");
  if (source->shape != shape) unsupported("index_add() of sizes that vary apart from each other");
  if (source->storage == x->storage || index->storage == x->storage) unsupported("index_add() of a tensor to itself");
  Attrs attrs;
  attrs.set("axis", dim);
  return torch_fresh(
      tracer, emit(tracer, Op::scatter_add,
                   {tracer.read(*x), tracer.read(*source), checked(tracer, tracer.read(*index), x->shape[dim])},
                   std::move(attrs)));
}

V torch_one_hot(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "one_hot", arguments, "input, num_classes");
  Array classes = torch_tensor(tracer, p.required("input"));
  if (classes->dtype != DType::I64) unsupported("one_hot() of other than int64");
  SymDim count = p.absent("num_classes") ? SymDim(-1) : dim_argument(tracer, p["num_classes"]);
  if (count == SymDim(-1)) {
    if (tracer.decide(product(classes->shape), Py_EQ, 0))
      refuse("one_hot() of no elements without a number of classes");
    count = tracer.size_of_number(number_of_bins(tracer, tracer.read(*classes)));
  }
  if (tracer.decide(count, Py_LT, 1)) unsupported("one_hot() of no classes");
  Attrs attrs;
  attrs.set("shape", Dims{count});
  attrs.set("axis", std::int64_t(0));
  const ValueId all = emit(tracer, Op::iota, {}, std::move(attrs));
  // Read out of all there are: another class is out of range, as it is to torch.
  const ValueId given = gather(tracer, all, checked(tracer, tracer.read(*classes), count), 0);
  Dims shape = classes->shape;
  shape.push_back(count);
  const ValueId equal = emit(tracer, Op::eq, {broadcast_to(tracer, expand_axis(tracer, given, classes->rank()), shape),
                                              broadcast_to(tracer, all, shape)});
  V result = torch_fresh(tracer, cast(tracer, equal, DType::I64));
  if (!tracer.decide(product(classes->shape), Py_EQ, 0))
    *array_of(result)->torch_version = 2;  // eager fills zeros in place
  return result;
}

V torch_repeat_interleave(Tracer& tracer, const Arguments& arguments) {
  const bool counts_alone = arguments.positional.size() + arguments.keywords.size() == 1;
  Parameters p(tracer, "repeat_interleave", arguments,
               counts_alone ? "repeats" : "input, repeats, dim, *, output_size");
  p.unsupported(counts_alone ? "" : "output_size");
  Array counts = array_of(p.required("repeats"));
  if (!counts) unsupported("repeat_interleave() by an int");
  if (counts->rank() != 1 || (counts->dtype != DType::I64 && counts->dtype != DType::I32))
    unsupported("repeat_interleave() by such a tensor");
  if (tracer.decide(counts->shape[0], Py_EQ, 0)) unsupported("repeat_interleave() by no counts");
  if (counts_alone) return torch_fresh(tracer, repeated_positions(tracer, tracer.read(*counts)));
  Array x = torch_tensor(tracer, p.required("input"));
  ValueId value = tracer.read(*x);
  std::int64_t axis = 0;
  if (p.absent("dim"))
    value = reshape(tracer, value, {product(x->shape)});
  else if (x->rank() > 0)
    axis = normalise_axis(int_argument(tracer, p["dim"]), x->rank());
  else
    unsupported("repeat_interleave() of a number along an axis");
  const SymDim size = shape_of(tracer, value)[std::size_t(axis)];
  if (!tracer.decide(counts->shape[0], Py_EQ, size)) unsupported("repeat_interleave() by one count for all");
  return torch_fresh(tracer, gather(tracer, value, repeated_positions(tracer, tracer.read(*counts)), axis));
}

V torch_bincount(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "bincount", arguments, "input, weights, minlength");
  Array x = torch_tensor(tracer, p.required("input"));
  if (x->rank() != 1 || !is_integer(x->dtype) || x->dtype == DType::Bool || tracer.decide(x->shape[0], Py_EQ, 0))
    unsupported("bincount() of such a tensor");
  const SymDim least = p.absent("minlength") ? SymDim(0) : dim_argument(tracer, p["minlength"]);
  ValueId weights;
  if (!p.absent("weights")) {
    Array given = torch_tensor(tracer, p["weights"]);
    if (!same_shape(tracer, given->shape, x->shape) || tracer.requires_gradient(*given) || is_complex(given->dtype))
      unsupported("bincount() with such weights");
    weights = cast(tracer, tracer.read(*given), given->dtype == DType::F32 ? DType::F32 : DType::F64);
  }
  return torch_fresh(tracer, counted_bins(tracer, tracer.read(*x), weights, least));
}

V torch_gather(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "gather", arguments, "input, dim, index, *, sparse_grad, out");
  p.unsupported("out");
  Array x = torch_tensor(tracer, p.required("input")), index = torch_tensor(tracer, p.required("index"));
  if (p.flag("sparse_grad", false) && tracer.requires_gradient(*x))
    break_graph(BreakReason::Gradient, "gather() whose gradient is a sparse tensor");
  if (index->dtype != DType::I64) refuse("gather() by an index that is not int64");
  if (x->rank() == 0 || index->rank() != x->rank()) unsupported("gather() by an index of another rank");
  const std::int64_t dim = normalise_axis(int_argument(tracer, p.required("dim")), x->rank());
  ValueId value = tracer.read(*x);
  // Axes other than dim may be longer in the input: the rest is not read.
  Dims shape = x->shape;
  for (std::int64_t axis = 0; axis < x->rank(); ++axis) {
    if (axis == dim || shape[axis] == index->shape[axis]) continue;
    if (tracer.decide(index->shape[axis], Py_GT, shape[axis])) refuse("gather() by an index larger than the tensor");
    value = slice(tracer, value, axis, 0, index->shape[axis]);
  }
  Attrs attrs;
  attrs.set("axis", dim);
  return torch_fresh(tracer, emit(tracer, Op::take_along, {value, checked(tracer, tracer.read(*index), x->shape[dim])},
                                  std::move(attrs)));
}

V torch_take_along_dim(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "take_along_dim", arguments, "input, indices, dim, *, out");
  p.unsupported("out");
  Array x = torch_tensor(tracer, p.required("input")), index = torch_tensor(tracer, p.required("indices"));
  if (p.absent("dim") || index->rank() != x->rank() || index->dtype != DType::I64)
    unsupported("take_along_dim() with these arguments");
  const std::int64_t dim = normalise_axis(int_argument(tracer, p["dim"]), x->rank());
  Dims source = x->shape, wanted = index->shape;
  for (std::int64_t axis = 0; axis < x->rank(); ++axis) {
    if (axis == dim) continue;
    const Dims pair[] = {{source[axis]}, {wanted[axis]}};
    source[axis] = wanted[axis] = broadcast_shapes(tracer, pair)[0];
  }
  Attrs attrs;
  attrs.set("axis", dim);
  ValueId value = broadcast_to(tracer, tracer.read(*x), source),
          indices = broadcast_to(tracer, tracer.read(*index), wanted);
  return torch_fresh(tracer,
                     emit(tracer, Op::take_along, {value, checked(tracer, indices, x->shape[dim])}, std::move(attrs)));
}

V torch_nonzero(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "nonzero", arguments, "input, *, out, as_tuple");
  p.unsupported("out");
  Array x = torch_tensor(tracer, p.required("input"));
  if (x->rank() == 0 || is_complex(x->dtype)) break_graph(BreakReason::DataDependentShape, "nonzero() of this tensor");
  const std::vector<ValueId> indices = coordinates(tracer, cast(tracer, tracer.read(*x), DType::Bool));
  // Column by column in memory.
  const ValueId table = stack(tracer, indices, 1);
  Array all = tracer.new_array(Library::Torch, table, column_major(shape_of(tracer, table)));
  if (!p.flag("as_tuple", false)) return all;
  std::vector<V> columns;
  for (std::size_t i = 0; i < indices.size(); ++i)
    columns.push_back(view_select(tracer, all, 1, SymDim(std::int64_t(i))));
  V parts = tracer.tuple(std::move(columns));
  PyObject* const unbind = once([] { return imported("torch", "unbind").release(); });
  torch_note_views(tracer, all, unbind, {tracer.integer(std::int64_t(1))}, {},
                   parts);  // writes into them may be refused
  return parts;
}

V torch_masked_select(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "masked_select", arguments, "input, mask, *, out");
  p.unsupported("out");
  Array x = torch_tensor(tracer, p.required("input")), mask = torch_tensor(tracer, p.required("mask"));
  if (mask->dtype != DType::Bool) refuse("masked_select() by a mask that is not bool");
  const Dims shapes[] = {x->shape, mask->shape};
  const Dims shape = broadcast_shapes(tracer, shapes);
  if (shape.empty()) break_graph(BreakReason::DataDependentShape, "masked_select() of a number");
  std::vector<ValueId> operands{broadcast_to(tracer, tracer.read(*x), shape)};
  for (ValueId index : coordinates(tracer, broadcast_to(tracer, tracer.read(*mask), shape))) operands.push_back(index);
  Attrs attrs;
  attrs.set("axis", std::int64_t(0));
  return torch_fresh(tracer, emit(tracer, Op::gather, std::move(operands), std::move(attrs)));
}

namespace {

/// What a function of framejit._support.torch found, and the row of it that its mask leaves; `flags` go to the
/// function.
V found_in(Tracer& tracer, Parameters& p, const char* function, std::vector<V> flags) {
  Array x = torch_tensor(tracer, p.required("input"));
  if (!p.absent("dim")) unsupported(std::string(function) + "() along a dimension");
  if (tracer.requires_gradient(*x)) unsupported(std::string(function) + "() of a tensor that requires a gradient");
  Ref<> module = Ref<>::steal(PyImport_ImportModule("framejit._support.torch"));
  Ref<> helper = module ? Ref<>::steal(PyObject_GetAttrString(module.get(), function)) : Ref<>();
  PyErr_Clear();
  if (!helper) unsupported(std::string(function) + "() without framejit._support.torch");
  const bool inverse = p.flag("return_inverse", false), counts = p.flag("return_counts", false);
  flags.insert(flags.begin(), x);
  flags.push_back(tracer.boolean(inverse));
  flags.push_back(tracer.boolean(counts));
  std::vector<V> found = tracer.sequence_items(tracer.extern_call(tracer.constant(std::move(helper)), flags, {}));
  const V mask = found[1];
  found.erase(found.begin() + 1);
  found.front() = torch_masked_select(tracer, {{found.front(), mask}, {}});
  if (counts) found.back() = torch_masked_select(tracer, {{found.back(), mask}, {}});
  return found.size() == 1 ? found.front() : tuple_of(tracer, std::move(found));
}

}  // namespace

V torch_unique(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "unique", arguments, "input, sorted, return_inverse, return_counts, dim");
  return found_in(tracer, p, "unique", {tracer.boolean(p.flag("sorted", true))});
}

V torch_unique_consecutive(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "unique_consecutive", arguments, "input, return_inverse, return_counts, dim");
  return found_in(tracer, p, "unique_consecutive", {});
}

V torch_meshgrid(Tracer& tracer, const Arguments& arguments) {
  V indexing;
  for (const auto& [name, value] : arguments.keywords)
    if (name == "indexing") indexing = value;
    else unsupported("meshgrid() with the argument '" + name + "'");
  PyObject* text = indexing ? tracer.constant_object(indexing) : nullptr;
  // Without indexing= torch warns.
  if (!text || !PyUnicode_Check(text)) unsupported("meshgrid() without indexing");
  const bool xy = PyUnicode_CompareWithASCIIString(text, "xy") == 0;
  std::vector<V> inputs = arguments.positional;
  if (inputs.size() == 1 && !array_of(inputs[0])) inputs = tracer.sequence_items(inputs[0]);
  std::vector<Array> axes;
  for (const V& input : inputs) {
    axes.push_back(torch_tensor(tracer, input));
    if (axes.back()->rank() != 1) unsupported("meshgrid() of other than 1-d tensors");
  }
  if (xy && axes.size() >= 2) std::swap(axes[0], axes[1]);
  Dims shape;
  for (const Array& axis : axes) shape.push_back(axis->shape[0]);
  std::vector<V> grids;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    Dims one(shape.size(), SymDim(1));
    one[i] = shape[i];
    Array grid = view_broadcast(tracer, array_of(viewed(tracer, axes[i], one)), shape);
    grids.push_back(grid);
  }
  if (xy && axes.size() >= 2) std::swap(grids[0], grids[1]);
  return tuple_of(tracer, std::move(grids));
}

V torch_broadcast_tensors(Tracer& tracer, const Arguments& arguments) {
  std::vector<V> inputs = arguments.positional;
  if (inputs.size() == 1 && !array_of(inputs[0])) inputs = tracer.sequence_items(inputs[0]);
  std::vector<Dims> shapes;
  for (const V& input : inputs) shapes.push_back(torch_tensor(tracer, input)->shape);
  const Dims shape = broadcast_shapes(tracer, shapes);
  std::vector<V> items;
  for (const V& input : inputs)
    items.push_back(array_of(input)->shape == shape ? input : V(view_broadcast(tracer, array_of(input), shape)));
  return tuple_of(tracer, std::move(items));
}

V torch_atleast_1d(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "atleast_1d", arguments, "input");
  Array x = torch_tensor(tracer, p.required("input"));
  return x->rank() == 0 ? reshaped(tracer, x, {SymDim(1)}) : p["input"];
}

// ---- queries

V torch_numel(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numel", arguments, "input");
  return tracer.integer(product(torch_tensor(tracer, p.required("input"))->shape));
}

V torch_size_method(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "size", arguments, "input, dim");
  Array x = torch_tensor(tracer, p.required("input"));
  if (p.absent("dim")) return torch_size(tracer, x->shape);
  return tracer.integer(x->shape[normalise_axis(int_argument(tracer, p["dim"]), x->rank())]);
}

V torch_stride(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "stride", arguments, "input, dim");
  Array x = torch_tensor(tracer, p.required("input"));
  const Strides& strides = exact_strides(tracer, *x);
  if (p.absent("dim")) return shape_tuple(tracer, strides);
  return tracer.integer(strides[normalise_axis(int_argument(tracer, p["dim"]), x->rank())]);
}

V torch_storage_offset(Tracer& tracer, const Arguments& arguments) {
  Array x = only(tracer, arguments);
  if (x->storage->input_array) unsupported("storage_offset() of an argument");
  return tracer.integer(x->offset);
}

V torch_dim_method(Tracer& tracer, const Arguments& arguments) {
  return tracer.integer(std::int64_t(only(tracer, arguments)->rank()));
}

V torch_element_size(Tracer& tracer, const Arguments& arguments) {
  return tracer.integer(std::int64_t(size_in_bytes(only(tracer, arguments)->dtype)));
}

V torch_is_contiguous(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "is_contiguous", arguments, "input, memory_format");
  Array x = torch_tensor(tracer, p.required("input"));
  tracer.note_layout(*x);
  if (is_contiguous_format(tracer, p["memory_format"]))
    return tracer.boolean(is_contiguous(tracer, x->shape, x->strides));
  const Ref<> format = tracer.constant_object(p["memory_format"]);
  const int rank = format.get() == torch_object("channels_last").get()      ? 4
                   : format.get() == torch_object("channels_last_3d").get() ? 5
                                                                            : 0;
  if (!rank) p.refuse("a memory format");
  return tracer.boolean(x->rank() == rank && is_channels_last(tracer, x->shape, x->strides));
}

V torch_is_inference(Tracer& tracer, const Arguments& arguments) {
  Array x = only(tracer, arguments);
  tracer.note_autograd(*x, AutogradFact::IsInference, x->storage->inference);
  return tracer.boolean(x->storage->inference);
}

V torch_len(Tracer& tracer, const Arguments& arguments) {
  Array x = only(tracer, arguments);
  if (x->rank() == 0) refuse("len() of a 0-d tensor");
  return tracer.integer(x->shape[0]);
}

V torch_f_pad(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "pad", arguments, "input, pad, mode, value");
  Array x = torch_tensor(tracer, p.required("input"));
  if (p.text("mode", "constant") != "constant") return torch_extern(tracer, "nn.functional.pad", arguments);
  const Dims amounts = dims_argument(tracer, p.required("pad"));
  if (amounts.size() % 2 || amounts.size() / 2 > x->shape.size())
    refuse("pad() of more dimensions than the tensor has");
  Dims low(x->shape.size(), 0), high(x->shape.size(), 0);
  for (std::size_t i = 0; i < amounts.size() / 2; ++i) {
    low[x->shape.size() - 1 - i] = amounts[2 * i];
    high[x->shape.size() - 1 - i] = amounts[2 * i + 1];
  }
  for (const SymDim& amount : amounts)
    if (tracer.decide(amount, Py_LT, 0)) unsupported("pad() by a negative amount");
  if (std::all_of(amounts.begin(), amounts.end(),
                  [&](const SymDim& amount) { return tracer.decide(amount, Py_EQ, 0); }))
    return torch_like(tracer, x, same_again(tracer, tracer.read(*x)));
  const double number = p.absent("value") ? 0 : torch_number(tracer, p, "value", 0);
  if (!is_float(x->dtype) && number != double(std::int64_t(number))) unsupported("pad() of integers with a float");
  Attrs attrs;
  attrs.set("low", low);
  attrs.set("high", high);
  ValueId value = emit(tracer, Op::pad, {tracer.read(*x), constant(tracer, x->dtype, scalar_of(x->dtype, number))},
                       std::move(attrs));
  return torch_in_format_of(tracer, x, value);
}

}  // namespace fj
