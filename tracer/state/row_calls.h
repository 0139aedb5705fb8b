/// Calls of the libraries' rows whose results agree with the library's within a bound only (whole_parts.cpp).
#pragma once

#include <map>
#include <vector>

#include "tracer/interpreter/trace_run.h"

namespace fj {

/// Each call is known by its place, so that a trace that begins again can leave it to the library.
struct RowCalls {
  struct Call {
    CallPlace place;
    std::size_t first, last;                       // its nodes: the first, and one behind the last
  };
  std::vector<Call> rounded;
  std::map<CallPlace, int> counts;                 // by place (with before = 0): how many calls it has seen
  int depth = 0;                                   // row calls under way, one inside of the other
  CallPlace current;                               // the place of the outermost row call
};

}  // namespace fj
