/// Ufuncs: one engine (operands, loop dtypes, broadcast, out=, result layout) and the lowerings the rows name.
///
/// A lowering gets its operands in the dtype of the loop NumPy chose and builds nodes; the engine casts to the loop's
/// output dtype. Where a loop's result is not one node, the lowering says how NumPy defines it.
#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>

#include "tracer/frontends/numpy/equal_zeros.h"
#include "tracer/frontends/numpy/numpy.h"

namespace fj {

EqualZeros equal_zeros(DType dtype) {
  const std::array<EqualZeros, 3> answers = once([] {
    std::array<EqualZeros, 3> result{};
    constexpr const char* kTypes[] = {"float16", "float32", "float64"};
    for (int i = 0; i < 3; ++i) {
      const Ref<> type = numpy_object(kTypes[i]), maximum = numpy_object("maximum");
      auto scalar = [&](double value) {
        return type ? Ref<>::steal(PyObject_CallFunction(type.get(), "d", value)) : Ref<>();
      };
      const Ref<> zero = scalar(0.0), negative = scalar(-0.0);
      auto is_negative = [&](const Ref<>& a, const Ref<>& b) {
        const Ref<> larger = maximum && a && b ? Ref<>::steal(PyObject_CallFunctionObjArgs(
                                                     maximum.get(), a.get(), b.get(), nullptr))
                                               : Ref<>();
        return larger && std::signbit(PyFloat_AsDouble(larger.get()));
      };
      result[std::size_t(i)] = is_negative(zero, negative)   ? EqualZeros::Second
                               : is_negative(negative, zero) ? EqualZeros::First
                                                             : EqualZeros::Ordered;
      PyErr_Clear();
    }
    return result;
  });
  if (!is_float(dtype)) return EqualZeros::First;
  return answers[dtype == DType::F16 ? 0 : dtype == DType::F32 ? 1 : 2];
}

namespace {

using Values = std::vector<ValueId>;

template <Op op>
Values Pointwise(Tracer& tracer, const Values& in, DType loop) {
  // int64 and uint64 are compared exactly, by loops of their own.
  if (in.size() == 2 && dtype_of(tracer, in[1]) != loop) unsupported("a comparison of int64 with uint64");
  return {pointwise(tracer, op, in)};
}

/// Loops over bool are logical operations.
template <Op op, Op boolean>
Values BoolOr(Tracer& tracer, const Values& in, DType loop) {
  return {pointwise(tracer, loop == DType::Bool ? boolean : op, in)};
}

/// maximum and minimum. The graph's give the first of two equal operands, which 0.0 and -0.0 are.
template <Op op, Op boolean>
Values Extreme(Tracer& tracer, const Values& in, DType loop) {
  if (equal_zeros(loop) == EqualZeros::First) return BoolOr<op, boolean>(tracer, in, loop);
  const ValueId second = pointwise(tracer, op, {in[1], in[0]});
  if (equal_zeros(loop) == EqualZeros::Second) return {second};
  const ValueId first = pointwise(tracer, op, {in[0], in[1]}), negative = emit(tracer, Op::sign_bit, {in[0]});
  return {op == Op::maximum ? pointwise(tracer, Op::where, {negative, second, first})
                            : pointwise(tracer, Op::where, {negative, first, second})};
}

Values Same(Tracer&, const Values& in, DType) { return in; }

Values Absolute(Tracer& tracer, const Values& in, DType loop) {
  if (loop == DType::Bool || is_unsigned_integer(loop)) return in;
  return {pointwise(tracer, Op::abs, in)};
}

Values Square(Tracer& tracer, const Values& in, DType) { return {emit(tracer, Op::mul, {in[0], in[0]})}; }

Values Reciprocal(Tracer& tracer, const Values& in, DType loop) {
  if (!is_float(loop)) unsupported("numpy.reciprocal of integers");
  return {emit(tracer, Op::div, {constant_like(tracer, in[0], 1.0), in[0]})};
}

Values FloorDivideAndRemainder(Tracer& tracer, const Values& in, DType) {
  return {pointwise(tracer, Op::floor_div, in), pointwise(tracer, Op::mod, in)};
}

/// The value of a rank-0 constant operand, so that powers known while tracing can be strength-reduced.
std::optional<double> known_constant(Tracer& tracer, ValueId value) {
  for (const Node& node : tracer.graph().nodes) {
    if (node.op != Op::constant || node.results[0] != value) continue;
    const Scalar& scalar = node.attrs.get<Scalar>("value");
    if (auto* real = std::get_if<double>(&scalar)) return *real;
    if (auto* integer = std::get_if<std::int64_t>(&scalar)) return double(*integer);
    if (auto* natural = std::get_if<std::uint64_t>(&scalar)) return double(*natural);
  }
  return std::nullopt;
}

Values Power(Tracer& tracer, const Values& in, DType loop) {
  const std::optional<double> exponent = known_constant(tracer, in[1]);
  if (exponent == 2.0) return {emit(tracer, Op::mul, {in[0], in[0]})};
  if (is_signed_integer(loop)) {
    // A negative exponent raises ValueError, which a kernel can't.
    if (!exponent) unsupported("numpy.power of integers with an exponent that is not constant");
    if (*exponent < 0) refuse("integers to negative integer powers are not allowed");
  }
  return {pointwise(tracer, Op::pow, in)};
}

template <Op op>
Values Logical(Tracer& tracer, const Values& in, DType) {
  return {pointwise(tracer, op, {cast(tracer, in[0], DType::Bool), cast(tracer, in[1], DType::Bool)})};
}

Values Invert(Tracer& tracer, const Values& in, DType loop) {
  return {pointwise(tracer, loop == DType::Bool ? Op::logical_not : Op::bit_not, in)};
}

/// Of the number without its sign, as uint8 for every loop.
Values BitwiseCount(Tracer& tracer, const Values& in, DType loop) {
  const ValueId magnitude = Absolute(tracer, in, loop)[0];
  return {cast(tracer, pointwise(tracer, Op::popcount, {magnitude}), DType::U8)};
}

/// NumPy defines shifts by the width or more, and by negative counts: all bits go.
template <Op op>
Values Shift(Tracer& tracer, const Values& in, DType loop) {
  const std::int64_t bits = std::int64_t(size_in_bytes(loop)) * 8;
  const ValueId zero = constant(tracer, loop, 0), width = constant(tracer, loop, bits);
  ValueId inside = pointwise(tracer, Op::lt, {in[1], width});
  if (is_signed_integer(loop))
    inside = pointwise(tracer, Op::bit_and, {inside, pointwise(tracer, Op::ge, {in[1], zero})});
  const ValueId count = pointwise(tracer, Op::where, {inside, in[1], zero});
  ValueId gone = zero;
  if (op == Op::shift_right && is_signed_integer(loop))
    gone = pointwise(tracer, Op::shift_right, {in[0], constant(tracer, loop, bits - 1)});
  return {pointwise(tracer, Op::where, {inside, pointwise(tracer, op, {in[0], count}), gone})};
}

/// isnan and its like: integers and bools are always finite.
template <Op op, bool of_integers>
Values FloatTest(Tracer& tracer, const Values& in, DType loop) {
  if (is_float(loop)) return {pointwise(tracer, op, in)};
  return {full(tracer, DType::Bool, Scalar(of_integers), shape_of(tracer, in[0]))};
}

template <Op op>
Values Rounding(Tracer& tracer, const Values& in, DType loop) {
  if (!is_float(loop)) return in;
  return {pointwise(tracer, op, in)};
}

/// npy_logaddexp: x == y: x + ln 2 (also infinities); else the larger + log1p(exp(-|x - y|)). Of a NaN it asks whether
/// that is positive, which is an invalid operation; so is this square root.
Values LogAddExp(Tracer& tracer, const Values& in, DType loop) {
  const ValueId difference = pointwise(tracer, Op::sub, in);
  const ValueId larger = pointwise(tracer, Op::maximum, in);
  const ValueId tail =
      emit(tracer, Op::log1p, {emit(tracer, Op::exp, {emit(tracer, Op::neg, {emit(tracer, Op::abs, {difference})})})});
  const ValueId equal = pointwise(tracer, Op::add, {in[0], constant(tracer, loop, std::log(2.0))});
  const ValueId unordered = emit(tracer, Op::is_nan, {difference});
  const ValueId nan =
      emit(tracer, Op::sqrt,
           {pointwise(tracer, Op::where, {unordered, constant(tracer, loop, -1), constant(tracer, loop, 0)})});
  const ValueId ordered = pointwise(tracer, Op::where, {unordered, nan, pointwise(tracer, Op::add, {larger, tail})});
  return {pointwise(tracer, Op::where, {pointwise(tracer, Op::eq, in), equal, ordered})};
}

/// By a factor that is computed in the array's precision; halves go through float32.
Values scaled(Tracer& tracer, ValueId x, double factor, float single) {
  const DType dtype = dtype_of(tracer, x);
  if (is_half(dtype)) x = cast(tracer, x, DType::F32);
  const ValueId product =
      emit(tracer, Op::mul, {x, constant_like(tracer, x, dtype == DType::F64 ? factor : double(single))});
  return {cast(tracer, product, dtype)};
}
Values Radians(Tracer& tracer, const Values& in, DType) {
  return scaled(tracer, in[0], M_PI / 180.0, float(M_PI) / 180.0f);
}
Values Degrees(Tracer& tracer, const Values& in, DType) {
  return scaled(tracer, in[0], 180.0 / M_PI, 180.0f / float(M_PI));
}

struct UfuncRow {
  int inputs;
  UfuncLowering lowering;
};

const std::unordered_map<std::string_view, UfuncRow>& ufunc_table() {
  static const std::unordered_map<std::string_view, UfuncRow> table = {
#define FJ_UFUNC(name, inputs, ...) {#name, {inputs, __VA_ARGS__}},
#define FJ_NUMPY(path, handler)
#include "tracer/frontends/numpy/numpy.def"
#undef FJ_UFUNC
#undef FJ_NUMPY
  };
  return table;
}

#define FJ_UFUNC(name, inputs, ...)                                   \
  V call_##name(Tracer& tracer, const Arguments& arguments) {         \
    return call_ufunc(tracer, #name, inputs, __VA_ARGS__, arguments); \
  }
#define FJ_NUMPY(path, handler)
#include "tracer/frontends/numpy/numpy.def"
#undef FJ_UFUNC
#undef FJ_NUMPY

/// out= as a list with one entry per output; entries may be null.
std::vector<V> outputs_argument(Tracer& tracer, const Parameters& p, std::size_t count) {
  std::vector<V> outs(count);
  V out = p["out"];
  if (!out || tracer.is_none(out)) return outs;
  if (array_of(out)) {
    if (count != 1) refuse("'out' must be a tuple of arrays");
    outs[0] = out;
    return outs;
  }
  std::vector<V> items = tracer.sequence_items(out);
  if (items.size() != count) refuse("'out' must have one entry per output");
  for (std::size_t i = 0; i < count; ++i)
    if (!tracer.is_none(items[i])) outs[i] = items[i];
  return outs;
}

/// Strides of the new result of a ufunc's loop that casts none of its arrays. Where they are all in columns the result
/// is made so; the iterator, which makes the others, puts axes of one element elsewhere
/// (try_trivial_single_output_loop, numpy/_core/src/umath/ufunc_object.c).
Strides ufunc_strides(Tracer& tracer, const Dims& shape, std::span<const Layout> operands) {
  const auto all = [&](auto&& lies_so) {
    return std::all_of(operands.begin(), operands.end(),
                       [&](const Layout& operand) { return operand.shape.empty() || lies_so(operand); });
  };
  const bool in_columns = !all([](const Layout& operand) {
    return operand.strides == row_major(operand.shape);
  }) && all([&](const Layout& operand) {
    return same_shape(tracer, operand.shape, shape) && is_column_major(tracer, shape, operand.strides);
  }) && !all([&](const Layout& operand) { return is_contiguous(tracer, shape, operand.strides); });
  return in_columns ? column_major(shape) : elementwise_strides(tracer, Library::Numpy, shape, operands);
}

}  // namespace

V call_ufunc(Tracer& tracer, std::string_view path, int inputs, UfuncLowering lowering, const Arguments& arguments) {
  const std::string function = "numpy." + std::string(path);
  const std::size_t output_count = path == "divmod" ? 2 : 1;
  std::string signature = inputs == 1 ? "x1" : inputs == 2 ? "x1, x2" : "x1, x2, x3";
  signature += output_count == 1 ? ", out, *, where, casting, order, dtype, subok"
                                 : ", *, out, where, casting, order, dtype, subok";
  Parameters p(tracer, function, arguments, signature);
  if ((path == "maximum" || path == "minimum") && arguments.positional.size() > 2)
    p.refuse("a third positional argument (deprecated)");
  V where = p["where"];
  if (where && !(tracer.constant_object(where) == Py_True)) p.refuse("the argument 'where'");
  if (p.text("order", "K") != "K") p.refuse("the argument 'order'");
  std::vector<V> outs = outputs_argument(tracer, p, output_count);

  std::vector<Operand> operands;
  for (int i = 0; i < inputs; ++i) operands.push_back(numpy_operand(tracer, p.required("x" + std::to_string(i + 1))));
  std::vector<std::optional<DType>> out_dtypes;
  for (const V& out : outs) {
    Array array = out ? array_of(out) : nullptr;
    if (out && !array) refuse("return arrays must be of ArrayType");
    out_dtypes.push_back(array ? std::optional(array->dtype) : std::nullopt);
  }
  const Ref<> ufunc = numpy_object(path);
  const std::vector<DType> loop =
      resolve_ufunc(tracer, ufunc.get(), operands, out_dtypes, numpy_dtype_argument(tracer, p["dtype"]),
                    p.text("casting", "same_kind"));
  for (DType dtype : loop)
    if (is_complex(dtype)) unsupported(function + " of complex numbers");

  std::vector<ValueId> values;
  std::vector<Layout> layouts;
  bool scalar = true, casts = false;
  for (int i = 0; i < inputs; ++i) {
    casts = casts || (operands[i].array && operands[i].rank() > 0 && operands[i].array->dtype != loop[i]);
    values.push_back(operand_value(tracer, operands[i], loop[i]));
    scalar = scalar && operands[i].rank() == 0;
    if (operands[i].array) layouts.push_back(layout_of(operands[i].array));
  }
  std::vector<ValueId> results = lowering(tracer, values, loop[0]);
  std::vector<V> answers;
  for (std::size_t i = 0; i < output_count; ++i) {
    ValueId result = cast(tracer, results[i], loop[inputs + i]);
    if (outs[i]) {
      answers.push_back(write_out(tracer, outs[i], broadcast_to(tracer, result, array_of(outs[i])->shape)));
      continue;
    }
    Array array = tracer.new_array(
        Library::Numpy, result,
        output_count == 1 && !casts ? ufunc_strides(tracer, shape_of(tracer, result), layouts)
                                    : elementwise_strides(tracer, Library::Numpy, shape_of(tracer, result), layouts));
    array->numpy_scalar = scalar;
    answers.push_back(array);
  }
  return output_count == 1 ? answers[0] : tracer.tuple(std::move(answers));
}

V numpy_ufunc(Tracer& tracer, std::string_view name, std::vector<V> operands, V out) {
  auto row = ufunc_table().find(name);
  if (row == ufunc_table().end()) unsupported("numpy." + std::string(name));
  Arguments arguments;
  arguments.positional = std::move(operands);
  if (out) arguments.keywords.emplace_back("out", std::move(out));
  const bool complex = std::any_of(arguments.positional.begin(), arguments.positional.end(), [](const V& operand) {
    Array array = array_of(operand);
    auto* object = as<ObjectValue>(operand);
    return array ? is_complex(array->dtype) : object && PyComplex_CheckExact(object->object.get());
  });
  // Operators on complex numbers have no lowering: NumPy's own function.
  if (complex) return tracer.extern_call(tracer.constant(numpy_object(name)), arguments.positional, arguments.keywords);
  return call_ufunc(tracer, name, row->second.inputs, row->second.lowering, arguments);
}

std::span<const HandlerRow> numpy_rows() {
  static const HandlerRow rows[] = {
#define FJ_UFUNC(name, inputs, ...) {"numpy." #name, call_##name},
#define FJ_NUMPY(path, handler) {path, handler},
#include "tracer/frontends/numpy/numpy.def"
#undef FJ_UFUNC
#undef FJ_NUMPY
  };
  return rows;
}

// ---- ufunc methods

namespace {
V outer(Tracer& tracer, std::string_view name, const Arguments& arguments) {
  Parameters p(tracer, "numpy." + std::string(name) + ".outer", arguments, "A, B");
  Array a = numpy_array(tracer, p.required("A")), b = numpy_array(tracer, p.required("B"));
  Axes trailing;
  for (int i = 0; i < b->rank(); ++i) trailing.push_back(a->rank() + i);
  return numpy_ufunc(tracer, name, {trailing.empty() ? a : view_expand_axes(tracer, a, trailing), b});
}
}  // namespace

V numpy_add_outer(Tracer& tracer, const Arguments& arguments) { return outer(tracer, "add", arguments); }
V numpy_subtract_outer(Tracer& tracer, const Arguments& arguments) { return outer(tracer, "subtract", arguments); }
V numpy_multiply_outer(Tracer& tracer, const Arguments& arguments) { return outer(tracer, "multiply", arguments); }

}  // namespace fj
