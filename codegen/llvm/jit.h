/// The JIT: LLVM modules become code in memory that lives as long as the CodeHandle.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <llvm/IR/Module.h>

#include "codegen/llvm/machine.h"

namespace fj {

class Code {
 public:
  virtual ~Code() = default;
  virtual void* address(const std::string& symbol) const = 0;
  std::string ir, assembly;  // if asked for
  std::size_t bytes = 0;     // of the object file
};

/// Optimises lightly, generates code and links it. `fast`: the lower code generation level.
std::unique_ptr<Code> compile_module(std::unique_ptr<llvm::LLVMContext> context, std::unique_ptr<llvm::Module> module,
                                     llvm::TargetMachine& target, bool keep_text);

}  // namespace fj
