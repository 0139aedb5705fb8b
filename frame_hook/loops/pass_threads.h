/// The passes of a region on several threads (PassThreads): stretches of them, each a run of the region of its own,
/// whose gathered numbers are put together in the order of the passes, however many threads there are.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "arrays/arrays.h"
#include "codegen/llvm/region.h"
#include "tracer/regions/loop_region.h"

namespace fj {

struct PassesToRun {
  const LoopRegion& loop;
  const CompiledRegion& code;
  std::span<const CompiledRegion::Cell> inputs;
  std::span<void* const> memories;
  std::span<const ArrayView> arrays;  // by memory, heaps left out
  const volatile std::uint8_t* signal;  // not 0: stretches that have not begun are left
  std::size_t most_left;              // values of an exit
  int threads;
};

struct PassesRun {
  int exit;
  std::vector<CompiledRegion::Cell> left;
  std::unique_ptr<RegionHeap> heap;   // of what was left
  int undone;                         // as RegionHeap says, of all stretches
  std::optional<std::int64_t> next;   // where passes are left, because somebody asks: the number that is the next one's
};

/// How many passes there are.
std::int64_t count_passes(const PassThreads& threads, const LoopRegion& loop,
                          std::span<const CompiledRegion::Cell> inputs);

/// Stretches of so many passes, of which each thread takes the next one when it has done one; 1: nothing for several
/// threads. More of a long loop, because a signal waits for the end of some; of short passes few, because each begins
/// slowly (graph_ir/region/chunks.h). Their number does not depend on that of the threads: sums are the same on all
/// machines.
std::int64_t count_stretches(const PassThreads& threads, std::int64_t passes);

/// Whether what is stored lies apart from all else, each element in a place of its own.
bool are_apart(const LoopRegion& loop, std::span<const ArrayView> arrays);

/// Without the GIL; on one thread, for what is gathered, if `threads` is 1. Nothing: a pass leaves the region, or what is gathered grows too large; memory is as it was, but
/// for elements that passes store and do not read.
std::optional<PassesRun> run_on_threads(const PassesToRun& run);

}  // namespace fj
