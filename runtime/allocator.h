/// Memory for temporaries and arenas: blocks are kept and handed out again, because fresh pages cost more than the kernels
/// that fill them (first touch of a 4 KiB page: 1.4 to 2 us). Thread-safe.
#pragma once

#include <cstddef>

namespace fj {

/// At least `bytes`, aligned to 64 bytes; from 2 MiB on, aligned to 2 MiB and on huge pages where the system has them.
/// Null if the memory can't be had. 0 bytes give a valid pointer.
void* allocate_block(std::size_t bytes);
/// `bytes` as given to allocate_block.
void release_block(void* block, std::size_t bytes);

/// Bytes kept for later. At most `bound`, 256 MiB by default.
std::size_t cached_bytes();
void set_cache_bound(std::size_t bytes);
/// Gives everything kept back to the system.
void trim_cache();

}  // namespace fj
