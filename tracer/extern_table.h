/// The library calls of one program: what an `extern_call` node's handle stands for.
///
/// The tracer fills one table per segment while it adds the nodes; `SegmentHost` (tracer/host.h) runs a call by its handle,
/// with the library's own function on real arrays, and compares what comes back with what was predicted while tracing.
/// A table is immutable once its segment is published.
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "frame_hook/cpython/ref.h"
#include "runtime/base/dtype.h"
#include "runtime/base/sym_dim.h"
#include "tracer/frontends/arrays/arrays.h"

namespace fj {

/// One argument as it is rebuilt for each call.
struct ExternArgument {
  enum class Kind : std::uint8_t {
    Constant,  // object
    Operand,   // the array operands[index] of the node
    Size,      // a Python int: expression over the graph's symbols
    Tuple,     // items
    List,      // items
    Slice,     // items: start, stop, step
  };
  Kind kind = Kind::Constant;
  Ref<> object;
  int index = 0;
  SymDim expression;
  std::vector<ExternArgument> items;
};

/// What tracing predicted of one result; a difference abandons the program.
struct ExternResult {
  DType dtype = DType::F32;
  Dims shape;
  Dims strides;                 // in elements; those of dimensions of size <= 1 are not compared
};

struct ExternCall {
  std::string name;             // for logs: "torch.conv2d"
  Ref<> callable;
  std::vector<ExternArgument> positional;
  std::vector<std::pair<Ref<>, ExternArgument>> keywords;  // names are interned str
  std::vector<ExternResult> results;
  /// The callable returns a tuple or list of results.size() arrays rather than one array.
  bool returns_sequence = false;
  /// Whose arrays the callable takes: operands of the other library are handed over as views.
  Library library = Library::Torch;
};

class ExternTable {
 public:
  /// The handle to put into the node.
  std::int64_t add(ExternCall call) {
    calls_.push_back(std::move(call));
    return std::int64_t(calls_.size()) - 1;
  }
  const ExternCall& operator[](std::int64_t handle) const { return calls_[std::size_t(handle)]; }
  std::size_t size() const { return calls_.size(); }
  /// Library of the arrays a program makes to hold operands of extern calls.
  Library operand_library = Library::Torch;

 private:
  std::vector<ExternCall> calls_;
};

}  // namespace fj
