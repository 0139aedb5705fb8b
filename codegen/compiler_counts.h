/// What became of the kernels asked for, since the process started or the last reset.
#pragma once

#include <atomic>
#include <cstdint>

namespace fj {

struct CompilerCounts {
  std::atomic<std::uint64_t> quick{0};      // compiled in the quick tier
  std::atomic<std::uint64_t> optimised{0};  // compiled in the optimised tier
  std::atomic<std::uint64_t> loaded{0};     // read from disk
  std::atomic<std::uint64_t> shared{0};     // there already, in this process
  std::atomic<std::uint64_t> failed{0};     // optimised code that could not be made
};

CompilerCounts& compiler_counts();
void reset_compiler_counts();

}  // namespace fj
