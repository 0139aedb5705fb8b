/// Writing inputs in place. A value written back to an input is computed beside it and copied at the end, so that a
/// program that fails has changed nothing. No copy is needed where nothing that can fail comes later and the kernel
/// reads the input only at the element it then writes:
///     %0 = add %x, %y;  write x <- %0        =>    one kernel, x[i] = x[i] + y[i]
/// Kernels of one item that can fail (the checks of an optimiser's Python numbers) come first for that, and kernels
/// that only make new contents of inputs come behind the last that can fail, where waiting takes less memory than
/// copies beside the inputs. A large one that may itself fail is computed twice: once for what it reports, with nothing
/// written, and behind all that can fail once more in place. Reading the operands again takes less time than writing,
/// reading and writing what would be beside the inputs:
///     %0 = add %x, %y;  write x <- %0        =>    check x[i] + y[i];  x[i] = x[i] + y[i]
#pragma once

#include "codegen/loops/lower.h"

namespace fj {

/// `may_trap`: IEEE conditions may fail the program.
void write_in_place(LoweredProgram& program, bool may_trap);

}  // namespace fj
