/// Runs a compiled function: finds or makes a segment for where it stands, runs it, executes the instruction at which it
/// ended, and so on until the function returns or CPython takes over.
#pragma once

#include <Python.h>

#include <memory>

#include "frame_hook/code_cache.h"
#include "frame_hook/events.h"

namespace fj {

/// What a compiled function is, without its Python object.
struct FunctionState {
  Options options;                       // given to `compile`; where a `with framejit.options` block is open, it wins
  Ref<> backend;                         // the user's callable, or null
  /// One cache per set of options in use: the first is that of `options`.
  std::vector<std::shared_ptr<CodeCache>> caches;
  std::shared_ptr<Events> events = std::make_shared<Events>();
  std::string name;                      // qualified, for logs
};

/// Calls `function` (a plain Python function) compiled.
PyObject* call_compiled(FunctionState& state, PyFunctionObject* function, PyObject* const* args, std::size_t nargsf,
                        PyObject* kwnames);

/// Everything on this thread runs eagerly while one exists: framejit.disable, and framejit itself.
class EagerScope {
 public:
  EagerScope();
  ~EagerScope();
  EagerScope(const EagerScope&) = delete;
};

}  // namespace fj
