/// warnings.catch_warnings() in the trace and the filters set in it.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

V make_warning_context(TraceRun& t, PyTypeObject* type, const std::vector<V>& positional, const Keywords& keywords);
void enter_warning_context(TraceRun& t, const InstanceValue& context);
void leave_warning_context(TraceRun& t, const InstanceValue& context);
V call_warnings_function(TraceRun& t, PyObject* callable, const std::vector<V>& positional, const Keywords& keywords);
/// `warnings.filters` in such a `with`: what is there is not what the program set.
void refuse_warning_filters(TraceRun& t, PyObject* module, PyObject* name, bool written);

}  // namespace fj
