/// The control flow of a region: dominators and loops.
#pragma once

#include <vector>

#include "graph_ir/region/region.h"

namespace fj::region {

class Flow {
 public:
  explicit Flow(const Region& region);
  bool is_reached(int block) const { return place_[std::size_t(block)] >= 0; }
  /// Every way from the entry to `b` passes `a`. No way leads to a block that is not reached: true.
  bool dominates(int a, int b) const;
  /// The blocks that jump to this one, each once for each of its targets.
  const std::vector<int>& before(int block) const { return before_[std::size_t(block)]; }
  /// The reached blocks, each behind those that dominate it.
  const std::vector<int>& order() const { return order_; }

 private:
  std::vector<std::vector<int>> before_;
  std::vector<int> order_, place_;  // place_: in the order; -1: not reached
  std::vector<int> dominator_;      // the nearest one
};

/// The blocks from which a jump back to `header` can be reached without passing it, with it.
struct NaturalLoop {
  int header;
  std::vector<int> blocks;  // in the order of Flow
};

/// The loops that no other loop is in.
std::vector<NaturalLoop> innermost_loops(const Flow& flow);

}  // namespace fj::region
