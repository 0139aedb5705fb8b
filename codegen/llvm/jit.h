/// The JIT: LLVM modules become object files, object files become code in memory that lives as long as its Code.
///
/// Every function here is safe on several threads at once; callers hold NoFork. Object files hold no addresses of this
/// process: what they call is found by name when they are linked, so they can be kept on disk.
#pragma once

#include <memory>
#include <string>

#include <llvm/IR/Module.h>

#include "codegen/llvm/machine.h"
#include "runtime/kernel_code.h"

namespace fj {

/// Raised when passes or options below change, so that objects made before are not taken for what would be made now.
constexpr int kPipelineVersion = 4;

/// An empty module for the target. It lives in `context`.
std::unique_ptr<llvm::Module> make_module(llvm::LLVMContext& context, const Target& target);

/// Few: for kernels, whose loops are emitted as they are to run. Loops: what is hoisted out of loops, and vectors, are
/// LLVM's.
enum class Passes : std::uint8_t { Few, Loops };

/// Passes and code generation. Both tiers give code that computes the same bits: no pass may change a floating-point
/// result.
std::string generate(llvm::Module& module, const Target& target, Tier tier, Passes passes = Passes::Few);

/// The optimised module and its assembly, to read.
std::string listing(llvm::Module& module, const Target& target, Passes passes = Passes::Few);

class Code {
 public:
  virtual ~Code() = default;
  virtual void* address() const = 0;  // of the symbol it was linked for
};

/// Throws InternalError if `object` is not an object file that defines `symbol` and calls only what is known. `name`:
/// what profilers call the code.
std::shared_ptr<const Code> link(const std::string& object, const std::string& symbol, const std::string& name);

}  // namespace fj
