// Polynomials and range reductions in single and double precision. `Floats` is arithmetic with short names; `Fit` holds
// what differs between the precisions. Coefficients are the well-known minimax fits of these intervals (Cephes; Juffa
// for erf).
#include "codegen/llvm/vector_math.h"

#include <cmath>

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

namespace fj {

using llvm::Value;

namespace {

using Coefficients = std::initializer_list<double>;

struct Floats {
  Floats(Operations& ops, Value* like)
      : ops(ops), b(ops.b), type(like->getType()), single(type->getScalarType()->isFloatTy()),
        ints(ops.wide(single ? ops.b.getInt32Ty() : ops.b.getInt64Ty())) {}

  Operations& ops;
  llvm::IRBuilder<>& b;
  llvm::Type* type;
  bool single;
  llvm::Type* ints;

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
  Value* select(Value* condition, Value* x, Value* y) { return b.CreateSelect(condition, x, y); }
  Value* polynomial(Value* x, Coefficients coefficients) {  // highest power first
    auto next = coefficients.begin();
    Value* sum = c(*next++);
    while (next != coefficients.end()) sum = fma(sum, x, c(*next++));
    return sum;
  }
  Value* polynomial(Value* x, Coefficients in_single, Coefficients in_double) {
    return polynomial(x, single ? in_single : in_double);
  }
  Value* bits(Value* x) { return b.CreateBitCast(x, ints); }
  Value* floats(Value* x) { return b.CreateBitCast(x, type); }
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

/// sin (quadrant 0) or cos (quadrant 1) of x.
Value* sine(Operations& ops, Value* x, int quadrant) {
  Floats f(ops, x);
  // Beyond these the three parts of pi/2 lose digits, or the quadrant is no exact integer any more.
  Value* limit = f.c(8192.0, 1e6);
  Value* large = f.less(limit, f.abs(x));
  Value* bounded = f.select(large, f.c(0), x);
  auto [n, integer] = f.nearest(bounded, f.c(0.63661977236758134308));
  Value* r = f.fma(n, f.c(-1.5703125, -1.57079625129699707031), bounded);
  r = f.fma(n, f.c(-4.837512969970703125e-4, -7.54978941586159635335e-8), r);
  r = f.fma(n, f.c(-7.54978995489188216e-8, -5.39030285815811905290e-15), r);
  Value* z = f.mul(r, r);
  Value* s = f.polynomial(z, {-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1},
                          {1.58962301576546568060e-10, -2.50507477628578072866e-8, 2.75573136213857245213e-6,
                           -1.98412698295895385996e-4, 8.33333333332211858878e-3, -1.66666666666666307295e-1});
  s = f.fma(f.mul(s, z), r, r);
  if (quadrant == 0) s = f.copysign(s, r);  // -0 + (+0) is no -0
  Value* k = f.polynomial(z, {2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2},
                          {-1.13585365213876817300e-11, 2.08757008419747316778e-9, -2.75573141792967388112e-7,
                           2.48015872888517045348e-5, -1.38888888888730564116e-3, 4.16666666666665929218e-2});
  k = f.fma(f.mul(k, z), z, f.fma(z, f.c(-0.5), f.c(1.0)));
  Value* turned = quadrant ? f.b.CreateAdd(integer, f.i(quadrant)) : integer;
  Value* odd = f.b.CreateICmpNE(f.b.CreateAnd(turned, f.i(1)), f.i(0));
  Value* result = f.select(odd, k, s);
  // Quadrants 2 and 3 change the sign.
  Value* sign = f.b.CreateShl(f.b.CreateAnd(turned, f.i(2)), f.i(f.single ? 30 : 62));
  result = f.floats(f.b.CreateXor(f.bits(result), sign));
  return ops.where_any(large, result, [&] {
    const Val args[] = {{x}};
    return ops.library(quadrant ? "cos" : "sin", f.single ? DType::F32 : DType::F64, args).real;
  });
}

/// exp without special cases. `normal`: neither its result nor 2 to the integer next to x / ln 2 leaves the normal
/// numbers.
Value* plain_exp(Floats& f, Value* x, bool normal) {
  auto [n, integer] = f.nearest(x, f.c(1.44269504088896340736));
  // The high part of ln 2 has few bits: n * high is exact without FMA too.
  Value* r = f.fma(n, f.c(-0.693359375, -6.93145751953125e-1), x);
  r = f.fma(n, f.c(2.12194440e-4, -1.42860682030941723212e-6), r);
  Value* square = f.mul(r, r);
  Value* e;
  if (f.single) {
    Value* p = f.polynomial(
        r, {1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1});
    e = f.add(f.fma(p, square, r), f.c(1.0));
  } else {
    Value* p = f.mul(
        r, f.polynomial(square, {1.26177193074810590878e-4, 3.02994407707441961300e-2, 9.99999999999999999910e-1}));
    Value* q = f.polynomial(square, {3.00198505138664455042e-6, 2.52448340349684104192e-3, 2.27265548208155028766e-1,
                                     2.00000000000000000009});
    Value* quotient = f.div(p, f.sub(q, p));
    e = f.fma(quotient, f.c(2.0), f.c(1.0));
  }
  return f.scale(e, n, integer, normal);
}

/// log x = log(1 + m) + e ln 2 with m in [sqrt(1/2) - 1, sqrt(2) - 1]; x positive, finite and normal.
Value* plain_log(Floats& f, Value* x, Value* exponent_offset) {
  Value* raw = f.bits(x);
  const std::int64_t root = f.single ? 0x3f3504f3 : 0x3fe6a09e667f3bcd;  // sqrt(1/2)
  Value* exponent = f.b.CreateAShr(f.b.CreateSub(raw, f.i(root)), f.i(f.mantissa()));
  Value* mantissa = f.floats(f.b.CreateSub(raw, f.b.CreateShl(exponent, f.i(f.mantissa()))));
  if (exponent_offset) exponent = f.b.CreateSub(exponent, exponent_offset);
  Value* e;
  if (f.single || f.ops.machine().avx512) {
    e = f.b.CreateSIToFP(exponent, f.type);
  } else {
    // No instruction converts 64-bit integers: add to the bits of 1.5 * 2^52 instead.
    Value* magic = f.c(6755399441055744.0);
    e = f.sub(f.floats(f.b.CreateAdd(f.bits(magic), exponent)), magic);
  }
  Value* m = f.sub(mantissa, f.c(1.0));
  Value* z = f.mul(m, m);
  Value* y;
  if (f.single) {
    Value* p = f.polynomial(m, {7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
                                -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1});
    y = f.mul(f.mul(p, m), z);
  } else {
    Value* p = f.polynomial(m, {1.01875663804580931796e-4, 4.97494994976747001425e-1, 4.70579119878881725854,
                                1.44989225341610930846e1, 1.79368678507819816313e1, 7.70838733755885391666});
    Value* q = f.polynomial(m, {1.0, 1.12873587189167450590e1, 4.52279145837532221105e1, 8.29875266912776603211e1,
                                7.11544750618563894466e1, 2.31251620126765340583e1});
    y = f.mul(m, f.div(f.mul(z, p), q));
  }
  y = f.fma(e, f.c(-2.12194440e-4, -2.121944400546905827679e-4), y);
  y = f.fma(z, f.c(-0.5), y);
  return f.fma(e, f.c(0.693359375), f.add(m, y));
}

/// F32 registers through a function of double precision.
template <class Function>
Value* in_double(Operations& ops, Value* x, const Function& function) {
  Value* wide = ops.b.CreateFPExt(x, ops.wide(ops.b.getDoubleTy()));
  return ops.b.CreateFPTrunc(function(wide), x->getType());
}

}  // namespace

Value* inline_exp(Operations& ops, Value* x) {
  Floats f(ops, x);
  // Beyond these the result is 0 or infinite anyway; the scaling still underflows and overflows there.
  return plain_exp(f, f.clamp(x, f.c(-105.0, -747.0), f.c(90.0, 711.0)), false);
}

namespace {

/// log of whatever there is.
Value* any_log(Operations& ops, Value* x) {
  Floats f(ops, x);
  // Other than positive and finite: 1, and the result is replaced below.
  Value* positive = f.less(f.c(0), x);
  Value* finite = f.less(x, f.c(INFINITY));
  Value* argument = f.select(f.b.CreateAnd(positive, finite), x, f.c(1.0));
  // Denormals are scaled up.
  Value* tiny = f.less(argument, f.c(1.17549435082228750797e-38, 2.22507385850720138309e-308));
  argument = f.select(tiny, f.mul(argument, f.c(8388608.0, 4503599627370496.0)), argument);
  Value* result = plain_log(f, argument, f.select(tiny, f.i(f.mantissa()), f.i(0)));
  result = f.select(finite, result, x);  // +inf and NaN
  Value* zero = f.b.CreateFCmpOEQ(x, f.c(0));
  Value* special = f.b.CreateOr(zero, f.less(x, f.c(0)));
  if (!ops.conditions) {
    result = f.select(special, f.c(NAN), result);
    return f.select(zero, f.c(-INFINITY), result);
  }
  // log(0) = -inf is a division by zero, the logarithm of a negative number an invalid one. Only lanes with special
  // arguments compute with them: 0 - 0 = 0 and then -1/0 or 0/0.
  Value* chosen = f.select(special, x, f.c(0.5));
  Value* none = f.sub(chosen, chosen);
  Value* raised = f.div(f.select(zero, f.c(-1.0), none), f.select(special, none, f.c(1.0)));
  // Chosen by its value: a second select on `special` would let LLVM drop the first one.
  return f.select(f.b.CreateFCmpOEQ(raised, f.c(0)), result, raised);
}

}  // namespace

Value* inline_log(Operations& ops, Value* x) {
  Floats f(ops, x);
  // Positive, finite and normal, by one comparison of integers: signed ones, which is what instructions compare.
  const std::int64_t least = std::int64_t{1} << f.mantissa(), infinity = std::int64_t(2 * f.bias() + 1) << f.mantissa();
  const std::int64_t lowest = f.single ? INT32_MIN : INT64_MIN;
  // lowest - least wraps round in the width of the float.
  const std::int64_t shift = f.single ? std::int64_t{INT32_MAX} - least + 1 : INT64_MAX - least + 1;
  Value* ordinary = f.b.CreateICmpSLT(f.b.CreateAdd(f.bits(x), f.i(shift)), f.i(lowest + (infinity - least)));
  return ops.where_any(f.b.CreateNot(ordinary), plain_log(f, x, nullptr), [&] { return any_log(ops, x); });
}

Value* inline_sin(Operations& ops, Value* x) { return sine(ops, x, 0); }
Value* inline_cos(Operations& ops, Value* x) { return sine(ops, x, 1); }

Value* inline_tanh(Operations& ops, Value* x) {
  Floats f(ops, x);
  Value* magnitude = f.abs(x);
  // |x| < 0.625: an odd function; else 1 - 2/(exp(2|x|) + 1). Each overflows nowhere below the bound.
  Value* bounded = f.select(f.less(f.c(22.0), magnitude), f.c(22.0), magnitude);
  Value* square = f.mul(bounded, bounded);
  Value* p;
  if (f.single) {
    p = f.polynomial(square,
                     {-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1});
  } else {
    Value* numerator =
        f.polynomial(square, {-9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3});
    Value* denominator =
        f.polynomial(square, {1.0, 1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3});
    p = f.div(numerator, denominator);
  }
  Value* small = f.fma(f.mul(p, square), bounded, bounded);
  Value* e = plain_exp(f, f.add(bounded, bounded), true);
  Value* large = f.sub(f.c(1.0), f.div(f.c(2.0), f.add(e, f.c(1.0))));
  return f.copysign(f.select(f.less(magnitude, f.c(0.625)), small, large), x);
}

Value* inline_erf(Operations& ops, Value* x) {
  Floats f(ops, x);
  Value* magnitude = f.abs(x);
  Value* bounded = f.select(f.less(f.c(4.0), magnitude), f.c(4.0), magnitude);
  // |x| > 0.921875: 1 - exp(p(|x|)).
  Value* t = bounded;
  Value* s = f.mul(bounded, bounded);
  Value* r = f.fma(f.c(-1.72853470e-5), t, f.c(3.83197126e-4));
  Value* u = f.fma(f.c(-3.88396438e-3), t, f.c(2.42546219e-2));
  r = f.fma(r, s, u);
  r = f.fma(r, t, f.c(-1.06777877e-1));
  r = f.fma(r, t, f.c(-6.34846687e-1));
  r = f.fma(r, t, f.c(-1.28717512e-1));
  r = f.fma(r, t, f.b.CreateFNeg(t));
  Value* large = f.sub(f.c(1.0), plain_exp(f, r, true));
  Value* q =
      f.polynomial(s, {-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1});
  Value* small = f.fma(q, bounded, bounded);
  return f.copysign(f.select(f.less(f.c(0.921875), magnitude), large, small), x);  // of NaN both are NaN
}

Value* inline_pow(Operations& ops, Value* x, Value* y) {
  Floats f(ops, x);
  // Positive finite bases and exponents of moderate size; the rest has the library's many special cases.
  Value* ordinary = f.b.CreateAnd(f.b.CreateAnd(f.less(f.c(1.17549435082228750797e-38), x), f.less(x, f.c(INFINITY))),
                                  f.less(f.abs(y), f.c(1e6)));
  Value* base = f.select(ordinary, x, f.c(1.0));
  Value* exponent = f.select(ordinary, y, f.c(1.0));
  Value* result = in_double(ops, base, [&](Value* wide) {
    Floats d(ops, wide);
    Value* logarithm = plain_log(d, wide, nullptr);
    Value* product = d.mul(logarithm, ops.b.CreateFPExt(exponent, wide->getType()));
    // Conversion to float then overflows or underflows as it should.
    return plain_exp(d, d.clamp(product, d.c(-300), d.c(300)), true);
  });
  return ops.where_any(f.b.CreateNot(ordinary), result, [&] {
    const Val args[] = {{x}, {y}};
    return ops.library("pow", DType::F32, args).real;
  });
}

Value* inline_expm1(Operations& ops, Value* x) {
  return in_double(ops, x, [&](Value* wide) {
    Floats d(ops, wide);
    Value* small = d.less(d.abs(wide), d.c(1e-3));
    Value* series = d.mul(wide, d.polynomial(wide, {1.0 / 24, 1.0 / 6, 0.5, 1.0}));
    Value* full = d.sub(plain_exp(d, d.clamp(wide, d.c(-200), d.c(200)), true), d.c(1.0));
    return d.select(small, series, full);
  });
}

Value* inline_log1p(Operations& ops, Value* x) {
  Floats f(ops, x);
  Value* ordinary = f.b.CreateAnd(f.less(f.c(-1.0), x), f.less(x, f.c(INFINITY)));
  Value* argument = f.select(ordinary, x, f.c(1.0));
  Value* result = in_double(ops, argument, [&](Value* wide) {
    Floats d(ops, wide);
    Value* small = d.less(d.abs(wide), d.c(1e-3));
    Value* series = d.mul(wide, d.polynomial(wide, {0.2, -0.25, 1.0 / 3, -0.5, 1.0}));
    return d.select(small, series, plain_log(d, d.add(wide, d.c(1.0)), nullptr));
  });
  return ops.where_any(f.b.CreateNot(ordinary), result, [&] {
    const Val args[] = {{x}};
    return ops.library("log1p", DType::F32, args).real;
  });
}

}  // namespace fj
