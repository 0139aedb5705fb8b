/// Attributes written and deleted.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

/// The __dict__ of an object from outside: from now on attributes of that object are its items.
V outside_dict(TraceRun& t, const V& owner, ObjectValue& value, PyObject* members);
void adopt_writes(TraceRun& t, const V& dict, PyObject* real);
void set_attribute(TraceRun& t, const V& owner, PyObject* name, const V& value);
/// As object.__setattr__ does; a null value deletes.
void store_attribute(TraceRun& t, const V& owner, PyObject* name, const V& value);
void delete_attribute(TraceRun& t, const V& owner, PyObject* name);

}  // namespace fj
