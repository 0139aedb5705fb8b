/// The truth of values and the answers of `in`: bools of the trace where it knows them, else bools that the program
/// computes.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

/// bool(value), which the program computes for a number of its own or an array of one element.
V truth_value(TraceRun& t, const V& value);
/// `not value`, likewise.
V negated(TraceRun& t, const V& value);
/// `item in container`, likewise.
V contains(TraceRun& t, const V& container, const V& item);

}  // namespace fj
