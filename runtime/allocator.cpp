// Free lists by size class, four classes to an octave: at most a quarter of a block is waste.
#include "runtime/allocator.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
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

/// Blocks of one class that nobody uses.
struct FreeList {
  std::vector<void*> blocks;
  std::size_t bytes = 0;           // of each
  std::uint64_t last_use = 0;      // of the class, by Cache::clock
};

struct Cache {
  std::mutex lock;
  std::array<FreeList, 64 * 4 + 8> free;
  std::size_t kept = 0, bound = std::size_t(256) << 20;
  std::uint64_t clock = 0;

  /// Gives blocks back until `bytes` are kept, those of the sizes that were asked for longest ago first: a program whose sizes
  /// change must not fill the cache with sizes that never come again.
  void shrink(std::size_t bytes) {
    while (kept > bytes) {
      FreeList* oldest = nullptr;
      for (FreeList& list : free)
        if (!list.blocks.empty() && (oldest == nullptr || list.last_use < oldest->last_use)) oldest = &list;
      std::free(oldest->blocks.back());
      oldest->blocks.pop_back();
      kept -= oldest->bytes;
    }
  }
};

/// Never destroyed: blocks may come back while the process ends.
Cache& cache() {
  static Cache* instance = [] {
    static Cache* made = new Cache;
    // A fork while another thread holds the lock would leave it locked in the child for ever.
    pthread_atfork([] { made->lock.lock(); }, [] { made->lock.unlock(); }, [] { made->lock.unlock(); });
    return made;
  }();
  return *instance;
}

}  // namespace

void* allocate_block(std::size_t bytes) {
  if (bytes > std::size_t(PTRDIFF_MAX) / 2) return nullptr;  // a size that wrapped; also keeps the rounding below in range
  const SizeClass size = size_class(bytes);
  {
    Cache& c = cache();
    std::lock_guard guard(c.lock);
    FreeList& list = c.free[std::size_t(size.index)];
    list.last_use = ++c.clock;
    if (!list.blocks.empty()) {
      void* block = list.blocks.back();
      list.blocks.pop_back();
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
    if (size.bytes <= c.bound) {
      FreeList& list = c.free[std::size_t(size.index)];
      list.bytes = size.bytes;
      list.last_use = ++c.clock;
      list.blocks.push_back(block);
      c.kept += size.bytes;
      c.shrink(c.bound);
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
  Cache& c = cache();
  std::lock_guard guard(c.lock);
  c.bound = bytes;
  c.shrink(bytes);
}

void trim_cache() {
  Cache& c = cache();
  std::lock_guard guard(c.lock);
  c.shrink(0);
}

}  // namespace fj
