// Sums of floats, as exact as the array libraries' pairwise ones. Numbers that are alike are rounded alike: in a chain
// of n additions their errors add up to n/4 units in the last place. So a chain is short: a tree adds up what the
// copies of an unrolled loop add, and the slot gets the sum of all of them; after kBlockAdditions such additions the
// block's sum goes to a total, and what rounding the total loses goes to `lost`, which is added when the sum is read.
// Lanes are added up in the same way. Every step is fixed by the sizes. A matrix product's sums stay in order.
//
//     for each block { for 8 steps { slot += (x0 + x1) + (x2 + x3) }  total, lost += slot  slot = 0 }
//     sum = total + (slot + lost)
#include "codegen/llvm/emitter.h"

#include <algorithm>

namespace fj {

namespace {

// Ending a block takes 8 to 13 operations on a vector.
constexpr int kBlockAdditions = 8;
// Longer sums have a total: chains of thirteen equal numbers were off by 3 units in the last place more than torch's.
constexpr int kLongestChain = 8;
// From so many additions on adding up the lanes without a loss takes no time that shows.
constexpr int kLongSum = 32;

bool updates(int number, const std::vector<Statement>& body) {
  return std::any_of(body.begin(), body.end(), [&](const Statement& statement) {
    const bool here = statement.kind == StatementKind::Update && statement.accumulator == number;
    return here || updates(number, statement.body);
  });
}

bool begins(int number, const std::vector<Statement>& body) {
  return std::any_of(body.begin(), body.end(), [&](const Statement& statement) {
    const bool here = statement.kind == StatementKind::Initialise && statement.accumulator == number;
    return here || begins(number, statement.body);
  });
}

}  // namespace

std::optional<Val> Emitter::sum_of_copies(const AccumulatorInfo& info, AccumulatorState& state, Val term) {
  // Sums of equally many copies are added at once: few of them wait.
  const int copies = state.over_lanes ? copies_ : rows_;
  int count = 1;
  while (!state.copies.empty() && state.copies.back().first == count) {
    Val earlier = state.copies.back().second;
    if (count * 2 == copies && state.over_lanes && lanes_ > 1) {
      // Signs that alternate cancel here, before a lane of one sign grows. One instruction turns 16 bytes round.
      const int mask = std::min<int>(lanes_, 16 / int(size_in_bytes(info.dtype))) - 1;
      std::vector<int> opposite;
      for (int lane = 0; lane < lanes_; ++lane) opposite.push_back(lane ^ mask);
      earlier.real = b.CreateShuffleVector(earlier.real, opposite);
    }
    term = combine(info, earlier, term);
    state.copies.pop_back();
    count *= 2;
  }
  if (count == copies) return term;
  state.copies.push_back({count, term});
  return std::nullopt;
}

int Emitter::elements_of_addition(VarId variable, const std::vector<Statement>& body) const {
  if (variable == kernel_.vector_var) return shape_.lanes * shape_.unroll;
  const bool only_updates = std::all_of(body.begin(), body.end(), [](const Statement& statement) {
    return statement.kind == StatementKind::Update;
  });
  const bool sums = std::any_of(body.begin(), body.end(), [&](const Statement& statement) {
    return statement.kind == StatementKind::Update && sums_in_blocks(kernel_.accumulators[statement.accumulator]);
  });
  return only_updates && sums ? shape_.rows : 1;
}

std::optional<std::int64_t> Emitter::additions(int number, const std::vector<Statement>& body) const {
  std::int64_t total = 0;
  for (const Statement& statement : body) {
    if (statement.kind == StatementKind::Update && statement.accumulator == number) ++total;
    if (statement.kind != StatementKind::Loop || !updates(number, statement.body)) continue;
    const loop::Variable& variable = kernel_.variables[statement.variable.index];
    const auto extent = (variable.chunk.valid() ? variable.chunk_length : variable.extent).constant();
    const auto inner = additions(number, statement.body);
    if (!extent || !inner) return std::nullopt;
    const std::int64_t step = elements_of_addition(statement.variable, statement.body);
    // A bound that is no longer looked at once it is large.
    total += std::min<std::int64_t>((*extent + step - 1) / step, 1 << 20) * *inner;
    total = std::min<std::int64_t>(total, 1 << 20);
  }
  return total;
}

Value* Emitter::additions_at_most(int number, const std::vector<Statement>& body) {
  Value* total = b.getInt64(0);
  for (const Statement& statement : body) {
    if (statement.kind == StatementKind::Update && statement.accumulator == number)
      total = b.CreateAdd(total, b.getInt64(1));
    if (statement.kind != StatementKind::Loop || !updates(number, statement.body)) continue;
    const loop::Variable& variable = kernel_.variables[statement.variable.index];
    Value* extent = size(variable.chunk.valid() ? variable.chunk_length : variable.extent);
    const int step = elements_of_addition(statement.variable, statement.body);
    Value* steps = b.CreateAdd(b.CreateUDiv(extent, b.getInt64(std::uint64_t(step))), b.getInt64(1));
    total = b.CreateAdd(total, b.CreateMul(steps, additions_at_most(number, statement.body)));
  }
  return total;
}

bool Emitter::has_blocks(int number, const std::vector<Statement>& body) const {
  return sums_in_blocks(kernel_.accumulators[number]) && additions(number, body).value_or(INT64_MAX) > kLongestChain;
}

bool Emitter::is_long(std::optional<std::int64_t> additions) { return additions.value_or(INT64_MAX) > kLongSum; }

std::vector<int> Emitter::block_sums(const std::vector<Statement>& body) const {
  std::vector<int> sums;
  for (int number = 0; number < int(accumulator_states_.size()); ++number)
    if (accumulator_states_[number].total && updates(number, body) && !begins(number, body)) sums.push_back(number);
  return sums;
}

Emitter::Blocks Emitter::blocks_of(const Statement& loop) {
  // Lanes that are sums in memory: the loop over the rows has the blocks.
  if (columns_begin_ && loop.variable == kernel_.vector_var) return {};
  const std::vector<int> sums = block_sums(loop.body);
  if (sums.empty()) return {};
  const bool enclosing = std::any_of(loop.body.begin(), loop.body.end(), [](const Statement& inner) {
    return inner.kind == StatementKind::Loop;
  });
  const std::int64_t block = std::max(kBlockAdditions, shape_.block);
  Value* length = b.getInt64(std::uint64_t(block));
  if (enclosing) {
    // So many iterations that the loops inside, which leave their last block open, add as often.
    Value* inner = b.getInt64(1);
    for (const int number : sums) {
      Value* here = additions_at_most(number, loop.body);
      inner = b.CreateSelect(b.CreateICmpUGT(here, inner), here, inner);
    }
    length = b.CreateUDiv(length, inner);
    length = b.CreateSelect(b.CreateICmpEQ(length, b.getInt64(0)), b.getInt64(1), length);
  }
  return {length, [this, sums, enclosing] {
    if (!columns_begin_) {
      for (const int number : sums) end_block(number, enclosing);
      return;
    }
    emit_vector_loop(kernel_.vector_var, columns_begin_, columns_end_, {}, [&] {
      for (const int number : sums) end_block(number, false);
    });
  }};
}

void Emitter::begin_total(const AccumulatorInfo& info, AccumulatorState& state) {
  store_slot(info, state.total, identity(info));
  store_slot(info, state.lost, identity(info));
}

void Emitter::end_block(int number, bool enclosing) {
  const AccumulatorInfo& info = kernel_.accumulators[number];
  AccumulatorState& state = accumulator_states_[number];
  const int outer_lanes = ops_.lanes;
  ops_.lanes = columns_begin_ ? lanes_ : slot_lanes(state);
  Val sum = load_slot(info, state.slots[0]);
  store_slot(info, state.slots[0], identity(info));
  if (enclosing && state.rest_slot) {
    // The loop inside adds its last elements one by one.
    Value* rest = b.CreateLoad(ops_.element(info.dtype), state.rest_slot);
    b.CreateStore(llvm::Constant::getNullValue(rest->getType()), state.rest_slot);
    Value* zeros = llvm::Constant::getNullValue(sum.real->getType());
    sum.real = b.CreateFAdd(sum.real, b.CreateInsertElement(zeros, rest, std::uint64_t(0)));
  }
  Val total = load_slot(info, state.total), lost = load_slot(info, state.lost);
  add_exactly(total, lost, sum);
  store_slot(info, state.total, total);
  store_slot(info, state.lost, lost);
  if (state.has_total) b.CreateStore(b.getTrue(), state.has_total);
  ops_.lanes = outer_lanes;
}

void Emitter::add_exactly(Val& total, Val& lost, Val term) {
  auto add = [&](Value*& total, Value*& lost, Value* term) {
    Value* next = b.CreateFAdd(total, term);
    Value *old = total, *added = term, *rounded = next;
    if (ops_.conditions) {
      // The difference of infinities would be an invalid operation that is none of the user's.
      llvm::Type* type = next->getType();
      const unsigned bits = type->getScalarSizeInBits();
      llvm::Type* integers = type->getWithNewType(b.getIntNTy(bits));
      Value* exponent = llvm::ConstantInt::get(integers, bits == 32 ? 0x7f800000ull : 0x7ff0000000000000ull);
      Value* finite = b.CreateICmpNE(b.CreateAnd(b.CreateBitCast(next, integers), exponent), exponent);
      Value* zero = llvm::Constant::getNullValue(type);
      for (Value** value : {&old, &added, &rounded}) *value = b.CreateSelect(finite, *value, zero);
    }
    // rounded + error == old + added, exactly.
    Value* part = b.CreateFSub(rounded, old);
    Value* error = b.CreateFAdd(b.CreateFSub(old, b.CreateFSub(rounded, part)), b.CreateFSub(added, part));
    lost = b.CreateFAdd(lost, error);
    total = next;
  };
  add(total.real, lost.real, term.real);
  if (total.imaginary) add(total.imaginary, lost.imaginary, term.imaginary);
}

Val Emitter::what_was_lost(Val lost) {
  // NaN where an infinity is, or an intermediate result was one.
  auto numbers = [&](Value* lost) -> Value* {
    return b.CreateSelect(b.CreateFCmpUNO(lost, lost), llvm::Constant::getNullValue(lost->getType()), lost);
  };
  if (ops_.conditions) return lost;
  lost.real = numbers(lost.real);
  if (lost.imaginary) lost.imaginary = numbers(lost.imaginary);
  return lost;
}

Val Emitter::exact_sum(const AccumulatorInfo& info, const AccumulatorState& state) {
  Val total = load_slot(info, state.total), lost = load_slot(info, state.lost);
  add_exactly(total, lost, load_slot(info, state.slots[0]));
  if (state.over_lanes) {
    // What cancels from lane to lane is large in each of them.
    for (int width = shape_.lanes / 2; width >= 1; width /= 2) {
      Val other{part(total.real, width, width)};
      Val rest{b.CreateFAdd(part(lost.real, 0, width), part(lost.real, width, width))};
      total.real = part(total.real, 0, width);
      add_exactly(total, rest, other);
      lost = rest;
    }
    ops_.lanes = 1;
    if (shape_.lanes > 1) {
      total.real = b.CreateExtractElement(total.real, std::uint64_t(0));
      lost.real = b.CreateExtractElement(lost.real, std::uint64_t(0));
    }
    if (state.rest_slot) add_exactly(total, lost, load_slot(info, state.rest_slot));
  }
  return combine(info, total, what_was_lost(lost));
}

Val Emitter::whole_sum(const AccumulatorInfo& info, const AccumulatorState& state) {
  const Val slot = load_slot(info, state.slots[0]);
  if (state.has_total) {
    // Sums that turn out to be short are not worth the exact way, which takes as long as adding up a hundred elements.
    const int lanes = ops_.lanes;
    Value* has_total = b.CreateLoad(b.getInt1Ty(), state.has_total);
    const Val usual = combined_lanes(info, state, slot);
    return {ops_.where_any(has_total, usual.real, [&] {
      ops_.lanes = lanes;
      return exact_sum(info, state).real;
    })};
  }
  if (state.exact_lanes) return exact_sum(info, state);
  const Val total = load_slot(info, state.total);
  // The last block is small beside the others: with what they lost it is added at once.
  const Val rest = combine(info, slot, what_was_lost(load_slot(info, state.lost)));
  const Val sum = combine(info, total, rest);
  return state.over_lanes ? combined_lanes(info, state, sum) : sum;
}

}  // namespace fj
