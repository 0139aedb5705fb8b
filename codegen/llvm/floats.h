/// Arithmetic with short names for the files of vector mathematics, and the kernels they share. Each is straight-line
/// code in the precision of its registers.
#pragma once

#include <initializer_list>
#include <vector>

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "codegen/llvm/operations.h"

namespace fj::vector_math {

using llvm::Value;

using Coefficients = std::initializer_list<double>;

struct Floats {
  Floats(Operations& ops, Value* like)
      : ops(ops), b(ops.b), type(like->getType()), single(type->getScalarType()->isFloatTy()),
        ints(ops.wide(single ? ops.b.getInt32Ty() : ops.b.getInt64Ty())), coarse(single) {}

  Operations& ops;
  llvm::IRBuilder<>& b;
  llvm::Type* type;
  bool single;
  llvm::Type* ints;
  bool coarse;  // the digits of single precision are enough

  int mantissa() const { return single ? 23 : 52; }
  int bias() const { return single ? 127 : 1023; }
  Value* c(double value) const { return llvm::ConstantFP::get(type, value); }
  Value* c(double in_single, double in_double) const { return c(single ? in_single : in_double); }
  Value* i(std::int64_t value) const { return llvm::ConstantInt::getSigned(ints, value); }

  // Contraction is ours to choose here: these are no operations of the user.
  Value* fma(Value* x, Value* y, Value* z) {
    if (ops.machine().fma) return b.CreateIntrinsic(llvm::Intrinsic::fma, {type}, {x, y, z});
    return b.CreateFAdd(b.CreateFMul(x, y), z);
  }
  Value* add(Value* x, Value* y) { return b.CreateFAdd(x, y); }
  Value* sub(Value* x, Value* y) { return b.CreateFSub(x, y); }
  Value* mul(Value* x, Value* y) { return b.CreateFMul(x, y); }
  Value* div(Value* x, Value* y) { return b.CreateFDiv(x, y); }
  Value* less(Value* x, Value* y) { return ops.compare(llvm::CmpInst::FCMP_OLT, x, y); }
  /// Not above `bound`; NaN stays.
  Value* at_most(Value* bound, Value* x) { return select(less(bound, x), bound, x); }
  Value* root(Value* x) { return b.CreateIntrinsic(llvm::Intrinsic::sqrt, {type}, {x}); }
  DType dtype() const { return single ? DType::F32 : DType::F64; }
  /// What the library gives where `condition` holds.
  Value* rest(const char* function, Value* condition, Value* usual, std::initializer_list<Value*> arguments) {
    return ops.where_any(condition, usual, [&] {
      std::vector<Val> args;
      for (Value* argument : arguments) args.push_back({argument});
      return ops.library(function, dtype(), args).real;
    });
  }
  Value* select(Value* condition, Value* x, Value* y) { return b.CreateSelect(condition, x, y); }
  Value* polynomial(Value* x, Coefficients coefficients) {  // highest power first
    auto next = coefficients.begin();
    Value* sum = c(*next++);
    while (next != coefficients.end()) sum = fma(sum, x, c(*next++));
    return sum;
  }
  Value* polynomial(Value* x, Coefficients in_single, Coefficients in_double) {
    return polynomial(x, coarse ? in_single : in_double);
  }
  Value* bits(Value* x) { return b.CreateBitCast(x, ints); }
  Value* floats(Value* x) { return b.CreateBitCast(x, type); }
  /// Of numbers that are not negative, by their bits: quiet, and the compiler may move it also where conditions are
  /// collected. A NaN is above infinity.
  Value* below(Value* x, Value* y) { return b.CreateICmpSLT(bits(x), bits(y)); }
  Value* is_negative(Value* x) { return b.CreateICmpSLT(bits(x), i(0)); }
  Value* abs(Value* x) { return b.CreateIntrinsic(llvm::Intrinsic::fabs, {type}, {x}); }
  Value* copysign(Value* magnitude, Value* sign) {
    return b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, magnitude, sign);
  }
  /// NaN stays: both comparisons are false.
  Value* clamp(Value* x, Value* low, Value* high) {
    Value* lower = select(less(x, low), low, x);
    return select(less(high, lower), high, lower);
  }
  /// The nearest integer of a small product, by the addition's own rounding: as float, and as the last bits of an
  /// integer whose first are of no use.
  std::pair<Value*, Value*> nearest(Value* x, Value* factor) {
    Value* magic = c(12582912.0, 6755399441055744.0);  // 1.5 * 2^mantissa
    Value* shifted = fma(x, factor, magic);
    return {sub(shifted, magic), bits(shifted)};
  }
  /// x * 2^n for n of `nearest`. Rounded once where the result is denormal, n being at most twice the exponent's range;
  /// or `normal`: it is none.
  Value* scale(Value* x, Value* n, Value* integer, bool normal) {
    if (ops.machine().avx512 && ops.lanes == (single ? 16 : 8)) {
      Value* rounding = b.getInt32(4);  // the current mode
      return b.CreateIntrinsic(
          single ? llvm::Intrinsic::x86_avx512_mask_scalef_ps_512 : llvm::Intrinsic::x86_avx512_mask_scalef_pd_512, {},
          {x, n, llvm::Constant::getNullValue(type), single ? b.getInt16(0xffff) : b.getInt8(0xff), rounding});
    }
    // Shifted into the exponent, nothing is left of the bits in front of n, and of those of the half.
    Value* exponent = b.CreateShl(integer, i(mantissa()));
    auto power = [&](Value* e) { return floats(b.CreateAdd(e, i(std::int64_t(bias()) << mantissa()))); };
    if (normal) return mul(x, power(exponent));
    // In two halves: 2^n itself may be out of range.
    Value* half = b.CreateShl(b.CreateLShr(integer, i(1)), i(mantissa()));
    return mul(mul(x, power(half)), power(b.CreateSub(exponent, half)));
  }
};

/// exp without special cases. `normal`: neither its result nor 2 to the integer next to x / ln 2 leaves the normal
/// numbers. `half`: of it.
Value* plain_exp(Floats& f, Value* x, bool normal, bool half = false);

/// log of a number positive, finite and normal. `exponent_offset` is taken from its exponent; `rest` / x is added: the
/// logarithm of a sum of which x is the rounded value.
Value* plain_log(Floats& f, Value* x, Value* exponent_offset, Value* rest = nullptr);

/// log(1 + x) for finite x > -1.
Value* log_of_successor(Floats& f, Value* x);

/// x = 2^e * (1 + m) with m in [sqrt(1/2) - 1, sqrt(2) - 1]; z is m^2. log(1 + m) = m - z/2 + y.
struct Logarithm {
  Value *e, *m, *z, *y;
};
Logarithm split(Floats& f, Value* x, Value* exponent_offset);

/// e^r - 1 for r of a reduction: its exponent, and r of at most half of ln 2.
struct Exponential {
  Value *q, *n, *integer;
};
Exponential reduced_exp(Floats& f, Value* x);

/// (e^r - 1 - r) / r^2 of such an r.
Value* exp_polynomial(Floats& f, Value* r);

/// F32 registers through a function of double precision.
template <class Function>
Value* in_double(Operations& ops, Value* x, const Function& function) {
  Value* wide = ops.b.CreateFPExt(x, ops.wide(ops.b.getDoubleTy()));
  return ops.b.CreateFPTrunc(function(wide), x->getType());
}

}  // namespace fj::vector_math
