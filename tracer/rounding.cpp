/// Sums, products and transcendental functions are the library's within a bound (docs/numerics.md). Where the whole part of a number decides
/// (`int(x.sum())`), a last bit may make another int of it, so what such a number is computed from is computed by the library.
#include <algorithm>

#include "graph_ir/types.h"
#include "tracer/frontends/frontend.h"
#include "tracer/frontends/builders.h"
#include "tracer/interpreter.h"
#include "tracer/restart.h"

namespace fj {
namespace {

bool within_a_bound(const Graph& graph, const Node& node) {
  const DType dtype = graph.type(node.results[0]).dtype;
  if (!is_float(dtype) && !is_complex(dtype)) return false;
  switch (node.op) {
    case Op::reduce_sum: case Op::reduce_prod: case Op::cumsum: case Op::cumprod: case Op::matmul: case Op::scatter_add:
    case Op::rsqrt: case Op::exp: case Op::exp2: case Op::expm1: case Op::log: case Op::log2: case Op::log10: case Op::log1p: case Op::sin: case Op::cos: case Op::tan:
    case Op::asin: case Op::acos: case Op::atan: case Op::sinh: case Op::cosh: case Op::tanh: case Op::asinh: case Op::acosh: case Op::atanh: case Op::erf:
    case Op::pow: case Op::atan2: case Op::hypot:
      return true;
    default: return false;
  }
}

}  // namespace

LibraryChoice::LibraryChoice(Tracer& tracer) : impl_(*tracer.impl_), number_(impl_.row_calls++), first_(impl_.graph->nodes.size()) {
  if (impl_.decodes.library_calls.count(number_)) unsupported("a number whose whole part is asked for");
}

void LibraryChoice::done() {
  const auto& nodes = impl_.graph->nodes;
  for (std::size_t i = first_; i < nodes.size(); ++i)
    if (within_a_bound(*impl_.graph, nodes[i])) {
      impl_.rounded_calls.push_back({number_, first_, nodes.size()});
      return;
    }
}

void TracerImpl::round_as_library(const V& number) {
  if (rounded_calls.empty()) return;
  auto* computed = as<NumberValue>(number);
  auto* array = as<ArrayValue>(number);
  if (!computed && !array) return;
  const ValueId asked = computed ? computed->contents : read(*array);
  // Nodes it is computed from.
  std::vector<bool> leads(graph->nodes.size());
  std::set<ValueId> wanted{asked};
  for (std::size_t i = graph->nodes.size(); i-- > 0;) {
    const Node& node = graph->nodes[i];
    if (std::none_of(node.results.begin(), node.results.end(), [&](ValueId result) { return wanted.count(result); })) continue;
    leads[i] = true;
    wanted.insert(node.operands.begin(), node.operands.end());
  }
  bool learnt = false;
  for (const RowCall& call : rounded_calls) {
    bool here = false;
    for (std::size_t i = call.first; i < call.last; ++i) here = here || (leads[i] && within_a_bound(*graph, graph->nodes[i]));
    if (here) learnt = decodes.library_calls.insert(call.number).second || learnt;
  }
  if (learnt) throw TraceAgain{};
}

}  // namespace fj
