/// Iterators and the loops over them.
#pragma once

#include "tracer/interpreter/trace_run.h"

namespace fj {

V make_iterator(TraceRun& t, const V& value);
V next(TraceRun& t, const V& iterator);  // null: exhausted
std::shared_ptr<IteratorValue> iterate_sequence(TraceRun& t, const V& sequence);
/// An iterator over a range that runs already and is the frame's alone: the passes of a piece (TraceRequest::passes).
std::shared_ptr<IteratorValue> iterate_running_range(TraceRun& t, PyObject* object, SourceRef source);

/// One item after the other, as a `for` loop takes them: what `body` does between two of them the iterator sees.
template <class Body>
void for_each(TraceRun& t, const V& value, Body body) {
  V iterator = make_iterator(t, value);
  while (V item = next(t, iterator)) {
    body(item);
    t.check_limits();
  }
}

}  // namespace fj
