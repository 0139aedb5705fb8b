/// The clock that measures: never set, and the same in all threads.
#pragma once

#include <chrono>
#include <cstdint>

namespace fj {

inline std::int64_t nanoseconds_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace fj
