/// The numbers of a layout at one call.
///
/// A stride is a product of sizes, in which the libraries count a size of 0 as 1: `torch.zeros(3, 0).stride()` is (1, 1). Expressions don't say
/// so, since nothing else depends on it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/sym_dim.h"

namespace fj {

/// Writes a stride for each of `shape`, the sizes that `symbols` give.
inline void evaluate_strides(const Dims& strides, std::span<const std::int64_t> shape, std::span<const std::int64_t> symbols, std::int64_t* result) {
  std::vector<std::int64_t> positive;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    for (std::int64_t symbol : symbols) positive.push_back(symbol == 0 ? 1 : symbol);
    symbols = positive;
  }
  for (const SymDim& stride : strides) *result++ = stride.evaluate(symbols);
}

}  // namespace fj
