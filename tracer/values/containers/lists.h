/// Lists.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

/// Sorts as list.sort does, in place, asking for the same comparisons in the same order. If one raises, the items are
/// left as CPython leaves them.
void sort(TraceRun& t, std::vector<V>& items, const V& key, bool descending);

}  // namespace fj
