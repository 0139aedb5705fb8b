/// Making a piece: traced, compiled, published in the code cache.
#pragma once

#include <memory>
#include <vector>

#include "frame_hook/function_state.h"

namespace fj {

/// The options of this call: those given to `compile`, changed by an open `with framejit.options(...)` block.
Options effective_options(const FunctionState& state);

/// Until it ends, pieces that this thread compiles are optimised at once, and compiled whatever on_recompile says.
void begin_warm_up();
void end_warm_up();

struct Compiled {
  std::shared_ptr<const Segment> segment;  // null: run in CPython from here, or
  bool raised = false;                     // an error is set that the user must see
  bool no_passes = false;                  // or: no piece of several passes can be made of the loop
  bool interrupted = false;                // or: a signal has come
};

/// Said where compiling found no memory.
inline constexpr const char* kMemoryRanOut = "memory ran out while it was compiled: a later call tries again";

/// Traces and compiles the piece that starts at an entry of the cache's. Its frame is large: recursion must not go
/// through it. interruptible: it gives up, having changed nothing, when a signal comes for this thread.
Compiled compile_segment(FunctionState& state, CodeCache& cache, PyThreadState* thread, const FrameValues& values,
                         int entry, const std::vector<bool>& decisions, bool interruptible);

/// Whether a piece from the function's start that ends at a branch on data, and those behind it, have cost so much that
/// one with all ways to the function's end (tracer/branches.h) is to be tried in its place.
bool may_join_ways(const FunctionState& state, const CodeCache& cache, const Segment& segment);
/// Tries it, once. False: an error is set that the user must see.
bool join_ways(FunctionState& state, CodeCache& cache, PyThreadState* thread, const FrameValues& values,
               const Segment& segment);

/// Whether the function was traced to its end and computes no array: CPython runs it, which is no break.
bool needs_no_graph(const Segment& segment);

}  // namespace fj
