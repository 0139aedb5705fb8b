// Reductions. An accumulator over the vector loop has a slot per unrolled copy and lane, combined when it is read:
// copies pairwise, then lanes by halves, so that the order is fixed. Argmax and argmin carry the index beside the
// value.
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
    const llvm::APInt value = largest
                                  ? (is_signed ? llvm::APInt::getSignedMaxValue(bits) : llvm::APInt::getMaxValue(bits))
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

/// The values as signed integers of their order: the largest is the best value, a NaN before all, zeros of both signs
/// alike.
Value* Emitter::rank(const AccumulatorInfo& info, Value* value) {
  const bool largest = info.reduction == Reduction::ArgMax;
  llvm::Type* type = value->getType();
  if (info.dtype == DType::Bool) value = b.CreateZExt(value, type = type->getWithNewBitWidth(8));
  const bool floats = is_float(info.dtype);
  const unsigned bits = type->getScalarSizeInBits();
  llvm::Type* integers = floats ? type->getWithNewType(b.getIntNTy(bits)) : type;
  const auto number = [&](const llvm::APInt& constant) { return llvm::ConstantInt::get(integers, constant); };
  Value* result = value;
  if (floats) {
    // Of negative floats the larger has the smaller magnitude.
    Value* pattern = b.CreateBitCast(value, integers);
    result = b.CreateXor(pattern,
                         b.CreateAnd(b.CreateAShr(pattern, bits - 1), number(llvm::APInt::getSignedMaxValue(bits))));
    result =
        b.CreateSelect(b.CreateFCmpOEQ(value, llvm::ConstantFP::getZero(type)), number(llvm::APInt(bits, 0)), result);
  } else if (!is_signed_integer(info.dtype) && info.dtype != DType::Bool) {
    result = b.CreateXor(value, number(llvm::APInt::getSignMask(bits)));
  }
  if (!largest) result = b.CreateNot(result);
  return floats ? b.CreateSelect(ops_.holds_nan(value), number(llvm::APInt::getSignedMaxValue(bits)), result)
                : result;
}

/// Of two candidates the larger (smaller) value, a NaN before all, the earlier where they tie.
Emitter::Found Emitter::extremum(const AccumulatorInfo& info, Found earlier, Found later) {
  const bool largest = info.reduction == Reduction::ArgMax;
  Value* wins;
  if (is_float(info.dtype)) {
    const auto beyond = largest ? llvm::CmpInst::FCMP_UGT : llvm::CmpInst::FCMP_ULT;
    wins = ops_.compare_quietly(beyond, later.value, earlier.value);  // a NaN wins, and stays
    wins = b.CreateAnd(wins, ops_.compare_quietly(llvm::CmpInst::FCMP_ORD, earlier.value, earlier.value));
  } else {
    const bool is_signed = is_signed_integer(info.dtype);
    wins =
        largest
            ? (is_signed ? b.CreateICmpSGT(later.value, earlier.value) : b.CreateICmpUGT(later.value, earlier.value))
            : (is_signed ? b.CreateICmpSLT(later.value, earlier.value) : b.CreateICmpULT(later.value, earlier.value));
  }
  return {b.CreateSelect(wins, later.value, earlier.value), b.CreateSelect(wins, later.index, earlier.index)};
}

/// Where the elements are that the accumulator is updated with; null if it is not updated in this body.
const Affine* Emitter::address_of_index(int number, const std::vector<Statement>& body) const {
  for (const Statement& statement : body) {
    if (statement.kind == StatementKind::Update && statement.accumulator == number) return &statement.address;
    if (statement.kind != StatementKind::Loop) continue;
    if (const Affine* found = address_of_index(number, statement.body)) return found;
  }
  return nullptr;
}

/// Indices of 32 bits where they are enough: half the vectors.
DType Emitter::index_dtype(const Affine& address) const {
  std::int64_t largest = 0;
  for (const auto& [variable, coefficient] : address.terms) {
    const auto extent = kernel_.variables[variable.index].extent.constant(), factor = coefficient.constant();
    if (!extent || !factor || *extent > INT32_MAX || *factor > INT32_MAX) return DType::I64;
    largest += *extent * *factor;
  }
  return largest <= INT32_MAX && address.constant == SymDim() && address.dynamic.empty() ? DType::I32 : DType::I64;
}

/// What the index grows by from one lane to the next, if that is the same everywhere; else 0.
std::int64_t Emitter::index_step(const Affine& address) const {
  if (!address.dynamic.empty()) return 0;
  std::int64_t step = 0;
  for (const auto& [variable, coefficient] : address.terms)
    if (variable == kernel_.vector_var) step += coefficient.constant().value_or(0);
  return step;
}

/// What each lane of a copy adds to the index of the first lane of the first copy.
Value* Emitter::index_offsets(const AccumulatorState& state, std::size_t copy, int lanes) {
  std::vector<llvm::Constant*> offsets;
  for (int lane = 0; lane < lanes; ++lane) {
    const std::int64_t offset = state.index_step * (std::int64_t(copy) * shape_.lanes + lane);
    offsets.push_back(
        llvm::ConstantInt::get(llvm::cast<llvm::IntegerType>(ops_.element(state.index_dtype)), std::uint64_t(offset)));
  }
  return offsets.size() == 1 ? offsets[0] : llvm::ConstantVector::get(offsets);
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
    store_slot(info, state.slots[0], identity(info));
    if (state.total) begin_total(info, state);
    return;
  }
  state = {};
  state.scope = int(scopes_.size()) - 1;
  const bool inside = inside_vector(state.scope);
  state.lanes_independent = inside && lanes_ > 1;
  state.scans_lanes = info.scan.valid() && info.scan == kernel_.vector_var;
  state.over_lanes = !inside && !state.scans_lanes && contains_vector_loop(kernel_, following);
  const int copies = state.over_lanes && !sums_in_blocks(info) ? shape_.unroll : 1;
  const int lanes = ops_.lanes = slot_lanes(state);
  const Val start = identity(info);
  // An element equal to the identity never wins. If all are, the first is the answer: index 0.
  if (const Affine* address = finds_index(info) ? address_of_index(number, kernel_.body) : nullptr) {
    state.index_dtype = index_dtype(*address);
    state.index_step = state.over_lanes ? index_step(*address) : 0;
  }
  for (int copy = 0; copy < copies; ++copy) {
    state.slots.push_back(new_slot(slot_type(info)));
    store_slot(info, state.slots.back(), start);
    if (finds_index(info)) {
      state.indices.push_back(new_slot(ops_.wide(state.index_dtype)));
      b.CreateStore(b.CreateNeg(index_offsets(state, std::size_t(copy), lanes)), state.indices.back());
    }
  }
  if (has_blocks(number, following)) {
    state.total = new_slot(slot_type(info)), state.lost = new_slot(slot_type(info));
    begin_total(info, state);
    const auto count = additions(number, following);
    state.exact_lanes = is_long(count);
    if (state.over_lanes && !count && !is_complex(info.dtype)) {
      state.has_total = new_slot(b.getInt1Ty());
      b.CreateStore(b.getFalse(), state.has_total);
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

/// Each step adds the sum of as many lanes before as it has gathered itself. What the next vector waits for is one
/// addition.
void Emitter::scan_lanes(const AccumulatorInfo& info, AccumulatorState& state, Value* value) {
  // -0.0 + x is x for every x.
  Value* neutral = info.reduction == Reduction::Sum && is_float(info.dtype)
                       ? llvm::ConstantFP::getNegativeZero(value->getType())
                       : identity(info).real;
  if (mask_) value = b.CreateSelect(mask_, value, neutral);
  for (int distance = 1; distance < lanes_; distance *= 2) {
    std::vector<int> lanes;
    for (int lane = 0; lane < lanes_; ++lane)
      lanes.push_back(lane < distance ? 2 * lanes_ - distance + lane : lane - distance);
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
  const std::size_t copy = state.over_lanes && state.slots.size() > 1 ? std::size_t(copy_) : 0;
  const bool rest = state.rest_slot && !partial;
  Value* slot = rest ? state.rest_slot : state.slots[copy];
  // Lanes that are masked off are looked at where all lanes are one result.
  Value* mask = partial ? mask_ : nullptr;
  if (const Expr& product = kernel_[statement.value]; info.contracts && machine_.fma &&
                                                      product.kind == ExprKind::Pointwise && product.op == Op::mul &&
                                                      is_float(info.dtype)) {
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
    Value* at;
    if (partial && state.index_step) {
      // One number for all copies and lanes: what each adds is added when the accumulator is read.
      Value* first = b.CreateSub(scalar_address(statement.address),
                                 b.getInt64(std::uint64_t(state.index_step * std::int64_t(copy) * shape_.lanes)));
      at = b.CreateVectorSplat(unsigned(lanes_), b.CreateTrunc(first, ops_.element(state.index_dtype)));
    } else {
      at = b.CreateTrunc(vector ? lane_addresses(statement.address) : scalar_address(statement.address), index_type);
    }
    Found found = extremum(info, old, {value.real, at});
    if (mask) {
      found.value = b.CreateSelect(mask, found.value, old.value);
      found.index = b.CreateSelect(mask, found.index, old.index);
    }
    b.CreateStore(found.value, slot);
    b.CreateStore(found.index, index_slot);
    return;
  }
  std::optional<Val> term = value;
  if (sums_in_blocks(info) && (state.over_lanes ? copies_ : rows_) > 1) term = sum_of_copies(info, state, value);
  if (!term) return;
  const Val old = load_slot(info, slot);
  Val next = combine(info, old, *term);
  if (mask) next.real = b.CreateSelect(mask, next.real, old.real);
  store_slot(info, slot, next);
}

Val Emitter::read_accumulator(int number) {
  const AccumulatorInfo& info = kernel_.accumulators[number];
  const Val result = combined(number);
  // Whether adding NaN and infinities of both signs is an invalid operation depends on what comes first: if there are
  // infinities, NumPy tells, in its own order. BLAS multiplies infinities by the zeros it pads with.
  if (!info.scan.valid() && (info.reduction == Reduction::Sum || info.reduction == Reduction::Product))
    ops_.note_if_nan(result, info.contracts);
  return result;
}

Val Emitter::combined(int number) {
  const AccumulatorInfo& info = kernel_.accumulators[number];
  AccumulatorState& state = accumulator_states_[number];
  if (state.scans_lanes && lanes_ > 1) return {state.running};
  if (!state.over_lanes) {
    ops_.lanes = state.lanes_independent ? lanes_ : 1;
    if (finds_index(info))
      return {b.CreateZExt(b.CreateLoad(ops_.wide(state.index_dtype), state.indices[0]), ops_.wide(DType::I64))};
    return state.total ? whole_sum(info, state) : load_slot(info, state.slots[0]);
  }
  // Copies pairwise, then lanes by halves: a fixed order.
  const int outer_lanes = ops_.lanes;
  ops_.lanes = shape_.lanes;
  Val result;
  if (finds_index(info)) {
    // The best rank of all lanes and copies, then the first place that has it.
    std::vector<Value*> ranks;
    for (Value* slot : state.slots) ranks.push_back(rank(info, b.CreateLoad(ops_.wide(info.dtype), slot)));
    const auto smaller = [&](Value* a, Value* c) { return b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a, c); };
    Value* best = ranks[0];
    for (std::size_t c = 1; c < ranks.size(); ++c)
      best = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, best, ranks[c]);
    if (shape_.lanes > 1) best = b.CreateIntMaxReduce(best, true);
    Value* wanted = shape_.lanes > 1 ? b.CreateVectorSplat(unsigned(shape_.lanes), best) : best;
    Value* index = nullptr;
    for (std::size_t c = 0; c < ranks.size(); ++c) {
      Value* here = b.CreateAdd(b.CreateLoad(ops_.wide(state.index_dtype), state.indices[c]),
                                index_offsets(state, c, shape_.lanes));
      Value* none = llvm::ConstantInt::get(here->getType(),
                                           llvm::APInt::getSignedMaxValue(here->getType()->getScalarSizeInBits()));
      Value* found = b.CreateSelect(b.CreateICmpEQ(ranks[c], wanted), here, none);
      index = index ? smaller(index, found) : found;
    }
    if (shape_.lanes > 1) index = b.CreateIntMinReduce(index, true);
    ops_.lanes = 1;
    if (state.rest_slot) {
      Value* other = rank(info, b.CreateLoad(ops_.element(info.dtype), state.rest_slot));
      Value* at = b.CreateLoad(ops_.element(state.index_dtype), state.rest_index);
      Value* first = b.CreateSelect(b.CreateICmpSGT(other, best), at, smaller(at, index));
      index = b.CreateSelect(b.CreateICmpSGT(best, other), index, first);
    }
    result = {b.CreateZExt(index, b.getInt64Ty())};
  } else if (state.total) {
    result = whole_sum(info, state);
  } else {
    std::vector<Val> values;
    for (Value* slot : state.slots) values.push_back(load_slot(info, slot));
    while (values.size() > 1) {
      std::vector<Val> pairs;
      for (std::size_t i = 0; i + 1 < values.size(); i += 2) pairs.push_back(combine(info, values[i], values[i + 1]));
      values = pairs;
    }
    result = combined_lanes(info, state, values[0]);
  }
  ops_.lanes = outer_lanes;
  return result;
}

Val Emitter::combined_lanes(const AccumulatorInfo& info, const AccumulatorState& state, Val result) {
  for (int width = shape_.lanes / 2; width >= 1; width /= 2) {
    const Val low{part(result.real, 0, width)}, high{part(result.real, width, width)};
    ops_.lanes = width;
    // Vectors of one lane stay vectors here.
    result = combine(info, low, high);
  }
  if (shape_.lanes > 1) result.real = b.CreateExtractElement(result.real, std::uint64_t(0));
  ops_.lanes = 1;
  return state.rest_slot ? combine(info, result, load_slot(info, state.rest_slot)) : result;
}

Value* Emitter::part(Value* vector, int from, int width) {
  std::vector<int> lanes;
  for (int lane = 0; lane < width; ++lane) lanes.push_back(from + lane);
  return b.CreateShuffleVector(vector, lanes);
}

}  // namespace fj
