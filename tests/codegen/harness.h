/// Runs a graph through the LLVM back end and through the evaluator and compares.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "codegen/compile.h"
#include "graph_ir/evaluate/evaluate.h"

namespace fj::test {

/// Arrays from malloc; counts what is alive.
class MallocHost : public Host {
 public:
  ArrayRef allocate(int output, DType dtype, std::span<const std::int64_t> shape,
                    std::span<const std::int64_t> strides) override;
  ArrayRef view(const ArrayRef& array, DType dtype, std::span<const std::int64_t> shape,
                std::span<const std::int64_t> strides, std::int64_t offset) override;
  bool call_extern(std::int64_t handle, std::span<const ArrayRef> operands, std::span<const std::int64_t> symbols,
                   std::span<ArrayRef> results) override;
  void* stream(int device) override;
  void retain(void* object) override;
  void release(void* object) override;
  int alive = 0;
  int extern_calls = 0;
};

/// Levels of processors that code is made for: what all have; longer vectors, fused instructions; the longest vectors.
#if defined(__x86_64__)
inline const std::string least_level = "x86-64", wide_level = "x86-64-v3", widest_level = "x86-64-v4";
inline const std::vector<std::string> all_levels = {"", wide_level, least_level};  // "" is the host
#else
inline const std::string least_level = "generic", wide_level = "generic", widest_level = "generic";
inline const std::vector<std::string> all_levels = {"", "generic"};
#endif

/// Deterministic values suited to a dtype: small numbers of both signs, fractions for floats.
DenseArray sample(DType dtype, std::vector<std::int64_t> shape, std::uint64_t seed, double low = -4, double high = 4);

struct Outcome {
  std::uint32_t status = 0;
  std::vector<DenseArray> results;  // outputs, then values of writes as found in the inputs
  int kernels = 0;
  std::string error = {};  // of a device
};

/// Runs a program made of `graph` on inputs that are laid out as the graph says.
Outcome run_program(const Program& program, const Graph& graph, const std::vector<DenseArray>& inputs,
                    std::vector<std::int64_t> symbols, std::uint32_t trapped = 0);

/// Compiles and runs; `trapped` conditions make the run fail. Inputs are laid out as the graph says.
Outcome run_llvm(const Graph& graph, const std::vector<DenseArray>& inputs, std::vector<std::int64_t> symbols,
                 const CompileOptions& options, std::uint32_t trapped = 0);

/// Bit-equal for integers and bool; floats within `ulps` units in the last place (of the dtype), NaN equals NaN.
/// `scale`: units are those of numbers of at least this magnitude (what a sum was made of).
testing::AssertionResult close(const DenseArray& actual, const DenseArray& expected, double ulps, double scale = 0);

struct Check {
  double ulps = 0;
  double scale = 0;
  int kernels = -1;  // expected number, -1: any
  std::vector<std::int64_t> symbols = {};
  std::vector<std::string> levels = all_levels;
};

/// Evaluates `text` both ways on `inputs` at every level.
void same_as_reference(const std::string& text, const std::vector<DenseArray>& inputs, const Check& check = {});
void same_as_reference(const Graph& graph, const std::vector<DenseArray>& inputs, const Check& check = {});

}  // namespace fj::test
