// Jobs beside the program: all run, exceptions come back, forks find everything whole.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "runtime/background.h"

namespace fj {
namespace {

TEST(Background, EveryJobRunsOnce) {
  std::atomic<int> ran{0};
  for (int i = 0; i < 200; ++i) run_in_background([&] { ++ran; });
  finish_background();
  EXPECT_EQ(ran, 200);
  EXPECT_EQ(background_jobs(), 0u);
}

std::atomic<int> rests{0};

TEST(Background, WhatIsKeptForTheNextJobGoesWhenTheThreadsRest) {
  when_idle([] { ++rests; });
  for (int round = 1; round <= 2; ++round) {
    run_in_background([] {});
    while (rests < round) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(rests, 2);
}

TEST(Background, WhatACallerKeepsOfAJobThatItRunsItselfGoesToo) {
  const int before = rests;
  static std::atomic<int> after{0};
  when_idle([] { ++after; });
  run_together({[] {}});  // one job: no thread takes part
  while (after == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(rests, before + 1);
}

TEST(Background, TogetherReturnsWhenAllAreDone) {
  for (int round = 0; round < 50; ++round) {
    std::vector<int> done(17, 0);
    std::vector<std::function<void()>> jobs;
    for (int i = 0; i < 17; ++i) jobs.push_back([&, i] { done[std::size_t(i)] += 1; });
    run_together(jobs);
    EXPECT_EQ(done, std::vector<int>(17, 1));
  }
  run_together({});
}

TEST(Background, TogetherRethrowsAfterTheRestIsDone) {
  std::atomic<int> ran{0};
  std::vector<std::function<void()>> jobs(8, [&] { ++ran; });
  jobs[3] = [] { throw std::runtime_error("third"); };
  EXPECT_THROW(run_together(jobs), std::runtime_error);
  EXPECT_EQ(ran, 7);
}

TEST(Background, TogetherFromSeveralThreadsAtOnce) {
  std::atomic<int> ran{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t)
    callers.emplace_back([&] {
      for (int round = 0; round < 20; ++round) run_together(std::vector<std::function<void()>>(5, [&] { ++ran; }));
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(ran, 400);
}

int child_status(void (*body)()) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

std::atomic<int> done_in_child{0};

TEST(Background, AForkWaitsForSectionsAndTakesTheQueueAlong) {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) {
      const NoFork outer;
      const NoFork inner;  // sections nest
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  for (int round = 0; round < 10; ++round) {
    std::atomic<bool> inside{false};
    done_in_child = 0;
    for (int i = 0; i < 8; ++i)
      run_in_background([&] {
        inside = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        inside = false;
        ++done_in_child;
      });
    static std::atomic<bool>* seen;
    seen = &inside;
    EXPECT_EQ(child_status([] {
                if (*seen) ::_exit(2);  // forked in the middle of a job
                finish_background();
                if (done_in_child != 8) ::_exit(3);
                run_together(std::vector<std::function<void()>>(4, [] { ++done_in_child; }));
                if (done_in_child != 12) ::_exit(4);
              }),
              0);
    finish_background();
    EXPECT_EQ(done_in_child, 8);
  }
  stop = true;
  busy.join();
}

/// As LLVM's tables: made on first use, so destroyed before every exit handler registered till then runs.
struct Table {
  std::atomic<bool> alive{true};
  ~Table() { alive = false; }
};

Table& table() {
  static Table made;
  return made;
}

TEST(Background, JobsAndSectionsEndBeforeStaticDestructors) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer dies where a forked child has threads when it exits (`dup thread with used id`)";
#endif
  EXPECT_EQ(child_status([] {
              static std::atomic<int> begun{0};
              static const auto look = [] {
                const Table& used = table();
                ++begun;
                for (int i = 0; i < 50; ++i) {
                  if (!used.alive) ::_exit(5);
                  std::this_thread::sleep_for(std::chrono::milliseconds(1));
                }
              };
              run_in_background([] { look(); });
              std::thread([] {
                const NoFork section;
                look();
              }).detach();
              while (begun < 2) std::this_thread::yield();
              end_background();
              run_in_background([] { ::_exit(6); });
              std::exit(0);
            }),
            0);
}

}  // namespace
}  // namespace fj
