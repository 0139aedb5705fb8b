/// What regions (graph_ir/region/region.h) call that works on memory: arrays that they make, sums, products.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"

namespace fj {

/// The arrays that one run of a region has made. What is not marked when it is swept is used again: a region marks, at
/// each jump back, what its variables hold.
class RegionHeap {
 public:
  RegionHeap() = default;
  RegionHeap(const RegionHeap&) = delete;
  ~RegionHeap();

  /// Where it begins, at a multiple of 64; 0: there is no memory.
  std::int64_t allocate(std::int64_t bytes);
  void mark(std::int64_t address);
  void sweep();
  /// Nobody needs it any more.
  void release(std::int64_t address);

 private:
  struct Block {
    std::int64_t address, bytes;
    bool used, marked;
  };
  std::vector<Block> blocks_;
};

/// A function of region_library.def. It takes the heap, then its operands; matrices and vectors as address, sizes and
/// strides, in elements.
struct LibraryFunction {
  std::string_view name;
  std::optional<DType> result;
  std::vector<DType> operands;
  const void* address;
  /// Called with values in the low bytes of cells, as is its result.
  std::uint64_t (*invoke)(RegionHeap&, const std::uint64_t* operands);
};
std::span<const LibraryFunction> region_library();
/// -1: none is called so.
int library_number(std::string_view name);

}  // namespace fj
