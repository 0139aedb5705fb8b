/// Scheduling: which values get memory, and which nodes run in which kernel.
///
/// A group becomes one kernel (two if its reduction is split over threads). It has one iteration space: the
/// dimensions of its widest values, each kept (`rows`) or reduced. What a group computes:
///     stores   values written to memory, over the whole space or over the rows only
///     stages   reductions over the reduced dimensions; their results are scalars of a row to everything else in the
///     group
/// Everything else is inlined where it is used, through index maps: a broadcast, slice or concat is an address.
///
///     softmax over [n, m]: space (n, m reduced), stages max, sum; store div. One kernel, three passes over a row.
///
/// Nodes are visited from the last to the first; each knows by then who reads it and at which index. A
/// group never comes to depend on itself: every join is checked against the paths between groups.
#pragma once

#include <vector>

#include "codegen/loops/loop_ir.h"
#include "codegen/schedule/assembly.h"
#include "graph_ir/graph.h"

namespace fj {

enum class GroupKind : std::uint8_t { Loops, Scan, Scatter, Matmul, Count, Extern, Assembly, Control };

struct Group {
  GroupKind kind = GroupKind::Loops;
  Dims extents;                      // by variable
  std::vector<std::uint32_t> order;  // variables of the whole space, in memory order of its values
  std::vector<bool> reduced;         // by variable
  std::vector<ValueId> stages;       // reductions, in graph order once scheduling is done
  std::vector<ValueId> stores;       // values with memory computed here, stages included where stored
  int node = -1;                     // Scan, Scatter, Matmul, Count, Extern, Assembly, Control: index in graph.nodes
  std::vector<AssembledPart> parts;  // Assembly; Extern: by operand, what it is given as a view of
  int inlined = 0;                   // nodes inlined so far
  int expensive = 0;                 // of them, those that are many instructions
  std::vector<int> readers;          // groups that need our stores

  std::vector<std::uint32_t> rows() const;
  std::vector<std::uint32_t> reductions() const;
};

struct Schedule {
  std::vector<Group> groups;       // in execution order
  std::vector<int> producer;       // by ValueId: group that computes it into memory, or -1
  std::vector<bool> in_memory;     // by ValueId: stored by its producer (inputs: true)
  std::vector<bool> copied_input;  // by ValueId: an input needed contiguous; `producer` is the group that copies it
  std::vector<bool> contiguous;    // by ValueId: its memory must be row-major contiguous
  std::vector<bool> in_place;      // by ValueId: a reshape that a matmul reads where its operand lies
  std::vector<bool> read_again;    // by ValueId: read in some group by several nodes at one index
  std::vector<int> node_of;        // by ValueId: index in graph.nodes, -1 for inputs
  bool conditions = false;         // IEEE conditions are collected
};

/// An operand of a matmul, looked through transposes: the library takes a transposed matrix as it lies.
struct MatmulOperand {
  ValueId source;
  std::vector<std::int64_t> permutation;  // operand dimension d is dimension permutation[d] of the source
};
MatmulOperand matmul_operand(const Graph& graph, const std::vector<int>& node_of, ValueId operand);

/// Whether a product is loops like any reduction. The library has routines for two dtypes; it is better where the
/// matrix on the right doesn't fit a core's cache, for it copies blocks of the matrix there.
bool generated_product(const Graph& graph, const std::vector<int>& node_of, const Node& product);

/// Whether the right matrix lies by columns (a weight that is given transposed): lanes run along the sum then, and
/// operations on its result are computed one element at a time.
bool lies_by_columns(const Graph& graph, const std::vector<int>& node_of, const Node& product);

/// Strides of an input, in elements.
Strides input_strides(const Graph& graph, const Input& input);

/// Precondition: the graph is verified. With `conditions` what can raise an IEEE condition is computed for every
/// element. `assembles`: values of many parts are put together by copies, which are steps of a program here.
Schedule schedule(const Graph& graph, bool conditions = false, bool assembles = true);

std::string text(const Graph& graph, const Schedule& schedule);

}  // namespace fj
