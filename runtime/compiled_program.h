/// A program made of compiled kernels, library products and calls into the array library, over numbered buffers.
///
/// Everything that doesn't depend on symbols is computed once, when the program is made: a call with static sizes
/// looks nothing up, allocates only its outputs, and runs small kernels on the calling thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/products/blas.h"
#include "runtime/device.h"
#include "runtime/kernel_code.h"
#include "runtime/program.h"

namespace fj {

struct ProgramSymbol {
  bool defined = false;  // else given by the caller
  SymDim dividend, divisor;
  bool remainder = false;
};

enum class BufferKind : std::uint8_t {
  Input,         // the caller's
  Output,        // allocated by the host for output `number`
  Temporary,     // from the arena
  HostArray,     // allocated by the host: an operand of an extern call
  ExternResult,  // appears when the extern call has run
  Scratch,       // of one kernel and thread: `scratch_offset` bytes into the kernel's scratch
  Local,         // of one block of rows, in memory of the thread that works on it (ProgramBlocks)
};

struct ProgramBuffer {
  BufferKind kind = BufferKind::Temporary;
  int number = -1;  // Input, Output: which
  DType dtype = DType::F32;
  Dims shape;
  Dims strides;  // in elements
  SymDim scratch_offset;
};

struct ProgramKernel {
  std::string name;
  std::shared_ptr<KernelCode> code;
  std::shared_ptr<const DeviceCode>
      device_code;  // instead, in a program for a device; of a batch its first kernel has the code of all
  std::vector<int> buffers;  // its own numbers for buffers: entry i is the program's number of its buffer i
  SymDim items;              // work items of a launch
  SymDim elements_per_item;  // for the cost model
  double nanoseconds_per_element = 1;
  std::int64_t items_per_step = 1;  // chunks are multiples of this
  double unshared_speedup = 1;      // fewer threads than this are slower than one with all items
  SymDim scratch_bytes;
  std::vector<int> reads, writes;   // buffers
  bool only_zeros = false;          // all that it stores, in one buffer; left out of images
};

/// c[batch.., m, n] = a[batch.., m, k] * b[batch.., k, n]; operands by buffer and strides in elements.
struct ProgramMatmul {
  int a = -1, b = -1, c = -1;
  DType dtype = DType::F32;
  Dims batch;
  SymDim m, n, k;
  Dims a_strides, b_strides, c_strides;
};

struct ProgramExtern {
  /// What an operand shows of its buffer. Offset and strides in elements.
  struct View {
    SymDim offset;
    Dims shape, strides;
  };
  std::int64_t handle = 0;
  std::string callee;
  std::vector<int> operands, results;      // buffers
  std::vector<std::optional<View>> views;  // by operand: none where it is the buffer's array itself
};

/// Finds the value of a symbol: the number of true elements of `source` (contiguous), or, of an `as_size`, its only
/// element. Then buffers whose sizes need it are allocated, and `result` gets where these elements are, or the number.
struct ProgramCount {
  int source = -1, result = -1;
  bool of_number = false;
  SymbolId count{};
  std::vector<std::int64_t> excluded;  // values for which the program is wrong
};

/// One of two programs, as the byte in `condition` says: their numbers among ProgramParts::branches. Each has the
/// operands as inputs and writes its outputs where the results are; all are row-major.
struct ProgramCond {
  int condition = -1;
  std::vector<int> operands, results;
  int if_true = -1, if_false = -1;
};

/// Passes, while the byte in `condition` and then what the last pass has given are true. A pass is a program of
/// ProgramParts::branches: its inputs are those `given`, of which the first become the results, its outputs a bool[]
/// and the states for the next pass; all are row-major.
struct ProgramLoop {
  int condition = -1;
  std::vector<int> given, results;
  int pass = -1;
};

/// Parts of a buffer, copied from others of its dtype. Offsets and strides in elements.
struct ProgramCopies {
  struct Part {
    int source = -1;
    SymDim from, to;
    Dims sizes, from_strides, to_strides;
  };
  int target = -1;
  std::vector<Part> parts;
  bool apart = false;  // no part lies over another one
};

enum class StepKind : std::uint8_t { Kernel, Batch, Matmul, Count, Extern, Blocks, Copies, Cond, Loop };

struct ProgramStep;

/// Steps that each work on a row of what the ones before them made of that row: all of them run on one block of rows,
/// in one thread, then on the next, so that what is between them stays in the cache and is never there as a whole.
struct ProgramBlocks {
  struct Local {
    int buffer;
    SymDim row_bytes;
  };
  std::vector<ProgramStep> steps;           // kernels and products
  std::vector<std::int64_t> rows_per_item;  // by step; of a product: 1
  SymDim rows, row_bytes;                   // of all locals
  std::int64_t together = 1;                // a block has a multiple of so many rows
  bool has_product = false;
  std::vector<Local> locals;

  /// How many rows a block has where there are so many of so many bytes; 0: blocks are not worth it.
  std::int64_t rows_in_block(std::int64_t all_rows, std::int64_t bytes) const;
};

struct ProgramStep {
  StepKind kind = StepKind::Kernel;
  int kernel = -1;
  std::vector<int> batch;  // kernels of one code that don't depend on each other: one launch over all of them
  ProgramMatmul matmul;
  ProgramCount count;
  ProgramExtern extern_call;
  ProgramBlocks blocks;
  ProgramCopies copies;
  ProgramCond cond;
  ProgramLoop loop;
  bool commit = false;  // writes inputs: nothing that can fail follows
  int node = -1;        // of the lowered graph, of a step that is one node
};

struct ProgramParts {
  std::vector<ProgramSymbol> symbols;
  std::size_t graph_symbols = 0;  // the first ones, which Call::symbols holds
  std::vector<ProgramBuffer> buffers;
  std::vector<int> output_buffers;
  std::vector<ProgramKernel> kernels;
  std::vector<ProgramStep> steps;
  bool float_conditions = false;
  bool makes_infinities = false, makes_nan = false;  // among the graph's constants
  std::shared_ptr<Device> device;  // where kernels run; null: here
  bool reports = false;            // of a device: kernels may report a status
  bool joins_launches = false;     // of a device: launches that follow each other are issued together
  std::vector<bool> host_inputs;   // of a device, by input: a number in the host's memory, which each run copies there
  int threads = 0;  // at most so many per kernel; 0: the pool's
  std::string name;  // of the graph
  std::string text;
  std::vector<StepAccount> accounts;
  std::vector<ProgramParts> branches;  // and passes: each a program of its own
};

/// The kernels of a program, then those of its branches: the order that they are numbered in.
template <class Visit>
void each_kernel(ProgramParts& parts, Visit&& visit) {
  for (ProgramKernel& kernel : parts.kernels) visit(kernel);
  for (ProgramParts& branch : parts.branches) each_kernel(branch, visit);
}

std::unique_ptr<Program> make_compiled_program(ProgramParts parts);

}  // namespace fj
