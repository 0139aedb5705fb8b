#include "tracer/branches.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "cpython/ref.h"
#include "graph_ir/verify.h"
#include "guards/guard_set.h"
#include "segment/segment.h"
#include "tracer/gradients/graph_transforms.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/state/placement.h"
#include "tracer/state/transform_ledger.h"

namespace fj {
namespace {

/// Why ways can't be joined.
struct Apart {
  std::string why;
};

[[noreturn]] void apart(std::string why) { throw Apart{std::move(why)}; }

/// A way that was traced.
struct Traced {
  std::unique_ptr<Segment> segment;
  std::vector<TracedWay::Branch> met;
  const Graph& graph() const { return *segment->graph; }
};

using Decisions = std::vector<bool>;

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
  return a.slots == b.slots && a.keep == b.keep && a.let_go == b.let_go && a.result == b.result &&
         std::equal(a.steps.begin(), a.steps.end(), b.steps.begin(), b.steps.end(), same_step);
}

bool same_node(const Node& a, const Node& b) {
  return a.op == b.op && a.operands == b.operands && a.results == b.results && a.attrs == b.attrs;
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
  Ways(const TraceRequest& request,
       const std::function<std::unique_ptr<Segment>(const TraceRequest&)>& trace_one)
      : request_(request), trace_one_(trace_one), sources_(std::make_shared<SourceTable>()) {}

  std::unique_ptr<Segment> joined() {
    explore({});
    if (read_otherwise()) {
      ways_.clear();
      explore({});
    }
    const Traced& first = ways_.at({});
    if (first.met.empty()) apart("no way meets it");
    for (const auto& [decisions, way] : ways_) check(first, way);
    TracedWay way{sources_, {}, inputs_, {}, {}};
    way.join = [&](Graph& graph, GuardSet& guards, Segment& segment) { join(graph, guards, segment); };
    return traced(way, request_.edit);
  }

 private:
  std::unique_ptr<Segment> traced(TracedWay& way, const decltype(TraceRequest::edit)& edit) {
    TraceRequest one = request_;
    one.way = &way;
    one.edit = edit;
    auto segment = trace_one_(one);
    if (segment->exit.kind != Exit::Kind::Return || !segment->graph) {
      const std::string& detail = segment->exit.detail;
      apart(detail.empty() ? "one way computes no array" : "one way ends where " + detail);
    }
    return segment;
  }

  void explore(const Decisions& decisions) {
    if (ways_.size() == kMostWays) apart("there are more than " + std::to_string(kMostWays) + " ways");
    TracedWay way{sources_, decisions, inputs_, {}, {}};
    decltype(TraceRequest::edit) nothing;
    if (request_.edit) nothing = [](Segment&, const GuardSet&, const SourceTable&) { return false; };
    auto segment = traced(way, nothing);
    Decisions outcomes;
    for (const TracedWay::Branch& branch : way.met) outcomes.push_back(branch.outcome);
    if (outcomes.size() < decisions.size()) apart("the ways differ before they part");
    ways_.emplace(decisions, Traced{std::move(segment), std::move(way.met)});
    for (std::size_t i = decisions.size(); i < outcomes.size(); ++i) {
      Decisions other(outcomes.begin(), outcomes.begin() + std::ptrdiff_t(i));
      other.push_back(false);
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
               return way.met.empty() || input.value.index < way.met[0].values;
             });
    };
    if (std::all_of(ways_.begin(), ways_.end(), [&](const auto& way) { return reads_first(way.second); })) return false;
    for (const auto& [decisions, way] : ways_)
      for (SourceRef source : way.segment->inputs)
        if (std::find(inputs_.begin(), inputs_.end(), source) == inputs_.end()) inputs_.push_back(source);
    return true;
  }

  void check(const Traced& first, const Traced& way) const {
    const Segment &a = *first.segment, &b = *way.segment;
    if (b.inputs != a.inputs) apart("one way reads an array that another can't");
    if (!b.graph->writes.empty() || !b.input_versions.empty()) apart("an array from outside is written");
    if (!same_recipe(a.recipe, b.recipe))
      apart("the ways return, or change, other things than arrays made anew of the same number and kinds");
    if (!std::equal(a.graph->symbols.begin(), a.graph->symbols.end(), b.graph->symbols.begin(), b.graph->symbols.end(),
                    same_symbol))
      apart("one way has sizes that another has not");
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
    if (way.met.empty()) return;
    for (std::size_t n = way.met[0].nodes; n < b.graph->nodes.size(); ++n) {
      const Node& node = b.graph->nodes[n];
      if (node.op == Op::extern_call)
        apart("`" + node.attrs.get<std::string>("callee") + "` is called behind it, which only the library computes");
      for (SymbolId symbol : symbols_used(*b.graph, node))
        if (b.graph->symbols[symbol.index].late) apart("a size that depends on data is counted behind it");
    }
  }

  /// The way that parts from this one at its branch `i`.
  const Traced& other_way(const Traced& way, std::size_t i) const {
    Decisions decisions;
    for (std::size_t k = 0; k < i; ++k) decisions.push_back(way.met[k].outcome);
    decisions.push_back(!way.met[i].outcome);
    const Traced& other = ways_.at(decisions);
    if (other.met.size() <= i) apart("the ways differ before they part");
    const TracedWay::Branch &here = way.met[i], &there = other.met[i];
    const auto equal_until = [&](const std::vector<Node>& a, const std::vector<Node>& b) {
      return std::equal(a.begin(), a.begin() + std::ptrdiff_t(here.nodes), b.begin(),
                        b.begin() + std::ptrdiff_t(there.nodes), same_node);
    };
    if (here.condition != there.condition || here.nodes != there.nodes || here.values != there.values ||
        !equal_until(way.graph().nodes, other.graph().nodes))
      apart("the ways differ before they part");
    return other;
  }

  static std::size_t first_node(const Traced& way, std::size_t i) { return i == 0 ? 0 : way.met[i - 1].nodes; }
  static std::size_t last_node(const Traced& way, std::size_t i) {
    return i < way.met.size() ? way.met[i].nodes : way.graph().nodes.size();
  }

  /// Those whose results are made between two branches.
  static std::vector<const Composite*> composites(const Traced& way, std::size_t i) {
    std::set<ValueId> made;
    for (std::size_t n = first_node(way, i); n < last_node(way, i); ++n)
      made.insert(way.graph().nodes[n].results.begin(), way.graph().nodes[n].results.end());
    std::vector<const Composite*> found;
    for (const Composite& composite : way.graph().composites)
      if (made.count(composite.result)) found.push_back(&composite);
    return found;
  }

  /// What the nodes between two branches, and all behind the second, read that they do not make.
  std::set<ValueId> read_from_before(const Traced& way, std::size_t i) const {
    std::set<ValueId> read;
    if (i < way.met.size()) {
      read = operands_at(way, i);
      read.insert(way.met[i].condition);
    } else {
      for (const Output& output : way.graph().outputs) read.insert(output.value);
    }
    for (std::size_t n = first_node(way, i); n < last_node(way, i); ++n)
      for (ValueId operand : way.graph().nodes[n].operands) read.insert(operand);
    for (const Composite* composite : composites(way, i)) {
      read.insert(composite->operands.begin(), composite->operands.end());
      read.insert(composite->kept.begin(), composite->kept.end());
    }
    for (std::size_t n = first_node(way, i); n < last_node(way, i); ++n)
      for (ValueId result : way.graph().nodes[n].results) read.erase(result);
    return read;
  }

  /// What the two bodies of branch `i` read.
  std::set<ValueId> operands_at(const Traced& way, std::size_t i) const {
    const Traced& other = other_way(way, i);
    std::set<ValueId> read = read_from_before(way, i + 1);
    read.merge(read_from_before(other, i + 1));
    for (ValueId value : read)
      if (way.graph().type(value) != other.graph().type(value)) apart("one way alone has found sizes to be equal");
    return read;
  }

  std::vector<std::shared_ptr<const Graph>> bodies(const Traced& way, std::size_t i,
                                                   const std::set<ValueId>& operands) const {
    auto one = body(way, i + 1, operands), other = body(other_way(way, i), i + 1, operands);
    if (!way.met[i].outcome) std::swap(one, other);
    return {std::move(one), std::move(other)};
  }

  std::shared_ptr<const Graph> body(const Traced& way, std::size_t i, const std::set<ValueId>& inputs) const {
    const Graph& from = way.graph();
    auto graph = std::make_shared<Graph>();
    graph->name = "branch";
    graph->symbols = from.symbols;
    std::map<ValueId, ValueId> here;
    for (ValueId value : inputs) {
      std::string name = "v" + std::to_string(here.size());
      for (const Input& input : from.inputs)
        if (input.value == value) name = input.name;
      here[value] = graph->add_input(std::move(name), from.type(value));
    }
    for (std::size_t n = first_node(way, i); n < last_node(way, i); ++n) {
      Node node = from.nodes[n];
      for (ValueId& operand : node.operands) operand = here.at(operand);
      for (ValueId& result : node.results) result = here[result] = graph->new_value(from.type(result));
      graph->nodes.push_back(std::move(node));
    }
    for (const Composite* of : composites(way, i)) {
      Composite composite = *of;
      for (ValueId& operand : composite.operands) operand = here.at(operand);
      for (ValueId& kept : composite.kept) kept = here.at(kept);
      composite.result = here.at(composite.result);
      graph->composites.push_back(std::move(composite));
    }
    if (i == way.met.size()) {
      for (const Output& output : from.outputs) graph->outputs.push_back({here.at(output.value), std::nullopt});
      return graph;
    }
    const std::set<ValueId> operands = operands_at(way, i);
    std::vector<ValueId> given = {here.at(way.met[i].condition)};
    for (ValueId operand : operands) given.push_back(here.at(operand));
    for (ValueId result : graph->add_control(Op::cond, std::move(given), bodies(way, i, operands), way.met[i].location))
      graph->outputs.push_back({result, std::nullopt});
    return graph;
  }

  /// The graph is that of the first way, traced once more.
  void join(Graph& graph, GuardSet& guards, Segment& segment) const {
    const Traced& first = ways_.at({});
    const TracedWay::Branch& branch = first.met.at(0);
    if (graph.nodes.size() < branch.nodes ||
        !std::equal(graph.nodes.begin(), graph.nodes.begin() + std::ptrdiff_t(branch.nodes),
                    first.graph().nodes.begin(), same_node))
      apart("the ways differ before they part");
    const std::set<ValueId> operands = operands_at(first, 0);
    std::vector<ValueId> given = {branch.condition};
    given.insert(given.end(), operands.begin(), operands.end());
    graph.nodes.resize(branch.nodes, Node{});
    const auto gone = [&](ValueId value) { return value.index >= branch.values; };
    std::erase_if(graph.composites, [&](const Composite& composite) { return gone(composite.result); });
    std::erase_if(graph.names, [&](const auto& named) { return gone(named.first); });
    std::erase_if(graph.spare_calls, gone);
    const std::vector<ValueId> results = graph.add_control(Op::cond, std::move(given), bodies(first, 0, operands), branch.location);
    for (std::size_t i = 0; i < results.size(); ++i) graph.outputs[i].value = results[i];
    if (const std::vector<VerifyError> errors = verify(graph); !errors.empty()) apart(errors[0].message);
    for (const auto& [decisions, way] : ways_) {
      guards.add_all(*way.segment->guards);
      for (SourceRef source : way.segment->lie_as_traced)
        if (std::find(segment.lie_as_traced.begin(), segment.lie_as_traced.end(), source) ==
            segment.lie_as_traced.end())
          segment.lie_as_traced.push_back(source);
      for (int output : way.segment->laid_outputs)
        if (std::find(segment.laid_outputs.begin(), segment.laid_outputs.end(), output) == segment.laid_outputs.end())
          segment.laid_outputs.push_back(output);
      for (const Segment::AutogradAnswer& answer : way.segment->autograd_as_traced)
        segment.autograd_as_traced.push_back(answer);
      segment.collects |= way.segment->collects;
    }
  }

  const TraceRequest& request_;
  const std::function<std::unique_ptr<Segment>(const TraceRequest&)>& trace_one_;
  const std::shared_ptr<SourceTable> sources_;
  std::vector<SourceRef> inputs_;
  std::map<Decisions, Traced> ways_;  // by the decisions that they were traced for
};

}  // namespace

bool take_way(TraceRun& t, ValueId condition) {
  if (t.placement->on_device() || t.transforms->depth > 0 || !t.transforms->of_torch.empty())
    break_graph(BreakReason::BranchOnData, "`" + t.source_text() + "` branches on data");
  TracedWay& way = *t.request.way;
  const std::size_t i = way.met.size();
  if (i + 1 >= kMostWays)
    break_graph(BreakReason::BranchOnData,
                "`" + t.source_text() + "` is a branch behind " + std::to_string(i) + " others");
  const bool outcome = i >= way.decisions.size() || way.decisions[i];
  way.met.push_back({condition, outcome, t.graph().nodes.size(), t.graph().value_count(), t.location()});
  return outcome;
}

std::unique_ptr<Segment> trace_ways(const TraceRequest& request, std::string& why,
                                    const std::function<std::unique_ptr<Segment>(const TraceRequest&)>& trace_one) {
  try {
    return Ways(request, trace_one).joined();
  } catch (const Apart& reason) {
    why = reason.why;
    return nullptr;
  }
}

}  // namespace fj
