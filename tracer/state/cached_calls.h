/// Calls of functools.lru_cache in the trace.
#pragma once

#include <utility>
#include <vector>

#include "tracer/value.h"

namespace fj {

/// The guards of the piece ask the caches for what they gave here, in this order.
struct CachedCalls {
  /// A call of a wrapper and what it has to give.
  struct Expectation {
    Ref<> callable, arguments, keywords, result;
    bool only_held = false;  // the function must not run: it would run before what the trace has written is there
    V value;                 // in place of `result`: the object that the cache holds when the guards are asked
  };
  std::vector<Expectation> expectations;
  bool expecting = false;                          // a cached function is being traced
  std::vector<std::pair<Ref<>, V>> results;        // of cached functions: (wrapper, arguments...) and what they gave
};

}  // namespace fj
