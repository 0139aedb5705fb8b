/// From loop kernels to machine code, by the shortest way there is: the same kernel compiled already in this process,
/// then on disk, then the quick tier in the calling thread (several kernels on several threads). The optimised tier is
/// made in the background once a kernel is used again.
///
/// A kernel's identity is the hash of its LLVM IR, of the target with all features, and of framejit's and LLVM's
/// versions: everything its machine code follows from, and nothing of the program around it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "codegen/compile.h"
#include "codegen/loops/lower.h"
#include "runtime/kernel_code.h"

namespace llvm {
class Module;
}

namespace fj {

struct Target;

/// A kernel on its own: `kernel` refers to buffers of `program`, which has no others.
struct KernelSource {
  loop::Kernel kernel;
  LoweredProgram program;
  double first_nanoseconds = 0;  // a guess at its first launch; 0: not known
  std::string name = {};         // of the work it was first made for, for profilers
};

/// The name every kernel has in its module.
inline constexpr const char* kKernelSymbol = "kernel";

/// In the order of `sources`; equal kernels share their code.
std::vector<std::shared_ptr<KernelCode>> compile_kernels(std::vector<KernelSource> sources, const Target& target,
                                                         const CompileOptions& options);

/// The object file of optimised code; `finish` changes the module before it is optimised.
std::string kernel_object(const KernelSource& source, const Target& target, const CompileOptions& options,
                          const std::function<void(llvm::Module&)>& finish);

/// Optimised LLVM IR and assembly.
std::string kernel_listing(const KernelSource& source, const Target& target, const CompileOptions& options);

}  // namespace fj
