/// Whether the process may have more address space (RLIMIT_AS, strict overcommitment): asked before work that ends the
/// process, or leaves what it was making half made, where it gets none.
#pragma once

#include <cstddef>

namespace fj {

/// What a thread needs beside its stack: the dynamic linker ends the process where it finds none for its own data.
inline constexpr std::size_t kRoomOfThread = 1 << 20;

bool has_room(std::size_t bytes);
/// Throws std::bad_alloc where there is none.
void require_room(std::size_t bytes);

}  // namespace fj
