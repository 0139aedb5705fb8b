/// Sums, products and transcendental functions are the library's within a bound (docs/numerics.md). Where the whole
/// part of a number decides
/// (`int(x.sum())`, `np.floor(x.mean())`), a last bit may make another number of it, so what it is computed from is
/// computed by the library.
#include <algorithm>

#include "graph_ir/ops.h"
#include "graph_ir/types.h"
#include "tracer/frontends/builders.h"
#include "tracer/frontends/frontend.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/restart.h"
#include "tracer/state/row_calls.h"
#include "tracer/values/fake_arrays.h"

namespace fj {
namespace {

bool within_a_bound(const Graph& graph, const Node& node) {
  const DType dtype = graph.type(node.results[0]).dtype;
  return (is_float(dtype) || is_complex(dtype)) && row(node.op).accuracy == Accuracy::Bounded;
}

}  // namespace

LibraryChoice::LibraryChoice(Tracer& tracer) : run_(static_cast<TraceRun&>(tracer)), first_(run_.graph().nodes.size()) {
  if (run_.rows->depth == 0) {
    CallPlace place;
    place.frames.reserve(run_.frames.size());
    for (const Frame* frame : run_.frames) place.frames.emplace_back(frame->code, frame->executing);
    int& before = run_.rows->counts[place];
    place.before = before++;
    if (run_.learnt.library_calls.count(place)) unsupported("a number whose whole part is asked for");
    run_.rows->current = std::move(place);
  }
  ++run_.rows->depth;
}

LibraryChoice::~LibraryChoice() { --run_.rows->depth; }

void LibraryChoice::done() {
  if (run_.rows->depth > 1) return;
  const auto& nodes = run_.graph().nodes;
  for (std::size_t i = first_; i < nodes.size(); ++i)
    if (within_a_bound(run_.graph(), nodes[i])) {
      run_.rows->rounded.push_back({run_.rows->current, first_, nodes.size()});
      return;
    }
}

void TraceRun::round_as_library(const V& number) {
  if (rows->rounded.empty()) return;
  if (auto* computed = as<NumberValue>(number)) round_as_library(computed->contents);
  else if (auto* array = as<ArrayValue>(number)) round_as_library(array_contents(*this, *array));
}

void TraceRun::round_as_library(ValueId asked) {
  if (rows->rounded.empty()) return;
  // Nodes it is computed from.
  std::vector<bool> leads(graph().nodes.size());
  std::set<ValueId> wanted{asked};
  for (std::size_t i = graph().nodes.size(); i-- > 0;) {
    const Node& node = graph().nodes[i];
    if (std::none_of(node.results.begin(), node.results.end(), [&](ValueId result) { return wanted.count(result); }))
      continue;
    leads[i] = true;
    wanted.insert(node.operands.begin(), node.operands.end());
  }
  bool more = false;
  for (const RowCalls::Call& call : rows->rounded) {
    bool here = false;
    for (std::size_t i = call.first; i < call.last; ++i)
      here = here || (leads[i] && within_a_bound(graph(), graph().nodes[i]));
    if (here) more = learnt.library_calls.insert(call.place).second || more;
  }
  if (more) throw TraceAgain{};
}

}  // namespace fj
