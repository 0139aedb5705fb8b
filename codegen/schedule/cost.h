/// What work costs, for every decision that weighs it. One unit: one vector instruction on one register.
#pragma once

#include "codegen/loops/loop_ir.h"

namespace fj {

/// Of computing one register of the operation's results from its operands: the column of pointwise.def, nothing for an
/// index map, and for what is always in memory the load of it.
int operation_cost(Op op);
/// The same of an expression of a loop: loads count as one.
int expression_cost(const loop::Expr& expr);
/// Nanoseconds that a unit takes per element, on one core with registers of 64 bytes.
inline constexpr double kNanosecondsOfCost = 0.02;

}  // namespace fj
