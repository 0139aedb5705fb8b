// One queue, a few workers. `run_together` shares its jobs by a counter: the caller claims like any worker and waits
// only for those that were claimed, so a worker that wakes late costs nothing.
#include "runtime/background.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "runtime/base/room.h"
#include "runtime/code_pages.h"
#include "runtime/thread_pool.h"

namespace fj {
namespace {

constexpr int kMostWorkers = 4;
/// So long without work, and the compiler is not needed for now.
constexpr std::chrono::seconds kIdle{1};

struct Queue {
  std::mutex mutex;  // guards everything here
  std::condition_variable work, idle, gate;
  int inside = 0;    // threads in NoFork sections
  int forking = 0;   // threads that wait for the others to leave theirs
  std::deque<std::function<void()>> urgent, waiting;
  std::vector<pthread_t> threads;
  std::size_t running = 0;
  bool stopping = false;
  bool worked = false;  // a thread or a caller of run_together, since the jobs of `when_idle`
  std::vector<void (*)()> at_rest;

  std::size_t jobs() const { return urgent.size() + waiting.size() + running; }

  static void* thread_main(void* argument) {
    depth = 0;  // the first use makes the library's thread-local data, which ends the process where memory is out
    static_cast<Queue*>(argument)->run();
    return nullptr;
  }

  /// The mutex is held by `lock`, but not while a job runs. From taking a job to its end the thread is in a NoFork
  /// section: a job is either waiting or done when a process forks.
  void run_one(std::unique_lock<std::mutex>& lock) {
    ++inside;
    auto& from = urgent.empty() ? waiting : urgent;
    std::function<void()> job = std::move(from.front());
    from.pop_front();
    ++running;
    worked = true;
    lock.unlock();
    ++depth;
    try {
      job();
    } catch (const std::bad_alloc&) {  // what it would have made is missing, as if it had not come to its turn
    }
    job = nullptr;  // what it held dies outside the lock
    --depth;
    lock.lock();
    --running;
    worked = true;  // another thread may have rested meanwhile
    leave();
    if (jobs() == 0) idle.notify_all();
  }

  void leave() {
    if (--inside == 0 && (forking > 0 || stopping)) gate.notify_all();
  }

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      const auto wanted = [&] { return stopping || !urgent.empty() || !waiting.empty(); };
      if (worked && !work.wait_for(lock, kIdle, wanted) && running == 0 && std::exchange(worked, false)) {
        const auto rest = at_rest;
        lock.unlock();
        {
          const NoFork whole;
          for (void (*job)() : rest) job();
          release_code_pages();
          release_free_pages();  // what the jobs freed, too
        }
        lock.lock();
      }
      work.wait(lock, [&] { return worked || wanted(); });
      if (stopping) return;
      if (!wanted()) continue;  // a caller has worked
      if (forking > 0)
        gate.wait(lock, [&] { return forking == 0; });
      else
        run_one(lock);
    }
  }

  /// The mutex is held. Fewer threads than wanted cost only speed.
  void start_threads(std::size_t wanted) {
    wanted = std::min<std::size_t>(wanted, std::size_t(std::clamp(thread_count(), 1, kMostWorkers)));
    if (threads.size() >= wanted || stopping) return;
    // Signals belong to the threads of the program.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (threads.size() < wanted) {
      pthread_t thread;
      if (!has_room(kRoomOfThread) || pthread_create(&thread, nullptr, thread_main, this) != 0) break;
      threads.push_back(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  /// A thread has to be there that rests for it.
  void caller_worked() {
    {
      std::lock_guard lock(mutex);
      if (std::exchange(worked, true)) return;
      start_threads(1);
    }
    work.notify_one();
  }

  void stop() {
    std::deque<std::function<void()>> dropped;
    std::vector<pthread_t> joined;
    {
      std::lock_guard lock(mutex);
      stopping = true;
      dropped.swap(waiting);
      joined.swap(threads);
    }
    work.notify_all();
    idle.notify_all();
    for (pthread_t thread : joined) pthread_join(thread, nullptr);
    // Threads of the program itself, in the middle of a compilation.
    std::unique_lock lock(mutex);
    gate.wait(lock, [&] { return inside == 0 || depth > 0; });
  }

  static thread_local int depth;  // NoFork sections this thread is in
};

thread_local int Queue::depth = 0;

/// Never destroyed: other threads may still look at it while the process ends.
Queue& queue() {
  static Queue* instance = [] {
    auto* made = new Queue;
    pthread_atfork(
        [] {
          Queue& shared = queue();
          std::unique_lock lock(shared.mutex);
          ++shared.forking;
          shared.gate.wait(lock, [&] { return shared.inside == 0; });
          lock.release();  // held until the fork is done
        },
        [] {
          Queue& shared = queue();
          --shared.forking;
          shared.gate.notify_all();
          shared.mutex.unlock();
        },
        [] {
          // The locks belong to a thread of the parent: they are made anew. What waited waits on.
          Queue& parent = queue();
          auto waiting = std::move(parent.waiting);
          auto at_rest = std::move(parent.at_rest);
          new (&parent) Queue;
          parent.waiting = std::move(waiting);
          parent.at_rest = std::move(at_rest);
        });
    std::atexit(end_background);  // for processes whose host does not say when it ends
    return made;
  }();
  return *instance;
}

}  // namespace

NoFork::NoFork() {
  if (Queue::depth++ > 0) return;
  Queue& shared = queue();
  std::unique_lock lock(shared.mutex);
  shared.gate.wait(lock, [&] { return shared.forking == 0; });
  ++shared.inside;
}

NoFork::~NoFork() {
  if (--Queue::depth > 0) return;
  Queue& shared = queue();
  std::lock_guard lock(shared.mutex);
  shared.leave();
}

void run_in_background(std::function<void()> job) {
  Queue& shared = queue();
  {
    std::lock_guard lock(shared.mutex);
    if (shared.stopping) return;
    shared.waiting.push_back(std::move(job));
    shared.start_threads(shared.jobs());
  }
  shared.work.notify_one();
}

void run_together(const std::vector<std::function<void()>>& jobs) {
  struct Batch {
    const std::vector<std::function<void()>>* jobs;
    std::atomic<std::size_t> next{0};
    std::mutex mutex;
    std::condition_variable done;
    std::size_t finished = 0;
    std::exception_ptr failure;

    void work(std::size_t count) {
      for (std::size_t i; (i = next.fetch_add(1)) < count;) {
        std::exception_ptr thrown;
        try {
          (*jobs)[i]();
        } catch (...) {
          thrown = std::current_exception();
        }
        std::lock_guard lock(mutex);
        if (thrown && !failure) failure = thrown;
        if (++finished == count) done.notify_all();
      }
    }
  };
  const std::size_t count = jobs.size();
  auto batch = std::make_shared<Batch>();  // a worker may come when the caller has long gone
  batch->jobs = &jobs;
  if (count > 1) {
    Queue& shared = queue();
    {
      std::lock_guard lock(shared.mutex);
      if (!shared.stopping) {
        shared.start_threads(shared.jobs() + count - 1);
        const std::size_t helpers = std::min(count - 1, shared.threads.size());
        for (std::size_t i = 0; i < helpers; ++i) shared.urgent.push_back([batch, count] { batch->work(count); });
      }
    }
    shared.work.notify_all();
  }
  batch->work(count);
  {
    std::unique_lock lock(batch->mutex);
    batch->done.wait(lock, [&] { return batch->finished == count; });
  }
  if (count > 0) queue().caller_worked();
  if (batch->failure) std::rethrow_exception(batch->failure);
}

void finish_background() {
  Queue& shared = queue();
  std::unique_lock lock(shared.mutex);
  shared.start_threads(shared.jobs());
  shared.work.notify_all();
  while (shared.threads.empty() && !shared.stopping && shared.jobs() > shared.running) shared.run_one(lock);
  shared.idle.wait(lock, [&] { return shared.stopping || shared.jobs() == 0; });
}

void when_idle(void (*job)()) {
  Queue& shared = queue();
  std::lock_guard lock(shared.mutex);
  shared.at_rest.push_back(job);
}

void end_background() { queue().stop(); }

std::size_t background_jobs() {
  Queue& shared = queue();
  std::lock_guard lock(shared.mutex);
  return shared.jobs();
}

}  // namespace fj
