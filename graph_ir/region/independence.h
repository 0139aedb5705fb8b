/// Whether the passes of a region's outermost loop can run in any order, on several threads: what one pass leaves for
/// the next, and which elements of memory it works on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph_ir/region/region.h"

namespace fj::region {

/// The block in which a pass begins. There may be several, for other types of what the loop has.
struct PassBegin {
  int block;
  ValueId number;                // which pass it is: another one in each
  std::vector<ValueId> carried;  // what passes take from those before them; invalid: it is no number here
};

/// A number that each pass adds something to, or takes the larger or smaller one of: what several stretches of passes
/// come to can be put together.
enum class Gathered : std::uint8_t { Unchanged, Sum, Product, Largest, Least };

/// The elements of a memory that a pass works on: those at this index along an axis.
struct OwnElements {
  int axis = -1;
  std::int64_t more = 0;  // than the number of the pass
};

struct Independence {
  std::string why;                 // not empty: they are not, and what stands against it
  int memory = -1;                 // likewise: where; -1: it is not memory
  int carried = -1;                // or which of what is carried
  std::vector<Gathered> gathered;  // by what is carried
  std::vector<char> stored;        // by memory: elements of it are
  std::vector<std::optional<OwnElements>> rewritten;  // likewise, and read: each by one pass alone
  bool is_independent() const { return why.empty(); }
};

struct PassFacts {
  std::vector<PassBegin> begins;
  std::vector<ValueId> initial;  // by what is carried: the input that it begins as
  /// By memory and axis: inputs; invalid: 1. A memory of no axes is the region's own.
  std::vector<std::vector<ValueId>> strides;
  bool counts_up;  // passes have rising numbers, none of them negative
};
Independence find_independence(const Region& region, const PassFacts& facts);

}  // namespace fj::region
