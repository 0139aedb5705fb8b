// Values in registers: types, constants, memory forms, half types, casts, calls into the C library.
#include "codegen/llvm/operations.h"

#include <algorithm>
#include <cmath>

#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/PatternMatch.h>

#include "codegen/llvm/library.h"
#include "runtime/base/error.h"
#include "runtime/base/status.h"

namespace fj {

using llvm::Intrinsic::ID;
using llvm::Value;

llvm::Type* Operations::element(DType dtype) const {
  switch (dtype) {
    case DType::Bool: return b.getInt1Ty();
    case DType::U8: case DType::I8: return b.getInt8Ty();
    case DType::U16: case DType::I16: return b.getInt16Ty();
    case DType::U32: case DType::I32: return b.getInt32Ty();
    case DType::U64: case DType::I64: return b.getInt64Ty();
    case DType::F16: case DType::BF16: case DType::F32: case DType::C64: return b.getFloatTy();
    case DType::F64: case DType::C128: return b.getDoubleTy();
  }
  return nullptr;
}

llvm::Type* Operations::memory_element(DType dtype) const {
  if (dtype == DType::Bool) return b.getInt8Ty();
  if (is_half(dtype)) return b.getInt16Ty();
  return element(dtype);
}

llvm::Type* Operations::wide(llvm::Type* element) const {
  return lanes == 1 ? element : static_cast<llvm::Type*>(llvm::FixedVectorType::get(element, unsigned(lanes)));
}

Value* Operations::number(DType dtype, double value) const {
  llvm::Type* type = wide(dtype);
  if (type->isFPOrFPVectorTy()) return llvm::ConstantFP::get(type, value);
  return llvm::ConstantInt::getSigned(type, std::int64_t(value));
}

Value* Operations::integer(DType dtype, std::uint64_t bits) const {
  const unsigned width = element(dtype)->getIntegerBitWidth();
  return llvm::ConstantInt::get(wide(dtype), llvm::APInt(64, bits).zextOrTrunc(width));
}

Value* Operations::splat(Value* scalar) const {
  return lanes == 1 ? scalar : b.CreateVectorSplat(unsigned(lanes), scalar);
}

Val Operations::constant(DType dtype, const Scalar& scalar) const {
  auto real = [&](double value) { return llvm::ConstantFP::get(wide(dtype), value); };
  return std::visit(
      [&](const auto& value) -> Val {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::pair<double, double>>) {
          return {real(value.first), real(value.second)};
        } else if constexpr (std::is_same_v<T, double>) {
          if (is_complex(dtype)) return {real(value), real(0)};
          if (dtype == DType::F32) return {real(double(float(value)))};
          return {real(value)};
        } else {
          if (is_complex(dtype)) return {real(double(value)), real(0)};
          if (is_float(dtype)) return {real(double(value))};
          return {integer(dtype, std::uint64_t(value))};
        }
      },
      scalar);
}

Value* Operations::call(ID id, llvm::ArrayRef<Value*> args) {
  return b.CreateIntrinsic(id, {args[0]->getType()}, args);
}

// ---- half types

Value* Operations::half_to_float(Value* bits) {
  llvm::Type* floats = wide(b.getFloatTy());
  llvm::Type* ints = wide(b.getInt32Ty());
  if (machine_.f16c) return b.CreateFPExt(b.CreateBitCast(bits, wide(b.getHalfTy())), floats);
  // Exponent and mantissa move up, then the product with 2^112 rebiases; denormals come out right by themselves.
  Value* wide_bits = b.CreateZExt(bits, ints);
  auto word = [&](std::uint32_t value) { return llvm::ConstantInt::get(ints, value); };
  Value* magnitude = b.CreateShl(b.CreateAnd(wide_bits, word(0x7fff)), word(13));
  Value* scaled = b.CreateFMul(b.CreateBitCast(magnitude, floats), llvm::ConstantFP::get(floats, std::ldexp(1.0, 112)));
  Value* special = b.CreateICmpUGE(magnitude, word(0x7c00u << 13));
  Value* result = b.CreateSelect(special, b.CreateOr(magnitude, word(0x7f800000)), b.CreateBitCast(scaled, ints));
  Value* sign = b.CreateShl(b.CreateAnd(wide_bits, word(0x8000)), word(16));
  return b.CreateBitCast(b.CreateOr(result, sign), floats);
}

Value* Operations::float_to_half(Value* value) {
  if (machine_.f16c) return b.CreateBitCast(b.CreateFPTrunc(value, wide(b.getHalfTy())), wide(b.getInt16Ty()));
  llvm::Type* floats = wide(b.getFloatTy());
  llvm::Type* ints = wide(b.getInt32Ty());
  auto word = [&](std::uint32_t number) { return llvm::ConstantInt::get(ints, number); };
  Value* bits = b.CreateBitCast(value, ints);
  Value* sign = b.CreateAnd(bits, word(0x80000000));
  Value* magnitude = b.CreateXor(bits, sign);
  // Denormal halves: adding 0.5 lets the addition's own rounding drop the bits below 2^-24.
  Value* half = llvm::ConstantFP::get(floats, 0.5);
  Value* denormal = b.CreateSub(b.CreateBitCast(b.CreateFAdd(b.CreateBitCast(magnitude, floats), half), ints),
                                b.CreateBitCast(half, ints));
  // Normal: rebias and round to nearest even by hand.
  Value* odd = b.CreateAnd(b.CreateLShr(magnitude, word(13)), word(1));
  Value* normal = b.CreateLShr(b.CreateAdd(b.CreateAdd(magnitude, word(0xc8000fffu)), odd), word(13));
  Value* result = b.CreateSelect(b.CreateICmpULT(magnitude, word(113u << 23)), denormal, normal);
  Value* overflow = b.CreateICmpUGE(magnitude, word(0x477ff000u));
  result = b.CreateSelect(overflow, word(0x7c00), result);
  Value* is_nan = b.CreateICmpUGT(magnitude, word(0x7f800000));
  Value* payload = b.CreateOr(b.CreateAnd(b.CreateLShr(magnitude, word(13)), word(0x3ff)), word(0x7e00));
  result = b.CreateSelect(is_nan, payload, result);
  return b.CreateTrunc(b.CreateOr(result, b.CreateLShr(sign, word(16))), wide(b.getInt16Ty()));
}

Value* Operations::float_to_brain(Value* value, bool copied) {
  llvm::Type* ints = wide(b.getInt32Ty());
  auto word = [&](std::uint32_t number) { return llvm::ConstantInt::get(ints, number); };
  Value* bits = b.CreateBitCast(value, ints);
  Value* odd = b.CreateAnd(b.CreateLShr(bits, word(16)), word(1));
  Value* rounded = b.CreateLShr(b.CreateAdd(b.CreateAdd(bits, word(0x7fff)), odd), word(16));
  Value* nan = holds_nan(value);
  return b.CreateTrunc(b.CreateSelect(nan, copied ? b.CreateLShr(bits, word(16)) : word(0x7fc0), rounded),
                       wide(b.getInt16Ty()));
}

Value* Operations::from_memory(DType dtype, Value* value) {
  switch (dtype) {
    case DType::Bool: return b.CreateICmpNE(value, llvm::ConstantInt::get(value->getType(), 0));
    case DType::F16: return half_to_float(value);
    case DType::BF16:
      return b.CreateBitCast(
          b.CreateShl(b.CreateZExt(value, wide(b.getInt32Ty())), llvm::ConstantInt::get(wide(b.getInt32Ty()), 16)),
          wide(b.getFloatTy()));
    default: return value;
  }
}

Value* Operations::to_memory(DType dtype, Value* value) {
  switch (dtype) {
    case DType::Bool: return b.CreateZExt(value, wide(b.getInt8Ty()));
    case DType::F16: return float_to_half(value);
    case DType::BF16: return float_to_brain(value, true);
    default: return value;
  }
}

Value* Operations::round_to(DType half, Value* value) {
  if (half == DType::BF16) return from_memory(half, float_to_brain(value, false));
  return half == DType::F16 ? from_memory(half, float_to_half(value)) : value;
}

// A double on its way to a half type: to float with ties and losses marked in the last bit, so that the
// second rounding is the only one.
Value* Operations::truncate_to_odd(Value* x) {
  llvm::Type* ints = wide(b.getInt32Ty());
  Value* narrow = b.CreateFPTrunc(x, wide(b.getFloatTy()));
  Value* back = b.CreateFPExt(narrow, x->getType());
  Value* inexact = compare_quietly(llvm::CmpInst::FCMP_ONE, back, x);
  Value* beyond = compare_quietly(llvm::CmpInst::FCMP_OGT, call(llvm::Intrinsic::fabs, {back}),
                                  call(llvm::Intrinsic::fabs, {x}));
  Value* bits = b.CreateBitCast(narrow, ints);
  Value* towards_zero = b.CreateSub(bits, b.CreateZExt(beyond, ints));
  Value* odd = b.CreateOr(towards_zero, llvm::ConstantInt::get(ints, 1));
  return b.CreateBitCast(b.CreateSelect(inexact, odd, bits), wide(b.getFloatTy()));
}

// ---- casts

Val Operations::cast(DType from, DType to, Val value) {
  if (from == to) return value;
  Value* x = value.real;
  if (is_complex(to)) {
    const DType part = to == DType::C64 ? DType::F32 : DType::F64;
    if (is_complex(from)) {
      const DType from_part = from == DType::C64 ? DType::F32 : DType::F64;
      return {cast(from_part, part, {value.real}).real, cast(from_part, part, {value.imaginary}).real};
    }
    return {cast(from, part, value).real, number(part, 0)};
  }
  if (is_complex(from)) {
    const DType part = from == DType::C64 ? DType::F32 : DType::F64;
    if (to == DType::Bool)
      return {b.CreateOr(cast(part, to, {value.real}).real, cast(part, to, {value.imaginary}).real)};
    return cast(part, to, {value.real});
  }
  llvm::Type* type = wide(to);
  // NaN and what is out of range are invalid also where the optimiser finds that the number doesn't matter (`% 1`).
  const auto to_integer = [&](Value* number, llvm::Type* integers, bool is_signed) -> Value* {
    if (!conditions) return is_signed ? b.CreateFPToSI(number, integers) : b.CreateFPToUI(number, integers);
    const auto id = is_signed ? llvm::Intrinsic::experimental_constrained_fptosi
                              : llvm::Intrinsic::experimental_constrained_fptoui;
    return b.CreateConstrainedFPCast(id, number, integers, nullptr, "", nullptr, std::nullopt, llvm::fp::ebStrict);
  };
  const auto to_signed = [&](Value* number, llvm::Type* integers) { return to_integer(number, integers, true); };
  if (to == DType::Bool) {
    // Of `sqrt(x) != 0` the optimiser makes `x != 0`, which raises nothing.
    if (is_float(from)) return {b.CreateFCmpUNE(conditions ? fence(x) : x, number(from, 0))};
    return {b.CreateICmpNE(x, llvm::ConstantInt::get(x->getType(), 0))};
  }
  if (is_float(to)) {
    if (is_float(from)) {
      if (from == DType::F64 && to != DType::F64) x = to == DType::F32 ? b.CreateFPTrunc(x, type) : truncate_to_odd(x);
      if (from != DType::F64 && to == DType::F64) x = b.CreateFPExt(x, type);
    } else {
      x = is_signed_integer(from) ? b.CreateSIToFP(x, type) : b.CreateUIToFP(x, type);
      // An integer that the optimiser finds to be constant would have what is computed of it computed by the optimiser.
      if (conditions) x = fence(x);
    }
    return {round_to(to, x)};
  }
  if (!is_float(from)) {
    const bool is_signed = is_signed_integer(from);
    return {is_signed ? b.CreateSExtOrTrunc(x, type) : b.CreateZExtOrTrunc(x, type)};
  }
  if (machine_.saturates) {
    const bool whole = size_in_bytes(to) == 8 || (to == DType::U32 && from != DType::F64);
    const bool is_signed = !whole || is_signed_integer(to);
    x = hidden(x, is_signed);
    if (whole) return {to_integer(x, type, is_signed)};
    return {b.CreateTrunc(to_signed(x, wide(from == DType::F64 ? b.getInt64Ty() : b.getInt32Ty())), type)};
  }
  // Float to integer as x86's cvtt instructions do it: out of range gives the lowest value of the width converted to,
  // which is 32 bits for the narrow types (then cut), 64 for u32.
  if (to == DType::U64) {
    x = hidden(x);
    Value* limit = number(from, 9223372036854775808.0);
    Value* large = b.CreateFCmpOGE(x, limit);
    Value* shifted = b.CreateSelect(large, b.CreateFSub(x, limit), x);
    Value* converted = to_signed(shifted, type);
    return {b.CreateXor(converted, b.CreateSelect(large, integer(to, 1ull << 63), integer(to, 0)))};
  }
  const bool sixty_four = to == DType::I64 || to == DType::U32;
  // What is out of range is poison to the optimiser: it must neither know the number nor choose when to convert it.
  x = hidden(x);
  Value* converted = to_signed(x, wide(sixty_four ? b.getInt64Ty() : b.getInt32Ty()));
  return {b.CreateZExtOrTrunc(converted, type)};
}

namespace {

/// Whether an optimiser may come to know that the number has no place among integers: a constant that has none is near.
/// Of `x * inf` it knows the class, through any intrinsic.
bool may_be_known(Value* x, bool is_signed, int depth) {
  const llvm::APFloat* constant;
  if (llvm::PatternMatch::match(x, llvm::PatternMatch::m_APFloat(constant))) {
    if (!constant->isFinite()) return true;
    const double number = constant->convertToDouble();
    return std::fabs(number) >= std::ldexp(1.0, 31) || (!is_signed && number <= -1);
  }
  if (llvm::isa<llvm::Constant>(x)) return true;
  auto* instruction = llvm::dyn_cast<llvm::Instruction>(x);
  if (!instruction || depth == 0) return false;
  // What lies in the function's own memory, a sum say, the optimiser follows there.
  if (auto* load = llvm::dyn_cast<llvm::LoadInst>(instruction))
    return !load->isVolatile() && llvm::isa<llvm::AllocaInst>(load->getPointerOperand()->stripPointerCasts());
  return std::any_of(instruction->op_begin(), instruction->op_end(), [&](const llvm::Use& use) {
    return use->getType()->isFPOrFPVectorTy() && may_be_known(use.get(), is_signed, depth - 1);
  });
}

}  // namespace

Value* Operations::hidden(Value* value, bool is_signed) {
  if (!may_be_known(value, is_signed, 7)) return value;  // the optimiser looks through 6
  llvm::Function* function = b.GetInsertBlock()->getParent();
  llvm::IRBuilder<> entry(&function->getEntryBlock(), function->getEntryBlock().begin());
  Value* place = entry.CreateAlloca(value->getType());
  b.CreateStore(value, place, /*isVolatile=*/true);
  return b.CreateLoad(value->getType(), place, /*isVolatile=*/true);
}

Val Operations::opaque(const Val& constant) {
  llvm::Function* function = b.GetInsertBlock()->getParent();
  llvm::IRBuilder<> entry(&function->getEntryBlock(), function->getEntryBlock().begin());
  auto given = [&](Value* part) -> Value* {
    if (!part) return nullptr;
    Value* place = entry.CreateAlloca(part->getType());
    entry.CreateStore(part, place, /*isVolatile=*/true);
    return entry.CreateLoad(part->getType(), place, /*isVolatile=*/true);
  };
  return {given(constant.real), given(constant.imaginary)};
}

Value* Operations::compare(llvm::CmpInst::Predicate predicate, Value* x, Value* y) {
  if (!conditions) return b.CreateFCmp(predicate, x, y);
  if (machine_.loud_compares && x->getType()->isVectorTy()) return compare_without_nan(predicate, x, y);
  // No plain one of equality either: where the sign or the class of a result is known it is decided, and the result not
  // computed.
  return b.CreateConstrainedFPCmp(llvm::Intrinsic::experimental_constrained_fcmp, predicate, x, y, "",
                                  llvm::fp::ebStrict);
}

Value* Operations::compare_quietly(llvm::CmpInst::Predicate predicate, Value* x, Value* y) {
  const bool loud = conditions && machine_.loud_compares && x->getType()->isVectorTy();
  return loud ? compare_without_nan(predicate, x, y) : b.CreateFCmp(predicate, x, y);
}

Value* Operations::compare_without_nan(llvm::CmpInst::Predicate predicate, Value* x, Value* y) {
  using llvm::CmpInst;
  if (predicate == CmpInst::FCMP_OEQ || predicate == CmpInst::FCMP_UNE)
    return b.CreateFCmp(predicate, fence(x), fence(y));
  const auto is_nan = [&](Value* value) {
    const auto [magnitude, infinity] = magnitude_bits(value);
    return b.CreateICmpUGT(magnitude, infinity);
  };
  Value* nan = x == y ? is_nan(x) : b.CreateOr(is_nan(x), is_nan(y));
  if (predicate == CmpInst::FCMP_UNO) return nan;
  if (predicate == CmpInst::FCMP_ORD) return b.CreateNot(nan);
  const auto cleared = [&](Value* value) {
    return fence(b.CreateSelect(nan, llvm::Constant::getNullValue(value->getType()), value));
  };
  Value* holds = b.CreateFCmp(predicate, cleared(x), cleared(y));
  return CmpInst::isUnordered(predicate) ? b.CreateOr(holds, nan) : b.CreateAnd(holds, b.CreateNot(nan));
}

std::pair<Value*, Value*> Operations::magnitude_bits(Value* x) {
  llvm::Type* type = x->getType();
  const unsigned width = type->getScalarSizeInBits();
  llvm::Type* bits = b.getIntNTy(width);
  if (type->isVectorTy()) bits = llvm::VectorType::getInteger(llvm::cast<llvm::VectorType>(type));
  const llvm::APInt infinity = llvm::APFloat::getInf(type->getScalarType()->getFltSemantics()).bitcastToAPInt();
  return {b.CreateAnd(b.CreateBitCast(x, bits), llvm::ConstantInt::get(bits, llvm::APInt::getSignedMaxValue(width))),
          llvm::ConstantInt::get(bits, infinity)};
}

Value* Operations::fence(Value* value) {
  llvm::Type* type = value->getType();
  if (type->isFPOrFPVectorTy()) return call(llvm::Intrinsic::arithmetic_fence, {value});
  llvm::Type* floats = wide(type->getScalarSizeInBits() == 64 ? b.getDoubleTy() : b.getFloatTy());
  return b.CreateBitCast(call(llvm::Intrinsic::arithmetic_fence, {b.CreateBitCast(value, floats)}), type);
}

Val Operations::executed(const Val& value) {
  auto fenced = [&](Value* part) {
    llvm::Type* type = part ? part->getType() : nullptr;
    if (!part || !conditions || !type->isFPOrFPVectorTy()) return part;
    part = fence(part);
    if (type->isVectorTy()) return part;
    // A choice between single numbers becomes a branch, and what one side alone needs moves there: unless something
    // else uses it too.
    llvm::Type* bits = b.getIntNTy(unsigned(type->getPrimitiveSizeInBits()));
    auto* statement = llvm::InlineAsm::get(llvm::FunctionType::get(b.getVoidTy(), {bits}, false), "", "r", true);
    b.CreateCall(statement, {b.CreateBitCast(part, bits)});
    return part;
  };
  return {fenced(value.real), fenced(value.imaginary)};
}

void Operations::report(Value* condition, std::uint32_t bits) {
  if (active) condition = b.CreateAnd(condition, active);
  if (condition->getType()->isVectorTy()) condition = b.CreateOrReduce(condition);
  Value* word = b.CreateSelect(condition, b.getInt32(bits), b.getInt32(0));
  b.CreateStore(b.CreateOr(b.CreateLoad(b.getInt32Ty(), status), word), status);
}

void Operations::note_if_nan(const Val& value, bool or_infinite) {
  if (!conditions) return;
  for (Value* part : {value.real, value.imaginary}) {
    llvm::Type* type = part ? part->getType() : nullptr;
    if (!type || !type->isFPOrFPVectorTy()) continue;
    // inf - inf is NaN, which doesn't count as invalid here: it is compared as bits.
    const auto [magnitude, infinity] = magnitude_bits(part);
    report(or_infinite ? b.CreateICmpUGE(magnitude, infinity) : b.CreateICmpUGT(magnitude, infinity), kNotFinite);
  }
}

Value* Operations::where_any(Value* condition, Value* usual, const std::function<Value*()>& otherwise) {
  Value* any = condition->getType()->isVectorTy() ? b.CreateOrReduce(condition) : condition;
  llvm::BasicBlock* first = b.GetInsertBlock();
  llvm::Function* function = first->getParent();
  llvm::BasicBlock* second;
  llvm::Instruction* rest = nullptr;
  if (b.GetInsertPoint() == first->end()) {
    second = llvm::BasicBlock::Create(context(), "usual", function);
  } else {
    rest = &*b.GetInsertPoint();
    second = first->splitBasicBlock(rest, "usual");
    first->getTerminator()->eraseFromParent();
    on_split(first, second);
  }
  llvm::BasicBlock* rare = llvm::BasicBlock::Create(context(), "rare", function);
  b.SetInsertPoint(first);
  llvm::MDBuilder weights(context());
  b.CreateCondBr(any, rare, second, weights.createBranchWeights(1, 10000));
  b.SetInsertPoint(rare);
  Value* other = b.CreateSelect(condition, otherwise(), usual);
  llvm::BasicBlock* rare_end = b.GetInsertBlock();
  b.CreateBr(second);
  b.SetInsertPoint(second, second->begin());
  llvm::PHINode* result = b.CreatePHI(usual->getType(), 2);
  result->addIncoming(usual, first);
  result->addIncoming(other, rare_end);
  if (rest)
    b.SetInsertPoint(rest);
  else
    b.SetInsertPoint(second);
  return result;
}

// ---- the C library

Val Operations::library(const std::string& name, DType dtype, std::span<const Val> args) {
  // Arguments and results pass through memory in one call for all lanes; complex numbers as pairs.
  const DType computed = compute_dtype(dtype);
  const bool complex = is_complex(dtype);
  llvm::Type* scalar = element(computed);
  llvm::Function* function = b.GetInsertBlock()->getParent();
  llvm::IRBuilder<> entry(&function->getEntryBlock(), function->getEntryBlock().begin());
  auto slot = [&] {
    auto* space = entry.CreateAlloca(llvm::ArrayType::get(scalar, unsigned(lanes) * (complex ? 2u : 1u)));
    space->setAlignment(llvm::Align(64));
    return space;
  };
  auto imaginary_part = [&](Value* space) { return b.CreateConstGEP1_32(scalar, space, unsigned(lanes)); };
  std::vector<Value*> pointers;
  for (const Val& arg : args) {
    Value* space = slot();
    b.CreateStore(arg.real, space);
    if (complex) b.CreateStore(arg.imaginary, imaginary_part(space));
    pointers.push_back(space);
  }
  Value* result = slot();
  pointers.push_back(result);
  std::vector<llvm::Type*> types(pointers.size(), b.getPtrTy());
  pointers.push_back(b.getInt64(std::uint64_t(lanes)));
  types.push_back(b.getInt64Ty());
  const std::string symbol = library_symbol(name, computed);
  FJ_CHECK(is_library_symbol(symbol), "no library function " + symbol);
  auto callee =
      function->getParent()->getOrInsertFunction(symbol, llvm::FunctionType::get(b.getVoidTy(), types, false));
  b.CreateCall(callee, pointers);
  Val value{b.CreateLoad(wide(scalar), result)};
  if (complex) value.imaginary = b.CreateLoad(wide(scalar), imaginary_part(result));
  return {round_to(dtype, value.real), value.imaginary};
}

}  // namespace fj
