/// What derivatives need to know of the trace.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "graph_ir/autodiff/autodiff.h"
#include "tracer/value.h"

namespace fj {

/// Says of every value of the graph whether a gradient flows through it, and of every operation what torch keeps of it
/// and what is overwritten or freed by now.
struct GradientLedger {
  explicit GradientLedger(Graph& graph) : flow(graph) {}

  /// A tensor made in the trace whose contents are a variable of their own: see Tracer::make_leaf.
  struct Leaf {
    V tensor;
    ValueId value;
    int step;                                      // which made it
  };
  /// Inputs need a gradient where grad mode is on outside, and so does what is derived here (graph_transforms.cpp).
  GradientFlow flow;
  Copies copies;
  AlsoSaved also_saved;
  std::vector<Leaf> leaves;
  std::set<ValueId> in_memory;                     // contents of some array
  std::map<ValueId, std::size_t> overwritten;      // contents of tensors only
  std::map<int, int> written_with_history;         // nodes before an in-place operation that autograd records: its step
  std::set<ValueId> freed;  // results of operations whose derivative has been taken, and what it reads freed
  std::map<std::pair<const Value*, PyObject*>, V> fields;  // of real tensors, that C code reads
  bool ran_backward = false;
};

}  // namespace fj
