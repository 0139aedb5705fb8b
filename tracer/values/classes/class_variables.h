/// Attributes of classes that traced code assigns.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

/// Null: the class has none of this name, or nobody assigns it.
V class_variable(TraceRun& t, PyTypeObject* type, PyObject* name);
void set_class_variable(TraceRun& t, const V& owner, PyTypeObject* type, PyObject* name, const V& value);
/// Breaks if the trace has assigned an attribute of the class or of a base: the real ones do not have it yet.
void refuse_assigned_class(TraceRun& t, PyTypeObject* type);
PyTypeObject* assigned_owner(TraceRun& t, PyTypeObject* type,
                             PyObject* name);  // the class whose attribute it is, where the trace assigned it

}  // namespace fj
