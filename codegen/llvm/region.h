/// Machine code of regions (graph_ir/region/region.h): a function with a basic block for each block, scalars in
/// registers, loads and stores in the order of the text.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "codegen/llvm/machine.h"
#include "graph_ir/region/region.h"
#include "runtime/kernel_code.h"
#include "runtime/region_library.h"

namespace fj {

class Code;
enum class LoopForm : std::uint8_t;

class CompiledRegion {
 public:
  /// A scalar as the low bytes of a cell, in its form in memory.
  using Cell = std::uint64_t;
  using Asked = std::array<const volatile std::uint8_t*, 2>;

  /// `memories`: where each begins; the code checks no index. `left` has room for the values of every exit. Returns the
  /// exit's number. `asked`: one is not 0 as soon as the region is to be left (leave_if_asked). Needs no lock.
  /// `heap`: what the region allocates is there until it is destroyed.
  int run(const Cell* inputs, void* const* memories, Cell* left, const Asked& asked, RegionHeap& heap) const {
    return function_(inputs, memories, left, asked.data(), &heap);
  }

 private:
  friend std::unique_ptr<CompiledRegion> compile_region(const region::Region&, const Target&, LoopForm);
  using Function = int (*)(const Cell*, void* const*, Cell*, const volatile std::uint8_t* const*, RegionHeap*);
  std::shared_ptr<const Code> code_;
  Function function_ = nullptr;
};

/// How the innermost loops of a region run: as they are, in chunks (graph_ir/region/chunks.h), which takes about twice
/// as long to compile, or in chunks that take for granted what is mostly so. All compute the same bits.
enum class LoopForm : std::uint8_t { Plain, Chunks, GrantingChunks };
/// The region is verified.
std::unique_ptr<CompiledRegion> compile_region(const region::Region& region, const Target& target, LoopForm form);
/// Optimised LLVM IR and assembly, to read, as for memories that share no element.
std::string region_listing(const region::Region& region, const Target& target);

}  // namespace fj
