/// Derivatives of library calls, to any order: torch's own (framejit/_support/autograd.py).
///
/// The derivative of one result of a call is a library call too: of the result's cotangent and of what the first call
/// was given. It reads what torch recorded when the first call was made, its record, and without one makes that call
/// again under autograd. As a node it comes into a graph when the graph is differentiated; where the graph is to be
/// differentiated once more, its results are given derivatives in the same way.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "graph_ir/graph.h"
#include "segment/library_calls/extern_prediction.h"
#include "segment/library_calls/extern_table.h"

namespace fj {

/// What the composite of one result is made of.
struct ExternResultDerivative {
  std::size_t result;                          // of the call
  ValueId value;                               // of the graph
  std::vector<ValueId> operands;               // of the call
  std::vector<ValueId> read;                   // what its derivative is given in their place
  std::vector<std::optional<Dims>> strides;    // of what it is given
  std::vector<std::int64_t> derived;           // the operands that require a gradient
  ValueId record;                              // of the call; invalid: there is none
  std::span<const ExternPath> paths;  // from the result to each of these; empty: not known, which is a gradient
};

/// Notes torch's derivative of a call's result, and puts it into the table. Throws BreakGraph.
void add_extern_derivative(Graph& graph, ExternTable& table, const ExternCall& call, const ExternResultDerivative& of);

/// Notes how torch derives several results of a call at once, `results` by number, each of which has its derivative: the
/// last ones of the graph's composites. `of`: of one of them. Does nothing where they are derived by other operands.
void add_joint_derivative(Graph& graph, ExternTable& table, const ExternCall& call, const ExternResultDerivative& of,
                          std::span<const std::size_t> results);

/// Gives the derivatives among the graph's nodes that have none of their own one, where one of their operands requires
/// a gradient. `needs`: by value.
void add_derivatives_of_derivatives(Graph& graph, ExternTable& table, const std::vector<bool>& needs);

}  // namespace fj
