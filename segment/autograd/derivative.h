/// The derivative of one program: what its tensors' `grad_fn` does.
///
/// Made while tracing from the graph as captured, when an output needs a gradient. It says what the forward program
/// returns besides its results (the values saved for backward), joins a run's results to torch's autograd graph as one
/// node (segment/autograd/autograd_node.h), and runs backward, whose program is compiled at the first backward(), once
/// for each set of results that have cotangents and each of three layouts these come in. Backward with
/// create_graph=True is a program with a derivative of its own: the values that were saved are results of the forward
/// node too, so that it can be differentiated.
///
/// Each result has a node of its own, and so has what several results are computed from
/// (`graph_ir/autodiff/autodiff_parts.h`): a result that another one is computed from is an operand of that one's node,
/// what one saved is freed without the other's, hooks run where and when eager's do. A value between two nodes that the
/// program does not return is a tensor without contents.
///
/// All calls are made with the GIL held, which is what guards the compiled programs.
#pragma once

#include <Python.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "cpython/ref.h"
#include "graph_ir/autodiff/autodiff.h"
#include "graph_ir/graph.h"
#include "runtime/host.h"
#include "runtime/program.h"
#include "segment/library_calls/extern_table.h"
#include "segment/recipe.h"

namespace fj {

struct DerivativeParts;

/// A view among the results, of memory that the program returns or is given: what is computed from it has its path
/// through it.
struct GradientView {
  RecipeStep made;        // from its owner, or from the view `viewed`
  bool input;             // the owner is an input of the graph, else an output
  int owner;
  std::uint32_t made_after;  // so many values of the graph
  int viewed = -1;        // of the views, before this one
  ValueId value = {};     // what it shows; invalid: nothing reads it
};

class Derivative : public std::enable_shared_from_this<Derivative> {
 public:
  /// Values that in-place operations have replaced: the number of nodes before that operation.
  using Overwritten = std::map<ValueId, std::size_t>;
  /// `wanted`: the inputs that require a gradient. Null if no output needs one; throws NoDerivative.
  static std::shared_ptr<Derivative> of(const Graph& graph, const std::vector<int>& wanted, const Copies& copies = {},
                                        const AlsoSaved& also_saved = {}, std::vector<GradientView> views = {},
                                        const Overwritten& overwritten = {});
  /// False: the graph of derivatives can't be eager's.
  bool is_exact() const { return exact_; }
  std::size_t view_count() const { return views_.size(); }
  /// Backward reads what was written in place since: eager refuses such a backward.
  bool reads_written() const { return reads_written_ || first_overwrite_ >= 0; }
  /// Where that was an array of the program's own: the nodes before the operation that wrote it, or -1.
  int first_overwrite() const { return first_overwrite_; }
  /// Backward needs this value of the graph again.
  bool saves(ValueId value) const;

  /// Bytes that are kept from forward to backward beside inputs and results, for the sizes seen while tracing.
  std::int64_t saved_bytes() const;

  /// The graph with the saved values it does not return anyway behind its outputs.
  const Graph& forward() const { return forward_; }
  using Compile = std::function<std::unique_ptr<Program>(const Graph&)>;
  void compile_with(Compile compile) { compile_ = std::move(compile); }
  /// The library calls of both programs.
  void call_with(std::shared_ptr<const ExternTable> externs) { externs_ = std::move(externs); }
  /// The device of both.
  void work_on(int device) { device_ = device; }

  /// After forward has run: gives the outputs that need a gradient their grad_fn, and makes the views, which come
  /// behind them. False: a Python error is set.
  bool link(std::span<const ArrayRef> inputs, std::span<ArrayRef> outputs, std::span<const std::int64_t> symbols) const;
  /// As RunBackward of segment/autograd/autograd_node.h.
  Ref<> backward(int node, std::vector<Ref<>> saved, std::span<PyObject* const> cotangents,
                 const std::vector<std::int64_t>& symbols);

 private:
  /// A value that a node begins or ends with, and the tensor that stands for it.
  struct End {
    enum Kind : std::uint8_t {
      Input,
      Output,
      View,
      Empty
    } kind;  // of `forward_`; of `views_`; Empty: made to link nodes
    int index;
    ValueId value;
  };
  struct Saved {
    End::Kind kind;
    int index;
  };
  struct Backward {
    Graph graph;                          // optimised
    std::unique_ptr<Program> program;
    std::shared_ptr<Derivative> next;     // of this program, under create_graph
    std::vector<int> gradients;           // by source of the node: output of the graph, or -1
    std::vector<int> passed_on;           // by source: the result whose cotangent is its gradient as it is, or -1
    std::vector<int> additions;           // by source: how often torch adds to its gradient in place
    std::vector<std::vector<ViewStep>>
        repeated;  // by source: how the gradient is seen in an output of fewer elements; none: it is the output
  };
  /// One node of autograd's graph.
  struct Node {
    std::vector<End> sources;
    std::vector<End> results;
    std::vector<int> saved;               // of `saved_`
    std::vector<int> views;               // that the user made before
    bool frees = false;                   // backward can run once, though it may read nothing
  };
  /// False if nodes need each other.
  bool split(const DerivativeParts& parts, const Joint& joint, const std::vector<ValueId>& visible,
             const std::map<std::uint32_t, Saved>& place, const Copies& copies, const AlsoSaved& also_saved,
             const std::vector<bool>& needs);
  void make_nodes(const DerivativeParts& parts, const std::vector<std::vector<ValueId>>& saved,
                  const std::vector<bool>& needs);
  bool sort_nodes();
  std::vector<ValueId> variables() const;  // what derivatives are taken by
  bool returned(const Saved& saved) const {
    return saved.kind == End::Output && std::size_t(saved.index) < graph_.outputs.size();
  }
  std::optional<Strides> strides_of(End::Kind kind, int index) const;
  const Backward& compiled(int node, const std::string& layouts, const std::vector<bool>& requiring);

  Graph graph_, forward_;                 // as captured
  std::vector<int> wanted_;
  std::vector<GradientView> views_;
  Copies copies_;
  std::vector<ValueId> saved_values_;
  std::vector<Saved> saved_;
  std::vector<Node> nodes_;               // each after those it needs
  int empties_ = 0;
  bool reads_written_ = false;      // an input that the program writes
  int first_overwrite_ = -1;
  bool exact_ = true;
  Compile compile_;
  std::shared_ptr<const ExternTable> externs_;
  int device_ = kHost;
  std::map<std::tuple<int, std::string, std::vector<bool>>, Backward> backwards_;
};

}  // namespace fj
