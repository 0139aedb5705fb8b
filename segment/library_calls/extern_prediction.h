/// What a library call returns, known before it runs: the memory of predictions, shared by all traces of the process.
///
/// A call is identified by its signature: the callable, the constants, and dtype, sizes and strides of its arrays. The
/// first prediction of a signature comes from running the function on meta-device tensors (sizes and strides, no
/// memory, no kernel), or from a rule of our own where the function has a row in `rules` of
/// framejit/_support/meta.py: add one where meta tensors give other strides than the CPU's kernels, or where their
/// first call imports much. Where a real call then gives something else, what it gave takes the prediction's place
/// (`observe`) and the segment is traced again. A signature that keeps changing, or one whose sizes at other symbols
/// keep being wrong, depends on data.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "segment/library_calls/extern_table.h"

namespace fj {

/// dtype, sizes and strides (in elements) of one array of a call.
struct ExternArray {
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape, strides;
  /// Of a result: the operand whose memory it shows; kOfNewMemory: a view of a new array that nobody else has.
  int view_of = -1;
  static constexpr int kOfNewMemory = -2;
  std::int64_t offset = 0;  // elements from that operand's element 0
  bool made_as_view = false;  // torch: a view of a tensor that nobody else has
  int version = 0;            // torch: of a result, its `_version`
};

struct Prediction {
  std::string refusal;              // why nothing can be predicted; "" if all else is filled in
  ExternStructure structure;
  std::vector<ExternArray> arrays;
  std::vector<int> version_moves;   // by operand: what the call adds to its `_version`
  bool observed = false;            // of a real call
  int corrections = 0;
};

/// The arguments of `call` for real arrays and symbols. Null with an error set.
Ref<> extern_argument(const ExternArgument& argument, std::span<const Ref<>> operands,
                      std::span<const std::int64_t> symbols);

/// What `call` would return for operands like these. Kept for ever under its signature; the reference is good until the
/// next call. Clears every Python error.
const Prediction& predict(const ExternCall& call, std::span<const ExternArray> operands,
                          std::span<const std::int64_t> symbols);

/// How torch's graph of a call leads from a result to an operand.
enum class ExternPath : std::uint8_t {
  Gradient,
  Required,  // by the operand the result requires a gradient, but none arrives there
  None,
};

/// What torch saves of the call for its derivative.
struct ExternSaved {
  enum Operand : std::uint8_t {
    Read,     // the derivative may read it
    Copied,   // it reads what was computed of it: the tensor may be written meanwhile
    Unread,   // it does not depend on the contents
  };
  std::vector<Operand> operands;  // empty: not known
  std::vector<bool> results;
  bool any = false;  // a backward frees the call
  std::vector<ExternPath> paths;  // as paths_of gives them
};

/// By torch's own graph of the call on meta tensors, of which those in `derived` require a gradient.
const ExternSaved& saved_by(const ExternCall& call, std::span<const ExternArray> operands,
                            std::span<const std::int64_t> symbols, std::span<const std::int64_t> derived);

/// By result, and for each by operand in `derived`. Empty: torch does not say. Asks anew each time.
std::vector<ExternPath> paths_of(const ExternCall& call, std::span<const ExternArray> operands,
                                 std::span<const std::int64_t> symbols, std::span<const std::int64_t> derived);

/// What `call` has returned. False: it can't be described, or differs from call to call.
bool observe(const ExternCall& call, std::span<const ExternArray> operands, std::span<const std::int64_t> symbols,
             std::span<const Ref<>> arrays, PyObject* returned);

/// True if the sizes of the call at this place were predicted wrongly too often to try again with symbols.
bool is_unpredictable(const ExternCall& call);

/// Whether each element has a place of its own and there are no gaps. Of each axis its stride and its size.
bool is_dense(std::vector<std::pair<std::int64_t, std::int64_t>> axes);

/// A function of torch on stand-ins: a warning raises, and no mode of inference is on. Null with the error set.
Ref<> call_on_tensors(PyObject* callable, PyObject* positional, PyObject* keywords);

/// dtype, sizes and strides of a real or meta tensor; false: not one we can describe.
bool describe_tensor(PyObject* tensor, ExternArray& array);

}  // namespace fj
