// Free lists by size class, four classes to an octave: at most a quarter of a block is waste, and of large ones only
// addresses, since pages nobody touches are not there. Large blocks are mapped one by one, so that giving one back
// takes effect at once.
#include "runtime/allocator.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/fork_lock.h"
#include "runtime/control_group.h"

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

/// Addresses for a large block, aligned, and nothing behind them yet that anybody pays for.
char* map_aligned(std::size_t bytes) {
  // Room to cut an aligned piece from.
  void* mapped = mmap(nullptr, bytes + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(mapped);
  char* block = reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(begin) + kHuge - 1) / kHuge * kHuge);
  if (block != begin) munmap(begin, std::size_t(block - begin));
  if (const std::size_t behind = kHuge - std::size_t(block - begin)) munmap(block + bytes, behind);
  return block;
}

/// Fresh memory for a block of a class.
void* obtain(std::size_t bytes) {
  if (bytes < kHuge) return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  char* block = map_aligned(bytes);
  if (block) madvise(block, bytes, MADV_HUGEPAGE);  // a wish; refusal is harmless
  return block;
}

/// A large block of another size with the same pages, as far as they go: what was touched before need not be touched
/// again. Null: it can't be had, and the block is gone.
void* reshape(void* block, std::size_t held, std::size_t bytes) {
  char* pages = static_cast<char*>(block);
  if (held >= bytes) {
    if (held > bytes) munmap(pages + bytes, held - bytes);
    return block;
  }
  char* there = map_aligned(bytes);
  if (there && mremap(block, held, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, there) == there) return there;
  if (there) munmap(there, bytes);
  munmap(block, held);
  return nullptr;
}

void give_back(void* block, std::size_t bytes) {
  if (bytes < kHuge)
    std::free(block);
  else
    munmap(block, bytes);
}

std::size_t default_bound() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  std::size_t memory = pages > 0 && page > 0 ? std::size_t(pages) * std::size_t(page) : std::size_t(2) << 30;
  for (const std::string& limit : control_group_values("memory.max"))
    if (const std::size_t bytes = std::strtoull(limit.c_str(), nullptr, 10); bytes > 0)
      memory = std::min(memory, bytes);  // or "max"
  return memory / 8;
}

struct Cache {
  std::mutex lock;
  std::array<FreeList, 64 * 4 + 8> free;
  std::unordered_map<void*, std::size_t> owned;  // allocate_owned's, with the bytes of their class
  std::size_t used = 0, most_used = 0;           // bytes of blocks handed out: now, and the most at one time
  std::size_t kept = 0, bound = default_bound();
  std::uint64_t clock = 0;

  /// Gives blocks back until `bytes` are kept, those of the sizes that were asked for longest ago first: a program
  /// whose sizes change must not fill the cache with sizes that never come again.
  void shrink(std::size_t bytes) {
    while (kept > bytes) {
      FreeList* oldest = nullptr;
      for (FreeList& list : free)
        if (!list.blocks.empty() && (oldest == nullptr || list.last_use < oldest->last_use)) oldest = &list;
      give_back(oldest->blocks.back(), oldest->bytes);
      oldest->blocks.pop_back();
      kept -= oldest->bytes;
    }
  }

  /// A large block made of a kept one: the smallest that is large enough, else the largest. Null: there is none.
  void* of_another_size(std::size_t bytes) {
    FreeList* found = nullptr;
    for (FreeList& list : free) {
      if (list.blocks.empty() || list.bytes < kHuge) continue;
      found = &list;
      if (list.bytes >= bytes) break;  // lists are in the order of sizes
    }
    if (found == nullptr) return nullptr;
    void* block = found->blocks.back();
    found->blocks.pop_back();
    kept -= found->bytes;
    return reshape(block, found->bytes, bytes);
  }

  void* take(SizeClass size) {
    FreeList& list = free[std::size_t(size.index)];
    list.last_use = ++clock;
    void* block = nullptr;
    if (!list.blocks.empty()) {
      block = list.blocks.back();
      list.blocks.pop_back();
      kept -= size.bytes;
    } else {
      // Room first: what is kept must not add to the most that was ever needed.
      const std::size_t room = most_used + kSlack > used + size.bytes ? most_used + kSlack - used - size.bytes : 0;
      if (kept > room && size.bytes >= kHuge) block = of_another_size(size.bytes);
      shrink(std::min(bound, room));
      if (block == nullptr) block = obtain(size.bytes);
      if (block == nullptr) {
        shrink(0);
        block = obtain(size.bytes);
      }
      if (block == nullptr) return nullptr;
    }
    used += size.bytes;
    most_used = std::max(most_used, used);
    return block;
  }

  void put(void* block, SizeClass size) {
    used -= size.bytes;
    FreeList& list = free[std::size_t(size.index)];
    list.bytes = size.bytes;
    list.last_use = ++clock;
    if (size.bytes > bound) return give_back(block, size.bytes);
    try {
      list.blocks.push_back(block);
    } catch (const std::bad_alloc&) {
      return give_back(block, size.bytes);
    }
    kept += size.bytes;
    shrink(bound);
  }
};

/// Never destroyed: blocks may come back while the process ends.
Cache& cache() {
  static Cache* instance = [] {
    static Cache* made = new Cache;
    // A fork while another thread holds the lock would leave it locked in the child for ever.
    keep_over_forks(made->lock);
    return made;
  }();
  return *instance;
}

void release(void* block, SizeClass size) {
  // The system may take the pages if it needs them: what is kept must never be why something else gets no memory. Costs
  // 3 us for 2 MiB, 30 us for 64; pages that are still there when they are written again cost nothing.
  if (size.bytes >= kHuge) madvise(block, size.bytes, MADV_FREE);
  std::lock_guard guard(cache().lock);
  cache().put(block, size);
}

/// A size that wrapped; also keeps rounding to a class in range.
bool too_large(std::size_t bytes) { return bytes > std::size_t(PTRDIFF_MAX) / 2; }

}  // namespace

void* allocate_block(std::size_t bytes) {
  if (too_large(bytes)) return nullptr;
  std::lock_guard guard(cache().lock);
  return cache().take(size_class(bytes));
}

void release_block(void* block, std::size_t bytes) {
  if (block != nullptr) release(block, size_class(bytes));
}

void* allocate_owned(std::size_t bytes) {
  if (too_large(bytes)) return nullptr;
  const SizeClass size = size_class(bytes);
  Cache& c = cache();
  std::lock_guard guard(c.lock);
  void* block = c.take(size);
  if (block == nullptr) return nullptr;
  try {
    c.owned.emplace(block, size.bytes);
  } catch (const std::bad_alloc&) {
    c.put(block, size);
    return nullptr;
  }
  return block;
}

void release_owned(void* block) {
  if (block == nullptr) return;
  std::size_t bytes = 0;
  {
    Cache& c = cache();
    std::lock_guard guard(c.lock);
    const auto found = c.owned.find(block);
    if (found == c.owned.end()) return;  // not ours: better a leak than a block with two owners
    bytes = found->second;
    c.owned.erase(found);
  }
  release(block, size_class(bytes));
}

void* resize_owned(void* block, std::size_t bytes) {
  if (block == nullptr) return allocate_owned(bytes);
  std::size_t held = 0;
  {
    Cache& c = cache();
    std::lock_guard guard(c.lock);
    const auto found = c.owned.find(block);
    if (found == c.owned.end()) return nullptr;
    held = found->second;
  }
  if (too_large(bytes)) return nullptr;
  if (size_class(bytes).bytes == held) return block;
  void* other = allocate_owned(bytes);
  if (other == nullptr) return nullptr;
  std::memcpy(other, block, std::min(held, bytes));
  release_owned(block);
  return other;
}

std::size_t cached_bytes() {
  std::lock_guard guard(cache().lock);
  return cache().kept;
}

std::size_t used_bytes() {
  std::lock_guard guard(cache().lock);
  return cache().used;
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
  c.most_used = c.used;
}

}  // namespace fj
