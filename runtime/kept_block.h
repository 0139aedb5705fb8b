/// Memory of a thread's own.
#pragma once

#include <cstddef>

#include "runtime/allocator.h"

namespace fj {

/// Memory that a thread keeps for the next time; grows.
class KeptBlock {
 public:
  ~KeptBlock() {
    if (memory_) release_block(memory_, bytes_);
  }
  /// Null if there is none.
  char* get(std::size_t bytes) {
    if (bytes_ < bytes) {
      if (memory_) release_block(memory_, bytes_);
      memory_ = allocate_block(bytes);
      bytes_ = memory_ ? bytes : 0;
    }
    return static_cast<char*>(memory_);
  }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace fj
