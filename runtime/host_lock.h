/// The host's lock (Python's GIL) while a program runs. It is held for short work and whenever the host is asked for
/// something; longer work goes on without it. Work that takes long lets the host look for signals now and then.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "runtime/host.h"

namespace fj {

class HostLock {
 public:
  /// Held by the caller, and held again when this ends.
  explicit HostLock(Host& host) : host_(host), limit_(host.asks_again() ? kHeldBeforeAsking : kHeldNanoseconds) {}
  ~HostLock() { take(); }
  HostLock(const HostLock&) = delete;

  /// The host, with the lock.
  Host& host() {
    take();
    return host_;
  }
  static bool is_long(double nanoseconds) { return nanoseconds >= kHeldNanoseconds; }
  /// Work of about `nanoseconds` follows that touches nothing of the host's but memory.
  void work(double nanoseconds) {
    held_ += nanoseconds;
    if (!released_ && held_ >= limit_) release();
  }
  /// Before a wait whose length nobody knows.
  void wait() { work(limit_); }
  void take();

  /// Asked between two pieces of work, on any thread that does some of it. True: the call is to end, since a signal
  /// was handled so.
  bool interrupted() { return interrupted_.load(std::memory_order_relaxed) || (watches_ && is_due() && ask()); }
  /// From here on the work must be done whole. False: it must not be done, others have changed what it rests on.
  bool finish();

 private:
  // Letting go of the lock and taking it again costs 0.1 us.
  static constexpr double kHeldNanoseconds = 20'000;
  // Asking the guards of a model again costs up to 20 us; others wait 5 ms for the GIL in any case.
  static constexpr double kHeldBeforeAsking = 500'000;
  static constexpr std::int64_t kAskedNanoseconds = 20'000'000;

  void release();
  bool is_due() const;
  bool ask();

  Host& host_;
  const double limit_;
  double held_ = 0;        // since it was taken
  bool released_ = false;
  bool watches_ = false;   // for long work on the thread on which the host handles signals
  std::int64_t asked_ = 0; // when
  std::thread::id thread_;
  std::atomic<bool> interrupted_{false};
};

}  // namespace fj
