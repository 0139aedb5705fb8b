/// The threads of the array library already in the process (torch's OpenMP team), for our own parallel loops.
///
/// After each of its operations torch's threads stay awake for milliseconds, each on a core of its own: threads of ours
/// then don't get those cores before the loop is over, and it runs on one core. Joining that team costs a microsecond.
/// It has one fault, for which it is only used while it serves: a loop waits for every member, also for one that lost
/// its core to somebody else. So each loop is watched, on both sides: `parallel_for` in thread_pool.h goes to the team
/// when its own threads came too late for a whole loop, and comes back when the team kept it waiting.
#pragma once

#include <cstdint>

namespace fj {

class LibraryTeam {
 public:
  /// How our own threads did in a loop of `nanoseconds`: `helped` if they took a part of it.
  void note_own(bool helped, std::int64_t nanoseconds);
  /// True if the next loop should go to the team: on the main thread, with as many threads as the library uses.
  bool wanted(int threads);
  /// Runs `body(context)` on every member, the caller being one. `body` returns when there is nothing left to do.
  void run(void (*body)(void*), void* context, int threads);
  /// A forked child has no team, and must not ask for one.
  void forget() { forgotten_ = true; }

 private:
  bool find();

  using Parallel = void (*)(void (*)(void*), void*, unsigned threads, unsigned flags);
  Parallel parallel_ = nullptr;
  int (*most_threads_)() = nullptr;
  unsigned long long loads_seen_ = 0;
  bool forgotten_ = false;
  bool in_use_ = false;
  int left_ = 0;       // loops until the side not in use is tried again
  int patience_ = 16;  // loops to stay away after the team kept one waiting; doubles each time
};

/// Of the main thread, which is the only one that uses it.
LibraryTeam& library_team();
bool on_main_thread();

}  // namespace fj
