/// Names: attributes by instruction, globals, cells.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

void load_attribute(TraceRun& t, Frame& frame, const V& owner, PyObject* name);
[[noreturn]] void raise_no_attribute(TraceRun& t, const V& owner, PyObject* name);
V load_global(TraceRun& t, Frame& frame, PyObject* name);
[[noreturn]] void raise_undefined(TraceRun& t, PyObject* name);
SourceRef globals_source(TraceRun& t, PyObject* globals);
/// The Value of the dict at `place`, if the trace knows it as one: all that names its items goes by it. Null: it was
/// never looked at whole.
V known_dict(TraceRun& t, PyObject* dict, SourceRef place);
SourceRef globals_place(TraceRun& t, const Frame& frame);
V cell_contents(TraceRun& t, CellValue& cell);  // null: empty
void set_cell(TraceRun& t, const V& cell, V contents);

}  // namespace fj
