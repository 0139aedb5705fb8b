/// Pointwise rows: arithmetic, comparison, logic, and in-place writes.
///
/// Half types: TensorIterator's kernels compute one operation in f32 and round once, which the graph's own
/// half-precision operations do; mul, div and floor division take a number as the second operand unrounded (in f32),
/// add, sub and remainder round it first.
#include <opcode.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numbers>

#include "tracer/frontends/composites.h"
#include "tracer/frontends/torch/torch.h"

namespace fj {
namespace {

/// The operands of a function of two: `input` and `other`.
TorchOperands two(Tracer& tracer, const Parameters& p) {
  TorchOperands operands{torch_operand(tracer, p.required("input")), torch_operand(tracer, p.required("other"))};
  if (!operands[0].array) unsupported("a number in the place of a tensor");
  return operands;
}

TorchOperands two(Tracer& tracer, const char* name, const Arguments& arguments) {
  Parameters p(tracer, name, arguments, "input, other, *, out");
  p.unsupported("out");
  return two(tracer, p);
}

TorchOperands one(Tracer& tracer, const char* name, const Arguments& arguments) {
  Parameters p(tracer, name, arguments, "input, *, out");
  p.unsupported("out");
  TorchOperand operand = torch_operand(tracer, p.required("input"));
  if (!operand.array) refuse("a number where torch takes a tensor");
  return {operand};
}

bool is_scalar(const TorchOperand& operand) { return !operand.array || operand.array->shape.empty(); }

/// A number, or a tensor without dimensions in the host's memory: torch's kernels for a device take it in f32, not
/// rounded to half.
bool of_host(const TorchOperand& operand) { return !operand.array || operand.array->storage->device == kHost; }

/// True if torch's kernel of a half type takes the second operand as one number in f32, not rounded to half.
bool keeps_scalar(const TorchOperands& operands, DType dtype) {
  if (!is_half(dtype)) return false;
  const TorchOperand& b = operands[1];
  // An array of one element is such a number too, whatever its rank; which matters where half types round its values.
  if (b.array && !b.array->shape.empty() && !is_half(b.dtype) && size_in_bytes(b.dtype) > 1)
    unsupported("a half tensor with a tensor of integers");
  return is_scalar(b);
}

/// A half tensor by a scalar that keeps its f32 value.
V by_scalar(Tracer& tracer, Op op, const TorchOperands& operands, DType dtype) {
  ValueId a = cast(tracer, torch_value(tracer, operands[0], dtype), DType::F32);
  ValueId value = pointwise(tracer, op, {a, torch_value(tracer, operands[1], DType::F32)});
  return torch_elementwise(tracer, cast(tracer, value, dtype), operands);
}

void refuse_bool(DType dtype, const char* what) {
  if (dtype == DType::Bool) refuse(std::string(what) + " of booleans");
}

bool number_is(Tracer& tracer, const TorchOperand& operand, double& value) {
  PyObject* object = operand.array || tracer.float_input(operand.number).valid()
                         ? nullptr
                         : tracer.constant_object(operand.number);
  if (!object) return false;
  value = PyFloat_AsDouble(object);
  if (PyErr_Occurred()) {
    PyErr_Clear();
    return false;
  }
  return true;
}

V multiply(Tracer& tracer, TorchOperands operands) {
  const DType dtype = torch_result_type(operands);
  if (dtype == DType::Bool) return torch_pointwise(tracer, Op::bit_and, operands);
  if (keeps_scalar(operands, dtype)) return by_scalar(tracer, Op::mul, operands, dtype);
  return torch_pointwise(tracer, Op::mul, operands);
}

V divide(Tracer& tracer, TorchOperands operands) {
  DType dtype = torch_result_type(operands);
  if (!is_float(dtype)) dtype = torch_default_dtype();
  if (keeps_scalar(operands, dtype)) return by_scalar(tracer, Op::div, operands, dtype);
  ValueId value =
      pointwise(tracer, Op::div, {torch_value(tracer, operands[0], dtype), torch_value(tracer, operands[1], dtype)});
  return torch_elementwise(tracer, value, operands);
}

/// a * b + c as torch's kernels compute it: rounded once where the machine has an instruction for it.
ValueId multiply_add(Tracer& tracer, ValueId a, ValueId b, ValueId c) {
  const bool fused = once([] {
    Ref<> ask = torch_object("backends.cpu.get_cpu_capability");
    Ref<> answer = ask ? Ref<>::steal(PyObject_CallNoArgs(ask.get())) : Ref<>();
    const char* text = answer && PyUnicode_Check(answer.get()) ? PyUnicode_AsUTF8(answer.get()) : nullptr;
    PyErr_Clear();
    return text != nullptr && std::string_view(text).starts_with("AVX");
  });
  const DType dtype = dtype_of(tracer, c);
  if (fused && (dtype == DType::F32 || dtype == DType::F64)) return pointwise(tracer, Op::fma, {a, b, c});
  return pointwise(tracer, Op::add, {c, pointwise(tracer, Op::mul, {a, b})});
}

/// A number, or what a tensor without dimensions holds: torch reads it (a learning rate that is a tensor).
TorchOperand number_operand(Tracer& tracer, const V& value) {
  TorchOperand operand = torch_operand(tracer, value);
  if (!operand.array) return operand;
  if (!operand.array->shape.empty() || tracer.requires_gradient(*operand.array))
    refuse("a tensor where torch takes a number");
  return torch_operand(tracer, tracer.number(*operand.array));
}

/// a + alpha * b or a - alpha * b.
V add_or_subtract(Tracer& tracer, Op op, const TorchOperands& operands, const V& alpha) {
  const DType dtype = torch_result_type(operands);
  if (op == Op::sub && (dtype == DType::Bool || operands[0].dtype == DType::Bool || operands[1].dtype == DType::Bool))
    refuse("subtraction with a bool tensor");
  // Of halves torch's kernel for a device adds in f32.
  const bool in_f32 =
      is_half(dtype) && tracer.device() != kHost && (alpha || of_host(operands[0]) || of_host(operands[1]));
  const auto value_of = [&](const TorchOperand& operand) {
    const ValueId value = torch_value(tracer, operand, in_f32 && of_host(operand) ? DType::F32 : dtype);
    return in_f32 ? cast(tracer, value, DType::F32) : value;
  };
  ValueId a = value_of(operands[0]), b = value_of(operands[1]);
  double factor = 1;
  if (alpha) {
    const TorchOperand scale = number_operand(tracer, alpha);
    if (!torch_can_cast(scale.dtype == DType::F64 ? DType::F32 : scale.dtype, is_float(dtype) ? DType::F32 : dtype) &&
        dtype != DType::Bool)
      refuse("alpha of another kind than the tensors");
    if (scale.dtype == DType::Bool && dtype != DType::Bool) refuse("a bool as alpha");
    if (!number_is(tracer, scale, factor)) factor = 0;
    if (factor != 1) {
      // For the host torch rounds alpha and the product of halves differently in vectors and in what is left over.
      if (dtype == DType::Bool || (is_half(dtype) && !in_f32)) unsupported("alpha with booleans or a half type");
      ValueId by = torch_value(tracer, scale, dtype_of(tracer, b));
      if (is_float(dtype)) {
        if (op == Op::sub) by = emit(tracer, Op::neg, {by});
        return torch_elementwise(tracer, cast(tracer, multiply_add(tracer, b, by, a), dtype), operands);
      }
      b = pointwise(tracer, Op::mul, {b, by});
    }
  }
  if (dtype == DType::Bool) op = Op::bit_or;
  return torch_elementwise(tracer, cast(tracer, pointwise(tracer, op, {a, b}), dtype), operands);
}

V add_row(Tracer& tracer, Op op, const Arguments& arguments) {
  Parameters p(tracer, op == Op::add ? "add" : "sub", arguments, "input, other, *, alpha, out");
  p.unsupported("out");
  return add_or_subtract(tracer, op, two(tracer, p), p["alpha"]);
}

/// In the common dtype, half types in f32: the operation is not one rounding of an exact result.
V widened(Tracer& tracer, Op op, const TorchOperands& operands) {
  const DType dtype = torch_result_type(operands);
  refuse_bool(dtype, "this operation");
  if (is_half(dtype)) {
    std::vector<ValueId> values;
    for (const TorchOperand& operand : operands)
      values.push_back(cast(tracer, torch_value(tracer, operand, dtype), DType::F32));
    return torch_elementwise(tracer, cast(tracer, pointwise(tracer, op, std::move(values)), dtype), operands);
  }
  return torch_pointwise(tracer, op, operands);
}

}  // namespace

// ---- one operand

V torch_float_unary(Tracer& tracer, Op op, const Arguments& arguments) {
  TorchOperands x = one(tracer, name(op).data(), arguments);
  return torch_elementwise(tracer, emit(tracer, op, {torch_value(tracer, x[0], float_dtype(x[0].dtype))}), x);
}

V torch_same_unary(Tracer& tracer, Op op, const Arguments& arguments) {
  TorchOperands x = one(tracer, name(op).data(), arguments);
  if (x[0].dtype == DType::Bool) {
    if (op != Op::sign) refuse("this operation of booleans");
    return torch_elementwise(tracer, tracer.read(*x[0].array), x);
  }
  if (op == Op::sign && is_float(x[0].dtype)) {
    // torch's sign of NaN is 0.
    ValueId value = tracer.read(*x[0].array);
    ValueId sign =
        emit(tracer, Op::where,
             {emit(tracer, Op::is_nan, {value}), constant_like(tracer, value, 0), emit(tracer, op, {value})});
    return torch_elementwise(tracer, sign, x);
  }
  return torch_pointwise(tracer, op, x);
}

V torch_bool_unary(Tracer& tracer, Op op, const Arguments& arguments) {
  return torch_pointwise(tracer, op, one(tracer, name(op).data(), arguments));
}

V torch_rounding(Tracer& tracer, Op op, const Arguments& arguments) {
  TorchOperands x = one(tracer, name(op).data(), arguments);
  refuse_bool(x[0].dtype, "rounding");
  if (!is_float(x[0].dtype)) return torch_elementwise(tracer, tracer.read(*x[0].array), x);
  return torch_pointwise(tracer, op, x);
}

V torch_absolute(Tracer& tracer, const Arguments& arguments) { return torch_same_unary(tracer, Op::abs, arguments); }

namespace {
V float_test(Tracer& tracer, Op op, bool otherwise, const Arguments& arguments) {
  TorchOperands x = one(tracer, name(op).data(), arguments);
  if (is_float(x[0].dtype)) return torch_pointwise(tracer, op, x);
  return torch_elementwise(tracer, full(tracer, DType::Bool, Scalar(otherwise), x[0].array->shape), x);
}
}  // namespace

V torch_isnan(Tracer& tracer, const Arguments& arguments) { return float_test(tracer, Op::is_nan, false, arguments); }
V torch_isinf(Tracer& tracer, const Arguments& arguments) { return float_test(tracer, Op::is_inf, false, arguments); }
V torch_isfinite(Tracer& tracer, const Arguments& arguments) {
  return float_test(tracer, Op::is_finite, true, arguments);
}

V torch_signbit(Tracer& tracer, const Arguments& arguments) {
  TorchOperands x = one(tracer, "signbit", arguments);
  if (is_float(x[0].dtype)) return torch_pointwise(tracer, Op::sign_bit, x);
  if (x[0].dtype == DType::Bool) return float_test(tracer, Op::is_nan, false, arguments);
  return torch_elementwise(tracer, with_constant(tracer, Op::lt, tracer.read(*x[0].array), 0), x);
}

V torch_bitwise_not(Tracer& tracer, const Arguments& arguments) {
  TorchOperands x = one(tracer, "bitwise_not", arguments);
  if (is_float(x[0].dtype)) refuse("bitwise_not of floats");
  return torch_pointwise(tracer, x[0].dtype == DType::Bool ? Op::logical_not : Op::bit_not, x);
}

V torch_reciprocal(Tracer& tracer, const Arguments& arguments) {
  TorchOperands x = one(tracer, "reciprocal", arguments);
  const ValueId value = torch_value(tracer, x[0], float_dtype(x[0].dtype));
  return torch_elementwise(
      tracer, composite(tracer, CompositeRule::Reciprocal, {value}, constant_with(tracer, Op::div, 1, value)), x);
}

V torch_square(Tracer& tracer, const Arguments& arguments) {
  TorchOperands x = one(tracer, "square", arguments);
  ValueId value = torch_value(tracer, x[0], x[0].dtype == DType::Bool ? DType::I64 : x[0].dtype);
  const ValueId squared = emit(tracer, Op::mul, {value, value});
  if (is_float(x[0].dtype)) composite(tracer, CompositeRule::Power, {value}, squared, {{"exponent", 2.0}});
  return torch_elementwise(tracer, squared, x);
}

V torch_sigmoid(Tracer& tracer, const Arguments& arguments) {
  TorchOperands x = one(tracer, "sigmoid", arguments);
  return torch_elementwise(tracer, sigmoid(tracer, torch_value(tracer, x[0], float_dtype(x[0].dtype))), x);
}

V torch_frac(Tracer& tracer, const Arguments& arguments) {
  TorchOperands x = one(tracer, "frac", arguments);
  if (!is_float(x[0].dtype)) unsupported("frac of integers");
  ValueId value = tracer.read(*x[0].array);
  const ValueId whole = emit(tracer, Op::trunc, {value});
  tracer.composite(CompositeRule::Stop, {}, whole);  // one function of torch: its gradient is the one it is given
  return torch_elementwise(tracer, emit(tracer, Op::sub, {value, whole}), x);
}

/// torch multiplies by a Python number, which decides nothing about the dtype but that integers become floats, and lays
/// the result out like the tensor.
V scaled(Tracer& tracer, const char* name, const Arguments& arguments, double factor) {
  const TorchOperands x = one(tracer, name, arguments);
  V product = tracer.binary(NB_MULTIPLY, x[0].array, tracer.real(factor));
  return torch_like(tracer, x[0].array, tracer.read(*as<ArrayValue>(product)));
}

V torch_deg2rad(Tracer& tracer, const Arguments& arguments) {
  return scaled(tracer, "deg2rad", arguments, std::numbers::pi / 180);
}

V torch_rad2deg(Tracer& tracer, const Arguments& arguments) {
  return scaled(tracer, "rad2deg", arguments, 180 / std::numbers::pi);
}

V torch_positive(Tracer& tracer, const Arguments& arguments) {
  TorchOperands x = one(tracer, "positive", arguments);
  refuse_bool(x[0].dtype, "positive");
  return arguments.positional.empty() ? arguments.keywords[0].second : arguments.positional[0];
}

V torch_nan_to_num(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "nan_to_num", arguments, "input, nan, posinf, neginf, *, out");
  p.unsupported("out");
  TorchOperand x = torch_operand(tracer, torch_tensor(tracer, p.required("input")));
  if (x.dtype != DType::F32 && x.dtype != DType::F64) unsupported("nan_to_num of this dtype");
  const double largest = x.dtype == DType::F32 ? std::numeric_limits<float>::max() : std::numeric_limits<double>::max();
  ValueId value = tracer.read(*x.array);
  const double infinity = std::numeric_limits<double>::infinity();
  ValueId result = emit(tracer, Op::where, {emit(tracer, Op::is_nan, {value}),
                        constant_like(tracer, value, p.absent("nan") ? 0 : p.number("nan", 0)), value});
  result = emit(tracer, Op::where, {with_constant(tracer, Op::eq, value, infinity),
                constant_like(tracer, value, p.absent("posinf") ? largest : p.number("posinf", 0)), result});
  result = emit(tracer, Op::where, {with_constant(tracer, Op::eq, value, -infinity),
                constant_like(tracer, value, p.absent("neginf") ? -largest : p.number("neginf", 0)), result});
  return torch_like(tracer, x.array, result);
}

// ---- arithmetic

V torch_add(Tracer& tracer, const Arguments& arguments) { return add_row(tracer, Op::add, arguments); }
V torch_sub(Tracer& tracer, const Arguments& arguments) { return add_row(tracer, Op::sub, arguments); }

V torch_rsub(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "rsub", arguments, "input, other");
  TorchOperands operands = two(tracer, p);
  return add_or_subtract(tracer, Op::sub, {operands[1], operands[0]}, nullptr);
}

V torch_mul(Tracer& tracer, const Arguments& arguments) { return multiply(tracer, two(tracer, "mul", arguments)); }
V torch_true_divide(Tracer& tracer, const Arguments& arguments) {
  return divide(tracer, two(tracer, "true_divide", arguments));
}

namespace {
V floor_divide_row(Tracer& tracer, const TorchOperands& operands) {
  const DType dtype = torch_result_type(operands);
  return keeps_scalar(operands, dtype) ? by_scalar(tracer, Op::floor_div, operands, dtype)
                                       : widened(tracer, Op::floor_div, operands);
}
}  // namespace

V torch_floor_divide(Tracer& tracer, const Arguments& arguments) {
  return floor_divide_row(tracer, two(tracer, "floor_divide", arguments));
}

namespace {
/// torch's derivative of a quotient that is rounded is zeros that require no gradient, also where the quotient itself
/// is not finite; that of div() and its rounding, taken one by one, is not.
void leave_rounding_by(Tracer& tracer, const TorchOperand& operand, const char* function) {
  if (operand.array && tracer.requires_gradient(*operand.array))
    unsupported(std::string(function) + " by a tensor that requires a gradient");
}
}  // namespace

V torch_div(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "div", arguments, "input, other, *, rounding_mode, out");
  p.unsupported("out");
  TorchOperands operands = two(tracer, p);
  if (p.absent("rounding_mode")) return divide(tracer, operands);
  const std::string mode = p.text("rounding_mode", "");
  if (mode == "floor") return floor_divide_row(tracer, operands);
  if (mode != "trunc") refuse("div() with an unknown rounding_mode");
  const DType dtype = torch_result_type(operands);
  refuse_bool(dtype, "division");
  if (!is_float(dtype)) return torch_pointwise(tracer, Op::trunc_div, operands);
  if (is_half(dtype)) unsupported("div() with rounding_mode='trunc' of a half type");
  for (const TorchOperand& operand : operands) leave_rounding_by(tracer, operand, "div() with rounding_mode='trunc'");
  ValueId quotient =
      pointwise(tracer, Op::div, {torch_value(tracer, operands[0], dtype), torch_value(tracer, operands[1], dtype)});
  return torch_elementwise(tracer, emit(tracer, Op::trunc, {quotient}), operands);
}

V torch_remainder(Tracer& tracer, const Arguments& arguments) {
  TorchOperands operands = two(tracer, "remainder", arguments);
  const DType dtype = torch_result_type(operands), inner = compute_dtype(dtype);
  if (!is_float(dtype)) return widened(tracer, Op::mod, operands);
  leave_rounding_by(tracer, operands[1], "remainder()");
  // A zero keeps the sign of the dividend (NumPy's, which is the graph's mod, takes the divisor's).
  ValueId a = cast(tracer, torch_value(tracer, operands[0], dtype), inner),
          b = cast(tracer, torch_value(tracer, operands[1], dtype), inner);
  ValueId rest = pointwise(tracer, Op::fmod, {a, b});
  ValueId other_side =
      pointwise(tracer, Op::ne, {with_constant(tracer, Op::lt, b, 0), with_constant(tracer, Op::lt, rest, 0)});
  ValueId moved = pointwise(tracer, Op::bit_and, {other_side, with_constant(tracer, Op::ne, rest, 0)});
  // rest + -0.0 is rest, and the derivative by a is the cotangent itself, also -0.0.
  ValueId result =
      pointwise(tracer, Op::add, {rest, pointwise(tracer, Op::where, {moved, b, constant_like(tracer, b, -0.0)})});
  return torch_elementwise(tracer, cast(tracer, result, dtype), operands);
}
V torch_fmod(Tracer& tracer, const Arguments& arguments) {
  TorchOperands operands = two(tracer, "fmod", arguments);
  leave_rounding_by(tracer, operands[1], "fmod()");
  return widened(tracer, Op::fmod, operands);
}

V torch_pow(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "pow", arguments, "input, exponent, *, out");
  p.unsupported("out");
  TorchOperands operands{torch_operand(tracer, p.required("input")), torch_operand(tracer, p.required("exponent"))};
  if (!operands[0].array && !operands[1].array) unsupported("a torch function of numbers only");
  const DType dtype = torch_result_type(operands);
  refuse_bool(dtype, "pow");
  double number = 0;
  if (!operands[0].array && number_is(tracer, operands[0], number) && number == 1)
    return torch_fresh(tracer, full(tracer, dtype, scalar_of(dtype, 1.0), operands[1].array->shape));
  // torch's f16 kernels overflow inside of derivatives where f32 arithmetic does not.
  auto leave_f16 = [&](const TorchOperand& operand) {
    if (dtype == DType::F16 && operand.array && tracer.requires_gradient(*operand.array))
      break_graph(BreakReason::Gradient, "a power in float16, whose derivative is left to torch");
  };
  // The host's kernel raises one element to a Python number in f64: more bits of the exponent than f32 holds count.
  const bool as_f64 = dtype == DType::F32 && !operands[1].array && operands[0].array->shape.empty() &&
                      tracer.device() == kHost;
  const auto power = [&] {
    const DType inner = as_f64 ? DType::F64 : compute_dtype(dtype);
    const ValueId base = cast(tracer, torch_value(tracer, operands[0], dtype), inner);
    const ValueId exponent = cast(tracer, torch_value(tracer, operands[1], as_f64 ? inner : dtype), inner);
    return cast(tracer, pointwise(tracer, Op::pow, {base, exponent}), dtype);
  };
  if (operands[1].array || !number_is(tracer, operands[1], number)) {
    if (!is_float(dtype)) unsupported("pow of integers with an exponent tensor");
    if (operands[1].array && operands[1].array->dtype == DType::Bool && operands[0].array &&
        tracer.requires_gradient(*operands[0].array))
      unsupported("pow with bools as exponents, which torch has no derivative for");
    for (const TorchOperand& operand : operands) leave_f16(operand);
    if (as_f64) return torch_elementwise(tracer, power(), {operands[0]});
    V result = widened(tracer, Op::pow, operands);
    // A number to the power of a tensor is row-major whatever the tensor's layout.
    if (!operands[0].array) return torch_fresh(tracer, tracer.read(*array_of(result)));
    return operands[1].array ? result : torch_elementwise(tracer, tracer.read(*array_of(result)), {operands[0]});
  }
  if (number != std::floor(number)) leave_f16(operands[0]);
  ValueId x = torch_value(tracer, operands[0], dtype);
  auto result = [&](ValueId value) {
    // Each of these forms has the derivative of the power it is.
    if (is_float(dtype) && !(value == x)) composite(tracer, CompositeRule::Power, {x}, value, {{"exponent", number}});
    return torch_elementwise(tracer, value, {operands[0]});
  };
  if (number == 0) {
    // Of zeros, which depend on x for autograd.
    if (tracer.requires_gradient(x))
      break_graph(BreakReason::Gradient, "a power of 0, whose derivative is left to torch");
    return result(constant_like(tracer, x, 1));
  }
  if (number == 1) return result(same_again(tracer, x));
  if (number == 2) return result(emit(tracer, Op::mul, {x, x}));
  if (number == 3) return result(emit(tracer, Op::mul, {emit(tracer, Op::mul, {x, x}), x}));
  if (!is_float(dtype)) {
    if (number < 0) refuse("integers to a negative power");
    return torch_elementwise(tracer, tracer.read(*array_of(torch_pointwise(tracer, Op::pow, operands))), {operands[0]});
  }
  // f16 has no roots of its own there: -inf to the power of 0.5 is inf.
  if (number == 0.5 && dtype != DType::F16) return result(emit(tracer, Op::sqrt, {x}));
  if (number == -0.5 && dtype != DType::F16) return result(emit(tracer, Op::rsqrt, {x}));
  if (number == -1) return result(constant_with(tracer, Op::div, 1, x));
  if (number == -2) return result(constant_with(tracer, Op::div, 1, emit(tracer, Op::mul, {x, x})));
  return result(power());
}

V torch_float_binary(Tracer& tracer, Op op, const Arguments& arguments) {
  TorchOperands operands = two(tracer, name(op).data(), arguments);
  DType dtype = torch_result_type(operands);
  if (op != Op::copysign)
    for (const TorchOperand& operand : operands)
      if (!operand.array) refuse("a number where torch takes a tensor");
  if (!is_float(dtype) && op == Op::hypot) refuse("hypot() of integers");
  if (!is_float(dtype)) dtype = torch_default_dtype();
  const DType inner = compute_dtype(dtype);
  if (op == Op::atan2 && dtype == DType::F16)
    for (const TorchOperand& operand : operands)
      if (operand.array && tracer.requires_gradient(*operand.array))
        break_graph(BreakReason::Gradient, "atan2() in float16, whose derivative is left to torch");
  ValueId a = cast(tracer, torch_value(tracer, operands[0], dtype), inner),
          b = cast(tracer, torch_value(tracer, operands[1], dtype), inner);
  return torch_elementwise(tracer, cast(tracer, pointwise(tracer, op, {a, b}), dtype), operands);
}

// ---- comparison and logic

V torch_comparison(Tracer& tracer, Op op, const Arguments& arguments) {
  return torch_pointwise(tracer, op, two(tracer, name(op).data(), arguments));
}

V torch_logical(Tracer& tracer, Op op, const Arguments& arguments) {
  TorchOperands operands = two(tracer, name(op).data(), arguments);
  std::vector<ValueId> values;
  for (const TorchOperand& operand : operands) {
    if (!operand.array) refuse("a number where torch takes a tensor");
    ValueId x = tracer.read(*operand.array);
    values.push_back(operand.dtype == DType::Bool ? x : with_constant(tracer, Op::ne, x, 0));
  }
  return torch_elementwise(tracer, pointwise(tracer, op, std::move(values)), operands);
}

V torch_bitwise(Tracer& tracer, Op op, const Arguments& arguments) {
  TorchOperands operands = two(tracer, name(op).data(), arguments);
  if (is_float(torch_result_type(operands))) refuse("a bitwise operation of floats");
  return torch_pointwise(tracer, op, operands);
}

V torch_shift(Tracer& tracer, Op op, const Arguments& arguments) {
  TorchOperands operands = two(tracer, name(op).data(), arguments);
  const DType dtype = torch_result_type(operands);
  double number = -1;
  if (!is_integer(dtype)) unsupported("a shift of other than integers");
  // Out of range shifts have rules of their own per dtype.
  if (!number_is(tracer, operands[1], number) || number < 0 || number >= 8.0 * double(size_in_bytes(dtype)))
    unsupported("a shift by other than a small constant");
  return torch_pointwise(tracer, op, operands);
}

V torch_extremum(Tracer& tracer, Op op, const Arguments& arguments) {
  TorchOperands operands = two(tracer, name(op).data(), arguments);
  for (const TorchOperand& operand : operands)
    if (!operand.array) refuse("a number where torch takes a tensor");
  if (torch_result_type(operands) == DType::Bool)
    return torch_pointwise(tracer, op == Op::maximum || op == Op::fmax ? Op::bit_or : Op::bit_and, operands);
  return torch_pointwise(tracer, op, operands);
}

namespace {

/// Of functions whose numbers are arguments of the kernel; those of others are tensors of no axes, which count where
/// the result is laid out.
TorchOperands tensors_among(const TorchOperands& operands) {
  TorchOperands tensors;
  std::copy_if(operands.begin(), operands.end(), std::back_inserter(tensors),
               [](const TorchOperand& operand) { return bool(operand.array); });
  return tensors;
}

/// min(max(x, low), high), each bound may be absent.
V clamp_row(Tracer& tracer, const TorchOperand& x, const V& low, const V& high) {
  if (!x.array) refuse("a number where torch takes a tensor");
  if (!low && !high) refuse("clamp() without bounds");
  TorchOperands operands{x};
  if (low) operands.push_back(torch_operand(tracer, low));
  if (high) operands.push_back(torch_operand(tracer, high));
  if (low && high && bool(operands[1].array) != bool(operands[2].array))
    unsupported("clamp() between a tensor and a number");
  const DType dtype = torch_result_type(operands);
  refuse_bool(dtype, "clamp");
  ValueId value = torch_value(tracer, x, dtype);
  std::size_t next = 1;
  bool numbers = true;
  double least = -HUGE_VAL, most = HUGE_VAL;
  auto bound = [&](Op outside) {
    const TorchOperand& operand = operands[next++];
    ValueId limit = torch_value(tracer, operand, dtype);
    double number = 0;
    if (number_is(tracer, operand, number) && !std::isnan(number)) {
      value = bounded(tracer, outside, value, limit);
      (outside == Op::lt ? least : most) = number;
    } else {
      // A NaN bound makes everything NaN, on a device only as a tensor or beside another bound.
      const bool may_be_none = tracer.device() != kHost && !operand.array && bool(low) != bool(high);
      const ValueId within = pointwise(tracer, outside == Op::lt ? Op::maximum : Op::minimum, {value, limit});
      value = may_be_none ? pointwise(tracer, Op::where, {pointwise(tracer, Op::eq, {limit, limit}), within, value})
                          : within;
      numbers = false;
    }
  };
  const ValueId before = value;
  if (low) bound(Op::lt);
  if (high) bound(Op::gt);
  if (!numbers && tracer.requires_gradient(value)) break_graph(BreakReason::Gradient, "clamp() between tensors");
  if (numbers && is_float(dtype))
    composite(tracer, CompositeRule::Clamp, {before}, value, {{"low", least}, {"high", most}, {"open", false}});
  return torch_elementwise(tracer, value, tensors_among(operands));
}

V given(Tracer& tracer, const Parameters& p, const char* name) {
  (void)tracer;
  return p.absent(name) ? nullptr : p[name];
}

}  // namespace

V torch_clamp(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "clamp", arguments, "input, min, max, *, out");
  p.unsupported("out");
  return clamp_row(tracer, torch_operand(tracer, p.required("input")), given(tracer, p, "min"),
                   given(tracer, p, "max"));
}

V torch_clamp_min(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "clamp_min", arguments, "input, min, *, out");
  p.unsupported("out");
  return clamp_row(tracer, torch_operand(tracer, p.required("input")), p.required("min"), nullptr);
}

V torch_clamp_max(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "clamp_max", arguments, "input, max, *, out");
  p.unsupported("out");
  return clamp_row(tracer, torch_operand(tracer, p.required("input")), nullptr, p.required("max"));
}

namespace {

V select(Tracer& tracer, const TorchOperand& condition, const TorchOperand& a, const TorchOperand& b) {
  if (!condition.array || condition.dtype != DType::Bool)
    unsupported("where() on a condition that is not a bool tensor");
  const TorchOperand operands[] = {a, b};
  const DType dtype = torch_result_type(operands);
  ValueId value = pointwise(
      tracer, Op::where, {tracer.read(*condition.array), torch_value(tracer, a, dtype), torch_value(tracer, b, dtype)});
  TorchOperand mask = condition;
  mask.dtype = dtype;  // it is not promoted
  return torch_elementwise(tracer, value, {mask, a, b});
}

}  // namespace

V torch_where(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "where", arguments, "condition, input, other, *, out");
  p.unsupported("out");
  if (!p["input"] && !p["other"])
    return torch_nonzero(tracer, {arguments.positional, {{"as_tuple", tracer.boolean(true)}}});
  return select(tracer, torch_operand(tracer, p.required("condition")), torch_operand(tracer, p.required("input")),
                torch_operand(tracer, p.required("other")));
}

V torch_tensor_where(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "where", arguments, "input, condition, other");
  return select(tracer, torch_operand(tracer, p.required("condition")), torch_operand(tracer, p.required("input")),
                torch_operand(tracer, p.required("other")));
}

V torch_masked_fill(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "masked_fill", arguments, "input, mask, value");
  TorchOperand x = torch_operand(tracer, p.required("input")), mask = torch_operand(tracer, p.required("mask")),
               value = torch_operand(tracer, p.required("value"));
  if (!x.array || !mask.array || mask.dtype != DType::Bool) refuse("masked_fill() on a mask that is not a bool tensor");
  if (value.array && !value.array->shape.empty()) refuse("masked_fill() with a value that is not a scalar");
  refuse_gradient_into(tracer, x.dtype, value);
  if (!torch_can_cast(value.dtype, x.dtype)) unsupported("masked_fill() with a value of another kind");
  ValueId result = pointwise(tracer, Op::where,
                             {tracer.read(*mask.array), torch_value(tracer, value, x.dtype), tracer.read(*x.array)});
  return torch_fresh(tracer, result);
}

V torch_lerp(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "lerp", arguments, "input, end, weight, *, out");
  p.unsupported("out");
  TorchOperands operands{torch_operand(tracer, p.required("input")), torch_operand(tracer, p.required("end"))};
  TorchOperand weight = torch_operand(tracer, p.required("weight"));
  if (!operands[0].array || !operands[1].array || operands[0].dtype != operands[1].dtype ||
      !is_float(operands[0].dtype))
    refuse("lerp() of tensors of different dtypes");
  if (weight.array && weight.dtype != operands[0].dtype) refuse("lerp() with a weight of another dtype");
  const DType dtype = operands[0].dtype, inner = compute_dtype(dtype);
  ValueId a = torch_value(tracer, operands[0], inner), b = torch_value(tracer, operands[1], inner),
          w = torch_value(tracer, weight, inner);
  ValueId span = pointwise(tracer, Op::sub, {b, a});
  // From the nearer end, so that weight 1 gives `end` exactly.
  ValueId half = constant(tracer, inner, 0.5), unit = constant(tracer, inner, 1.0);
  ValueId near = multiply_add(tracer, w, span, a);
  ValueId far =
      is_half(dtype)
          ? pointwise(tracer, Op::sub, {b, pointwise(tracer, Op::mul, {span, pointwise(tracer, Op::sub, {unit, w})})})
          : multiply_add(tracer, pointwise(tracer, Op::sub, {w, unit}), span, b);
  ValueId is_near = pointwise(tracer, Op::lt, {emit(tracer, Op::abs, {w}), half});
  ValueId result = cast(tracer, pointwise(tracer, Op::where, {is_near, near, far}), dtype);
  if (weight.array) operands.push_back(weight);
  return torch_elementwise(tracer, result, operands);
}

namespace {

V add_product(Tracer& tracer, const char* function, Op op, const Arguments& arguments) {
  Parameters p(tracer, function, arguments, "input, tensor1, tensor2, *, value, out");
  p.unsupported("out");
  TorchOperands operands;
  for (const char* name : {"input", "tensor1", "tensor2"}) {
    operands.push_back(torch_operand(tracer, p.required(name)));
    if (!operands.back().array) refuse("a number where torch takes a tensor");
  }
  const DType dtype = torch_result_type(operands), inner = compute_dtype(dtype);
  if (!is_float(dtype)) unsupported(std::string(function) + "() of integers");
  ValueId x = cast(tracer, torch_value(tracer, operands[0], dtype), inner),
          a = cast(tracer, torch_value(tracer, operands[1], dtype), inner),
          b = cast(tracer, torch_value(tracer, operands[2], dtype), inner);
  double factor = 1;
  const TorchOperand scale = p["value"] ? number_operand(tracer, p["value"]) : TorchOperand();
  if (p["value"] && !number_is(tracer, scale, factor)) factor = 0;
  if (factor != 1) a = pointwise(tracer, Op::mul, {a, torch_value(tracer, scale, inner)});
  ValueId result = op == Op::mul && !is_half(dtype) ? multiply_add(tracer, a, b, x)
                                                    : pointwise(tracer, Op::add, {x, pointwise(tracer, op, {a, b})});
  return torch_elementwise(tracer, cast(tracer, result, dtype), operands);
}

}  // namespace

V torch_addcmul(Tracer& tracer, const Arguments& arguments) {
  return add_product(tracer, "addcmul", Op::mul, arguments);
}
V torch_addcdiv(Tracer& tracer, const Arguments& arguments) {
  return add_product(tracer, "addcdiv", Op::div, arguments);
}

// ---- writes

V torch_copy_(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "copy_", arguments, "input, src, non_blocking");
  Array target = torch_tensor(tracer, p.required("input")), source = torch_tensor(tracer, p.required("src"));
  refuse_overlap(target, source);
  p.flag("non_blocking", false);
  ValueId value = torch_cast(tracer, tracer.read(*source), target->dtype);
  tracer.write(*target, broadcast_to(tracer, value, target->shape));
  return p["input"];
}

V torch_fill_(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "fill_", arguments, "input, value");
  Array target = torch_tensor(tracer, p.required("input"));
  TorchOperand value = torch_operand(tracer, p.required("value"));
  if (value.array && !value.array->shape.empty()) refuse("fill_() with a value that is not a scalar");
  refuse_gradient_into(tracer, target->dtype, value);
  if (!value.array && value.dtype == DType::F64 && !is_float(target->dtype))
    unsupported("fill_() of integers with a float");
  tracer.write(*target, broadcast_to(tracer, torch_value(tracer, value, target->dtype), target->shape));
  return p["input"];
}

V torch_zero_(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "zero_", arguments, "input");
  Array target = torch_tensor(tracer, p.required("input"));
  tracer.write(*target, full(tracer, target->dtype, scalar_of(target->dtype, 0.0), target->shape));
  return p["input"];
}

}  // namespace fj
