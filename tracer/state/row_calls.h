/// Calls of rows whose results are the library's within a bound only (whole_parts.cpp).
#pragma once

#include <map>
#include <vector>

#include "tracer/interpreter/trace_run.h"

namespace fj {

/// Each is known by its place, so that a trace that begins again can leave it to the library.
struct RowCalls {
  struct Call {
    CallPlace place;
    std::size_t first, last;                       // nodes
  };
  std::vector<Call> rounded;
  std::map<CallPlace, int> counts;                 // how many calls a place (with before = 0) has seen
  int depth = 0;                                   // rows that call rows
  CallPlace current;                               // of the outermost
};

}  // namespace fj
