/// The levels of processors that machine code is built for.
#pragma once

#include <string_view>

namespace fj {

/// Whether this processor can run code for `cpu`, a name of `processor_levels`.
inline bool processor_has(std::string_view cpu) {
#if defined(__x86_64__)
  if (cpu == "x86-64-v4") return __builtin_cpu_supports("x86-64-v4");
  if (cpu == "x86-64-v3") return __builtin_cpu_supports("x86-64-v3");
  if (cpu == "x86-64-v2") return __builtin_cpu_supports("x86-64-v2");
  return cpu == "x86-64";
#else
  return cpu == "generic";
#endif
}

/// From the least demanding one on.
inline constexpr std::string_view kProcessorLevels[] = {
#if defined(__x86_64__)
    "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4",
#else
    "generic",  // of aarch64: NEON is part of it
#endif
};

}  // namespace fj
