/// The state of one kernel's emission, shared by emit.cpp (function, statements, loops), emit_values.cpp (addresses,
/// loads, expressions) and emit_accumulators.cpp (reductions). See emit.cpp for how scopes work.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "codegen/llvm/kernel_shape.h"
#include "codegen/llvm/operations.h"
#include "codegen/loops/lower.h"
#include "runtime/base/error.h"

namespace fj {

using llvm::BasicBlock;
using llvm::Value;
using loop::AccumulatorInfo;
using loop::Affine;
using loop::Expr;
using loop::ExprId;
using loop::ExprKind;
using loop::Kernel;
using loop::Reduction;
using loop::Statement;
using loop::StatementKind;
using loop::VarId;

class Emitter {
 public:
  Emitter(const Kernel& kernel, const LoweredProgram& program, const Machine& machine, bool float_conditions,
          llvm::Module& module)
      : kernel_(kernel),
        program_(program),
        machine_(machine),
        module_(module),
        builder_(module.getContext()),
        ops_(builder_, machine_),
        b(builder_) {
    ops_.conditions = float_conditions;
    ops_.on_split = [this](BasicBlock* first, BasicBlock* second) {
      for (Scope& scope : scopes_)
        if (scope.preheader == first) scope.preheader = second;
    };
  }

  void run();

 private:

  struct Scope {
    std::uint64_t variables = 0;   // the loop's (all parallel ones share a scope)
    BasicBlock* preheader = nullptr;  // ends in a branch to the loop: invariants of the loop go here
    std::map<std::uint32_t, Value*> index;
    std::unordered_map<std::uint32_t, Val> memo;
    std::map<std::pair<std::uint32_t, int>, Val> splats;  // by expression and number of lanes
    std::vector<std::pair<std::pair<int, Affine>, Value*>> pointers;
    std::vector<std::pair<Affine, Value*>> addresses;
    bool vector = false;
  };

  // ---- what depends on what

  static std::uint64_t bit(VarId variable) { return 1ull << variable.index; }

  std::uint64_t variables_of(const Affine& address) const;
  std::uint64_t accumulators_of(const Affine& address) const;
  void find_dependencies();
  bool is_vector_accumulators(std::uint64_t accumulators) const;
  bool is_vector(std::uint64_t variables, std::uint64_t accumulators) const;
  bool is_vector(ExprId id) const { return is_vector(variables_[id.index], accumulators_read_[id.index]); }
  std::uint64_t bit_of_vector() const { return kernel_.vector_var.valid() ? bit(kernel_.vector_var) : 0; }

  /// The scope a value belongs to.
  int level(std::uint64_t variables, std::uint64_t accumulators) const;

  // ---- function

  void make_function();
  void annotate(llvm::Instruction* access, int buffer);

  // ---- emitting at a level

  /// Runs `emit` where values of scope `at` belong. Inside the innermost scope that is here.
  template <class Emit>
  auto at_level(int at, const Emit& emit) {
    if (at + 1 >= int(scopes_.size())) return emit();
    // Not IRBuilder's own guard: the block we are in may be split meanwhile.
    BasicBlock* block = b.GetInsertBlock();
    llvm::Instruction* before = b.GetInsertPoint() == block->end() ? nullptr : &*b.GetInsertPoint();
    // Values of an outer scope are computed for all lanes that scope has.
    const int lanes = ops_.lanes;
    Value* active = ops_.active;
    Value* mask = mask_;
    if (!inside_vector(at)) mask_ = nullptr, ops_.active = nullptr;
    b.SetInsertPoint(scopes_[at + 1].preheader->getTerminator());
    auto result = emit();
    ops_.lanes = lanes;
    ops_.active = active;
    mask_ = mask;
    if (before)
      b.SetInsertPoint(before);
    else
      b.SetInsertPoint(block);
    return result;
  }

  bool inside_vector(int at) const;
  Value* size(const SymDim& dim);
  Value* index_of(VarId variable);

  /// The part of an address that the vector loop doesn't change, as i64, emitted scope by scope.
  Value* scalar_address(const Affine& address);
  Value* buffer_pointer(int buffer);
  llvm::Type* storage(int buffer) const { return ops_.memory_element(program_.buffers[buffer].dtype); }
  int parts(int buffer) const { return is_complex(program_.buffers[buffer].dtype) ? 2 : 1; }

  /// Pointer to an element whose address doesn't change along the lanes.
  Value* pointer(int buffer, const Affine& address);

  /// Splits an address into what is the same in all lanes and the stride along them; nullopt if lanes go their own
  /// ways.
  struct LaneAddress {
    Affine uniform;
    SymDim stride;
  };
  std::optional<LaneAddress> lane_address(const Affine& address) const;

  /// 0, 1, 2, ... added to the first lane's index; inactive lanes get the first lane's.
  Value* lane_indices();
  Scope& vector_scope();
  int vector_scope_number() const;

  /// An address in each lane.
  Value* lane_addresses(const Affine& address);

  // ---- expressions

  Value* scalar(ExprId id);

  /// As a vector of all lanes.
  Val wide(ExprId id);
  Val emit(ExprId id);
  Val compute(ExprId id);
  Val argument(ExprId id, bool vector) { return vector ? wide(id) : emit(id); }

  llvm::Align alignment(int buffer) const;
  Val scalar_load(const Expr& expr);

  /// A vector of zeros in memory.
  Value* harmless();
  /// The first (0) or second (1) half of the lanes, as they lie in memory with a gap of one between them: at every
  /// other place of a vector that begins at the half's first lane, or one before it, so that the second vector ends
  /// with the last lane. Zeros between them.
  Value* every_second_lane(Value* lanes, int half);
  Value* first_lane_where_inactive(Value* loaded);
  Val vector_load(const Expr& expr);
  /// A load whose lanes are a stride apart, where as many loads of its neighbours are wanted as there are lanes: all of
  /// them.
  std::optional<Val> transposed_load(ExprId id);

  // ---- accumulators

  struct AccumulatorState {
    int scope = 0;                   // where it is initialised
    bool lanes_independent = false;  // each lane is an accumulator of its own
    bool scans_lanes = false;        // running values along the lanes; the slot carries the last one on
    Value* running = nullptr;        // of the vector being emitted
    bool over_lanes = false;         // lanes (and unrolled copies) are partial accumulators, combined when read
    std::vector<Value*> slots;       // by unrolled copy
    std::vector<Value*> indices;     // ArgMax, ArgMin
    DType index_dtype = DType::I64;  // of the indices
    /// The indices are those of the first lane of the first copy; the next lane's is so much larger.
    std::int64_t index_step = 0;
    Value *rest_slot = nullptr, *rest_index = nullptr;  // over_lanes: of elements taken one at a time
    Value* columns = nullptr;        // Shape::columns of them in memory; the slot is a place in there
    /// Sums of floats: see emit_sums.cpp.
    Value *total = nullptr, *lost = nullptr;  // of the blocks before, what rounding it lost; null: there is one block
    Value* has_total = nullptr;  // whether a block has ended, where the sizes decide; else null
    bool exact_lanes = false;    // the sum is long enough for lanes to be added up without a loss
    Value *total_columns = nullptr, *lost_columns = nullptr;
    std::vector<std::pair<int, Val>> copies;  // what those emitted so far add: the sum of as many
  };

  bool finds_index(const AccumulatorInfo& info) const;
  Val identity(const AccumulatorInfo& info);
  Val combine(const AccumulatorInfo& info, Val a, Val c);

  struct Found {
    Value *value, *index;
  };

  Value* rank(const AccumulatorInfo& info, Value* value);
  Found extremum(const AccumulatorInfo& info, Found earlier, Found later);
  const Affine* address_of_index(int number, const std::vector<Statement>& body) const;
  DType index_dtype(const Affine& address) const;
  std::int64_t index_step(const Affine& address) const;
  Value* index_offsets(const AccumulatorState& state, std::size_t copy, int lanes);
  Value* new_slot(llvm::Type* type);
  void initialise(int number, const std::vector<Statement>& following);
  llvm::Type* slot_type(const AccumulatorInfo& info);
  Value* imaginary_slot(const AccumulatorInfo& info, Value* slot) {
    return b.CreateConstGEP1_32(ops_.wide(info.dtype), slot, 1);
  }
  void store_slot(const AccumulatorInfo& info, Value* slot, Val value);
  Val load_slot(const AccumulatorInfo& info, Value* slot);
  void update(const Statement& statement);
  void scan_lanes(const AccumulatorInfo& info, AccumulatorState& state, Value* value);
  Val read_accumulator(int number);
  /// The slots of an accumulator as one number a result.
  Val combined(int number);
  /// Lanes by halves, then what was taken one at a time.
  Val combined_lanes(const AccumulatorInfo& info, const AccumulatorState& state, Val result);

  // ---- sums in blocks (emit_sums.cpp)

  /// Iterations of a loop after which something is done if more follow.
  struct Blocks {
    Value* length = nullptr;  // null: no blocks
    std::function<void()> emit_end;
  };

  /// Whether a sum may have more additions than a chain, so that it needs a total.
  bool has_blocks(int number, const std::vector<Statement>& body) const;
  /// The sum of what all copies add, once the last one is there.
  std::optional<Val> sum_of_copies(const AccumulatorInfo& info, AccumulatorState& state, Val term);
  /// Additions to a slot that the loops of a body make; nullopt if that depends on sizes.
  std::optional<std::int64_t> additions(int number, const std::vector<Statement>& body) const;
  /// An upper bound of the same, for sizes as they come.
  Value* additions_at_most(int number, const std::vector<Statement>& body);
  /// Iterations of the loop that make one addition to a slot.
  int elements_of_addition(VarId variable, const std::vector<Statement>& body) const;
  /// The sums with a total that a loop with this body adds to.
  std::vector<int> block_sums(const std::vector<Statement>& body) const;
  /// The blocks of the sums that a loop adds to.
  Blocks blocks_of(const Statement& loop);
  void begin_total(const AccumulatorInfo& info, AccumulatorState& state);
  /// Adds what the slot holds to the total; the slot begins again. `enclosing`: after loops that are whole.
  void end_block(int number, bool enclosing);
  /// total + term, rounded, in `total`; what rounding lost is added to `lost`.
  void add_exactly(Val& total, Val& lost, Val term);
  static bool is_long(std::optional<std::int64_t> additions);
  /// The rounding errors of a sum, or nothing where an infinity or NaN was added: the sum itself has it.
  Val what_was_lost(Val lost);
  Val exact_sum(const AccumulatorInfo& info, const AccumulatorState& state);
  /// Of a sum that has a total: one number a result.
  Val whole_sum(const AccumulatorInfo& info, const AccumulatorState& state);
  int slot_lanes(const AccumulatorState& state) const {
    return state.over_lanes ? shape_.lanes : state.lanes_independent ? lanes_ : 1;
  }

  /// Lanes [from, from + width) of a vector.
  Value* part(Value* vector, int from, int width);

  // ---- statements

  void emit_body(const std::vector<Statement>& body);
  Val stored_value(const Statement& statement);
  void store(const Statement& statement);
  void put(const Statement& statement);
  void check(const Statement& statement);

  // ---- loops

  /// for (i = begin; i + step <= end; i += step) body; returns the first i not done.
  Value* counted_loop(VarId variable, Value* begin, Value* end, int step, bool partial_step, bool vector,
                      std::uint64_t variables, llvm::function_ref<void(Value*)> emit_loop_body, const Blocks& blocks);

  void emit_loop(const Statement& statement);
  /// A loop other than the vector loop, Shape::rows iterations at once where they only update reductions. `around`
  /// emits what is between the loop and its body.
  void emit_rows(const Statement& statement, Value* begin, Value* end,
                 llvm::function_ref<void(llvm::function_ref<void()>)> around);
  /// A scope without variables: a block before all loops that follow takes what is invariant in them.
  void enter_hoisted(const char* name);
  void emit_vector_loop(VarId variable, Value* begin, Value* end, const std::vector<Statement>& body);
  /// `emit_inner` emits the body for one vector; `body` is what it does.
  void emit_vector_loop(VarId variable, Value* begin, Value* end, const std::vector<Statement>& body,
                        llvm::function_ref<void()> emit_inner);
  /// Where a comparison of positions changes its value along the vector loop: the loop runs in pieces, and in each the
  /// comparison is known. So a concatenation loads from one array at a time, and the inside of a padded one needs no
  /// masks.
  struct Cut {
    Affine at;  // the first index behind it
    std::vector<std::pair<ExprId, bool>> facts;  // comparisons, with their value behind it
  };
  std::vector<Cut> find_cuts(VarId variable) const;
  void emit_pieces(Value* begin, Value* end, const std::vector<Cut>& cuts,
                   llvm::function_ref<void(Value*, Value*)> emit_piece);
  /// What is known here of a condition.
  std::optional<bool> known(ExprId condition) const;
  /// The condition without the parts of a conjunction that are known to hold here; invalid if nothing is left.
  ExprId unknown_part(ExprId condition) const;
  /// Nobody can tell whether the value was computed.
  bool leaves_no_trace(ExprId id) const;
  /// What is not loaded is reported all the same where its index is out of range.
  void check_indices(const Expr& expr);
  Value* active_lanes(Value* index, Value* end, int lanes);
  /// The items of a kernel with Shape::columns.
  void emit_columns_or_parts(Value* begin, Value* end);
  void emit_columns(Value* begin, Value* end);
  void enter_columns();
  void emit_items();

  const Kernel& kernel_;
  const LoweredProgram& program_;
  const Machine& machine_;
  llvm::Module& module_;
  llvm::IRBuilder<> builder_;
  Operations ops_;
  llvm::IRBuilder<>& b;
  Shape shape_;
  llvm::Function* function_ = nullptr;
  BasicBlock *entry_ = nullptr, *exit_ = nullptr;
  std::vector<std::uint64_t> variables_, accumulators_read_;
  std::vector<Scope> scopes_;
  std::vector<AccumulatorState> accumulator_states_;
  std::vector<std::pair<SymDim, Value*>> sizes_;
  std::map<std::uint32_t, Value*> symbols_;
  std::map<int, Value*> buffers_;
  std::vector<llvm::MDNode*> alias_scopes_;
  Value *columns_begin_ = nullptr, *columns_end_ = nullptr;  // the columns being reduced together
  Value* harmless_ = nullptr;
  Value* mask_ = nullptr;
  std::map<std::uint32_t, bool> known_;  // comparisons, in the piece of the vector loop being emitted
  int lanes_ = 1;  // of the vector loop being emitted; 1 outside it
  int copy_ = 0, copies_ = 1;  // of the vector loop being emitted
  int rows_ = 1;               // of the loop in emit_rows
};

}  // namespace fj
