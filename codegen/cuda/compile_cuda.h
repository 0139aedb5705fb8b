/// The CUDA back end: schedule, lower for threads, bind, print, compile, and hand the kernels to a CompiledProgram of
/// the device.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph_ir/graph.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/program.h"

namespace fj {

struct CudaOptions {
  std::shared_ptr<cuda::CudaDevice> device;
  /// Text and architecture to machine code: Nvrtc's, or a test's own.
  std::function<cuda::Compiled(std::string_view source, int architecture)> compile;
  std::string compiler;         // its name and version: part of what identifies machine code
  std::string cache_folder;     // kernels on disk; "": none
  std::int64_t cache_bytes = 0;
  std::vector<bool> host_inputs;  // by input of the graph: a number in the host's memory
  bool graphs = false;          // launches that follow each other become CUDA graphs
  bool measured = false;        // how a kernel is dealt out is measured when it first runs, and kept on disk
  bool dump = false;            // keep loops, bindings and texts in Program::text()
};

/// Null if something in the graph has no CUDA form: `reason` says what, in a sentence for the log. Throws DeviceError
/// if the compiler refuses a text, which is a bug of ours.
std::unique_ptr<Program> compile_cuda(const Graph& graph, const CudaOptions& options, std::string& reason);

}  // namespace fj
