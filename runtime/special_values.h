/// The infinities and NaN in an array.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "runtime/base/dtype.h"

namespace fj {

struct SpecialValues {
  bool infinity = false, nan = false;
};

/// Of `count` floats or doubles that lie together.
template <class T>
SpecialValues find_special_values(const T* values, std::int64_t count);

/// Of an array of any dtype; strides in elements. Integers have none.
SpecialValues find_special_values(DType dtype, const char* data, std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides);

}  // namespace fj
