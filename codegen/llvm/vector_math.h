/// Inlined vector mathematics: straight-line code over all lanes, so that it fuses with what is around it.
///
/// Errors are maxima against the exact result in units in the last place; tests/codegen measures them. IEEE conditions
/// come from the arithmetic itself: an overflow is computed by a product that overflows. Arguments the fast form can't
/// take (a sine of 1e30, a power of a negative number) go to the library behind a branch over all lanes.
#pragma once

#include "codegen/llvm/operations.h"

namespace fj {

/// The registers' type, F32 or F64, decides the precision.
llvm::Value* inline_exp(Operations& ops, llvm::Value* x);   // 1.6 ULP
llvm::Value* inline_log(Operations& ops, llvm::Value* x);   // 1.0 ULP
llvm::Value* inline_sin(Operations& ops, llvm::Value* x);   // 1.6 ULP
llvm::Value* inline_cos(Operations& ops, llvm::Value* x);   // 1.6 ULP
llvm::Value* inline_tanh(Operations& ops, llvm::Value* x);  // 2 ULP

/// F32 only.
llvm::Value* inline_erf(Operations& ops, llvm::Value* x);                    // 1.5 ULP
llvm::Value* inline_pow(Operations& ops, llvm::Value* x, llvm::Value* y);    // 1 ULP: in double
llvm::Value* inline_expm1(Operations& ops, llvm::Value* x);                  // 1 ULP: in double
llvm::Value* inline_log1p(Operations& ops, llvm::Value* x);                  // 1 ULP: in double

}  // namespace fj
