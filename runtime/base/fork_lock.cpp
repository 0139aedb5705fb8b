#include "runtime/base/fork_lock.h"

#include <pthread.h>

#include <vector>

namespace fj {
namespace {

struct Locks {
  std::mutex mutex;
  std::vector<std::mutex*> all;

  void take() {
    mutex.lock();
    for (std::mutex* lock : all) lock->lock();
  }
  void leave() {
    for (std::mutex* lock : all) lock->unlock();
    mutex.unlock();
  }
};

Locks& locks() {
  static auto* all = new Locks;  // never destroyed: threads may fork while the process ends
  return *all;
}

/// What is given to pthread_atfork last runs first. So this is done when the library is loaded: a fork waits for
/// compilations (runtime/background.cpp), which take these locks, before it takes them.
[[maybe_unused]] const int watches_forks =
    pthread_atfork([] { locks().take(); }, [] { locks().leave(); }, [] { locks().leave(); });

}  // namespace

void keep_over_forks(std::mutex& lock) {
  const std::lock_guard guard(locks().mutex);
  locks().all.push_back(&lock);
}

}  // namespace fj
