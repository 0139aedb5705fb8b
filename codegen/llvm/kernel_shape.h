/// How a kernel's vector loop is cut into lanes and unrolled copies.
#pragma once

#include "codegen/llvm/machine.h"
#include "codegen/loops/loop_ir.h"

namespace fj {

struct Shape {
  int lanes = 1;
  int unroll = 1;
  int rest_lanes = 1;  // of the masked loop for what is left: no wider than a register where `lanes` are several
  /// Lanes that are reductions of large columns: so many columns are reduced together, row by row, with their
  /// accumulators in memory. Memory is then read along its rows; a few columns in registers would touch another page
  /// with every row. 0: in registers.
  int columns = 0;
  /// Lanes that are reductions: so many rows are added up in a tree before the accumulator gets their sum.
  int rows = 1;
  int block = 1;  // additions to such an accumulator before its sum goes to a total, at least
};

/// A whole sum of floats, other than a matrix product's: in what order it adds is free (emit_sums.cpp).
bool sums_in_blocks(const loop::AccumulatorInfo& info);

Shape choose_shape(const loop::Kernel& kernel, const Machine& machine);

/// The vector loop is in `body` or in a loop in it.
bool contains_vector_loop(const loop::Kernel& kernel, const std::vector<loop::Statement>& body);

}  // namespace fj
