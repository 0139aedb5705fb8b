// A fixed set of job slots in static memory. A caller takes a slot and opens it; workers enter open slots (`users`),
// claim chunks and leave; the caller closes the slot when no chunk is left and waits until nobody is in it. Because
// slots are never freed, a late worker that looks at a closed one does no harm.
#include "runtime/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "runtime/base/clock.h"
#include "runtime/base/room.h"
#include "runtime/control_group.h"
#include "runtime/library_team.h"

namespace fj {
namespace {

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");  // some tens of cycles, as x86's; `yield` takes one
#endif
}

struct alignas(64) Slot {
  std::atomic<bool> taken{false};
  std::atomic<bool> open{false};
  void (*body)(void*, std::int64_t) = nullptr;
  void* context = nullptr;
  std::int64_t chunks = 0;
  int workers = 0;  // those with a lower number take part
  alignas(64) std::atomic<std::int64_t> next{0};
  alignas(64) std::atomic<int> users{0};
  std::atomic<bool> helped{false};  // somebody but the caller claimed a chunk

  /// True if there was a chunk to claim.
  bool work() {
    bool any = false;
    for (std::int64_t chunk; (chunk = next.fetch_add(1, std::memory_order_relaxed)) < chunks; any = true)
      body(context, chunk);
    return any;
  }
};

constexpr int kSlots = 16;
// About 20 microseconds: longer than the gap between two kernels of a program, shorter than a wake-up is worth.
constexpr int kSpins = 500;

thread_local bool inside = false;

/// Threads beside the caller as set, or -1. Outside the pool: a forked child keeps its parent's choice.
std::atomic<int> workers_wanted{-1};

struct Pool {
  Slot slots[kSlots];
  std::atomic<std::uint32_t> epoch{0};  // moves when a slot opens or the pool stops
  std::atomic<int> sleeping{0};
  std::atomic<bool> stopping{false};
  std::atomic<int> workers_running{0};
  std::mutex starting;
  std::vector<pthread_t> threads;

  void run_worker(int number) {
    inside = true;
    std::uint32_t seen = epoch.load(std::memory_order_acquire);
    while (!stopping.load(std::memory_order_relaxed)) {
      bool worked = false;
      for (Slot& slot : slots) {
        if (!slot.open.load(std::memory_order_relaxed)) continue;
        slot.users.fetch_add(1, std::memory_order_seq_cst);
        // Seen open after entering: the caller waits for us.
        // A slot whose chunks are all claimed stays open while the last ones run: that is no reason to stay awake.
        if (slot.open.load(std::memory_order_seq_cst) && number < slot.workers && slot.work()) {
          worked = true;
          slot.helped.store(true, std::memory_order_relaxed);
        }
        if (slot.users.fetch_sub(1, std::memory_order_seq_cst) == 1) slot.users.notify_all();
      }
      const std::uint32_t now = epoch.load(std::memory_order_acquire);
      if (worked || now != seen) {
        seen = now;
        continue;
      }
      int spins = kSpins;
      while (spins-- > 0 && epoch.load(std::memory_order_relaxed) == seen) pause();
      if (epoch.load(std::memory_order_acquire) != seen) continue;
      sleeping.fetch_add(1, std::memory_order_seq_cst);
      epoch.wait(seen, std::memory_order_seq_cst);
      sleeping.fetch_sub(1, std::memory_order_relaxed);
    }
  }

  struct Start {
    Pool* pool;
    int number;
  };
  static void* thread_main(void* argument) {
    const std::unique_ptr<Start> start(static_cast<Start*>(argument));
    start->pool->run_worker(start->number);
    return nullptr;
  }

  void start(int wanted) {
    std::lock_guard lock(starting);
    // Signals belong to the threads of the program: one taken here would not interrupt the sleep or read it is meant
    // for.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (int(threads.size()) < wanted) {
      pthread_t thread;
      auto start = std::make_unique<Start>(Start{this, int(threads.size())});
      if (!has_room(kRoomOfThread) || pthread_create(&thread, nullptr, thread_main, start.get()) != 0)
        break;  // fewer threads, same results
      start.release();
      threads.push_back(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    workers_running.store(int(threads.size()), std::memory_order_release);
  }

  void stop() {
    std::lock_guard lock(starting);
    stopping = true;
    epoch.fetch_add(1);
    epoch.notify_all();
    for (pthread_t thread : threads) pthread_join(thread, nullptr);
    threads.clear();
    workers_running = 0;
    stopping = false;
  }
};

/// Never destroyed: workers of other threads may still look at it while the process ends.
Pool& pool() {
  static Pool* instance = [] {
    auto* made = new Pool;
    pthread_atfork(nullptr, nullptr, [] {
      // The child has no workers and whatever its parent's other threads were doing is gone.
      new (&pool()) Pool;
      inside = false;
    });
    std::atexit([] { pool().stop(); });
    return made;
  }();
  return *instance;
}

int available_cores() {
  cpu_set_t set;
  int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : int(std::thread::hardware_concurrency());
  for (const std::string& quota : control_group_values("cpu.max")) {
    // "200000 100000" is two cores, "max 100000" no limit.
    long allowed = 0, period = 0;
    if (std::sscanf(quota.c_str(), "%ld %ld", &allowed, &period) == 2 && allowed > 0 && period > 0)
      cores = std::min<long>(cores, (allowed + period - 1) / period);
  }
  return std::max(cores, 1);
}

}  // namespace

int thread_count() {
  const int wanted = workers_wanted.load(std::memory_order_relaxed);
  if (wanted >= 0) return wanted + 1;
  static const int cores = available_cores();
  return cores;
}

void set_thread_count(int threads) { workers_wanted = threads > 0 ? threads - 1 : -1; }

void parallel_for(std::int64_t chunks, void (*body)(void* context, std::int64_t chunk), void* context, int threads) {
  auto inline_loop = [&] {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) body(context, chunk);
  };
  const int allowed = threads > 0 ? std::min(threads, thread_count()) : thread_count();
  const int workers = chunks > 1 && !inside ? allowed - 1 : 0;
  if (workers <= 0) return inline_loop();
  if (on_main_thread() && library_team().wanted(workers + 1)) {
    struct Job {
      void (*body)(void*, std::int64_t);
      void* context;
      std::int64_t chunks;
      std::atomic<std::int64_t> next{0};
    } job{body, context, chunks};
    library_team().run(
        [](void* data) {
          auto& shared = *static_cast<Job*>(data);
          inside = true;
          for (std::int64_t chunk; (chunk = shared.next.fetch_add(1, std::memory_order_relaxed)) < shared.chunks;)
            shared.body(shared.context, chunk);
          inside = false;
        },
        &job, workers + 1);
    return;
  }
  Pool& p = pool();
  if (p.workers_running.load(std::memory_order_acquire) < workers) p.start(workers);
  Slot* mine = nullptr;
  for (Slot& slot : p.slots)
    if (!slot.taken.load(std::memory_order_relaxed) && !slot.taken.exchange(true, std::memory_order_acquire)) {
      mine = &slot;
      break;
    }
  if (mine == nullptr) return inline_loop();  // more callers at once than slots
  mine->body = body;
  mine->context = context;
  mine->chunks = chunks;
  mine->workers = workers;
  mine->next.store(0, std::memory_order_relaxed);
  mine->helped.store(false, std::memory_order_relaxed);
  const bool watched = on_main_thread();
  const std::int64_t begin = watched ? nanoseconds_now() : 0;
  mine->open.store(true, std::memory_order_seq_cst);
  p.epoch.fetch_add(1, std::memory_order_seq_cst);
  if (p.sleeping.load(std::memory_order_seq_cst) > 0) p.epoch.notify_all();
  inside = true;
  mine->work();
  inside = false;
  mine->open.store(false, std::memory_order_seq_cst);
  for (int spins = 0, users; (users = mine->users.load(std::memory_order_seq_cst)) != 0; ++spins) {
    if (spins < 4 * kSpins)
      pause();
    else
      mine->users.wait(users, std::memory_order_seq_cst);
  }
  if (watched) library_team().note_own(mine->helped.load(std::memory_order_relaxed), nanoseconds_now() - begin);
  mine->taken.store(false, std::memory_order_release);
}

}  // namespace fj
