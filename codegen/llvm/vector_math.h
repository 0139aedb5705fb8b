/// Inlined vector mathematics: straight-line code over all lanes, so that it fuses with what is around it.
///
/// Errors, beside each, are maxima against the exact result in units in the last place, on processors with FMA;
/// tests/codegen measures them. IEEE conditions
/// come from the arithmetic itself: an overflow is computed by a product that overflows. Arguments the fast form can't
/// take (a sine of 1e30, a power of a negative number) go to the library behind a branch over all lanes.
#pragma once

#include "codegen/llvm/operations.h"

namespace fj {

/// The registers' type, F32 or F64, decides the precision.
llvm::Value* inline_exp(Operations& ops, llvm::Value* x);                   // 1.1
llvm::Value* inline_exp2(Operations& ops, llvm::Value* x);                  // 1.2
llvm::Value* inline_expm1(Operations& ops, llvm::Value* x);                 // 2.0
llvm::Value* inline_log(Operations& ops, llvm::Value* x);                   // 1.0
llvm::Value* inline_log2(Operations& ops, llvm::Value* x);                  // 1.2
llvm::Value* inline_log10(Operations& ops, llvm::Value* x);                 // 1.2; exact of powers of ten
llvm::Value* inline_log1p(Operations& ops, llvm::Value* x);                 // 1.0
llvm::Value* inline_sin(Operations& ops, llvm::Value* x);                   // 1.6
llvm::Value* inline_cos(Operations& ops, llvm::Value* x);                   // 1.6
llvm::Value* inline_tan(Operations& ops, llvm::Value* x);                   // 0.6 in single, 1.3 in double
llvm::Value* inline_sinh(Operations& ops, llvm::Value* x);                  // 1.6
llvm::Value* inline_cosh(Operations& ops, llvm::Value* x);                  // 1.6
llvm::Value* inline_tanh(Operations& ops, llvm::Value* x);                  // 1.2
llvm::Value* inline_asin(Operations& ops, llvm::Value* x);                  // 2.0
llvm::Value* inline_acos(Operations& ops, llvm::Value* x);                  // 1.3
llvm::Value* inline_atan(Operations& ops, llvm::Value* x);                  // 1.6 in single, 1.8 in double
llvm::Value* inline_asinh(Operations& ops, llvm::Value* x);                 // 1.6
llvm::Value* inline_acosh(Operations& ops, llvm::Value* x);                 // 2.1
llvm::Value* inline_atanh(Operations& ops, llvm::Value* x);                 // 2.0
llvm::Value* inline_erf(Operations& ops, llvm::Value* x);                   // 1.2
llvm::Value* inline_atan2(Operations& ops, llvm::Value* y, llvm::Value* x); // 2.0 in single, 2.5 in double
llvm::Value* inline_hypot(Operations& ops, llvm::Value* x, llvm::Value* y); // 1.0 in single, 1.2 in double
llvm::Value* inline_fmod(Operations& ops, llvm::Value* x, llvm::Value* y);  // exact
llvm::Value* inline_pow(Operations& ops, llvm::Value* x, llvm::Value* y);   // 0.6; single alone

}  // namespace fj
