/// What derivatives need to know of the trace.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "graph_ir/autodiff/autodiff.h"
#include "tracer/tracer.h"
#include "tracer/value.h"

namespace fj {

/// Says which values of the graph a gradient flows through, which of them torch saves for backward, and which are
/// overwritten or freed by now.
struct GradientLedger {
  explicit GradientLedger(Graph& graph) : flow(graph) {}

  /// A tensor made in the trace whose contents are a variable of their own: see Tracer::make_leaf.
  struct Leaf {
    V tensor;
    ValueId value;
    int step;                                      // of the trace, at which it became a leaf
    bool left = false;                             // it is handed out
    bool lost = false;                             // what is computed from it is, without its history
  };
  /// A checkpoint that is open: how many nodes there were, and what had been written.
  struct Checkpoint {
    std::size_t nodes;
    Tracer::Mark before;
  };
  std::vector<Checkpoint> checkpoints;             // all there were, by their number less 1
  /// Inputs need a gradient where grad mode is on outside; so do the values that a derivative in the trace is taken by
  /// (graph_transforms.cpp).
  GradientFlow flow;
  Copies copies;
  AlsoSaved also_saved;
  std::vector<Leaf> leaves;
  std::set<ValueId> in_memory;                     // contents of some array
  std::map<ValueId, std::size_t> overwritten;      // contents of tensors: nodes before the write
  std::map<int, int> written_with_history;         // nodes before an in-place operation that autograd records: its step
  std::set<ValueId> freed;  // results of operations through which a backward has gone, which frees what torch saved
  std::map<std::pair<const Value*, PyObject*>, V> fields;  // of tensors from outside, as C code gives them
  bool ran_backward = false;
};

}  // namespace fj
