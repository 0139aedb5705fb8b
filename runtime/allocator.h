/// Memory for temporaries and results: blocks are kept and handed out again, because fresh pages cost more than the
/// kernels that fill them (first touch of a 4 KiB page: 1.4 to 2 us). Thread-safe.
///
/// What is kept never makes the process larger than it had to be: blocks in use and kept are together at most what was
/// once in use at the same time, and a little (kSlack). Where that is reached, a large block is made of the pages of a
/// kept one of another size; beyond it, and beyond `bound`, kept blocks go back to the system, those of the sizes asked
/// for longest ago first. Large kept blocks are lent to the system, which takes their pages if anybody needs memory.
#pragma once

#include <cstddef>

namespace fj {

/// At least `bytes`, aligned to 64 bytes; from 2 MiB on, aligned to 2 MiB and on huge pages where the system has them.
/// Null if the memory can't be had. 0 bytes give a valid pointer.
void* allocate_block(std::size_t bytes);
/// `bytes` as given to allocate_block.
void release_block(void* block, std::size_t bytes);

/// Blocks that belong to an array of the user: whoever frees such an array knows its address only.
/// From any thread, with or without the GIL, also while the process ends.
void* allocate_owned(std::size_t bytes);
void release_owned(void* block);
/// As realloc: the contents up to the shorter size; null leaves the old block as it was.
void* resize_owned(void* block, std::size_t bytes);

/// Above this a result is worth a block of ours: smaller ones come from the library's own allocator, whose heap reuses
/// them well (the C library gives larger pieces back to the system now and then, and every page is touched anew).
constexpr std::size_t kOwnedBytes = std::size_t(128) << 10;
constexpr std::size_t kSlack = std::size_t(4) << 20;

/// Bytes kept for later. At most `bound`: by default an eighth of the memory that the machine or the container has.
std::size_t cached_bytes();
/// Bytes handed out and not released.
std::size_t used_bytes();
void set_cache_bound(std::size_t bytes);
/// Gives everything kept back to the system, and forgets how much was in use before.
void trim_cache();

}  // namespace fj
