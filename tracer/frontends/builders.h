/// Array semantics shared by the libraries: the vocabulary in which rows of numpy.def and torch.def are written.
///
/// Two levels. Functions on `ValueId` add graph nodes and know nothing of memory. Functions on `Array` make fake
/// arrays: views of a storage, or new arrays whose strides are what the library's own allocation rule gives. Sizes are
/// SymDim; a question about them that constants can't answer is put to Tracer::decide, which guards the answer. What
/// the library would refuse (shapes that do not broadcast, an axis out of range) breaks with ErrorWhileTracing.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tracer/frontends/library.h"

namespace fj {

using Axes = std::vector<std::int64_t>;
struct Arguments;

// ---- breaks
[[noreturn]] void refuse(const std::string& what);             // ErrorWhileTracing: the library raises here
[[noreturn]] void unsupported(const std::string& what);        // UnsupportedOperation: the library runs it

// ---- nodes
ValueId emit(Tracer& tracer, Op op, std::vector<ValueId> operands, Attrs attrs = {});
Type type_of(Tracer& tracer, ValueId value);
inline DType dtype_of(Tracer& tracer, ValueId value) { return type_of(tracer, value).dtype; }
inline Dims shape_of(Tracer& tracer, ValueId value) { return type_of(tracer, value).shape; }
/// The constant in the alternative of Scalar that belongs to dtype's category (wraps / rounds as a C cast).
Scalar scalar_of(DType dtype, double value);
Scalar scalar_of(DType dtype, std::int64_t value);
/// Rank-0 constants.
ValueId constant(Tracer& tracer, DType dtype, Scalar value);
ValueId constant(Tracer& tracer, DType dtype, double value);
ValueId constant(Tracer& tracer, DType dtype, std::int64_t value);
inline ValueId constant(Tracer& tracer, DType dtype, int value) { return constant(tracer, dtype, std::int64_t(value)); }
/// A size as a rank-0 value of a dtype.
ValueId size_value(Tracer& tracer, const SymDim& size, DType dtype);
/// Whether an integer dtype has a place for the number; decides.
bool has_integer(Tracer& tracer, DType dtype, const SymDim& number);
/// The least and the largest number of an integer dtype, as far as 64 signed bits have them.
std::pair<std::int64_t, std::int64_t> integer_range(DType dtype);
/// A constant with the dtype and shape of `x`.
ValueId constant_like(Tracer& tracer, ValueId x, double value);
ValueId full(Tracer& tracer, DType dtype, Scalar value, const Dims& shape);
/// An equal value that is another one: with a derivative, or a memory, of its own. The passes take it away.
ValueId same_again(Tracer& tracer, ValueId x);
/// No node if the value has that dtype already.
ValueId cast(Tracer& tracer, ValueId x, DType to);
/// Right-aligned, as both libraries broadcast. No node if nothing changes; sizes that are only known equal by a
/// guard are restated by a reshape. Breaks if x does not broadcast to shape.
ValueId broadcast_to(Tracer& tracer, ValueId x, const Dims& shape);
/// Broadcasts operands (all of one dtype, but for the condition of `where`) to their common shape and applies op.
ValueId pointwise(Tracer& tracer, Op op, std::vector<ValueId> operands);
ValueId reshape(Tracer& tracer, ValueId x, const Dims& shape);
ValueId transpose(Tracer& tracer, ValueId x, const Axes& permutation);
/// result index i reads start + i*step along axis.
ValueId slice(Tracer& tracer, ValueId x, std::int64_t axis, const SymDim& start, const SymDim& size,
              std::int64_t step = 1);
ValueId flip(Tracer& tracer, ValueId x, const Axes& axes);
ValueId expand_axis(Tracer& tracer, ValueId x, std::int64_t axis);  // inserts a size-1 axis
/// `op` is a reduce_* row; axes as from `axes_argument`. Empty axes: x itself. keepdims leaves size-1 axes.
ValueId reduce(Tracer& tracer, Op op, ValueId x, Axes axes, bool keepdims);
/// All of the rank rules of `@` (equal in both libraries): vectors, matrices, broadcast batches. Operands of one dtype.
ValueId matmul(Tracer& tracer, ValueId a, ValueId b);
ValueId concatenate(Tracer& tracer, std::vector<ValueId> parts, std::int64_t axis);
ValueId stack(Tracer& tracer, const std::vector<ValueId>& parts, std::int64_t axis);
/// start + i*step, i < count, computed in `dtype` (i64 or a float).
ValueId arange(Tracer& tracer, DType dtype, Scalar start, Scalar step, const SymDim& count);
/// 1 where column - row == diagonal.
ValueId eye(Tracer& tracer, DType dtype, const SymDim& rows, const SymDim& columns, std::int64_t diagonal);
/// Bool [.., rows, columns] of x's shape: column - row >= diagonal (upper) or <= diagonal (lower).
ValueId triangle_mask(Tracer& tracer, const Dims& shape, std::int64_t diagonal, bool upper);

// ---- sizes
Dims broadcast_shapes(Tracer& tracer, std::span<const Dims> shapes);
bool same_shape(Tracer& tracer, const Dims& a, const Dims& b);        // decides
SymDim floor_divide(Tracer& tracer, const SymDim& a, const SymDim& b);  // b > 0
SymDim floor_remainder(Tracer& tracer, const SymDim& a, const SymDim& b);
/// The value of a size this run; specialises (guards) it if symbolic.
std::int64_t concrete(Tracer& tracer, const SymDim& size);
std::int64_t normalise_axis(std::int64_t axis, int rank);              // refuses
/// A tuple or list, of the trace or from outside.
bool is_sequence(const V& value);
/// The items of an argument that the library takes by their numbers: it refuses iterators, sets, dicts and their views.
std::vector<V> items_of_sequence(Tracer& tracer, const V& value);
/// None -> all axes; int or tuple/list of ints -> sorted, refuses duplicates.
Axes axes_argument(Tracer& tracer, const V& axis, int rank);
Axes all_axes(int rank);
std::vector<SymDim> dims_argument(Tracer& tracer, const V& shape);     // int or sequence of ints
/// A shape argument with at most one -1, resolved against the number of elements.
Dims resolve_reshape(Tracer& tracer, const Dims& from, Dims to);
/// An integer that the program computes, as i64[]; invalid: it is none.
ValueId computed_integer(Tracer& tracer, const V& value);
/// Sizes of a Value that is a Python or NumPy int, as an expression; breaks otherwise.
SymDim dim_argument(Tracer& tracer, const V& value);
std::int64_t int_argument(Tracer& tracer, const V& value);
V shape_tuple(Tracer& tracer, const Dims& shape);

// ---- strides
struct Layout {
  Dims shape;
  Strides strides;
};
/// Row-major; a zero size counts as one, as both libraries do.
Strides row_major(const Dims& shape);
Strides column_major(const Dims& shape);
bool is_contiguous(Tracer& tracer, const Dims& shape, const Strides& strides);
bool is_column_major(Tracer& tracer, const Dims& shape, const Strides& strides);
/// The strides of a tensor of four or five axes whose second one is the innermost, and whether these are (but along
/// axes of one element).
Strides channels_last(const Dims& shape);
bool is_channels_last(Tracer& tracer, const Dims& shape, const Strides& strides);
/// torch's is_non_overlapping_and_dense: the strides of a permuted contiguous tensor, but for axes of at most one
/// element.
bool is_dense(Tracer& tracer, const Dims& shape, const Strides& strides);
/// torch's integers that came late: its promotion has no rule for them.
inline bool is_late_unsigned(DType dtype) { return is_unsigned_integer(dtype) && dtype != DType::U8; }

/// The strides where a program reads them as numbers. Where there are no elements the libraries have rules of their
/// own, which expressions in the sizes don't follow: the array is then Python's to make.
const Strides& exact_strides(Tracer& tracer, const ArrayValue& array);
/// The strides of a new array holding a pointwise result: NumPy's nditer in 'K' order, torch's TensorIterator.
Strides elementwise_strides(Tracer& tracer, Library library, const Dims& shape, std::span<const Layout> operands);
/// What np.concatenate allocates for parts of these layouts (shape: the result's).
Strides numpy_concatenate_strides(Tracer& tracer, const Dims& shape, std::span<const Layout> parts);
/// A NumPy reduction's result: axes in the input's order, reduced ones of size 1; then dropped unless keepdims.
Strides numpy_reduction_strides(Tracer& tracer, const Layout& input, const Axes& axes, bool keepdims);
/// NumPy's PyArray_CreateSortedStridePerm: a dense layout with the axes in the order of the operand's strides, those of
/// size 1 too.
Strides numpy_sorted_strides(Tracer& tracer, const Layout& operand);
/// order='K' copies: like elementwise of one operand.
Strides like_strides(Tracer& tracer, Library library, const Layout& operand);

// ---- arrays
inline Array array_of(const V& value) { return std::dynamic_pointer_cast<ArrayValue>(value); }
/// A new array made by a pointwise operation on `operands`: strides by elementwise_strides.
Array elementwise_result(Tracer& tracer, Library library, ValueId value, std::span<const Array> operands);
/// NumPy: a rank-0 result as its scalar object.
V numpy_result(Tracer& tracer, Array array);

/// tolist(): nested lists of numbers that the program computes, of a few elements whose number never changed; else a
/// break.
V elements_as_numbers(Tracer& tracer, const Arguments& arguments, const char* refusal);

// Views: same storage, one ViewStep more. The result's offset counts from the storage owner's element 0.
Array view_transpose(Tracer& tracer, const Array& x, const Axes& permutation);
Array view_slice(Tracer& tracer, const Array& x, std::int64_t axis, const SymDim& start, const SymDim& size,
                 std::int64_t step);
/// Same elements in another shape, if strides allow; null if a copy is needed.
/// `as_it_is`, of NumPy: of the shape that it has; else NumPy gives axes of one element row-major strides.
Array view_reshape(Tracer& tracer, const Array& x, const Dims& shape, bool as_it_is = true);
/// view_reshape, else a contiguous copy in the shape.
Array reshape_or_copy(Tracer& tracer, const Array& x, const Dims& shape, bool as_it_is = true);
/// `count` windows of `size` elements along an axis, `step` apart; their elements are along a new last axis.
Array view_windows(Tracer& tracer, const Array& x, std::int64_t axis, const SymDim& count, std::int64_t size,
                   std::int64_t step);
/// Broadcast view (stride 0). -1 is not resolved here.
Array view_broadcast(Tracer& tracer, const Array& x, const Dims& shape);
/// Drops size-1 axes / inserts size-1 axes (positions in the result, sorted).
Array view_squeeze(Tracer& tracer, const Array& x, const Axes& axes);
Array view_expand_axes(Tracer& tracer, const Array& x, const Axes& axes);
Array view_select(Tracer& tracer, const Array& x, std::int64_t axis, const SymDim& index);
/// The whole array as a new object (what x[...] and x.view() return).
Array view_alias(Tracer& tracer, const Array& x);
/// The same memory as an array of the other library: Tensor.numpy(), torch.from_numpy, np.asarray(tensor).
Array view_as_library(Tracer& tracer, const Array& x, Library library);
/// Contents copied into a new row-major array.
Array copy_contiguous(Tracer& tracer, const Array& x);
/// What owns its memory, marked: it lies as the code asks for, however the arguments lie.
Array laid(Array fresh);

/// Whether an element of both may be in the same place of their storage, as far as sizes and strides are known. Views of
/// one storage of different dtypes are taken for elements of one size.
bool may_share_elements(const Array& a, const Array& b);
/// Writes `value` (any shape that broadcasts, any dtype: cast) into the array.
void assign(Tracer& tracer, ArrayValue& array, ValueId value);

}  // namespace fj
