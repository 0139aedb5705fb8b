/// Shape functions: views where NumPy gives views, copies with NumPy's layout where it copies; joining and splitting;
/// selection by condition (where, clip, take, triangles).
#include <algorithm>
#include <numeric>

#include "tracer/frontends/composites.h"
#include "tracer/frontends/indexing.h"
#include "tracer/frontends/numpy/numpy.h"

namespace fj {
namespace {

void require_c_order(const Parameters& p) {
  if (p.text("order", "C") != "C") p.refuse("the argument 'order'");
}

/// An argument as an array that views may be taken of: a NumPy scalar is copied into a 0-d array first.
Array viewable(Tracer& tracer, const V& value) {
  Array x = numpy_array(tracer, value);
  return x->numpy_scalar ? fresh(tracer, tracer.read(*x)) : x;
}

V reshape_array(Tracer& tracer, const Array& x, const Dims& to) {
  const Dims shape = resolve_reshape(tracer, x->shape, to);
  return reshape_or_copy(tracer, x, shape, shape == to);
}

/// f(a, ...) may be called with the rest spread out: x.reshape(2, 3) and x.reshape((2, 3)).
V spread(Tracer& tracer, const Arguments& arguments) {
  if (arguments.positional.size() == 2) return arguments.positional[1];
  return tracer.tuple(std::vector<V>(arguments.positional.begin() + 1, arguments.positional.end()));
}

V transpose_by(Tracer& tracer, const Array& x, const V& axes) {
  Axes permutation;
  if (!axes || tracer.is_none(axes)) {
    for (int i = x->rank(); i-- > 0;) permutation.push_back(i);
  } else {
    for (const V& axis : tracer.sequence_items(axes))
      permutation.push_back(normalise_axis(int_argument(tracer, axis), x->rank()));
    Axes sorted = permutation;
    std::sort(sorted.begin(), sorted.end());
    if (sorted != all_axes(x->rank())) refuse("axes don't match array");
  }
  return view_transpose(tracer, x, permutation);
}

/// Fortran order if `x` is in Fortran order only, else C order.
Strides c_or_fortran(Tracer& tracer, const Array& x, const Dims& shape) {
  const bool fortran = !is_contiguous(tracer, x->shape, x->strides) && is_column_major(tracer, x->shape, x->strides);
  return fortran ? column_major(shape) : row_major(shape);
}

struct Parts {
  std::vector<Array> arrays;
  std::vector<ValueId> values;
};

/// weak: numbers of Python's adapt to the arrays.
Parts promoted(Tracer& tracer, const std::vector<V>& items, bool weak = false) {
  if (items.empty()) refuse("need at least one array to concatenate");
  std::vector<Operand> operands;
  for (const V& item : items) {
    Operand operand{nullptr, nullptr, Operand::Weak::No};
    if (weak) operand = numpy_operand(tracer, item);
    if (operand.weak == Operand::Weak::No) operand.array = viewable(tracer, item);
    operands.push_back(std::move(operand));
  }
  const DType dtype = numpy_result_type(tracer, operands);
  Parts parts;
  for (const Operand& operand : operands) {
    parts.values.push_back(operand_value(tracer, operand, dtype));
    parts.arrays.push_back(operand.array ? operand.array : fresh(tracer, parts.values.back()));
  }
  return parts;
}

V join(Tracer& tracer, const Parts& parts, std::int64_t axis) {
  if (parts.arrays[0]->shape.empty()) refuse("zero-dimensional arrays cannot be concatenated");
  axis = normalise_axis(axis, parts.arrays[0]->rank());
  const ValueId joined = concatenate(tracer, parts.values, axis);
  std::vector<Layout> layouts;
  for (const Array& array : parts.arrays) layouts.push_back(layout_of(array));
  return tracer.new_array(Library::Numpy, joined, numpy_concatenate_strides(tracer, shape_of(tracer, joined), layouts));
}

V join_arrays(Tracer& tracer, const std::vector<Array>& arrays, std::int64_t axis) {
  return join(tracer, promoted(tracer, std::vector<V>(arrays.begin(), arrays.end())), axis);
}

Array at_least_1d(Tracer& tracer, const Array& x) {
  return x->shape.empty() ? reshape_or_copy(tracer, x, {SymDim(1)}) : x;
}

Array at_least_2d(Tracer& tracer, const Array& x) {
  if (x->shape.empty()) return reshape_or_copy(tracer, x, {SymDim(1), SymDim(1)});
  return x->rank() == 1 ? view_expand_axes(tracer, x, {0}) : x;
}

V split_at(Tracer& tracer, const Array& x, std::int64_t axis, const std::vector<SymDim>& bounds) {
  std::vector<V> parts;
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    const SymDim start = bounds[i], size = bounds[i + 1] - start;
    parts.push_back(view_slice(tracer, x, axis, start, size, 1));
  }
  return tracer.list(std::move(parts));
}

V split(Tracer& tracer, const Arguments& arguments, const char* name, bool uneven) {
  Parameters p(tracer, name, arguments, "ary, indices_or_sections, axis");
  Array x = viewable(tracer, p.required("ary"));
  const std::int64_t axis = normalise_axis(p.integer("axis", 0), x->rank());
  const SymDim size = x->shape[axis];
  V where = p.required("indices_or_sections");
  // NumPy asks it for its shape: split(list, 2) is an error, and array_split counts along the first axis.
  if (!array_of(p.required("ary"))) p.refuse("a sequence that is no array");
  std::vector<SymDim> bounds{SymDim(0)};
  if (tracer.int_expression(where)) {
    const std::int64_t sections = int_argument(tracer, where);
    if (sections <= 0) refuse("number sections must be larger than 0.");
    const SymDim each = floor_divide(tracer, size, sections);
    const bool even = tracer.decide(each * SymDim(sections), Py_EQ, size);
    if (!even && !uneven) refuse("array split does not result in an equal division");
    const std::int64_t extra = even ? 0 : concrete(tracer, size) % sections;
    for (std::int64_t i = 0; i < sections; ++i) bounds.push_back(bounds.back() + each + SymDim(i < extra ? 1 : 0));
    return split_at(tracer, x, axis, bounds);
  }
  // Indices: x[:i], x[i:j], ..., each by slice rules.
  std::vector<V> parts;
  V previous = tracer.integer(0);
  std::vector<V> indices = numpy_sequence(tracer, where);
  for (std::size_t i = 0; i <= indices.size(); ++i) {
    Index::Item item{
        Index::Item::Kind::Slice, 0, previous, i < indices.size() ? indices[i] : nullptr, nullptr, nullptr};
    const SliceBounds bounds_here = slice_bounds(tracer, item, size);
    parts.push_back(view_slice(tracer, x, axis, bounds_here.start, bounds_here.size, 1));
    if (i < indices.size()) previous = indices[i];
  }
  return tracer.list(std::move(parts));
}

V flip_axes(Tracer& tracer, const Array& x, const Axes& axes) {
  if (x->shape.empty()) return numpy_result(tracer, fresh(tracer, tracer.read(*x)));  // x[()]
  Array view = x;
  for (std::int64_t axis : axes) view = view_slice(tracer, view, axis, view->shape[axis] - 1, view->shape[axis], -1);
  return axes.empty() ? view_alias(tracer, x) : view;
}

V triangle(Tracer& tracer, const Arguments& arguments, const char* name, bool upper) {
  Parameters p(tracer, name, arguments, "m, k");
  Array x = viewable(tracer, p.required("m"));
  if (x->rank() < 2) p.refuse("an array of fewer than two dimensions");
  const std::int64_t diagonal = p.integer("k", 0);
  const Dims matrix(x->shape.end() - 2, x->shape.end());
  const ValueId keep = triangle_mask(tracer, matrix, diagonal, upper), value = tracer.read(*x);
  const ValueId result = pointwise(tracer, Op::where, {keep, value, constant(tracer, x->dtype, 0)});
  // np.where(mask, m, 0) with a C-order mask.
  const Layout layouts[] = {{matrix, row_major(matrix)}, layout_of(x)};
  return tracer.new_array(Library::Numpy, result, elementwise_strides(tracer, Library::Numpy, x->shape, layouts));
}

}  // namespace

namespace {

/// A method of a NumPy scalar that leaves it without axes gives a scalar, of an array an array: so do the functions,
/// which call the method.
V of_scalar(Tracer& tracer, const V& given, V result) {
  const Array x = array_of(given), made = array_of(result);
  auto* object = as<ObjectValue>(given);
  const bool scalar = x ? x->numpy_scalar : object && numpy_scalar_dtype(object->object.get());
  return scalar && made->shape.empty() ? numpy_result(tracer, fresh(tracer, tracer.read(*made))) : result;
}

}  // namespace

V numpy_reshape(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.reshape", arguments, "a, shape, order, *, newshape, copy");
  p.unsupported("copy, newshape");
  require_c_order(p);
  return of_scalar(
      tracer, p["a"],
      reshape_array(tracer, viewable(tracer, p.required("a")), dims_argument(tracer, p.required("shape"))));
}

V numpy_reshape_method(Tracer& tracer, const Arguments& arguments) {
  Arguments bound;
  bound.positional = {arguments.positional[0]};
  if (arguments.positional.size() > 1) bound.positional.push_back(spread(tracer, arguments));
  bound.keywords = arguments.keywords;
  return numpy_reshape(tracer, bound);
}

V numpy_ravel(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.ravel", arguments, "a, order");
  require_c_order(p);
  Array x = viewable(tracer, p.required("a"));
  const Dims flat{product(x->shape)};
  // A view only of contiguous arrays: unlike reshape, ravel promises contiguous memory.
  if (is_contiguous(tracer, x->shape, x->strides)) return reshape_or_copy(tracer, x, flat, false);
  const Array copy = laid(fresh(tracer, reshape(tracer, tracer.read(*x), flat)));
  tracer.note_layout(*x, copy.get());
  return copy;
}

V numpy_flatten(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.ndarray.flatten", arguments, "a, order");
  require_c_order(p);
  Array x = viewable(tracer, p.required("a"));
  return fresh(tracer, reshape(tracer, tracer.read(*x), {product(x->shape)}));
}

V numpy_transpose(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.transpose", arguments, "a, axes");
  return of_scalar(tracer, p["a"], transpose_by(tracer, viewable(tracer, p.required("a")), p["axes"]));
}

V numpy_transpose_method(Tracer& tracer, const Arguments& arguments) {
  Arguments bound;
  bound.positional = {arguments.positional[0]};
  if (arguments.positional.size() == 2 && tracer.int_expression(arguments.positional[1]))
    bound.positional.push_back(tracer.tuple({arguments.positional[1]}));
  else if (arguments.positional.size() > 1)
    bound.positional.push_back(spread(tracer, arguments));
  bound.keywords = arguments.keywords;
  return numpy_transpose(tracer, bound);
}

V numpy_swapaxes(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.swapaxes", arguments, "a, axis1, axis2");
  Array x = viewable(tracer, p.required("a"));
  Axes permutation = all_axes(x->rank());
  const std::int64_t first = normalise_axis(int_argument(tracer, p.required("axis1")), x->rank());
  const std::int64_t second = normalise_axis(int_argument(tracer, p.required("axis2")), x->rank());
  std::swap(permutation[first], permutation[second]);
  return view_transpose(tracer, x, permutation);
}

/// Of a matrix in row- or column-major order, whose elements are one row: every (columns + 1)th of them. A view that is
/// read-only.
V numpy_diagonal(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.ndarray.diagonal", arguments, "a, offset, axis1, axis2");
  Array x = viewable(tracer, p.required("a"));
  if (x->rank() != 2) unsupported("the diagonal of an array that is no matrix");
  std::int64_t offset = p.integer("offset", 0);
  const std::int64_t first = normalise_axis(p.integer("axis1", 0), 2),
                     second = normalise_axis(p.integer("axis2", 1), 2);
  if (first == second) refuse("axis1 and axis2 cannot be the same");
  if (first == 1) x = view_transpose(tracer, x, {1, 0});
  if (!is_contiguous(tracer, x->shape, x->strides)) {
    x = view_transpose(tracer, x, {1, 0});
    offset = -offset;
    if (!is_contiguous(tracer, x->shape, x->strides)) unsupported("the diagonal of a matrix with gaps");
  }
  const SymDim rows = x->shape[0], columns = x->shape[1];
  SymDim size = rows;
  if (offset != 0 || !tracer.decide(rows, Py_EQ, columns)) {
    const std::int64_t tall = concrete(tracer, rows), wide = concrete(tracer, columns);
    size = std::max<std::int64_t>(0, offset >= 0 ? std::min(tall, wide - offset) : std::min(tall + offset, wide));
  }
  if (tracer.decide(size, Py_LE, 1)) unsupported("a diagonal of at most one element");
  const SymDim start = offset >= 0 ? SymDim(offset) : SymDim(-offset) * columns;
  Array row = view_reshape(tracer, x, {rows * columns});
  // Strided by a size that may vary: a column of a matrix that is wider by one, but for its last row.
  if (!columns.is_constant()) unsupported("the diagonal of a matrix whose size varies");
  Array view = view_slice(tracer, row, 0, start, size, columns.value() + 1);
  view->writeable = false;
  view->shown_read_only = true;
  return view;
}

V numpy_moveaxis(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.moveaxis", arguments, "a, source, destination");
  Array x = viewable(tracer, p.required("a"));
  auto axes = [&](const V& value) {
    Axes result;
    if (tracer.int_expression(value)) result.push_back(int_argument(tracer, value));
    else for (const V& item : tracer.sequence_items(value)) result.push_back(int_argument(tracer, item));
    for (std::int64_t& axis : result) axis = normalise_axis(axis, x->rank());
    return result;
  };
  const Axes source = axes(p.required("source")), destination = axes(p.required("destination"));
  if (source.size() != destination.size()) refuse("`source` and `destination` must have the same number of elements");
  for (const Axes& list : {source, destination}) {
    Axes sorted = list;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) refuse("repeated axis");
  }
  Axes permutation;
  for (std::int64_t axis = 0; axis < x->rank(); ++axis)
    if (std::find(source.begin(), source.end(), axis) == source.end()) permutation.push_back(axis);
  std::vector<std::pair<std::int64_t, std::int64_t>> moves;
  for (std::size_t i = 0; i < source.size(); ++i) moves.emplace_back(destination[i], source[i]);
  std::sort(moves.begin(), moves.end());
  for (const auto& [to, from] : moves) permutation.insert(permutation.begin() + to, from);
  return of_scalar(tracer, p["a"], view_transpose(tracer, x, permutation));
}

V numpy_squeeze(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.squeeze", arguments, "a, axis");
  Array x = viewable(tracer, p.required("a"));
  Axes axes;
  if (p.absent("axis")) {
    for (int i = 0; i < x->rank(); ++i)
      if (tracer.decide(x->shape[i], Py_EQ, 1)) axes.push_back(i);
  } else {
    axes = axes_argument(tracer, p["axis"], x->rank());
    for (std::int64_t axis : axes)
      if (!tracer.decide(x->shape[axis], Py_EQ, 1))
        refuse("cannot select an axis to squeeze out which has size not equal to one");
  }
  // Nothing to take out: the array itself, not a view, or what was made of a number or list.
  if (axes.empty() && x == array_of(p["a"])) return p["a"];
  return of_scalar(tracer, p["a"], axes.empty() && !array_of(p["a"]) ? x : view_squeeze(tracer, x, axes));
}

V numpy_expand_dims(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.expand_dims", arguments, "a, axis");
  Array x = viewable(tracer, p.required("a"));
  V axis = p.required("axis");
  const int count = tracer.int_expression(axis) ? 1 : int(tracer.sequence_items(axis).size());
  // It is a reshape, so its new axes have the strides of one.
  Dims shape = x->shape;
  for (std::int64_t place : axes_argument(tracer, axis, x->rank() + count))
    shape.insert(shape.begin() + place, SymDim(1));
  Array view = view_reshape(tracer, x, shape);
  return view ? view : view_expand_axes(tracer, x, axes_argument(tracer, axis, x->rank() + count));
}

V numpy_broadcast_to(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.broadcast_to", arguments, "array, shape, subok");
  Array view =
      view_broadcast(tracer, viewable(tracer, p.required("array")), dims_argument(tracer, p.required("shape")));
  view->writeable = false;
  view->shown_read_only = true;
  return view;
}

/// A window along each of the axes, one after the other; an axis may be given twice.
V numpy_sliding_windows(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.lib.stride_tricks.sliding_window_view", arguments,
               "x, window_shape, axis, *, subok, writeable");
  Array x = viewable(tracer, p.required("x"));
  if (p.flag("writeable", false)) p.refuse("windows that may be written");
  const Dims sizes = dims_argument(tracer, p.required("window_shape"));
  Axes axes(sizes.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (p.absent("axis")) {
    if (std::int64_t(axes.size()) != x->rank()) refuse("window_shape is not of the array's dimensions");
  } else {
    const Dims given = dims_argument(tracer, p["axis"]);
    if (given.size() != sizes.size()) refuse("window_shape and axis of different lengths");
    for (std::size_t i = 0; i < given.size(); ++i) axes[i] = normalise_axis(concrete(tracer, given[i]), x->rank());
  }
  if (axes.empty()) unsupported("windows along no axis");
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t size = concrete(tracer, sizes[i]);
    const SymDim extent = x->shape[axes[i]];
    if (size < 0) refuse("negative values in window_shape");
    if (tracer.decide(extent, Py_LT, size)) refuse("windows larger than the array");
    x = view_windows(tracer, x, axes[i], extent + SymDim(1 - size), size, 1);
  }
  x->writeable = false;
  x->shown_read_only = true;
  return x;
}

V numpy_atleast_1d(Tracer& tracer, const Arguments& arguments) {
  if (arguments.positional.size() != 1) unsupported("numpy.atleast_1d of several arrays");
  Array x = viewable(tracer, arguments.positional[0]);
  Array result = at_least_1d(tracer, x);
  return result == array_of(arguments.positional[0]) ? arguments.positional[0] : V(result);
}

V numpy_atleast_2d(Tracer& tracer, const Arguments& arguments) {
  if (arguments.positional.size() != 1) unsupported("numpy.atleast_2d of several arrays");
  Array x = viewable(tracer, arguments.positional[0]);
  Array result = at_least_2d(tracer, x);
  return result == array_of(arguments.positional[0]) ? arguments.positional[0] : V(result);
}

// ---- joining and splitting

V numpy_concatenate(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.concatenate", arguments, "arrays, axis, out, *, dtype, casting");
  p.unsupported("dtype, casting");
  V axis = p["axis"];
  const bool flat = axis && tracer.is_none(axis);
  Parts parts = promoted(tracer, numpy_sequence(tracer, p.required("arrays")), flat);
  V result;
  if (flat) {
    for (std::size_t i = 0; i < parts.arrays.size(); ++i) {
      parts.values[i] = reshape(tracer, parts.values[i], {product(parts.arrays[i]->shape)});
      parts.arrays[i] = fresh(tracer, parts.values[i]);
    }
    result = join(tracer, parts, 0);
  } else {
    result = join(tracer, parts, p.integer("axis", 0));
  }
  if (p.absent("out")) return result;
  Array out = array_of(p["out"]), joined = array_of(result);
  if (!out || out->dtype != joined->dtype) p.refuse("an 'out' of another dtype");
  return write_out(tracer, p["out"], tracer.read(*joined));
}

V numpy_stack(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.stack", arguments, "arrays, axis, out, *, dtype, casting");
  p.unsupported("out, dtype, casting");
  std::vector<Array> arrays;
  for (const V& item : numpy_sequence(tracer, p.required("arrays"))) arrays.push_back(viewable(tracer, item));
  if (arrays.empty()) refuse("need at least one array to stack");
  const std::int64_t axis = normalise_axis(p.integer("axis", 0), arrays[0]->rank() + 1);
  const Dims shape = arrays[0]->shape;
  for (Array& array : arrays) {
    if (!same_shape(tracer, array->shape, shape)) refuse("all input arrays must have the same shape");
    array = view_expand_axes(tracer, array, {axis});
  }
  return join_arrays(tracer, arrays, axis);
}

V numpy_hstack(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.hstack", arguments, "tup, *, dtype, casting");
  p.unsupported("dtype, casting");
  std::vector<Array> arrays;
  for (const V& item : numpy_sequence(tracer, p.required("tup")))
    arrays.push_back(at_least_1d(tracer, viewable(tracer, item)));
  if (arrays.empty()) refuse("need at least one array to concatenate");
  return join_arrays(tracer, arrays, arrays[0]->rank() == 1 ? 0 : 1);
}

V numpy_vstack(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.vstack", arguments, "tup, *, dtype, casting");
  p.unsupported("dtype, casting");
  std::vector<Array> arrays;
  for (const V& item : numpy_sequence(tracer, p.required("tup")))
    arrays.push_back(at_least_2d(tracer, viewable(tracer, item)));
  return join_arrays(tracer, arrays, 0);
}

V numpy_column_stack(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.column_stack", arguments, "tup");
  std::vector<Array> arrays;
  for (const V& item : numpy_sequence(tracer, p.required("tup"))) {
    Array x = viewable(tracer, item);
    // np.array(arr, ndmin=2).T
    if (x->rank() < 2) x = view_transpose(tracer, at_least_2d(tracer, x), {1, 0});
    arrays.push_back(x);
  }
  return join_arrays(tracer, arrays, 1);
}

V numpy_split(Tracer& t, const Arguments& a) { return split(t, a, "numpy.split", false); }
V numpy_array_split(Tracer& t, const Arguments& a) { return split(t, a, "numpy.array_split", true); }

V numpy_tile(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.tile", arguments, "A, reps");
  Array x = viewable(tracer, p.required("A"));
  const V given = p.required("reps");
  if (auto* object = as<ObjectValue>(given); object && numpy_scalar_dtype(object->object.get()))
    p.refuse("a NumPy scalar, whose products may overflow");
  Dims reps = dims_argument(tracer, given), shape = x->shape;
  if (reps.size() < shape.size()) reps.insert(reps.begin(), shape.size() - reps.size(), SymDim(1));
  if (shape.size() < reps.size()) shape.insert(shape.begin(), reps.size() - shape.size(), SymDim(1));
  for (const SymDim& count : reps) {
    if (tracer.decide(count, Py_LT, 0)) refuse("negative repetitions");
  }
  // Nothing to repeat: a reshaped view.
  if (tracer.decide(product(x->shape), Py_EQ, 0)) p.refuse("an array without elements");
  // All ones is a copy in NumPy's own order.
  if (std::all_of(reps.begin(), reps.end(), [&](const SymDim& count) { return tracer.decide(count, Py_EQ, 1); }))
    p.refuse("repetitions of one");
  // [d0, d1] -> [1, d0, 1, d1] -> [r0, d0, r1, d1] -> [r0*d0, r1*d1]
  Dims spaced, repeated, result;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    spaced.insert(spaced.end(), {SymDim(1), shape[i]});
    repeated.insert(repeated.end(), {reps[i], shape[i]});
    result.push_back(reps[i] * shape[i]);
  }
  ValueId value = broadcast_to(tracer, reshape(tracer, tracer.read(*x), spaced), repeated);
  return view_alias(tracer, fresh(tracer, reshape(tracer, value, result)));  // NumPy ends with a reshape
}

V numpy_repeat(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.repeat", arguments, "a, repeats, axis");
  Array x = viewable(tracer, p.required("a"));
  auto count = tracer.int_expression(p.required("repeats"));
  const Array counts = array_of(p["repeats"]);
  if (!count && (!counts || counts->rank() != 1 || (counts->dtype != DType::I64 && counts->dtype != DType::I32)))
    p.refuse("repeats that are not ints");
  if (count && tracer.decide(*count, Py_LT, 0)) refuse("repeats may not contain negative values.");
  ValueId value = tracer.read(*x);
  Dims shape = x->shape;
  std::int64_t axis = 0;
  if (p.absent("axis")) {
    shape = {product(shape)};
    value = reshape(tracer, value, shape);
  } else {
    axis = normalise_axis(p.integer("axis", 0), x->rank());
  }
  if (!count) {
    if (!tracer.decide(counts->shape[0], Py_EQ, shape[axis]) || tracer.decide(shape[axis], Py_EQ, 0))
      p.refuse("repeats that are not one int for each element");
    return fresh(tracer, gather(tracer, value, repeated_positions(tracer, tracer.read(*counts)), axis));
  }
  // [.., n, ..] -> [.., n, 1, ..] -> [.., n, r, ..] -> [.., n*r, ..]
  Dims spaced = shape, repeated = shape, result = shape;
  spaced.insert(spaced.begin() + axis + 1, SymDim(1));
  repeated.insert(repeated.begin() + axis + 1, *count);
  result[axis] = shape[axis] * *count;
  value = broadcast_to(tracer, reshape(tracer, value, spaced), repeated);
  return fresh(tracer, reshape(tracer, value, result));
}

V numpy_bincount(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.bincount", arguments, "x, weights, minlength");
  Array x = array_of(p.required("x"));
  if (!x || x->library != Library::Numpy || x->rank() != 1 || !is_integer(x->dtype) || x->dtype == DType::Bool ||
      x->dtype == DType::U64 || tracer.decide(x->shape[0], Py_EQ, 0))
    p.refuse("such an array");
  const SymDim least = p.absent("minlength") ? SymDim(0) : dim_argument(tracer, p["minlength"]);
  ValueId weights;
  if (!p.absent("weights")) {
    Array given = numpy_array(tracer, p["weights"]);
    if (!same_shape(tracer, given->shape, x->shape) || is_complex(given->dtype)) p.refuse("such weights");
    weights = cast(tracer, tracer.read(*given), DType::F64);
  }
  return fresh(tracer, counted_bins(tracer, tracer.read(*x), weights, least));
}

V numpy_flip(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.flip", arguments, "m, axis");
  Array x = viewable(tracer, p.required("m"));
  return flip_axes(tracer, x, axes_argument(tracer, p["axis"], x->rank()));
}
V numpy_flipud(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.flipud", arguments, "m");
  Array x = viewable(tracer, p.required("m"));
  return flip_axes(tracer, x, {normalise_axis(0, x->rank())});
}
V numpy_fliplr(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.fliplr", arguments, "m");
  Array x = viewable(tracer, p.required("m"));
  return flip_axes(tracer, x, {normalise_axis(1, x->rank())});
}

namespace {

/// An integer of NumPy's that is a constant of the trace.
bool is_known_scalar(Tracer& tracer, const V& value) {
  const Array array = array_of(value);
  auto* held = as<ObjectValue>(value);
  return array ? array->rank() == 0 && tracer.constant_int(value) : held && PyIndex_Check(held->object.get());
}

/// The elements along an axis that is not empty, each from `shift` places before it.
ValueId rolled(Tracer& tracer, ValueId x, ValueId shift, std::int64_t axis) {
  const SymDim size = shape_of(tracer, x)[axis];
  const ValueId count = size_value(tracer, size, DType::I64);
  // Less than one turn first: the difference of any two int64 would be no int64.
  const ValueId turn = pointwise(tracer, Op::mod, {shift, count});
  const ValueId place = arange(tracer, DType::I64, Scalar(std::int64_t(0)), Scalar(std::int64_t(1)), size);
  return gather(tracer, x, pointwise(tracer, Op::mod, {pointwise(tracer, Op::sub, {place, turn}), count}), axis);
}

}  // namespace

V numpy_roll(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.roll", arguments, "a, shift, axis");
  Array x = viewable(tracer, p.required("a"));
  const bool flat = p.absent("axis");
  ValueId value = tracer.read(*x);
  if (flat) value = reshape(tracer, value, {product(x->shape)});
  auto values = [&](const V& v) {
    const bool scalar = tracer.int_expression(v) || tracer.scalar_index(v) || is_known_scalar(tracer, v) ||
                        computed_integer(tracer, v).valid();
    return scalar ? std::vector<V>{v} : items_of_sequence(tracer, v);
  };
  const std::vector<V> shifts = values(p.required("shift"));
  std::vector<std::int64_t> axes{0};
  if (!flat) {
    axes.clear();
    for (const V& axis : values(p["axis"])) axes.push_back(int_argument(tracer, axis));
  }
  const std::size_t count = std::max(shifts.size(), axes.size());
  if ((shifts.size() != 1 && shifts.size() != count) || (axes.size() != 1 && axes.size() != count))
    refuse("'shift' and 'axis' should be scalars or 1D sequences");
  for (std::size_t i = 0; i < count; ++i) {
    const Dims shape = shape_of(tracer, value);
    const std::int64_t axis = normalise_axis(axes[axes.size() == 1 ? 0 : i], int(shape.size()));
    const V& given = shifts[shifts.size() == 1 ? 0 : i];
    const SymDim size = shape[axis];
    if (const ValueId computed = computed_integer(tracer, given); computed.valid()) {
      if (!tracer.decide(size, Py_EQ, 0)) value = rolled(tracer, value, computed, axis);
      continue;
    }
    const std::int64_t shift = int_argument(tracer, given);
    // Beyond one turn the remainder matters, so the size must be known.
    std::int64_t forward = shift;
    if (tracer.decide(shift < 0 ? SymDim(-shift) : SymDim(shift), Py_GE, size)) {
      const std::int64_t n = concrete(tracer, size);
      forward = n == 0 ? 0 : shift % n;
    }
    if (forward == 0) continue;
    const SymDim split = forward > 0 ? size - SymDim(forward) : SymDim(-forward);
    value = concatenate(tracer, {slice(tracer, value, axis, split, size - split), slice(tracer, value, axis, 0, split)},
                        axis);
  }
  if (flat) return view_reshape(tracer, fresh(tracer, value), x->shape);
  return tracer.new_array(Library::Numpy, value, like_strides(tracer, Library::Numpy, layout_of(x)));
}

/// `edge`, `reflect`, `symmetric` or `wrap`: the axis with elements of its own before and behind it. Refuses more than
/// it has.
ValueId pad_with_itself(Tracer& tracer, ValueId x, std::int64_t axis, const SymDim& before, const SymDim& after,
                        const std::string& mode) {
  const Dims shape = shape_of(tracer, x);
  const SymDim& size = shape[std::size_t(axis)];
  const bool in_front = tracer.decide(before, Py_GT, 0), behind = tracer.decide(after, Py_GT, 0);
  if (!in_front && !behind) return x;
  if (tracer.decide(size, Py_EQ, 0)) refuse("can't extend an empty axis");
  // One element is reflected as itself.
  const bool between = mode == "reflect" && !tracer.decide(size, Py_EQ, 1),
             edge = mode == "edge" || (mode == "reflect" && !between);
  const SymDim skipped = between ? 1 : 0;
  const auto added = [&](const SymDim& count, bool front) {
    if (edge) {
      Dims wide = shape;
      wide[std::size_t(axis)] = count;
      return broadcast_to(tracer, slice(tracer, x, axis, front ? SymDim(0) : size - 1, 1), wide);
    }
    if (tracer.decide(count, Py_GT, size - skipped)) unsupported("np.pad() by more than the axis has");
    if (mode == "wrap") return slice(tracer, x, axis, front ? size - count : SymDim(0), count);
    return flip(tracer, slice(tracer, x, axis, front ? skipped : size - skipped - count, count), {axis});
  };
  std::vector<ValueId> parts;
  if (in_front) parts.push_back(added(before, true));
  parts.push_back(x);
  if (behind) parts.push_back(added(after, false));
  return concatenate(tracer, parts, axis);
}

V numpy_pad(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.pad", arguments, "array, pad_width, mode, *, constant_values");
  const std::string mode = p.text("mode", "constant");
  const bool constant = mode == "constant",
             itself = mode == "edge" || mode == "reflect" || mode == "symmetric" || mode == "wrap";
  if (!constant && (!itself || p["constant_values"])) p.refuse("this mode");
  Array x = viewable(tracer, p.required("array"));
  const int rank = x->rank();
  if (rank == 0) p.refuse("an array without axes");
  Operand fill =
      p["constant_values"] ? numpy_operand(tracer, p["constant_values"]) : numpy_operand(tracer, tracer.integer(0));
  if (fill.rank() != 0) p.refuse("several constant values");
  // n, (before, after), ((before, after),), or one pair per axis.
  Dims low(rank), high(rank);
  V width = p.required("pad_width");
  auto pair = [&](const V& value, SymDim& before, SymDim& after) {
    Dims both = dims_argument(tracer, value);
    if (both.empty() || both.size() > 2) refuse("pad_width");
    before = both[0];
    after = both.back();
  };
  auto flat = [&](const V& value) { return tracer.int_expression(value).has_value(); };
  if (flat(width)) {
    for (int i = 0; i < rank; ++i) pair(width, low[i], high[i]);
  } else {
    std::vector<V> items = tracer.sequence_items(width);
    if (items.empty()) p.refuse("this pad_width");
    const bool nested = !flat(items[0]);
    for (int i = 0; i < rank; ++i) {
      if (!nested) pair(width, low[i], high[i]);
      else if (items.size() == 1) pair(items[0], low[i], high[i]);
      else if (int(items.size()) == rank) pair(items[i], low[i], high[i]);
      else refuse("operands could not be broadcast together with remapped shapes");
    }
  }
  for (int i = 0; i < rank; ++i)
    if (tracer.decide(low[i], Py_LT, 0) || tracer.decide(high[i], Py_LT, 0))
      refuse("index can't contain negative values");
  ValueId padded = tracer.read(*x);
  if (constant) {
    Attrs attrs;
    attrs.set("low", low);
    attrs.set("high", high);
    padded = emit(tracer, Op::pad, {padded, cast_operand_value(tracer, fill, x->dtype)}, std::move(attrs));
  }
  for (int i = 0; itself && i < rank; ++i) padded = pad_with_itself(tracer, padded, i, low[i], high[i], mode);
  const Dims shape = shape_of(tracer, padded);
  return tracer.new_array(Library::Numpy, padded, c_or_fortran(tracer, x, shape));
}

V numpy_diff(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.diff", arguments, "a, n, axis, prepend, append");
  Array x = viewable(tracer, p.required("a"));
  const std::int64_t times = p.integer("n", 1), axis = normalise_axis(p.integer("axis", -1), x->rank());
  if (times < 1) p.refuse("this order");
  // Scalars become one layer of the array; they are arrays as np.asarray makes them, so that 0.5 makes integers floats.
  auto part = [&](const char* name) {
    if (tracer.is_none(p[name])) p.refuse("None as a part");
    Array added = viewable(tracer, p[name]);
    Dims layer = x->shape;
    layer[axis] = 1;
    return added->shape.empty() ? view_broadcast(tracer, added, layer) : added;
  };
  std::vector<Array> parts{x};
  if (p["prepend"]) parts.insert(parts.begin(), part("prepend"));
  if (p["append"]) parts.push_back(part("append"));
  if (parts.size() > 1) x = array_of(join_arrays(tracer, parts, axis));
  for (std::int64_t i = 0; i < times; ++i) {
    const SymDim size = x->shape[axis];
    if (tracer.decide(size, Py_LT, 1)) p.refuse("an empty array");
    const SymDim rest = size - 1;
    Array ahead = view_slice(tracer, x, axis, 1, rest, 1), behind = view_slice(tracer, x, axis, 0, rest, 1);
    x = array_of(numpy_ufunc(tracer, x->dtype == DType::Bool ? "not_equal" : "subtract", {ahead, behind}));
  }
  return x;
}

// ---- selection

V numpy_triu(Tracer& t, const Arguments& a) { return triangle(t, a, "numpy.triu", true); }
V numpy_tril(Tracer& t, const Arguments& a) { return triangle(t, a, "numpy.tril", false); }

V numpy_where(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.where", arguments, "condition, x, y");
  if (!p["x"] && !p["y"]) return numpy_nonzero(tracer, arguments);
  Operand condition = numpy_operand(tracer, p.required("condition"));
  const Operand choices[] = {numpy_operand(tracer, p.required("x")), numpy_operand(tracer, p.required("y"))};
  const DType dtype = numpy_result_type(tracer, choices);
  if (is_complex(dtype)) p.refuse("complex numbers");
  const ValueId value =
      pointwise(tracer, Op::where,
                {operand_value(tracer, condition, DType::Bool), cast_operand_value(tracer, choices[0], dtype),
                 cast_operand_value(tracer, choices[1], dtype)});
  std::vector<Layout> layouts;
  for (const Array& array : {condition.array, choices[0].array, choices[1].array})
    if (array) layouts.push_back(layout_of(array));
  return tracer.new_array(Library::Numpy, value,
                          elementwise_strides(tracer, Library::Numpy, shape_of(tracer, value), layouts));
}

V numpy_clip(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.clip", arguments, "a, a_min, a_max, out, *, min, max, dtype");
  p.unsupported("dtype");
  V low = p.absent("a_min") ? p["min"] : p["a_min"], high = p.absent("a_max") ? p["max"] : p["a_max"];
  const bool has_low = low && !tracer.is_none(low), has_high = high && !tracer.is_none(high);
  V out = p.absent("out") ? nullptr : p["out"];
  if (!has_low && !has_high) p.refuse("no bound");
  V given = p.required("a");
  if (!array_of(given)) given = V(numpy_array(tracer, given));  // a Python number has a dtype here
  // One bound is the ufunc minimum or maximum; two are min(max(x, low), high) in one loop, NaN propagating.
  if (!has_high) return numpy_ufunc(tracer, "maximum", {given, low}, out);
  if (!has_low) return numpy_ufunc(tracer, "minimum", {given, high}, out);
  Arguments bound;
  bound.positional = {given, low, high};
  if (out) bound.keywords.emplace_back("out", out);
  auto lowering = [](Tracer& t, const std::vector<ValueId>& in, DType loop) -> std::vector<ValueId> {
    const bool boolean = loop == DType::Bool;
    const ValueId raised = pointwise(t, boolean ? Op::bit_or : Op::maximum, {in[0], in[1]});
    return {pointwise(t, boolean ? Op::bit_and : Op::minimum, {raised, in[2]})};
  };
  return call_ufunc(tracer, "_core.umath.clip", 3, lowering, bound);
}

V numpy_round(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.round", arguments, "a, decimals, out");
  V out = p.absent("out") ? nullptr : p["out"];
  const std::int64_t decimals = p.integer("decimals", 0);
  V given = p.required("a");
  Array x = numpy_array(tracer, given);
  if (is_integer(x->dtype) && decimals >= 0 && !out) {
    Arguments copy;
    copy.positional = {given};
    return numpy_result(tracer, array_of(numpy_copy(tracer, copy)));
  }
  if (!is_float(x->dtype) || decimals < 0) p.refuse("these decimals");
  if (decimals == 0) return numpy_ufunc(tracer, "rint", {V(x)}, out);
  if (out) p.refuse("the arguments 'decimals' and 'out'");
  double power = 1;
  for (std::int64_t i = 0; i < decimals; ++i) power *= 10;
  V scaled = numpy_ufunc(tracer, "multiply", {V(x), tracer.real(power)});
  Array rounded =
      array_of(numpy_ufunc(tracer, "true_divide", {numpy_ufunc(tracer, "rint", {scaled}), tracer.real(power)}));
  // PyArray_Round allocates C or Fortran order, unlike the ufuncs it then runs.
  if (rounded->numpy_scalar) return rounded;
  return tracer.new_array(Library::Numpy, tracer.read(*rounded), c_or_fortran(tracer, x, x->shape));
}

V numpy_take(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.take", arguments, "a, indices, axis, out, mode");
  p.unsupported("out");
  const std::string mode = p.text("mode", "raise");
  Array x = viewable(tracer, p.required("a"));
  Array indices = viewable(tracer, p.required("indices"));
  if (!is_integer(indices->dtype) || indices->dtype == DType::U64) p.refuse("indices that are not integers");
  if (indices->shape.empty()) p.refuse("one index");
  ValueId value = tracer.read(*x);
  std::int64_t axis = 0;
  if (p.absent("axis")) value = reshape(tracer, value, {product(x->shape)});
  else axis = normalise_axis(p.integer("axis", 0), x->rank());
  ValueId index = cast(tracer, tracer.read(*indices), DType::I64);
  if (mode != "raise") {
    const SymDim size = shape_of(tracer, value)[std::size_t(axis)];
    if (tracer.decide(size, Py_EQ, 0)) refuse("cannot do a non-empty take from an empty axes");
    if (mode == "wrap") {
      index = pointwise(tracer, Op::mod, {index, size_value(tracer, size, DType::I64)});
    } else if (mode == "clip") {
      index = pointwise(tracer, Op::maximum, {index, constant(tracer, DType::I64, 0)});
      index = pointwise(tracer, Op::minimum, {index, size_value(tracer, size - 1, DType::I64)});
    } else {
      p.refuse("this mode");
    }
  }
  return fresh(tracer, gather(tracer, value, index, axis));
}

namespace {

/// The index by which NumPy picks along an axis: an arange for every other one.
Index along_axis(Tracer& tracer, const Array& x, const Array& indices, std::int64_t axis) {
  if (!is_integer(indices->dtype)) refuse("`indices` must be an integer array");
  if (indices->rank() != x->rank()) refuse("`indices` and `arr` must have the same number of dimensions");
  Index index;
  for (std::int64_t d = 0; d < x->rank(); ++d) {
    Index::Item item{Index::Item::Kind::IntegerArray, 0, nullptr, nullptr, nullptr, indices};
    if (d != axis) {
      Dims shape(x->shape.size(), SymDim(1));
      shape[std::size_t(d)] = x->shape[std::size_t(d)];
      item.array = fresh(tracer, reshape(tracer,
                                         arange(tracer, DType::I64, Scalar(std::int64_t(0)), Scalar(std::int64_t(1)),
                                                x->shape[std::size_t(d)]),
                                         shape));
    }
    index.items.push_back(std::move(item));
  }
  return index;
}

}  // namespace

V numpy_take_along_axis(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.take_along_axis", arguments, "arr, indices, axis");
  // NumPy asks them for ndim and dtype, which a list does not have.
  if (!array_of(p.required("arr")) || !array_of(p.required("indices"))) p.refuse("what is no array");
  Array x = viewable(tracer, p.required("arr")), indices = viewable(tracer, p.required("indices"));
  if (!p["axis"] || p.absent("axis")) p.refuse("no axis");
  const std::int64_t axis = normalise_axis(p.integer("axis", 0), x->rank());
  const Index index = along_axis(tracer, x, indices, axis);
  Dims same = x->shape;
  same[std::size_t(axis)] = indices->shape[std::size_t(axis)];
  if (!(same == indices->shape)) return index_gather(tracer, x, index);
  const Layout layout{indices->shape, indices->strides};
  Attrs attrs;
  attrs.set("axis", axis);
  const ValueId picked = emit(tracer, Op::take_along,
                              {tracer.read(*x), cast(tracer, tracer.read(*indices), DType::I64)}, std::move(attrs));
  return tracer.new_array(Library::Numpy, picked,
                          elementwise_strides(tracer, Library::Numpy, indices->shape, std::span(&layout, 1)));
}

V numpy_put_along_axis(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.put_along_axis", arguments, "arr, indices, values, axis");
  Array x = array_of(p.required("arr")), indices = viewable(tracer, p.required("indices"));
  if (!x || x->numpy_scalar || x->library != Library::Numpy || p.absent("axis")) p.refuse("these arguments");
  if (!x->writeable) refuse("assignment destination is read-only");
  const Index index = along_axis(tracer, x, indices, normalise_axis(p.integer("axis", 0), x->rank()));
  const Operand values = numpy_operand(tracer, p.required("values"));
  if (values.array && values.array->storage == x->storage) p.refuse("values of the array itself");
  index_scatter(tracer, x, index, operand_value(tracer, values, x->dtype));
  return tracer.none();
}

V numpy_ix(Tracer& tracer, const Arguments& arguments) {
  if (!arguments.keywords.empty()) unsupported("ix_() with keywords");
  std::vector<V> grids;
  const std::size_t count = arguments.positional.size();
  for (std::size_t i = 0; i < count; ++i) {
    Array given = numpy_array(tracer, arguments.positional[i]);
    if (given->rank() != 1) refuse("Cross index must be 1 dimensional");
    if (!is_integer(given->dtype) || given->shape[0] == SymDim(0)) unsupported("ix_() of other than integers");
    Dims shape(count, SymDim(1));
    shape[i] = given->shape[0];
    Array grid = view_reshape(tracer, given, shape);
    if (!grid) unsupported("ix_() of such an array");
    grids.push_back(grid);
  }
  return tracer.tuple(std::move(grids));
}

V numpy_add_at(Tracer& tracer, const Arguments& arguments) {
  if (!arguments.keywords.empty() || arguments.positional.size() != 3) unsupported("add.at() with these arguments");
  Array x = array_of(arguments.positional[0]);
  if (!x || x->library != Library::Numpy || x->numpy_scalar || x->dtype == DType::Bool)
    unsupported("add.at() of this object");
  if (!x->writeable) refuse("array is read-only");
  const Operand operands[] = {Operand{x}, numpy_operand(tracer, arguments.positional[2])};
  if (operands[1].array && operands[1].array->storage == x->storage)
    unsupported("add.at() of a part of the array itself");
  const std::optional<DType> outputs[] = {std::nullopt};
  for (DType dtype : resolve_ufunc(tracer, numpy_object("add").get(), operands, outputs, std::nullopt, "same_kind"))
    if (dtype != x->dtype) unsupported("add.at() in another dtype than the array's");
  const Index index = parse_index(tracer, Library::Numpy, arguments.positional[1], x->rank());
  if (!index.has(Index::Item::Kind::IntegerArray) || index.has(Index::Item::Kind::Mask))
    unsupported("add.at() by other than integer arrays");
  index_scatter(tracer, x, index, operand_value(tracer, operands[1], x->dtype), Op::scatter_add);
  return tracer.none();
}

// ---- what is not zero: sizes that depend on data

namespace {

/// For each axis the indices of the elements that are not zero.
std::vector<ValueId> nonzero_indices(Tracer& tracer, const Array& x) {
  if (x->rank() == 0) refuse("Calling nonzero on 0d arrays is not allowed");
  if (is_complex(x->dtype)) unsupported("nonzero() of complex numbers");
  return coordinates(tracer, cast(tracer, tracer.read(*x), DType::Bool));
}

/// Where the elements of the flattened array that are not zero are.
ValueId flat_indices(Tracer& tracer, const Array& x) {
  return tracer.positions(cast(tracer, reshape(tracer, tracer.read(*x), {product(x->shape)}), DType::Bool));
}

}  // namespace

V numpy_nonzero(Tracer& tracer, const Arguments& arguments) {
  if (arguments.positional.size() != 1 || !arguments.keywords.empty()) unsupported("nonzero() with these arguments");
  const std::vector<ValueId> indices = nonzero_indices(tracer, viewable(tracer, arguments.positional[0]));
  // Columns of one array.
  Array all = fresh(tracer, stack(tracer, indices, 1));
  std::vector<V> columns;
  for (std::size_t i = 0; i < indices.size(); ++i)
    columns.push_back(view_select(tracer, all, 1, SymDim(std::int64_t(i))));
  return tracer.tuple(std::move(columns));
}

V numpy_flatnonzero(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.flatnonzero", arguments, "a");
  Array x = viewable(tracer, p.required("a"));
  Array all = fresh(
      tracer, reshape(tracer, flat_indices(tracer, x), {shape_of(tracer, flat_indices(tracer, x))[0], SymDim(1)}));
  return view_select(tracer, all, 1, 0);
}

V numpy_argwhere(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.argwhere", arguments, "a");
  Array x = viewable(tracer, p.required("a"));
  if (x->rank() == 0) p.refuse("a 0-d array");
  return view_transpose(tracer, fresh(tracer, stack(tracer, nonzero_indices(tracer, x), 0)), {1, 0});
}

V numpy_compress(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.compress", arguments, "condition, a, axis, out");
  p.unsupported("out");
  Array condition = viewable(tracer, p.required("condition")), x = viewable(tracer, p.required("a"));
  if (condition->rank() != 1) refuse("condition must be a 1-d array");
  ValueId value = tracer.read(*x);
  std::int64_t axis = 0;
  if (p.absent("axis")) value = reshape(tracer, value, {product(x->shape)});
  else axis = normalise_axis(p.integer("axis", 0), x->rank());
  return fresh(tracer, gather(tracer, value, flat_indices(tracer, condition), axis));
}

V numpy_compress_method(Tracer& tracer, const Arguments& arguments) {
  Arguments swapped = arguments;
  if (swapped.positional.size() < 2) unsupported("compress() with these arguments");
  std::swap(swapped.positional[0], swapped.positional[1]);
  return numpy_compress(tracer, swapped);
}

V numpy_extract(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.extract", arguments, "condition, arr");
  Array condition = viewable(tracer, p.required("condition")), x = viewable(tracer, p.required("arr"));
  const ValueId value = reshape(tracer, tracer.read(*x), {product(x->shape)});
  return fresh(tracer, gather(tracer, value, flat_indices(tracer, condition), 0));
}

// ---- questions

V numpy_shape(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.shape", arguments, "a");
  return shape_tuple(tracer, viewable(tracer, p.required("a"))->shape);
}
V numpy_ndim(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.ndim", arguments, "a");
  return tracer.integer(std::int64_t(viewable(tracer, p.required("a"))->rank()));
}
V numpy_size(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "numpy.size", arguments, "a, axis");
  p.unsupported("axis");
  return tracer.integer(product(viewable(tracer, p.required("a"))->shape));
}

}  // namespace fj
