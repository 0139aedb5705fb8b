#include "runtime/host_lock.h"

#include <chrono>

namespace fj {
namespace {

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void HostLock::release() {
  released_ = host_.unlock();
  if (!released_) held_ = -1e30;  // never again
  if (asked_ == 0 && host_.handles_signals()) {
    thread_ = std::this_thread::get_id();
    asked_ = now();
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

bool HostLock::is_due() const { return std::this_thread::get_id() == thread_ && now() - asked_ >= kAskedNanoseconds; }

bool HostLock::ask() {
  const bool released = released_;
  if (host().interrupted()) interrupted_.store(true, std::memory_order_relaxed);
  asked_ = now();
  if (released) release();
  return interrupted_.load(std::memory_order_relaxed);
}

}  // namespace fj
