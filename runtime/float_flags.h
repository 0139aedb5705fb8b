/// The IEEE conditions that a thread's arithmetic has raised: invalid, division by zero, overflow, underflow.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "runtime/program.h"

namespace fj {

#if defined(__x86_64__)
inline constexpr unsigned kFlagBits = 0x3f;
inline unsigned read_flags() { return _mm_getcsr(); }
inline void write_flags(unsigned flags) { _mm_setcsr(flags); }
inline std::uint32_t conditions(unsigned flags) {
  return ((flags & 0x01) ? kFloatInvalid : 0u) | ((flags & 0x04) ? kFloatDivide : 0u) |
         ((flags & 0x08) ? kFloatOverflow : 0u) | ((flags & 0x10) ? kFloatUnderflow : 0u);
}
#elif defined(__aarch64__)
inline constexpr unsigned kFlagBits = 0x9f;
inline unsigned read_flags() {
  std::uint64_t flags;
  __asm__ volatile("mrs %0, fpsr" : "=r"(flags));
  return unsigned(flags);
}
inline void write_flags(unsigned flags) { __asm__ volatile("msr fpsr, %0" : : "r"(std::uint64_t(flags))); }
inline std::uint32_t conditions(unsigned flags) {
  return ((flags & 0x01) ? kFloatInvalid : 0u) | ((flags & 0x02) ? kFloatDivide : 0u) |
         ((flags & 0x04) ? kFloatOverflow : 0u) | ((flags & 0x08) ? kFloatUnderflow : 0u);
}
#else
inline constexpr unsigned kFlagBits = 0;
inline unsigned read_flags() { return 0; }
inline void write_flags(unsigned) {}
inline std::uint32_t conditions(unsigned) { return 0; }
#endif

/// Sticky IEEE conditions raised on this thread between construction and `raised`.
class Conditions {
 public:
  explicit Conditions(bool collect) : collect_(collect) {
    if (!collect_) return;
    before_ = read_flags();
    write_flags(before_ & ~kFlagBits);
  }
  ~Conditions() {
    if (collect_) write_flags(before_);
  }
  std::uint32_t raised() const { return collect_ ? conditions(read_flags()) : 0; }

 private:
  bool collect_;
  unsigned before_ = 0;
};

}  // namespace fj
