/// ndarray itself: operators, indexing and attributes, by NumPy's rules.
///
/// An operator is its ufunc; in place it is the ufunc with out=, so that casting and broadcasting rules are those of
/// out=. Where a NumPy scalar meets a scalar NumPy runs its scalar arithmetic, which warns where array loops do not:
/// integers break there.
#include "tracer/frontends/numpy/numpy.h"

#include <opcode.h>

#include <algorithm>
#include <limits>

#include "cpython/cpython.h"
#include "tracer/frontends/indexing.h"
#include "tracer/frontends/numpy/parts.h"
#include "tracer/values/numbers/constant_conditions.h"

namespace fj {
namespace {

struct BinaryRow {
  int operation, in_place;
  const char* ufunc;
};

constexpr BinaryRow kBinary[] = {
    {NB_ADD, NB_INPLACE_ADD, "add"},
    {NB_AND, NB_INPLACE_AND, "bitwise_and"},
    {NB_FLOOR_DIVIDE, NB_INPLACE_FLOOR_DIVIDE, "floor_divide"},
    {NB_LSHIFT, NB_INPLACE_LSHIFT, "left_shift"},
    {NB_MULTIPLY, NB_INPLACE_MULTIPLY, "multiply"},
    {NB_REMAINDER, NB_INPLACE_REMAINDER, "remainder"},
    {NB_OR, NB_INPLACE_OR, "bitwise_or"},
    {NB_POWER, NB_INPLACE_POWER, "power"},
    {NB_RSHIFT, NB_INPLACE_RSHIFT, "right_shift"},
    {NB_SUBTRACT, NB_INPLACE_SUBTRACT, "subtract"},
    {NB_TRUE_DIVIDE, NB_INPLACE_TRUE_DIVIDE, "true_divide"},
    {NB_XOR, NB_INPLACE_XOR, "bitwise_xor"},
};

bool is_scalar(const V& value) {
  auto* array = as<ArrayValue>(value);
  return !array || array->numpy_scalar;
}

/// Scalar arithmetic on integers reports overflow; an array loop does not.
bool reports_overflow(Tracer& tracer, const V& a, const V& b) {
  if (!is_scalar(a) || (b && !is_scalar(b))) return false;
  for (const V& value : {a, b}) {
    if (!value) continue;
    Operand operand = numpy_operand(tracer, value);
    if (operand.array ? is_float(operand.array->dtype) : operand.weak == Operand::Weak::Float) return false;
  }
  return true;
}

/// Below what an operator on integers of 64 bits can't overflow.
std::int64_t harmless_operand(int operation) { return std::int64_t(1) << (operation == NB_MULTIPLY ? 31 : 62); }

/// The scalar, where the condition holds; else the program fails.
V checked_scalar(Tracer& tracer, const ArrayValue& scalar, ValueId holds) {
  const ValueId value = tracer.read(scalar);
  const bool always = constant_condition(tracer.graph(), holds).value_or(false);
  auto result = tracer.new_array(Library::Numpy, always ? value : tracer.checked(value, holds));
  result->numpy_scalar = true;
  return result;
}

/// The scalar `made` by an operator on integer scalars that may overflow: where it does, or is near to it, the program
/// fails, and NumPy computes and reports.
V without_overflow(Tracer& tracer, int operation, const V& a, const V& b, const V& made) {
  Array scalar = array_of(made);
  if (!scalar || !scalar->numpy_scalar) unsupported("a sequence with an integer NumPy scalar");
  constexpr int kSilent[] = {NB_AND, NB_OR, NB_XOR, NB_TRUE_DIVIDE, NB_LSHIFT, NB_RSHIFT, NB_POWER};
  if (scalar->dtype == DType::Bool || std::find(std::begin(kSilent), std::end(kSilent), operation) != std::end(kSilent))
    return made;
  const bool divides = operation == NB_FLOOR_DIVIDE || operation == NB_REMAINDER;
  const bool known = divides || operation == NB_ADD || operation == NB_SUBTRACT || operation == NB_MULTIPLY;
  const bool unsigned_64 = is_unsigned_integer(scalar->dtype) && size_in_bytes(scalar->dtype) == 8;
  if (!known || !is_integer(scalar->dtype) || unsigned_64) unsupported("arithmetic on integer NumPy scalars");
  auto number = [&](std::int64_t value) { return constant(tracer, DType::I64, value); };
  ValueId holds;
  auto require_range = [&](ValueId value, std::int64_t low, std::int64_t high) {
    const ValueId inside = emit(
        tracer, Op::bit_and, {emit(tracer, Op::ge, {value, number(low)}), emit(tracer, Op::le, {value, number(high)})});
    holds = holds.valid() ? emit(tracer, Op::bit_and, {holds, inside}) : inside;
  };
  std::vector<ValueId> wide;
  for (const V& operand : {a, b}) {
    wide.push_back(operand_value(tracer, numpy_operand(tracer, operand), DType::I64));
    require_range(wide.back(), -harmless_operand(operation) + 1, harmless_operand(operation) - 1);
  }
  if (divides) {
    // By zero, and the lowest number by -1.
    for (std::int64_t refused : {0, -1})
      holds = emit(tracer, Op::bit_and, {holds, emit(tracer, Op::ne, {wide[1], number(refused)})});
  } else if (const auto bits = 8 * size_in_bytes(scalar->dtype); bits < 64) {
    const std::int64_t span = std::int64_t(1) << (is_unsigned_integer(scalar->dtype) ? bits : bits - 1);
    const Op op = operation == NB_ADD ? Op::add : operation == NB_SUBTRACT ? Op::sub : Op::mul;
    require_range(emit(tracer, op, {wide[0], wide[1]}), is_unsigned_integer(scalar->dtype) ? 0 : -span, span - 1);
  }
  return checked_scalar(tracer, *scalar, holds);
}

/// `-a`, which is no number of its dtype where `a` is the lowest, or unsigned and not zero.
V negated(Tracer& tracer, const Array& a) {
  const Array made = array_of(numpy_ufunc(tracer, "negative", {a}));
  const ValueId value = tracer.read(*a);
  if (is_unsigned_integer(a->dtype))
    return checked_scalar(tracer, *made, emit(tracer, Op::eq, {value, constant(tracer, a->dtype, 0)}));
  const std::int64_t lowest = std::numeric_limits<std::int64_t>::min() >> (64 - 8 * size_in_bytes(a->dtype));
  return checked_scalar(tracer, *made, emit(tracer, Op::ne, {value, constant(tracer, a->dtype, lowest)}));
}

/// fast_scalar_power: arrays to the power of a Python number that has a cheaper ufunc. Null: none.
V fast_power(Tracer& tracer, const V& base, const V& exponent, const V& out) {
  Array x = array_of(base);
  if (x && !x->numpy_scalar && exponent->kind == ValueKind::Number && is_float(x->dtype)) {
    if (PyObject* known = tracer.constant_object(exponent))
      return fast_power(tracer, base, tracer.wrap(known, nullptr), out);
    unsupported("a power by a number that the program computes: NumPy takes the square root where it is 0.5");
  }
  auto* number = as<ObjectValue>(exponent);
  if (!x || x->numpy_scalar || !number) return nullptr;
  const bool integer = PyLong_CheckExact(number->object.get());
  std::optional<double> power = tracer.constant_float(exponent);
  if (!power && integer)
    if (auto known = tracer.constant_int(exponent)) power = double(*known);
  if (!power) return nullptr;
  const bool inexact = is_float(x->dtype) || is_complex(x->dtype);
  if (*power == 2.0 && (integer || inexact)) return numpy_ufunc(tracer, "square", {base}, out);
  if (!inexact) return nullptr;
  if (*power == 1.0) return numpy_ufunc(tracer, "positive", {base}, out);
  if (*power == -1.0) return numpy_ufunc(tracer, "reciprocal", {base}, out);
  if (*power == 0.5) return numpy_ufunc(tracer, "sqrt", {base}, out);
  return nullptr;
}

bool is_complex_number(const V& value) {
  auto* object = as<ObjectValue>(value);
  return object && PyComplex_CheckExact(object->object.get());
}

/// An operand NumPy's operators would turn into an array or defer to.
void require_operand(const V& value) {
  if (!is_numpy_operand(value) && !is_sequence(value) && !is_complex_number(value))
    unsupported("an operator between an ndarray and this object");
}

}  // namespace

V numpy_binary(Tracer& tracer, int nb_op, const V& a, const V& b) {
  require_operand(a);
  require_operand(b);
  if (nb_op == NB_MATRIX_MULTIPLY || nb_op == NB_INPLACE_MATRIX_MULTIPLY) {
    if (nb_op == NB_INPLACE_MATRIX_MULTIPLY) unsupported("@= on an ndarray");
    Arguments arguments;
    arguments.positional = {a, b};
    return numpy_matmul(tracer, arguments);
  }
  for (const BinaryRow& row : kBinary) {
    if (nb_op != row.operation && nb_op != row.in_place) continue;
    Array target = array_of(a);
    const bool in_place = nb_op == row.in_place && target && !target->numpy_scalar;
    if (in_place) {
      if (row.operation == NB_POWER)
        if (V fast = fast_power(tracer, a, b, a)) return fast;
      return numpy_ufunc(tracer, row.ufunc, {a, b}, a);
    }
    // A list or tuple is repeated by a scalar, or refuses.
    const bool repeats = (is_sequence(a) && is_scalar(b)) || (is_sequence(b) && is_scalar(a));
    if (repeats && row.operation == NB_MULTIPLY) unsupported("a sequence times a NumPy scalar");
    if (reports_overflow(tracer, a, b))
      return without_overflow(tracer, row.operation, a, b, numpy_ufunc(tracer, row.ufunc, {a, b}));
    if (row.operation == NB_POWER)
      if (V fast = fast_power(tracer, a, b, nullptr)) return fast;
    return numpy_ufunc(tracer, row.ufunc, {a, b});
  }
  unsupported("this operator on an ndarray");
}

V numpy_compare(Tracer& tracer, int comparison, const V& a, const V& b) {
  require_operand(a);
  require_operand(b);
  static constexpr const char* names[] = {"less", "less_equal", "equal", "not_equal", "greater", "greater_equal"};
  return numpy_ufunc(tracer, names[comparison], {a, b});
}

V numpy_unary(Tracer& tracer, int opcode, const Array& a) {
  switch (opcode) {
    case FJ_UNARY_NEGATIVE:
      return reports_overflow(tracer, a, nullptr) ? negated(tracer, a) : numpy_ufunc(tracer, "negative", {a});
    case FJ_UNARY_POSITIVE: return numpy_ufunc(tracer, "positive", {a});
    case FJ_UNARY_INVERT: return numpy_ufunc(tracer, "invert", {a});
    default: unsupported("this operator on an ndarray");
  }
}

namespace {
/// One integer per axis: not a view but an element.
bool selects_element(const Index& index, const Array& x) {
  return int(index.items.size()) == x->rank() &&
         std::all_of(index.items.begin(), index.items.end(), [](const auto& item) {
           return item.kind == Index::Item::Kind::Integer ||
                  (item.kind == Index::Item::Kind::IntegerArray && array_of(item.array)->shape.empty());
         });
}
}  // namespace

V numpy_get_item(Tracer& tracer, const Array& x, const V& key) {
  if (x->numpy_scalar) unsupported("indexing a NumPy scalar");
  Index index = parse_index(tracer, Library::Numpy, key, x->rank());
  if (index.has(Index::Item::Kind::Mask)) return index_gather(tracer, x, index);
  if (index.has(Index::Item::Kind::IntegerArray)) {
    // Scalars alone select as ints do: an element is a scalar, anything else a view, or a copy where one of them is an
    // array of rank 0.
    bool scalars = true, copies = false;
    for (const auto& item : index.items) {
      if (item.kind != Index::Item::Kind::IntegerArray) continue;
      scalars = scalars && array_of(item.array)->shape.empty();
      copies = copies || !array_of(item.array)->numpy_scalar;
    }
    if (scalars && !copies && !selects_element(index, x)) unsupported("a view at a place that depends on data");
    Array result = index_gather(tracer, x, index);
    result->numpy_scalar = scalars && selects_element(index, x);
    return result;
  }
  Array view = index_view(tracer, x, index);
  if (!selects_element(index, x)) return view;
  // All integers: the element itself, a scalar object and no view.
  Array scalar = tracer.new_array(Library::Numpy, tracer.read(*view));
  scalar->numpy_scalar = true;
  return scalar;
}

namespace {
/// What is assigned to complex elements: a number as an array of rank 0.
Operand complex_operand(Tracer& tracer, const Array& x, const V& value) {
  auto* held = as<ObjectValue>(value);
  const auto scalar = held ? numpy_scalar_dtype(held->object.get()) : std::nullopt;
  if (held && (PyComplex_CheckExact(held->object.get()) || (scalar && is_complex(*scalar)))) {
    const V number = tracer.constant(Ref<>::borrow(tracer.constant_object(value)));
    const Ref<>& helper = once([] { return imported("framejit._support.numpy", "complex_number"); });
    return Operand{array_of(tracer.extern_call(tracer.constant(helper), {x, number}, {})), nullptr};
  }
  const Operand operand = numpy_operand(tracer, value);
  if (operand.array) return operand;
  const ValueId real = operand_value(tracer, operand, x->dtype == DType::C64 ? DType::F32 : DType::F64);
  return Operand{fresh(tracer, cast(tracer, real, x->dtype)), nullptr};
}
}  // namespace

void refuse_storing_in_order(const Array& target, const Array& source) {
  if (!source || source->storage != target->storage || target->rank() != 1 || source->rank() == 0) return;
  const SymDim &written = target->strides[0], &read = source->strides.back();
  const bool same_type = source->dtype == target->dtype;
  if ((same_type && written == read) || source->shape.back() == SymDim(1)) return;
  if (written.is_constant() && read.is_constant() && (written.value() < 0) != (read.value() < 0)) return;
  if (!same_type || may_share_elements(target, source))
    unsupported("an assignment of elements that overlap those it stores");
}

void numpy_set_item(Tracer& tracer, const Array& x, const V& key, const V& value) {
  if (x->numpy_scalar) refuse("a NumPy scalar does not support item assignment");
  if (!x->writeable) refuse("assignment destination is read-only");
  Index index = parse_index(tracer, Library::Numpy, key, x->rank());
  const Operand operand = is_complex(x->dtype) ? complex_operand(tracer, x, value) : numpy_operand(tracer, value);
  if (operand.array && operand.array->rank() > 0 && selects_element(index, x))
    refuse("setting an array element with a sequence");
  if (operand.array && operand.array->storage == x->storage &&
      (index.has(Index::Item::Kind::IntegerArray) || index.has(Index::Item::Kind::Mask)))
    unsupported("writing a part of an array into it through an index array");
  if (operand.array && operand.array->storage == x->storage)
    refuse_storing_in_order(index_view(tracer, x, index), operand.array);
  // Assignment casts unsafely: whatever the dtypes, elements are converted.
  index_assign(tracer, x, index, element_value(tracer, operand, x->dtype));
}

namespace {
/// The imaginary part of real numbers: zeros that nobody writes into, in the order of the array.
Array zero_part(Tracer& tracer, const Array& x) {
  const bool columns = !is_contiguous(tracer, x->shape, x->strides) && is_column_major(tracer, x->shape, x->strides);
  Array zeros = tracer.new_array(Library::Numpy, full(tracer, x->dtype, scalar_of(x->dtype, 0.0), x->shape),
                                 columns ? column_major(x->shape) : contiguous_strides(x->shape));
  zeros->writeable = false;
  zeros->storage->read_only = true;
  return zeros;
}
}  // namespace

V numpy_attribute(Tracer& tracer, const Array& x, std::string_view name) {
  if (name == "shape") return shape_tuple(tracer, x->shape);
  if (name == "ndim") return tracer.integer(std::int64_t(x->rank()));
  if (name == "size") return tracer.integer(product(x->shape));
  if (name == "dtype") return tracer.constant(dtype_object(Library::Numpy, x->dtype));
  if (name == "itemsize") return tracer.integer(std::int64_t(size_in_bytes(x->dtype)));
  if (name == "nbytes") return tracer.integer(product(x->shape) * SymDim(std::int64_t(size_in_bytes(x->dtype))));
  if (name == "strides") {
    Dims bytes;
    for (const SymDim& stride : exact_strides(tracer, *x))
      bytes.push_back(stride * SymDim(std::int64_t(size_in_bytes(x->dtype))));
    return shape_tuple(tracer, bytes);
  }
  if (x->numpy_scalar) {
    if ((name != "real" && name != "imag") || is_complex(x->dtype)) return nullptr;
    const ValueId part = name == "imag" ? constant(tracer, x->dtype, scalar_of(x->dtype, 0.0)) : tracer.read(*x);
    Array scalar = tracer.new_array(Library::Numpy, part);
    scalar->numpy_scalar = true;
    return scalar;
  }
  if (name == "T") {
    Axes reversed;
    for (int i = x->rank(); i-- > 0;) reversed.push_back(i);
    return view_transpose(tracer, x, reversed);
  }
  if (name == "mT") {
    if (x->rank() < 2) refuse("matrix transpose with ndim < 2 is undefined");
    Axes permutation = all_axes(x->rank());
    std::swap(permutation[x->rank() - 1], permutation[x->rank() - 2]);
    return view_transpose(tracer, x, permutation);
  }
  if (name == "real" && !is_complex(x->dtype)) return x;
  if (name == "imag" && !is_complex(x->dtype)) return zero_part(tracer, x);
  if ((name == "real" || name == "imag") && is_complex(x->dtype)) return view_part(tracer, x, name == "imag");
  constexpr int kMostAxesOfFlat = 32;
  if (name == "flat" && x->rank() > kMostAxesOfFlat) refuse("flat of an array of that many axes");
  if (name == "flags" || name == "flat") {
    auto part = std::make_shared<BuiltinValue>();
    part->owner = x;
    part->name = std::string(name);
    return part;
  }
  return nullptr;
}

}  // namespace fj
