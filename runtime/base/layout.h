/// The numbers of a layout at one call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/sym_dim.h"

namespace fj {

/// Writes the strides of an array of `shape`, whose sizes are `sizes` by these symbols. In row-major strides the
/// libraries count a size of 0 as 1, which the product of sizes doesn't say: `torch.zeros(3, 0).stride()` is (1, 1).
inline void evaluate_strides(const Dims& shape, const Dims& strides, std::span<const std::int64_t> sizes,
                             std::span<const std::int64_t> symbols, std::int64_t* result) {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end() && strides == contiguous_strides(shape)) {
    std::int64_t stride = 1;
    for (std::size_t i = sizes.size(); i-- > 0; stride *= std::max<std::int64_t>(sizes[i], 1)) result[i] = stride;
    return;
  }
  for (const SymDim& stride : strides) *result++ = stride.evaluate(symbols);
}

}  // namespace fj
