// Reductions. An accumulator over the vector loop has a slot per unrolled copy and lane, combined when it is read: copies
// pairwise, then lanes by halves, so that the order is fixed. Argmax and argmin carry the index beside the value.
#include "codegen/llvm/emitter.h"

namespace fj {

bool Emitter::finds_index(const AccumulatorInfo& info) const {
  return info.reduction == Reduction::ArgMax || info.reduction == Reduction::ArgMin;
}

Val Emitter::identity(const AccumulatorInfo& info) {
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
      // A running sum begins with its first element, -0.0 too; a whole one with 0.0.
      if (info.scan.valid() && is_float(info.dtype)) return ops_.constant(info.dtype, Scalar(-0.0));
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

Val Emitter::combine(const AccumulatorInfo& info, Val a, Val c) {
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

Emitter::Found Emitter::better(const AccumulatorInfo& info, Found a, Found c) {
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

/// `c` comes after `a`, so a tie leaves `a`: fewer instructions an element.
Emitter::Found Emitter::better_later(const AccumulatorInfo& info, Found a, Found c) {
  const bool largest = info.reduction == Reduction::ArgMax;
  Value* wins;
  if (is_float(info.dtype)) {
    wins = largest ? b.CreateFCmpUGT(c.value, a.value) : b.CreateFCmpULT(c.value, a.value);  // a NaN wins
    wins = b.CreateAnd(wins, b.CreateFCmpORD(a.value, a.value));                             // and stays
  } else {
    const bool is_signed = is_signed_integer(info.dtype);
    wins = largest ? (is_signed ? b.CreateICmpSGT(c.value, a.value) : b.CreateICmpUGT(c.value, a.value))
                   : (is_signed ? b.CreateICmpSLT(c.value, a.value) : b.CreateICmpULT(c.value, a.value));
  }
  return {b.CreateSelect(wins, c.value, a.value), b.CreateSelect(wins, c.index, a.index)};
}

/// Indices of 32 bits where they are enough: half the vectors.
DType Emitter::index_dtype(int number, const std::vector<Statement>& body) const {
  for (const Statement& statement : body) {
    if (statement.kind == StatementKind::Loop) {
      if (const DType found = index_dtype(number, statement.body); found != DType::Bool) return found;
    } else if (statement.kind == StatementKind::Update && statement.accumulator == number) {
      std::int64_t largest = 0;
      for (const auto& [variable, coefficient] : statement.address.terms) {
        const auto extent = kernel_.variables[variable.index].extent.constant(), factor = coefficient.constant();
        if (!extent || !factor || *extent > INT32_MAX || *factor > INT32_MAX) return DType::I64;
        largest += *extent * *factor;
      }
      return largest <= INT32_MAX && statement.address.constant == SymDim() && statement.address.dynamic.empty() ? DType::I32 : DType::I64;
    }
  }
  return DType::Bool;  // not updated in this body
}

Value* Emitter::new_slot(llvm::Type* type) {
  llvm::IRBuilder<>::InsertPointGuard guard(b);
  b.SetInsertPoint(entry_, entry_->begin());
  return b.CreateAlloca(type);
}

void Emitter::initialise(int number, const std::vector<Statement>& following) {
  const AccumulatorInfo& info = kernel_.accumulators[number];
  AccumulatorState& state = accumulator_states_[number];
  if (columns_begin_) {
    ops_.lanes = lanes_;
    return store_slot(info, state.slots[0], identity(info));
  }
  state = {};
  state.scope = int(scopes_.size()) - 1;
  const bool inside = inside_vector(state.scope);
  state.lanes_independent = inside && lanes_ > 1;
  state.scans_lanes = info.scan.valid() && info.scan == kernel_.vector_var;
  state.over_lanes = !inside && !state.scans_lanes && contains_vector_loop(kernel_, following);
  const int copies = state.over_lanes ? shape_.unroll : 1;
  ops_.lanes = state.over_lanes ? shape_.lanes : state.lanes_independent ? lanes_ : 1;
  const Val start = identity(info);
  // An element equal to the identity never wins. If all are, the first is the answer: index 0.
  if (finds_index(info)) state.index_dtype = index_dtype(number, kernel_.body);
  for (int copy = 0; copy < copies; ++copy) {
    state.slots.push_back(new_slot(slot_type(info)));
    store_slot(info, state.slots.back(), start);
    if (finds_index(info)) {
      state.indices.push_back(new_slot(ops_.wide(state.index_dtype)));
      b.CreateStore(ops_.integer(state.index_dtype, 0), state.indices.back());
    }
  }
  if (!state.over_lanes || machine_.avx512 || shape_.lanes == 1) return;
  ops_.lanes = 1;
  state.rest_slot = new_slot(slot_type(info));
  store_slot(info, state.rest_slot, identity(info));
  if (!finds_index(info)) return;
  state.rest_index = new_slot(ops_.element(state.index_dtype));
  b.CreateStore(ops_.integer(state.index_dtype, 0), state.rest_index);
}

llvm::Type* Emitter::slot_type(const AccumulatorInfo& info) {
  llvm::Type* type = ops_.wide(info.dtype);
  return is_complex(info.dtype) ? static_cast<llvm::Type*>(llvm::ArrayType::get(type, 2)) : type;
}

void Emitter::store_slot(const AccumulatorInfo& info, Value* slot, Val value) {
  b.CreateStore(value.real, slot);
  if (is_complex(info.dtype)) b.CreateStore(value.imaginary, imaginary_slot(info, slot));
}

Val Emitter::load_slot(const AccumulatorInfo& info, Value* slot) {
  Val value{b.CreateLoad(ops_.wide(info.dtype), slot)};
  if (is_complex(info.dtype)) value.imaginary = b.CreateLoad(ops_.wide(info.dtype), imaginary_slot(info, slot));
  return value;
}

/// Each step adds the sum of as many lanes before as it has gathered itself. What the next vector waits for is one addition.
void Emitter::scan_lanes(const AccumulatorInfo& info, AccumulatorState& state, Value* value) {
  // -0.0 + x is x for every x.
  Value* neutral = info.reduction == Reduction::Sum && is_float(info.dtype) ? llvm::ConstantFP::getNegativeZero(value->getType()) : identity(info).real;
  if (mask_) value = b.CreateSelect(mask_, value, neutral);
  for (int distance = 1; distance < lanes_; distance *= 2) {
    std::vector<int> lanes;
    for (int lane = 0; lane < lanes_; ++lane) lanes.push_back(lane < distance ? 2 * lanes_ - distance + lane : lane - distance);
    value = combine(info, {b.CreateShuffleVector(value, neutral, lanes)}, {value}).real;
  }
  Value* last = b.CreateExtractElement(value, std::uint64_t(lanes_ - 1));
  Value* carried = b.CreateLoad(value->getType()->getScalarType(), state.slots[0]);
  state.running = combine(info, {b.CreateVectorSplat(unsigned(lanes_), carried)}, {value}).real;
  ops_.lanes = 1;
  b.CreateStore(combine(info, {carried}, {last}).real, state.slots[0]);
  ops_.lanes = lanes_;
}

void Emitter::update(const Statement& statement) {
  const AccumulatorInfo& info = kernel_.accumulators[statement.accumulator];
  AccumulatorState& state = accumulator_states_[statement.accumulator];
  const bool partial = state.over_lanes && lanes_ > 1;
  if (state.scans_lanes && lanes_ > 1) {
    ops_.lanes = lanes_;
    return scan_lanes(info, state, argument(statement.value, true).real);
  }
  const bool vector = partial || (state.lanes_independent && lanes_ > 1);
  ops_.lanes = vector ? lanes_ : 1;
  const std::size_t copy = state.over_lanes ? std::size_t(copy_) : 0;
  const bool rest = state.rest_slot && !partial;
  Value* slot = rest ? state.rest_slot : state.slots[copy];
  // Lanes that are masked off are looked at where all lanes are one result.
  Value* mask = partial ? mask_ : nullptr;
  if (const Expr& product = kernel_[statement.value];
      info.contracts && machine_.fma && product.kind == ExprKind::Pointwise && product.op == Op::mul && is_float(info.dtype)) {
    const Val left = argument(product.args[0], vector), right = argument(product.args[1], vector);
    const Val old = load_slot(info, slot);
    Value* next = b.CreateIntrinsic(llvm::Intrinsic::fma, {old.real->getType()}, {left.real, right.real, old.real});
    store_slot(info, slot, {mask ? b.CreateSelect(mask, next, old.real) : next});
    return;
  }
  const Val value = argument(statement.value, vector);
  if (finds_index(info)) {
    Value* index_slot = rest ? state.rest_index : state.indices[copy];
    llvm::Type* index_type = ops_.wide(state.index_dtype);
    Found old{b.CreateLoad(ops_.wide(info.dtype), slot), b.CreateLoad(index_type, index_slot)};
    Value* at = b.CreateTrunc(vector ? lane_addresses(statement.address) : scalar_address(statement.address), index_type);
    Found found = better_later(info, old, {value.real, at});
    if (mask) {
      found.value = b.CreateSelect(mask, found.value, old.value);
      found.index = b.CreateSelect(mask, found.index, old.index);
    }
    b.CreateStore(found.value, slot);
    b.CreateStore(found.index, index_slot);
    return;
  }
  const Val old = load_slot(info, slot);
  Val next = combine(info, old, value);
  if (mask) next.real = b.CreateSelect(mask, next.real, old.real);
  store_slot(info, slot, next);
}

Val Emitter::read_accumulator(int number) {
  const AccumulatorInfo& info = kernel_.accumulators[number];
  const Val result = combined(number);
  // Whether adding NaN and infinities of both signs is an invalid operation depends on what comes first: if there are infinities, NumPy
  // tells, in its own order. BLAS multiplies infinities by the zeros it pads with.
  if (!info.scan.valid() && (info.reduction == Reduction::Sum || info.reduction == Reduction::Product)) ops_.note_if_nan(result, info.contracts);
  return result;
}

Val Emitter::combined(int number) {
  const AccumulatorInfo& info = kernel_.accumulators[number];
  AccumulatorState& state = accumulator_states_[number];
  if (state.scans_lanes && lanes_ > 1) return {state.running};
  if (!state.over_lanes) {
    ops_.lanes = state.lanes_independent ? lanes_ : 1;
    if (finds_index(info)) return {b.CreateZExt(b.CreateLoad(ops_.wide(state.index_dtype), state.indices[0]), ops_.wide(DType::I64))};
    return load_slot(info, state.slots[0]);
  }
  // Copies pairwise, then lanes by halves: a fixed order.
  const int outer_lanes = ops_.lanes;
  ops_.lanes = shape_.lanes;
  Val result;
  if (finds_index(info)) {
    std::vector<Found> found;
    for (std::size_t c = 0; c < state.slots.size(); ++c)
      found.push_back({b.CreateLoad(ops_.wide(info.dtype), state.slots[c]), b.CreateLoad(ops_.wide(state.index_dtype), state.indices[c])});
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
      best = better(info, best, {b.CreateLoad(ops_.element(info.dtype), state.rest_slot),
                                 b.CreateLoad(ops_.element(state.index_dtype), state.rest_index)});
    result = {b.CreateZExt(best.index, b.getInt64Ty())};
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

Value* Emitter::part(Value* vector, int from, int width) {
  std::vector<int> lanes;
  for (int lane = 0; lane < width; ++lane) lanes.push_back(from + lane);
  return b.CreateShuffleVector(vector, lanes);
}

}  // namespace fj
