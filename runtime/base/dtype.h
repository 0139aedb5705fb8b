/// Element types, from dtype.def.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace fj {

enum class DType : std::uint8_t {
#define FJ_DTYPE(name, text, bytes, category) name,
#include "runtime/base/dtype.def"
};

enum class DTypeCategory : std::uint8_t { Bool, Unsigned, Signed, Float, Complex };

inline constexpr int kDTypeCount = 0
#define FJ_DTYPE(name, text, bytes, category) +1
#include "runtime/base/dtype.def"
    ;

namespace detail {
struct DTypeRow {
  std::string_view text;
  std::size_t bytes;
  DTypeCategory category;
};
inline constexpr DTypeRow dtype_rows[] = {
#define FJ_DTYPE(name, text, bytes, category) {text, bytes, DTypeCategory::category},
#include "runtime/base/dtype.def"
};
}  // namespace detail

/// The name in the graph's text form: `f32`.
constexpr std::string_view name(DType dtype) { return detail::dtype_rows[int(dtype)].text; }
constexpr std::size_t size_in_bytes(DType dtype) { return detail::dtype_rows[int(dtype)].bytes; }
constexpr DTypeCategory category(DType dtype) { return detail::dtype_rows[int(dtype)].category; }

constexpr bool is_float(DType d) { return category(d) == DTypeCategory::Float; }
constexpr bool is_complex(DType d) { return category(d) == DTypeCategory::Complex; }
constexpr bool is_signed_integer(DType d) { return category(d) == DTypeCategory::Signed; }
constexpr bool is_unsigned_integer(DType d) { return category(d) == DTypeCategory::Unsigned; }
constexpr bool is_integer(DType d) { return is_signed_integer(d) || is_unsigned_integer(d); }
constexpr bool is_half(DType d) { return d == DType::F16 || d == DType::BF16; }
/// What the libraries compute a type's operations in: halves in float.
constexpr DType compute_dtype(DType d) { return is_half(d) ? DType::F32 : d; }

constexpr std::optional<DType> dtype_from_name(std::string_view text) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (detail::dtype_rows[i].text == text) return DType(i);
  return std::nullopt;
}

}  // namespace fj
