/// Derivatives of graphs.
///
///     auto needs = gradient_flow(graph, {x});                    // which values depend on x in a way that has a
///     derivative Joint joint = differentiate(graph, {x}, cotangents_of);    // forward and backward in one graph
///     Forward forward = choose_saved(graph, joint, ...);         // what is kept between the two
///     Graph backward = backward_graph(joint, saved);
///
/// All of it works on graphs as captured: `optimise` drops what it needs to know of composites, so only copies that
/// are compiled are optimised. A backward graph is a graph as captured: its own derivative is made in the same way.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "graph_ir/graph.h"

namespace fj {

/// By value: true if the value needs a gradient because one of `wanted` does.
std::vector<bool> gradient_flow(const Graph& graph, std::span<const ValueId> wanted);
/// Extends a flow computed for the first values to nodes added since: the tracer asks while it adds nodes.
class GradientFlow {
 public:
  explicit GradientFlow(const Graph& graph) : graph_(graph) {}
  void want(ValueId input);
  bool needs(ValueId value);
  bool wants_any() const { return wants_any_; }

 private:
  const Graph& graph_;
  std::vector<bool> needs_;
  bool wants_any_ = false;
  std::size_t nodes_ = 0, composites_ = 0;
  std::set<ValueId> stopped_;
  std::map<ValueId, std::size_t> composite_of_;  // by result
};

/// An operation without a rule stands between an output and a wanted input.
struct NoDerivative : std::runtime_error {
  NoDerivative(Op op, Location location) : NoDerivative(op, std::string(name(op)), std::move(location)) {}
  NoDerivative(Op op, std::string subject, Location location)
      : std::runtime_error("no derivative of " + subject),
        op(op),
        subject(std::move(subject)),
        location(std::move(location)) {}
  Op op;
  std::string subject;  // the operation, or the library's function
  Location location;
};

/// One operation passed on the way back.
struct BackwardStep {
  ValueId result;
  std::vector<ValueId> into;   // the operands that need a gradient
  std::vector<ValueId> given;  // the cotangent each gets; invalid: none, the result only requires a gradient by it
  bool reads;  // its derivative needs values of the forward graph, which eager saves, or eager saves others
  std::vector<ValueId> read;   // those values of the forward graph
  std::vector<ValueId> together;  // results of one call that are derived by one call, this one among them
};

/// Adds to the graph the nodes that compute the gradients of `wanted`, from a cotangent for each value in `of`. Wanted
/// values may be any: what lies before them is not derived. Invalid: no path from it to a value in `of`. `apart`: a
/// wanted value is a variable of its own though it is computed from another one, whose gradient has no part of its.
/// Throws NoDerivative.
std::vector<ValueId> add_gradients(Graph& graph, std::span<const ValueId> wanted, std::span<const ValueId> of,
                                   std::span<const ValueId> cotangents, std::vector<BackwardStep>* steps = nullptr,
                                   bool apart = false);

/// The graph with its backward nodes behind it.
struct Joint {
  Graph graph;                        // inputs: those of the forward graph, then cotangents
  std::size_t forward_values = 0;     // values below are the forward graph's
  std::size_t forward_nodes = 0;
  std::vector<ValueId> cotangents;    // one per entry of `of`
  std::vector<ValueId> gradients;     // one per wanted; invalid: no path from it to an output
  std::vector<BackwardStep> steps;    // from the last
};

/// `of`: the values whose cotangents are given, in the order of Joint::cotangents. Throws NoDerivative.
Joint differentiate(const Graph& graph, std::span<const ValueId> wanted, std::span<const ValueId> of,
                    bool apart = false);

/// The forward values that backward nodes read.
std::vector<ValueId> values_read_backward(const Joint& joint);

/// Index maps that both libraries give views for (of the others they make new arrays), and casts: an operation computes
/// in a dtype of its own what eager saves as it was given.
bool stands_for_operand(Op op);

/// What a graph of values does not show of their memory: copies that the user has made, which do not change with the
/// original, and what never was an array.
struct Copies {
  std::set<ValueId>
      maps;  // results of index maps and casts in memory of their own: not what eager would save its source for
  std::set<ValueId> twice;  // contents of several arrays
  std::set<ValueId> clones;  // of maps, those whose gradient is handed on as it is
  std::set<ValueId> inner;  // inside one function of the library, which makes no array of them: a vector as a matrix,
                            // the sum of a mean
};

/// What a library saves of an operation, by its result, where the rule here does not read it: values that may not be
/// written before backward. With or without any, a backward frees the operation.
using AlsoSaved = std::map<ValueId, std::vector<ValueId>>;

/// Which forward values to save so that everything in `needed` can be computed again from them, in the fewest bytes:
/// a minimum cut between what forward computes and what backward reads. Pointwise operations and index maps may be
/// repeated; products, reductions, scans and gathers are not, but in a checkpoint (Graph::checkpoints): of the values
/// made in one only its results, and what can't be repeated there, are as others. `fixed`: values that may be saved
/// only if they, or views of them, are read themselves, and are then (arrays the user can see, whose changes eager
/// would notice then and only then). `kept`: is saved anyway.
std::vector<ValueId> choose_saved(const Graph& graph, const std::vector<ValueId>& needed,
                                  const std::vector<ValueId>& fixed, const std::set<ValueId>& copied_maps = {},
                                  const std::set<ValueId>& kept = {});

/// Backward alone: inputs are the saved values, then the cotangents; outputs the gradients that exist, in order. What a
/// checkpoint computes again comes right before the first that reads it, so that not all checkpoints are held at once.
/// `layouts` gives the strides of each input (nullopt: contiguous), `results` those of each gradient.
Graph backward_graph(const Joint& joint, std::span<const ValueId> saved);

/// Adds the nodes of `from` with its inputs replaced: the values of its outputs. Its symbols are the graph's.
/// `call`: the number here of the library call that has a number there; null: the same.
std::vector<ValueId> add_graph(Graph& graph, const Graph& from, std::span<const ValueId> inputs,
                               const std::function<std::int64_t(std::int64_t)>& call = {});

/// What computes `outputs` from `inputs`, as a graph of its own.
Graph part_of_graph(const Graph& graph, std::span<const ValueId> inputs, std::span<const ValueId> outputs);

}  // namespace fj
