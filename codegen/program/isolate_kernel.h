/// A kernel taken out of its program: its buffers numbered from 0 in the order in which it first mentions them,
/// variables without the unused ones, its name gone. So the same work in two programs, or in twelve layers of one, is
/// the same kernel.
///     kernel k7: b[41][i] = a[3][i] * w[20][i]    =>    kernel: b2[i] = b0[i] * b1[i], buffers {3, 20, 41}
#pragma once

#include <string>
#include <vector>

#include "codegen/loops/lower.h"

namespace fj {

struct IsolatedKernel {
  loop::Kernel kernel;
  LoweredProgram program;    // only `buffers`: the kernel's
  std::vector<int> buffers;  // their numbers in the program it came from
};

IsolatedKernel isolate(const loop::Kernel& kernel, const LoweredProgram& program, const std::string& name);

/// For each kernel the first one of the list whose code is its code too. That one is given the largest extent where the
/// loop's length is left to the launch (loop::same_work), so that it is compiled for all.
std::vector<int> share_work(std::vector<IsolatedKernel>& kernels);

}  // namespace fj
