/// A program before its kernels have code.
#pragma once

#include <vector>

#include "codegen/compile.h"
#include "codegen/llvm/kernel_compiler.h"
#include "runtime/compiled_program.h"

namespace fj {

struct PreparedProgram {
  ProgramParts parts;  // kernels without code
  std::vector<KernelSource> sources;     // each work once
  std::vector<std::size_t> source_of;    // by kernel, those of branches too (each_kernel)
  const Target* target = nullptr;        // null: there are no kernels
};

PreparedProgram prepare_program(const Graph& graph, const CompileOptions& options);

}  // namespace fj
