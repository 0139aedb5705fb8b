/// What the code is made for: the features that change what we emit. Decided by features, never by model names.
#pragma once

#include <memory>
#include <string>

#include <llvm/Target/TargetMachine.h>

namespace fj {

struct Machine {
  int vector_bytes = 16;
  bool avx512 = false;  // F, BW, DQ and VL together
  bool avx2 = false;
  bool fma = false;
  bool f16c = false;
  bool sse41 = false;
};

/// `cpu`: "" for the host, else a model name such as "x86-64-v3". `fast`: less optimisation, less compile time.
std::unique_ptr<llvm::TargetMachine> make_target_machine(const std::string& cpu, bool fast);
Machine describe(const llvm::TargetMachine& target);

}  // namespace fj
