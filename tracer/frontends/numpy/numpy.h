/// What the numpy_*.cpp files share: operands and their promotion by NumPy's own rules.
///
/// Result dtypes are not restated here: `ufunc.resolve_dtypes` and `np.result_type` are asked, so that promotion, weak
/// Python scalars (NEP 50) and refusals are NumPy's own for the version in the process.
#pragma once

#include <optional>
#include <string_view>

#include "tracer/frontends/builders.h"
#include "tracer/frontends/parameters.h"

namespace fj {

/// An argument where NumPy takes an array: an ndarray or NumPy scalar (strong dtype), or a Python number (weak).
struct Operand {
  Array array;                            // null for Python numbers
  V number;                               // the Python number
  enum class Weak { No, Int, Float } weak = Weak::No;
  const Dims& shape() const;
  int rank() const { return int(shape().size()); }
};

/// Breaks on what np.asarray would turn into something we do not compile. Lists and tuples become arrays.
Operand numpy_operand(Tracer& tracer, const V& value);
/// As an array: Python numbers become 0-d arrays of NumPy's default dtypes.
Array numpy_array(Tracer& tracer, const V& value);
/// np.array(sequence, dtype): each number is stored as an element of that dtype.
Array numpy_sequence(Tracer& tracer, const V& sequence, DType dtype);
/// True for what `numpy_operand` takes without building an array from a sequence.
bool is_numpy_operand(const V& value);
/// The operand's contents in `dtype`. Breaks where a Python number does not fit (NumPy raises OverflowError or warns).
ValueId operand_value(Tracer& tracer, const Operand& operand, DType dtype);
/// The same where NumPy makes an array of a Python number and casts that: unlike its ufuncs, the cast reports
/// underflow.
ValueId cast_operand_value(Tracer& tracer, const Operand& operand, DType dtype);

/// Elements of one axis that NumPy stores without a copy though the arrays overlap: what it reads it may have stored
/// before. With equal strides it chooses the order in which that doesn't show, with opposite ones it copies.
void refuse_storing_in_order(const Array& target, const Array& source);
/// The operand's contents as an assignment stores them in elements; the program fails where NumPy raises.
ValueId element_value(Tracer& tracer, const Operand& operand, DType dtype);

/// np.result_type of operands. As elements of one np.array, Python numbers are not weak.
DType numpy_result_type(Tracer& tracer, std::span<const Operand> operands, bool numbers_are_weak = true);
/// A dtype argument (np.dtype, type, str), or nullopt for None and not given.
std::optional<DType> numpy_dtype_argument(Tracer& tracer, const V& value);
/// The real object at a dotted path below the numpy module. Never null.
Ref<> numpy_object(std::string_view path);

/// Loop dtypes of a ufunc, inputs then outputs; `outputs`: dtypes of out= arrays. Breaks if NumPy refuses.
std::vector<DType> resolve_ufunc(Tracer& tracer, PyObject* ufunc, std::span<const Operand> inputs,
                                 std::span<const std::optional<DType>> outputs, std::optional<DType> dtype,
                                 std::string_view casting);

/// Loop inputs (in the loop's dtypes, not yet broadcast) -> results, in the loop's output dtypes or ones to be cast to
/// them.
using UfuncLowering = std::vector<ValueId> (*)(Tracer& tracer, const std::vector<ValueId>& inputs, DType loop);
/// One call of a ufunc with all its keywords. `path` below the numpy module: "add".
V call_ufunc(Tracer& tracer, std::string_view path, int inputs, UfuncLowering lowering, const Arguments& arguments);
/// Convenience: a ufunc of the table on operands, by its name ("add"); breaks if the table has none.
V numpy_ufunc(Tracer& tracer, std::string_view name, std::vector<V> operands, V out = nullptr);

/// Writes to `out` and returns it; the result's shape must be out's.
V write_out(Tracer& tracer, const V& out, ValueId value);
/// A reduction's result: into `out` if given; rank 0 as a NumPy scalar.
V reduction_result(Tracer& tracer, const Array& input, ValueId value, const Axes& axes, bool keepdims, const V& out);
/// A new C-order array.
Array fresh(Tracer& tracer, ValueId value);
Layout layout_of(const Array& array);
/// The number of elements along axes.
SymDim element_count(const Dims& shape, const Axes& axes);
/// Sequence argument of concatenate and its like, or the rows of an array.
std::vector<V> numpy_sequence(Tracer& tracer, const V& value);

#define FJ_UFUNC(name, inputs, ...)
#define FJ_NUMPY(path, handler) V handler(Tracer& tracer, const Arguments& arguments);
#include "tracer/frontends/numpy/numpy.def"
#undef FJ_UFUNC
#undef FJ_NUMPY

}  // namespace fj
