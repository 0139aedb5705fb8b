/// grad, vmap and their like, and branches on data that are followed.
#pragma once

#include <unordered_map>
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
  };
  struct Followed {
    ValueId condition;
    bool outcome;
  };
  /// A function that torch.func derives or maps is being traced: what was there before it.
  struct OfTorch {
    Tracer::Mark before;
    std::size_t nodes, effects;
  };
  std::vector<OfTorch> of_torch;
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
