// Rows whose elements lie together are looked at as vectors, the rest one element at a time.
#include "runtime/special_values.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

namespace fj {
namespace {

/// The bits of a half type, of which those of an infinity are `Infinity`.
template <std::uint16_t Infinity>
struct Half {
  std::uint16_t bits;
};
using F16 = Half<0x7c00>;
using BF16 = Half<0x7f80>;

template <class T>
bool is_infinity(T value) {
  return std::fabs(value) == std::numeric_limits<T>::infinity();
}
template <std::uint16_t Infinity>
bool is_infinity(Half<Infinity> value) {
  return (value.bits & 0x7fff) == Infinity;
}
template <class T>
bool is_nan(T value) {
  return value != value;
}
template <std::uint16_t Infinity>
bool is_nan(Half<Infinity> value) {
  return (value.bits & 0x7fff) > Infinity;
}

template <class T>
SpecialValues find(const T* values, std::int64_t count, std::int64_t stride) {
  // As wide as an element, so that a vector of answers is as wide as one of elements.
  using Word = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;
  Word infinity = 0, nan = 0;
  if (stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) {
      infinity |= Word(is_infinity(values[i]));
      nan |= Word(is_nan(values[i]));
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      infinity |= Word(is_infinity(values[i * stride]));
      nan |= Word(is_nan(values[i * stride]));
    }
  }
  return {infinity != 0, nan != 0};
}

template <class T>
SpecialValues find(const T* values, std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides) {
  if (sizes.empty()) return find(values, 1, 1);
  // The axis whose elements lie together is the inner one.
  std::size_t inner = sizes.size() - 1;
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (strides[d] == 1 && sizes[d] > 1) inner = d;
  SpecialValues found;
  std::int64_t rows = 1;
  for (std::size_t d = 0; d < sizes.size(); ++d) rows *= d == inner ? 1 : sizes[d];
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t rest = row, at = 0;
    for (std::size_t d = sizes.size(); d-- > 0;) {
      if (d == inner) continue;
      at += rest % sizes[d] * strides[d];
      rest /= sizes[d];
    }
    const SpecialValues here = find(values + at, sizes[inner], strides[inner]);
    found.infinity = found.infinity || here.infinity;
    found.nan = found.nan || here.nan;
    if (found.infinity) break;
  }
  return found;
}

}  // namespace

template <class T>
SpecialValues find_special_values(const T* values, std::int64_t count) {
  return find(values, count, 1);
}
template SpecialValues find_special_values(const float*, std::int64_t);
template SpecialValues find_special_values(const double*, std::int64_t);

SpecialValues find_special_values(DType dtype, const char* data, std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides) {
  const auto of = [&]<class T>(T) { return find(reinterpret_cast<const T*>(data), sizes, strides); };
  const auto parts = [&]<class T>(T) {
    std::vector<std::int64_t> all(sizes.begin(), sizes.end()), steps;
    for (std::int64_t stride : strides) steps.push_back(2 * stride);
    all.push_back(2);
    steps.push_back(1);
    return find(reinterpret_cast<const T*>(data), all, steps);
  };
  switch (dtype) {
    case DType::F16: return of(F16{});
    case DType::BF16: return of(BF16{});
    case DType::F32: return of(float());
    case DType::F64: return of(double());
    case DType::C64: return parts(float());
    case DType::C128: return parts(double());
    default: return {};
  }
}

}  // namespace fj
