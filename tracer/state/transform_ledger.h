/// grad, vmap and their like, and branches on data that are followed.
#pragma once

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph_ir/evaluate/evaluate.h"
#include "graph_ir/vmap.h"
#include "tracer/tracer.h"
#include "tracer/value.h"

namespace fj {

/// An open batch is ended, or left by an exception, before the one around it.
struct TransformLedger {
  struct Batch {
    std::vector<Batched> examples;
    Dependence dependence;
    bool ended;                                    // or left by an exception
    std::size_t nodes;                             // when its function began
  };
  struct Followed {
    ValueId condition;
    bool outcome;
  };
  /// A function that torch.func derives or maps is being traced: what was there before it.
  struct OfTorch {
    Tracer::Mark before;
    std::size_t nodes, composites, effects;
    bool forward;                                  // derived forwards, where torch.no_grad() stops nothing
  };
  std::vector<OfTorch> of_torch;
  /// Nodes that a derivative added, or that are such for all examples: the first one, and the one behind the last.
  std::vector<std::pair<std::size_t, std::size_t>> derived;
  bool is_derived(std::size_t node) const {
    return std::any_of(derived.begin(), derived.end(),
                       [&](const auto& range) { return range.first <= node && node < range.second; });
  }
  std::vector<Batch> batches;
  int depth = 0;                                   // of batches that are not ended
  /// Values that mean something to this trace alone (marks of the values a derivative is taken by, transformed
  /// functions), and how messages call them. No exit hands them back: a piece ends before they are made, and CPython
  /// makes real ones.
  std::unordered_map<V, const char*> only_here;
  std::vector<Followed> followed;
  std::unordered_map<std::uint32_t, DenseArray> evaluated;  // contents, in this call, of the values behind conditions
};

}  // namespace fj
