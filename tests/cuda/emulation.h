/// CUDA's execution model on one CPU thread: enough of it that a generated kernel compiles as it is and computes the
/// same numbers.
///
/// Every thread of a block is a fiber that runs until it waits: at __syncthreads for the block, at a shuffle for its
/// warp. The order is unfair on purpose: warps have ranks, drawn anew after every barrier, and one runs as far as it
/// can before the next is let on, its lanes in an order drawn at random. So what one thread writes and another reads
/// without a barrier between them comes out wrong, and so does what is overwritten before all have read it. A barrier
/// that not all threads reach, and a shuffle that not all lanes of a warp reach, end the launch with a sentence.
///
/// Put before the text of translation_unit(); one such text per shared object.
#pragma once

#include <cmath>
#include <cstring>
#include <ucontext.h>
#include <vector>

#define FJ_EMULATION
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(threads, blocks)

namespace emulation {

struct Dimension { unsigned x = 0, y = 0, z = 0; };

enum class Shuffle { Down, Up, From };

struct Thread {
  ucontext_t context;
  Dimension index;
  std::vector<char> stack;
  Shuffle shuffle;
  int argument;
  unsigned long long value;
  bool done;
};

struct Block {
  ucontext_t scheduler;
  std::vector<Thread> threads;
  std::vector<std::vector<unsigned>> ready, at_shuffle;  // thread numbers, by warp
  std::vector<unsigned> ranks;                           // warps, the first to run first
  std::vector<unsigned> at_barrier;
  unsigned running = 0, done = 0;
  const char* error = nullptr;
  void (*kernel)(void*);
  void* arguments;
};

inline Block block;
inline Dimension block_index, grid_size;
inline unsigned long long random_state = 1;

// What the caller of a launch says and hears.
inline long blocks = 1, seed = 1;
inline bool one_at_a_time = false;  // kernels that take no packs
inline long launches = 0, packed_launches = 0;
inline const char* error = nullptr;

inline unsigned long long random() {
  random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
  return random_state;
}

inline void draw_ranks() {
  for (std::size_t i = block.ranks.size(); i > 1; --i) std::swap(block.ranks[i - 1], block.ranks[random() % i]);
}

inline void make_ready(unsigned thread) { block.ready[thread / 32].push_back(thread); }

/// The next thread to run; false: none is ready.
inline bool next() {
  for (unsigned warp : block.ranks) {
    auto& ready = block.ready[warp];
    if (ready.empty()) continue;
    const std::size_t at = random() % ready.size();
    block.running = ready[at];
    ready[at] = ready.back();
    ready.pop_back();
    return true;
  }
  return false;
}

inline Thread& self() { return block.threads[block.running]; }
inline void wait() { swapcontext(&self().context, &block.scheduler); }

inline void barrier() {
  block.at_barrier.push_back(block.running);
  if (block.at_barrier.size() == block.threads.size()) {
    for (unsigned thread : block.at_barrier) make_ready(thread);
    block.at_barrier.clear();
    draw_ranks();
  }
  wait();
}

inline unsigned long long exchange(Shuffle shuffle, unsigned long long value, int argument) {
  Thread& thread = self();
  thread.shuffle = shuffle, thread.value = value, thread.argument = argument;
  const unsigned warp = block.running / 32;
  auto& lanes = block.at_shuffle[warp];
  lanes.push_back(block.running);
  if (lanes.size() == 32) {
    unsigned long long results[32];
    for (int lane = 0; lane < 32; ++lane) {
      const Thread& there = block.threads[warp * 32 + unsigned(lane)];
      if (there.shuffle != shuffle) block.error = "the lanes of a warp are at different shuffles";
      const int from = there.shuffle == Shuffle::Down ? lane + there.argument
                       : there.shuffle == Shuffle::Up ? lane - there.argument
                                                      : there.argument;
      results[lane] = block.threads[warp * 32 + unsigned(from < 0 || from > 31 ? lane : from)].value;
    }
    for (int lane = 0; lane < 32; ++lane) block.threads[warp * 32 + unsigned(lane)].value = results[lane];
    for (unsigned thread : lanes) make_ready(thread);
    lanes.clear();
  }
  wait();
  return self().value;
}

template <class T>
T shuffled(Shuffle shuffle, T value, int argument) {
  unsigned long long bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = exchange(shuffle, bits, argument);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline void run_thread() {
  block.kernel(block.arguments);
  self().done = true;
  ++block.done;
  wait();
}

inline bool aligned(const void* pointer) { return reinterpret_cast<unsigned long>(pointer) % 16 == 0; }

/// With `blocks` blocks, drawing from `seed`; `error` says what was wrong.
inline void launch(unsigned threads, void (*kernel)(void*), void* arguments) {
  ++launches;
  random_state = (unsigned long long)(seed++) * 0x9e3779b97f4a7c15ull + 1;
  grid_size.x = unsigned(blocks);
  block.kernel = kernel, block.arguments = arguments, block.error = nullptr;
  block.threads.resize(threads);
  const unsigned warps = (threads + 31) / 32;
  block.ranks.clear();
  for (unsigned warp = 0; warp < warps; ++warp) block.ranks.push_back(warp);
  std::vector<unsigned> order;
  for (unsigned b = 0; b < grid_size.x; ++b) order.insert(order.begin() + long(random() % (order.size() + 1)), b);
  for (unsigned b : order) {
    block_index.x = b;
    block.done = 0;
    block.at_barrier.clear();
    block.at_shuffle.assign(warps, {});
    block.ready.assign(warps, {});
    draw_ranks();
    for (unsigned t = 0; t < threads; ++t) {
      Thread& thread = block.threads[t];
      thread.index.x = t, thread.done = false;
      thread.stack.resize(65536);
      getcontext(&thread.context);
      thread.context.uc_stack.ss_sp = thread.stack.data();
      thread.context.uc_stack.ss_size = thread.stack.size();
      thread.context.uc_link = nullptr;
      makecontext(&thread.context, run_thread, 0);
      make_ready(t);
    }
    while (next()) {
      swapcontext(&block.scheduler, &block.threads[block.running].context);
      if (block.error) break;
    }
    if (!block.error && block.done != threads)
      block.error = block.done + block.at_barrier.size() < threads ? "a shuffle that not all lanes of a warp reach"
          : "a barrier that not all threads of a block reach";
    if (block.error) error = block.error;
    if (error) return;
  }
}

}  // namespace emulation

extern "C" {
inline void emulation_set(long blocks, long seed, bool one_at_a_time) {
  emulation::blocks = blocks, emulation::seed = seed, emulation::one_at_a_time = one_at_a_time,
  emulation::error = nullptr;
}
inline const char* emulation_error() { return emulation::error; }
inline long emulation_packed_launches() { return emulation::packed_launches; }
}
// Names that a shared object has only if they are used.
void (*const emulation_uses[])() = {reinterpret_cast<void (*)()>(emulation_set),
                                    reinterpret_cast<void (*)()>(emulation_error),
                                    reinterpret_cast<void (*)()>(emulation_packed_launches)};

#define threadIdx (emulation::self().index)
#define blockIdx emulation::block_index
#define gridDim emulation::grid_size

inline void __syncthreads() { emulation::barrier(); }
template <class T>
T __shfl_down_sync(unsigned, T value, int distance) {
  return emulation::shuffled(emulation::Shuffle::Down, value, distance);
}
template <class T>
T __shfl_up_sync(unsigned, T value, int distance) {
  return emulation::shuffled(emulation::Shuffle::Up, value, distance);
}
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return emulation::shuffled(emulation::Shuffle::From, value, lane);
}
template <class T> T atomicAdd(T* to, T value) { const T old = *to; *to = T(old + value); return old; }
inline unsigned atomicOr(unsigned* to, unsigned bits) { const unsigned old = *to; *to |= bits; return old; }

namespace fj {

inline unsigned bits_of(float x) { unsigned bits; std::memcpy(&bits, &x, 4); return bits; }
inline unsigned long long bits_of(double x) { unsigned long long bits; std::memcpy(&bits, &x, 8); return bits; }
inline float float_of(unsigned bits) { float x; std::memcpy(&x, &bits, 4); return x; }
inline double double_of(unsigned long long bits) { double x; std::memcpy(&x, &bits, 8); return x; }

inline float half_to_float(unsigned short bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
                          : exponent     ? std::ldexp(float(fraction + 1024), exponent - 25)
                                         : std::ldexp(float(fraction), -24);
  return bits & 0x8000 ? -magnitude : magnitude;
}
inline unsigned short float_to_half(float x) {
  const unsigned short sign = std::signbit(x) ? 0x8000 : 0;
  if (x != x) return sign | 0x7e00;
  const float magnitude = std::fabs(x);
  if (magnitude >= 65520.0f) return sign | 0x7c00;
  if (magnitude == 0) return sign;
  int exponent;
  std::frexp(magnitude, &exponent);
  if (exponent < -13) exponent = -13;
  // In units of the last place: a carry moves into the exponent by itself.
  const int units = int(std::nearbyint(std::ldexp(double(magnitude), 11 - exponent)));
  return (unsigned short)(sign | (units + ((exponent + 13) << 10)));
}

}  // namespace fj
