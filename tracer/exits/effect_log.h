/// The writes of a trace to what was there before it, in program order: the exit replays them.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

/// Every write of the trace is noted, by the functions below if it is an effect. Null: nobody's in particular.
void note_write(TraceRun& t, const Value* owner);
void note_items(TraceRun& t, const V& list);  // before they change
void note_item(TraceRun& t, const V& owner, Ref<> key, V value);  // a null value: deleted
void note_call(TraceRun& t, const V& owner, const char* method, Ref<> key, std::vector<V> arguments);
void note_attribute(TraceRun& t, const V& owner, PyObject* name, const V& value);
void note_cell(TraceRun& t, const V& cell, const V& contents);
void note_global(TraceRun& t, PyObject* globals, PyObject* name, const V& value);
/// What was assigned to a global in the trace. Not engaged: nothing; null: deleted.
std::optional<V> written_global(TraceRun& t, PyObject* globals, PyObject* name);
std::optional<V> written_attribute(TraceRun& t, const V& owner, PyObject* name);
PyObject* interned(TraceRun& t, PyObject* name);

}  // namespace fj
