/// Generators that are made in the trace.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

V make_generator(TraceRun& t, std::shared_ptr<Frame> frame);
void send_instruction(TraceRun& t, Frame& frame, const FjInstr& instr);
V stop_iteration_error(TraceRun& t, const V& exception);
/// Whether Python would do nothing when the generator is dropped where it stands.
bool may_be_abandoned(TraceRun& t, const IteratorValue& generator);
V iterator_method(TraceRun& t, const V& owner, const std::string& name, std::vector<V>& positional);
V next_or_raise(TraceRun& t, const V& iterator);

}  // namespace fj
