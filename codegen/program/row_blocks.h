/// Chains of kernels and products that pass rows on run block of rows by block of rows: attention's scores are then
/// never there as a whole.
///     t = q @ k;  u = softmax(t) of each row;  y = u @ v    =>    for each block of rows: t = q @ k;  u = softmax(t);
///     y = u @ v
/// A step belongs to a chain if item i of it touches, of what the chain's other steps write, only rows that belong to
/// item i: read off the addresses in its loops. Where what is between the steps fits the cache there are no blocks;
/// of sizes that vary, each run decides that.
#pragma once

#include "codegen/loops/lower.h"

namespace fj {

void run_in_blocks(LoweredProgram& program);

}  // namespace fj
