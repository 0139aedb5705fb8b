#include "runtime/base/room.h"

#include <sys/mman.h>

#include <new>

namespace fj {

bool has_room(std::size_t bytes) {
  void* const room = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return false;
  munmap(room, bytes);
  return true;
}

void require_room(std::size_t bytes) {
  if (!has_room(bytes)) throw std::bad_alloc();
}

}  // namespace fj
