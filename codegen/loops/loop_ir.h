/// The loop IR: what a kernel does, one level above a target's instructions.
///
/// A kernel is a tree of loops and statements over scalar expressions. Expressions form a DAG in one
/// table per kernel and are hash-consed: equal expressions have equal ids, so work that two
/// outputs, or two passes over a row, have in common is found by comparing numbers. Where an
/// expression is computed follows from the loop variables it depends on, not from a statement: a printer puts it in
/// the outermost loop that knows all of them.
///
/// Addresses are polynomials: an `Affine` is a sum of loop variable times size expression, plus terms whose factor is
/// itself an expression (a gathered index). Sizes are constants or run-time symbols (SymDim).
///
/// Printers: llvm/ (explicit vectors over `vector_var`). Nothing here knows a target.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph_ir/graph.h"

namespace fj::loop {

struct ExprId {
  std::uint32_t index = UINT32_MAX;
  bool valid() const { return index != UINT32_MAX; }
  auto operator<=>(const ExprId&) const = default;
};

struct VarId {
  std::uint32_t index = UINT32_MAX;
  bool valid() const { return index != UINT32_MAX; }
  auto operator<=>(const VarId&) const = default;
};

/// constant + sum(variable * coefficient) + sum(expression * coefficient), in elements.
struct Affine {
  SymDim constant;
  std::vector<std::pair<VarId, SymDim>> terms;     // sorted by variable, coefficients not 0
  std::vector<std::pair<ExprId, SymDim>> dynamic;  // i64 expressions, sorted

  Affine() = default;
  Affine(SymDim value) : constant(std::move(value)) {}
  Affine(VarId variable) : terms{{variable, SymDim(1)}} {}
  Affine(ExprId expression) : dynamic{{expression, SymDim(1)}} {}

  /// The variable if this is exactly one loop variable.
  std::optional<VarId> variable() const;
  std::optional<SymDim> coefficient(VarId variable) const;
  bool is_constant() const { return terms.empty() && dynamic.empty(); }
  bool operator==(const Affine&) const = default;
};

Affine operator+(const Affine& a, const Affine& b);
Affine operator*(const Affine& a, const SymDim& factor);
std::string text(const Affine& affine);

using Index = std::vector<Affine>;  // one per dimension

enum class ExprKind : std::uint8_t {
  Constant,     // scalar
  Position,     // address as a value: i64
  Load,         // buffer[address], where predicate holds; else an arbitrary value
  Accumulator,  // the final value of an accumulator
  Pointwise,    // op over args, all of the dtype of the node
  CheckedIndex, // args[0] as an index into a dimension of size address.constant: negative values wrap, out of range:
                // status
};

struct Expr {
  ExprKind kind = ExprKind::Constant;
  DType dtype = DType::F32;          // of the value
  Op op = Op::constant;              // Pointwise
  DType operand_dtype = DType::F32;  // Pointwise: of the (last) operand, which decides how it is computed
  std::vector<ExprId> args;
  Scalar scalar = false;             // Constant
  int buffer = -1;                   // Load
  Affine address;                    // Load, Position, CheckedIndex
  ExprId predicate;                  // Load, CheckedIndex: optional
  int accumulator = -1;              // Accumulator
  bool operator==(const Expr&) const = default;
};

/// Each expression that `expr` reads: its arguments, what its address is computed from, its predicate. They come before
/// it in the kernel.
template <class Visit>
void for_each_operand(const Expr& expr, Visit visit) {
  for (ExprId arg : expr.args) visit(arg);
  for (const auto& [dynamic, coefficient] : expr.address.dynamic) visit(dynamic);
  if (expr.predicate.valid()) visit(expr.predicate);
}

/// Whether one of them passes; no further one is asked.
template <class Test>
bool any_operand(const Expr& expr, Test test) {
  for (ExprId arg : expr.args)
    if (test(arg)) return true;
  for (const auto& [dynamic, coefficient] : expr.address.dynamic)
    if (test(dynamic)) return true;
  return expr.predicate.valid() && test(expr.predicate);
}

/// Puts another expression in the place of each.
template <class Map>
void map_operands(Expr& expr, Map map) {
  for (ExprId& arg : expr.args) arg = map(arg);
  if (expr.predicate.valid()) expr.predicate = map(expr.predicate);
  for (auto& [dynamic, coefficient] : expr.address.dynamic) dynamic = map(dynamic);
}

enum class Reduction : std::uint8_t { Sum, Product, Max, Min, And, Or, ArgMax, ArgMin };

struct AccumulatorInfo {
  Reduction reduction;
  DType dtype;  // of the values combined: half types accumulate as F32; ArgMax/ArgMin give I64
  VarId scan;   // valid: read inside this loop, after each step, instead of once after it
  bool contracts = false;  // a matrix product's: a multiplication that is added may be one fused instruction with it
};

/// Check: `value` is computed for what it reports only.
enum class StatementKind : std::uint8_t { Loop, Initialise, Update, Store, Add, Put, Check };

inline bool is_store(StatementKind kind) {
  return kind == StatementKind::Store || kind == StatementKind::Add || kind == StatementKind::Put;
}

struct Statement {
  StatementKind kind;
  VarId variable;               // Loop
  std::vector<Statement> body;  // Loop
  int accumulator = -1;         // Initialise, Update
  /// Store, Add (read-modify-write), Put (of what lies at one place the last counts): loops of both are serial.
  int buffer = -1;
  Affine address;               // Store, Add, Put; Update of ArgMax/ArgMin: the index
  ExprId value;                 // Update, Store, Add, Put, Check
  ExprId predicate;             // Add, Put: optional
};

struct Variable {
  std::string name;
  SymDim extent;
  /// Split reductions: runs over [chunk*length, min(extent, (chunk+1)*length)).
  VarId chunk;
  SymDim chunk_length;
};

struct Kernel {
  std::string name;
  std::string location;  // the user's line that what it stores comes from: "model.py:41"
  std::vector<int> nodes;  // of the lowered graph: what it computes, ascending
  std::vector<Variable> variables;
  std::vector<Expr> expressions;
  std::vector<AccumulatorInfo> accumulators;
  /// The work items of a launch: the product of these extents, the first varying slowest; empty: one item.
  std::vector<VarId> parallel;
  /// The loop that runs over vector lanes. If it is the only parallel variable, a launch's items are its values.
  VarId vector_var;
  std::vector<Statement> body;  // inside the parallel loops
  double nanoseconds_per_item_constant = 1;  // cost model: constant + per inner element * inner extents
  double nanoseconds_per_element = 0.3;
  SymDim elements_per_item = SymDim(1);
  SymDim scratch_bytes;  // of the Scratch buffers this kernel uses

  /// The vector loop is the one that threads share, and the only one.
  bool vector_is_parallel() const { return vector_var.valid() && parallel.size() == 1 && parallel[0] == vector_var; }

  ExprId add(Expr expression);
  const Expr& operator[](ExprId id) const { return expressions[id.index]; }
  VarId add_variable(std::string name, SymDim extent);

 private:
  std::unordered_multimap<std::size_t, std::uint32_t> index_;
};

/// Both do the same work, whatever they are called: code of one is code of the other. The extent of a vector loop that
/// is the only parallel one is left out: a launch tells how far it runs.
bool same_work(const Kernel& a, const Kernel& b);
/// Equal for kernels that do the same work.
std::size_t work_hash(const Kernel& kernel);

std::string text(const Kernel& kernel);

}  // namespace fj::loop
