/// The loops of one kernel: given what a group computes per element and per row, which dimensions merge into one,
/// which loop runs over vector lanes, which pass over the row does what, and whether a long reduction is split.
#pragma once

#include <vector>

#include "codegen/loops/lower.h"

namespace fj {

struct Body {
  struct Stage {
    int accumulator;
    loop::ExprId operand;
    loop::Affine index;  // argmax, argmin
  };
  struct Store {
    int buffer;
    loop::Affine address;
    loop::ExprId value;
  };
  std::vector<std::uint32_t> rows, reductions;  // variables, outermost first
  std::vector<Stage> stages;
  std::vector<Store> stores;      // over the whole space
  std::vector<Store> row_stores;  // once a row
};

/// Each adds its kernels and steps to the program.
void arrange(loop::Kernel kernel, Body body, LoweredProgram& program);
/// Along the only reduced variable, storing after every step; one after the other unless steps may be combined in
/// `any_order`.
void arrange_scan(loop::Kernel kernel, Body body, bool any_order, LoweredProgram& program);
/// buffer[address] += value (Add) or = value (Put), repeated addresses in order: the reduced variables are serial.
void arrange_scatter(loop::Kernel kernel, Body body, loop::StatementKind kind, Body::Store store,
                     loop::ExprId predicate, LoweredProgram& program);

/// The condition under which the buffer has elements, where the loops the address depends on don't say so: what is the
/// same in all steps of a loop is loaded before it, and the loop may have none. Invalid: always.
loop::ExprId has_elements(loop::Kernel& kernel, const LoweredProgram& program, int buffer, const loop::Affine& address);

/// target = source, of the same shape.
void copy_buffer(int source, int target, LoweredProgram& program);
/// target[at] = source, `at` in terms of loop variables 0, 1, 2, ... that are source's index.
void copy_into(int source, int target, const loop::Index& at, LoweredProgram& program);

}  // namespace fj
