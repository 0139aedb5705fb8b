/// The library calls of one program: what an `extern_call` node's handle stands for.
///
/// The tracer fills one table per segment while it adds the nodes; `SegmentHost` (segment/library_host.h) runs a call
/// by its handle, with the library's own function on real arrays, and compares what comes back with what was predicted
/// while tracing. A table is immutable once its segment is published.
///
/// A node is pure: its results are arrays of its own. An operand that the function writes into is handed over as a
/// copy, whose contents afterwards are one more result (the tracer writes it to the array, so it is committed with all
/// other writes); a result that is a view of an operand is copied too (the tracer knows the view). Random functions
/// draw from the library's generator in the order of the nodes; what they drew is put back if the program fails
/// (RandomStates). A collective happens once: if the program fails behind it, CPython runs the piece with what the
/// collective gave (frame_hook/replay_collectives.h).
#pragma once

#include <Python.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays/arrays.h"
#include "cpython/ref.h"
#include "guards/source.h"
#include "runtime/base/dtype.h"
#include "runtime/base/sym_dim.h"

namespace fj {

class Attrs;
class Graph;

/// One argument as it is rebuilt for each call.
struct ExternArgument {
  enum class Kind : std::uint8_t {
    Constant,  // object
    Operand,   // the array operands[index] of the node
    Size,      // a Python int: expression over the graph's symbols
    Tuple,     // items
    List,      // items
    Slice,     // items: start, stop, step
    Held,      // the object ExternTable::held()[index]
  };
  Kind kind = Kind::Constant;
  Ref<> object;
  int index = 0;
  SymDim expression;
  std::vector<ExternArgument> items;
};

/// What tracing predicted of one array that comes back; a difference abandons the program.
struct ExternResult {
  DType dtype = DType::F32;
  Dims shape;
  Dims strides;                 // in elements; those of dimensions of size <= 1 are not compared
  int view_of = -1;             // the operand whose memory it shows; the node's result is a copy
  SymDim offset;                // of a view: elements from the operand's element 0
  bool made_as_view = false;    // torch: a view of a tensor that nobody else has
  int version = 0;              // torch: its `_version`
};

/// What the callable returns, around its arrays.
struct ExternStructure {
  enum class Kind : std::uint8_t {
    Array,    // results[index]
    Number,   // results[index], from an object that is exactly a `type`
    Operand,  // operands[index] itself: `x.normal_()`
    None,
    Tuple,    // items; `type` if it is a torch.return_types tuple
    List,     // items
  };
  Kind kind = Kind::None;
  int index = 0;
  Ref<> type;
  std::vector<ExternStructure> items;
};

/// Of a collective: other processes take part, so that a program that fails later can't be run again from the start.
struct OnceCall {
  /// An argument the function writes into: a slot of its frame, and a place in the list that is there, or -1.
  struct Written {
    int slot, item;
  };
  Ref<> code;                    // of the Python function that does the work
  std::vector<Written> written;  // in the order of ExternCall::mutated
  int version_moves = 0;         // of each tensor that it writes
};

/// Such a call as it went in a program that then failed: CPython, which runs the piece instead, is given this where it
/// makes the call.
struct PastCall {
  OnceCall call;
  std::vector<Ref<>> contents;   // of what it wrote
  std::vector<int> version_moves;
  Ref<> error;                   // what it raised, or null
};

struct ExternCall {
  std::string name;             // for logs: "conv2d"
  Ref<> callable;
  Ref<> rule;                   // what is called in its place to predict what it returns; null: it is
  Ref<> recorded;  // torch: what is called in its place and gives (what it returns, its record), of which the record is
                   // the last of `results`; null: nothing is recorded
  std::vector<bool> own;        // of a recorded call, by operand: eager's is no array that the program is given
  Ref<> of_all;                 // what is called in its place with one more axis in front, if it is stacked; null: it is
  std::vector<ExternArgument> positional;
  std::vector<std::pair<Ref<>, ExternArgument>> keywords;  // names are interned str
  ExternStructure structure;
  std::vector<ExternResult> results;  // those in `structure`, the new contents of the operands in `mutated`, the record
  std::vector<int> mutated;     // operands the callable writes into
  bool random = false;          // draws from the default generator or from one that is an argument
  bool grad = true;             // grad mode at the call, as far as it is on outside
  bool inference = false;       // inference mode is on at the call, and not outside
  std::optional<bool> autocast;  // of the CPU at the call, if it is not what it is outside
  Ref<> autocast_dtype;
  std::optional<OnceCall> once;  // it must not be made again for one call of the user's
  Library library = Library::Torch;  // whose function it is: arrays are given to it as that library's
  bool stacked = false;         // given arrays with one more axis in front, it gives a result for each index
  bool derivative = false;      // strides of its results' axes of one element may be any
  int device = kHost;           // where they are, and what it makes
  std::string place;            // file:line of the call, for counting wrong predictions
  Ref<> caller;  // a Python function at that line which makes the call, for what warns; null: nothing does
};

class ExternTable {
 public:
  /// The handle to put into the node.
  std::int64_t add(ExternCall call) {
    random_ = random_ || call.random;
    once_ = once_ || call.once;
    if (call.library == Library::Torch)
      operand_library = Library::Torch;  // NumPy has no bfloat16, and makes no array with gaps
    calls_.push_back(std::move(call));
    return std::int64_t(calls_.size()) - 1;
  }
  /// Adds the call, and puts what its node says of it into the attributes: `callee`, `handle`, `sizes`.
  void put(Attrs& attrs, const Graph& graph, ExternCall call);
  const ExternCall& operator[](std::int64_t handle) const { return calls_[std::size_t(handle)]; }
  std::size_t size() const { return calls_.size(); }
  bool random() const { return random_; }
  /// There are calls that must not be made again.
  bool once() const { return once_; }
  /// Objects of the user's that calls are made on (a random generator), fetched anew for each run. The index of
  /// `source`.
  int hold(SourceRef source) {
    for (std::size_t i = 0; i < held_.size(); ++i)
      if (held_[i] == source) return int(i);
    held_.push_back(source);
    return int(held_.size()) - 1;
  }
  const std::vector<SourceRef>& held() const { return held_; }
  /// Library of the arrays a program makes to hold operands of extern calls.
  Library operand_library = Library::Torch;

 private:
  std::vector<ExternCall> calls_;
  std::vector<SourceRef> held_;
  bool random_ = false;
  bool once_ = false;
};

}  // namespace fj
