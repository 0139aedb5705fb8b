// Exponential, logarithmic and trigonometric functions: polynomials and range reductions in single and double
// precision. Coefficients are the well-known minimax fits of these intervals (Cephes; Juffa for erf), or fits made for
// this file by Remez' exchange.
#include "codegen/llvm/vector_math.h"

#include <cmath>

#include "codegen/llvm/floats.h"

namespace fj {

using namespace vector_math;

namespace {

/// x less a multiple n of pi/2: sin and cos of what is left, and n.
struct Quarter {
  Value *large;  // no such argument: the library's
  Value *sine, *cosine, *integer;
  Value *sine_lost, *cosine_lost;  // what rounding took from them, if asked for
};

Quarter quarter(Floats& f, Value* x, bool exact = false) {
  Quarter result;
  // Beyond these the three parts of pi/2 lose digits, or the quadrant is no exact integer any more.
  result.large = f.less(f.c(8192.0, 1e6), f.abs(x));
  Value* bounded = f.select(result.large, f.c(0), x);
  auto [n, integer] = f.nearest(bounded, f.c(0.63661977236758134308));
  result.integer = integer;
  // With FMA each part of a float may have all its bits: the first difference is exact, as its terms are multiples of
  // 2^-24. Without it the products have to be. All are negative: a zero keeps its sign.
  const bool fused = f.ops.machine().fma;
  Value* first = f.fma(n, f.c(fused ? -1.570796251296997 : -1.5703125, -1.57079625129699707031), bounded);
  Value* second =
      f.fma(n, f.c(fused ? -7.549789415861596e-08 : -4.837512969970703125e-4, -7.54978941586159635335e-8), first);
  Value* r =
      f.fma(n, f.c(fused ? -5.390302529957765e-15 : -7.54978995489188216e-8, -5.39030285815811905290e-15), second);
  Value* z = f.mul(r, r);
  Value* s = f.polynomial(z, {-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1},
                          {1.58962301576546568060e-10, -2.50507477628578072866e-8, 2.75573136213857245213e-6,
                           -1.98412698295895385996e-4, 8.33333333332211858878e-3, -1.66666666666666307295e-1});
  result.sine = f.fma(f.mul(s, z), r, r);
  // -0 + (+0) is no -0.
  result.sine = f.copysign(result.sine, r);
  Value* k = f.polynomial(z, {2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2},
                          {-1.13585365213876817300e-11, 2.08757008419747316778e-9, -2.75573141792967388112e-7,
                           2.48015872888517045348e-5, -1.38888888888730564116e-3, 4.16666666666665929218e-2});
  result.cosine = f.fma(f.mul(k, z), z, f.fma(z, f.c(-0.5), f.c(1.0)));
  if (exact) {
    Value* lost = f.fma(n, f.c(-7.54978941586159635335e-8), f.sub(first, second));
    lost = f.add(lost, f.fma(n, f.c(-5.39030285815811905290e-15), f.sub(second, r)));
    if (!f.ops.machine().fma) lost = f.c(0);
    Value* more = f.mul(f.mul(s, z), r);
    result.sine = f.copysign(f.add(r, more), r);
    result.sine_lost = f.fma(lost, result.cosine, f.add(f.sub(r, result.sine), more));
    more = f.fma(f.mul(k, z), z, f.mul(z, f.c(-0.5)));
    result.cosine = f.add(f.c(1.0), more);
    result.cosine_lost =
        f.fma(f.b.CreateFNeg(lost), result.sine, f.add(f.sub(f.c(1.0), result.cosine), more));
  }
  return result;
}

Value* is_odd(Floats& f, Value* integer) { return f.b.CreateICmpNE(f.b.CreateAnd(integer, f.i(1)), f.i(0)); }

/// sin (quadrant 0) or cos (quadrant 1) of x.
Value* sine(Operations& ops, Value* x, int quadrant) {
  Floats f(ops, x);
  const Quarter part = quarter(f, x);
  Value* turned = quadrant ? f.b.CreateAdd(part.integer, f.i(quadrant)) : part.integer;
  Value* result = f.select(is_odd(f, turned), part.cosine, part.sine);
  // Quadrants 2 and 3 change the sign.
  Value* sign = f.b.CreateShl(f.b.CreateAnd(turned, f.i(2)), f.i(f.single ? 30 : 62));
  result = f.floats(f.b.CreateXor(f.bits(result), sign));
  return f.rest(quadrant ? "cos" : "sin", part.large, result, {x});
}

}  // namespace

namespace vector_math {

Value* exp_polynomial(Floats& f, Value* r) {
  return f.polynomial(
      r, {1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1},
      {2.092468726062237112e-9, 2.510927284465437758e-8, 2.755724203417148151e-7, 2.755724357799317146e-6,
       2.480158736126375879e-5, 1.984126988670346478e-4, 1.388888888886662059e-3, 8.333333333321424889e-3,
       4.16666666666667012e-2, 1.66666666666666768e-1, 0.5});
}

Exponential reduced_exp(Floats& f, Value* x) {
  auto [n, integer] = f.nearest(x, f.c(1.44269504088896340736));
  // The high part of ln 2 has few bits: n * high is exact without FMA too.
  Value* r = f.fma(n, f.c(-0.693359375, -6.93145751953125e-1), x);
  r = f.fma(n, f.c(2.12194440e-4, -1.42860682030941723212e-6), r);
  return {f.fma(exp_polynomial(f, r), f.mul(r, r), r), n, integer};
}

Value* plain_exp(Floats& f, Value* x, bool normal, bool half) {
  const Exponential part = reduced_exp(f, x);
  Value* e = half ? f.fma(part.q, f.c(0.5), f.c(0.5)) : f.add(part.q, f.c(1.0));
  return f.scale(e, part.n, part.integer, normal);
}

Logarithm split(Floats& f, Value* x, Value* exponent_offset) {
  Value* raw = f.bits(x);
  const std::int64_t root = f.single ? 0x3f3504f3 : 0x3fe6a09e667f3bcd;  // sqrt(1/2)
  Value* exponent = f.b.CreateAShr(f.b.CreateSub(raw, f.i(root)), f.i(f.mantissa()));
  Value* mantissa = f.floats(f.b.CreateSub(raw, f.b.CreateShl(exponent, f.i(f.mantissa()))));
  if (exponent_offset) exponent = f.b.CreateSub(exponent, exponent_offset);
  Value* e;
  if (f.single || f.ops.machine().converts_i64) {
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
  return {e, m, z, y};
}

Value* log_of_successor(Floats& f, Value* x) {
  Value* sum = f.add(x, f.c(1.0));
  // What the sum lost: of numbers up to 2^53 x - (sum - 1); of larger ones nothing that counts.
  return plain_log(f, sum, nullptr, f.sub(x, f.sub(sum, f.c(1.0))));
}

Value* plain_log(Floats& f, Value* x, Value* exponent_offset, Value* rest) {
  const auto [e, m, z, y] = split(f, x, exponent_offset);
  Value* low = f.fma(e, f.c(-2.12194440e-4, -2.121944400546905827679e-4), y);
  if (rest) low = f.add(low, f.div(rest, x));
  low = f.fma(z, f.c(-0.5), low);
  return f.fma(e, f.c(0.693359375), f.add(m, low));
}

}  // namespace vector_math

Value* inline_exp(Operations& ops, Value* x) {
  Floats f(ops, x);
  // Beyond these the result is 0 or infinite anyway; the scaling still underflows and overflows there.
  return plain_exp(f, f.clamp(x, f.c(-105.0, -747.0), f.c(90.0, 711.0)), false);
}

namespace {

using PlainLogarithm = Value* (*)(Floats&, Value* x, Value* exponent_offset);

Value* plain_natural(Floats& f, Value* x, Value* exponent_offset) { return plain_log(f, x, exponent_offset); }

Value* plain_log2(Floats& f, Value* x, Value* exponent_offset) {
  const auto [e, m, z, y] = split(f, x, exponent_offset);
  Value* low = f.fma(z, f.c(-0.5), y);
  Value* more = f.c(0.44269504088896340736);  // log2(e) - 1
  return f.add(f.add(f.fma(m, more, f.fma(low, more, low)), m), e);
}

Value* plain_log10(Floats& f, Value* x, Value* exponent_offset) {
  const auto [e, m, z, y] = split(f, x, exponent_offset);
  // Constants in two parts, the first of few bits; what a product and a sum lose is kept: of a power of ten this is the
  // exact integer.
  Value* tens = f.mul(e, f.c(0.30078125));
  Value* product = f.mul(m, f.c(0.43359375));
  Value* lost = f.ops.machine().fma ? f.fma(m, f.c(0.43359375), f.b.CreateFNeg(product)) : f.c(0);
  Value* sum = f.add(tens, product);
  lost = f.add(lost, f.add(f.sub(tens, sum), product));
  Value* low = f.mul(f.fma(z, f.c(-0.5), y), f.c(0.43429448190325182765));
  low = f.fma(m, f.c(7.00731903251827651129e-4), low);
  low = f.fma(e, f.c(2.48745663981195213739e-4), low);
  return f.add(sum, f.add(low, lost));
}

/// log of whatever there is.
Value* any_log(Operations& ops, Value* x, PlainLogarithm plain) {
  Floats f(ops, x);
  // Other than positive and finite: 1, and the result is replaced below.
  Value* positive = f.less(f.c(0), x);
  Value* finite = f.less(x, f.c(INFINITY));
  Value* argument = f.select(f.b.CreateAnd(positive, finite), x, f.c(1.0));
  // Denormals are scaled up.
  Value* tiny = f.less(argument, f.c(1.17549435082228750797e-38, 2.22507385850720138309e-308));
  argument = f.select(tiny, f.mul(argument, f.c(8388608.0, 4503599627370496.0)), argument);
  Value* result = plain(f, argument, f.select(tiny, f.i(f.mantissa()), f.i(0)));
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

Value* logarithm(Operations& ops, Value* x, PlainLogarithm plain) {
  Floats f(ops, x);
  // Positive, finite and normal, by one comparison of integers: signed ones, which is what instructions compare.
  const std::int64_t least = std::int64_t{1} << f.mantissa(), infinity = std::int64_t(2 * f.bias() + 1) << f.mantissa();
  const std::int64_t lowest = f.single ? INT32_MIN : INT64_MIN;
  // lowest - least wraps round in the width of the float.
  const std::int64_t shift = f.single ? std::int64_t{INT32_MAX} - least + 1 : INT64_MAX - least + 1;
  Value* ordinary = f.b.CreateICmpSLT(f.b.CreateAdd(f.bits(x), f.i(shift)), f.i(lowest + (infinity - least)));
  return ops.where_any(f.b.CreateNot(ordinary), plain(f, x, nullptr), [&] { return any_log(ops, x, plain); });
}

}  // namespace

Value* inline_log(Operations& ops, Value* x) { return logarithm(ops, x, plain_natural); }
Value* inline_log2(Operations& ops, Value* x) { return logarithm(ops, x, plain_log2); }
Value* inline_log10(Operations& ops, Value* x) { return logarithm(ops, x, plain_log10); }

Value* inline_exp2(Operations& ops, Value* x) {
  Floats f(ops, x);
  Value* bounded = f.clamp(x, f.c(-151.0, -1076.0), f.c(129.0, 1025.0));
  auto [n, integer] = f.nearest(bounded, f.c(1.0));
  Value* r = f.sub(bounded, n);
  Value* p = f.polynomial(
      r, {1.54763784e-4, 1.34002701e-3, 9.61800355e-3, 5.55032779e-2, 2.40226513e-1, 6.93147206e-1},
      {4.457399966691954706e-10, 7.0738637991544807e-9, 1.01780464059367619e-7, 1.321543479571387415e-6,
       1.525273386753416321e-5, 1.540353045812192424e-4, 1.33335581463793412e-3, 9.61812910759329887e-3,
       5.550410866482173781e-2, 2.402265069591013331e-1, 6.931471805599453081e-1});
  return f.scale(f.fma(r, p, f.c(1.0)), n, integer, false);
}

Value* inline_sin(Operations& ops, Value* x) { return sine(ops, x, 0); }
Value* inline_cos(Operations& ops, Value* x) { return sine(ops, x, 1); }

Value* inline_tan(Operations& ops, Value* x) {
  Value* large = nullptr;
  const auto ratio = [&](Value* argument, bool coarse) {
    Floats f(ops, argument);
    f.coarse = coarse;
    const Quarter part = quarter(f, argument, !coarse);
    large = part.large;
    Value* odd = is_odd(f, part.integer);
    Value* divisor = f.select(odd, part.sine, part.cosine);
    Value* dividend = f.select(odd, f.b.CreateFNeg(part.cosine), part.sine);
    if (coarse) return f.div(dividend, divisor);
    Value* reciprocal = f.div(f.c(1.0), divisor);
    Value* quotient = f.mul(dividend, reciprocal);
    Value* rest = f.fma(f.b.CreateFNeg(quotient), divisor, dividend);
    rest = f.add(rest, f.select(odd, f.b.CreateFNeg(part.cosine_lost), part.sine_lost));
    rest = f.fma(f.b.CreateFNeg(quotient), f.select(odd, part.sine_lost, part.cosine_lost), rest);
    return f.copysign(f.fma(rest, reciprocal, quotient), quotient);  // -0 + 0 is no -0
  };
  Floats f(ops, x);
  // In double also for the reduction's sake: near a pole every digit of what is left counts.
  Value* result = f.single ? in_double(ops, x, [&](Value* wide) { return ratio(wide, true); }) : ratio(x, false);
  return f.rest("tan", large, result, {x});
}

Value* inline_sinh(Operations& ops, Value* x) {
  Floats f(ops, x);
  Value* magnitude = f.abs(x);
  // Beyond the bound e^x / 2 overflows, as it should.
  Value* bounded = f.at_most(f.c(90.0, 711.0), magnitude);
  Value* z = f.mul(bounded, bounded);
  Value* p = f.polynomial(z, {2.81694739e-6, 1.98361606e-4, 8.33335005e-3, 1.66666665e-1},
                          {7.758745671180116549e-13, 1.605725991654087488e-10, 2.505212313419154433e-8,
                           2.755731915709192283e-6, 1.984126984143179767e-4, 8.333333333333147858e-3,
                           1.666666666666666738e-1});
  Value* small = f.fma(f.mul(p, z), bounded, bounded);
  Value* half = plain_exp(f, bounded, false, true);
  Value* large = f.sub(half, f.div(f.c(0.25), half));
  return f.copysign(f.select(f.less(f.c(1.0), magnitude), large, small), x);
}

Value* inline_cosh(Operations& ops, Value* x) {
  Floats f(ops, x);
  Value* half = plain_exp(f, f.at_most(f.c(90.0, 711.0), f.abs(x)), false, true);
  return f.add(half, f.div(f.c(0.25), half));
}

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

namespace {

Value* erf_in_double(Operations& ops, Value* x) {
  Floats f(ops, x);
  Value* magnitude = f.abs(x);
  Value* bounded = f.at_most(f.c(5.95), magnitude);
  // |x| > 1: 1 - exp(p(|x| - 1)).
  Value* p = f.polynomial(
      f.sub(bounded, f.c(1.0)),
      {-4.860616238430468538e-12, 1.192320776434598611e-10, -1.318208010380246696e-9, 8.513712130329286035e-9,
       -3.337234927594344342e-8, 5.796227544340804317e-8, 2.049043712635465231e-7, -2.132066180876808456e-6,
       9.671503525565457078e-6, -2.719906526164947423e-5, 2.629637585027197995e-5, 2.373164164855470041e-4,
       -1.977901211132271274e-3, 1.003382517834838957e-2, -4.156109802500362436e-2, -8.4310725635941658e-1,
       -2.638967514234775699, -1.84960550993324829});
  Value* large = f.sub(f.c(1.0), plain_exp(f, p, true));
  Value* q = f.polynomial(
      f.mul(bounded, bounded),
      {5.945458056749279897e-11, -1.136578363888726307e-9, 1.465791062984646323e-8, -1.635002983759629069e-7,
       1.646097325445080687e-6, -1.492559353419162405e-5, 1.205533103803274597e-4, -8.548326978773068795e-4,
       5.223977624781398282e-3, -2.686617064507294883e-2, 1.128379167095485778e-1, -3.761263890318374761e-1,
       1.283791670955125738e-1});
  Value* small = f.fma(q, bounded, bounded);
  return f.copysign(f.select(f.less(f.c(1.0), magnitude), large, small), x);
}

}  // namespace

Value* inline_erf(Operations& ops, Value* x) {
  Floats f(ops, x);
  if (!f.single) return erf_in_double(ops, x);
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

Value* inline_expm1(Operations& ops, Value* x) {
  Floats f(ops, x);
  // 2^n (q + 1) - 1, by half of it: 2^n may be out of range where the result is not.
  const auto [q, n, integer] = reduced_exp(f, f.clamp(x, f.c(-40.0), f.c(88.8, 709.9)));
  Value* exponent = f.b.CreateShl(integer, f.i(f.mantissa()));
  Value* power = f.floats(f.b.CreateAdd(exponent, f.i(std::int64_t(f.bias() - 1) << f.mantissa())));
  Value* half = f.fma(q, power, f.sub(power, f.c(0.5)));
  return f.copysign(f.add(half, half), x);  // of NaN it is NaN
}

Value* inline_log1p(Operations& ops, Value* x) {
  Floats f(ops, x);
  Value* ordinary = f.b.CreateAnd(f.less(f.c(-1.0), x), f.less(x, f.c(INFINITY)));
  Value* argument = f.select(ordinary, x, f.c(1.0));
  Value* result = f.copysign(log_of_successor(f, argument), argument);
  return f.rest("log1p", f.b.CreateNot(ordinary), result, {x});
}

}  // namespace fj
