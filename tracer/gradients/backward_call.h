/// Calls of backward() and torch.autograd.grad in the trace, and what they leave in tensors.
#pragma once

#include "tracer/interpreter/trace_run.h"
#include "tracer/state/gradient_ledger.h"

namespace fj {

void set_gradient_field(TraceRun& t, const V& tensor, PyObject* name, const V& value);
GradientLedger::Leaf* made_leaf(TraceRun& t, const ArrayValue& array);
void refuse_made_history(TraceRun& t, ValueId value);
[[noreturn]] void refuse_leaf(const GradientLedger::Leaf& leaf);
/// Whether a backward through the value would meet what one in the trace has freed: eager raises there.
bool is_freed(TraceRun& t, ValueId value);
V input_array(TraceRun& t, int input);
/// By value: it is one of these, or their derivative leads to it.
std::vector<bool> history(TraceRun& t, const std::vector<ValueId>& of);
/// Values that in-place operations have replaced, and what stood for them: the number of nodes before that operation,
/// which may read what it replaces.
std::map<ValueId, std::size_t> overwritten(TraceRun& t);

}  // namespace fj
