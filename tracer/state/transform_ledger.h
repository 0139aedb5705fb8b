/// grad, vmap and their like, and branches on data that are followed.
#pragma once

#include <unordered_map>
#include <vector>

#include "graph_ir/evaluate/evaluate.h"
#include "graph_ir/vmap.h"
#include "tracer/value.h"

namespace fj {

/// A batch that is open is ended or left by an exception before the one around it.
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
  std::vector<Batch> batches;
  int depth = 0;                                   // of batches that are not ended
  /// What means something to this trace alone, and what it is: marks of what is derived by, transformed functions. No
  /// exit hands them back: a piece ends before they are made, and CPython makes real ones.
  std::unordered_map<V, const char*> only_here;
  std::vector<Followed> followed;
  std::unordered_map<std::uint32_t, DenseArray> evaluated;  // values a followed condition is made of, as in this call
};

}  // namespace fj
