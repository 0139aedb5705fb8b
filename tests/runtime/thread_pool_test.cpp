// The pool: every chunk once, whoever calls, however many threads there are.
#include "runtime/thread_pool.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace fj {
namespace {

/// Calls a lambda as parallel_for wants it.
template <class F>
void for_chunks(std::int64_t chunks, F body, int threads = 0) {
  parallel_for(chunks, [](void* context, std::int64_t chunk) { (*static_cast<F*>(context))(chunk); }, &body, threads);
}

std::set<std::thread::id> threads_of_a_slow_loop(std::int64_t chunks, int threads = 0) {
  std::mutex lock;
  std::set<std::thread::id> seen;
  for_chunks(chunks, [&](std::int64_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::lock_guard guard(lock);
    seen.insert(std::this_thread::get_id());
  }, threads);
  return seen;
}

struct ThreadPool : testing::Test {
  void TearDown() override { set_thread_count(0); }
};

TEST_F(ThreadPool, RunsEveryChunkOnce) {
  for (int threads : {1, 2, 4}) {
    set_thread_count(threads);
    EXPECT_EQ(thread_count(), threads);
    for (std::int64_t chunks : {0, 1, 2, 3, 7, 1000}) {
      std::vector<std::atomic<int>> runs(std::size_t(chunks) + 1);
      for_chunks(chunks, [&](std::int64_t chunk) { ++runs[std::size_t(chunk)]; });
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
        ASSERT_EQ(runs[std::size_t(chunk)], 1) << chunk << " of " << chunks;
    }
  }
}

TEST_F(ThreadPool, WhatTheChunksWroteIsSeenByTheCaller) {
  set_thread_count(4);
  std::vector<int> values(64);
  for (int round = 1; round <= 5000; ++round) {
    for_chunks(64, [&](std::int64_t chunk) { values[std::size_t(chunk)] = round; });
    for (int value : values) ASSERT_EQ(value, round);
  }
}

TEST_F(ThreadPool, SpreadsSlowChunksOverThreads) {
  set_thread_count(4);
  const auto threads = threads_of_a_slow_loop(32);
  EXPECT_GT(threads.size(), 1u);
  EXPECT_LE(threads.size(), 4u);
}

TEST_F(ThreadPool, ASmallerCountHoldsAlthoughMoreWorkersExist) {
  set_thread_count(6);
  threads_of_a_slow_loop(32);
  set_thread_count(2);
  EXPECT_LE(threads_of_a_slow_loop(32).size(), 2u);
  set_thread_count(1);
  EXPECT_EQ(threads_of_a_slow_loop(8), std::set<std::thread::id>{std::this_thread::get_id()});
}

TEST_F(ThreadPool, ALoopMayAskForFewerThreads) {
  set_thread_count(4);
  EXPECT_EQ(threads_of_a_slow_loop(16, 1).size(), 1u);
  EXPECT_LE(threads_of_a_slow_loop(16, 2).size(), 2u);
}

TEST_F(ThreadPool, ACallInsideAChunkRunsInline) {
  set_thread_count(4);
  std::atomic<int> inner{0}, elsewhere{0};
  for_chunks(16, [&](std::int64_t) {
    const auto outer_thread = std::this_thread::get_id();
    for_chunks(16, [&](std::int64_t) {
      ++inner;
      if (std::this_thread::get_id() != outer_thread) ++elsewhere;
    });
  });
  EXPECT_EQ(inner, 256);
  EXPECT_EQ(elsewhere, 0);
}

TEST_F(ThreadPool, ServesSeveralCallersAtOnce) {
  set_thread_count(3);
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  // More callers than there are slots.
  for (int caller = 0; caller < 20; ++caller)
    callers.emplace_back([&] {
      for (int round = 0; round < 300; ++round) {
        std::atomic<std::int64_t> sum{0};
        for_chunks(20, [&](std::int64_t chunk) { sum += chunk; });
        if (sum != 190) ++wrong;
      }
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(ThreadPool, WakesAfterASleep) {
  set_thread_count(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_GT(threads_of_a_slow_loop(16).size(), 1u);
  }
}

TEST_F(ThreadPool, AForkedChildHasAPoolOfItsOwnAndTheSameCount) {
  set_thread_count(3);
  threads_of_a_slow_loop(8);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool same = thread_count() == 3;
    std::atomic<int> runs{0};
    for (int round = 0; round < 100; ++round) for_chunks(50, [&](std::int64_t) { ++runs; });
    const std::size_t threads = threads_of_a_slow_loop(16).size();
    _exit(same && runs == 5000 && threads > 1 && threads <= 3 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_GT(threads_of_a_slow_loop(16).size(), 1u);
}

TEST_F(ThreadPool, AForkWhileAnotherThreadLoopsIsSafe) {
  set_thread_count(3);
  std::atomic<bool> stop{false};
  std::thread looper([&] {
    while (!stop) for_chunks(16, [](std::int64_t) {});
  });
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);
      std::atomic<int> runs{0};
      for_chunks(50, [&](std::int64_t) { ++runs; });
      _exit(runs == 50 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  stop = true;
  looper.join();
}

TEST_F(ThreadPool, WorkersTakeNoSignals) {
  set_thread_count(3);
  static std::atomic<pthread_t> handler_thread;
  struct sigaction action = {}, before;
  action.sa_handler = [](int) { handler_thread = pthread_self(); };
  sigaction(SIGUSR1, &action, &before);
  const pthread_t self = pthread_self();
  std::atomic<int> elsewhere{0};
  for_chunks(32, [&](std::int64_t) {
    if (pthread_equal(pthread_self(), self)) return std::this_thread::sleep_for(std::chrono::milliseconds(1));
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    if (!sigismember(&mask, SIGUSR1)) ++elsewhere;
  });
  EXPECT_EQ(elsewhere, 0);
  kill(getpid(), SIGUSR1);
  EXPECT_TRUE(pthread_equal(handler_thread, self));
  sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace fj
