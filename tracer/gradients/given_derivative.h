/// Derivatives that Python code gives: torch.autograd.Function, custom operators of torch.library.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

/// What `derived_by` of framejit/_support/given_derivatives.py means: the results, whose derivative is what
/// `back(cotangents)` computes. `values` are copies of the results that nobody else has; `prepare` is told the tensors
/// that have the derivative. `back` is traced now, from cotangents that stand for those to come, and kept as a graph of
/// its own. `once`: it has no derivative itself.
V derived_by(TraceRun& t, const V& results, const V& values, const V& inputs, const V& prepare, const V& back,
             const V& once);

/// torch.autograd.Function.apply; null: another callable.
V call_function_with_derivative(TraceRun& t, const V& callable, const std::vector<V>& positional,
                                const Keywords& keywords);

/// A custom operator of torch.library whose derivative is Python code, where an argument requires a gradient; null:
/// another callable.
V call_operator_with_derivative(TraceRun& t, const V& callable, const std::vector<V>& positional,
                                const Keywords& keywords);

}  // namespace fj
