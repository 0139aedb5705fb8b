/// Values of real objects, and the guards on them.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

V wrap_constant(TraceRun& t, PyObject* object); // held by the segment: class attributes, constants of the code
/// Guards that the value is exactly the object it was while tracing, by equality or identity. False: not such a value.
bool guard_value(TraceRun& t, ObjectValue& value);
void guard_type(TraceRun& t, ObjectValue& value);
void add_guard(TraceRun& t, GuardKind kind, SourceRef source, PyObject* object = nullptr, std::int64_t number = 0);
void add_guard(TraceRun& t, Guard guard);
/// len() of a str or bytes from outside without looking at what is in it; null: not such a value.
V string_length(TraceRun& t, const V& value);
/// len() of a list from outside without looking at its items; null: they have been looked at.
V unopened_length(TraceRun& t, const V& value);
/// True if two strings differ, and only that is guarded.
bool strings_differ(TraceRun& t, const V& a, const V& b);
bool same_object(TraceRun& t, const V& a, const V& b);
/// The dict behind a types.MappingProxyType from outside; null: something else.
V proxied_mapping(TraceRun& t, const V& value);
V scalar_float(TraceRun& t, const V& value);

}  // namespace fj
