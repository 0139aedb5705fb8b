/// LLVM's passes over a module, before it becomes machine code.
#pragma once

#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include "codegen/llvm/jit.h"

namespace fj {

/// Vectors are explicit already: for kernels, the optimised tier runs mem2reg, early CSE and instcombine, the quick one
/// mem2reg alone.
void optimise(llvm::Module& module, llvm::TargetMachine& target, Tier tier, Passes wanted);

}  // namespace fj
