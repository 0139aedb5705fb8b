// GNU's OpenMP runtime as torch brings it along, found like torch's matrix products (blas.cpp): by looking at what is
// loaded. Its entry point is the one compilers call for `#pragma omp parallel`, a documented part of its binary
// interface.
#include "runtime/library_team.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "runtime/base/clock.h"

namespace fj {
namespace {

// Longer than waking a thread takes: our own threads could have come.
constexpr std::int64_t kWorthWaking = 100'000;
// Loops on the team before our own threads are tried again: the library may have long stopped using it.
constexpr int kStay = 256;
constexpr int kMostPatience = 4096;

struct Loaded {
  unsigned long long loads = 0;
  std::string torch;
};

int collect(dl_phdr_info* info, std::size_t, void* data) {
  auto& loaded = *static_cast<Loaded*>(data);
  loaded.loads = info->dlpi_adds;
  const std::string path = info->dlpi_name != nullptr ? info->dlpi_name : "";
  if (path.find("libtorch_cpu", path.find_last_of('/') + 1) != std::string::npos) loaded.torch = path;
  return 0;
}

int count_loads(dl_phdr_info* info, std::size_t, void* data) {
  *static_cast<unsigned long long*>(data) = info->dlpi_adds;
  return 1;
}

struct Watched {
  void (*body)(void*);
  void* context;
  const char* caller;
  std::int64_t caller_done = 0;
};

thread_local const char this_thread = 0;  // its address tells threads apart

}  // namespace

bool on_main_thread() {
  thread_local const bool is_main = pid_t(syscall(SYS_gettid)) == getpid();
  return is_main;
}

LibraryTeam& library_team() {
  static LibraryTeam team;
  return team;
}

// From the start, not from the first use: a child that is the first to use a team would wait for threads its parent
// had.
[[maybe_unused]] const int watches_forks = pthread_atfork(nullptr, nullptr, [] { library_team().forget(); });

bool LibraryTeam::find() {
  if (parallel_ != nullptr) return true;
  unsigned long long loads = 0;
  dl_iterate_phdr(count_loads, &loads);
  if (loads == loads_seen_) return false;
  loads_seen_ = loads;
  Loaded loaded;
  dl_iterate_phdr(collect, &loaded);
  if (loaded.torch.empty()) return false;
  // Symbols of what torch itself was linked to: another OpenMP in the process has other threads.
  void* library = dlopen(loaded.torch.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  parallel_ = reinterpret_cast<Parallel>(dlsym(library, "GOMP_parallel"));
  most_threads_ = reinterpret_cast<int (*)()>(dlsym(library, "omp_get_max_threads"));
  if (most_threads_ == nullptr) parallel_ = nullptr;
  return parallel_ != nullptr;
}

void LibraryTeam::note_own(bool helped, std::int64_t nanoseconds) {
  if (left_ > 0) --left_;
  if (!helped && nanoseconds > kWorthWaking && left_ == 0 && !forgotten_ && find()) {
    in_use_ = true;
    left_ = kStay;
  }
}

bool LibraryTeam::wanted(int threads) { return in_use_ && !forgotten_ && most_threads_() == threads; }

void LibraryTeam::run(void (*body)(void*), void* context, int threads) {
  Watched watched{body, context, &this_thread};
  const std::int64_t begin = nanoseconds_now();
  parallel_(
      [](void* data) {
        auto& job = *static_cast<Watched*>(data);
        job.body(job.context);
        if (&this_thread == job.caller) job.caller_done = nanoseconds_now();
      },
      &watched, unsigned(threads), 0);
  const std::int64_t end = nanoseconds_now(), waited = end - watched.caller_done, worked = watched.caller_done - begin;
  if (waited > std::max(worked, kWorthWaking)) {
    in_use_ = false;
    left_ = patience_;
    patience_ = std::min(2 * patience_, kMostPatience);
  } else if (--left_ <= 0) {
    in_use_ = false;  // one loop of our own; back at once if nobody helps with it
    left_ = 0;
    patience_ = 16;
  }
}

}  // namespace fj
