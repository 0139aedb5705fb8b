/// Strides and views: the half of builders.h that knows memory.
///
/// Where a result's elements lie is the library's own rule, restated here: NumPy's iterator sorts axes by the operands'
/// strides and allocates in that order ('K'), torch's TensorIterator does the same with other tie-breaks and a fast
/// path. Axes of size 1 count as stride 0 in NumPy's rule and keep theirs in torch's.
#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "tracer/frontends/builders.h"
#include "tracer/frontends/frontend.h"
#include "tracer/restart.h"

namespace fj {
namespace {

bool is_one(const SymDim& size) { return size == SymDim(1); }
bool is_zero(const SymDim& size) { return size == SymDim(0); }

/// |stride|. Products of sizes are not negative; a stride that is a symbol of its own is asked for its sign.
SymDim magnitude(Tracer& tracer, const SymDim& stride) {
  if (stride.is_constant()) return stride.value() < 0 ? SymDim(-stride.value()) : stride;
  bool of_sizes = true;
  for (SymbolId symbol : stride.symbols()) of_sizes = of_sizes && tracer.graph().symbols[symbol.index].min >= 0;
  for (const auto& term : stride.terms()) of_sizes = of_sizes && term.coefficient > 0;
  if (of_sizes) return stride;
  return tracer.decide(stride, Py_LT, 0) ? SymDim(0) - stride : stride;
}

/// Whether a stride says nothing of the order of axes, as that of a repeated axis. A product of sizes is no stride of
/// 0: where one of the sizes is 0, libraries take it for 1, or there is nothing to order.
bool says_nothing(Tracer& tracer, const SymDim& stride) {
  if (stride.is_constant()) return is_zero(stride);
  for (const auto& term : stride.terms())
    for (SymbolId symbol : term.symbols)
      if (tracer.graph().symbols[symbol.index].min < 0) return tracer.decide(stride, Py_EQ, 0);
  return false;
}

/// An operand's axis that the result repeats: of size 1 where the result's is another one. NumPy takes every axis of
/// size 1 for one.
bool repeated(Tracer& tracer, Library library, const SymDim& own, const SymDim& size) {
  return library == Library::Numpy ? tracer.decide(own, Py_EQ, 1) : !tracer.decide(own, Py_EQ, size);
}

/// `stride` is `extent` times something that is at least 1 where no size is 0.
bool is_multiple(Tracer& tracer, const SymDim& stride, const SymDim& extent) {
  if (stride.is_constant() && extent.is_constant()) return stride.value() >= extent.value();
  const std::optional<SymDim> factor = stride.divide_exactly(extent);
  if (!factor) return false;
  for (const auto& term : factor->terms()) {
    if (term.coefficient < 0) return false;
    for (SymbolId symbol : term.symbols)
      if (tracer.graph().symbols[symbol.index].min < 0) return false;
  }
  return true;
}

/// The axes lie in row-major order in every operand, whatever values the symbols have: each stride is a multiple of the
/// whole extent of the axes further in, or is that of a repeated axis. Both libraries then allocate row-major results,
/// and nothing has to be asked.
bool all_row_major(Tracer& tracer, std::span<const Layout> operands, bool may_repeat = true) {
  for (const Layout& operand : operands) {
    SymDim inner = 1;
    for (std::size_t i = operand.shape.size(); i-- > 0;) {
      const SymDim& stride = operand.strides[i];
      if (is_zero(stride)) {
        if (may_repeat) continue;
        return false;
      }
      if (!is_multiple(tracer, stride, inner)) return false;
      inner = stride * operand.shape[i];
    }
  }
  return true;
}

Strides strides_in_order(const Dims& shape, const std::vector<int>& innermost_first) {
  Strides strides(shape.size());
  SymDim stride = 1;
  for (int axis : innermost_first) {
    strides[axis] = stride;
    if (!is_zero(shape[axis])) stride = stride * shape[axis];
  }
  return strides;
}

std::vector<int> reversed_axes(std::size_t rank) {
  std::vector<int> order(rank);
  std::iota(order.rbegin(), order.rend(), 0);
  return order;
}

/// Strides by the axes of the result, 0 where they say nothing of the order.
std::vector<Strides> aligned_strides(Tracer& tracer, Library library, const Dims& shape,
                                     std::span<const Layout> operands) {
  std::vector<Strides> aligned;
  for (const Layout& operand : operands) {
    Strides strides(shape.size(), SymDim(0));
    const std::size_t offset = shape.size() - operand.shape.size();
    for (std::size_t i = 0; i < operand.shape.size(); ++i)
      if (!says_nothing(tracer, operand.strides[i]) && !repeated(tracer, library, operand.shape[i], shape[offset + i]))
        strides[offset + i] = magnitude(tracer, operand.strides[i]);
    aligned.push_back(std::move(strides));
  }
  return aligned;
}

/// npyiter_find_best_axis_ordering: a stable insertion sort of axes, smallest stride first, C order where operands
/// disagree.
std::vector<int> numpy_order(Tracer& tracer, const Dims& shape, std::span<const Layout> operands) {
  const int rank = int(shape.size());
  if (all_row_major(tracer, operands)) return reversed_axes(rank);
  std::vector<Strides> aligned = aligned_strides(tracer, Library::Numpy, shape, operands);
  std::vector<int> order = reversed_axes(rank);
  for (int i = 1; i < rank; ++i) {
    int position = i;
    const int axis = order[i];
    for (int j = i - 1; j >= 0; --j) {
      bool ambiguous = true, swap = false;
      for (const Strides& strides : aligned) {
        const SymDim &mine = strides[axis], &other = strides[order[j]];
        if (is_zero(mine) || is_zero(other)) continue;
        if (tracer.decide(other, Py_LE, mine)) {
          swap = false;
          ambiguous = false;
        } else if (ambiguous) {
          swap = true;
          ambiguous = false;
        }
      }
      if (ambiguous) continue;
      if (!swap) break;
      position = j;
    }
    if (position != i) {
      order.erase(order.begin() + i);
      order.insert(order.begin() + position, axis);
    }
  }
  return order;
}

bool is_empty(Tracer& tracer, const Dims& shape) {
  return std::any_of(shape.begin(), shape.end(), [&](const SymDim& size) { return tracer.decide(size, Py_EQ, 0); });
}

/// TensorIterator: the fast set-up for operands laid out alike, else reorder_dimensions.
Strides torch_strides(Tracer& tracer, const Dims& shape, std::span<const Layout> operands) {
  const bool elements = std::none_of(shape.begin(), shape.end(), is_zero);
  if (elements && all_row_major(tracer, operands)) return row_major(shape);
  const int rank = int(shape.size());
  bool same = true;
  for (const Layout& operand : operands) same = same && same_shape(tracer, operand.shape, shape);
  if (same && !operands.empty()) {
    bool contiguous = true, last = true, dense = true;
    for (const Layout& operand : operands) contiguous = contiguous && is_contiguous(tracer, shape, operand.strides);
    if (contiguous) return row_major(shape);
    for (const Layout& operand : operands) last = last && is_channels_last(tracer, shape, operand.strides);
    if (last) return channels_last(shape);
    for (const Layout& operand : operands)
      dense =
          dense && same_shape(tracer, operand.strides, operands[0].strides) && is_dense(tracer, shape, operand.strides);
    if (dense) return operands[0].strides;
  }
  const std::vector<Strides> aligned = aligned_strides(tracer, Library::Torch, shape, operands);
  // > 0: axis a comes after b; < 0: before; 0: the operands do not say.
  auto compare = [&](int a, int b) {
    for (const Strides& strides : aligned) {
      if (is_zero(strides[a]) || is_zero(strides[b])) continue;
      if (tracer.decide(strides[a], Py_LT, strides[b])) return -1;
      if (!tracer.decide(strides[a], Py_EQ, strides[b]) || tracer.decide(shape[a], Py_GT, shape[b])) return 1;
    }
    return 0;
  };
  std::vector<int> order = reversed_axes(rank);
  for (int i = 1; i < rank; ++i) {
    int moving = i;
    for (int j = i - 1; j >= 0; --j) {
      const int comparison = compare(order[j], order[moving]);
      if (comparison > 0) {
        std::swap(order[j], order[moving]);
        moving = j;
      } else if (comparison < 0) {
        break;
      }
    }
  }
  if (order == reversed_axes(rank)) return row_major(shape);
  // In another order torch multiplies sizes of 0 as well.
  Strides strides(rank);
  SymDim stride = 1;
  for (int axis : order) {
    strides[axis] = stride;
    stride = tracer.decide(shape[axis], Py_EQ, 0) ? SymDim(0) : stride * shape[axis];
  }
  return strides;
}

ViewStep step_of(Op op, Attrs attrs, const Dims& before, const Dims& after) {
  return ViewStep{op, std::move(attrs), before, after};
}

}  // namespace

// ---- strides

namespace {
std::vector<int> channels_first_of(std::size_t rank) {
  return rank == 4 ? std::vector<int>{1, 3, 2, 0} : std::vector<int>{1, 4, 3, 2, 0};
}
}  // namespace

Strides channels_last(const Dims& shape) { return strides_in_order(shape, channels_first_of(shape.size())); }

bool is_channels_last(Tracer& tracer, const Dims& shape, const Strides& strides) {
  if (shape.size() != 4 && shape.size() != 5) return false;
  SymDim expected = 1;
  for (int axis : channels_first_of(shape.size())) {
    if (!(strides[axis] == expected) && !tracer.decide(shape[axis], Py_EQ, 1) &&
        !tracer.decide(strides[axis], Py_EQ, expected))
      return false;
    expected = expected * shape[axis];
  }
  return true;
}

bool is_dense(Tracer& tracer, const Dims& shape, const Strides& strides) {
  std::vector<int> left = reversed_axes(shape.size());
  SymDim expected = 1;
  const auto take = [&](auto&& fits) {
    const auto axis = std::find_if(left.begin(), left.end(), fits);
    if (axis == left.end()) return false;
    expected = expected * shape[*axis];
    left.erase(axis);
    return true;
  };
  while (take([&](int axis) { return !is_one(shape[axis]) && strides[axis] == expected; }));
  std::erase_if(left, [&](int axis) { return tracer.decide(shape[axis], Py_LE, 1); });
  while (!left.empty())
    if (!take([&](int axis) { return tracer.decide(strides[axis], Py_EQ, expected); })) return is_empty(tracer, shape);
  return true;
}

Strides row_major(const Dims& shape) { return strides_in_order(shape, reversed_axes(shape.size())); }

Strides column_major(const Dims& shape) {
  std::vector<int> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  return strides_in_order(shape, order);
}

namespace {
bool follows(Tracer& tracer, const Dims& shape, const Strides& strides, const Strides& expected) {
  for (const SymDim& size : shape)
    if (is_zero(size)) return true;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (strides[i] == expected[i] || tracer.decide(strides[i], Py_EQ, expected[i])) continue;
    // One step is none: along an axis of size 1 any stride will do.
    if (tracer.decide(shape[i], Py_EQ, 1)) continue;
    // Without elements any strides will do, and NumPy's are often zeros.
    return is_empty(tracer, shape);
  }
  return true;
}
}  // namespace

bool is_contiguous(Tracer& tracer, const Dims& shape, const Strides& strides) {
  return follows(tracer, shape, strides, row_major(shape));
}

bool is_column_major(Tracer& tracer, const Dims& shape, const Strides& strides) {
  return follows(tracer, shape, strides, column_major(shape));
}

const Strides& exact_strides(Tracer& tracer, const ArrayValue& array) {
  for (const SymDim& size : array.shape) {
    if (!tracer.decide(size, Py_EQ, 0)) continue;
    if (array.source) unsupported("the strides of an array without elements, which differ from call to call");
    throw CannotRebuildValue{0, "an array with a size of 0, whose strides are read"};
  }
  tracer.note_layout(array);
  return array.strides;
}

Strides elementwise_strides(Tracer& tracer, Library library, const Dims& shape, std::span<const Layout> operands) {
  if (library == Library::Numpy) return strides_in_order(shape, numpy_order(tracer, shape, operands));
  return torch_strides(tracer, shape, operands);
}

Strides numpy_concatenate_strides(Tracer& tracer, const Dims& shape, std::span<const Layout> parts) {
  if (all_row_major(tracer, parts, false)) return row_major(shape);
  // PyArray_CreateMultiSortedStridePerm: like the iterator's sort, but from the largest stride down.
  std::vector<int> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  for (int i = 1; i < int(order.size()); ++i) {
    int position = i;
    const int axis = order[i];
    for (int j = i - 1; j >= 0; --j) {
      bool ambiguous = true, swap = false;
      for (const Layout& part : parts) {
        if (tracer.decide(part.shape[axis], Py_EQ, 1) || tracer.decide(part.shape[order[j]], Py_EQ, 1)) continue;
        if (tracer.decide(magnitude(tracer, part.strides[axis]), Py_LE, magnitude(tracer, part.strides[order[j]]))) {
          swap = false;
          ambiguous = false;
        } else if (ambiguous) {
          swap = true;
          ambiguous = false;
        }
      }
      if (ambiguous) continue;
      if (!swap) break;
      position = j;
    }
    if (position != i) {
      order.erase(order.begin() + i);
      order.insert(order.begin() + position, axis);
    }
  }
  std::reverse(order.begin(), order.end());
  return strides_in_order(shape, order);
}

Strides numpy_reduction_strides(Tracer& tracer, const Layout& input, const Axes& axes, bool keepdims) {
  const std::vector<int> order = numpy_order(tracer, input.shape, std::span(&input, 1));
  Dims shape = input.shape;
  for (std::int64_t axis : axes) shape[axis] = 1;
  Strides strides = strides_in_order(shape, order);
  if (!keepdims)
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) strides.erase(strides.begin() + *axis);
  return strides;
}

Strides numpy_sorted_strides(Tracer& tracer, const Layout& operand) {
  if (all_row_major(tracer, std::span(&operand, 1), false)) return row_major(operand.shape);
  std::vector<int> order = reversed_axes(operand.shape.size());
  for (std::size_t i = 1; i < order.size(); ++i)
    for (std::size_t j = i; j > 0; --j) {
      const SymDim outer = magnitude(tracer, operand.strides[order[j]]),
                   inner = magnitude(tracer, operand.strides[order[j - 1]]);
      if (tracer.decide(inner, Py_LE, outer)) break;
      std::swap(order[j], order[j - 1]);
    }
  return strides_in_order(operand.shape, order);
}

Strides like_strides(Tracer& tracer, Library library, const Layout& operand) {
  if (library == Library::Numpy) {
    // PyArray_NewLikeArray, order 'K': C and Fortran layouts are kept, others sorted by stride.
    if (is_contiguous(tracer, operand.shape, operand.strides)) return row_major(operand.shape);
    if (is_column_major(tracer, operand.shape, operand.strides)) return column_major(operand.shape);
    return numpy_sorted_strides(tracer, operand);
  }
  if (is_dense(tracer, operand.shape, operand.strides)) return operand.strides;
  return torch_strides(tracer, operand.shape, std::span(&operand, 1));
}

// ---- arrays

Array elementwise_result(Tracer& tracer, Library library, ValueId value, std::span<const Array> operands) {
  std::vector<Layout> layouts;
  for (const Array& operand : operands) layouts.push_back({operand->shape, operand->strides});
  return tracer.new_array(library, value, elementwise_strides(tracer, library, shape_of(tracer, value), layouts));
}

V numpy_result(Tracer&, Array array) {
  if (array->shape.empty()) array->numpy_scalar = true;
  return array;
}

namespace {

V nested_numbers(Tracer& tracer, const Array& x) {
  if (x->shape.empty()) return tracer.number(*x);
  std::vector<V> items;
  for (std::int64_t i = 0; i < *x->shape[0].constant(); ++i)
    items.push_back(nested_numbers(tracer, view_select(tracer, x, 0, SymDim(i))));
  return tracer.list(std::move(items));
}

}  // namespace

V elements_as_numbers(Tracer& tracer, const Arguments& arguments, const char* refusal) {
  constexpr std::int64_t kMost = 16;  // each leaves the program as an array of its own
  const Array x =
      arguments.positional.size() == 1 && arguments.keywords.empty() ? array_of(arguments.positional[0]) : nullptr;
  std::int64_t count = x ? 1 : kMost + 1;
  for (std::size_t i = 0; x && i < x->shape.size(); ++i)
    count *= std::clamp<std::int64_t>(x->shape[i].constant().value_or(kMost + 1), 0, kMost + 1);
  if (count == 0 || count > kMost) break_graph(BreakReason::ScalarFromArray, refusal);
  return nested_numbers(tracer, x);
}

Array view_transpose(Tracer& tracer, const Array& x, const Axes& permutation) {
  Attrs attrs;
  attrs.set("permutation", permutation);
  Dims shape;
  Strides strides;
  for (std::int64_t axis : permutation) {
    shape.push_back(x->shape[axis]);
    strides.push_back(x->strides[axis]);
  }
  return tracer.new_view(x, step_of(Op::transpose, std::move(attrs), x->shape, shape), shape, strides, x->offset);
}

Array view_slice(Tracer& tracer, const Array& x, std::int64_t axis, const SymDim& start, const SymDim& size,
                 std::int64_t step) {
  Dims starts(x->shape.size(), 0), shape = x->shape;
  Axes steps(x->shape.size(), 1);
  Strides strides = x->strides;
  starts[axis] = start;
  steps[axis] = step;
  shape[axis] = size;
  strides[axis] = strides[axis] * SymDim(step);
  // An empty slice points at the array's start in both libraries' arithmetic only if start is in range; it is:
  // slice_bounds clamps.
  const SymDim offset = x->offset + start * x->strides[axis];
  Attrs attrs;
  attrs.set("starts", std::move(starts));
  attrs.set("sizes", shape);
  attrs.set("steps", std::move(steps));
  return tracer.new_view(x, step_of(Op::slice, std::move(attrs), x->shape, shape), shape, strides, offset);
}

namespace {

Array restated(Tracer& tracer, const Array& x, const Dims& shape, const Strides& strides) {
  Attrs attrs;
  attrs.set("shape", shape);
  return tracer.new_view(x, step_of(Op::reshape, std::move(attrs), x->shape, shape), shape, strides, x->offset);
}

/// torch's computeStride: runs of old axes that lie evenly in memory are matched, from the last, with runs of new axes
/// of the same product.
std::optional<Strides> torch_view_strides(Tracer& tracer, const ArrayValue& x, const Dims& shape) {
  const auto same = [&](const SymDim& a, const SymDim& b) { return tracer.decide(a, Py_EQ, b); };
  if (x.shape.empty()) return Strides(shape.size(), SymDim(1));
  if (is_empty(tracer, x.shape)) return row_major(shape);
  Strides result(shape.size());
  std::size_t fresh = shape.size();
  SymDim old_product = 1, fresh_product = 1, stride = x.strides.back();
  for (std::size_t old = x.shape.size(); old-- > 0;) {
    old_product = old_product * x.shape[old];
    if (old > 0 && (same(x.strides[old - 1], old_product * stride) || same(x.shape[old - 1], 1))) continue;
    while (fresh > 0 && (tracer.decide(fresh_product, Py_LT, old_product) || same(shape[fresh - 1], 1))) {
      result[--fresh] = fresh_product * stride;
      fresh_product = fresh_product * shape[fresh];
    }
    if (!same(fresh_product, old_product)) return std::nullopt;
    if (old > 0) stride = x.strides[old - 1];
    old_product = fresh_product = 1;
  }
  return fresh == 0 ? std::optional(result) : std::nullopt;
}

/// The strides of `x` seen in `shape` without copying, if there are any: runs of old axes that lie evenly in memory
/// are matched with runs of new axes of the same product.
std::optional<Strides> view_strides(Tracer& tracer, const ArrayValue& x, const Dims& shape, bool as_it_is) {
  // torch gives axes of one element other strides.
  const auto is_one_element = [&](const SymDim& size) { return is_one(size) || tracer.decide(size, Py_EQ, 1); };
  if (x.shape == shape && (x.library != Library::Torch
                               ? as_it_is
                               : std::none_of(shape.begin(), shape.end(), is_one_element) || is_empty(tracer, shape)))
    return x.strides;
  if (x.strides == row_major(x.shape)) return row_major(shape);
  if (x.library == Library::Torch) return torch_view_strides(tracer, x, shape);
  if (is_contiguous(tracer, x.shape, x.strides)) return row_major(shape);
  Dims sizes;
  Strides strides;
  for (std::size_t i = 0; i < x.shape.size(); ++i) {
    if (is_one(x.shape[i]) || (!x.shape[i].is_constant() && tracer.decide(x.shape[i], Py_EQ, 1))) continue;
    sizes.push_back(x.shape[i]);
    strides.push_back(x.strides[i]);
  }
  Strides result(shape.size());
  std::size_t old = 0, fresh = 0;
  while (fresh < shape.size() && old < sizes.size()) {
    std::size_t old_end = old + 1, fresh_end = fresh + 1;
    SymDim old_product = sizes[old], fresh_product = shape[fresh];
    while (!(old_product == fresh_product) && !tracer.decide(old_product, Py_EQ, fresh_product)) {
      if (tracer.decide(fresh_product, Py_LT, old_product)) {
        if (fresh_end == shape.size()) return std::nullopt;
        fresh_product = fresh_product * shape[fresh_end++];
      } else {
        if (old_end == sizes.size()) return std::nullopt;
        old_product = old_product * sizes[old_end++];
      }
    }
    for (std::size_t i = old; i + 1 < old_end; ++i) {
      const SymDim even = sizes[i + 1] * strides[i + 1];
      if (!(strides[i] == even) &&
          ((strides[i].is_constant() && even.is_constant()) || !tracer.decide(strides[i], Py_EQ, even)))
        return std::nullopt;
    }
    SymDim stride = strides[old_end - 1];
    for (std::size_t i = fresh_end; i-- > fresh;) {
      result[i] = stride;
      stride = stride * shape[i];
    }
    old = old_end;
    fresh = fresh_end;
  }
  // What is left has size 1.
  const SymDim last = fresh > 0 ? result[fresh - 1] : SymDim(1);
  for (; fresh < shape.size(); ++fresh) result[fresh] = last;
  return result;
}

}  // namespace

Array view_reshape(Tracer& tracer, const Array& x, const Dims& shape, bool as_it_is) {
  std::optional<Strides> strides = view_strides(tracer, *x, shape, as_it_is);
  return strides ? restated(tracer, x, shape, *strides) : nullptr;
}

Array reshape_or_copy(Tracer& tracer, const Array& x, const Dims& shape, bool as_it_is) {
  Array result = view_reshape(tracer, x, shape, as_it_is);
  if (!result && x->library == Library::Torch)
    result = laid(tracer.new_array(x->library, reshape(tracer, tracer.read(*x), shape), row_major(shape)));
  // NumPy copies and then takes a view of the copy, which shows in OWNDATA.
  if (!result) result = view_reshape(tracer, copy_contiguous(tracer, x), shape);
  tracer.note_layout(*x, result.get());
  return result;
}

Array view_windows(Tracer& tracer, const Array& x, std::int64_t axis, const SymDim& count, std::int64_t size,
                   std::int64_t step) {
  Dims shape = x->shape;
  Strides strides = x->strides;
  shape[axis] = count;
  strides[axis] = strides[axis] * SymDim(step);
  shape.push_back(size);
  strides.push_back(x->strides[axis]);
  Attrs attrs;
  attrs.set("axis", axis);
  attrs.set("count", count);
  attrs.set("size", size);
  attrs.set("step", step);
  return tracer.new_view(x, step_of(Op::windows, std::move(attrs), x->shape, shape), shape, strides, x->offset);
}

Array view_broadcast(Tracer& tracer, const Array& x, const Dims& shape) {
  if (x->shape.size() > shape.size()) refuse("an array of more dimensions does not broadcast to fewer");
  const std::size_t offset = shape.size() - x->shape.size();
  Dims from = x->shape;
  Strides strides(shape.size(), SymDim(0));
  for (std::size_t i = 0; i < from.size(); ++i) {
    const SymDim& wanted = shape[offset + i];
    if (!(from[i] == wanted) && !is_one(from[i])) {
      if (tracer.decide(from[i], Py_EQ, wanted)) from[i] = wanted;
      else if (tracer.decide(from[i], Py_EQ, 1)) from[i] = 1;
      else refuse("operands could not be broadcast together");
    }
    const bool zero = x->library == Library::Numpy && tracer.decide(wanted, Py_EQ, 1);
    if (from[i] == wanted && !zero) strides[offset + i] = x->strides[i];
  }
  // torch gives a new axis of one element the stride it has in a row-major tensor.
  if (x->library == Library::Torch && !from.empty())
    for (std::size_t i = offset; i-- > 0;)
      if (tracer.decide(shape[i], Py_EQ, 1)) strides[i] = shape[i + 1] * strides[i + 1];
  Array base = from == x->shape ? x : restated(tracer, x, from, x->strides);
  Axes dims(from.size());
  std::iota(dims.begin(), dims.end(), std::int64_t(offset));
  Attrs attrs;
  attrs.set("dims", std::move(dims));
  attrs.set("shape", shape);
  return tracer.new_view(base, step_of(Op::broadcast, std::move(attrs), base->shape, shape), shape, strides, x->offset);
}

Array view_squeeze(Tracer& tracer, const Array& x, const Axes& axes) {
  Dims shape;
  Strides strides;
  for (std::size_t i = 0; i < x->shape.size(); ++i) {
    if (std::find(axes.begin(), axes.end(), std::int64_t(i)) != axes.end()) continue;
    shape.push_back(x->shape[i]);
    strides.push_back(x->strides[i]);
  }
  return restated(tracer, x, shape, strides);
}

Array view_expand_axes(Tracer& tracer, const Array& x, const Axes& axes) {
  Dims shape = x->shape;
  Strides strides = x->strides;
  for (std::int64_t axis : axes) {
    // NumPy's new axes have stride 0; torch's unsqueeze gives what a contiguous neighbour would have.
    SymDim stride = 0;
    if (x->library == Library::Torch)
      stride = axis < std::int64_t(shape.size()) ? shape[axis] * strides[axis] : SymDim(1);
    shape.insert(shape.begin() + axis, SymDim(1));
    strides.insert(strides.begin() + axis, stride);
  }
  return restated(tracer, x, shape, strides);
}

Array view_select(Tracer& tracer, const Array& x, std::int64_t axis, const SymDim& index) {
  return view_squeeze(tracer, view_slice(tracer, x, axis, index, 1, 1), {axis});
}

Array view_alias(Tracer& tracer, const Array& x) { return restated(tracer, x, x->shape, x->strides); }

Array view_as_library(Tracer& tracer, const Array& x, Library library) {
  if (x->storage->device != kHost) refuse("a tensor of " + device_text(x->storage->device) + " as one of NumPy's");
  Array view = restated(tracer, x, x->shape, x->strides);
  view->library = library;
  view->crosses = true;
  view->crossed = nullptr;
  view->torch_version = std::make_shared<int>(0);  // neither library tells the other's tensors of writes
  return view;
}

Array copy_contiguous(Tracer& tracer, const Array& x) {
  return laid(tracer.new_array(x->library, tracer.read(*x), row_major(x->shape)));
}

Array laid(Array fresh) {
  fresh->storage->laid = true;
  return fresh;
}

namespace {

/// First and last element of the storage an array shows; nothing where a size or stride is a symbol.
std::optional<std::pair<std::int64_t, std::int64_t>> shown(const Array& array) {
  if (!array->offset.is_constant()) return std::nullopt;
  std::int64_t first = array->offset.value(), last = first;
  for (int i = 0; i < array->rank(); ++i) {
    if (!array->shape[i].is_constant() || !array->strides[i].is_constant()) return std::nullopt;
    if (array->shape[i].value() == 0) return std::pair{std::int64_t(0), std::int64_t(-1)};
    (array->strides[i].value() < 0 ? first : last) += (array->shape[i].value() - 1) * array->strides[i].value();
  }
  return std::pair{first, last};
}

/// The elements of the storage that an array shows, in order; nothing where there are too many to look at, or a size or
/// stride is a symbol.
std::vector<std::int64_t> shown_elements(const Array& array) {
  constexpr std::size_t kMost = 1 << 14;
  std::vector<std::int64_t> places{array->offset.value()};
  for (int i = 0; i < array->rank(); ++i) {
    const std::int64_t size = array->shape[i].value(), count = std::int64_t(places.size());
    if (std::size_t(size) > kMost / places.size()) return {};
    for (std::int64_t row = 1; row < size; ++row)
      for (std::int64_t j = 0; j < count; ++j)
        places.push_back(places[std::size_t(j)] + row * array->strides[i].value());
  }
  std::sort(places.begin(), places.end());
  return places;
}

/// No element is in both: neither of any, nor where all steps are multiples of what the two places are not apart by.
bool no_common_element(const Array& a, const Array& b) {
  std::int64_t step = 0;
  for (const Array& array : {a, b})
    for (const SymDim& stride : array->strides) step = std::gcd(step, stride.value());
  if (step != 0 && (a->offset.value() - b->offset.value()) % step != 0) return true;
  const std::vector<std::int64_t> x = shown_elements(a), y = shown_elements(b);
  std::vector<std::int64_t> both;
  std::set_intersection(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(both));
  return !x.empty() && !y.empty() && both.empty();
}

}  // namespace

bool may_share_elements(const Array& a, const Array& b) {
  if (a->storage != b->storage) return false;
  const auto in_a = shown(a), in_b = shown(b);
  if (!in_a || !in_b) return true;
  return in_a->first <= in_b->second && in_b->first <= in_a->second && !no_common_element(a, b);
}

void assign(Tracer& tracer, ArrayValue& array, ValueId value) {
  // Leading size-1 axes of the value are dropped, as both libraries' assignment does.
  Dims shape = shape_of(tracer, value);
  while (shape.size() > array.shape.size() && is_one(shape.front())) shape.erase(shape.begin());
  value = reshape(tracer, value, shape);
  tracer.write(array, broadcast_to(tracer, cast(tracer, value, array.dtype), array.shape));
}

}  // namespace fj
