/// From a captured graph to a program, by the name of a back end or by the user's callable.
#pragma once

#include <Python.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpython/ref.h"
#include "graph_ir/graph.h"
#include "runtime/base/options.h"
#include "runtime/program.h"
#include "segment/segment.h"

namespace fj {

/// A back end written by the user raised or returned nonsense, when it compiled or in a call: the exception for the
/// user. It is not set: what is let go of on the way may run Python code.
struct BackendFailure {
  Ref<> error;
};

/// The graph has no program on its device, for the reason in `what()`.
struct NoProgram : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Python's exception, which is set, as the cause of a BackendError whose text starts with `what`. What ends a program
/// (KeyboardInterrupt) stays as it is.
BackendFailure raised_by(const std::string& what);

/// Why the back end takes no arrays of a device, or of the host; "": it does. The first time it is asked of a device
/// its driver is opened.
std::string device_refusal(int device, const Options& options, bool own_backend);

/// `callable`: the user's back end, or null: the one `options.backend` names. `values` are those the segment was traced
/// on: a user's back end gets them as examples. `code_bytes`: the machine code's memory is added. Throws InternalError,
/// NoProgram or BackendFailure.
std::unique_ptr<Program> compile_graph(const Segment& segment, const FrameValues& values, const Options& options,
                                       PyObject* callable, std::size_t& code_bytes);

/// A backward program of a device, by the built-in back ends: a user's own sees forward graphs only.
std::unique_ptr<Program> compile_backward(const Graph& graph, int device, const Options& options,
                                          std::size_t& code_bytes);

/// A borrowed reference to the callable that Python has registered under a name; null if there is none.
/// `resolver` is set once by the package: name -> callable or None.
void set_backend_resolver(Ref<> resolver);
/// `made(captured_graph) -> framejit.Graph`: what a user's back end is given. Set once by the package.
void set_graph_maker(Ref<> made);
bool is_builtin_backend(std::string_view name);

/// The exception types of the package, in the order of these names. Borrowed.
enum class ErrorKind { Error, GraphBreak, Backend, Graph, Recompile, Check };
PyObject* error_type(ErrorKind kind);
/// In the order of ErrorKind.
void set_error_types(std::vector<Ref<>> types);

}  // namespace fj
