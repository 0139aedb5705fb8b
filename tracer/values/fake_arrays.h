/// Arrays of the trace: their contents as graph values, their memory, what a gradient needs of them.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

V wrap_array(TraceRun& t, PyObject* object, SourceRef source);
ValueId array_contents(TraceRun& t, const ArrayValue& array);
/// The view it was made of, if no write has come between: torch makes the history of all views anew after one, from
/// their base.
const ArrayValue* viewed_now(const ArrayValue& view);
void note_array(TraceRun& t, const ArrayValue& array);  // guards of the library's modes
/// The code sees the mode; always: also where it has set it itself.
void note_mode(TraceRun& t, AutogradFact mode, bool always = false);
/// The value as a constant of the derivative.
ValueId stopped(TraceRun& t, ValueId value);

}  // namespace fj
