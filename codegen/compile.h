/// From a graph to a program: the one entrance of codegen.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "graph_ir/graph.h"
#include "runtime/program.h"

namespace fj {

/// Auto: quick code first, optimised code in the background once it is used again. The others: that tier only, in the
/// calling thread, from the start.
enum class TierChoice : std::uint8_t { Auto, Quick, Optimised };

struct CompileOptions {
  /// Target features; "" means the host. Tests force "x86-64", "x86-64-v3", "x86-64-v4".
  std::string cpu;
  int threads = 0;                 // 0: runtime's pool
  bool float_conditions = false;   // collect IEEE conditions (NumPy)
  TierChoice tier = TierChoice::Auto;
  std::string cache_folder;        // kernels on disk; "": none
  std::int64_t cache_bytes = 0;    // what the folder may hold; 0: none
  bool dump_ir = false;            // keep LLVM IR and assembly in Program::text()
  std::size_t* code_bytes = nullptr;  // to which the memory of the machine code is added that no program had before
};

/// LLVM back end. Throws InternalError for a bug; every verified graph compiles.
std::unique_ptr<Program> compile_llvm(const Graph& graph, const CompileOptions& options);

/// The reference back end: each node by graph_ir's evaluator on row-major copies. Slow and plain.
std::unique_ptr<Program> compile_reference(const Graph& graph, const CompileOptions& options);

}  // namespace fj
