/// Sets.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

void add_to_set(TraceRun& t, SetValue& set, Ref<> item);
std::vector<V> set_items(TraceRun& t, const SetValue& set);  // in the set's order

}  // namespace fj
