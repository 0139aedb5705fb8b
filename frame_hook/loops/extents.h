/// Where arrays lie in memory.
#pragma once

#include <span>
#include <vector>

#include "arrays/arrays.h"

namespace fj {

/// Whether no array of which elements are stored lies where another one does. What is stored in none is as if disjoint.
bool are_disjoint(std::span<const ArrayView> arrays, std::span<const char> stores);

/// Whether no two indices of the array name the same memory, as far as sizes and strides tell.
bool has_own_elements(const ArrayView& view);

}  // namespace fj
