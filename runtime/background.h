/// Compiling beside the program: a few threads of our own, started when first needed.
///
/// Fork: the forking thread waits until no thread is inside a NoFork section (a compilation of one piece at most), so
/// that the child finds every lock free and every structure whole. The child has no threads; jobs that waited are its
/// as well and run when it next starts a thread. Exit: what has not begun is dropped, what has is waited for. That has
/// to be over before the first static destructor runs: LLVM makes tables on first use, so those made by a job die
/// before an exit handler of ours runs.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace fj {

/// Held by whoever uses LLVM or the queue's own structures.
class NoFork {
 public:
  NoFork();
  ~NoFork();
  NoFork(const NoFork&) = delete;
};

/// Runs when a thread is free. A job must not throw.
void run_in_background(std::function<void()> job);

/// Runs all jobs on the background threads and the caller and returns when the last is done; urgent: they go before
/// those of run_in_background. Rethrows the first exception.
void run_together(const std::vector<std::function<void()>>& jobs);

/// Waits until every job given so far is done.
void finish_background();
/// Drops what waits, waits for what runs and for the NoFork sections of other threads; later jobs are dropped. The host
/// calls it when the program ends, before `exit`.
void end_background();
/// `job` runs, in a NoFork section, each time that the threads, or callers of run_together, have worked and then the
/// threads had nothing to do for a second: what is kept for the next job may go. Given once, at any time.
void when_idle(void (*job)());
/// Jobs waiting or running.
std::size_t background_jobs();

}  // namespace fj
