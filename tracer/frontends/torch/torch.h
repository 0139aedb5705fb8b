/// What the torch_*.cpp files share: operands and their promotion by torch's rules, and the shapes of rows in
/// torch.def.
///
/// torch promotes by category: tensors with dimensions before 0-d tensors before Python numbers; a lower category
/// changes the dtype only if its kind (bool < integer < float) is higher. `torch_result_type` is that rule.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tracer/frontends/builders.h"
#include "tracer/frontends/parameters.h"

namespace fj {

/// A tensor, or a Python number where torch takes one (a "wrapped number").
struct TorchOperand {
  Array array;                 // null for numbers
  V number;
  DType dtype = DType::F32;    // numbers: Bool, I64 or F64
};
using TorchOperands = std::vector<TorchOperand>;

/// Null array and number if the value is neither.
std::optional<TorchOperand> try_torch_operand(Tracer& tracer, const V& value);
/// Breaks if torch would refuse the value or it is one we do not compile.
TorchOperand torch_operand(Tracer& tracer, const V& value);
/// The argument must be a tensor.
Array torch_tensor(Tracer& tracer, const V& value);
/// The tensors of a tuple or list.
std::vector<Array> torch_tensors(Tracer& tracer, const V& sequence);

DType torch_default_dtype();
DType promote_types(DType a, DType b);
DType torch_result_type(std::span<const TorchOperand> operands);
/// torch's canCast: what in-place operations may narrow to.
bool torch_can_cast(DType from, DType to);
/// A value with a gradient that fills integers: torch makes these require one.
void refuse_gradient_into(Tracer& tracer, DType target, const TorchOperand& value);
/// Functions of real numbers compute integers in the default dtype.
inline DType float_dtype(DType dtype) { return is_float(dtype) ? dtype : torch_default_dtype(); }
/// torch.float32, torch.long...; nullopt for None and not given.
std::optional<DType> torch_dtype_argument(Tracer& tracer, const V& value);
/// The device that an argument names; `otherwise` where there is none. Breaks where it is not known while tracing.
int device_argument(Tracer& tracer, const V& device, int otherwise);
/// Breaks unless the argument, if there is one, names this device: between devices torch moves tensors.
void require_device(Tracer& tracer, const V& device, int there);
/// Breaks unless the array is on this device.
void require_device_of(const Array& array, int there);

/// The operand's contents in `dtype`, not broadcast.
ValueId torch_value(Tracer& tracer, const TorchOperand& operand, DType dtype);
/// A cast as torch performs it: f64 becomes a half type by way of f32, rounding twice.
ValueId torch_cast(Tracer& tracer, ValueId value, DType to);
/// A new tensor made by a pointwise operation: strides as TensorIterator allocates.
V torch_elementwise(Tracer& tracer, ValueId value, std::span<const TorchOperand> operands);
inline V torch_elementwise(Tracer& tracer, ValueId value, std::initializer_list<TorchOperand> operands) {
  return torch_elementwise(tracer, value, std::span(operands.begin(), operands.size()));
}
/// A new tensor in the format torch suggests for what is computed of `x` alone: channels last if `x` is, else
/// row-major.
V torch_in_format_of(Tracer& tracer, const Array& x, ValueId value);
/// As torch lays out a copy of `x`.
V torch_like(Tracer& tracer, const Array& x, ValueId value);
/// As torch lays out `x` times what was reduced of it over `axes`, which stay as axes of one element.
V torch_beside_statistics(Tracer& tracer, const Array& x, const Axes& axes, ValueId value);
/// A number beside the parameter "input", or `otherwise`; breaks on one too large for the input's dtype, which torch
/// refuses.
double torch_number(Tracer& tracer, const Parameters& p, const char* name, double otherwise);
/// A new row-major tensor.
V torch_fresh(Tracer& tracer, ValueId value);
/// Applies op to operands in their common dtype.
V torch_pointwise(Tracer& tracer, Op op, const TorchOperands& operands);
/// Writes a result into `target` as an in-place operation does: castable dtype, same shape. Returns target.
V torch_write(Tracer& tracer, const V& target, const V& result);
/// The object at a dotted path below the torch module; null if absent.
Ref<> torch_object(std::string_view path);
/// An attribute of the torch module as a value.
V torch_constant(Tracer& tracer, std::string_view path);
V torch_size(Tracer& tracer, const Dims& shape);
V torch_data(Tracer& tracer, const Array& x);  // x.data
/// A torch.return_types.<name> tuple.
V torch_return_type(Tracer& tracer, std::string_view name, std::vector<V> items);
/// The library's own function on these arguments, as a node of the graph.
V torch_extern(Tracer& tracer, std::string_view path, const Arguments& arguments);
/// Sizes as `f(2, 3)` or `f((2, 3))` from positional[first...].
Dims torch_sizes(Tracer& tracer, const Arguments& arguments, std::size_t first, std::string_view keyword);
/// Axes as `f(0, 1)` or `f((0, 1))`: not normalised.
std::vector<std::int64_t> torch_ints(Tracer& tracer, const Arguments& arguments, std::size_t first,
                                     std::string_view keyword);
/// A dim argument of torch on a tensor of this rank: 0-d tensors take 0 and -1.
std::int64_t torch_dim(Tracer& tracer, const V& dim, int rank);
std::int64_t torch_dim(std::int64_t dim, int rank);

V torch_float_unary(Tracer& tracer, Op op, const Arguments& arguments);
V torch_same_unary(Tracer& tracer, Op op, const Arguments& arguments);
V torch_bool_unary(Tracer& tracer, Op op, const Arguments& arguments);
V torch_rounding(Tracer& tracer, Op op, const Arguments& arguments);
V torch_comparison(Tracer& tracer, Op op, const Arguments& arguments);
V torch_logical(Tracer& tracer, Op op, const Arguments& arguments);
V torch_bitwise(Tracer& tracer, Op op, const Arguments& arguments);
V torch_shift(Tracer& tracer, Op op, const Arguments& arguments);
V torch_extremum(Tracer& tracer, Op op, const Arguments& arguments);
V torch_float_binary(Tracer& tracer, Op op, const Arguments& arguments);
V torch_in_place(Tracer& tracer, Handler handler, const Arguments& arguments);
/// A function that takes a tuple where the method takes ints too.
V torch_with_tuple(Tracer& tracer, Handler handler, const Arguments& arguments);
/// Both show the same elements of one storage.
bool same_memory(const Array& a, const Array& b);
/// torch raises where an operand overlaps the tensor written without being it; where that can't be excluded eager
/// decides.
void refuse_overlap(const Array& target, const V& operand);
/// That, and an operand that is the tensor itself where autograd records.
void refuse_operand(Tracer& tracer, const Array& target, const V& operand);

template <auto function, Op op>
V Row(Tracer& tracer, const Arguments& arguments) { return function(tracer, op, arguments); }
/// The method of that name on each tensor of a list.
V torch_foreach(Tracer& tracer, std::string_view name, const Arguments& arguments);
template <Handler handler>
V InPlace(Tracer& tracer, const Arguments& arguments) { return torch_in_place(tracer, handler, arguments); }
template <Handler handler>
V WithTuple(Tracer& tracer, const Arguments& arguments) { return torch_with_tuple(tracer, handler, arguments); }

#define FJ_TORCH(path, handler) V handler(Tracer& tracer, const Arguments& arguments);
#define FJ_TORCH_BOTH(name, handler) V handler(Tracer& tracer, const Arguments& arguments);
#define FJ_TORCH_TUPLE(name, handler) V handler(Tracer& tracer, const Arguments& arguments);
#define FJ_TORCH_ALL(name, handler) V handler(Tracer& tracer, const Arguments& arguments);
#define FJ_TORCH_UNARY(name, function, op)
#define FJ_TORCH_EXTERN(path)
#define FJ_TORCH_FOREACH(name)                                                      \
  inline V torch_foreach_##name(Tracer& tracer, const Arguments& arguments) {       \
    return torch_foreach(tracer, #name, arguments);                                 \
  }                                                                                 \
  inline V torch_foreach_write_##name(Tracer& tracer, const Arguments& arguments) { \
    return torch_foreach(tracer, #name "_", arguments);                             \
  }
#include "tracer/frontends/torch/torch.def"
#undef FJ_TORCH
#undef FJ_TORCH_BOTH
#undef FJ_TORCH_TUPLE
#undef FJ_TORCH_ALL
#undef FJ_TORCH_UNARY
#undef FJ_TORCH_EXTERN
#undef FJ_TORCH_FOREACH

}  // namespace fj
