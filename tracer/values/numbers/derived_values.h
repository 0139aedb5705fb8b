/// What pure functions give for values from outside that change between calls.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

/// Whether another value has been seen there, and nothing here depends on which it is.
bool changes(TraceRun& t, const V& value);
/// What a pure function of C gives, as a value from outside. Null: no operand changes, or one is no plain number or
/// text from outside. `looked_at`: more than its source will be used.
V result_of(TraceRun& t, PyObject* function, const std::vector<V>& operands, bool looked_at = true);
/// The same, whether or not an operand changes.
V made_by(TraceRun& t, PyObject* function, const std::vector<V>& operands, bool looked_at = true);
V result_of_operator(TraceRun& t, const char* name, const std::vector<V>& operands);
V result_of_comparison(TraceRun& t, int comparison, const V& a, const V& b);
/// What a dict from outside has under a key that changes; null: it is looked up by what the key is in this call.
V item_of(TraceRun& t, const V& container, const V& key);

}  // namespace fj
