/// What regions (graph_ir/region/region.h) call that works on memory: arrays that they make, sums, products.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"

namespace fj {

/// Python's lists, by their addresses in words of 8 bytes: what a region changes of them it changes through this, with
/// the GIL. False: nothing has happened, and CPython is to do it. Numbers that go from a list are there until as many
/// others have gone.
class RegionLists {
 public:
  static constexpr int kGone = 64;
  virtual ~RegionLists() = default;
  /// An item, whose index is in range, becomes the number. What was there before is a number, or None.
  virtual bool put(std::int64_t list, std::int64_t index, double number) = 0;
  virtual bool put(std::int64_t list, std::int64_t index, std::int64_t number) = 0;
  virtual bool put(std::int64_t list, std::int64_t index, std::uint64_t number) = 0;
  virtual bool put(std::int64_t list, std::int64_t index, bool number) = 0;
  /// A number that has been read from a list: the same object.
  virtual bool put_item(std::int64_t list, std::int64_t index, std::int64_t number) = 0;
  virtual bool append_item(std::int64_t list, std::int64_t number) = 0;
  virtual bool append(std::int64_t list, double number) = 0;
  virtual bool append(std::int64_t list, std::int64_t number) = 0;
  virtual bool append(std::int64_t list, std::uint64_t number) = 0;
  virtual bool append(std::int64_t list, bool number) = 0;
  /// A scalar of NumPy's, by its bytes.
  virtual bool put_numpy(std::int64_t list, std::int64_t index, DType dtype, const void* number) = 0;
  virtual bool append_numpy(std::int64_t list, DType dtype, const void* number) = 0;
  virtual bool put_list(std::int64_t list, std::int64_t index, std::int64_t item) = 0;
  virtual bool append_list(std::int64_t list, std::int64_t item) = 0;
  /// The last item, a number or a list, goes. It ends when the region is left.
  virtual bool drop_last(std::int64_t list) = 0;
  /// A list gets the items of the tuple, which are numbers.
  virtual bool extend(std::int64_t list, std::int64_t tuple) = 0;
  /// New lists, which are there until the region is left: of as many None, one list several times over, one behind the
  /// other, and the items from `start` to `stop`, which are in range. 0: it is left to CPython.
  virtual std::int64_t make(std::int64_t count) = 0;
  virtual std::int64_t repeat(std::int64_t list, std::int64_t times) = 0;
  virtual std::int64_t join(std::int64_t a, std::int64_t b) = 0;
  virtual std::int64_t slice(std::int64_t list, std::int64_t start, std::int64_t stop) = 0;
  /// One that was made, or taken out of another, and nobody holds ends when they are swept, unless it was marked since.
  virtual void mark(std::int64_t list) = 0;
  virtual void sweep() = 0;
  /// How many bytes wait for the region to be left, about.
  virtual std::int64_t held() const = 0;
};

/// The arrays that one run of a region has made. What is not marked when it is swept is used again: a region marks, at
/// each jump back, what its variables hold.
class RegionHeap {
 public:
  /// `lists`: where the region works on some.
  explicit RegionHeap(RegionLists* lists = nullptr) : lists_(lists) {}
  RegionHeap(const RegionHeap&) = delete;
  ~RegionHeap();

  /// Where it begins, at a multiple of 64; 0: there is no memory.
  std::int64_t allocate(std::int64_t bytes);
  void mark(std::int64_t address);
  void sweep();
  /// Nobody needs it any more.
  void release(std::int64_t address);
  RegionLists& lists() { return *lists_; }
  /// Passes that took for granted what was not so have run again.
  void note_undone() { ++undone_; }
  int undone() const { return undone_; }

 private:
  struct Block {
    std::int64_t address, bytes;
    bool used, marked;
  };
  std::vector<Block> blocks_;
  RegionLists* lists_;
  int undone_ = 0;
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
