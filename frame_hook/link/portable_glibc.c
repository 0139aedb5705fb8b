/* What lets the extension run with glibc 2.28, wherever it was built. The linker binds a name to the newest version on
 * the machine that builds, in our code and in what is linked in (LLVM, libstdc++, zstd). These definitions come first:
 * a row of the table leads to the version that every glibc of the processor has, a function does by older means what its
 * namesake does. None can be seen from outside. tests/packaging/wheel_checks.py names what is newer and not here. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#if !defined(__GLIBC__)
#error "FRAMEJIT_PORTABLE knows the versions of glibc alone"
#elif defined(__x86_64__)
#define FJ_FIRST "GLIBC_2.2.5"
#define FJ_LAYOUT 1
#define FJ_JUMP(to) "  jmp *" to "@GOTPCREL(%rip)\n"
#elif defined(__aarch64__)
#define FJ_FIRST "GLIBC_2.17"
#define FJ_LAYOUT 0
#define FJ_JUMP(to) "  adrp x16, :got:" to "\n  ldr x16, [x16, :got_lo12:" to "]\n  br x16\n"
#else
#error "FRAMEJIT_PORTABLE does not know the versions of glibc on this processor"
#endif

/* A jump leaves arguments, results and the caller's address as they are, so a row needs no signature. */
#define FJ_OLD_AS(name, old)                                     \
  __asm__(".symver fj_old_" #name "," #old "@" FJ_FIRST "\n"     \
          ".pushsection .text." #name ",\"ax\"\n"                \
          ".globl " #name "\n"                                   \
          ".hidden " #name "\n"                                  \
          ".type " #name ",@function\n"                          \
          #name ":\n"                                            \
          "  .cfi_startproc\n"                                   \
          FJ_JUMP("fj_old_" #name)                               \
          "  .cfi_endproc\n"                                     \
          ".size " #name ",.-" #name "\n"                        \
          ".popsection\n")
#define FJ_OLD(name) FJ_OLD_AS(name, name)

/* New in 2.29, 2.35, 2.38, 2.39 and 2.43 because they no longer look for the error handling of System V, which nobody can
 * ask for any more. The values are the same. */
FJ_OLD(acosf);
FJ_OLD(acoshf);
FJ_OLD(asinf);
FJ_OLD(atan2f);
FJ_OLD(atanhf);
FJ_OLD(coshf);
FJ_OLD(exp);
FJ_OLD(exp10);
FJ_OLD(exp2);
FJ_OLD(fmod);
FJ_OLD(fmodf);
FJ_OLD(hypot);
FJ_OLD(hypotf);
FJ_OLD(log);
FJ_OLD(log10f);
FJ_OLD(log2);
FJ_OLD(pow);
FJ_OLD(sinhf);
FJ_OLD(sqrtf);
/* New in 2.32 and 2.34, which moved libpthread and libdl into libc. */
FJ_OLD(dladdr);
FJ_OLD(dlclose);
FJ_OLD(dlerror);
FJ_OLD(dlopen);
FJ_OLD(dlsym);
FJ_OLD(pthread_attr_getstack);
FJ_OLD(pthread_create);
FJ_OLD(pthread_detach);
FJ_OLD(pthread_getattr_np);
FJ_OLD(pthread_join);
FJ_OLD(pthread_once);
FJ_OLD(pthread_rwlock_rdlock);
FJ_OLD(pthread_rwlock_unlock);
FJ_OLD(pthread_rwlock_wrlock);
FJ_OLD(pthread_sigmask);
/* New in 2.38, for binary numbers with 0b in front: only LLVM's parsers of text call them, and none reads such. */
FJ_OLD_AS(__isoc23_sscanf, sscanf);
FJ_OLD_AS(__isoc23_strtol, strtol);
FJ_OLD_AS(__isoc23_strtoll, strtoll);
FJ_OLD_AS(__isoc23_strtoul, strtoul);
FJ_OLD_AS(__isoc23_strtoull, strtoull);

#define FJ_HIDDEN __attribute__((visibility("hidden")))

/* New in 2.33: before, headers led to functions that are told the layout, which is FJ_LAYOUT for `stat` and
 * 0 for `mknod`. On both processors the names with 64 are the same. */
int __xstat(int layout, const char* path, struct stat* result);
int __fxstat(int layout, int file, struct stat* result);
int __lxstat(int layout, const char* path, struct stat* result);
int __fxstatat(int layout, int folder, const char* path, struct stat* result, int flags);
int __xmknod(int layout, const char* path, mode_t mode, dev_t* device);

FJ_HIDDEN int stat(const char* path, struct stat* result) { return __xstat(FJ_LAYOUT, path, result); }
FJ_HIDDEN int fstat(int file, struct stat* result) { return __fxstat(FJ_LAYOUT, file, result); }
FJ_HIDDEN int lstat(const char* path, struct stat* result) { return __lxstat(FJ_LAYOUT, path, result); }
FJ_HIDDEN int fstatat(int folder, const char* path, struct stat* result, int flags) {
  return __fxstatat(FJ_LAYOUT, folder, path, result, flags);
}
FJ_HIDDEN int mknod(const char* path, mode_t mode, dev_t device) { return __xmknod(0, path, mode, &device); }
FJ_HIDDEN int stat64(const char* path, struct stat64* result) { return __xstat(FJ_LAYOUT, path, (struct stat*)result); }
FJ_HIDDEN int fstat64(int file, struct stat64* result) { return __fxstat(FJ_LAYOUT, file, (struct stat*)result); }
FJ_HIDDEN int lstat64(const char* path, struct stat64* result) { return __lxstat(FJ_LAYOUT, path, (struct stat*)result); }

/* New in 2.32; false is always right. The C++ library's counters of references ask whether they may be plain. */
FJ_HIDDEN char __libc_single_threaded = 0;

/* New in 2.30. The moment by the clock of the day, as the C++ library does where this is missing; if that clock is set
 * meanwhile the wait ends early or late, and callers look at their own clock again. */
FJ_HIDDEN int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                     const struct timespec* until) {
  if (clock == CLOCK_REALTIME) return pthread_cond_timedwait(condition, mutex, until);
  struct timespec now, real;
  if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &real) != 0) return EINVAL;
  real.tv_sec += until->tv_sec - now.tv_sec;
  real.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (real.tv_nsec < 0) {
    real.tv_nsec += 1000000000;
    --real.tv_sec;
  } else if (real.tv_nsec >= 1000000000) {
    real.tv_nsec -= 1000000000;
    ++real.tv_sec;
  }
  return pthread_cond_timedwait(condition, mutex, &real);
}

/* New in 2.33; LLVM's statistics of memory, which are never asked for. */
FJ_HIDDEN struct mallinfo2 mallinfo2(void) {
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const struct mallinfo old = mallinfo();
  return (struct mallinfo2){.arena = (unsigned)old.arena, .hblks = (unsigned)old.hblks,
                            .hblkhd = (unsigned)old.hblkhd, .uordblks = (unsigned)old.uordblks,
                            .fordblks = (unsigned)old.fordblks, .keepcost = (unsigned)old.keepcost};
}

/* New in 2.36. */
FJ_HIDDEN void arc4random_buf(void* bytes, size_t count) {
  for (char* next = bytes; count != 0;) {
    const ssize_t got = getrandom(next, count, 0);
    if (got < 0 && errno != EINTR) abort();
    if (got <= 0) continue;
    next += got;
    count -= (size_t)got;
  }
}
FJ_HIDDEN uint32_t arc4random(void) {
  uint32_t bits;
  arc4random_buf(&bits, sizeof bits);
  return bits;
}
