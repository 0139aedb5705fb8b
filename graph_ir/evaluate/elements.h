/// How one element of each dtype is read, computed with and written: the plain C++ meaning of dtype.def.
///
/// Half types compute in float and are rounded once per operation, as both array libraries do.
#pragma once

#include <bit>
#include <cfenv>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "runtime/base/dtype.h"

namespace fj {

/// A 16-bit float of `ExponentBits` and `FractionBits`; rounding is to nearest, ties to even.
template <int ExponentBits, int FractionBits>
struct SmallFloat {
  static constexpr int kBias = (1 << (ExponentBits - 1)) - 1;
  static constexpr std::uint16_t kInfinity = std::uint16_t(((1 << ExponentBits) - 1) << FractionBits);

  static float decode(std::uint16_t bits) {
    const int exponent = (bits & kInfinity) >> FractionBits;
    const int fraction = bits & ((1 << FractionBits) - 1);
    float magnitude;
    if (exponent == (1 << ExponentBits) - 1)
      magnitude = fraction ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
    else if (exponent == 0)
      magnitude = std::ldexp(float(fraction), 1 - kBias - FractionBits);
    else
      magnitude = std::ldexp(float(fraction + (1 << FractionBits)), exponent - kBias - FractionBits);
    return bits & 0x8000 ? -magnitude : magnitude;
  }

  static std::uint16_t encode(double value) {
    const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    if (std::isnan(value)) return std::uint16_t(sign | kInfinity | (1 << (FractionBits - 1)));
    const double magnitude = std::fabs(value);
    if (std::isinf(magnitude)) return std::uint16_t(sign | kInfinity);
    if (magnitude == 0) return sign;
    int exponent;
    std::frexp(magnitude, &exponent);  // magnitude in [2^(exponent-1), 2^exponent)
    exponent = exponent - 1 < 1 - kBias ? 1 - kBias : exponent - 1;
    // In units of the last place this is at most 2^(FractionBits+1), so a double holds it exactly.
    const double units = std::nearbyint(std::ldexp(magnitude, FractionBits - exponent));
    if (units != std::ldexp(magnitude, FractionBits - exponent) && exponent == 1 - kBias && units < (1 << FractionBits))
      std::feraiseexcept(FE_UNDERFLOW);
    // A carry out of the fraction moves into the exponent by itself, up to infinity.
    const std::int64_t bits = std::int64_t(units) + (std::int64_t(exponent + kBias - 1) << FractionBits);
    if (bits >= kInfinity) {
      std::feraiseexcept(FE_OVERFLOW);
      return std::uint16_t(sign | kInfinity);
    }
    return std::uint16_t(sign | bits);
  }
};
using Half = SmallFloat<5, 10>;
using BFloat = SmallFloat<8, 7>;

/// Element<DType::F16>::Compute is the type its arithmetic is done in.
template <class T>
struct NativeElement {
  using Compute = T;
  static T load(const std::byte* place) {
    T value;
    std::memcpy(&value, place, sizeof value);
    return value;
  }
  static void store(std::byte* place, T value) { std::memcpy(place, &value, sizeof value); }
};

template <class Format>
struct SmallFloatElement {
  using Compute = float;
  static float load(const std::byte* place) { return Format::decode(NativeElement<std::uint16_t>::load(place)); }
  static void store(std::byte* place, double value) {
    NativeElement<std::uint16_t>::store(place, Format::encode(value));
  }
};

template <DType dtype>
struct Element;
template <>
struct Element<DType::Bool> {
  using Compute = bool;
  static bool load(const std::byte* place) { return *place != std::byte{0}; }
  static void store(std::byte* place, bool value) { *place = std::byte(value); }
};
template <> struct Element<DType::U8> : NativeElement<std::uint8_t> {};
template <> struct Element<DType::U16> : NativeElement<std::uint16_t> {};
template <> struct Element<DType::U32> : NativeElement<std::uint32_t> {};
template <> struct Element<DType::U64> : NativeElement<std::uint64_t> {};
template <> struct Element<DType::I8> : NativeElement<std::int8_t> {};
template <> struct Element<DType::I16> : NativeElement<std::int16_t> {};
template <> struct Element<DType::I32> : NativeElement<std::int32_t> {};
template <> struct Element<DType::I64> : NativeElement<std::int64_t> {};
template <> struct Element<DType::F16> : SmallFloatElement<Half> {};
template <> struct Element<DType::BF16> : SmallFloatElement<BFloat> {};
template <> struct Element<DType::F32> : NativeElement<float> {};
template <> struct Element<DType::F64> : NativeElement<double> {};
template <> struct Element<DType::C64> : NativeElement<std::complex<float>> {};
template <> struct Element<DType::C128> : NativeElement<std::complex<double>> {};

template <class T>
inline constexpr bool is_complex_type = false;
template <class T>
inline constexpr bool is_complex_type<std::complex<T>> = true;

/// Calls `function.template operator()<DType>()` for the dtype found at run time.
template <class Function>
decltype(auto) with_dtype(DType dtype, Function&& function) {
  switch (dtype) {
#define FJ_DTYPE(name, text, bytes, category) \
  case DType::name:                           \
    return function.template operator()<DType::name>();
#include "runtime/base/dtype.def"
  }
  __builtin_unreachable();
}

/// Whether what a float out of an integer's range becomes depends on whether it is a double.
#if defined(__aarch64__)
inline constexpr bool converts_by_width = true;
#else
inline constexpr bool converts_by_width = false;
#endif

/// The integer at a float: truncated, and out of range what the processor's instructions give, as in NumPy's loops over
/// whole vectors; then the low bits. x86 converts to 32 bits, or to 64, and has the smallest number for all that is out of
/// range. AArch64 converts doubles to 64 bits, other floats to 32 (uint32 without a sign), and has the nearest number, 0 for NaN.
template <class To, class From>
To truncated(From value) {
  const double v = double(value);
#if defined(__aarch64__)
  constexpr bool whole = sizeof(To) == 8 || (std::is_same_v<To, std::uint32_t> && sizeof(From) < 8);
  using Wide = std::conditional_t<whole, To, std::conditional_t<sizeof(From) == 8, std::int64_t, std::int32_t>>;
  using Limits = std::numeric_limits<Wide>;
  const double above = std::ldexp(1.0, Limits::digits);
  if (std::trunc(v) >= double(Limits::min()) && v < above) return To(Wide(v));
  std::feraiseexcept(FE_INVALID);
  return std::isnan(v) ? To(0) : To(v < 0 ? Limits::min() : Limits::max());
#else
  auto truncated_to = [](double v, auto width) {
    using Wide = decltype(width);
    constexpr double limit = sizeof(Wide) == 4 ? 0x1p31 : 0x1p63;
    if (!(v > -limit - (sizeof(Wide) == 4 ? 1 : 0) && v < limit) && v != -limit) {
      std::feraiseexcept(FE_INVALID);
      return std::numeric_limits<Wide>::min();
    }
    return Wide(v);
  };
  if constexpr (std::is_same_v<To, std::uint64_t>)
    return v >= 0x1p63 ? (std::uint64_t(truncated_to(v - 0x1p63, std::int64_t{})) ^ (std::uint64_t(1) << 63))
                       : std::uint64_t(truncated_to(v, std::int64_t{}));
  else if constexpr (sizeof(To) == 8 || std::is_same_v<To, std::uint32_t>)
    return To(truncated_to(v, std::int64_t{}));
  else
    return To(truncated_to(v, std::int32_t{}));
#endif
}

/// The conversion of one element: floats to integers by `truncated`, integers wrap, anything to bool is `!= 0`.
template <class To, class From>
To convert(From value) {
  if constexpr (is_complex_type<To>) {
    using Part = typename To::value_type;
    if constexpr (is_complex_type<From>)
      return To(Part(value.real()), Part(value.imag()));
    else
      return To(convert<Part>(value), Part(0));
  } else if constexpr (is_complex_type<From>) {
    if constexpr (std::is_same_v<To, bool>)
      return value.real() != 0 || value.imag() != 0;
    else
      return convert<To>(value.real());
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return truncated<To>(value);
  } else {
    return To(value);
  }
}

}  // namespace fj
