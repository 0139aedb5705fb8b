/// Classes that are made in the trace.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

V build_class(TraceRun& t, const std::vector<V>& positional, const Keywords& keywords);
V make_class(TraceRun& t, const std::string& name, const std::vector<V>& bases,
             const std::vector<std::pair<Ref<>, V>>& members);
/// property(f) and the like of functions made in the trace; null: something else.
V make_class_wrapper(TraceRun& t, PyTypeObject* type, const std::vector<V>& positional, const Keywords& keywords);
/// Breaks where the annotations of a class of the trace are looked at: its dict is made once, eager's at each call.
/// `type` has them or derives from such a class.
void refuse_made_annotations(TraceRun& t, PyTypeObject* type);
bool is_annotations(PyObject* name);
/// The step at which this class (or descriptor) was made in the trace.
std::optional<int> made_class_at(TraceRun& t, PyObject* object);

}  // namespace fj
