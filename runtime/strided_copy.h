/// Elements from where they lie to where they go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fj {

/// Of both sides; strides in elements.
struct CopiedAxis {
  std::int64_t size, from_stride, to_stride;
};

/// Copies elements of `bytes` (1, 2, 4, 8 or 16); the memory of both sides is apart. `axes` are reordered.
void copy_elements(const char* from, char* to, std::span<CopiedAxis> axes, std::size_t bytes);

}  // namespace fj
