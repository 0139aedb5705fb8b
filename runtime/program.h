/// A compiled graph: an immutable list of steps over numbered buffers, run by any number of threads at
/// once, each with an Activation of its own.
///
/// A program is a transaction: inputs are written only by its last steps (`commit`), after everything that
/// can fail. `run` either does everything or leaves the inputs as they were and returns why.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"
#include "runtime/base/sym_dim.h"
#include "runtime/host.h"

namespace fj {

/// Everything that differs between two calls of one program.
struct Call {
  Host* host = nullptr;
  std::span<const ArrayRef> inputs;         // as graph inputs; borrowed
  std::span<std::int64_t> symbols;          // values by SymbolId; derived ones are filled in by run()
  std::span<ArrayRef> outputs;              // filled on success: new references
  /// Of a program inside of another: where its outputs are to be, in place of `outputs`. The outer one has their
  /// memory, and gives it up if this one fails.
  std::span<char* const> places = {};
  /// The references to `inputs`, if the caller hands them over. A program may release an array once nothing of it reads
  /// the array again, and clears the object here; what is left is the caller's to release.
  std::span<ArrayRef> handed_over = {};
  /// IEEE conditions (KernelStatus bits) that make the call fail, so that the library can report them.
  std::uint32_t trapped = 0;
  /// A profiler of the host's is told where the program and its steps begin and end.
  bool ranges = false;
  /// With kDeviceFailed: what was wrong, in words.
  std::string error = {};
};

class KernelCode;

/// A program that is one small kernel from its inputs to one new array, all of known sizes: around the kernel there is
/// little to do.
struct DirectKernel {
  static constexpr std::size_t kPointers = 24;
  static constexpr int kResult = -1;
  const KernelCode* code = nullptr;
  std::vector<int> pointers;         // of the kernel, at most kPointers: numbers of inputs, and kResult once
  std::int64_t items = 0;
  std::size_t scratch_bytes = 0;
  bool float_conditions = false;     // they are collected
  DType dtype{};                     // of the result
  std::vector<std::int64_t> shape, strides;

  /// KernelStatus bits. Those that are not fatal to the call say what they say of Program::run.
  std::uint32_t run(char* const* arrays) const;
};

/// One step of a program in the words of the graph it was made of, for explain and profiles.
struct StepAccount {
  std::string kind;                     // "loops", "copy", "matmul", "count", "call", "cond", "loop"
  std::string name;                     // "kernel3"; of a call: the library's function
  std::vector<std::string> operations;  // "mul", "reduce_sum"
  std::vector<std::string> lines;       // "model.py:41", the full path
  std::string module;                   // of the last operation: "layers.0.norm1"
  std::string dtype;                    // of the array that it writes, the last of several: "f32"
  int count = 1;                        // launches of the same work
  bool in_blocks = false;               // on blocks of rows, with the steps beside it
  SymDim read, written;                 // bytes of the arrays it reads and writes, each once
  std::optional<SymDim> work;           // operations on floats: an addition and a sine are one each; none: not known
  std::int64_t read_bytes = 0, written_bytes = 0, float_operations = -1;  // the same for the sizes seen while tracing
};

class Program {
 public:
  virtual ~Program() = default;
  /// kOk, or the reasons of failure: then nothing visible has happened and `outputs` is untouched.
  virtual std::uint32_t run(Call& call) const = 0;
  /// What `run` does, if it is that; null also until it has run a few times. Where the kernel reports what may be
  /// fatal, nothing has happened and `run` decides.
  virtual const DirectKernel* direct() const { return nullptr; }
  /// Kernels launched by one run (for tests and explain).
  virtual int kernel_count() const = 0;
  /// One line per step, for explain and logs.
  virtual std::string text() const = 0;
  virtual std::vector<StepAccount> steps() const { return {}; }
  /// Bytes that a run needs beside its inputs and results; `symbols`: values of the graph's. Without what is sized by a
  /// count of the run itself.
  virtual std::size_t temporary_bytes(std::span<const std::int64_t> /*symbols*/) const { return 0; }
};

}  // namespace fj
