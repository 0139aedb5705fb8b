#include "runtime/strided_copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace fj {

namespace {

template <std::size_t bytes>
void copy_row(const char* from, char* to, const CopiedAxis& axis) {
  for (std::int64_t i = 0; i < axis.size; ++i)
    std::memcpy(to + i * axis.to_stride * std::int64_t(bytes), from + i * axis.from_stride * std::int64_t(bytes),
                bytes);
}

void copy_row(const char* from, char* to, const CopiedAxis& axis, std::size_t bytes) {
  if (axis.from_stride == 1 && axis.to_stride == 1) {
    std::memcpy(to, from, std::size_t(axis.size) * bytes);
    return;
  }
  switch (bytes) {
    case 1: return copy_row<1>(from, to, axis);
    case 2: return copy_row<2>(from, to, axis);
    case 4: return copy_row<4>(from, to, axis);
    case 8: return copy_row<8>(from, to, axis);
    default: return copy_row<16>(from, to, axis);
  }
}

void copy_axes(const char* from, char* to, std::span<const CopiedAxis> axes, std::size_t bytes) {
  const CopiedAxis& axis = axes.front();
  if (axes.size() == 1) return copy_row(from, to, axis, bytes);
  for (std::int64_t i = 0; i < axis.size; ++i)
    copy_axes(from + i * axis.from_stride * std::int64_t(bytes), to + i * axis.to_stride * std::int64_t(bytes),
              axes.subspan(1), bytes);
}

}  // namespace

void copy_elements(const char* from, char* to, std::span<CopiedAxis> axes, std::size_t bytes) {
  if (std::any_of(axes.begin(), axes.end(), [](const CopiedAxis& axis) { return axis.size == 0; })) return;
  // In the order in which the elements are written; what lies one after the other on both sides is one axis.
  std::stable_sort(axes.begin(), axes.end(), [](const CopiedAxis& a, const CopiedAxis& b) {
    return std::abs(a.to_stride) > std::abs(b.to_stride);
  });
  std::size_t count = 0;
  for (const CopiedAxis& axis : axes) {
    if (axis.size == 1) continue;
    if (count > 0 && axes[count - 1].from_stride == axis.size * axis.from_stride &&
        axes[count - 1].to_stride == axis.size * axis.to_stride)
      axes[count - 1] = {axes[count - 1].size * axis.size, axis.from_stride, axis.to_stride};
    else
      axes[count++] = axis;
  }
  if (count == 0) {
    std::memcpy(to, from, bytes);
    return;
  }
  copy_axes(from, to, axes.first(count), bytes);
}

}  // namespace fj
