/// Exceptions that are raised and handled in the trace.
#pragma once

#include <string>
#include <vector>

#include "segment/break_reason.h"
#include "tracer/value.h"

namespace fj {

/// A Python exception on its way to a handler in the trace. The other members say how to break if it leaves the
/// outermost frame.
struct RaisedInTrace {
  V exception;
  BreakReason reason;
  std::string detail;
  Location where;
  std::string function;
  int step;
};

/// The last exception of `handling` is that of the innermost handler: sys.exc_info() is about it.
struct ExceptionLedger {
  std::vector<V> handling;                         // exceptions whose handlers run
  int catching = 0;                                // calls under way of builtins that catch exceptions
  std::vector<RaisedInTrace> raises;               // the first raise of each exception
  V stopped_with;                                  // value of the StopIteration that ended the last `next`
};

}  // namespace fj
