// Inverse functions of the circular and hyperbolic ones, the length of a vector, and the remainder of floats.
// Coefficients are fits made for this file by Remez' exchange.
#include <cmath>

#include "codegen/llvm/floats.h"
#include "codegen/llvm/vector_math.h"

namespace fj {

using namespace vector_math;

namespace {

constexpr double kHalfPi = 1.57079632679489661923;

/// A multiple of pi/2 in two parts, the second what the first lost.
struct Angle {
  Value *high, *low;
};

Angle angle(Floats& f, int quarters) {
  return {f.c(quarters * double(float(kHalfPi)), quarters * kHalfPi),
          f.c(quarters * -4.37113900018624283e-8, quarters * 6.12323399573676603587e-17)};
}

/// The arc tangent of t in [0, 1].
Value* plain_atan(Floats& f, Value* t) {
  Value* z = f.mul(t, t);
  Value* p = f.polynomial(
      z,
      {-1.79398296e-3, 1.09161642e-2, -3.11806104e-2, 5.79601944e-2, -8.40358995e-2, 1.09522286e-1, -1.42642488e-1,
       1.99985489e-1, -3.33332991e-1},
      {1.322856014380628296e-5, -1.521952718338727475e-4, 8.31478654337527507e-4, -2.885355968121939654e-3,
       7.197339000349311784e-3, -1.390171844986933865e-2, 2.198605726089217103e-2, -2.990481513788382814e-2,
       3.664249809727309821e-2, -4.219206893363235254e-2, 4.722332498066583066e-2, -5.2535214566925391e-2,
       5.880528435369184819e-2, -6.666404155874617462e-2, 7.692279850457598987e-2, -9.090907003857574689e-2,
       1.111111100706857565e-1, -1.428571428257624174e-1, 1.999999999995147151e-1, -3.333333333333306803e-1});
  return f.fma(f.mul(p, z), t, t);
}

/// What the arc sine of s in [0, 1/2] is more than s; z = s^2.
Value* more_than_sine(Floats& f, Value* s, Value* z) {
  Value* p = f.polynomial(
      z, {4.21758952e-2, 2.41733627e-2, 4.54717549e-2, 7.49528525e-2, 1.66667528e-1},
      {3.263147139535254992e-2, -2.100376772009390552e-2, 2.171090416749374406e-2, 3.704920262288649886e-3,
       1.078066934553841117e-2, 1.139883281190524608e-2, 1.398083104936461616e-2, 1.735161105231483939e-2,
       2.237221504727621872e-2, 3.038194270538751492e-2, 4.46428571746692777e-2, 7.499999999970730023e-2,
       1.666666666666676074e-1});
  return f.mul(f.mul(p, z), s);
}

/// Of |x| <= 1/2 its own arc sine, of others that of sqrt((1 - |x|) / 2). Beyond 1 the root is invalid, as it should.
struct ArcSine {
  Value *large, *sine, *more, *arc;
};

ArcSine arc_sine(Floats& f, Value* x) {
  Value* magnitude = f.abs(x);
  Value* large = f.less(f.c(0.5), magnitude);
  Value* half = f.fma(magnitude, f.c(-0.5), f.c(0.5));
  Value* s = f.select(large, f.root(half), magnitude);
  Value* z = f.select(large, half, f.mul(magnitude, magnitude));
  Value* more = more_than_sine(f, s, z);
  return {large, s, more, f.add(s, more)};
}

/// log(1 + u), or for `large` arguments log(2 x).
Value* log_or_large(Floats& f, Value* x, Value* large, Value* u) {
  Value* sum = f.add(u, f.c(1.0));
  Value* rest = f.select(large, f.c(0), f.sub(u, f.sub(sum, f.c(1.0))));
  Value* result = plain_log(f, f.select(large, x, sum), nullptr, rest);
  result = f.add(result, f.select(large, f.c(0.69314718055994530942), f.c(0)));
  return f.select(f.less(x, f.c(INFINITY)), result, x);
}

}  // namespace

Value* inline_asin(Operations& ops, Value* x) {
  Floats f(ops, x);
  const ArcSine part = arc_sine(f, x);
  const Angle quarter = angle(f, 1);
  // pi/2 - 2 s is nearly exact.
  Value* large = f.add(f.fma(part.sine, f.c(-2.0), quarter.high), f.fma(part.more, f.c(-2.0), quarter.low));
  return f.copysign(f.select(part.large, large, part.arc), x);
}

Value* inline_acos(Operations& ops, Value* x) {
  Floats f(ops, x);
  const ArcSine part = arc_sine(f, x);
  // pi/2 - arc of a small x; 2 arc, or pi - 2 arc of a negative large one.
  const Angle quarter = angle(f, 1), half = angle(f, 2);
  Value* negative = f.less(x, f.c(0));
  Value* small = f.add(quarter.high, f.sub(quarter.low, f.copysign(part.arc, x)));
  Value* twice = f.add(part.arc, part.arc);
  Value* large = f.select(negative, f.add(half.high, f.sub(half.low, twice)), twice);
  return f.select(part.large, large, small);
}

Value* inline_atan(Operations& ops, Value* x) {
  Floats f(ops, x);
  Value* magnitude = f.abs(x);
  // Of an infinity 1/x is 0: pi/2.
  Value* large = f.less(f.c(1.0), magnitude);
  Value* arc = plain_atan(f, f.select(large, f.div(f.c(1.0), f.select(large, magnitude, f.c(1.0))), magnitude));
  const Angle quarter = angle(f, 1);
  return f.copysign(f.select(large, f.add(quarter.high, f.sub(quarter.low, arc)), arc), x);
}

Value* inline_atan2(Operations& ops, Value* y, Value* x) {
  Floats f(ops, x);
  Value *ay = f.abs(y), *ax = f.abs(x);
  Value* steep = f.below(ax, ay);
  Value* more = f.select(steep, ay, ax);
  Value* less = f.select(steep, ax, ay);
  // Both zero, an infinity, NaN: the library's.
  Value* ordinary = f.b.CreateAnd(f.below(f.c(0), more), f.below(more, f.c(INFINITY)));
  Value* arc = plain_atan(f, f.div(f.select(ordinary, less, f.c(0)), f.select(ordinary, more, f.c(1.0))));
  Value* negative = f.is_negative(x);
  const Angle quarter = angle(f, 1), half = angle(f, 2);
  Value* none = f.c(0);
  Value* high = f.select(steep, quarter.high, f.select(negative, half.high, none));
  Value* low = f.select(steep, quarter.low, f.select(negative, half.low, none));
  arc = f.select(f.b.CreateXor(steep, negative), f.b.CreateFNeg(arc), arc);
  Value* result = f.copysign(f.add(high, f.add(low, arc)), y);
  return f.rest("atan2", f.b.CreateNot(ordinary), result, {y, x});
}

Value* inline_hypot(Operations& ops, Value* x, Value* y) {
  Floats f(ops, x);
  Value *ax = f.abs(x), *ay = f.abs(y);
  Value* swap = f.below(ax, ay);
  Value* more = f.select(swap, ay, ax);
  Value* less = f.select(swap, ax, ay);
  // Squares that neither overflow nor lose digits; and zeros. NaN of one operand and infinity of the other: infinite.
  Value* ordinary = f.below(more, f.c(INFINITY, 0x1p510));
  if (!f.single) {
    Value* zero = f.b.CreateICmpEQ(f.bits(more), f.i(0));
    ordinary = f.b.CreateAnd(ordinary, f.b.CreateOr(f.below(f.c(0x1p-480), more), zero));
  }
  more = f.select(ordinary, more, f.c(0));
  less = f.select(f.single ? ordinary : f.b.CreateAnd(ordinary, f.below(f.c(0x1p-500), less)), less, f.c(0));
  Value* result;
  if (f.single) {
    result = in_double(ops, more, [&](Value* wide) {
      Floats d(ops, wide);
      Value* other = ops.b.CreateFPExt(less, wide->getType());
      return d.root(d.fma(wide, wide, d.mul(other, other)));
    });
  } else {
    result = f.root(f.fma(more, more, f.mul(less, less)));
  }
  return f.rest("hypot", f.b.CreateNot(ordinary), result, {x, y});
}

Value* inline_asinh(Operations& ops, Value* x) {
  Floats f(ops, x);
  Value* magnitude = f.abs(x);
  Value* large = f.less(f.c(0x1p14, 0x1p28), magnitude);
  Value* a = f.select(large, f.c(1.0), magnitude);
  // a + sqrt(a^2 + 1) = 1 + u, without the loss of what is small beside 1.
  Value* z = f.mul(a, a);
  Value* u = f.add(a, f.div(z, f.add(f.root(f.add(z, f.c(1.0))), f.c(1.0))));
  return f.copysign(log_or_large(f, magnitude, large, u), x);
}

Value* inline_acosh(Operations& ops, Value* x) {
  Floats f(ops, x);
  Value* large = f.less(f.c(0x1p14, 0x1p28), x);
  Value* a = f.select(large, f.c(1.0), x);
  Value* t = f.sub(a, f.c(1.0));
  // Of x < 1 the root is that of a negative number.
  Value* root = f.root(f.select(f.less(t, f.c(0)), t, f.fma(t, t, f.add(t, t))));
  Value* u = f.add(t, root);
  Value* outside = ops.holds_nan(u);
  Value* result = log_or_large(f, x, large, f.select(outside, f.c(1.0), u));
  return f.select(outside, u, result);
}

Value* inline_atanh(Operations& ops, Value* x) {
  Floats f(ops, x);
  Value* magnitude = f.abs(x);
  Value* inside = f.less(magnitude, f.c(1.0));
  Value* a = f.select(inside, magnitude, f.c(0.5));
  Value* result = log_of_successor(f, f.div(f.add(a, a), f.sub(f.c(1.0), a)));
  result = f.copysign(f.mul(result, f.c(0.5)), x);
  // At 1 a division by zero, beyond it an invalid root.
  return ops.where_any(f.b.CreateNot(inside), result,
                       [&] { return f.div(x, f.root(f.sub(f.c(1.0), magnitude))); });
}

Value* inline_fmod(Operations& ops, Value* x, Value* y) {
  Floats f(ops, x);
  const auto library = [&] {
    const Val args[] = {{x}, {y}};
    return ops.library("fmod", f.dtype(), args).real;
  };
  if (!ops.machine().fma) return library();
  Value *ax = f.abs(x), *ay = f.abs(y);
  // Finite and normal, and exponents so near that the quotient is below 2^22 or 2^51: then it is an integer to within
  // 1, and the remainder is exact.
  const std::int64_t infinity = std::int64_t(2 * f.bias() + 1) << f.mantissa();
  Value *bx = f.bits(ax), *by = f.bits(ay);
  Value* ordinary = f.b.CreateAnd(f.b.CreateICmpSLT(bx, f.i(infinity)), f.b.CreateICmpSLT(by, f.i(infinity)));
  ordinary = f.b.CreateAnd(ordinary, f.b.CreateICmpSGE(by, f.i(std::int64_t{1} << f.mantissa())));
  Value* near = f.b.CreateICmpSLT(f.b.CreateSub(bx, by), f.i(std::int64_t(f.mantissa() - 2) << f.mantissa()));
  ordinary = f.b.CreateAnd(ordinary, near);
  ax = f.select(ordinary, ax, f.c(0));
  ay = f.select(ordinary, ay, f.c(1.0));
  Value* quotient = ops.call(llvm::Intrinsic::trunc, {f.div(ax, ay)});
  Value* rest = f.fma(f.b.CreateFNeg(quotient), ay, ax);
  // The quotient was rounded up to the next integer.
  rest = f.select(f.is_negative(rest), f.add(rest, ay), rest);
  return ops.where_any(f.b.CreateNot(ordinary), f.copysign(rest, x), library);
}

}  // namespace fj
