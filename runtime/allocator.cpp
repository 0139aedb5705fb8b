// Free lists by size class, four classes to an octave: at most a quarter of a block is waste.
#include "runtime/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <vector>

namespace fj {
namespace {

constexpr std::size_t kHuge = std::size_t(2) << 20;
constexpr std::size_t kSmallest = 64;

/// The class of a size and the bytes of its blocks.
struct SizeClass {
  int index;
  std::size_t bytes;
};

SizeClass size_class(std::size_t bytes) {
  bytes = std::max(bytes, kSmallest);
  const int octave = std::bit_width(bytes - 1) - 1;  // 2^octave < bytes <= 2^(octave + 1)
  const std::size_t step = std::max<std::size_t>((std::size_t(1) << octave) / 4, 16);
  const std::size_t base = std::size_t(1) << octave;
  const std::size_t part = (bytes - base + step - 1) / step;
  return {octave * 4 + int(part), base + part * step};
}

struct Cache {
  std::mutex lock;
  std::array<std::vector<void*>, 64 * 4 + 8> free;
  std::size_t kept = 0, bound = std::size_t(256) << 20;
};

/// Never destroyed: blocks may come back while the process ends.
Cache& cache() {
  static Cache* instance = new Cache;
  return *instance;
}

}  // namespace

void* allocate_block(std::size_t bytes) {
  const SizeClass size = size_class(bytes);
  {
    Cache& c = cache();
    std::lock_guard guard(c.lock);
    auto& blocks = c.free[std::size_t(size.index)];
    if (!blocks.empty()) {
      void* block = blocks.back();
      blocks.pop_back();
      c.kept -= size.bytes;
      return block;
    }
  }
  const std::size_t alignment = size.bytes >= kHuge ? kHuge : 64;
  const std::size_t rounded = (size.bytes + alignment - 1) / alignment * alignment;
  void* block = std::aligned_alloc(alignment, rounded);
  if (block != nullptr && size.bytes >= kHuge) madvise(block, rounded, MADV_HUGEPAGE);  // a wish; refusal is harmless
  return block;
}

void release_block(void* block, std::size_t bytes) {
  if (block == nullptr) return;
  const SizeClass size = size_class(bytes);
  {
    Cache& c = cache();
    std::lock_guard guard(c.lock);
    if (c.kept + size.bytes <= c.bound) {
      c.free[std::size_t(size.index)].push_back(block);
      c.kept += size.bytes;
      return;
    }
  }
  std::free(block);
}

std::size_t cached_bytes() {
  std::lock_guard guard(cache().lock);
  return cache().kept;
}

void set_cache_bound(std::size_t bytes) {
  cache().bound = bytes;
  if (cached_bytes() > bytes) trim_cache();
}

void trim_cache() {
  Cache& c = cache();
  std::lock_guard guard(c.lock);
  for (auto& blocks : c.free) {
    for (void* block : blocks) std::free(block);
    blocks.clear();
  }
  c.kept = 0;
}

}  // namespace fj
