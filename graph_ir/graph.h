/// The graph: a list of nodes in SSA form, in execution order, explicit and monomorphic.
///
/// Operands of an operation agree in dtype and shape (ops.def says where they do not), so
/// promotion and broadcasting are `cast` and `broadcast` nodes put there by the front ends.
/// Values are pure. What a function does to memory is in three lists at the border:
/// `outputs` (values returned), `writes` (input arrays whose contents change: committed after
/// everything that can fail) and the layouts of inputs and outputs. Nodes with an `OpEffect` other
/// than Pure keep their order.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "graph_ir/types.h"

namespace fj {

struct ValueId {
  std::uint32_t index = UINT32_MAX;
  bool valid() const { return index != UINT32_MAX; }
  auto operator<=>(const ValueId&) const = default;
};

/// Operations: one enumerator per row of ops.def. Only their names are read here, so that another change of a row does
/// not rebuild what knows graphs.
enum class Op : std::uint16_t {
#define FJ_OP_NAME(name) name,
#include "made/op_names.def"
};

inline constexpr int kOpCount = 0
#define FJ_OP_NAME(name) +1
#include "made/op_names.def"
    ;

/// A scalar constant: exactly one alternative by the category of its dtype.
using Scalar = std::variant<bool, std::int64_t, std::uint64_t, double, std::pair<double, double>>;

using Attr = std::variant<bool, std::int64_t, double, std::string, DType, Scalar, std::vector<std::int64_t>, SymDim,
                          Dims, std::vector<std::optional<Dims>>>;

/// Named attributes in the order of the op's row; small, so a sorted vector of pairs.
class Attrs {
 public:
  const Attr* find(std::string_view name) const;
  template <class T>
  const T& get(std::string_view name) const;  // FJ_CHECKs presence and alternative
  void set(std::string name, Attr value);
  const std::vector<std::pair<std::string, Attr>>& items() const { return items_; }
  bool operator==(const Attrs&) const = default;

 private:
  std::vector<std::pair<std::string, Attr>> items_;
};

/// Where in the user's program a node came from.
struct Location {
  std::string file;    // as in co_filename; printed as its last component
  int line = 0;
  std::string module;  // the torch module whose forward this is: "layers.0.norm"; "" for the outermost
  bool operator==(const Location&) const = default;
};

struct Node {
  Op op;
  std::vector<ValueId> operands;
  Attrs attrs;
  std::vector<ValueId> results;  // one, but for `extern_call`, `cond` and `loop`
  Location location;
  /// Of `cond`: what runs where the condition is true, and where it is false. Of `loop`: a pass (ops.def). Their inputs
  /// are the operands behind the condition, row-major; their symbols the first ones of the graph around them, which has
  /// no late one among those.
  std::vector<std::shared_ptr<const class Graph>> bodies = {};
};

/// A run-time integer: bound from an input's size or an int argument by the caller (no definition),
/// computed from others at the start of a call, or known once a `nonzero` or an `as_size` has run (`late`).
struct Symbol {
  std::string name;  // "s0"
  std::int64_t min = 0, max = INT64_MAX;
  std::int64_t hint = 0;  // the value seen while tracing
  struct Quotient { SymDim dividend, divisor; bool remainder; };  // floor division
  std::optional<Quotient> definition;
  /// Counted by a node, or computed from such a symbol. Whatever has it in its type or attributes comes after that
  /// node. In a graph without that node (the derivative of one that has it) the caller gives the value.
  bool late = false;
};

/// The value of each symbol while tracing.
std::vector<std::int64_t> symbol_hints(std::span<const Symbol> symbols);
/// And of a size.
std::int64_t hint(const SymDim& size, std::span<const Symbol> symbols);

struct Input {
  ValueId value;
  std::string name;
  std::optional<Strides> strides;  // nullopt: contiguous
};

struct Output {
  ValueId value;
  std::optional<Strides> strides;  // the layout the returned array must have
};

/// After the program succeeded, the memory of `inputs[input]` holds `value`.
struct Write {
  int input;
  ValueId value;
};

/// The rule of a Composite: a function of rules/grad_composites.
enum class CompositeRule : std::uint8_t {
#define FJ_COMPOSITE(name) name,
#include "graph_ir/rules/composites.def"
};

/// A stretch of nodes that is one function of a library and has a derivative of its own: differentiating the nodes one
/// by one would lose it at singular points, or overflow. Made by the front ends, read by `differentiate`, dropped by
/// `optimise`.
struct Composite {
  CompositeRule rule;
  std::vector<ValueId> operands;
  ValueId result;
  std::vector<ValueId> kept;  // values of the stretch that the rule uses
  Attrs attrs;
  std::shared_ptr<const class Graph> pullback = nullptr;  // of CompositeRule::Pullback
};

class Graph {
 public:
  std::string name = "f";
  std::vector<Symbol> symbols;
  std::vector<Input> inputs;
  std::vector<Node> nodes;  // topological order
  std::vector<Output> outputs;
  std::vector<Write> writes;
  std::vector<Composite> composites;  // by their results' definitions
  /// Of results that people have named: "hidden", printed as `%hidden`. A word, dots included, that is no number.
  std::map<ValueId, std::string> names;
  /// First results of library calls that happen only if something reads what they give: they stand for others.
  std::set<ValueId> spare_calls;
  /// Values that were made in a checkpoint, with the number of the outermost one: backward computes them again.
  std::map<ValueId, int> checkpoints;

  bool is_late(const SymDim& size) const;
  ValueId new_value(Type type);
  const Type& type(ValueId value) const;
  std::size_t value_count() const { return types_.size(); }
  SymbolId new_symbol(Symbol symbol);

  /// Adds an input of the given type.
  ValueId add_input(std::string name, Type type, std::optional<Strides> strides = std::nullopt);
  /// Appends a node whose result types are inferred from the op's row (rules/). FJ_CHECKs the operands.
  ValueId add(Op op, std::vector<ValueId> operands, Attrs attrs = {}, Location location = {});
  /// As `add`, for a value that the graph knows already and no node defines: its type becomes what is inferred.
  void define(ValueId result, Op op, std::vector<ValueId> operands, Attrs attrs, Location location);
  /// `extern`: result types are given. See ops.def.
  std::vector<ValueId> add_extern(std::vector<ValueId> operands, Attrs attrs, std::vector<Type> result_types,
                                  Location location = {});
  /// `cond` or `loop`: result types are those of a body's outputs. FJ_CHECKs nothing: see verify.
  std::vector<ValueId> add_control(Op op, std::vector<ValueId> operands,
                                   std::vector<std::shared_ptr<const Graph>> bodies, Location location = {});
  /// Every size of the graph: of types, symbols' definitions, strides and attributes.
  void rewrite_sizes(const std::function<SymDim(const SymDim&)>& rewritten);

 private:
  std::vector<Type> types_;
};

std::string_view name(Op op);

/// The sizes in the node's types and attributes.
void each_size(const Graph& graph, const Node& node, const std::function<void(const SymDim&)>& visit);

/// The symbols in a node's result types and attributes, and those they are computed from.
std::vector<SymbolId> symbols_used(const Graph& graph, const Node& node);

/// By symbol: whether a program of the graph reads it.
std::vector<bool> symbols_used(const Graph& graph);

}  // namespace fj
