/// The infinities and NaN in an array.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/base/dtype.h"

namespace fj {

struct SpecialValues {
  bool infinity = false, nan = false;
};

/// Of `count` numbers that lie together.
SpecialValues find_special_values(const float* values, std::int64_t count);
SpecialValues find_special_values(const double* values, std::int64_t count);

/// Of an array of any dtype; strides in elements. Integers have none.
SpecialValues find_special_values(DType dtype, const char* data, std::span<const std::int64_t> sizes,
                                  std::span<const std::int64_t> strides);

}  // namespace fj
