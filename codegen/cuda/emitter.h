/// The state of one kernel's printing, shared by emit.cpp (function, loops, statements) and emit_values.cpp (addresses,
/// loads, expressions). Scopes are the blocks being printed, outermost first; an expression is printed in the innermost
/// scope it depends on, and what is printed there stands before the block inside it, whose text is added when it
/// closes. So invariant work is hoisted by construction. What reads memory or can fail stays inside every loop that may
/// have no iteration.
#pragma once

#include <map>
#include <set>

#include "codegen/cuda/emit.h"

namespace fj::cuda {

class Emitter {
 public:
  Emitter(const loop::Kernel& kernel, const LoweredProgram& program, const Binding& binding)
      : kernel_(kernel), program_(program), binding_(binding), accumulator_scope_(kernel.accumulators.size()),
        varying_(varying(kernel, binding.width)) {}

  KernelText run();

 private:
  struct Scope {
    std::uint64_t variables = 0;
    std::map<std::uint32_t, std::string> memo;  // by expression
    std::string text;
    bool may_not_run = false;  // a loop that may have no iteration, or a condition
  };
  struct Printed {
    std::string name;
    int scope;
  };

  static std::uint64_t bit(loop::VarId variable) { return 1ull << variable.index; }
  const char* index_type() const { return binding_.narrow ? "int" : "i64"; }
  int top() const { return int(scopes_.size()) - 1; }
  std::string block_index() const { return binding_.over_table ? "block" : "blockIdx.x"; }
  std::string blocks() const { return binding_.over_table ? "blocks" : "gridDim.x"; }
  static std::string index_name(loop::VarId variable) { return "i" + std::to_string(variable.index); }

  // ---- text
  void line(int scope, const std::string& text);
  void line(const std::string& text) { line(top(), text); }
  Scope& open(std::uint64_t variables, bool may_not_run);
  /// Adds the innermost scope's text to the one around it, in `header { ... }`.
  void close(const std::string& header);

  // ---- values (emit_values.cpp)
  std::string size(const SymDim& dim);
  std::string fresh(const char* prefix) { return prefix + std::to_string(names_++); }
  Printed address(const loop::Affine& address, bool at_pack = false);
  int scope_of(std::uint64_t variables) const;
  int innermost_conditional() const;
  Printed emit(loop::ExprId id);
  std::string value(loop::ExprId id) { return emit(id).name; }
  Printed compute(loop::ExprId id);
  Printed load(loop::ExprId id);
  Printed pointwise(loop::ExprId id);
  std::string constant(DType dtype, const Scalar& scalar) const;
  Printed define(int scope, const std::string& type, const char* prefix, const std::string& text);
  /// Whether the access is one of a pack, here.
  bool in_pack(int buffer, const loop::Affine& address) const;
  bool varies(loop::ExprId id) const { return varying_[id.index]; }

  // ---- statements (emit.cpp)
  void body(const std::vector<loop::Statement>& statements);
  void store(const loop::Statement& statement);
  void put(const loop::Statement& statement);
  void initialise(int accumulator);
  void update(const loop::Statement& statement);
  void serial_loop(const loop::Statement& statement);
  void team_nest(const loop::Statement& statement);
  void team_scan(const loop::Statement& statement);
  void lanes(const std::vector<loop::Statement>& statements);
  void reduce_over_team(const std::vector<loop::Statement>& statements);
  void items();
  void tile_items();
  void kept_or_not();
  /// One of several loops that run as one.
  struct Part {
    std::string index, count;
    int scale = 1;             // iterations are so far apart
    std::string begin = {};    // where it begins, if not at 0
  };
  /// Every part's index from the number of their combination.
  void decompose(const std::string& from, const std::vector<Part>& parts);
  std::string total(const std::vector<Part>& parts) const;
  /// What is done for an item.
  const std::vector<loop::Statement>& work() const;
  std::string neutral(const loop::AccumulatorInfo& info);
  std::pair<std::string, std::string> bounds(loop::VarId variable);

  const loop::Kernel& kernel_;
  const LoweredProgram& program_;
  const Binding& binding_;
  std::vector<Scope> scopes_;
  std::vector<int> accumulator_scope_;
  std::vector<bool> varying_;
  std::set<std::uint32_t> symbols_;
  int names_ = 0;
  bool fallible_ = false;
  int pack_scope_ = -1;  // the scope in which a pack's first element is `at`; -1: elements one at a time
  std::vector<std::string> pack_stores_;  // printed when the pack's elements are computed
  std::string guard_;                    // what must hold for a store here
  int kept_round_scope_ = -1;            // inside a round of a nest whose loads are kept
  std::set<std::uint32_t> kept_, kept_now_;
  int item_scope_ = 0;
};

/// `float`, `f16`: an element in memory. Registers hold `register_type`.
std::string element_type(DType dtype);
std::string register_type(DType dtype);

}  // namespace fj::cuda
