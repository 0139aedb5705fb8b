/// Graphs through the CUDA back end without a GPU. A `Suite` collects graphs, compiles all their kernels as one text,
/// once, and then runs each program with the emulation's threads in shuffled order against the reference evaluator.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codegen/cuda/emit.h"
#include "tests/codegen/harness.h"

namespace fj::test {

/// A kernel in the forms in which it may be launched.
struct CudaKernel {
  struct Form {
    cuda::Binding binding;
    cuda::KernelText text;
  };
  loop::Kernel kernel;
  LoweredProgram program;  // only the kernel's buffers
  std::vector<Form> forms;  // as wide as it can be, then one element at a time if that is another
  std::string dump() const;
};

/// The isolated kernels of a graph, named `prefix`0, 1, ...
/// `alternative`: of those the binding has (counted round), -1: the model's choice.
std::vector<CudaKernel> cuda_kernels(const Graph& graph, const std::string& prefix, int alternative = -1);

/// A shared object made of the emulation and `source` by the host's compiler, loaded; its symbols by name.
class Emulated {
 public:
  explicit Emulated(const std::string& source);
  ~Emulated();
  Emulated(const Emulated&) = delete;
  void* operator[](const std::string& symbol) const;

 private:
  void* handle_ = nullptr;
};

/// What launches a kernel in the emulation: a function `name`_run of runtime's KernelFunction signature.
std::string emulated_launch(const CudaKernel& kernel);

class Suite {
 public:
  /// Graphs with kernels that have no CUDA form are left out and counted.
  void add(std::string description, const Graph& graph, std::vector<DenseArray> inputs, Check check = {});
  void add(std::string description, const std::string& graph, std::vector<DenseArray> inputs, Check check = {});
  /// Compiles once; runs every graph with several grids, orders of threads and forms of its kernels, and compares.
  void run();
  std::vector<std::string> left_out;
  int alternative = -1;  // of what is added from here on
  std::size_t kernels() const { return kernels_; }

 private:
  struct Entry {
    std::string description;
    Graph graph;
    std::vector<DenseArray> inputs;
    Check check;
    ProgramParts parts;
    std::vector<CudaKernel> kernels;
  };
  std::vector<Entry> entries_;
  std::size_t kernels_ = 0;
};

}  // namespace fj::test
