/// Calls of functools.lru_cache in the trace.
#pragma once

#include <utility>
#include <vector>

#include "tracer/value.h"

namespace fj {

/// The piece asks the real caches again when it runs, in this order (RecipeOp::Expect), and fails where one gives
/// another result than it gave here.
struct CachedCalls {
  /// A call of a wrapper, and the result it has to give.
  struct Expectation {
    Ref<> callable, arguments, keywords, result;
    bool only_held = false;  // the wrapped function must not run: it would run before the writes of the trace
    V value;                 // in place of `result`: the object that the cache holds when the piece runs
  };
  std::vector<Expectation> expectations;
  bool expecting = false;                          // a cached function is being traced
  std::vector<std::pair<Ref<>, V>> results;        // by (wrapper, arguments...): of cached functions called by one
};

}  // namespace fj
