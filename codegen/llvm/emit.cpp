// Emission. Scopes are the loops being emitted, outermost first; scope 0 is the function's entry. An expression is
// emitted in the scope of the innermost loop it depends on, before the loop inside it: loop-invariant work is hoisted
// by construction. A value that doesn't depend on the vector loop is a scalar and is spread over lanes where a vector
// needs it.
//
// The vector loop comes as an unrolled main loop of full vectors and a second loop for the rest: masked vectors where
// the machine has them, else one vector, then one element at a time. Lanes that are masked off compute with the
// values of the first lane, so that they raise no IEEE condition that an active lane doesn't raise.
#include "codegen/llvm/emit.h"

#include <llvm/IR/MDBuilder.h>

#include "codegen/llvm/emitter.h"
#include "runtime/program.h"

namespace fj {

namespace {

void note_stores(const std::vector<Statement>& body, const auto& note) {
  for (const Statement& statement : body) {
    if (is_store(statement.kind)) note(statement.buffer);
    note_stores(statement.body, note);
  }
}

}  // namespace

void Emitter::run() {
  shape_ = choose_shape(kernel_, machine_);
  find_dependencies();
  make_function();
  emit_items();
  b.SetInsertPoint(exit_);
  b.CreateRet(b.CreateLoad(b.getInt32Ty(), ops_.status));
}

std::uint64_t Emitter::variables_of(const Affine& address) const {
  std::uint64_t mask = 0;
  for (const auto& [variable, coefficient] : address.terms) mask |= bit(variable);
  for (const auto& [expr, coefficient] : address.dynamic) mask |= variables_[expr.index];
  return mask;
}

std::uint64_t Emitter::accumulators_of(const Affine& address) const {
  std::uint64_t mask = 0;
  for (const auto& [expr, coefficient] : address.dynamic) mask |= accumulators_read_[expr.index];
  return mask;
}

void Emitter::find_dependencies() {
  FJ_CHECK(kernel_.variables.size() <= 64 && kernel_.accumulators.size() <= 64,
           "too many loops or accumulators in a kernel");
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

bool Emitter::is_vector_accumulators(std::uint64_t accumulators) const {
  for (std::size_t a = 0; a < accumulator_states_.size(); ++a)
    if ((accumulators >> a & 1) && accumulator_states_[a].lanes_independent) return true;
  return false;
}

bool Emitter::is_vector(std::uint64_t variables, std::uint64_t accumulators) const {
  if (lanes_ == 1) return false;
  return (variables & bit_of_vector()) != 0 || is_vector_accumulators(accumulators);
}

int Emitter::level(std::uint64_t variables, std::uint64_t accumulators) const {
  int result = 0;
  for (std::size_t s = 0; s < scopes_.size(); ++s)
    if (scopes_[s].variables & variables) result = int(s);
  for (std::size_t a = 0; a < accumulator_states_.size(); ++a)
    if (accumulators >> a & 1) result = std::max(result, accumulator_states_[a].scope);
  return result;
}

void Emitter::make_function() {
  auto& context = module_.getContext();
  auto* type = llvm::FunctionType::get(
      b.getInt32Ty(), {b.getPtrTy(), b.getPtrTy(), b.getInt64Ty(), b.getInt64Ty(), b.getPtrTy()}, false);
  function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, kernel_.name, module_);
  function_->addFnAttr(llvm::Attribute::NoUnwind);
  const std::string bits = std::to_string(machine_.vector_bytes * 8);
  function_->addFnAttr("prefer-vector-width", bits);
  function_->addFnAttr("min-legal-vector-width", bits);
  // Vectors of a known length are made of scalable ones whose length is known: exactly this one.
  if (const unsigned parts = unsigned(machine_.scalable_bytes) / 16)
    function_->addFnAttr(llvm::Attribute::getWithVScaleRangeArgs(context, parts, parts));
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

void Emitter::annotate(llvm::Instruction* access, int buffer) {
  auto& context = module_.getContext();
  access->setMetadata(llvm::LLVMContext::MD_alias_scope, llvm::MDNode::get(context, {alias_scopes_[buffer]}));
  std::vector<llvm::Metadata*> others;
  for (std::size_t i = 0; i < alias_scopes_.size(); ++i)
    if (alias_scopes_[i] && int(i) != buffer) others.push_back(alias_scopes_[i]);
  if (!others.empty()) access->setMetadata(llvm::LLVMContext::MD_noalias, llvm::MDNode::get(context, others));
}

void Emitter::emit_body(const std::vector<Statement>& body) {
  for (std::size_t s = 0; s < body.size(); ++s) {
    const Statement& statement = body[s];
    // Stores next to each other: one may overwrite in place what another's value is computed from.
    const bool first = s == 0 || body[s - 1].kind != StatementKind::Store;
    for (std::size_t next = s; first && next < body.size() && body[next].kind == StatementKind::Store; ++next)
      stored_value(body[next]);
    switch (statement.kind) {
      case StatementKind::Loop: emit_loop(statement); break;
      case StatementKind::Initialise: initialise(statement.accumulator, body); break;
      case StatementKind::Update: update(statement); break;
      case StatementKind::Store: store(statement); break;
      case StatementKind::Add: case StatementKind::Put: put(statement); break;
      case StatementKind::Check: check(statement); break;
    }
  }
}

/// What a store writes; computed once, however often it is asked for.
Val Emitter::stored_value(const Statement& statement) {
  const bool vector = lanes_ > 1 && inside_vector(int(scopes_.size()) - 1);
  ops_.lanes = vector ? lanes_ : 1;
  return argument(statement.value, vector);
}

void Emitter::store(const Statement& statement) {
  const DType dtype = program_.buffers[statement.buffer].dtype;
  llvm::Type* element = storage(statement.buffer);
  const llvm::Align align = alignment(statement.buffer);
  const auto lane = lane_address(statement.address);
  const bool vector = lanes_ > 1 && inside_vector(int(scopes_.size()) - 1);
  const Val value = stored_value(statement);
  if (!vector) {
    Value* address = pointer(statement.buffer, statement.address);
    annotate(b.CreateAlignedStore(ops_.to_memory(dtype, value.real), address, align), statement.buffer);
    if (is_complex(dtype))
      annotate(b.CreateAlignedStore(value.imaginary, b.CreateConstGEP1_32(element, address, 1), align),
               statement.buffer);
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
  Value* all = llvm::ConstantInt::getTrue(llvm::FixedVectorType::get(b.getInt1Ty(), unsigned(lanes_)));
  if (lane && lane->stride == SymDim(2) && machine_.vector_bytes >= 64 && size_in_bytes(dtype) >= 4) {
    // As a load of every second element: what lies between them is not written.
    Value* address = b.CreateGEP(element, pointer(statement.buffer, lane->uniform),
                                 b.CreateMul(index_of(kernel_.vector_var), size(lane->stride)));
    for (const int half : {0, 1}) {
      Value* to = b.CreateGEP(element, address, b.getInt64(std::uint64_t(half * (lanes_ - 1))));
      annotate(
          b.CreateMaskedStore(every_second_lane(memory, half), to, align, every_second_lane(mask_ ? mask_ : all, half)),
          statement.buffer);
    }
    return;
  }
  Value* addresses = b.CreateGEP(element, buffer_pointer(statement.buffer), lane_addresses(statement.address));
  Value* mask = mask_ ? mask_ : all;
  annotate(b.CreateMaskedScatter(memory, addresses, align, mask), statement.buffer);
}

void Emitter::check(const Statement& statement) {
  // A volatile store is what no pass takes away, nor what it stores.
  const Val value = stored_value(statement);
  const auto keep = [&](Value* part) {
    llvm::IRBuilder<> entry(entry_, entry_->begin());
    b.CreateStore(part, entry.CreateAlloca(part->getType()), true);
  };
  keep(ops_.to_memory(kernel_[statement.value].dtype, value.real));
  if (value.imaginary) keep(value.imaginary);
}

void Emitter::put(const Statement& statement) {
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
  Value* imaginary = is_complex(dtype) ? b.CreateConstGEP1_32(type, address, 1) : nullptr;
  Val result = value;
  if (statement.kind == StatementKind::Add) {
    Val old{b.CreateAlignedLoad(type, address, align)};
    if (imaginary) old.imaginary = b.CreateAlignedLoad(type, imaginary, align);
    old.real = ops_.from_memory(dtype, old.real);
    const Val args[] = {old, value};
    result = ops_.apply(Op::add, dtype, dtype, args);
  }
  b.CreateAlignedStore(ops_.to_memory(dtype, result.real), address, align);
  if (imaginary) b.CreateAlignedStore(result.imaginary, imaginary, align);
  b.CreateBr(after);
  b.SetInsertPoint(after);
}

Value* Emitter::counted_loop(VarId variable, Value* begin, Value* end, int step, bool partial_step, bool vector,
                             std::uint64_t variables, llvm::function_ref<void(Value*)> emit_loop_body,
                             const Blocks& blocks) {
  auto& context = module_.getContext();
  BasicBlock* preheader = BasicBlock::Create(context, "before", function_);
  BasicBlock* header = BasicBlock::Create(context, "loop", function_);
  BasicBlock* body = BasicBlock::Create(context, "body", function_);
  BasicBlock* done = BasicBlock::Create(context, "done", function_);
  b.CreateBr(preheader);
  b.SetInsertPoint(preheader);
  // The last i of a full step is end - step, so that i + step can't overflow.
  Value* limit = partial_step ? end : b.CreateSub(end, b.getInt64(std::uint64_t(step - 1)));
  // Invariants of the loop go before the loop over its blocks too, which runs at least once.
  BasicBlock *before_header = preheader, *after_loop = done;
  Value* stop = limit;
  llvm::PHINode* first = nullptr;
  if (blocks.length) {
    Value* length = b.CreateMul(blocks.length, b.getInt64(std::uint64_t(step)));
    before_header = BasicBlock::Create(context, "block", function_);
    after_loop = BasicBlock::Create(context, "block_done", function_);
    b.CreateBr(before_header);
    b.SetInsertPoint(before_header);
    first = b.CreatePHI(b.getInt64Ty(), 2);
    first->addIncoming(begin, preheader);
    Value* after = b.CreateAdd(first, length);
    stop = b.CreateSelect(b.CreateICmpSLT(after, limit), after, limit);
  }
  b.CreateBr(header);
  b.SetInsertPoint(header);
  auto* i = b.CreatePHI(b.getInt64Ty(), 2);
  i->addIncoming(first ? static_cast<Value*>(first) : begin, before_header);
  b.CreateCondBr(b.CreateICmpSLT(i, stop), body, after_loop);
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
  if (blocks.length) {
    BasicBlock* next = BasicBlock::Create(context, "block_end", function_);
    b.SetInsertPoint(after_loop);
    b.CreateCondBr(b.CreateICmpSLT(i, limit), next, done);
    b.SetInsertPoint(next);
    blocks.emit_end();
    first->addIncoming(i, b.GetInsertBlock());
    b.CreateBr(before_header);
  }
  b.SetInsertPoint(done);
  return i;
}

void Emitter::emit_loop(const Statement& statement) {
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
  emit_rows(statement, begin, end, [](llvm::function_ref<void()> emit_row) { emit_row(); });
}

void Emitter::emit_rows(const Statement& statement, Value* begin, Value* end,
                        llvm::function_ref<void(llvm::function_ref<void()>)> around) {
  const VarId variable = statement.variable;
  const Blocks blocks = blocks_of(statement);
  auto emit_row = [&] { emit_body(statement.body); };
  const int rows = elements_of_addition(variable, statement.body);
  if (rows == 1) {
    counted_loop(variable, begin, end, 1, true, false, bit(variable), [&](Value*) { around(emit_row); }, blocks);
    return;
  }
  Value* next = counted_loop(VarId{}, begin, end, rows, false, false, 0, [&](Value* i) {
    around([&] {
      // What belongs to a vector loop around them goes before all of them.
      BasicBlock* before = BasicBlock::Create(module_.getContext(), "before_rows", function_);
      BasicBlock* start = BasicBlock::Create(module_.getContext(), "some_rows", function_);
      b.CreateBr(before);
      b.SetInsertPoint(before);
      b.CreateBr(start);
      b.SetInsertPoint(start);
      rows_ = rows;
      for (int row = 0; row < rows; ++row) {
        Scope scope;
        scope.variables = bit(variable);
        scope.preheader = before;
        scope.index[variable.index] = row == 0 ? i : b.CreateAdd(i, b.getInt64(std::uint64_t(row)));
        scopes_.push_back(std::move(scope));
        emit_row();
        before = scopes_.back().preheader;
        scopes_.pop_back();
      }
      rows_ = 1;
    });
  }, blocks);
  counted_loop(variable, next, end, 1, true, false, bit(variable), [&](Value*) { around(emit_row); }, {});
}

void Emitter::enter_hoisted(const char* name) {
  auto& context = module_.getContext();
  BasicBlock* preheader = BasicBlock::Create(context, std::string("before_") + name, function_);
  BasicBlock* start = BasicBlock::Create(context, name, function_);
  b.CreateBr(preheader);
  b.SetInsertPoint(preheader);
  b.CreateBr(start);
  b.SetInsertPoint(start);
  Scope hoisted;
  hoisted.preheader = preheader;
  scopes_.push_back(hoisted);
}

void Emitter::emit_vector_loop(VarId variable, Value* begin, Value* end, const std::vector<Statement>& body) {
  emit_vector_loop(variable, begin, end, body, [&] { emit_body(body); });
}

void Emitter::emit_vector_loop(VarId variable, Value* begin, Value* end, const std::vector<Statement>& body,
                               llvm::function_ref<void()> emit_inner) {
  enter_hoisted("vectors");
  const int lanes = shape_.lanes;
  Statement loop{StatementKind::Loop};
  loop.variable = variable;
  loop.body = body;
  const Blocks blocks = blocks_of(loop);
  auto run = [&](Value* from, int step_lanes, int copies, bool masked) {
    lanes_ = step_lanes;
    const bool whole = step_lanes == lanes && copies == shape_.unroll && !masked;
    const bool partial_step = masked || step_lanes * copies == 1;
    Value* next = counted_loop(VarId{}, from, end, step_lanes * copies, partial_step, false, 0, [&](Value* i) {
      // Each copy has a scope of its own; nothing belongs to the scope around them, so they need no block before them.
      copies_ = copies;
      for (int copy = 0; copy < copies; ++copy) {
        Scope scope;
        scope.variables = bit(variable);
        scope.vector = true;
        Value* index = copy == 0 ? i : b.CreateAdd(i, b.getInt64(std::uint64_t(copy * step_lanes)));
        scope.index[variable.index] = index;
        scopes_.push_back(std::move(scope));
        copy_ = copy;
        if (columns_begin_) enter_columns();
        if (masked) mask_ = active_lanes(index, end, step_lanes);
        emit_inner();
        mask_ = nullptr;
        scopes_.pop_back();
      }
      copy_ = 0, copies_ = 1;
    }, whole ? blocks : Blocks{});
    return next;
  };

  auto piece = [&](Value* from, Value* to) {
    end = to;
    if (lanes == 1) {
      Value* next = run(from, 1, shape_.unroll, false);
      if (shape_.unroll > 1) run(next, 1, 1, false);
      return;
    }
    Value* next = run(from, lanes, shape_.unroll, false);
    // Single vectors follow each other in a chain of their own where they may be many.
    if (blocks.length && shape_.unroll > 8) blocks.emit_end();
    if (machine_.avx512) {
      run(next, shape_.rest_lanes, 1, true);
    } else {
      if (shape_.unroll > 1) next = run(next, lanes, 1, false);
      run(next, 1, 1, false);
    }
  };
  emit_pieces(begin, end, lanes == 1 ? std::vector<Cut>() : find_cuts(variable), piece);
  lanes_ = 1;
  scopes_.pop_back();
}

Value* Emitter::active_lanes(Value* index, Value* end, int lanes) {
  std::vector<llvm::Constant*> steps;
  // Lanes left, as i32: enough for any vector, and half the width of i64.
  Value* left = b.CreateSub(end, index);
  Value* all = b.getInt64(std::uint64_t(lanes));
  Value* bound = b.CreateTrunc(b.CreateSelect(b.CreateICmpSLT(left, all), left, all),
                               b.getInt32Ty());
  for (int lane = 0; lane < lanes; ++lane) steps.push_back(b.getInt32(std::uint32_t(lane)));
  return b.CreateICmpULT(llvm::ConstantVector::get(steps), b.CreateVectorSplat(unsigned(lanes), bound));
}

void Emitter::emit_columns_or_parts(Value* begin, Value* end) {
  auto& context = module_.getContext();
  // Parts of a row, as threads share them, are better off in registers.
  Value* whole = size(kernel_.variables[kernel_.vector_var.index].extent);
  Value* most = b.getInt64(std::uint64_t(shape_.columns));
  whole = b.CreateSelect(b.CreateICmpSLT(whole, most), whole, most);
  enter_hoisted("rows_or_parts");
  BasicBlock* rows = BasicBlock::Create(context, "rows", function_);
  BasicBlock* parts = BasicBlock::Create(context, "parts", function_);
  b.CreateCondBr(b.CreateICmpSGE(b.CreateSub(end, begin), whole), rows, parts);
  b.SetInsertPoint(rows);
  emit_columns(begin, end);
  b.CreateBr(exit_);
  b.SetInsertPoint(parts);
  accumulator_states_.assign(accumulator_states_.size(), {});
  emit_vector_loop(kernel_.vector_var, begin, end, kernel_.body);
  scopes_.pop_back();
}

void Emitter::emit_columns(Value* begin, Value* end) {
  for (std::size_t a = 0; a < kernel_.accumulators.size(); ++a) {
    llvm::IRBuilder<>::InsertPointGuard guard(b);
    b.SetInsertPoint(entry_, entry_->begin());
    // Vectors begin at multiples of their lanes; the last one may be masked, and is stored whole.
    auto columns = [&] {
      llvm::Type* element = ops_.element(kernel_.accumulators[a].dtype);
      auto* memory = b.CreateAlloca(llvm::ArrayType::get(element, std::uint64_t(shape_.columns + shape_.lanes)));
      memory->setAlignment(llvm::Align(2048));  // as the widest vectors are: 256 lanes of 8 bytes
      return memory;
    };
    AccumulatorState& state = accumulator_states_[a];
    state.columns = columns();
    if (has_blocks(int(a), kernel_.body)) state.total_columns = columns(), state.lost_columns = columns();
    state.total = state.total_columns;
  }
  counted_loop(VarId{}, begin, end, shape_.columns, true, false, 0, [&](Value* first) {
    Value* after = b.CreateAdd(first, b.getInt64(std::uint64_t(shape_.columns)));
    after = b.CreateSelect(b.CreateICmpSLT(after, end), after, end);
    columns_begin_ = first;
    // Each statement is a loop over the columns of its own: what they have in common is in the accumulators.
    for (std::size_t s = 0; s < kernel_.body.size();) {
      const Statement& statement = kernel_.body[s];
      if (statement.kind == StatementKind::Loop) {
        Value* rows = size(kernel_.variables[statement.variable.index].extent);
        columns_end_ = after;
        emit_rows(statement, b.getInt64(0), rows, [&](llvm::function_ref<void()> emit_row) {
          emit_vector_loop(kernel_.vector_var, first, after, statement.body, emit_row);
        });
        ++s;
        continue;
      }
      std::vector<Statement> together;  // stores may overwrite what the next ones are computed from
      while (s < kernel_.body.size() && kernel_.body[s].kind != StatementKind::Loop)
        together.push_back(kernel_.body[s++]);
      emit_vector_loop(kernel_.vector_var, first, after, together);
    }
    columns_begin_ = nullptr;
  }, {});
}

void Emitter::enter_columns() {
  for (AccumulatorState& state : accumulator_states_) {
    state.scope = int(scopes_.size()) - 1;
    state.lanes_independent = lanes_ > 1;
    llvm::Type* type = ops_.element(kernel_.accumulators[std::size_t(&state - accumulator_states_.data())].dtype);
    Value* column = b.CreateSub(index_of(kernel_.vector_var), columns_begin_);
    state.slots = {b.CreateGEP(type, state.columns, column)};
    if (!state.total_columns) continue;
    state.total = b.CreateGEP(type, state.total_columns, column);
    state.lost = b.CreateGEP(type, state.lost_columns, column);
  }
}

void Emitter::emit_items() {
  Value* begin = function_->getArg(2);
  Value* end = function_->getArg(3);
  if (shape_.columns > 0 && find_cuts(kernel_.vector_var).empty()) {
    emit_columns_or_parts(begin, end);
  } else if (kernel_.vector_is_parallel()) {
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
    }, {});
  }
  b.CreateBr(exit_);
}

void emit_kernel(const Kernel& kernel, const LoweredProgram& program, const Machine& machine, bool float_conditions,
                 llvm::Module& module) {
  Emitter(kernel, program, machine, float_conditions, module).run();
}

int items_per_step(const Kernel& kernel, const Machine& machine) {
  if (!kernel.vector_is_parallel()) return 1;
  const Shape shape = choose_shape(kernel, machine);
  return shape.lanes * shape.unroll;
}

double unshared_speedup(const Kernel& kernel, const Machine& machine) {
  return choose_shape(kernel, machine).columns > 0 ? 2.4 : 1;
}

}  // namespace fj
