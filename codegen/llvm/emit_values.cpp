// Addresses, loads and expressions, each emitted in the scope it belongs to.
#include "codegen/llvm/emitter.h"

namespace fj {

bool Emitter::inside_vector(int at) const {
  for (int s = 0; s <= at; ++s)
    if (scopes_[s].vector) return true;
  return false;
}

Value* Emitter::size(const SymDim& dim) {
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

Value* Emitter::index_of(VarId variable) {
  for (std::size_t s = scopes_.size(); s-- > 0;)
    if (auto found = scopes_[s].index.find(variable.index); found != scopes_[s].index.end()) return found->second;
  FJ_CHECK(false, "a loop variable is used outside its loop");
  return nullptr;
}

Value* Emitter::scalar_address(const Affine& address) {
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

Value* Emitter::buffer_pointer(int buffer) {
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

Value* Emitter::pointer(int buffer, const Affine& address) {
  std::uint64_t variables = 0;
  for (const auto& [variable, coefficient] : address.terms) variables |= bit(variable);
  for (const auto& [expr, coefficient] : address.dynamic) variables |= variables_[expr.index];
  const int at = level(variables, accumulators_of(address));
  for (const auto& [key, value] : scopes_[at].pointers)
    if (key.first == buffer && key.second == address) return value;
  // What doesn't change in this scope is a pointer of an outer one: the inner loop adds one index to it.
  Affine outer, inner;
  outer.constant = address.constant;
  for (const auto& term : address.terms) (level(bit(term.first), 0) == at ? inner : outer).terms.push_back(term);
  for (const auto& term : address.dynamic)
    (level(variables_[term.first.index], accumulators_read_[term.first.index]) == at ? inner : outer)
        .dynamic.push_back(term);
  const bool splits = at > 0 && !(outer == Affine());
  Value* base = splits ? pointer(buffer, outer) : buffer_pointer(buffer);
  Value* offset = scalar_address(splits ? inner : address);
  Value* result = nullptr;
  at_level(at, [&] {
    if (parts(buffer) == 2) offset = b.CreateShl(offset, 1);
    result = b.CreateGEP(storage(buffer), base, offset);
    return result;
  });
  scopes_[at].pointers.push_back({{buffer, address}, result});
  return result;
}

std::optional<Emitter::LaneAddress> Emitter::lane_address(const Affine& address) const {
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

Value* Emitter::lane_indices() {
  Scope& scope = vector_scope();
  const std::pair key{UINT32_MAX, lanes_};
  if (scope.splats.contains(key)) return scope.splats[key].real;
  std::vector<llvm::Constant*> steps;
  for (int lane = 0; lane < lanes_; ++lane) steps.push_back(b.getInt64(std::uint64_t(lane)));
  Value* offsets = llvm::ConstantVector::get(steps);
  Value* first = b.CreateVectorSplat(unsigned(lanes_), index_of(kernel_.vector_var));
  Value* indices = b.CreateAdd(first, offsets);
  if (mask_) indices = b.CreateSelect(mask_, indices, first);
  scope.splats[key] = {indices};
  return indices;
}

Emitter::Scope& Emitter::vector_scope() {
  for (std::size_t s = scopes_.size(); s-- > 0;)
    if (scopes_[s].vector) return scopes_[s];
  FJ_CHECK(false, "a vector value outside the vector loop");
  return scopes_[0];
}

int Emitter::vector_scope_number() const {
  for (std::size_t s = scopes_.size(); s-- > 0;)
    if (scopes_[s].vector) return int(s);
  return 0;
}

Value* Emitter::lane_addresses(const Affine& address) {
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

Value* Emitter::scalar(ExprId id) {
  FJ_CHECK(!is_vector(id), "a scalar address depends on the lane");
  return emit(id).real;
}

Val Emitter::wide(ExprId id) {
  const Val value = emit(id);
  if (lanes_ == 1 || is_vector(id)) return value;
  const int at = level(variables_[id.index], accumulators_read_[id.index]);
  auto& splats = scopes_[at].splats;
  const std::pair key{id.index, lanes_};
  if (auto found = splats.find(key); found != splats.end()) return found->second;
  const Val spread = at_level(at, [&] { return Val{b.CreateVectorSplat(unsigned(lanes_), value.real)}; });
  scopes_[at].splats[key] = spread;
  return spread;
}

Val Emitter::emit(ExprId id) {
  const int at = level(variables_[id.index], accumulators_read_[id.index]);
  if (auto found = scopes_[at].memo.find(id.index); found != scopes_[at].memo.end()) return found->second;
  const Val value = at_level(at, [&] { return compute(id); });
  scopes_[at].memo[id.index] = value;
  return value;
}

Val Emitter::compute(ExprId id) {
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
      if (const auto transposed = vector ? transposed_load(id) : std::nullopt)
        result = *transposed;
      else
        result = vector ? vector_load(expr) : scalar_load(expr);
      break;
    case ExprKind::Accumulator:
      result = read_accumulator(expr.accumulator);
      break;
    case ExprKind::CheckedIndex: {
      Value* raw = argument(expr.args[0], vector).real;
      Value* extent =
          vector ? b.CreateVectorSplat(unsigned(lanes_), size(expr.address.constant)) : size(expr.address.constant);
      Value* negative = b.CreateICmpSLT(raw, llvm::ConstantInt::get(raw->getType(), 0));
      Value* index = b.CreateSelect(negative, b.CreateAdd(raw, extent), raw);
      Value* outside = b.CreateICmpUGE(index, extent);
      if (expr.predicate.valid()) outside = b.CreateAnd(outside, argument(expr.predicate, vector).real);
      ops_.report(outside, kIndexOutOfRange);
      result = {index};
      break;
    }
    case ExprKind::Pointwise: {
      if (const auto fact = known(id)) {
        result = ops_.constant(DType::Bool, Scalar(*fact));
        break;
      }
      if (const auto taken = expr.op == Op::where ? known(expr.args[0]) : std::nullopt;
          taken && leaves_no_trace(expr.args[*taken ? 2 : 1])) {
        result = argument(expr.args[*taken ? 1 : 2], vector);
        break;
      }
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

llvm::Align Emitter::alignment(int buffer) const {
  return llvm::Align(
      std::max<std::size_t>(1, size_in_bytes(program_.buffers[buffer].dtype) / std::size_t(parts(buffer))));
}

Val Emitter::scalar_load(const Expr& expr) {
  const DType dtype = program_.buffers[expr.buffer].dtype;
  Value* address = pointer(expr.buffer, expr.address);
  llvm::Type* type = storage(expr.buffer);
  if (expr.predicate.valid()) {
    if (known(expr.predicate) == false) check_indices(expr);
    // Without a branch: where the element doesn't exist, something harmless is read instead.
    address = b.CreateSelect(emit(expr.predicate).real, address, harmless());
  }
  auto* real = b.CreateAlignedLoad(type, address, alignment(expr.buffer));
  annotate(real, expr.buffer);
  if (!is_complex(dtype)) return {ops_.from_memory(dtype, real)};
  auto* imaginary = b.CreateAlignedLoad(type, b.CreateConstGEP1_32(type, address, 1), alignment(expr.buffer));
  annotate(imaginary, expr.buffer);
  return {real, imaginary};
}

/// Nothing is stored to it after the function's start, so that reading it is reading the buffer as far as aliases are
/// concerned.
Value* Emitter::harmless() {
  if (harmless_) return harmless_;
  llvm::IRBuilder<>::InsertPointGuard guard(b);
  b.SetInsertPoint(entry_, entry_->begin());
  // As many bytes as the widest vector that is loaded: choose_shape makes at most four registers one vector.
  auto* type = llvm::ArrayType::get(b.getInt64Ty(), std::uint64_t(std::max(16, 4 * machine_.vector_bytes) / 8));
  auto* space = b.CreateAlloca(type);
  space->setAlignment(llvm::Align(64));
  b.CreateStore(llvm::Constant::getNullValue(type), space);
  return harmless_ = space;
}

Value* Emitter::first_lane_where_inactive(Value* loaded) {
  if (!mask_) return loaded;
  Value* first = b.CreateVectorSplat(unsigned(lanes_), b.CreateExtractElement(loaded, std::uint64_t(0)));
  return b.CreateSelect(mask_, loaded, first);
}

Value* Emitter::every_second_lane(Value* lanes, int half) {
  std::vector<int> from;
  for (int j = 0; j < lanes_; ++j) from.push_back((j & 1) == half ? (half * (lanes_ - 1) + j) / 2 : lanes_);
  return b.CreateShuffleVector(lanes, llvm::Constant::getNullValue(lanes->getType()), from);
}

std::optional<Val> Emitter::transposed_load(ExprId id) {
  const Expr& expr = kernel_[id];
  const auto lane = lane_address(expr.address);
  if (mask_ || expr.predicate.valid() || !lane || lane->stride == SymDim() || lane->stride == SymDim(1) ||
      parts(expr.buffer) != 1)
    return std::nullopt;
  std::map<std::int64_t, ExprId> neighbours;  // by how many elements behind this one
  for (std::uint32_t i = 0; i < kernel_.expressions.size(); ++i) {
    const Expr& other = kernel_.expressions[i];
    if (other.kind != ExprKind::Load || other.buffer != expr.buffer || other.predicate.valid()) continue;
    if (other.address.terms != expr.address.terms || other.address.dynamic != expr.address.dynamic) continue;
    if (const auto apart = (other.address.constant - expr.address.constant).constant()) neighbours[*apart] = ExprId{i};
  }
  // Groups of as many as there are lanes, from the first on.
  std::int64_t first = 0;
  while (neighbours.contains(first - 1)) --first;
  first = -((-first) % lanes_);
  for (int row = 0; row < lanes_; ++row)
    if (!neighbours.contains(first + row)) return std::nullopt;

  llvm::Type* element = storage(expr.buffer);
  auto* type = llvm::FixedVectorType::get(element, unsigned(lanes_));
  Value* stride = size(lane->stride);
  Affine start = lane->uniform;
  start.constant = start.constant + SymDim(first);
  Value* address = b.CreateGEP(element, pointer(expr.buffer, start), b.CreateMul(index_of(kernel_.vector_var), stride));
  std::vector<Value*> rows;
  for (int row = 0; row < lanes_; ++row) {
    auto* load = b.CreateAlignedLoad(type, address, alignment(expr.buffer));
    annotate(load, expr.buffer);
    rows.push_back(load);
    address = b.CreateGEP(element, address, stride);
  }
  // The quarters beside the diagonal change places, in ever smaller blocks.
  for (int width = lanes_ / 2; width >= 1; width /= 2)
    for (int row = 0; row < lanes_; ++row) {
      if (row & width) continue;
      std::vector<int> upper, lower;
      for (int column = 0; column < lanes_; ++column) {
        upper.push_back(column & width ? lanes_ + column - width : column);
        lower.push_back(column & width ? lanes_ + column : column + width);
      }
      Value *above = rows[std::size_t(row)], *below = rows[std::size_t(row + width)];
      rows[std::size_t(row)] = b.CreateShuffleVector(above, below, upper);
      rows[std::size_t(row + width)] = b.CreateShuffleVector(above, below, lower);
    }
  const DType dtype = program_.buffers[expr.buffer].dtype;
  Scope& scope = scopes_[level(variables_[id.index], accumulators_read_[id.index])];
  for (int row = 0; row < lanes_; ++row)
    scope.memo[neighbours[first + row].index] = {ops_.from_memory(dtype, rows[std::size_t(row)])};
  return scope.memo[id.index];
}

void Emitter::check_indices(const Expr& expr) {
  for_each_operand(expr, [&](ExprId id) {
    if (kernel_[id].kind == ExprKind::CheckedIndex) argument(id, is_vector(id));
    else check_indices(kernel_[id]);
  });
}

Val Emitter::vector_load(const Expr& expr) {
  const DType dtype = program_.buffers[expr.buffer].dtype;
  llvm::Type* element = storage(expr.buffer);
  auto* type = llvm::FixedVectorType::get(element, unsigned(lanes_));
  const llvm::Align align = alignment(expr.buffer);
  const ExprId condition = unknown_part(expr.predicate);
  if (condition.valid() && known(condition) == false) {
    check_indices(expr);
    return {ops_.from_memory(dtype, llvm::Constant::getNullValue(type))};
  }
  const auto lane = lane_address(expr.address);
  llvm::Instruction* loaded;
  Value* result;
  if (lane && lane->stride == SymDim(1)) {
    Value* address = b.CreateGEP(element, pointer(expr.buffer, lane->uniform), index_of(kernel_.vector_var));
    Value* mask = mask_;
    if (condition.valid()) {
      // Where no lane is on the address may lie where no memory is mapped. A masked load may not fault there, but each
      // such load costs the processor a microcode assist of hundreds of cycles: it gets an address that is always
      // there.
      Value* any;
      if (is_vector(condition)) {
        Value* predicate = emit(condition).real;
        mask = mask ? b.CreateAnd(predicate, mask) : predicate;
        any = b.CreateOrReduce(mask);
      } else {
        any = emit(condition).real;
      }
      address = b.CreateSelect(any, address, harmless());
    }
    if (mask)
      loaded = b.CreateMaskedLoad(type, address, align, mask, llvm::Constant::getNullValue(type));
    else
      loaded = b.CreateAlignedLoad(type, address, align);
    result = first_lane_where_inactive(loaded);
  } else if (lane && lane->stride == SymDim(2) && !condition.valid() && lanes_ > 1 &&
             (!mask_ || machine_.vector_bytes >= 64)) {
    // Every second element, as a pooling or a slice reads: two vectors and a shuffle in place of a gather. The second
    // vector ends at the last element that is wanted: what lies behind it may not be memory of the array's.
    Value* address = b.CreateGEP(element, pointer(expr.buffer, lane->uniform),
                                 b.CreateMul(index_of(kernel_.vector_var), size(lane->stride)));
    std::vector<int> wanted;
    for (int i = 0; i < lanes_; ++i) wanted.push_back(2 * i < lanes_ ? 2 * i : 2 * i + 1);
    Value* halves[2];
    for (const int half : {0, 1}) {
      Value* from = b.CreateGEP(element, address, b.getInt64(std::uint64_t(half * (lanes_ - 1))));
      llvm::Instruction* part;
      if (mask_) {
        Value* mask = every_second_lane(mask_, half);
        // With no lane on, as above.
        if (half == 1) from = b.CreateSelect(b.CreateOrReduce(mask), from, harmless());
        part = b.CreateMaskedLoad(type, from, align, mask, llvm::Constant::getNullValue(type));
      } else {
        part = b.CreateAlignedLoad(type, from, align);
      }
      annotate(part, expr.buffer);
      halves[half] = part;
    }
    return {ops_.from_memory(dtype, first_lane_where_inactive(b.CreateShuffleVector(halves[0], halves[1], wanted)))};
  } else if (Value* predicate = condition.valid() ? wide(condition).real : nullptr; lane && lane->stride == SymDim()) {
    // The same element in all lanes, under a predicate that differs between them.
    Value* any = predicate ? b.CreateOrReduce(predicate) : static_cast<Value*>(b.getTrue());
    Value* address = b.CreateSelect(any, pointer(expr.buffer, lane->uniform), harmless());
    loaded = b.CreateAlignedLoad(element, address, align);
    result = b.CreateVectorSplat(unsigned(lanes_), loaded);
    return {ops_.from_memory(dtype, result)};
  } else {
    // Inactive lanes read at the first lane's address.
    Value* addresses = b.CreateGEP(element, buffer_pointer(expr.buffer), lane_addresses(expr.address));
    Value* mask =
        predicate ? predicate : llvm::ConstantInt::getTrue(llvm::FixedVectorType::get(b.getInt1Ty(), unsigned(lanes_)));
    loaded = b.CreateMaskedGather(type, addresses, align, mask, llvm::Constant::getNullValue(type));
    result = loaded;
  }
  annotate(loaded, expr.buffer);
  return {ops_.from_memory(dtype, result)};
}

}  // namespace fj
