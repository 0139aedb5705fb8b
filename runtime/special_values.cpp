// Numbers are looked at as bits, by additions whose highest bit answers: rows whose elements lie together become
// vectors in any instruction set.
#include "runtime/special_values.h"

#include <algorithm>
#include <vector>

// 100,000 doubles take 22 us in vectors of 16 bytes, 12 us in those of 32: as long as a sum.
// The thread sanitizer is not ready yet when the loader asks which one the processor has.
#if defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__)
#define FJ_FOR_EACH_VECTOR_WIDTH __attribute__((target_clones("avx2", "default")))
#else
#define FJ_FOR_EACH_VECTOR_WIDTH
#endif

namespace fj {
namespace {

/// Elements of as many bits as Word, of which Infinity are those of infinity.
template <class Word, Word Infinity>
struct Elements {
  static constexpr Word kHighest = Word(Word(1) << (8 * sizeof(Word) - 1));
  static Word magnitude(Word value) { return value & Word(~kHighest); }
  /// The highest bit of these says so.
  static Word not_finite(Word value) { return Word(magnitude(value) + (kHighest - Infinity)); }
  static Word not_a_number(Word value) { return Word(magnitude(value) + (kHighest - Infinity - 1)); }
};

template <class Word, Word Infinity>
FJ_FOR_EACH_VECTOR_WIDTH SpecialValues find(const Word* values, std::int64_t count, std::int64_t stride) {
  using E = Elements<Word, Infinity>;
  constexpr std::int64_t kBlock = 512;
  Word infinity = 0, nan = 0;
  for (std::int64_t first = 0; first < count; first += kBlock) {
    const std::int64_t last = std::min(first + kBlock, count);
    // Most blocks have none.
    Word special = 0;
    if (stride == 1) {
      for (std::int64_t i = first; i < last; ++i) special |= E::not_finite(values[i]);
    } else {
      for (std::int64_t i = first; i < last; ++i) special |= E::not_finite(values[i * stride]);
    }
    if (!(special & E::kHighest)) continue;
    for (std::int64_t i = first; i < last; ++i) {
      const Word value = values[i * stride], above = E::not_a_number(value);
      infinity |= Word(E::not_finite(value) & ~above);
      nan |= above;
    }
  }
  return {(infinity & E::kHighest) != 0, (nan & E::kHighest) != 0};
}

template <class Word, Word Infinity>
SpecialValues find(const char* data, std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides) {
  const auto* values = reinterpret_cast<const Word*>(data);
  if (sizes.empty()) return find<Word, Infinity>(values, 1, 1);
  // The axis whose elements lie together is the inner one.
  std::size_t inner = sizes.size() - 1;
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (strides[d] == 1 && sizes[d] > 1) inner = d;
  SpecialValues found;
  std::int64_t rows = 1;
  for (std::size_t d = 0; d < sizes.size(); ++d) rows *= d == inner ? 1 : sizes[d];
  for (std::int64_t row = 0; row < rows && !found.infinity; ++row) {
    std::int64_t rest = row, at = 0;
    for (std::size_t d = sizes.size(); d-- > 0;) {
      if (d == inner) continue;
      at += rest % sizes[d] * strides[d];
      rest /= sizes[d];
    }
    const SpecialValues here = find<Word, Infinity>(values + at, sizes[inner], strides[inner]);
    found.infinity = here.infinity;
    found.nan = found.nan || here.nan;
  }
  return found;
}

constexpr std::uint32_t kFloatInfinity = 0x7f800000;
constexpr std::uint64_t kDoubleInfinity = 0x7ff0000000000000;

}  // namespace

SpecialValues find_special_values(const float* values, std::int64_t count) {
  return find<std::uint32_t, kFloatInfinity>(reinterpret_cast<const std::uint32_t*>(values), count, 1);
}
SpecialValues find_special_values(const double* values, std::int64_t count) {
  return find<std::uint64_t, kDoubleInfinity>(reinterpret_cast<const std::uint64_t*>(values), count, 1);
}

SpecialValues find_special_values(DType dtype, const char* data, std::span<const std::int64_t> sizes,
                                  std::span<const std::int64_t> strides) {
  std::vector<std::int64_t> all, steps;
  if (is_complex(dtype)) {
    all.assign(sizes.begin(), sizes.end());
    for (std::int64_t stride : strides) steps.push_back(2 * stride);
    all.push_back(2);
    steps.push_back(1);
  }
  switch (dtype) {
    case DType::F16: return find<std::uint16_t, 0x7c00>(data, sizes, strides);
    case DType::BF16: return find<std::uint16_t, 0x7f80>(data, sizes, strides);
    case DType::F32: return find<std::uint32_t, kFloatInfinity>(data, sizes, strides);
    case DType::F64: return find<std::uint64_t, kDoubleInfinity>(data, sizes, strides);
    case DType::C64: return find<std::uint32_t, kFloatInfinity>(data, all, steps);
    case DType::C128: return find<std::uint64_t, kDoubleInfinity>(data, all, steps);
    default: return {};
  }
}

}  // namespace fj
