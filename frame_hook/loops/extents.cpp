#include "frame_hook/loops/extents.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

namespace fj {

namespace {

/// From the first byte of an array to behind the last one.
std::pair<std::uintptr_t, std::uintptr_t> extent(const ArrayView& view) {
  std::intptr_t first = 0, last = 0;
  const auto size = std::int64_t(size_in_bytes(view.dtype));
  for (int axis = 0; axis < view.rank; ++axis) {
    if (view.shape[axis] == 0) return {};
    const std::int64_t way = (view.shape[axis] - 1) * (view.strides[axis] / view.stride_unit) * size;
    (way < 0 ? first : last) += way;
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(view.data);
  return {begin + std::uintptr_t(first), begin + std::uintptr_t(last + size)};
}

}  // namespace

bool are_disjoint(std::span<const ArrayView> arrays, std::span<const char> stores) {
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (!stores[i]) continue;
    const auto [begin, end] = extent(arrays[i]);
    for (std::size_t j = 0; j < arrays.size(); ++j) {
      if (j == i || (stores[j] && j < i)) continue;
      const auto [other, other_end] = extent(arrays[j]);
      if (begin < other_end && other < end) return false;
    }
  }
  return true;
}

bool has_own_elements(const ArrayView& view) {
  std::vector<std::pair<std::int64_t, std::int64_t>> axes;  // stride and size
  for (int axis = 0; axis < view.rank; ++axis) {
    if (view.shape[axis] == 0) return true;
    if (view.shape[axis] > 1) axes.emplace_back(std::abs(view.strides[axis] / view.stride_unit), view.shape[axis]);
  }
  std::sort(axes.begin(), axes.end());
  std::int64_t covered = 1;  // elements, from the first one of the axes before
  for (const auto& [stride, size] : axes) {
    if (stride < covered) return false;
    covered = stride * (size - 1) + covered;
  }
  return true;
}

}  // namespace fj
