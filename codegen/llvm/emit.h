/// From the loop IR to LLVM IR: explicit vectors over the kernel's vector loop, everything else scalar.
#pragma once

#include <llvm/IR/Module.h>

#include "codegen/llvm/machine.h"
#include "codegen/loops/lower.h"

namespace fj {

/// Adds `uint32_t name(char* const* buffers, const int64_t* symbols, int64_t begin, int64_t end,
/// char* scratch)` to the module: runs
/// the work items [begin, end) and returns a KernelStatus word.
void emit_kernel(const loop::Kernel& kernel, const LoweredProgram& program, const Machine& machine,
                 bool float_conditions, llvm::Module& module);

/// Work items that belong together when a launch is cut into chunks: whole vectors, whole cache lines.
int items_per_step(const loop::Kernel& kernel, const Machine& machine);
/// How much faster one thread is with the whole launch than with parts of it: rows are read from end to end. Measured
/// on columns of 64 MiB.
double unshared_speedup(const loop::Kernel& kernel, const Machine& machine);

}  // namespace fj
