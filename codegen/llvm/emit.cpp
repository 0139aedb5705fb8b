// Emission. Scopes are the loops being emitted, outermost first; scope 0 is the function's entry. An expression is emitted in the
// scope of the innermost loop it depends on, before the loop inside it: loop-invariant work is hoisted by construction.
// A value that doesn't depend on the vector loop is a scalar and is spread over lanes where a vector needs it.
//
// The vector loop comes as an unrolled main loop of full vectors and a second loop for the rest: masked vectors where
// the machine has them, else one vector, then one element at a time. Lanes that are masked off compute with the
// values of the first lane, so that they raise no IEEE condition that an active lane doesn't raise.
#include "codegen/llvm/emit.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/MDBuilder.h>

#include "codegen/llvm/operations.h"
#include "runtime/base/error.h"
#include "runtime/program.h"

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

namespace {

/// How the vector loop is cut.
struct Shape {
  int lanes = 1;
  int unroll = 1;
};

bool has_complex(const Kernel& kernel) {
  for (const Expr& expr : kernel.expressions)
    if (is_complex(expr.dtype) || (expr.kind == ExprKind::Pointwise && is_complex(expr.operand_dtype))) return true;
  return false;
}

bool contains_vector_loop(const Kernel& kernel, const std::vector<Statement>& body) {
  for (const Statement& statement : body)
    if (statement.kind == StatementKind::Loop &&
        (statement.variable == kernel.vector_var || contains_vector_loop(kernel, statement.body)))
      return true;
  return false;
}

bool contains_loop(const std::vector<Statement>& body) {
  for (const Statement& statement : body)
    if (statement.kind == StatementKind::Loop) return true;
  return false;
}

const std::vector<Statement>* vector_body(const Kernel& kernel, const std::vector<Statement>& body) {
  for (const Statement& statement : body) {
    if (statement.kind != StatementKind::Loop) continue;
    if (statement.variable == kernel.vector_var) return &statement.body;
    if (const auto* found = vector_body(kernel, statement.body)) return found;
  }
  return nullptr;
}

bool vector_is_parallel(const Kernel& kernel) {
  return kernel.vector_var.valid() && kernel.parallel.size() == 1 && kernel.parallel[0] == kernel.vector_var;
}

int weight(const Expr& expr) {
  if (expr.kind != ExprKind::Pointwise) return 1;
  switch (expr.op) {
    case Op::exp: case Op::log: case Op::tanh: case Op::erf: case Op::sin: case Op::cos: return 20;
    case Op::pow: return 30;
    default: return 1;
  }
}

Shape choose_shape(const Kernel& kernel, const Machine& machine) {
  Shape shape;
  if (!kernel.vector_var.valid() || has_complex(kernel)) return shape;
  std::size_t widest = 1;
  bool floats = false;
  int total = 0;
  for (const Expr& expr : kernel.expressions) {
    total += weight(expr);
    const bool half = expr.dtype == DType::F16 || expr.dtype == DType::BF16;
    if (expr.kind == ExprKind::Load || expr.kind == ExprKind::Pointwise) {
      // Addresses and conditions of concatenations are I64 too, but they don't decide.
      const bool address = expr.dtype == DType::I64 && expr.kind != ExprKind::Load;
      if (!address) widest = std::max(widest, half ? 4 : size_in_bytes(expr.dtype));
    }
    floats |= is_float(expr.dtype);
  }
  if (floats) widest = std::max<std::size_t>(widest, 4);
  shape.lanes = std::max(2, machine.vector_bytes / int(widest));
  const std::vector<Statement>* body = vector_is_parallel(kernel) ? &kernel.body : vector_body(kernel, kernel.body);
  const bool loops_inside = body && contains_loop(*body);
  if (loops_inside)
    // Lanes are independent reductions: wide vectors serve as the unrolling.
    shape.lanes *= total <= 24 && !kernel.accumulators.empty() ? 4 : 1;
  else
    shape.unroll = total <= 60 ? 4 : total <= 160 ? 2 : 1;
  const auto extent = kernel.variables[kernel.vector_var.index].extent.constant();
  while (extent && shape.unroll > 1 && *extent < shape.lanes * shape.unroll) shape.unroll /= 2;
  return shape;
}

class Emitter {
 public:
  Emitter(const Kernel& kernel, const LoweredProgram& program, const Machine& machine, bool float_conditions, llvm::Module& module)
      : kernel_(kernel), program_(program), machine_(machine), module_(module), builder_(module.getContext()),
        ops_(builder_, machine_), b(builder_) {
    ops_.conditions = float_conditions;
    ops_.on_split = [this](BasicBlock* first, BasicBlock* second) {
      for (Scope& scope : scopes_)
        if (scope.preheader == first) scope.preheader = second;
    };
  }

  void run() {
    shape_ = choose_shape(kernel_, machine_);
    find_dependencies();
    make_function();
    emit_items();
    b.SetInsertPoint(exit_);
    b.CreateRet(b.CreateLoad(b.getInt32Ty(), ops_.status));
  }

 private:
  struct Scope {
    std::uint64_t variables = 0;   // the loop's (all parallel ones share a scope)
    BasicBlock* preheader = nullptr;  // ends in a branch to the loop: invariants of the loop go here
    std::map<std::uint32_t, Value*> index;
    std::unordered_map<std::uint32_t, Val> memo, splats;
    std::vector<std::pair<std::pair<int, Affine>, Value*>> pointers;
    std::vector<std::pair<Affine, Value*>> addresses;
    bool vector = false;
  };

  // ---- what depends on what

  static std::uint64_t bit(VarId variable) { return 1ull << variable.index; }

  std::uint64_t variables_of(const Affine& address) const {
    std::uint64_t mask = 0;
    for (const auto& [variable, coefficient] : address.terms) mask |= bit(variable);
    for (const auto& [expr, coefficient] : address.dynamic) mask |= variables_[expr.index];
    return mask;
  }

  std::uint64_t accumulators_of(const Affine& address) const {
    std::uint64_t mask = 0;
    for (const auto& [expr, coefficient] : address.dynamic) mask |= accumulators_read_[expr.index];
    return mask;
  }

  void find_dependencies() {
    FJ_CHECK(kernel_.variables.size() <= 64 && kernel_.accumulators.size() <= 64, "too many loops or accumulators in a kernel");
    variables_.resize(kernel_.expressions.size());
    accumulators_read_.resize(kernel_.expressions.size());
    for (std::size_t i = 0; i < kernel_.expressions.size(); ++i) {
      const Expr& expr = kernel_.expressions[i];
      std::uint64_t variables = 0, accumulators = 0;
      if (expr.kind == ExprKind::Load || expr.kind == ExprKind::Position) {
        variables = variables_of(expr.address);
        accumulators = accumulators_of(expr.address);
      }
      if (expr.kind == ExprKind::Accumulator) {
        accumulators = 1ull << expr.accumulator;
        const VarId scan = kernel_.accumulators[expr.accumulator].scan;
        if (scan.valid()) variables = bit(scan);
      }
      for (ExprId arg : expr.args) variables |= variables_[arg.index], accumulators |= accumulators_read_[arg.index];
      if (expr.predicate.valid())
        variables |= variables_[expr.predicate.index], accumulators |= accumulators_read_[expr.predicate.index];
      variables_[i] = variables;
      accumulators_read_[i] = accumulators;
    }
    accumulator_states_.resize(kernel_.accumulators.size());
  }

  bool is_vector_accumulators(std::uint64_t accumulators) const {
    for (std::size_t a = 0; a < accumulator_states_.size(); ++a)
      if ((accumulators >> a & 1) && accumulator_states_[a].lanes_independent) return true;
    return false;
  }

  bool is_vector(std::uint64_t variables, std::uint64_t accumulators) const {
    if (lanes_ == 1) return false;
    return (variables & bit_of_vector()) != 0 || is_vector_accumulators(accumulators);
  }
  bool is_vector(ExprId id) const { return is_vector(variables_[id.index], accumulators_read_[id.index]); }
  std::uint64_t bit_of_vector() const { return kernel_.vector_var.valid() ? bit(kernel_.vector_var) : 0; }

  /// The scope a value belongs to.
  int level(std::uint64_t variables, std::uint64_t accumulators) const {
    int result = 0;
    for (std::size_t s = 0; s < scopes_.size(); ++s)
      if (scopes_[s].variables & variables) result = int(s);
    for (std::size_t a = 0; a < accumulator_states_.size(); ++a)
      if (accumulators >> a & 1) result = std::max(result, accumulator_states_[a].scope);
    return result;
  }

  // ---- function

  void make_function() {
    auto& context = module_.getContext();
    auto* type = llvm::FunctionType::get(b.getInt32Ty(), {b.getPtrTy(), b.getPtrTy(), b.getInt64Ty(), b.getInt64Ty(), b.getPtrTy()},
                                         false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, kernel_.name, module_);
    function_->addFnAttr(llvm::Attribute::NoUnwind);
    const std::string bits = std::to_string(machine_.vector_bytes * 8);
    function_->addFnAttr("prefer-vector-width", bits);
    function_->addFnAttr("min-legal-vector-width", bits);
    entry_ = BasicBlock::Create(context, "entry", function_);
    BasicBlock* start = BasicBlock::Create(context, "start", function_);
    exit_ = BasicBlock::Create(context, "exit", function_);
    b.SetInsertPoint(entry_);
    ops_.status = b.CreateAlloca(b.getInt32Ty());
    b.CreateStore(b.getInt32(0), ops_.status);
    b.CreateBr(start);
    b.SetInsertPoint(start);
    scopes_.emplace_back();
    // Disjoint memory: a buffer written here is read through no other.
    llvm::MDBuilder metadata(context);
    llvm::MDNode* domain = metadata.createAnonymousAliasScopeDomain(kernel_.name);
    for (std::size_t i = 0; i < program_.buffers.size(); ++i) alias_scopes_.push_back(nullptr);
    auto note = [&](int buffer) {
      if (!alias_scopes_[buffer]) alias_scopes_[buffer] = metadata.createAnonymousAliasScope(domain);
    };
    for (const Expr& expr : kernel_.expressions)
      if (expr.kind == ExprKind::Load) note(expr.buffer);
    note_stores(kernel_.body, note);
  }

  void note_stores(const std::vector<Statement>& body, const auto& note) {
    for (const Statement& statement : body) {
      if (statement.kind == StatementKind::Store || statement.kind == StatementKind::Add) note(statement.buffer);
      note_stores(statement.body, note);
    }
  }

  void annotate(llvm::Instruction* access, int buffer) {
    auto& context = module_.getContext();
    access->setMetadata(llvm::LLVMContext::MD_alias_scope, llvm::MDNode::get(context, {alias_scopes_[buffer]}));
    std::vector<llvm::Metadata*> others;
    for (std::size_t i = 0; i < alias_scopes_.size(); ++i)
      if (alias_scopes_[i] && int(i) != buffer) others.push_back(alias_scopes_[i]);
    if (!others.empty()) access->setMetadata(llvm::LLVMContext::MD_noalias, llvm::MDNode::get(context, others));
  }

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

  bool inside_vector(int at) const {
    for (int s = 0; s <= at; ++s)
      if (scopes_[s].vector) return true;
    return false;
  }

  Value* size(const SymDim& dim) {
    if (auto constant = dim.constant()) return b.getInt64(std::uint64_t(*constant));
    for (const auto& [known, value] : sizes_)
      if (known == dim) return value;
    llvm::IRBuilder<>::InsertPointGuard guard(b);
    b.SetInsertPoint(entry_->getTerminator());
    Value* sum = b.getInt64(0);
    for (const SymDim::Term& term : dim.terms()) {
      Value* product = b.getInt64(std::uint64_t(term.coefficient));
      for (SymbolId symbol : term.symbols) {
        Value*& loaded = symbols_[symbol.index];
        if (!loaded)
          loaded = b.CreateLoad(b.getInt64Ty(), b.CreateConstGEP1_64(b.getInt64Ty(), function_->getArg(1), symbol.index));
        product = b.CreateMul(product, loaded);
      }
      sum = b.CreateAdd(sum, product);
    }
    sizes_.push_back({dim, sum});
    return sum;
  }

  Value* index_of(VarId variable) {
    for (std::size_t s = scopes_.size(); s-- > 0;)
      if (auto found = scopes_[s].index.find(variable.index); found != scopes_[s].index.end()) return found->second;
    FJ_CHECK(false, "a loop variable is used outside its loop");
    return nullptr;
  }

  /// The part of an address that the vector loop doesn't change, as i64, emitted scope by scope.
  Value* scalar_address(const Affine& address) {
    std::uint64_t variables = 0;
    for (const auto& [variable, coefficient] : address.terms) variables |= bit(variable);
    std::uint64_t dynamic_variables = 0;
    for (const auto& [expr, coefficient] : address.dynamic) dynamic_variables |= variables_[expr.index];
    const int at = level(variables | dynamic_variables, accumulators_of(address));
    for (const auto& [known, value] : scopes_[at].addresses)
      if (known == address) return value;
    Affine outer, inner;
    outer.constant = address.constant;
    for (const auto& term : address.terms) {
      const bool here = level(bit(term.first), 0) == at;
      (here ? inner : outer).terms.push_back(term);
    }
    for (const auto& term : address.dynamic) {
      const bool here = level(variables_[term.first.index], accumulators_read_[term.first.index]) == at;
      (here ? inner : outer).dynamic.push_back(term);
    }
    Value* result = nullptr;
    if (inner.terms.empty() && inner.dynamic.empty()) {
      result = size(address.constant);
    } else {
      Value* base = scalar_address(outer);
      at_level(at, [&] {
        result = base;
        for (const auto& [variable, coefficient] : inner.terms)
          result = b.CreateAdd(result, b.CreateMul(index_of(variable), size(coefficient)));
        for (const auto& [expr, coefficient] : inner.dynamic)
          result = b.CreateAdd(result, b.CreateMul(scalar(expr), size(coefficient)));
        return result;
      });
    }
    scopes_[at].addresses.push_back({address, result});
    return result;
  }

  Value* buffer_pointer(int buffer) {
    Value*& pointer = buffers_[buffer];
    if (pointer) return pointer;
    const ProgramBuffer& plan = program_.buffers[buffer];
    Value* offset = plan.kind == BufferKind::Scratch ? size(plan.scratch_offset) : nullptr;
    llvm::IRBuilder<>::InsertPointGuard guard(b);
    b.SetInsertPoint(entry_->getTerminator());
    if (offset) return pointer = b.CreateGEP(b.getInt8Ty(), function_->getArg(4), offset);
    auto* load = b.CreateLoad(b.getPtrTy(), b.CreateConstGEP1_64(b.getPtrTy(), function_->getArg(0), unsigned(buffer)));
    return pointer = load;
  }

  llvm::Type* storage(int buffer) const { return ops_.memory_element(program_.buffers[buffer].dtype); }
  int parts(int buffer) const { return is_complex(program_.buffers[buffer].dtype) ? 2 : 1; }

  /// Pointer to an element whose address doesn't change along the lanes.
  Value* pointer(int buffer, const Affine& address) {
    std::uint64_t variables = 0;
    for (const auto& [variable, coefficient] : address.terms) variables |= bit(variable);
    for (const auto& [expr, coefficient] : address.dynamic) variables |= variables_[expr.index];
    const int at = level(variables, accumulators_of(address));
    for (const auto& [key, value] : scopes_[at].pointers)
      if (key.first == buffer && key.second == address) return value;
    Value* base = buffer_pointer(buffer);
    Value* offset = scalar_address(address);
    Value* result = nullptr;
    at_level(at, [&] {
      if (parts(buffer) == 2) offset = b.CreateShl(offset, 1);
      result = b.CreateGEP(storage(buffer), base, offset);
      return result;
    });
    scopes_[at].pointers.push_back({{buffer, address}, result});
    return result;
  }

  /// Splits an address into what is the same in all lanes and the stride along them; nullopt if lanes go their own ways.
  struct LaneAddress {
    Affine uniform;
    SymDim stride;
  };
  std::optional<LaneAddress> lane_address(const Affine& address) const {
    LaneAddress result{address, SymDim()};
    for (const auto& [expr, coefficient] : address.dynamic)
      if (is_vector(expr)) return std::nullopt;
    std::erase_if(result.uniform.terms, [&](const auto& term) {
      if (term.first != kernel_.vector_var) return false;
      result.stride = term.second;
      return true;
    });
    return result;
  }

  /// 0, 1, 2, ... added to the first lane's index; inactive lanes get the first lane's.
  Value* lane_indices() {
    Scope& scope = vector_scope();
    if (scope.splats.contains(UINT32_MAX)) return scope.splats[UINT32_MAX].real;
    std::vector<llvm::Constant*> steps;
    for (int lane = 0; lane < lanes_; ++lane) steps.push_back(b.getInt64(std::uint64_t(lane)));
    Value* offsets = llvm::ConstantVector::get(steps);
    Value* first = b.CreateVectorSplat(unsigned(lanes_), index_of(kernel_.vector_var));
    Value* indices = b.CreateAdd(first, offsets);
    if (mask_) indices = b.CreateSelect(mask_, indices, first);
    scope.splats[UINT32_MAX] = {indices};
    return indices;
  }

  Scope& vector_scope() {
    for (std::size_t s = scopes_.size(); s-- > 0;)
      if (scopes_[s].vector) return scopes_[s];
    FJ_CHECK(false, "a vector value outside the vector loop");
    return scopes_[0];
  }
  int vector_scope_number() const {
    for (std::size_t s = scopes_.size(); s-- > 0;)
      if (scopes_[s].vector) return int(s);
    return 0;
  }

  /// An address in each lane.
  Value* lane_addresses(const Affine& address) {
    Affine uniform = address;
    Value* sum = nullptr;
    auto add = [&](Value* term) { sum = sum ? b.CreateAdd(sum, term) : term; };
    std::erase_if(uniform.terms, [&](const auto& term) {
      if (term.first != kernel_.vector_var) return false;
      add(b.CreateMul(at_level(vector_scope_number(), [&] { return lane_indices(); }),
                      b.CreateVectorSplat(unsigned(lanes_), size(term.second))));
      return true;
    });
    std::erase_if(uniform.dynamic, [&](const auto& term) {
      if (!is_vector(term.first)) return false;
      add(b.CreateMul(wide(term.first).real, b.CreateVectorSplat(unsigned(lanes_), size(term.second))));
      return true;
    });
    add(b.CreateVectorSplat(unsigned(lanes_), scalar_address(uniform)));
    return sum;
  }

  // ---- expressions

  Value* scalar(ExprId id) {
    FJ_CHECK(!is_vector(id), "a scalar address depends on the lane");
    return emit(id).real;
  }

  /// As a vector of all lanes.
  Val wide(ExprId id) {
    const Val value = emit(id);
    if (lanes_ == 1 || is_vector(id)) return value;
    const int at = level(variables_[id.index], accumulators_read_[id.index]);
    auto& splats = scopes_[at].splats;
    if (auto found = splats.find(id.index); found != splats.end()) return found->second;
    const Val spread = at_level(at, [&] { return Val{b.CreateVectorSplat(unsigned(lanes_), value.real)}; });
    scopes_[at].splats[id.index] = spread;
    return spread;
  }

  Val emit(ExprId id) {
    const int at = level(variables_[id.index], accumulators_read_[id.index]);
    if (auto found = scopes_[at].memo.find(id.index); found != scopes_[at].memo.end()) return found->second;
    const Val value = at_level(at, [&] { return compute(id); });
    scopes_[at].memo[id.index] = value;
    return value;
  }

  Val compute(ExprId id) {
    const Expr& expr = kernel_[id];
    const bool vector = is_vector(id);
    const int outer_lanes = ops_.lanes;
    ops_.lanes = vector ? lanes_ : 1;
    Value* outer_active = ops_.active;
    ops_.active = vector ? mask_ : nullptr;
    Val result;
    switch (expr.kind) {
      case ExprKind::Constant:
        result = ops_.constant(expr.dtype, expr.scalar);
        break;
      case ExprKind::Position:
        result = {vector ? lane_addresses(expr.address) : scalar_address(expr.address)};
        break;
      case ExprKind::Load:
        result = vector ? vector_load(expr) : scalar_load(expr);
        break;
      case ExprKind::Accumulator:
        result = read_accumulator(expr.accumulator);
        break;
      case ExprKind::CheckedIndex: {
        Value* raw = argument(expr.args[0], vector).real;
        Value* extent = vector ? b.CreateVectorSplat(unsigned(lanes_), size(expr.address.constant)) : size(expr.address.constant);
        Value* negative = b.CreateICmpSLT(raw, llvm::ConstantInt::get(raw->getType(), 0));
        Value* index = b.CreateSelect(negative, b.CreateAdd(raw, extent), raw);
        Value* outside = b.CreateICmpUGE(index, extent);
        if (expr.predicate.valid()) outside = b.CreateAnd(outside, argument(expr.predicate, vector).real);
        ops_.report(outside, kIndexOutOfRange);
        result = {index};
        break;
      }
      case ExprKind::Pointwise: {
        std::vector<Val> args;
        for (ExprId arg : expr.args) args.push_back(argument(arg, vector));
        result = ops_.apply(expr.op, expr.dtype, expr.operand_dtype, args);
        break;
      }
    }
    ops_.lanes = outer_lanes;
    ops_.active = outer_active;
    return result;
  }

  Val argument(ExprId id, bool vector) { return vector ? wide(id) : emit(id); }

  llvm::Align alignment(int buffer) const {
    return llvm::Align(std::max<std::size_t>(1, size_in_bytes(program_.buffers[buffer].dtype) / std::size_t(parts(buffer))));
  }

  Val scalar_load(const Expr& expr) {
    const DType dtype = program_.buffers[expr.buffer].dtype;
    Value* address = pointer(expr.buffer, expr.address);
    llvm::Type* type = storage(expr.buffer);
    if (expr.predicate.valid()) {
      // Without a branch: where the element doesn't exist, something harmless is read instead.
      address = b.CreateSelect(emit(expr.predicate).real, address, harmless());
    }
    auto* real = b.CreateAlignedLoad(type, address, alignment(expr.buffer));
    if (!expr.predicate.valid()) annotate(real, expr.buffer);
    if (!is_complex(dtype)) return {ops_.from_memory(dtype, real)};
    auto* imaginary = b.CreateAlignedLoad(type, b.CreateConstGEP1_32(type, address, 1), alignment(expr.buffer));
    if (!expr.predicate.valid()) annotate(imaginary, expr.buffer);
    return {real, imaginary};
  }

  /// 16 bytes that read as 0.
  Value* harmless() {
    if (harmless_) return harmless_;
    llvm::IRBuilder<>::InsertPointGuard guard(b);
    b.SetInsertPoint(entry_, entry_->begin());
    auto* type = llvm::ArrayType::get(b.getInt64Ty(), 2);
    auto* space = b.CreateAlloca(type);
    space->setAlignment(llvm::Align(16));
    b.CreateStore(llvm::Constant::getNullValue(type), space);
    return harmless_ = space;
  }

  Value* first_lane_where_inactive(Value* loaded) {
    if (!mask_) return loaded;
    Value* first = b.CreateVectorSplat(unsigned(lanes_), b.CreateExtractElement(loaded, std::uint64_t(0)));
    return b.CreateSelect(mask_, loaded, first);
  }

  Val vector_load(const Expr& expr) {
    const DType dtype = program_.buffers[expr.buffer].dtype;
    llvm::Type* element = storage(expr.buffer);
    auto* type = llvm::FixedVectorType::get(element, unsigned(lanes_));
    const llvm::Align align = alignment(expr.buffer);
    Value* predicate = expr.predicate.valid() ? wide(expr.predicate).real : nullptr;
    const auto lane = lane_address(expr.address);
    llvm::Instruction* loaded;
    Value* result;
    if (lane && lane->stride == SymDim(1)) {
      Value* address = b.CreateGEP(element, pointer(expr.buffer, lane->uniform), index_of(kernel_.vector_var));
      Value* mask = predicate && mask_ ? b.CreateAnd(predicate, mask_) : predicate ? predicate : mask_;
      if (mask)
        loaded = b.CreateMaskedLoad(type, address, align, mask, llvm::Constant::getNullValue(type));
      else
        loaded = b.CreateAlignedLoad(type, address, align);
      result = first_lane_where_inactive(loaded);
    } else if (lane && lane->stride == SymDim()) {
      // The same element in all lanes, under a predicate that differs between them.
      Value* address = b.CreateSelect(predicate ? b.CreateOrReduce(predicate) : static_cast<Value*>(b.getTrue()), pointer(expr.buffer, lane->uniform), harmless());
      loaded = b.CreateAlignedLoad(element, address, align);
      result = b.CreateVectorSplat(unsigned(lanes_), loaded);
      return {ops_.from_memory(dtype, result)};
    } else {
      // Inactive lanes read at the first lane's address.
      Value* addresses = b.CreateGEP(element, buffer_pointer(expr.buffer), lane_addresses(expr.address));
      Value* mask = predicate ? predicate : llvm::ConstantInt::getTrue(llvm::FixedVectorType::get(b.getInt1Ty(), unsigned(lanes_)));
      loaded = b.CreateMaskedGather(type, addresses, align, mask, llvm::Constant::getNullValue(type));
      result = loaded;
    }
    annotate(loaded, expr.buffer);
    return {ops_.from_memory(dtype, result)};
  }

  // ---- accumulators

  struct AccumulatorState {
    int scope = 0;                   // where it is initialised
    bool lanes_independent = false;  // each lane is an accumulator of its own
    bool over_lanes = false;         // lanes (and unrolled copies) are partial accumulators, combined when read
    std::vector<Value*> slots;       // by unrolled copy
    std::vector<Value*> indices;     // ArgMax, ArgMin
    Value *rest_slot = nullptr, *rest_index = nullptr;  // over_lanes: of elements taken one at a time
  };

  bool finds_index(const AccumulatorInfo& info) const {
    return info.reduction == Reduction::ArgMax || info.reduction == Reduction::ArgMin;
  }

  Val identity(const AccumulatorInfo& info) {
    const DType dtype = info.dtype;
    auto lowest = [&](bool largest) -> Value* {
      if (is_float(dtype)) return llvm::ConstantFP::getInfinity(ops_.wide(dtype), !largest);
      const unsigned bits = dtype == DType::Bool ? 1 : unsigned(size_in_bytes(dtype) * 8);
      const bool is_signed = is_signed_integer(dtype);
      const llvm::APInt value = largest ? (is_signed ? llvm::APInt::getSignedMaxValue(bits) : llvm::APInt::getMaxValue(bits))
                                        : (is_signed ? llvm::APInt::getSignedMinValue(bits) : llvm::APInt::getMinValue(bits));
      return llvm::ConstantInt::get(ops_.wide(dtype), value);
    };
    switch (info.reduction) {
      case Reduction::Sum:
        return ops_.constant(dtype, is_float(dtype) || is_complex(dtype) ? Scalar(0.0) : Scalar(std::int64_t(0)));
      case Reduction::Product:
        return ops_.constant(dtype, is_float(dtype) || is_complex(dtype) ? Scalar(1.0) : Scalar(std::int64_t(1)));
      case Reduction::And: return {ops_.integer(dtype, ~0ull)};
      case Reduction::Or: return {ops_.integer(dtype, 0)};
      case Reduction::Max: case Reduction::ArgMax: return {lowest(false)};
      case Reduction::Min: case Reduction::ArgMin: return {lowest(true)};
    }
    return {};
  }

  Val combine(const AccumulatorInfo& info, Val a, Val c) {
    const Val args[] = {a, c};
    auto apply = [&](Op op) { return ops_.apply(op, info.dtype, info.dtype, args); };
    switch (info.reduction) {
      case Reduction::Sum: return apply(Op::add);
      case Reduction::Product: return apply(Op::mul);
      case Reduction::Max: return apply(Op::maximum);
      case Reduction::Min: return apply(Op::minimum);
      case Reduction::And: return apply(Op::bit_and);
      case Reduction::Or: return apply(Op::bit_or);
      default: FJ_CHECK(false, "argmax combines pairs");
    }
    return {};
  }

  struct Found {
    Value *value, *index;
  };

  /// The better of two candidates: the larger (smaller) value, NaN before all; of equals the first.
  Found better(const AccumulatorInfo& info, Found a, Found c) {
    const bool largest = info.reduction == Reduction::ArgMax;
    Value *wins, *ties;
    if (is_float(info.dtype)) {
      Value* a_nan = b.CreateFCmpUNO(a.value, a.value);
      Value* c_nan = b.CreateFCmpUNO(c.value, c.value);
      wins = largest ? b.CreateFCmpOGT(c.value, a.value) : b.CreateFCmpOLT(c.value, a.value);
      wins = b.CreateOr(wins, b.CreateAnd(c_nan, b.CreateNot(a_nan)));
      ties = b.CreateOr(b.CreateFCmpOEQ(c.value, a.value), b.CreateAnd(a_nan, c_nan));
    } else {
      const bool is_signed = is_signed_integer(info.dtype);
      wins = largest ? (is_signed ? b.CreateICmpSGT(c.value, a.value) : b.CreateICmpUGT(c.value, a.value))
                     : (is_signed ? b.CreateICmpSLT(c.value, a.value) : b.CreateICmpULT(c.value, a.value));
      ties = b.CreateICmpEQ(c.value, a.value);
    }
    wins = b.CreateOr(wins, b.CreateAnd(ties, b.CreateICmpSLT(c.index, a.index)));
    return {b.CreateSelect(wins, c.value, a.value), b.CreateSelect(wins, c.index, a.index)};
  }

  Value* new_slot(llvm::Type* type) {
    llvm::IRBuilder<>::InsertPointGuard guard(b);
    b.SetInsertPoint(entry_, entry_->begin());
    return b.CreateAlloca(type);
  }

  void initialise(int number, const std::vector<Statement>& following) {
    const AccumulatorInfo& info = kernel_.accumulators[number];
    AccumulatorState& state = accumulator_states_[number];
    state = {};
    state.scope = int(scopes_.size()) - 1;
    const bool inside = inside_vector(state.scope);
    state.lanes_independent = inside && lanes_ > 1;
    state.over_lanes = !inside && contains_vector_loop(kernel_, following);
    const int copies = state.over_lanes ? shape_.unroll : 1;
    ops_.lanes = state.over_lanes ? shape_.lanes : state.lanes_independent ? lanes_ : 1;
    const Val start = identity(info);
    for (int copy = 0; copy < copies; ++copy) {
      state.slots.push_back(new_slot(slot_type(info)));
      store_slot(info, state.slots.back(), start);
      if (finds_index(info)) {
        state.indices.push_back(new_slot(ops_.wide(DType::I64)));
        b.CreateStore(ops_.integer(DType::I64, INT64_MAX), state.indices.back());
      }
    }
    if (!state.over_lanes || machine_.avx512 || shape_.lanes == 1) return;
    ops_.lanes = 1;
    state.rest_slot = new_slot(slot_type(info));
    store_slot(info, state.rest_slot, identity(info));
    if (!finds_index(info)) return;
    state.rest_index = new_slot(b.getInt64Ty());
    b.CreateStore(b.getInt64(INT64_MAX), state.rest_index);
  }

  llvm::Type* slot_type(const AccumulatorInfo& info) {
    llvm::Type* type = ops_.wide(info.dtype);
    return is_complex(info.dtype) ? static_cast<llvm::Type*>(llvm::ArrayType::get(type, 2)) : type;
  }
  Value* imaginary_slot(const AccumulatorInfo& info, Value* slot) { return b.CreateConstGEP1_32(ops_.wide(info.dtype), slot, 1); }
  void store_slot(const AccumulatorInfo& info, Value* slot, Val value) {
    b.CreateStore(value.real, slot);
    if (is_complex(info.dtype)) b.CreateStore(value.imaginary, imaginary_slot(info, slot));
  }
  Val load_slot(const AccumulatorInfo& info, Value* slot) {
    Val value{b.CreateLoad(ops_.wide(info.dtype), slot)};
    if (is_complex(info.dtype)) value.imaginary = b.CreateLoad(ops_.wide(info.dtype), imaginary_slot(info, slot));
    return value;
  }

  void update(const Statement& statement) {
    const AccumulatorInfo& info = kernel_.accumulators[statement.accumulator];
    AccumulatorState& state = accumulator_states_[statement.accumulator];
    const bool partial = state.over_lanes && lanes_ > 1;
    const bool vector = partial || (state.lanes_independent && lanes_ > 1);
    ops_.lanes = vector ? lanes_ : 1;
    const std::size_t copy = state.over_lanes ? std::size_t(copy_) : 0;
    const bool rest = state.rest_slot && !partial;
    Value* slot = rest ? state.rest_slot : state.slots[copy];
    const Val value = argument(statement.value, vector);
    if (finds_index(info)) {
      Value* index_slot = rest ? state.rest_index : state.indices[copy];
      Found old{b.CreateLoad(ops_.wide(info.dtype), slot), b.CreateLoad(ops_.wide(DType::I64), index_slot)};
      Value* at = vector ? lane_addresses(statement.address) : scalar_address(statement.address);
      Found found = better(info, old, {value.real, at});
      if (mask_ && vector) {
        found.value = b.CreateSelect(mask_, found.value, old.value);
        found.index = b.CreateSelect(mask_, found.index, old.index);
      }
      b.CreateStore(found.value, slot);
      b.CreateStore(found.index, index_slot);
      return;
    }
    const Val old = load_slot(info, slot);
    Val next = combine(info, old, value);
    if (mask_ && vector) next.real = b.CreateSelect(mask_, next.real, old.real);
    store_slot(info, slot, next);
  }

  Val read_accumulator(int number) {
    const AccumulatorInfo& info = kernel_.accumulators[number];
    AccumulatorState& state = accumulator_states_[number];
    if (!state.over_lanes) {
      ops_.lanes = state.lanes_independent ? lanes_ : 1;
      if (finds_index(info)) return {b.CreateLoad(ops_.wide(DType::I64), state.indices[0])};
      return load_slot(info, state.slots[0]);
    }
    // Copies pairwise, then lanes by halves: a fixed order.
    const int outer_lanes = ops_.lanes;
    ops_.lanes = shape_.lanes;
    Val result;
    if (finds_index(info)) {
      std::vector<Found> found;
      for (std::size_t c = 0; c < state.slots.size(); ++c)
        found.push_back({b.CreateLoad(ops_.wide(info.dtype), state.slots[c]), b.CreateLoad(ops_.wide(DType::I64), state.indices[c])});
      Found best = found[0];
      for (std::size_t c = 1; c < found.size(); ++c) best = better(info, best, found[c]);
      for (int width = shape_.lanes / 2; width >= 1; width /= 2) {
        auto halves = [&](Value* v) { return std::pair(part(v, 0, width), part(v, width, width)); };
        auto [v0, v1] = halves(best.value);
        auto [i0, i1] = halves(best.index);
        ops_.lanes = width;
        best = better(info, {v0, i0}, {v1, i1});
      }
      if (shape_.lanes > 1) {
        best.value = b.CreateExtractElement(best.value, std::uint64_t(0));
        best.index = b.CreateExtractElement(best.index, std::uint64_t(0));
      }
      ops_.lanes = 1;
      if (state.rest_slot)
        best = better(info, best, {b.CreateLoad(ops_.element(info.dtype), state.rest_slot), b.CreateLoad(b.getInt64Ty(), state.rest_index)});
      result = {best.index};
    } else {
      std::vector<Val> values;
      for (Value* slot : state.slots) values.push_back(load_slot(info, slot));
      while (values.size() > 1) {
        std::vector<Val> pairs;
        for (std::size_t i = 0; i + 1 < values.size(); i += 2) pairs.push_back(combine(info, values[i], values[i + 1]));
        values = pairs;
      }
      result = values[0];
      for (int width = shape_.lanes / 2; width >= 1; width /= 2) {
        const Val low{part(result.real, 0, width)}, high{part(result.real, width, width)};
        ops_.lanes = width;
        // Vectors of one lane stay vectors here.
        result = combine(info, low, high);
      }
      if (shape_.lanes > 1) result.real = b.CreateExtractElement(result.real, std::uint64_t(0));
      ops_.lanes = 1;
      if (state.rest_slot) result = combine(info, result, load_slot(info, state.rest_slot));
    }
    ops_.lanes = outer_lanes;
    return result;
  }

  /// Lanes [from, from + width) of a vector.
  Value* part(Value* vector, int from, int width) {
    std::vector<int> lanes;
    for (int lane = 0; lane < width; ++lane) lanes.push_back(from + lane);
    return b.CreateShuffleVector(vector, lanes);
  }

  // ---- statements

  void emit_body(const std::vector<Statement>& body) {
    for (const Statement& statement : body) {
      switch (statement.kind) {
        case StatementKind::Loop: emit_loop(statement); break;
        case StatementKind::Initialise: initialise(statement.accumulator, body); break;
        case StatementKind::Update: update(statement); break;
        case StatementKind::Store: store(statement); break;
        case StatementKind::Add: add(statement); break;
      }
    }
  }

  void store(const Statement& statement) {
    const DType dtype = program_.buffers[statement.buffer].dtype;
    llvm::Type* element = storage(statement.buffer);
    const llvm::Align align = alignment(statement.buffer);
    const auto lane = lane_address(statement.address);
    const bool vector = lanes_ > 1 && inside_vector(int(scopes_.size()) - 1);
    ops_.lanes = vector ? lanes_ : 1;
    const Val value = argument(statement.value, vector);
    if (!vector) {
      Value* address = pointer(statement.buffer, statement.address);
      annotate(b.CreateAlignedStore(ops_.to_memory(dtype, value.real), address, align), statement.buffer);
      if (is_complex(dtype))
        annotate(b.CreateAlignedStore(value.imaginary, b.CreateConstGEP1_32(element, address, 1), align), statement.buffer);
      return;
    }
    Value* memory = ops_.to_memory(dtype, value.real);
    if (lane && lane->stride == SymDim(1)) {
      Value* address = b.CreateGEP(element, pointer(statement.buffer, lane->uniform), index_of(kernel_.vector_var));
      annotate(mask_ ? b.CreateMaskedStore(memory, address, align, mask_)
                     : static_cast<llvm::Instruction*>(b.CreateAlignedStore(memory, address, align)),
               statement.buffer);
      return;
    }
    Value* addresses = b.CreateGEP(element, buffer_pointer(statement.buffer), lane_addresses(statement.address));
    Value* mask = mask_ ? mask_ : llvm::ConstantInt::getTrue(llvm::FixedVectorType::get(b.getInt1Ty(), unsigned(lanes_)));
    annotate(b.CreateMaskedScatter(memory, addresses, align, mask), statement.buffer);
  }

  void add(const Statement& statement) {
    auto& context = module_.getContext();
    const DType dtype = program_.buffers[statement.buffer].dtype;
    ops_.lanes = 1;
    const Val value = emit(statement.value);
    BasicBlock* then = BasicBlock::Create(context, "inside", function_);
    BasicBlock* after = BasicBlock::Create(context, "after", function_);
    Value* condition = statement.predicate.valid() ? emit(statement.predicate).real : b.getTrue();
    Value* address = pointer(statement.buffer, statement.address);
    b.CreateCondBr(condition, then, after);
    b.SetInsertPoint(then);
    llvm::Type* type = storage(statement.buffer);
    const llvm::Align align = alignment(statement.buffer);
    Val old{b.CreateAlignedLoad(type, address, align)};
    Value* imaginary = is_complex(dtype) ? b.CreateConstGEP1_32(type, address, 1) : nullptr;
    if (imaginary) old.imaginary = b.CreateAlignedLoad(type, imaginary, align);
    old.real = ops_.from_memory(dtype, old.real);
    const Val args[] = {old, value};
    const Val sum = ops_.apply(Op::add, dtype, dtype, args);
    b.CreateAlignedStore(ops_.to_memory(dtype, sum.real), address, align);
    if (imaginary) b.CreateAlignedStore(sum.imaginary, imaginary, align);
    b.CreateBr(after);
    b.SetInsertPoint(after);
  }

  // ---- loops

  /// for (i = begin; i + step <= end; i += step) body; returns the first i not done.
  template <class EmitBody>
  Value* counted_loop(VarId variable, Value* begin, Value* end, int step, bool partial_step, bool vector, std::uint64_t variables,
                      const EmitBody& emit_loop_body) {
    auto& context = module_.getContext();
    BasicBlock* preheader = BasicBlock::Create(context, "before", function_);
    BasicBlock* header = BasicBlock::Create(context, "loop", function_);
    BasicBlock* body = BasicBlock::Create(context, "body", function_);
    BasicBlock* done = BasicBlock::Create(context, "done", function_);
    b.CreateBr(preheader);
    b.SetInsertPoint(preheader);
    // The last i of a full step is end - step, so that i + step can't overflow.
    Value* limit = partial_step ? end : b.CreateSub(end, b.getInt64(std::uint64_t(step - 1)));
    b.CreateBr(header);
    b.SetInsertPoint(header);
    auto* i = b.CreatePHI(b.getInt64Ty(), 2);
    i->addIncoming(begin, preheader);
    b.CreateCondBr(b.CreateICmpSLT(i, limit), body, done);
    b.SetInsertPoint(body);
    Scope scope;
    scope.variables = variables;
    scope.preheader = preheader;
    scope.vector = vector;
    if (variable.valid()) scope.index[variable.index] = i;
    scopes_.push_back(std::move(scope));
    emit_loop_body(i);
    scopes_.pop_back();
    i->addIncoming(b.CreateAdd(i, b.getInt64(std::uint64_t(step))), b.GetInsertBlock());
    b.CreateBr(header);
    b.SetInsertPoint(done);
    return i;
  }

  void emit_loop(const Statement& statement) {
    const loop::Variable& variable = kernel_.variables[statement.variable.index];
    Value* begin = b.getInt64(0);
    Value* end = size(variable.extent);
    if (variable.chunk.valid()) {
      Value* length = size(variable.chunk_length);
      begin = b.CreateMul(index_of(variable.chunk), length);
      Value* after = b.CreateAdd(begin, length);
      end = b.CreateSelect(b.CreateICmpSLT(after, end), after, end);
    }
    if (statement.variable == kernel_.vector_var) return emit_vector_loop(statement.variable, begin, end, statement.body);
    counted_loop(statement.variable, begin, end, 1, true, false, bit(statement.variable), [&](Value*) { emit_body(statement.body); });
  }

  void emit_vector_loop(VarId variable, Value* begin, Value* end, const std::vector<Statement>& body) {
    auto& context = module_.getContext();
    // One block before all the loops below takes what is invariant in them.
    BasicBlock* preheader = BasicBlock::Create(context, "before_vectors", function_);
    BasicBlock* start = BasicBlock::Create(context, "vectors", function_);
    b.CreateBr(preheader);
    b.SetInsertPoint(preheader);
    b.CreateBr(start);
    b.SetInsertPoint(start);
    Scope hoisted;
    hoisted.preheader = preheader;
    scopes_.push_back(hoisted);  // a scope without variables: it only carries the block

    const int lanes = shape_.lanes;
    auto run = [&](Value* from, int step_lanes, int copies, bool masked) {
      lanes_ = step_lanes;
      const bool partial_step = masked || step_lanes == 1;
      Value* next = counted_loop(VarId{}, from, end, step_lanes * copies, partial_step, false, 0, [&](Value* i) {
        // Each copy has a scope of its own; nothing belongs to the scope around them, so they need no block before them.
        for (int copy = 0; copy < copies; ++copy) {
          Scope scope;
          scope.variables = bit(variable);
          scope.vector = true;
          Value* index = copy == 0 ? i : b.CreateAdd(i, b.getInt64(std::uint64_t(copy * step_lanes)));
          scope.index[variable.index] = index;
          scopes_.push_back(std::move(scope));
          copy_ = copy;
          if (masked) mask_ = active_lanes(index, end, step_lanes);
          emit_body(body);
          mask_ = nullptr;
          scopes_.pop_back();
        }
        copy_ = 0;
      });
      return next;
    };

    Value* next = begin;
    if (lanes == 1) {
      run(next, 1, 1, false);
    } else {
      next = run(next, lanes, shape_.unroll, false);
      if (machine_.avx512) {
        run(next, lanes, 1, true);
      } else {
        if (shape_.unroll > 1) next = run(next, lanes, 1, false);
        run(next, 1, 1, false);
      }
    }
    lanes_ = 1;
    scopes_.pop_back();
  }

  Value* active_lanes(Value* index, Value* end, int lanes) {
    std::vector<llvm::Constant*> steps;
    // Lanes left, as i32: enough for any vector, and half the width of i64.
    Value* left = b.CreateSub(end, index);
    Value* bound = b.CreateTrunc(b.CreateSelect(b.CreateICmpSLT(left, b.getInt64(std::uint64_t(lanes))), left, b.getInt64(std::uint64_t(lanes))),
                                 b.getInt32Ty());
    for (int lane = 0; lane < lanes; ++lane) steps.push_back(b.getInt32(std::uint32_t(lane)));
    return b.CreateICmpULT(llvm::ConstantVector::get(steps), b.CreateVectorSplat(unsigned(lanes), bound));
  }

  void emit_items() {
    Value* begin = function_->getArg(2);
    Value* end = function_->getArg(3);
    if (vector_is_parallel(kernel_)) {
      emit_vector_loop(kernel_.vector_var, begin, end, kernel_.body);
    } else if (kernel_.parallel.empty()) {
      // A single item; [begin, end) is [0, 1) or empty.
      emit_body(kernel_.body);
    } else {
      std::uint64_t variables = 0;
      for (VarId variable : kernel_.parallel) variables |= bit(variable);
      counted_loop(VarId{}, begin, end, 1, true, false, variables, [&](Value* item) {
        Scope& scope = scopes_.back();
        Value* rest = item;
        for (std::size_t d = kernel_.parallel.size(); d-- > 0;) {
          const VarId variable = kernel_.parallel[d];
          if (d == 0) {
            scope.index[variable.index] = rest;
            continue;
          }
          Value* extent = size(kernel_.variables[variable.index].extent);
          Value* quotient = b.CreateUDiv(rest, extent);
          scope.index[variable.index] = b.CreateSub(rest, b.CreateMul(quotient, extent));
          rest = quotient;
        }
        emit_body(kernel_.body);
      });
    }
    b.CreateBr(exit_);
  }

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
  Value* harmless_ = nullptr;
  Value* mask_ = nullptr;
  int lanes_ = 1;  // of the vector loop being emitted; 1 outside it
  int copy_ = 0;
};

}  // namespace

void emit_kernel(const Kernel& kernel, const LoweredProgram& program, const Machine& machine, bool float_conditions,
                 llvm::Module& module) {
  Emitter(kernel, program, machine, float_conditions, module).run();
}

int items_per_step(const Kernel& kernel, const Machine& machine) {
  if (!vector_is_parallel(kernel)) return 1;
  const Shape shape = choose_shape(kernel, machine);
  return shape.lanes * shape.unroll;
}

}  // namespace fj
