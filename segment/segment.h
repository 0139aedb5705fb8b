/// A segment: the compiled piece of a code object from one instruction in one abstract state to where it ends.
///
/// The tracer returns segments and the frame hook runs them: guards over the frame's values, a program, and a recipe
/// that turns the program's results into Python objects: new locals and stack, side effects in order, the value
/// returned.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cpython/cpython.h"
#include "graph_ir/graph.h"
#include "guards/guard_set.h"
#include "runtime/program.h"
#include "segment/autograd/derivative.h"
#include "segment/break_reason.h"
#include "segment/eager_race.h"
#include "segment/library_calls/extern_table.h"
#include "segment/recipe.h"

namespace fj {

struct Exit {
  enum class Kind : std::uint8_t {
    Return,    // the function returns recipe.result
    Break,     // the frame stands at `instruction`, which the executor runs concretely
    Loop,      // as Break, but not logged: at the header of a loop that is not unrolled, or in the handling of an
               // exception whose raise was the break
    Handover,  // nothing ahead is worth compiling: the frame goes to CPython at `instruction`
  };
  Kind kind = Kind::Return;
  int instruction = 0;                 // index into FjCode::instrs
  BreakReason reason{};
  std::string detail;                  // "`if loss > best:` tests a f32[] tensor"
  std::string file, function;          // where the user's code breaks (the inlined callee, if any)
  std::vector<std::string> calls;      // functions that lead there, the outermost first; empty: not known
  int line = 0;
  bool region = false;                 // a region is expected to run the loop, or the loop of what is called
};

enum class SegmentStatus : std::uint8_t {
  Done,       // `result` (Return), or the frame's new values
  Eager,      // nothing happened: run this piece in CPython (a failed program, IEEE conditions to report, ...)
  Retrace,    // nothing happened: the prediction of a library call was wrong, and is right in a new trace
  OtherPath,  // nothing happened: a branch on data goes another way; update.decisions says how far it is known
  Raised,     // a Python error is set: memory ran out after inputs were written, so the piece can't be run again
};

/// New contents of the frame after a segment, or the returned value.
struct FrameUpdate {
  std::vector<Ref<>> slots;            // all locals then the stack; null: unbound / NULL entry
  Ref<> result;
  std::string reason;                  // Eager, Retrace: why, in the user's words
  std::vector<bool> decisions;  // OtherPath: outcomes of the first conditions, the last one another than the segment's
  std::vector<PastCall> past;          // Eager: calls that have been made and must not be made again
  Ref<> interrupt;                     // Eager: what a signal handler raised meanwhile, for CPython to raise
  bool disturbed = false;              // Eager: other threads have changed what the piece had read
  bool outdated = false;               // Eager: traced again, the piece would run
  std::size_t settled = 0;  // given: so many conditions of the segment count as expected, however they come out

  /// For another run, in the same memory.
  void clear() {
    slots.clear();
    result = {};
    reason.clear();
    decisions.clear();
    past.clear();
    interrupt = {};
    disturbed = outdated = false;
    settled = 0;
  }
};

/// A branch on data that the segment has followed: an output of the graph, and the value it must have.
struct Condition {
  int output;
  bool expected;
};

class Segment {
 public:
  std::unique_ptr<GuardSet> guards;
  std::shared_ptr<Graph> graph;                    // null if no array work
  std::shared_ptr<const Program> program;
  std::vector<SourceRef> inputs;                   // of the graph, in order
  int device = kHost;                              // where the program works and its results are
  std::vector<bool> host_inputs;                   // by input: a number in the host's memory, whatever the device
  std::shared_ptr<const ExternTable> externs;      // null if the graph has no extern_call
  Recipe recipe;
  Exit exit;
  int start_instruction = 0;
  int passes = 0;                                  // of a loop, at whose header it starts and ends; 0: another piece
  bool covers_function = false;                    // starts at instruction 0 and returns: needs no frame
  std::vector<Library> output_library;
  std::vector<bool> inference_outputs;             // made in torch's inference mode; may be shorter than the outputs
  std::vector<SourceRef> lie_as_traced;            // of a graph that is edited or kept: with arrays that lie otherwise
  std::vector<int> laid_outputs;                   // it would be another one; outputs that lie so whatever those do
  struct AutogradAnswer {
    const char* asked;  // "requires_grad", "is_leaf", "is_inference"; "is_grad_enabled", "is_inference_mode_enabled", "stop"
    SourceRef source;   // of the array; null: of the mode, or "requires_grad" of all
    bool answer;
  };
  std::vector<AutogradAnswer> autograd_as_traced;  // of such a graph: what its code has got
  std::uint32_t collects = 0;                      // KernelStatus bits that fail the program, for NumPy to report
  std::shared_ptr<Derivative> derivative;          // if a result needs a gradient
  bool eager_gradient = false;  // a result needs a gradient that only torch can give: not run compiled
  bool ran_backward = false;                       // a backward of torch's is part of the program
  std::vector<std::pair<int, int>> input_versions,
      output_versions;  // written in place: which, and by how many `_version`s
  std::vector<Condition> conditions;               // in order; a segment is good for calls that decide them so
  bool runs_directly = false;  // a run is the program alone, whose one result is the value returned
  int nodes = 0;
  mutable std::size_t bytes = 0;                   // that keeping it costs, about; grows with each backward
  bool edited = false;          // by the user's passes: CPython's run of the function gives something else
  bool told_compiled = false;   // the user's code was told that it is compiled: eagerly it may do something else
  mutable std::uint64_t last_used = 0;             // a clock of hits
  mutable bool ways_tried = false;                 // one that ends at a branch on data: see join_ways
  mutable std::uint64_t uses = 0;                  // calls that it has served, but for the one it was made for
  mutable std::unique_ptr<EagerRaces> races;       // with CPython; null: compiled is faster, or not to be compared

  /// It does nothing but hand over: no need to run it.
  bool only_hands_over() const {
    return exit.kind == Exit::Kind::Handover && exit.instruction == start_instruction;
  }
  /// A call that begins with it can be decided without a frame of ours: the segment covers the function, or some calls
  /// are left to CPython whole.
  bool may_be_frameless() const {
    return covers_function || (start_instruction == 0 && (only_hands_over() || (races && races->any_retired())));
  }
  /// Whether its first conditions are expected as `decisions` says.
  bool follows(const std::vector<bool>& decisions) const;

  /// Finds `runs_directly` and `writes_objects`. To be called when the tracer has filled in all but the program.
  void settle();
  /// Whether a run changes Python objects that others may have. Between the guards that read these objects and the
  /// change no other thread must run, or the guards are asked once more.
  bool writes_objects() const { return writes_objects_; }

  /// Runs program and recipe. `bindings` are those of guards->holds on the same values.
  SegmentStatus run(const FrameValues& values, const GuardBindings& bindings, FrameUpdate& update) const;
  /// Precondition: runs_directly. The same in the fewest instructions where the program is one small kernel: a new
  /// reference to the result. Null: nothing has happened, and `run` does it or says why not.
  PyObject* run_directly(const FrameValues& values, const GuardBindings& bindings) const;

 private:
  // A program that keeps failing, or of data with NaN, is looked at by `run` alone.
  static constexpr int kDirectFailures = 4;
  mutable int direct_failures_ = 0;
  // A piece that others disturb so often keeps the GIL, but for what the library's functions let go of.
  static constexpr int kDisturbed = 8;
  mutable int disturbed_ = 0;
  bool writes_objects_ = false;
  bool asks_again_ = false;                        // it can be found out before the change whether all is as it was
  std::vector<bool> program_symbols_;              // then: those of the graph that its program reads
  bool has_tensors_ = false;  // it works on torch's
};

}  // namespace fj
