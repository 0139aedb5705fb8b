// Powers of single precision, computed in double.
#include <cmath>

#include "codegen/llvm/floats.h"
#include "codegen/llvm/vector_math.h"

namespace fj {

using namespace vector_math;

namespace {

/// Of what is no NaN: a comparison that raises nothing, and that the compiler may move.
Value* clamp_number(Floats& f, Value* x, double low, double high) {
  Value* lower = f.select(f.b.CreateFCmpOLT(x, f.c(low)), f.c(low), x);
  return f.select(f.b.CreateFCmpOGT(lower, f.c(high)), f.c(high), lower);
}

/// In double, to some 35 bits.
Value* single_pow(Operations& ops, Value* base, Value* exponent) {
  return in_double(ops, base, [&](Value* wide) {
    Floats d(ops, wide);
    const Logarithm parts = split(d, wide, nullptr);
    Value* s = d.div(parts.m, d.add(parts.m, d.c(2.0)));
    Value* z = d.mul(s, s);
    Value* p = d.polynomial(z, {2.35855851056e-1, 2.85371359569e-1, 4.00003377618e-1, 6.66666656349e-1});
    Value* logarithm = d.fma(d.mul(s, z), p, d.add(s, s));
    logarithm = d.fma(parts.e, d.c(0.69314718055994530942), logarithm);
    // Conversion to float then overflows or underflows as it should.
    Value* x = clamp_number(d, d.mul(logarithm, ops.b.CreateFPExt(exponent, wide->getType())), -300, 300);
    auto [n, integer] = d.nearest(x, d.c(1.44269504088896340736));
    Value* r = d.fma(n, d.c(-0.69314718055994530942), x);
    Value* q = d.polynomial(
        r, {1.99179267866e-4, 1.39460296084e-3, 8.33326539475e-3, 4.16662716632e-2, 1.6666666855e-1, 5.00000007678e-1});
    return d.scale(d.fma(q, d.mul(r, r), d.add(r, d.c(1.0))), n, integer, true);
  });
}

}  // namespace

Value* inline_pow(Operations& ops, Value* x, Value* y) {
  Floats f(ops, x);
  // Finite bases other than zero and exponents of moderate size, whole ones of negative bases; the rest has the
  // library's many special cases.
  Value* magnitude = f.abs(x);
  Value* ordinary = f.b.CreateAnd(f.below(f.c(1.17549435082228750797e-38), magnitude),
                                  f.below(magnitude, f.c(INFINITY)));
  ordinary = f.b.CreateAnd(ordinary, f.below(f.abs(y), f.c(1e6)));
  Value* exponent = f.select(ordinary, y, f.c(1.0));
  const auto [whole, integer] = f.nearest(exponent, f.c(1.0));
  Value* negative = f.is_negative(x);
  ordinary = f.b.CreateAnd(ordinary, f.b.CreateOr(f.b.CreateNot(negative), f.b.CreateFCmpOEQ(whole, exponent)));
  Value* base = f.select(ordinary, magnitude, f.c(1.0));
  Value* result = single_pow(ops, base, exponent);
  // Odd powers of negative numbers are negative.
  Value* sign = f.b.CreateAnd(f.bits(x), f.b.CreateShl(integer, f.i(31)));
  result = f.floats(f.b.CreateXor(f.bits(result), sign));
  return f.rest("pow", f.b.CreateNot(ordinary), result, {x, y});
}

}  // namespace fj
