// One element at a time: the meaning of the pointwise rows of ops.def.
#include <algorithm>
#include <bit>
#include <limits>

#include "graph_ir/evaluate/elements.h"
#include "graph_ir/evaluate/evaluate.h"
#include "graph_ir/ops.h"
#include "runtime/base/error.h"

namespace fj::detail {
namespace {

template <class T>
inline constexpr bool is_real_float = std::is_floating_point_v<T>;

[[noreturn]] void unsupported(Op op, const char* kind) {
  fail_check(__FILE__, __LINE__, "accepts(op, dtype)", std::string(name(op)) + " of " + kind + " has no meaning");
}

// Integer arithmetic modulo 2^64 and then the type's width: two's complement without undefined overflow.
template <class T>
std::uint64_t wide(T value) {
  return std::uint64_t(value);
}

double rounded_to_even(double x) { return std::nearbyint(x); }

double real_function(Op op, double x) {
  switch (op) {
    case Op::sqrt: return std::sqrt(x);
    case Op::rsqrt: return 1 / std::sqrt(x);
    case Op::exp: return std::exp(x);
    case Op::exp2: return std::exp2(x);
    case Op::expm1: return std::expm1(x);
    case Op::log: return std::log(x);
    case Op::log2: return std::log2(x);
    case Op::log10: return std::log10(x);
    case Op::log1p: return std::log1p(x);
    case Op::sin: return std::sin(x);
    case Op::cos: return std::cos(x);
    case Op::tan: return std::tan(x);
    case Op::asin: return std::asin(x);
    case Op::acos: return std::acos(x);
    case Op::atan: return std::atan(x);
    case Op::sinh: return std::sinh(x);
    case Op::cosh: return std::cosh(x);
    case Op::tanh: return std::tanh(x);
    case Op::asinh: return std::asinh(x);
    case Op::acosh: return std::acosh(x);
    case Op::atanh: return std::atanh(x);
    case Op::erf: return std::erf(x);
    case Op::floor: return std::floor(x);
    case Op::ceil: return std::ceil(x);
    case Op::round: return rounded_to_even(x);
    case Op::trunc: return std::trunc(x);
    default: unsupported(op, "a float");
  }
}

template <class T>
T unary(Op op, T x) {
  if constexpr (is_complex_type<T>) {
    switch (op) {
      case Op::neg: return -x;
      case Op::sqrt: return std::sqrt(x);
      case Op::exp: return std::exp(x);
      case Op::log: return std::log(x);
      case Op::log10: return std::log10(x);
      case Op::sin: return std::sin(x);
      case Op::cos: return std::cos(x);
      case Op::tan: return std::tan(x);
      case Op::asin: return std::asin(x);
      case Op::acos: return std::acos(x);
      case Op::atan: return std::atan(x);
      case Op::sinh: return std::sinh(x);
      case Op::cosh: return std::cosh(x);
      case Op::tanh: return std::tanh(x);
      case Op::asinh: return std::asinh(x);
      case Op::acosh: return std::acosh(x);
      case Op::atanh: return std::atanh(x);
      default: unsupported(op, "a complex number");
    }
  } else if constexpr (is_real_float<T>) {
    switch (op) {
      case Op::neg: return -x;
      case Op::abs: return std::fabs(x);
      case Op::sign: return std::isnan(x) ? x : std::isgreater(x, T(0)) ? T(1) : std::isless(x, T(0)) ? T(-1) : T(0);
      default: return T(real_function(op, double(x)));
    }
  } else {
    switch (op) {
      case Op::neg: return T(0 - wide(x));
      case Op::abs: return x < T(0) ? T(0 - wide(x)) : x;
      case Op::sign: return x < T(0) ? T(-1) : T(x != T(0));
      case Op::popcount:
        if constexpr (std::is_same_v<T, bool>) return x;
        else return T(std::popcount(std::make_unsigned_t<T>(x)));
      case Op::bit_not:
        if constexpr (std::is_same_v<T, bool>) return !x;
        else return T(~wide(x));
      case Op::floor: case Op::ceil: case Op::round: case Op::trunc: return x;
      default: unsupported(op, "an integer");
    }
  }
}

template <class T>
bool predicate(Op op, T x) {
  if (op == Op::logical_not) return x == T(0);
  if constexpr (is_complex_type<T>) {
    switch (op) {
      case Op::is_nan: return std::isnan(x.real()) || std::isnan(x.imag());
      case Op::is_inf: return std::isinf(x.real()) || std::isinf(x.imag());
      case Op::is_finite: return std::isfinite(x.real()) && std::isfinite(x.imag());
      default: unsupported(op, "a complex number");
    }
  } else if constexpr (is_real_float<T>) {
    switch (op) {
      case Op::is_nan: return std::isnan(x);
      case Op::is_inf: return std::isinf(x);
      case Op::is_finite: return std::isfinite(x);
      case Op::sign_bit: return std::signbit(x);
      default: unsupported(op, "a float");
    }
  } else {
    switch (op) {
      case Op::is_nan: case Op::is_inf: return false;
      case Op::is_finite: return true;
      case Op::sign_bit: return x < T(0);
      default: unsupported(op, "an integer");
    }
  }
}

template <class T>
bool comparison(Op op, T a, T b) {
  if (op == Op::eq) return a == b;
  if (op == Op::ne) return a != b;
  if constexpr (is_complex_type<T>) {
    unsupported(op, "complex numbers");
  } else if constexpr (is_real_float<T>) {
    // The quiet forms: comparing NaN is not an invalid operation in either library.
    switch (op) {
      case Op::lt: return std::isless(a, b);
      case Op::le: return std::islessequal(a, b);
      case Op::gt: return std::isgreater(a, b);
      case Op::ge: return std::isgreaterequal(a, b);
      default: unsupported(op, "floats");
    }
  } else {
    switch (op) {
      case Op::lt: return a < b;
      case Op::le: return a <= b;
      case Op::gt: return a > b;
      case Op::ge: return a >= b;
      default: unsupported(op, "integers");
    }
  }
}

template <class T>
T float_mod(T a, T b) {
  const T rest = std::fmod(a, b);
  if (b == 0 || std::isnan(rest)) return rest;
  if (rest == 0) return std::copysign(T(0), b);
  return (b < 0) != (rest < 0) ? rest + b : rest;
}

// Python's and both libraries' algorithm: the quotient is consistent with `mod`, not floor(a / b).
template <class T>
T float_floor_div(T a, T b) {
  if (b == 0) return a / b;
  const T rest = std::fmod(a, b);
  T quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(T(0), a / b);
  T whole = std::floor(quotient);
  if (quotient - whole > T(0.5)) whole += 1;
  return whole;
}

template <class T>
T integer_power(T base, T exponent) {
  if constexpr (std::is_signed_v<T>)
    if (exponent < 0) return base == 1 ? T(1) : base == T(-1) ? T(wide(exponent) & 1 ? -1 : 1) : T(0);
  std::uint64_t result = 1, factor = wide(base);
  for (std::uint64_t rest = wide(exponent); rest; rest >>= 1) {
    if (rest & 1) result *= factor;
    factor *= factor;
  }
  return T(result);
}

template <class T>
T integer_division(Op op, T a, T b, std::uint32_t& status) {
  if (b == T(0)) {
    status |= kIntegerDivisionByZero;
    return T(0);
  }
  if constexpr (std::is_signed_v<T>) {
    const bool is_quotient = op == Op::floor_div || op == Op::trunc_div;
    if (op == Op::floor_div && b == T(-1) && a == std::numeric_limits<T>::min()) status |= kFloatOverflow;
    if (b == T(-1)) return is_quotient ? T(0 - wide(a)) : T(0);  // the smallest value / -1 wraps
    const T quotient = T(a / b), rest = T(a % b);
    const bool adjust = rest != 0 && (rest < 0) != (b < 0);
    switch (op) {
      case Op::floor_div: return T(quotient - adjust);
      case Op::mod: return adjust ? T(rest + b) : rest;
      case Op::trunc_div: return quotient;
      default: return rest;
    }
  } else {
    return op == Op::floor_div || op == Op::trunc_div ? T(a / b) : T(a % b);
  }
}

template <class T>
T complex_division(T a, T b) {
  // Smith's method, as in NumPy and torch: no overflow of the squared magnitude.
  using Part = typename T::value_type;
  const Part c = b.real(), d = b.imag();
  if (std::fabs(c) >= std::fabs(d)) {
    if (c == 0 && d == 0) return T(a.real() / std::fabs(c), a.imag() / std::fabs(c));
    const Part ratio = d / c, scale = 1 / (c + d * ratio);
    return T((a.real() + a.imag() * ratio) * scale, (a.imag() - a.real() * ratio) * scale);
  }
  const Part ratio = c / d, scale = 1 / (c * ratio + d);
  return T((a.real() * ratio + a.imag()) * scale, (a.imag() * ratio - a.real()) * scale);
}

template <class T>
T binary(Op op, T a, T b, std::uint32_t& status) {
  if constexpr (is_complex_type<T>) {
    switch (op) {
      case Op::add: return a + b;
      case Op::sub: return a - b;
      case Op::mul:
        // Not operator*, which repairs infinities.
        return T(a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real());
      case Op::div: return complex_division(a, b);
      case Op::pow: return std::pow(a, b);
      default: unsupported(op, "complex numbers");
    }
  } else if constexpr (is_real_float<T>) {
    switch (op) {
      case Op::add: return a + b;
      case Op::sub: return a - b;
      case Op::mul: return a * b;
      case Op::div: return a / b;
      case Op::floor_div: return float_floor_div(a, b);
      case Op::mod: return float_mod(a, b);
      case Op::fmod: return std::fmod(a, b);
      case Op::pow: return T(std::pow(double(a), double(b)));
      case Op::atan2: return T(std::atan2(double(a), double(b)));
      case Op::hypot: return T(std::hypot(double(a), double(b)));
      case Op::copysign: return std::copysign(a, b);
      case Op::maximum: return std::isnan(a) || std::isgreaterequal(a, b) ? a : b;
      case Op::minimum: return std::isnan(a) || std::islessequal(a, b) ? a : b;
      case Op::fmax: return std::isnan(b) || std::isgreaterequal(a, b) ? a : b;
      case Op::fmin: return std::isnan(b) || std::islessequal(a, b) ? a : b;
      default: unsupported(op, "floats");
    }
  } else {
    constexpr std::uint64_t bits = sizeof(T) * 8;
    switch (op) {
      case Op::add: return T(wide(a) + wide(b));
      case Op::sub: return T(wide(a) - wide(b));
      case Op::mul: return T(wide(a) * wide(b));
      case Op::floor_div: case Op::mod: case Op::trunc_div: case Op::fmod: return integer_division(op, a, b, status);
      case Op::pow: return integer_power(a, b);
      case Op::maximum: case Op::fmax: return std::max(a, b);
      case Op::minimum: case Op::fmin: return std::min(a, b);
      case Op::bit_and: return T(a & b);
      case Op::bit_or: return T(a | b);
      case Op::bit_xor: return T(a ^ b);
      case Op::shift_left: return wide(b) < bits ? T(wide(a) << wide(b)) : T(0);
      case Op::shift_right: return wide(b) < bits ? T(a >> wide(b)) : T(a < T(0) ? -1 : 0);
      default: unsupported(op, "integers");
    }
  }
}

}  // namespace

std::uint32_t evaluate_pointwise(const Node& node, std::span<const DenseArray* const> operands, DenseArray& result) {
  const std::int64_t count = result.element_count();
  std::uint32_t status = kOk;

  if (node.op == Op::where) {
    const std::size_t bytes = size_in_bytes(result.dtype);
    for (std::int64_t i = 0; i < count; ++i) {
      const DenseArray& chosen = *operands[Element<DType::Bool>::load(operands[0]->element(i)) ? 1 : 2];
      std::memcpy(result.element(i), chosen.element(i), bytes);
    }
    return status;
  }

  if (node.op == Op::fma) {
    auto fused = [&]<class T>(T) {
      auto element = [&](int operand, std::int64_t i) {
        return *reinterpret_cast<const T*>(operands[std::size_t(operand)]->element(i));
      };
      for (std::int64_t i = 0; i < count; ++i)
        *reinterpret_cast<T*>(result.element(i)) = std::fma(element(0, i), element(1, i), element(2, i));
    };
    if (result.dtype == DType::F32)
      fused(float());
    else
      fused(double());
    return status;
  }

  with_dtype(operands[0]->dtype, [&]<DType dtype>() {
    using From = Element<dtype>;
    using Compute = typename From::Compute;
    auto a = [&](std::int64_t i) { return From::load(operands[0]->element(i)); };
    auto b = [&](std::int64_t i) { return From::load(operands[1]->element(i)); };
    if (node.op == Op::cast) {
      with_dtype(result.dtype, [&]<DType to>() {
        using To = Element<to>;
        // A half type takes the double as it is: one rounding. Integers reach it through float, as in both libraries.
        constexpr bool narrows = is_half(to) && std::is_same_v<Compute, double>;
        for (std::int64_t i = 0; i < count; ++i) {
          if constexpr (narrows)
            To::store(result.element(i), a(i));
          else
            To::store(result.element(i), convert<typename To::Compute>(a(i)));
        }
      });
    } else if (node.op == Op::abs && is_complex_type<Compute>) {
      if constexpr (is_complex_type<Compute>)
        for (std::int64_t i = 0; i < count; ++i)
          NativeElement<typename Compute::value_type>::store(result.element(i), std::hypot(a(i).real(), a(i).imag()));
    } else if (result.dtype == DType::Bool && row(node.op).type_rule == "Bool") {
      for (std::int64_t i = 0; i < count; ++i)
        Element<DType::Bool>::store(result.element(i),
                                    operands.size() == 1 ? predicate(node.op, a(i)) : comparison(node.op, a(i), b(i)));
    } else if (operands.size() == 1) {
      for (std::int64_t i = 0; i < count; ++i) From::store(result.element(i), unary(node.op, a(i)));
    } else {
      for (std::int64_t i = 0; i < count; ++i) From::store(result.element(i), binary(node.op, a(i), b(i), status));
    }
  });
  return status;
}

}  // namespace fj::detail
