// Powers of double precision: the logarithm and its product with the exponent in two numbers each, so that what the
// exponential function magnifies is exact to some 65 bits.
#include <cmath>

#include "codegen/llvm/floats.h"
#include "codegen/llvm/vector_math.h"

namespace fj {

using namespace vector_math;

namespace {

/// high + low, |low| at most half a unit of high.
struct Pair {
  Value *high, *low;
};

/// x + y for |x| >= |y| or x = 0.
Pair sum(Floats& f, Value* x, Value* y) {
  Value* high = f.add(x, y);
  return {high, f.add(f.sub(x, high), y)};
}

Pair product(Floats& f, const Pair& x, const Pair& y) {
  Value* high = f.mul(x.high, y.high);
  Value* low = f.fma(x.high, y.high, f.b.CreateFNeg(high));
  low = f.fma(x.high, y.low, f.fma(x.low, y.high, low));
  return {high, low};
}

Pair log_in_two(Floats& f, Value* x) {
  const Logarithm parts = split(f, x, nullptr);
  // log(1 + m) = 2 atanh(s), s = m / (2 + m).
  const Pair divisor = sum(f, f.c(2.0), parts.m);
  Value* reciprocal = f.div(f.c(1.0), divisor.high);
  Value* s = f.mul(parts.m, reciprocal);
  Value* negative = f.b.CreateFNeg(s);
  Value* lost = f.fma(negative, divisor.low, f.fma(negative, divisor.high, parts.m));
  const Pair root{s, f.mul(lost, reciprocal)};
  const Pair z = product(f, root, root);
  // 2 s + s z (2/3 + 2/5 z + ...): the first coefficient in two numbers.
  Value* p = f.polynomial(
      z.high, {1.199219180263221514e-1, 1.167443868995388984e-1, 1.333633601032273633e-1, 1.53845563919568557e-1,
               1.818181887725101754e-1, 2.222222221748092515e-1, 2.857142857144533414e-1, 3.999999999999997716e-1});
  Pair q = sum(f, f.c(2.0 / 3), f.mul(p, z.high));
  q.low = f.add(q.low, f.c(3.70074341541718826e-17));
  const Pair cubed = product(f, product(f, root, z), q);
  // e ln 2: its first part has few bits.
  Value* whole = f.mul(parts.e, f.c(6.93147180369123816490e-01));
  Value* rest = f.mul(parts.e, f.c(1.90821492927058770002e-10));
  Value* lost_rest = f.fma(parts.e, f.c(1.90821492927058770002e-10), f.b.CreateFNeg(rest));
  lost_rest = f.fma(parts.e, f.c(1.16122272243336092e-26), lost_rest);
  const Pair twice{f.add(root.high, root.high), f.add(root.low, root.low)};
  Pair result = sum(f, whole, twice.high);
  const Pair more = sum(f, result.high, cubed.high);
  const Pair most = sum(f, more.high, rest);
  Value* low = f.add(f.add(result.low, more.low), most.low);
  low = f.add(low, f.add(f.add(twice.low, cubed.low), lost_rest));
  return sum(f, most.high, low);
}

/// Of what is no NaN: a comparison that raises nothing, and that the compiler may move.
Value* clamp_number(Floats& f, Value* x, double low, double high) {
  Value* lower = f.select(f.b.CreateFCmpOLT(x, f.c(low)), f.c(low), x);
  return f.select(f.b.CreateFCmpOGT(lower, f.c(high)), f.c(high), lower);
}

/// e to a sum.
Value* exponential(Floats& f, const Pair& x) {
  // Beyond these the result is 0 or infinite anyway.
  Value* bounded = clamp_number(f, x.high, -747, 711);
  Value* low = f.select(f.b.CreateFCmpOEQ(bounded, x.high), x.low, f.c(0));
  auto [n, integer] = f.nearest(bounded, f.c(1.44269504088896340736));
  Value* first = f.fma(n, f.c(-6.93145751953125e-1), bounded);
  Value* r = f.fma(n, f.c(-1.42860682030941723212e-6), first);
  low = f.add(low, f.fma(n, f.c(-1.42860682030941723212e-6), f.sub(first, r)));
  const Pair whole = sum(f, f.c(1.0), r);
  Value* more = f.mul(f.mul(r, r), exp_polynomial(f, r));
  low = f.fma(low, f.add(whole.high, more), f.add(whole.low, more));
  Value* e = f.add(whole.high, low);
  return f.scale(e, n, integer, false);
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

Value* double_pow(Operations& ops, Value* base, Value* exponent) {
  Floats f(ops, base);
  const Pair logarithm = log_in_two(f, base);
  Value* high = f.mul(logarithm.high, exponent);
  Value* low = f.fma(logarithm.high, exponent, f.b.CreateFNeg(high));
  return exponential(f, {high, f.fma(logarithm.low, exponent, low)});
}

}  // namespace

Value* inline_pow(Operations& ops, Value* x, Value* y) {
  Floats f(ops, x);
  if (!f.single && !ops.machine().fma) {
    const Val args[] = {{x}, {y}};
    return ops.library("pow", DType::F64, args).real;
  }
  // Finite bases other than zero and exponents of moderate size, whole ones of negative bases; the rest has the
  // library's many special cases.
  Value* magnitude = f.abs(x);
  Value* ordinary = f.b.CreateAnd(f.below(f.c(1.17549435082228750797e-38, 2.22507385850720138309e-308), magnitude),
                                  f.below(magnitude, f.c(INFINITY)));
  ordinary = f.b.CreateAnd(ordinary, f.below(f.abs(y), f.c(1e6, 1e15)));
  Value* exponent = f.select(ordinary, y, f.c(1.0));
  const auto [whole, integer] = f.nearest(exponent, f.c(1.0));
  Value* negative = f.is_negative(x);
  ordinary = f.b.CreateAnd(ordinary, f.b.CreateOr(f.b.CreateNot(negative), f.b.CreateFCmpOEQ(whole, exponent)));
  Value* base = f.select(ordinary, magnitude, f.c(1.0));
  Value* result = f.single ? single_pow(ops, base, exponent) : double_pow(ops, base, exponent);
  // Odd powers of negative numbers are negative.
  Value* sign = f.b.CreateAnd(f.bits(x), f.b.CreateShl(integer, f.i(f.single ? 31 : 63)));
  result = f.floats(f.b.CreateXor(f.bits(result), sign));
  return f.rest("pow", f.b.CreateNot(ordinary), result, {x, y});
}

}  // namespace fj
