/// The bounds of the thread's stack are asked once for each thread; a look compares an address with them.
#include "frame_hook/c_stack.h"

#if defined(_WIN32)
#include <intrin.h>
#include <windows.h>
#else
#include <pthread.h>
#endif
#if defined(__linux__)
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <cstdint>

#include "runtime/base/room.h"

namespace fj {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kFrames = 6;  // frames are about that much larger: locals have guard zones
#else
constexpr std::size_t kFrames = 1;
#endif

struct Bounds {
  std::uintptr_t low = 0, full = 0, short_of = 0;  // below these addresses; 0: not known
};

Bounds bounds_of_thread() {
  std::uintptr_t low = 0;
  std::size_t size = 0;
#if defined(_WIN32)
  ULONG_PTR first = 0, last = 0;
  GetCurrentThreadStackLimits(&first, &last);
  low = first;
  size = last - first;
#elif defined(__APPLE__)
  size = pthread_get_stacksize_np(pthread_self());
  low = reinterpret_cast<std::uintptr_t>(pthread_get_stackaddr_np(pthread_self())) - size;
#else
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
  void* address = nullptr;
  if (pthread_attr_getstack(&attributes, &address, &size) == 0) low = reinterpret_cast<std::uintptr_t>(address);
  pthread_attr_destroy(&attributes);
#endif
  if (low == 0 || size == 0) return {};
  // What CPython's own deepest C code and a handler of the RecursionError need; what a compilation takes: 64 to 96 KiB
  // were too little for 60 nodes, and a thread whose whole stack is smaller compiles nothing.
  const std::size_t reserve = kFrames * std::min<std::size_t>(size / 8, 192 << 10);
  const std::size_t compilation = kFrames * std::clamp<std::size_t>(size / 4, 256 << 10, 1 << 20);
  return {low, low + reserve, low + compilation};
}

const Bounds& this_thread() {
  static thread_local const Bounds bounds = bounds_of_thread();
  return bounds;
}

}  // namespace

CStack c_stack() {
  const Bounds& bounds = this_thread();
#if defined(_MSC_VER)
  const auto address = reinterpret_cast<std::uintptr_t>(_AddressOfReturnAddress());
#else
  const auto address = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
#endif
  // A fiber's stack lies elsewhere: nothing is known of it.
  return address >= bounds.short_of || address < bounds.low ? CStack::Ample
         : address >= bounds.full                           ? CStack::Short
                                                            : CStack::Full;
}

#if defined(__linux__)
void deepen_c_stack() {
  static std::uintptr_t lowest = UINTPTR_MAX;  // the first thread alone reads and writes it
  rlimit bound;
  if (pid_t(syscall(SYS_gettid)) != getpid() || getrlimit(RLIMIT_AS, &bound) != 0 || bound.rlim_cur == RLIM_INFINITY)
    return;
  constexpr std::size_t kDepth = kFrames << 20, kPage = 4096;
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  const Bounds& bounds = this_thread();
  if (here < bounds.short_of || here < bounds.low + kDepth || (lowest < here && here - lowest >= kDepth / 2))
    return;
  require_room(kDepth);
  auto* const pages = static_cast<volatile char*>(__builtin_alloca(kDepth));
  for (std::size_t at = kDepth; at >= kPage; at -= kPage) pages[at - 1] = 0;  // from its end: it grows downwards
  lowest = here - kDepth;
}
#else
void deepen_c_stack() {}
#endif

}  // namespace fj
