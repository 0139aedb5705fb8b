/// Exceptions of the trace: raised, handled and asked about there.
#pragma once

#include "tracer/interpreter/trace_run.h"
#include "tracer/state/exception_ledger.h"

namespace fj {

/// To a handler that is part of the trace, or a break for `reason`.
[[noreturn]] void raise(TraceRun& t, const V& exception, BreakReason reason, const std::string& detail);
[[noreturn]] void raise(TraceRun& t, PyObject* type, std::vector<V> arguments, BreakReason reason,
                        const std::string& detail);
void raise_instruction(TraceRun& t, Frame& frame, int arguments);
/// The Python error that is set, which a function called on constants has raised.
[[noreturn]] void raise_python_error(TraceRun& t);
bool handle(TraceRun& t, Frame& frame, const FjInstr& instr, const RaisedInTrace& raised);
/// The instructions of handlers; false: not of an exception raised in the trace.
bool handler_instruction(TraceRun& t, Frame& frame, const FjInstr& instr);
V make_exception(TraceRun& t, PyTypeObject* type, std::vector<V> positional, Keywords keywords);
void set_cause(TraceRun& t, InstanceValue& exception, const V& cause);
void set_context(TraceRun& t, InstanceValue& exception, const V& context);
/// Attributes that BaseException and StopIteration have in C; not engaged: an attribute like any other.
std::optional<V> exception_attribute(TraceRun& t, InstanceValue& exception, const std::string& name);
/// Its cause, context and traceback; false: an attribute like any other.
bool set_exception_attribute(TraceRun& t, const V& owner, const std::string& name, const V& value);
V exception_info(TraceRun& t);  // of sys.exc_info()
bool is_stop(TraceRun& t, const V& exception, PyObject* other);

/// While a builtin runs that catches exceptions of the code it calls.
class Catching {
 public:
  explicit Catching(TraceRun& t) : count_(t.exceptions->catching) { ++count_; }
  ~Catching() { --count_; }
  Catching(const Catching&) = delete;

 private:
  int& count_;
};

/// What `call` returns, or null if it raises StopIteration (then `stopped_with` is its value) or `other`.
template <class Call>
V catch_stop_iteration(TraceRun& t, Call call, PyObject* other = nullptr) {
  const Catching catching(t);
  try {
    return call();
  } catch (const RaisedInTrace& raised) {
    if (!is_stop(t, raised.exception, other)) throw;
    return nullptr;
  }
}

}  // namespace fj
