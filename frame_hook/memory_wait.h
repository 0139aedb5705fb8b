/// How long what found no memory waits before it is tried again.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fj {

/// The next call tries again, then the second, the fourth, ...: a process may stay short of memory.
class MemoryWait {
 public:
  void lacked() { waits_ = (1u << std::min(times_++, 16u)) - 1; }
  /// Asked once in a call that would try.
  bool waits() { return waits_ > 0 && waits_-- > 0; }

 private:
  std::uint32_t times_ = 0, waits_ = 0;
};

}  // namespace fj
