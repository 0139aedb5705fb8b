/// Modes that a `with` in the trace changes, and context variables. Null: of something else.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

V make_mode(TraceRun& t, const V& callable, PyTypeObject* type, std::vector<V>& positional, Keywords& keywords);
V call_mode_function(TraceRun& t, PyObject* callable, const std::vector<V>& positional, const Keywords& keywords);
V call_mode_method(TraceRun& t, const V& owner, const std::string& name);
/// Its __enter__ and __exit__ are known here, whatever code they are.
bool mode_is_known(const InstanceValue& instance);
V call_context_variable(TraceRun& t, const V& owner, const std::string& name, const std::vector<V>& positional);
/// At an exit: throws CannotRebuildValue if a mode is not what it was outside.
void refuse_open_modes(TraceRun& t);
/// Whether code that ran outside now would run under other modes than the trace.
bool modes_changed(TraceRun& t);

}  // namespace fj
