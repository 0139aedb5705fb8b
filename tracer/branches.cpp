#include "tracer/branches.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "cpython/ref.h"
#include "graph_ir/verify.h"
#include "guards/guard_set.h"
#include "runtime/base/lists.h"
#include "tracer/data_loops.h"
#include "tracer/gradients/graph_transforms.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/join_ways.h"
#include "tracer/state/placement.h"
#include "tracer/state/transform_ledger.h"

namespace fj {
namespace {

using Event = TracedWay::Event;

bool same_object(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (!a || !b || Py_TYPE(a) != Py_TYPE(b) || !is_plain_operand(a)) return false;
  // By their text: 0.0 is not -0.0, and NaN is NaN.
  const Ref<> first = Ref<>::steal(PyObject_Repr(a)), second = Ref<>::steal(PyObject_Repr(b));
  const bool same = first && second && PyUnicode_Compare(first.get(), second.get()) == 0;
  PyErr_Clear();
  return same;
}

bool same_step(const RecipeStep& a, const RecipeStep& b) {
  return a.op == b.op && a.target == b.target && a.args == b.args && a.source == b.source &&
         same_object(a.object.get(), b.object.get()) && a.index == b.index && a.expression == b.expression &&
         a.shape == b.shape && a.strides == b.strides && a.view.empty() && b.view.empty() && a.dtype == b.dtype;
}

bool same_recipe(const Recipe& a, const Recipe& b) {
  return a.slots == b.slots && a.keep == b.keep && a.result == b.result &&
         std::equal(a.steps.begin(), a.steps.end(), b.steps.begin(), b.steps.end(), same_step);
}

bool same_symbol(const Symbol& a, const Symbol& b) {
  if (a.min != b.min || a.max != b.max || a.late != b.late || a.definition.has_value() != b.definition.has_value())
    return false;
  return !a.definition || (a.definition->dividend == b.definition->dividend &&
                           a.definition->divisor == b.definition->divisor &&
                           a.definition->remainder == b.definition->remainder);
}

class Ways {
 public:
  using TraceOne = std::function<std::unique_ptr<Segment>(const TraceRequest&)>;

  /// `with_loops`: loops on data are entered as such; else each of their passes is a part of the way.
  Ways(const TraceRequest& request, const TraceOne& trace_one, bool with_loops)
      : request_(request),
        trace_one_(trace_one),
        with_loops_(with_loops),
        sources_(std::make_shared<SourceTable>()) {}

  std::unique_ptr<Segment> joined() {
    explore_all();
    if (read_otherwise()) explore_all();
    if (returns_otherwise()) {
      own_results_ = true;
      explore_all();
    }
    const auto main = std::find_if(ways_.begin(), ways_.end(),
                                   [](const auto& way) { return way.second.end == TracedWay::End::Return; });
    if (main == ways_.end()) apart("no way leaves the loop");
    if (main->second.events.empty()) apart("no way meets it");
    // A branch of a graph gives something: what fails or warns on a way would be lost.
    if (main->second.graph().outputs.empty()) apart("no way returns an array");
    for (const auto& [decisions, way] : ways_) check(main->second, way);
    TracedWay way = new_way(main->first);
    way.join = [&](Graph& graph, GuardSet& guards, Segment& segment) { join(main->second, graph, guards, segment); };
    return traced(way, request_.edit);
  }

  /// Whether a way has come to the header of a loop again, behind a branch.
  bool has_loops() const { return has_loops_; }

 private:
  TracedWay new_way(Decisions decisions) {
    TracedWay way;
    way.sources = sources_;
    way.decisions = std::move(decisions);
    way.inputs = inputs_;
    way.plans = with_loops_ ? &plans_ : nullptr;
    way.left = &left_;
    way.shown = &shown_;
    way.own_results = own_results_;
    return way;
  }

  std::unique_ptr<Segment> traced(TracedWay& way, const decltype(TraceRequest::edit)& edit) {
    TraceRequest one = request_;
    one.way = &way;
    one.edit = edit;
    if (in_ways_ > request_.most_in_ways) apart("they have many operations, for what a branch costs");
    in_ways_ += kOfEach;
    auto segment = trace_one_(one);
    if (segment->graph) in_ways_ += int(segment->graph->nodes.size());
    has_loops_ = has_loops_ || way.loops_on_data;
    if (way.end == TracedWay::End::Raise && segment->graph) return segment;
    if (segment->exit.kind != Exit::Kind::Return || !segment->graph) {
      const std::string& detail = segment->exit.detail;
      apart(detail.empty() ? "one way computes no array" : "one way ends where " + detail);
    }
    return segment;
  }

  /// From the start again where a loop turns out to change more.
  void explore_all() {
    for (int tries = 0;; ++tries) {
      ways_.clear();
      left_.clear();
      goes_on_.clear();
      try {
        return explore({});
      } catch (const PlanGrown&) {
        if (tries == kMostPlans) apart("a loop's passes do not come to the same");
      }
    }
  }

  void explore(const Decisions& decisions) {
    if (ways_.size() == kMostWays) apart("there are more than " + std::to_string(kMostWays) + " ways");
    TracedWay way = new_way(decisions);
    decltype(TraceRequest::edit) nothing;
    if (request_.edit) nothing = [](Segment&, const GuardSet&, const SourceTable&) { return false; };
    auto segment = traced(way, nothing);
    const Decisions outcomes = way.outcomes();
    if (outcomes.size() < decisions.size()) apart("the ways differ before they part");
    Decisions before;
    std::map<std::size_t, Decisions> entered;
    for (const Event& event : way.events) {
      if (event.kind == Event::Kind::Branch) before.push_back(event.outcome);
      if (event.kind == Event::Kind::Enter) entered[event.loop] = before;
      if (event.kind != Event::Kind::Leave) continue;
      const TracedWay::Exit exit{entered[event.loop], event.loop, way.loops[event.loop].exit};
      if (left_.emplace(exit, before).second) goes_on_.emplace(exit, decisions);
    }
    ways_.emplace(decisions,
                  Traced{std::move(segment), std::move(way.events), std::move(way.loops), way.end, way.ended});
    for (std::size_t i = decisions.size(); i < outcomes.size(); ++i) {
      Decisions other(outcomes.begin(), outcomes.begin() + std::ptrdiff_t(i));
      other.push_back(!outcomes[i]);
      explore(other);
    }
  }

  /// Whether a way reads an array that is read by no other, or only behind a branch; then all are to read all of them
  /// first.
  bool read_otherwise() {
    const std::vector<SourceRef>& first = ways_.at({}).segment->inputs;
    const auto reads_first = [&](const Traced& way) {
      return way.segment->inputs == first &&
             std::all_of(way.graph().inputs.begin(), way.graph().inputs.end(), [&](const Input& input) {
               return way.events.empty() || input.value.index < way.events[0].values;
             });
    };
    if (std::all_of(ways_.begin(), ways_.end(), [&](const auto& way) { return reads_first(way.second); })) return false;
    for (const auto& [decisions, way] : ways_)
      for (SourceRef source : way.segment->inputs) add_once(inputs_, source);
    return true;
  }

  /// Whether two ways return in other forms: one a constant or an array from outside, perhaps, the other what it
  /// computes.
  bool returns_otherwise() const {
    const Recipe* first = nullptr;
    for (const auto& [decisions, way] : ways_) {
      if (way.end != TracedWay::End::Return) continue;
      if (first && !same_recipe(*first, way.segment->recipe)) return true;
      first = &way.segment->recipe;
    }
    return false;
  }

  void check(const Traced& first, const Traced& way) const {
    const Segment &a = *first.segment, &b = *way.segment;
    if (b.inputs != a.inputs) apart("one way reads an array that another can't");
    if (!b.graph->writes.empty() || !b.input_versions.empty()) apart("an array from outside is written");
    if (!std::equal(a.graph->symbols.begin(), a.graph->symbols.end(), b.graph->symbols.begin(), b.graph->symbols.end(),
                    same_symbol))
      apart("one way has sizes that another has not");
    if (way.end == TracedWay::End::Return) check_results(a, b);
    if (way.events.empty()) return;
    for (std::size_t n = way.events[0].nodes; n < b.graph->nodes.size(); ++n) {
      const Node& node = b.graph->nodes[n];
      if (node.op == Op::extern_call)
        apart("`" + node.attrs.get<std::string>("callee") + "` is called behind it, which only the library computes");
      for (SymbolId symbol : symbols_used(*b.graph, node))
        if (b.graph->symbols[symbol.index].late) apart("a size that depends on data is counted behind it");
    }
  }

  static void check_results(const Segment& a, const Segment& b) {
    if (!same_recipe(a.recipe, b.recipe))
      apart("the ways return, or change, other things than arrays made anew of the same number and kinds");
    if (b.output_versions != a.output_versions || b.inference_outputs != a.inference_outputs)
      apart("the ways return tensors that differ in what autograd knows of them");
    if (a.output_library != b.output_library || a.graph->outputs.size() != b.graph->outputs.size())
      apart("the ways return other arrays");
    for (std::size_t i = 0; i < a.graph->outputs.size(); ++i) {
      const Output &x = a.graph->outputs[i], &y = b.graph->outputs[i];
      if (a.graph->type(x.value) != b.graph->type(y.value))
        apart("the ways return a " + text(a.graph->type(x.value)) + " and a " + text(b.graph->type(y.value)));
      if (x.strides != y.strides) apart("the ways return arrays that lie otherwise in memory");
    }
  }

  /// The graph is that of the way `first`, traced once more.
  void join(const Traced& first, Graph& graph, GuardSet& guards, Segment& segment) const {
    const Event& event = first.events.at(0);
    if (graph.nodes.size() < event.nodes ||
        !std::equal(graph.nodes.begin(), graph.nodes.begin() + std::ptrdiff_t(event.nodes),
                    first.graph().nodes.begin(), same_node))
      apart("the ways differ before they part");
    graph.nodes.resize(event.nodes, Node{});
    const auto gone = [&](ValueId value) { return value.index >= event.values; };
    std::erase_if(graph.composites, [&](const Composite& composite) { return gone(composite.result); });
    std::erase_if(graph.names, [&](const auto& named) { return gone(named.first); });
    std::erase_if(graph.spare_calls, gone);
    const std::vector<ValueId> results = add_ways(graph, first, ways_, goes_on_);
    for (std::size_t i = 0; i < results.size(); ++i) graph.outputs[i].value = results[i];
    if (const std::vector<VerifyError> errors = verify(graph); !errors.empty()) apart(errors[0].message);
    for (const auto& [decisions, way] : ways_) {
      guards.add_all(*way.segment->guards);
      for (SourceRef source : way.segment->lie_as_traced) add_once(segment.lie_as_traced, source);
      for (int slot : way.segment->recipe.let_go) add_once(segment.recipe.let_go, slot);
      if (way.end == TracedWay::End::Return)
        for (int output : way.segment->laid_outputs) add_once(segment.laid_outputs, output);
      for (const Segment::AutogradAnswer& answer : way.segment->autograd_as_traced)
        segment.autograd_as_traced.push_back(answer);
      segment.collects |= way.segment->collects;
    }
  }

  static constexpr int kMostPlans = 32;
  static constexpr int kOfEach = 50;  // what a trace costs, in operations, however few it has

  const TraceRequest& request_;
  const TraceOne& trace_one_;
  const bool with_loops_;
  bool has_loops_ = false, own_results_ = false;
  int in_ways_ = 0;
  const std::shared_ptr<SourceTable> sources_;
  std::vector<SourceRef> inputs_;
  TracedWays ways_;
  LoopPlans plans_;
  std::set<ValueId> shown_;
  std::map<TracedWay::Exit, Decisions> left_, goes_on_;  // see TracedWay; the way, as it is in `ways_`
};

}  // namespace

V with_own_results(TraceRun& t, const V& result) {
  std::map<const Value*, V> copies;  // what is returned twice is one array still
  const auto own = [&](const V& value) {
    const auto* array = as<ArrayValue>(value);
    if (!t.request.copies_results) return computed_number(t, value);
    if (!array || !value->source || !array->view.empty() || array->is_view || array->numpy_scalar || array->parameter ||
        !array->writeable || t.requires_gradient(*array))
      return computed_number(t, value);
    V& copy = copies[value.get()];
    if (!copy) copy = t.new_array(array->library, t.read(*array), array->strides);
    return copy;
  };
  const auto* tuple = as<TupleValue>(result);
  if (!tuple || tuple->type || tuple->view_of || result->source) return own(result);
  std::vector<V> items;
  for (const V& item : tuple->items) items.push_back(own(item));
  return Tracer::tuple(std::move(items));
}

std::vector<bool> TracedWay::outcomes() const {
  std::vector<bool> found;
  for (const Event& event : events)
    if (event.kind == Event::Kind::Branch) found.push_back(event.outcome);
  return found;
}

void TracedWay::clear() {
  events.clear();
  loops.clear();
  open.clear();
  ended = 0;
  end = End::Return;
}

bool take_way(TraceRun& t, ValueId condition) {
  if (t.placement->on_device() || t.transforms->depth > 0 || !t.transforms->of_torch.empty())
    break_graph(BreakReason::BranchOnData, "`" + t.source_text() + "` branches on data");
  TracedWay& way = *t.request.way;
  const std::size_t i = way.outcomes().size();
  if (i + 1 >= kMostWays)
    break_graph(BreakReason::BranchOnData,
                "`" + t.source_text() + "` is a branch behind " + std::to_string(i) + " others");
  const bool outcome = i >= way.decisions.size() || way.decisions[i];
  way.events.push_back(
      {Event::Kind::Branch, t.graph().nodes.size(), t.graph().value_count(), t.location(), condition, outcome});
  return outcome;
}

std::unique_ptr<Segment> trace_ways(const TraceRequest& request, std::string& why,
                                    const std::function<std::unique_ptr<Segment>(const TraceRequest&)>& trace_one) {
  for (const bool with_loops : {false, true}) {
    Ways ways(request, trace_one, with_loops);
    try {
      return ways.joined();
    } catch (const Apart& reason) {
      why = reason.why;
    }
    if (!ways.has_loops()) return nullptr;
  }
  return nullptr;
}

}  // namespace fj
