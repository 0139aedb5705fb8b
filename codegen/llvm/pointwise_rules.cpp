// One function per rule of pointwise.def. A rule gets register values of the operand dtype and gives one of the
// result's. Half types compute in float and round at the end (Operations::round_to).
#include <algorithm>
#include <cmath>
#include <vector>

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/PatternMatch.h>

#include "codegen/llvm/operations.h"
#include "codegen/llvm/vector_math.h"
#include "graph_ir/ops.h"
#include "runtime/base/error.h"
#include "runtime/program.h"

namespace fj {

namespace {

using Args = std::span<const Val>;
using llvm::Value;

DType part(DType complex) { return complex == DType::C64 ? DType::F32 : DType::F64; }

template <Op op>
Val library1(Operations& ops, DType, DType operand, Args args) {
  return ops.library(std::string(name(op)), operand, args.first(1));
}

using Inlined = Value* (*)(Operations&, Value*);

/// Inlined for single and double precision; complex numbers by the library.
template <Op op, Inlined inlined>
Val inlined1(Operations& ops, DType result, DType operand, Args args) {
  if (is_complex(operand)) return library1<op>(ops, result, operand, args);
  return {ops.round_to(operand, inlined(ops, args[0].real))};
}

template <Op op, Value* (*inlined)(Operations&, Value*, Value*)>
Val inlined2(Operations& ops, DType, DType operand, Args args) {
  return {ops.round_to(operand, inlined(ops, args[0].real, args[1].real))};
}

Val negate(Operations& ops, DType, DType operand, Args args) {
  if (is_complex(operand)) return {ops.b.CreateFNeg(args[0].real), ops.b.CreateFNeg(args[0].imaginary)};
  if (is_float(operand)) return {ops.b.CreateFNeg(args[0].real)};
  return {ops.b.CreateNeg(args[0].real)};
}

Val absolute(Operations& ops, DType, DType operand, Args args) {
  Value* x = args[0].real;
  if (is_complex(operand)) return {inline_hypot(ops, x, args[0].imaginary)};
  if (is_float(operand)) return {ops.call(llvm::Intrinsic::fabs, {x})};
  if (!is_signed_integer(operand)) return {x};
  Value* negative = ops.b.CreateICmpSLT(x, ops.integer(operand, 0));
  return {ops.select(negative, ops.b.CreateNeg(x), x)};
}

// NaN has the sign NaN; both zeros have the sign +0... of the operand: x itself where x is neither below nor above
// zero.
Val sign(Operations& ops, DType, DType operand, Args args) {
  Value* x = args[0].real;
  if (is_complex(operand)) {
    Value* magnitude = inline_hypot(ops, x, args[0].imaginary);
    Value* zero = ops.b.CreateFCmpOEQ(magnitude, ops.number(part(operand), 0));
    Value* divisor = ops.select(zero, ops.number(part(operand), 1), magnitude);
    return {ops.b.CreateFDiv(x, divisor), ops.b.CreateFDiv(args[0].imaginary, divisor)};
  }
  if (operand == DType::Bool) return {x};
  if (is_float(operand)) {
    Value* zero = ops.number(operand, 0);
    Value* nan = ops.holds_nan(x);
    Value* result =
        ops.select(ops.compare(llvm::CmpInst::FCMP_OGT, x, zero), ops.number(operand, 1),
                   ops.select(ops.compare(llvm::CmpInst::FCMP_OLT, x, zero), ops.number(operand, -1), zero));
    return {ops.select(nan, x, result)};
  }
  Value* zero = ops.integer(operand, 0);
  Value* positive = is_signed_integer(operand) ? ops.b.CreateICmpSGT(x, zero) : ops.b.CreateICmpNE(x, zero);
  Value* negative =
      is_signed_integer(operand) ? ops.select(ops.b.CreateICmpSLT(x, zero), ops.integer(operand, ~0ull), zero) : zero;
  return {ops.select(positive, ops.integer(operand, 1), negative)};
}

Val square_root(Operations& ops, DType, DType operand, Args args) {
  if (is_complex(operand)) return ops.library("sqrt", operand, args);
  return {ops.round_to(operand, ops.call(llvm::Intrinsic::sqrt, {args[0].real}))};
}

// Smith's method, as in NumPy and torch: no overflow of the squared magnitude.
Val complex_divide(Operations& ops, DType operand, const Val& x, const Val& y) {
  auto& b = ops.b;
  Value *c = y.real, *d = y.imaginary;
  Value* absolute_c = ops.call(llvm::Intrinsic::fabs, {c});
  Value* absolute_d = ops.call(llvm::Intrinsic::fabs, {d});
  Value* by_real = ops.compare(llvm::CmpInst::FCMP_OGE, absolute_c, absolute_d);
  Value *zero = ops.number(part(operand), 0), *one = ops.number(part(operand), 1);
  Value* both_zero = b.CreateAnd(b.CreateFCmpOEQ(c, zero), b.CreateFCmpOEQ(d, zero));
  Value* large = ops.select(by_real, c, d);
  Value* small = ops.select(by_real, d, c);
  Value* ratio = b.CreateFDiv(small, ops.select(both_zero, one, large));
  Value* scale = b.CreateFDiv(one, ops.select(both_zero, one, b.CreateFAdd(large, b.CreateFMul(small, ratio))));
  auto product = [&](Value* v) { return b.CreateFMul(v, ratio); };
  Value* real =
      ops.select(by_real, b.CreateFAdd(x.real, product(x.imaginary)), b.CreateFAdd(product(x.real), x.imaginary));
  Value* imaginary =
      ops.select(by_real, b.CreateFSub(x.imaginary, product(x.real)), b.CreateFSub(product(x.imaginary), x.real));
  Value* divisor = ops.select(both_zero, absolute_c, one);
  return {ops.select(both_zero, b.CreateFDiv(x.real, divisor), b.CreateFMul(real, scale)),
          ops.select(both_zero, b.CreateFDiv(x.imaginary, divisor), b.CreateFMul(imaginary, scale))};
}

Val reciprocal_root(Operations& ops, DType, DType operand, Args args) {
  if (is_complex(operand)) {
    const Val one{ops.number(part(operand), 1), ops.number(part(operand), 0)};
    return complex_divide(ops, operand, one, ops.library("sqrt", operand, args));
  }
  Value* root = ops.call(llvm::Intrinsic::sqrt, {args[0].real});
  return {ops.round_to(operand, ops.b.CreateFDiv(ops.number(operand, 1), root))};
}

template <llvm::Intrinsic::ID id>
Val rounding(Operations& ops, DType, DType operand, Args args) {
  if (!is_float(operand)) return args[0];
  return {ops.call(id, {args[0].real})};
}

Value* infinity(Operations& ops, DType operand) { return llvm::ConstantFP::getInfinity(ops.wide(operand)); }

Value* inf_part(Operations& ops, DType dtype, Value* x) {
  return ops.b.CreateFCmpOEQ(ops.call(llvm::Intrinsic::fabs, {x}), infinity(ops, dtype));
}

Val is_nan(Operations& ops, DType, DType operand, Args args) {
  if (is_complex(operand)) return {ops.b.CreateOr(ops.holds_nan(args[0].real), ops.holds_nan(args[0].imaginary))};
  if (!is_float(operand)) return {ops.integer(DType::Bool, 0)};
  return {ops.holds_nan(args[0].real)};
}

Val is_inf(Operations& ops, DType, DType operand, Args args) {
  if (is_complex(operand))
    return {
        ops.b.CreateOr(inf_part(ops, part(operand), args[0].real), inf_part(ops, part(operand), args[0].imaginary))};
  if (!is_float(operand)) return {ops.integer(DType::Bool, 0)};
  return {inf_part(ops, operand, args[0].real)};
}

Val is_finite(Operations& ops, DType result, DType operand, Args args) {
  Value* nan = is_nan(ops, result, operand, args).real;
  Value* inf = is_inf(ops, result, operand, args).real;
  return {ops.b.CreateNot(ops.b.CreateOr(nan, inf))};
}

Val sign_bit(Operations& ops, DType, DType operand, Args args) {
  Value* x = args[0].real;
  if (operand == DType::Bool || is_unsigned_integer(operand)) return {ops.integer(DType::Bool, 0)};
  if (is_float(operand)) {
    llvm::Type* bits = ops.wide(operand == DType::F64 ? ops.b.getInt64Ty() : ops.b.getInt32Ty());
    x = ops.b.CreateBitCast(x, bits);
  }
  return {ops.b.CreateICmpSLT(x, llvm::ConstantInt::get(x->getType(), 0))};
}

Val logical_not(Operations& ops, DType, DType operand, Args args) {
  return {ops.b.CreateNot(ops.cast(operand, DType::Bool, args[0]).real)};
}

Val bit_not(Operations& ops, DType, DType, Args args) { return {ops.b.CreateNot(args[0].real)}; }
Val population_count(Operations& ops, DType, DType, Args args) {
  return {ops.call(llvm::Intrinsic::ctpop, {args[0].real})};
}

Val convert(Operations& ops, DType result, DType operand, Args args) { return ops.cast(operand, result, args[0]); }

Val add(Operations& ops, DType, DType operand, Args args) {
  if (is_complex(operand))
    return {ops.b.CreateFAdd(args[0].real, args[1].real), ops.b.CreateFAdd(args[0].imaginary, args[1].imaginary)};
  if (operand == DType::Bool) return {ops.b.CreateOr(args[0].real, args[1].real)};
  if (is_float(operand)) return {ops.round_to(operand, ops.b.CreateFAdd(args[0].real, args[1].real))};
  return {ops.b.CreateAdd(args[0].real, args[1].real)};
}

Val subtract(Operations& ops, DType, DType operand, Args args) {
  if (is_complex(operand))
    return {ops.b.CreateFSub(args[0].real, args[1].real), ops.b.CreateFSub(args[0].imaginary, args[1].imaginary)};
  if (operand == DType::Bool) return {ops.b.CreateXor(args[0].real, args[1].real)};
  if (is_float(operand)) return {ops.round_to(operand, ops.b.CreateFSub(args[0].real, args[1].real))};
  return {ops.b.CreateSub(args[0].real, args[1].real)};
}

Val multiply(Operations& ops, DType, DType operand, Args args) {
  auto& b = ops.b;
  if (is_complex(operand)) {
    const Val &x = args[0], &y = args[1];
    return {b.CreateFSub(b.CreateFMul(x.real, y.real), b.CreateFMul(x.imaginary, y.imaginary)),
            b.CreateFAdd(b.CreateFMul(x.real, y.imaginary), b.CreateFMul(x.imaginary, y.real))};
  }
  if (operand == DType::Bool) return {b.CreateAnd(args[0].real, args[1].real)};
  if (is_float(operand)) return {ops.round_to(operand, b.CreateFMul(args[0].real, args[1].real))};
  return {b.CreateMul(args[0].real, args[1].real)};
}

Val divide(Operations& ops, DType, DType operand, Args args) {
  if (is_complex(operand)) return complex_divide(ops, operand, args[0], args[1]);
  FJ_CHECK(is_float(operand), "div of integers: the front end casts first");
  return {ops.round_to(operand, ops.b.CreateFDiv(args[0].real, args[1].real))};
}

// ---- integer division: zero is reported and divides as 1; the lowest number by -1 wraps

struct Division {
  Value *quotient, *remainder, *divisor;
};

Division divide_integers(Operations& ops, DType dtype, Value* a, Value* divisor) {
  auto& b = ops.b;
  Value* zero = b.CreateICmpEQ(divisor, ops.integer(dtype, 0));
  ops.report(zero, kIntegerDivisionByZero);
  divisor = ops.select(zero, ops.integer(dtype, 1), divisor);
  if (!is_signed_integer(dtype)) {
    Value* quotient = b.CreateUDiv(a, divisor);
    return {quotient, b.CreateSub(a, b.CreateMul(quotient, divisor)), divisor};
  }
  Value* minus_one = b.CreateICmpEQ(divisor, ops.integer(dtype, ~0ull));
  Value* safe = ops.select(minus_one, ops.integer(dtype, 1), divisor);
  Value* quotient = ops.select(minus_one, b.CreateNeg(a), b.CreateSDiv(a, safe));
  return {quotient, b.CreateSub(a, b.CreateMul(quotient, divisor)), divisor};
}

/// Where a remainder is not 0 and has the other sign than the divisor: floor differs from truncation.
Value* signs_differ(Operations& ops, DType dtype, const Division& division) {
  auto& b = ops.b;
  Value* zero = ops.integer(dtype, 0);
  Value* crossed = b.CreateICmpSLT(b.CreateXor(division.remainder, division.divisor), zero);
  return b.CreateAnd(crossed, b.CreateICmpNE(division.remainder, zero));
}

/// Remainder and floored quotient of floats as Python and NumPy define them.
std::pair<Value*, Value*> divmod_floats(Operations& ops, DType dtype, Value* x, Value* y) {
  auto& b = ops.b;
  Value* zero = ops.number(dtype, 0);
  Value* fmod = inline_fmod(ops, x, y);
  Value* quotient = b.CreateFDiv(b.CreateFSub(x, fmod), y);
  Value* nonzero = b.CreateFCmpUNE(fmod, zero);
  Value* differ =
      b.CreateXor(ops.compare(llvm::CmpInst::FCMP_OLT, y, zero), ops.compare(llvm::CmpInst::FCMP_OLT, fmod, zero));
  Value* crossed = b.CreateAnd(nonzero, differ);
  Value* remainder = ops.select(crossed, b.CreateFAdd(fmod, y), fmod);
  remainder = ops.select(nonzero, remainder, b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, zero, y));
  quotient = ops.select(crossed, b.CreateFSub(quotient, ops.number(dtype, 1)), quotient);
  // The quotient is close to an integer: snap to it.
  Value* floor = ops.call(llvm::Intrinsic::floor, {quotient});
  Value* up = ops.compare(llvm::CmpInst::FCMP_OGT, b.CreateFSub(quotient, floor), ops.number(dtype, 0.5));
  Value* snapped = ops.select(up, b.CreateFAdd(floor, ops.number(dtype, 1)), floor);
  Value* signed_zero = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, zero, b.CreateFDiv(x, y));
  quotient = ops.select(b.CreateFCmpUNE(quotient, zero), snapped, signed_zero);
  // By zero: x / y itself, and NaN.
  Value* by_zero = b.CreateFCmpOEQ(y, zero);
  return {ops.select(by_zero, b.CreateFDiv(x, y), quotient), ops.select(by_zero, fmod, remainder)};
}

Val floor_divide(Operations& ops, DType, DType operand, Args args) {
  if (is_float(operand)) return {ops.round_to(operand, divmod_floats(ops, operand, args[0].real, args[1].real).first)};
  const Division division = divide_integers(ops, operand, args[0].real, args[1].real);
  if (!is_signed_integer(operand)) return {division.quotient};
  // NumPy warns of the one quotient that wraps.
  Value* lowest = ops.integer(operand, 1ull << (size_in_bytes(operand) * 8 - 1));
  ops.report(ops.b.CreateAnd(ops.b.CreateICmpEQ(args[0].real, lowest),
                             ops.b.CreateICmpEQ(args[1].real, ops.integer(operand, ~0ull))),
             kFloatOverflow);
  Value* crossed = signs_differ(ops, operand, division);
  return {ops.select(crossed, ops.b.CreateSub(division.quotient, ops.integer(operand, 1)), division.quotient)};
}

Val modulo(Operations& ops, DType, DType operand, Args args) {
  if (is_float(operand)) return {ops.round_to(operand, divmod_floats(ops, operand, args[0].real, args[1].real).second)};
  const Division division = divide_integers(ops, operand, args[0].real, args[1].real);
  if (!is_signed_integer(operand)) return {division.remainder};
  Value* crossed = signs_differ(ops, operand, division);
  return {ops.select(crossed, ops.b.CreateAdd(division.remainder, division.divisor), division.remainder)};
}

Val truncated_divide(Operations& ops, DType, DType operand, Args args) {
  return {divide_integers(ops, operand, args[0].real, args[1].real).quotient};
}

Val remainder(Operations& ops, DType, DType operand, Args args) {
  if (is_float(operand)) return {ops.round_to(operand, inline_fmod(ops, args[0].real, args[1].real))};
  return {divide_integers(ops, operand, args[0].real, args[1].real).remainder};
}

// Integer powers by squaring, wrapping; a negative exponent gives the truncated reciprocal: 0, or +-1 for bases +-1.
Val power(Operations& ops, DType, DType operand, Args args) {
  // Of doubles the C library's: powers of Python's numbers are its bits.
  if (operand == DType::F64 || is_complex(operand)) return ops.library("pow", operand, args);
  if (is_float(operand)) return {ops.round_to(operand, inline_pow(ops, args[0].real, args[1].real))};
  auto& b = ops.b;
  Value *base = args[0].real, *exponent = args[1].real;
  if (operand == DType::Bool) return {b.CreateOr(base, b.CreateNot(exponent))};
  Value *zero = ops.integer(operand, 0), *one = ops.integer(operand, 1);
  // Bits of the exponent beyond these only matter to bases whose powers have long settled: 64 squarings cover all of
  // them.
  const int bits = int(size_in_bytes(operand)) * 8;
  Value *result = one, *factor = base;
  for (int bit = 0; bit < bits; ++bit) {
    Value* set = b.CreateICmpNE(b.CreateAnd(exponent, ops.integer(operand, 1ull << bit)), zero);
    result = ops.select(set, b.CreateMul(result, factor), result);
    factor = b.CreateMul(factor, factor);
  }
  if (!is_signed_integer(operand)) return {result};
  Value* minus_one = ops.integer(operand, ~0ull);
  Value* odd = b.CreateICmpNE(b.CreateAnd(exponent, one), zero);
  Value* reciprocal = ops.select(b.CreateICmpEQ(base, one), one,
                                 ops.select(b.CreateICmpEQ(base, minus_one), ops.select(odd, minus_one, one), zero));
  return {ops.select(b.CreateICmpSLT(exponent, zero), reciprocal, result)};
}

Val multiply_add(Operations& ops, DType, DType, Args args) {
  return {ops.call(llvm::Intrinsic::fma, {args[0].real, args[1].real, args[2].real})};
}

Val copy_sign(Operations& ops, DType, DType, Args args) {
  return {ops.b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, args[0].real, args[1].real)};
}

// ---- minimum and maximum: maximum and minimum give NaN if either is, fmax and fmin the other operand

Value* strictly(Operations& ops, DType dtype, Value* a, Value* c, bool larger) {
  auto& b = ops.b;
  if (is_float(dtype))
    return larger ? ops.compare(llvm::CmpInst::FCMP_OGT, a, c) : ops.compare(llvm::CmpInst::FCMP_OLT, a, c);
  if (is_signed_integer(dtype)) return larger ? b.CreateICmpSGT(a, c) : b.CreateICmpSLT(a, c);
  return larger ? b.CreateICmpUGT(a, c) : b.CreateICmpULT(a, c);
}

// The second operand where it is better, else the first, also if equal: one machine instruction, which keeps a NaN of
// the first.
Val propagating(Operations& ops, DType dtype, Value* a, Value* c, bool larger) {
  Value* result = ops.select(strictly(ops, dtype, c, a, larger), c, a);
  if (is_float(dtype)) result = ops.select(ops.holds_nan(c), c, result);
  return {result};
}

Val ignoring_nan(Operations& ops, DType dtype, Value* a, Value* c, bool larger) {
  Value* result = ops.select(strictly(ops, dtype, c, a, larger), c, a);
  if (is_float(dtype)) result = ops.select(ops.holds_nan(a), c, result);
  return {result};
}

Val maximum(Operations& ops, DType, DType operand, Args args) {
  return propagating(ops, operand, args[0].real, args[1].real, true);
}
Val minimum(Operations& ops, DType, DType operand, Args args) {
  return propagating(ops, operand, args[0].real, args[1].real, false);
}
Val fmax(Operations& ops, DType, DType operand, Args args) {
  return ignoring_nan(ops, operand, args[0].real, args[1].real, true);
}
Val fmin(Operations& ops, DType, DType operand, Args args) {
  return ignoring_nan(ops, operand, args[0].real, args[1].real, false);
}

template <Op op>
Val comparison(Operations& ops, DType, DType operand, Args args) {
  using llvm::CmpInst;
  auto& b = ops.b;
  struct Row { Op operation; CmpInst::Predicate floats, signed_integers, unsigned_integers; };
  constexpr Row rows[] = {
      {Op::eq, CmpInst::FCMP_OEQ, CmpInst::ICMP_EQ, CmpInst::ICMP_EQ},
      {Op::ne, CmpInst::FCMP_UNE, CmpInst::ICMP_NE, CmpInst::ICMP_NE},
      {Op::lt, CmpInst::FCMP_OLT, CmpInst::ICMP_SLT, CmpInst::ICMP_ULT},
      {Op::le, CmpInst::FCMP_OLE, CmpInst::ICMP_SLE, CmpInst::ICMP_ULE},
      {Op::gt, CmpInst::FCMP_OGT, CmpInst::ICMP_SGT, CmpInst::ICMP_UGT},
      {Op::ge, CmpInst::FCMP_OGE, CmpInst::ICMP_SGE, CmpInst::ICMP_UGE},
  };
  const Row* row = rows;
  while (row->operation != op) ++row;
  const Val &x = args[0], &y = args[1];
  if (is_complex(operand)) {
    Value* real = ops.compare_quietly(row->floats, x.real, y.real);
    Value* imaginary = ops.compare_quietly(row->floats, x.imaginary, y.imaginary);
    if (op == Op::eq) return {b.CreateAnd(real, imaginary)};
    if (op == Op::ne) return {b.CreateOr(real, imaginary)};
    // Ordered by the real part, then by the imaginary one.
    constexpr auto strict = op == Op::lt || op == Op::le ? CmpInst::FCMP_OLT : CmpInst::FCMP_OGT;
    return {b.CreateOr(ops.compare_quietly(strict, x.real, y.real),
                       b.CreateAnd(b.CreateFCmpOEQ(x.real, y.real), imaginary))};
  }
  if (is_float(operand)) return {ops.compare(row->floats, x.real, y.real)};
  return {b.CreateICmp(is_signed_integer(operand) ? row->signed_integers : row->unsigned_integers, x.real, y.real)};
}

Val bit_and(Operations& ops, DType, DType, Args args) { return {ops.b.CreateAnd(args[0].real, args[1].real)}; }
Val bit_or(Operations& ops, DType, DType, Args args) { return {ops.b.CreateOr(args[0].real, args[1].real)}; }
Val bit_xor(Operations& ops, DType, DType, Args args) { return {ops.b.CreateXor(args[0].real, args[1].real)}; }

// A shift by the width or more shifts everything out; so does a negative one, taken as a large unsigned number.
Val shift_left(Operations& ops, DType, DType operand, Args args) {
  if (operand == DType::Bool) return {ops.b.CreateAnd(args[0].real, ops.b.CreateNot(args[1].real))};
  const std::uint64_t bits = size_in_bytes(operand) * 8;
  Value* fits = ops.b.CreateICmpULT(args[1].real, ops.integer(operand, bits));
  Value* amount = ops.select(fits, args[1].real, ops.integer(operand, 0));
  return {ops.select(fits, ops.b.CreateShl(args[0].real, amount), ops.integer(operand, 0))};
}

Val shift_right(Operations& ops, DType, DType operand, Args args) {
  if (operand == DType::Bool) return {ops.b.CreateAnd(args[0].real, ops.b.CreateNot(args[1].real))};
  const std::uint64_t bits = size_in_bytes(operand) * 8;
  Value* fits = ops.b.CreateICmpULT(args[1].real, ops.integer(operand, bits));
  if (is_signed_integer(operand)) {
    Value* amount = ops.select(fits, args[1].real, ops.integer(operand, bits - 1));
    return {ops.b.CreateAShr(args[0].real, amount)};
  }
  Value* amount = ops.select(fits, args[1].real, ops.integer(operand, 0));
  return {ops.select(fits, ops.b.CreateLShr(args[0].real, amount), ops.integer(operand, 0))};
}

// Eager computes both sides everywhere. Without fences the side is computed only where it is chosen (a masked
// instruction, a branch), or what follows is computed of each side at compile time: 1 / where(c, 1, 0).
Val where(Operations& ops, DType, DType, Args args) {
  const Val a = ops.executed(args[1]), b = ops.executed(args[2]);
  Val value{ops.select(args[0].real, a.real, b.real)};
  if (a.imaginary) value.imaginary = ops.select(args[0].real, a.imaginary, b.imaginary);
  return ops.executed(value);
}

/// Whether a constant is a floating-point zero, infinity or NaN.
bool is_special(const Val& constant) {
  auto special = [](Value* part) {
    const llvm::APFloat* number;
    return part && llvm::PatternMatch::match(part, llvm::PatternMatch::m_APFloatAllowPoison(number)) &&
           (number->isZero() || !number->isFinite());
  };
  return special(constant.real) || special(constant.imaginary);
}

}  // namespace

Val Operations::apply(Op op, DType result, DType operand, std::span<const Val> args) {
  // Of what is made with zeros, infinities and NaN the class is known (x / 0 is no number), and then what raises is not
  // executed. Constants that are all the operands raise something: `simplify` folds the others.
  std::vector<Val> given(args.begin(), args.end());
  if (conditions && row(op).raises != Raises::Quiet) {
    auto is_constant = [](const Val& arg) { return llvm::isa<llvm::Constant>(arg.real); };
    const bool all = std::all_of(args.begin(), args.end(), is_constant);
    for (Val& arg : given)
      if (is_constant(arg) && (all || is_special(arg))) arg = opaque(arg);
    args = given;
  }
  switch (op) {
#define FJ_POINTWISE(name, cost, rule, cuda) \
  case Op::name: return rule(*this, result, operand, args);
#include "codegen/pointwise.def"
    default: break;
  }
  FJ_CHECK(false, "no pointwise rule for " + std::string(name(op)));
  return {};
}

}  // namespace fj
