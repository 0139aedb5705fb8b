#include "runtime/host_lock.h"

#include "runtime/base/clock.h"

namespace fj {

void HostLock::release() {
  released_ = host_.unlock();
  if (!released_) held_ = -1e30;  // never again
  if (asked_ == 0 && host_.handles_signals()) {
    thread_ = std::this_thread::get_id();
    asked_ = nanoseconds_now();
    watches_ = true;
  }
}

void HostLock::take() {
  if (!released_) return;
  host_.lock();
  released_ = false;
  held_ = 0;
}

bool HostLock::finish() {
  watches_ = false;
  return !host_.asks_again() || host().may_write();
}

bool HostLock::is_due() const {
  return std::this_thread::get_id() == thread_ && nanoseconds_now() - asked_ >= kAskedNanoseconds;
}

bool HostLock::ask() {
  const bool released = released_;
  if (host().interrupted()) interrupted_.store(true, std::memory_order_relaxed);
  asked_ = nanoseconds_now();
  if (released) release();
  return interrupted_.load(std::memory_order_relaxed);
}

}  // namespace fj
