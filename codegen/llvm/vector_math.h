/// Inlined vector mathematics: straight-line code over all lanes, so that it fuses with what is around it.
///
/// Errors against the exact result (maximum, units in the last place): see docs of each function. IEEE conditions come
/// from the arithmetic itself: an overflow is computed by a product that overflows, log(0) by a division by zero.
#pragma once

#include "codegen/llvm/operations.h"

namespace fj {

/// Each takes and gives F32 registers.
llvm::Value* exp_f32(Operations& ops, llvm::Value* x);   // 1.3 ULP; denormal results rounded once
llvm::Value* log_f32(Operations& ops, llvm::Value* x);   // 1.0 ULP
llvm::Value* tanh_f32(Operations& ops, llvm::Value* x);  // 2 ULP
llvm::Value* erf_f32(Operations& ops, llvm::Value* x);   // 1.5 ULP

}  // namespace fj
