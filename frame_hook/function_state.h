/// What a compiled function is, without its Python object, and what all that runs it asks.
#pragma once

#include <Python.h>

#include <memory>
#include <string>
#include <vector>

#include "frame_hook/cache/code_cache.h"
#include "frame_hook/events.h"
#include "frame_hook/reached_functions.h"

namespace fj {

struct FunctionState {
  Options options;                       // given to `compile`; where a `with framejit.options` block is open, it wins
  Ref<> backend;                         // the user's callable, or null
  std::vector<std::pair<std::string, DynamicAxis>> marks;  // axes of its arguments that change, by source
  bool only_operations = false;          // in its graphs, as far as they can say it: see Tracer
  bool branches = false;                 // on data are in its graphs, where they can be (tracer/branches.h)
  bool records = false;                  // its passes are told of the calls of the libraries
  Ref<> passes;                          // what edits its graphs (framejit/_passes.py), or null
  /// One cache per set of options in use: the first is that of `options`.
  std::vector<std::shared_ptr<CodeCache>> caches;
  std::shared_ptr<Events> events = std::make_shared<Events>();
  std::string name;                      // qualified, for logs
  /// What its breaks have called; those functions share it with the compiled function that owns it.
  std::shared_ptr<ReachedFunctions> reached = std::make_shared<ReachedFunctions>(*this);
  Ref<PyCodeObject> code;                // of a reached function: held, so that its address stays its own
  bool of_library = false;               // a reached function that is not the user's: nothing is said of it
  std::uint64_t programs_run = 0;        // pieces with array work that ran
};

/// A failure of ours: counted and logged, or raised if the user wants to see it. True: an error is set.
bool report_internal(FunctionState& state, const Options& options, const std::string& what);

/// True while an EagerScope exists on this stack of frames, or a TracingScope on another one of the thread.
bool runs_eagerly();
/// Why what runs now is not compiled, as far as it is known.
std::string why_eager();

/// Everything on this stack of frames runs eagerly while one exists: framejit.disable, and framejit itself.
class EagerScope {
 public:
  EagerScope();
  ~EagerScope();
  EagerScope(const EagerScope&) = delete;
};

/// Inside of such a scope, a call that is traced all the same: one graph is captured while another one is compiled.
class TracedScope {
 public:
  TracedScope();
  ~TracedScope();
  TracedScope(const TracedScope&) = delete;

 private:
  const Py_ssize_t outer_;
};

/// A trace in progress, which calls Python now and then. What that switches to (another greenlet) begins none beside
/// it: what a trace notes per thread is its own until it ends.
class TracingScope {
 public:
  TracingScope();
  ~TracingScope();
  TracingScope(const TracingScope&) = delete;

 private:
  const void* const outer_;
};

}  // namespace fj
