/// Threads over cores for loops of independent chunks.
///
/// The caller works too: it claims chunks from the same counter as the workers and waits only for chunks that somebody
/// has claimed, never for a sleeping worker to arrive. A short loop is therefore over at the caller's own speed, and a
/// descheduled worker that claimed nothing holds nobody up. Workers spin for some microseconds after a loop, then
/// sleep. Several threads may call at once; a call from inside a chunk runs inline. After a fork the child starts
/// afresh.
#pragma once

#include <cstdint>

namespace fj {

/// Threads that work on a loop, the caller included: what affinity and the container's quota allow, or what was set.
int thread_count();
/// 0: the default again. Takes effect for the loops that start after it.
void set_thread_count(int threads);

/// Calls body(context, chunk) for each chunk in [0, chunks), in any order, on any thread; returns when all are done.
/// The body must not throw. `threads`: work on at most so many; 0: thread_count().
void parallel_for(std::int64_t chunks, void (*body)(void* context, std::int64_t chunk), void* context, int threads = 0);

}  // namespace fj
