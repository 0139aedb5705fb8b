// Polynomials and range reductions. Coefficients: minimax fits of the usual forms (Cephes for exp and log, Juffa for erf).
#include "codegen/llvm/vector_math.h"

#include <cmath>

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

namespace fj {

using llvm::Value;

namespace {

/// Float arithmetic with short names; fused multiply-add where the machine has it (in here contraction is ours to choose).
struct Floats {
  Operations& ops;
  llvm::IRBuilder<>& b = ops.b;
  llvm::Type* type = ops.wide(ops.b.getFloatTy());
  llvm::Type* ints = ops.wide(ops.b.getInt32Ty());

  Value* c(double value) const { return llvm::ConstantFP::get(type, value); }
  Value* i(std::int32_t value) const { return llvm::ConstantInt::getSigned(ints, value); }
  Value* fma(Value* x, Value* y, Value* z) {
    if (ops.machine().fma) return b.CreateIntrinsic(llvm::Intrinsic::fma, {type}, {x, y, z});
    return b.CreateFAdd(b.CreateFMul(x, y), z);
  }
  Value* fma(Value* x, Value* y, double z) { return fma(x, y, c(z)); }
  Value* polynomial(Value* x, std::initializer_list<double> coefficients) {  // highest power first
    auto next = coefficients.begin();
    Value* sum = c(*next++);
    while (next != coefficients.end()) sum = fma(sum, x, *next++);
    return sum;
  }
  Value* bits(Value* x) { return b.CreateBitCast(x, ints); }
  Value* floats(Value* x) { return b.CreateBitCast(x, type); }
  Value* abs(Value* x) { return b.CreateIntrinsic(llvm::Intrinsic::fabs, {type}, {x}); }
  Value* copysign(Value* magnitude, Value* sign) {
    return floats(b.CreateOr(b.CreateAnd(bits(magnitude), i(0x7fffffff)), b.CreateAnd(bits(sign), i(std::int32_t(0x80000000)))));
  }
  /// x < low ? low : x > high ? high : x, NaN stays (two comparisons false).
  Value* clamp(Value* x, double low, double high) {
    Value* lower = b.CreateSelect(ops.compare(llvm::CmpInst::FCMP_OLT, x, c(low)), c(low), x);
    return b.CreateSelect(ops.compare(llvm::CmpInst::FCMP_OGT, lower, c(high)), c(high), lower);
  }
  /// Nearest integer for |x| < 2^22, as float and as int, by the addition's own rounding.
  std::pair<Value*, Value*> nearest(Value* x) {
    Value* magic = c(12582912.0);  // 1.5 * 2^23
    Value* shifted = b.CreateFAdd(x, magic);
    return {b.CreateFSub(shifted, magic), b.CreateSub(bits(shifted), i(0x4b400000))};
  }
  /// x * 2^n for |n| <= 252, rounded once where the result is denormal. `n` as float and as int.
  Value* scale(Value* x, Value* n, Value* integer) {
    if (ops.machine().avx512 && ops.lanes == 16) {
      Value* rounding = b.getInt32(4);  // the current mode
      return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
                               {x, n, llvm::Constant::getNullValue(type), b.getInt16(0xffff), rounding});
    }
    Value* half = b.CreateAShr(integer, i(1));
    Value* rest = b.CreateSub(integer, half);
    auto power = [&](Value* e) { return floats(b.CreateShl(b.CreateAdd(e, i(127)), i(23))); };
    return b.CreateFMul(b.CreateFMul(x, power(half)), power(rest));
  }
};

}  // namespace

Value* exp_f32(Operations& ops, Value* x) {
  Floats f{ops};
  // Beyond these the result is 0 or infinite anyway; the scaling below still underflows and overflows there.
  Value* bounded = f.clamp(x, -105.0, 90.0);
  auto [n, integer] = f.nearest(f.b.CreateFMul(bounded, f.c(1.44269504088896341)));
  // The high part of ln 2 has few bits: n * high is exact without FMA too.
  Value* r = f.fma(n, f.c(-0.693359375), bounded);
  r = f.fma(n, f.c(2.12194440e-4), r);
  Value* p = f.polynomial(r, {1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1});
  Value* square = f.b.CreateFMul(r, r);
  Value* e = f.b.CreateFAdd(f.fma(p, square, r), f.c(1.0));
  return f.scale(e, n, integer);
}

Value* log_f32(Operations& ops, Value* x) {
  Floats f{ops};
  // Denormals are scaled up by 2^23.
  Value* tiny = f.b.CreateAnd(f.ops.compare(llvm::CmpInst::FCMP_OLT, x, f.c(1.17549435e-38)), f.ops.compare(llvm::CmpInst::FCMP_OGT, x, f.c(0)));
  Value* positive = f.b.CreateSelect(f.ops.compare(llvm::CmpInst::FCMP_OGT, x, f.c(0)), x, f.c(1.0));  // harmless elsewhere
  Value* scaled = f.b.CreateSelect(tiny, f.b.CreateFMul(positive, f.c(8388608.0)), positive);
  Value* raw = f.bits(scaled);
  // Mantissa in [sqrt(1/2), sqrt(2)).
  Value* offset = f.b.CreateSub(raw, f.i(0x3f3504f3));
  Value* exponent = f.b.CreateAShr(offset, f.i(23));
  Value* mantissa = f.floats(f.b.CreateSub(raw, f.b.CreateShl(exponent, f.i(23))));
  exponent = f.b.CreateSub(exponent, f.b.CreateSelect(tiny, f.i(23), f.i(0)));
  Value* e = f.b.CreateSIToFP(exponent, f.type);
  Value* m = f.b.CreateFSub(mantissa, f.c(1.0));
  Value* z = f.b.CreateFMul(m, m);
  Value* p = f.polynomial(m, {7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
                              -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1});
  Value* y = f.b.CreateFMul(f.b.CreateFMul(p, m), z);
  y = f.fma(e, f.c(-2.12194440e-4), y);
  y = f.fma(z, f.c(-0.5), y);
  Value* result = f.fma(e, f.c(0.693359375), f.b.CreateFAdd(m, y));
  // inf and NaN pass; log(0) = -inf is a division by zero and the logarithm of a negative number invalid.
  result = f.b.CreateSelect(f.ops.compare(llvm::CmpInst::FCMP_OLT, x, f.c(INFINITY)), result, x);
  Value* zero = f.b.CreateFCmpOEQ(x, f.c(0));
  Value* special = f.ops.compare(llvm::CmpInst::FCMP_OLE, x, f.c(0));
  if (!ops.conditions) {
    result = f.b.CreateSelect(special, f.c(NAN), result);
    return f.b.CreateSelect(zero, f.c(-INFINITY), result);
  }
  // Only lanes with special arguments compute with them: 0 - 0 = 0 and then -1/0 or 0/0.
  Value* argument = f.b.CreateSelect(special, x, f.c(0.5));
  Value* none = f.b.CreateFSub(argument, argument);
  Value* raised = f.b.CreateFDiv(f.b.CreateSelect(zero, f.c(-1.0), none), f.b.CreateSelect(special, none, f.c(1.0)));
  // Chosen by its value: a second select on `special` would let LLVM drop the first one.
  return f.b.CreateSelect(f.b.CreateFCmpOEQ(raised, f.c(0)), result, raised);
}

Value* tanh_f32(Operations& ops, Value* x) {
  Floats f{ops};
  Value* magnitude = f.abs(x);
  Value* square = f.b.CreateFMul(x, x);
  // |x| < 0.625: an odd polynomial; else 1 - 2/(exp(2|x|) + 1).
  Value* p = f.polynomial(square, {-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1});
  Value* small = f.fma(f.b.CreateFMul(p, square), x, x);
  Value* bounded = f.b.CreateSelect(f.ops.compare(llvm::CmpInst::FCMP_OGT, magnitude, f.c(10.0)), f.c(10.0), magnitude);
  Value* e = exp_f32(ops, f.b.CreateFAdd(bounded, bounded));
  Value* large = f.b.CreateFSub(f.c(1.0), f.b.CreateFDiv(f.c(2.0), f.b.CreateFAdd(e, f.c(1.0))));
  return f.b.CreateSelect(f.ops.compare(llvm::CmpInst::FCMP_OLT, magnitude, f.c(0.625)), small, f.copysign(large, x));
}

Value* erf_f32(Operations& ops, Value* x) {
  Floats f{ops};
  Value* magnitude = f.abs(x);
  Value* bounded = f.b.CreateSelect(f.ops.compare(llvm::CmpInst::FCMP_OGT, magnitude, f.c(4.0)), f.c(4.0), magnitude);
  // |x| > 0.921875: 1 - exp(p(|x|)).
  Value* t = bounded;
  Value* s = f.b.CreateFMul(bounded, bounded);
  Value* r = f.fma(f.c(-1.72853470e-5), t, 3.83197126e-4);
  Value* u = f.fma(f.c(-3.88396438e-3), t, 2.42546219e-2);
  r = f.fma(r, s, u);
  r = f.fma(r, t, -1.06777877e-1);
  r = f.fma(r, t, -6.34846687e-1);
  r = f.fma(r, t, -1.28717512e-1);
  r = f.fma(r, t, f.b.CreateFNeg(t));
  Value* large = f.copysign(f.b.CreateFSub(f.c(1.0), exp_f32(ops, r)), x);
  Value* square = f.b.CreateFMul(x, x);
  Value* q = f.polynomial(square, {-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1});
  Value* small = f.fma(q, x, x);
  Value* nan = f.b.CreateFCmpUNO(x, x);
  Value* result = f.b.CreateSelect(f.ops.compare(llvm::CmpInst::FCMP_OGT, magnitude, f.c(0.921875)), large, small);
  return f.b.CreateSelect(nan, x, result);
}

}  // namespace fj
