#include "tracer/join_ways.h"

#include <algorithm>
#include <climits>
#include <set>
#include <utility>

#include "graph_ir/control.h"

namespace fj {

void apart(std::string why) { throw Apart{std::move(why)}; }

bool same_node(const Node& a, const Node& b) {
  return a.op == b.op && a.operands == b.operands && a.results == b.results && a.attrs == b.attrs;
}

namespace {

using Event = TracedWay::Event;

class WayTree {
 public:
  using Here = std::map<ValueId, ValueId>;

  WayTree(const TracedWays& ways, const std::map<TracedWay::Exit, Decisions>& goes_on)
      : ways_(ways), goes_on_(goes_on) {}

  /// The way from its event `e` on; what it gives at its end.
  std::vector<ValueId> add_rest(Graph& graph, Here& here, const Traced& way, std::size_t e) const {
    const auto all = [&](const std::vector<ValueId>& values) {
      std::vector<ValueId> found;
      for (ValueId value : values) found.push_back(mapped(here, value));
      return found;
    };
    // A pass ends: whether another follows, the states, and by which exit the loop is left if there are several.
    const auto pass_end = [&](std::size_t number, bool again) {
      const std::vector<Behind> exits = behind(way, enters(way, number));
      std::vector<ValueId> values = all(given(way, number));
      values.insert(values.begin(), add_constant(graph, again));
      if (exits.size() == 1) return values;
      std::int64_t exit = 0;
      for (std::size_t k = 0; k < exits.size() && !again; ++k)
        if (exits[k].loop().exit == way.loops[number].exit) exit = std::int64_t(k);
      values.push_back(add_constant(graph, exit));
      return values;
    };
    if (e == way.events.size() && way.end == TracedWay::End::Return) return all(results(way));
    if (e == way.events.size()) return pass_end(way.ended, way.end == TracedWay::End::Again);
    const Event& event = way.events[e];
    if (event.kind == Event::Kind::Leave) return pass_end(event.loop, false);
    if (const Traced* going = event.kind == Event::Kind::Branch ? going_way(way, e) : nullptr) {
      const ValueId condition = mapped(here, event.condition);
      const bool wanted = going->events[e].outcome;
      const ValueId holds = wanted ? condition : graph.add(Op::logical_not, {condition}, {}, event.location);
      add_check(graph, holds, event.location);
      add_nodes(graph, here, *going, e + 1);
      return add_rest(graph, here, *going, e + 1);
    }
    if (event.kind == Event::Kind::Branch) {
      const std::set<ValueId> read = operands_at(way, e);
      const std::vector<ValueId> inputs(read.begin(), read.end());
      auto one = body(way, e + 1, inputs), other = body(other_way(way, e), e + 1, inputs);
      if (!event.outcome) std::swap(one, other);
      return add_branch(graph, mapped(here, event.condition), all(inputs), std::move(one), std::move(other),
                        event.location);
    }
    const std::vector<Behind> exits = behind(way, e);
    const std::vector<TracedWay::State>& states = way.loops[event.loop].states;
    std::vector<ValueId> before, inputs;
    std::vector<bool> wanted(states.size(), false);
    for (const Behind& next : exits) {
      if (raises(*next.way, next.event + 1)) continue;
      const std::set<ValueId> later = read_from(*next.way, next.event + 1);
      std::vector<bool> read;
      for (const TracedWay::State& state : next.loop().states) read.push_back(later.count(state.behind) != 0);
      check_given(next, read);
      for (std::size_t i = 0; i < read.size(); ++i) wanted[i] = wanted[i] || read[i];
    }
    for (const TracedWay::State& state : states) {
      before.push_back(mapped(here, state.before));
      inputs.push_back(state.inside);
    }
    if (exits.size() > 1) {
      before.push_back(add_constant(graph, std::int64_t{0}));
      inputs.push_back({});
      wanted.push_back(true);
    }
    for (ValueId value : read_in_pass(way, e)) before.push_back(mapped(here, value)), inputs.push_back(value);
    const std::vector<ValueId> behind_it =
        add_loop(graph, std::move(before), body(way, e + 1, inputs), std::move(wanted), event.location);
    if (std::none_of(behind_it.begin(), behind_it.end(), [](ValueId result) { return result.valid(); }))
      apart("its passes change nothing");
    std::vector<Behind> going;
    std::vector<std::int64_t> numbers;
    for (std::size_t k = 0; k < exits.size(); ++k) {
      if (!raises(*exits[k].way, exits[k].event + 1)) {
        going.push_back(exits[k]), numbers.push_back(std::int64_t(k));
      } else if (exits.size() > 1) {
        const ValueId number = add_constant(graph, std::int64_t(k));
        add_check(graph, graph.add(Op::ne, {behind_it.back(), number}, {}, event.location), event.location);
      }
    }
    if (going.empty()) apart("all that is behind a loop raises");
    return add_exits(graph, here, going, numbers, 0, behind_it);
  }

 private:
  static Decisions outcomes_before(const Traced& way, std::size_t e) {
    Decisions outcomes;
    for (std::size_t k = 0; k < e; ++k)
      if (way.events[k].kind == Event::Kind::Branch) outcomes.push_back(way.events[k].outcome);
    return outcomes;
  }

  /// The way that parts from this one at its event `e`, a branch.
  const Traced& other_way(const Traced& way, std::size_t e) const {
    Decisions decisions = outcomes_before(way, e);
    decisions.push_back(!way.events[e].outcome);
    const auto found = std::find_if(ways_.begin(), ways_.end(), [&](const auto& each) {
      const Decisions outcomes = outcomes_before(each.second, each.second.events.size());
      return outcomes.size() >= decisions.size() && std::equal(decisions.begin(), decisions.end(), outcomes.begin());
    });
    if (found == ways_.end() || found->second.events.size() <= e) apart("the ways differ before they part");
    const Traced& other = found->second;
    const Event &here = way.events[e], &there = other.events[e];
    const auto equal_until = [&](const std::vector<Node>& a, const std::vector<Node>& b) {
      return std::equal(a.begin(), a.begin() + std::ptrdiff_t(here.nodes), b.begin(),
                        b.begin() + std::ptrdiff_t(there.nodes), same_node);
    };
    if (here.condition != there.condition || here.nodes != there.nodes || here.values != there.values ||
        !equal_until(way.graph().nodes, other.graph().nodes))
      apart("the ways differ before they part");
    return other;
  }

  /// Where a way goes on behind a loop.
  struct Behind {
    const Traced* way;
    std::size_t event;  // Leave
    const TracedWay::Loop& loop() const { return way->loops[way->events[event].loop]; }
  };
  /// By exit, of the loop that this way enters at its event `e`.
  std::vector<Behind> behind(const Traced& way, std::size_t e) const {
    const std::size_t number = way.events[e].loop;
    const Decisions before = outcomes_before(way, e);
    std::vector<Behind> found;
    for (auto exit = goes_on_.lower_bound({before, number, INT_MIN}); exit != goes_on_.end(); ++exit) {
      if (std::get<0>(exit->first) != before || std::get<1>(exit->first) != number) break;
      const Traced& next = ways_.at(exit->second);
      std::size_t leave = e;
      while (next.events[leave].kind != Event::Kind::Leave || next.events[leave].loop != number) ++leave;
      found.push_back({&next, leave});
    }
    if (found.empty()) apart("no way leaves the loop");
    return found;
  }

  /// The event at which the way enters its loop `number`.
  static std::size_t enters(const Traced& way, std::size_t number) {
    std::size_t e = 0;
    while (way.events[e].kind != Event::Kind::Enter || way.events[e].loop != number) ++e;
    return e;
  }

  static std::size_t first_node(const Traced& way, std::size_t e) { return e == 0 ? 0 : way.events[e - 1].nodes; }
  static std::size_t last_node(const Traced& way, std::size_t e) {
    return e < way.events.size() ? way.events[e].nodes : way.graph().nodes.size();
  }

  /// Those whose results are made between two events.
  static std::vector<const Composite*> composites(const Traced& way, std::size_t e) {
    std::set<ValueId> made;
    for (std::size_t n = first_node(way, e); n < last_node(way, e); ++n)
      made.insert(way.graph().nodes[n].results.begin(), way.graph().nodes[n].results.end());
    std::vector<const Composite*> found;
    for (const Composite& composite : way.graph().composites)
      if (made.count(composite.result)) found.push_back(&composite);
    return found;
  }

  /// What a pass gives, by state; what it has not made stays.
  static std::vector<ValueId> given(const Traced& way, std::size_t loop) {
    std::vector<ValueId> values = way.loops[loop].given;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!values[i].valid()) values[i] = way.loops[loop].states[i].inside;
    return values;
  }

  static std::vector<ValueId> results(const Traced& way) {
    if (way.end != TracedWay::End::Return) return given(way, way.ended);
    std::vector<ValueId> values;
    for (const Output& output : way.graph().outputs) values.push_back(output.value);
    return values;
  }

  /// Whether every way from this event on raises.
  bool raises(const Traced& way, std::size_t e) const {
    if (e == way.events.size()) return way.end == TracedWay::End::Raise;
    return way.events[e].kind == Event::Kind::Branch && raises(way, e + 1) && raises(other_way(way, e), e + 1);
  }

  /// What the nodes between event `e` and the one before it, and all behind them, read that they do not make.
  std::set<ValueId> read_from(const Traced& way, std::size_t e) const {
    std::set<ValueId> read;
    const auto add = [&](const std::vector<ValueId>& values) { read.insert(values.begin(), values.end()); };
    if (e == way.events.size()) {
      add(results(way));
    } else if (const Event& event = way.events[e]; event.kind == Event::Kind::Leave) {
      add(given(way, event.loop));
    } else if (event.kind == Event::Kind::Branch) {
      if (const Traced* going = going_way(way, e))
        read = read_from(*going, e + 1);
      else
        read = operands_at(way, e);
      read.insert(event.condition);
    } else {
      const std::vector<TracedWay::State>& states = way.loops[event.loop].states;
      read = read_in_pass(way, e);
      for (const Behind& next : behind(way, e))
        if (!raises(*next.way, next.event + 1)) read.merge(read_behind(next));
      for (const TracedWay::State& state : states) read.insert(state.before);
    }
    for (std::size_t n = first_node(way, e); n < last_node(way, e); ++n) add(way.graph().nodes[n].operands);
    for (const Composite* composite : composites(way, e)) add(composite->operands), add(composite->kept);
    for (std::size_t n = first_node(way, e); n < last_node(way, e); ++n)
      for (ValueId result : way.graph().nodes[n].results) read.erase(result);
    return read;
  }

  /// Where the other way of a branch raises: the one that does not. Null: neither does.
  const Traced* going_way(const Traced& way, std::size_t e) const {
    const Traced& other = other_way(way, e);
    const bool here = raises(way, e + 1), there = raises(other, e + 1);
    if (here && there) apart("all that is behind a branch raises");
    return there ? &way : here ? &other : nullptr;
  }

  /// What a pass reads beside the states.
  std::set<ValueId> read_in_pass(const Traced& way, std::size_t e) const {
    std::set<ValueId> read = read_from(way, e + 1);
    for (const TracedWay::State& state : way.loops[way.events[e].loop].states) read.erase(state.inside);
    return read;
  }

  /// What a way that goes on behind a loop reads beside the states.
  std::set<ValueId> read_behind(const Behind& next) const {
    std::set<ValueId> read = read_from(*next.way, next.event + 1);
    for (const TracedWay::State& state : next.loop().states) read.erase(state.behind);
    return read;
  }

  /// What the two bodies of the branch at event `e` read.
  std::set<ValueId> operands_at(const Traced& way, std::size_t e) const {
    const Traced& other = other_way(way, e);
    std::set<ValueId> read = read_from(way, e + 1);
    read.merge(read_from(other, e + 1));
    for (ValueId value : read) {
      if (value.index >= way.events[e].values)
        apart("what a pass makes, other than arrays and numbers, is read behind it");
      if (way.graph().type(value) != other.graph().type(value)) apart("one way alone has found sizes to be equal");
    }
    return read;
  }

  static ValueId mapped(const Here& here, ValueId value) {
    const auto found = here.find(value);
    if (found == here.end()) apart("what a pass makes, other than arrays and numbers, is read behind it");
    return found->second;
  }

  /// Invalid: the exit by which a loop is left.
  static ValueId input(Graph& graph, const Graph& from, ValueId value) {
    if (!value.valid()) return graph.add_input("exit", {DType::I64, {}});
    std::string name = "v" + std::to_string(graph.inputs.size());
    for (const Input& input : from.inputs)
      if (input.value == value) name = input.name;
    return graph.add_input(std::move(name), from.type(value));
  }

  Graph body(const Traced& way, std::size_t e, const std::vector<ValueId>& inputs) const {
    Graph graph;
    graph.name = "body";
    graph.symbols = way.graph().symbols;
    Here here;
    for (ValueId value : inputs) {
      const ValueId made = input(graph, way.graph(), value);
      if (value.valid()) here[value] = made;
    }
    add_nodes(graph, here, way, e);
    for (ValueId result : add_rest(graph, here, way, e)) graph.outputs.push_back({result, std::nullopt});
    return graph;
  }

  void add_nodes(Graph& graph, Here& here, const Traced& way, std::size_t e) const {
    const Graph& from = way.graph();
    for (std::size_t n = first_node(way, e); n < last_node(way, e); ++n) {
      Node node = from.nodes[n];
      for (ValueId& operand : node.operands) operand = mapped(here, operand);
      for (ValueId& result : node.results) result = here[result] = graph.new_value(from.type(result));
      graph.nodes.push_back(std::move(node));
    }
    for (const Composite* of : composites(way, e)) {
      Composite composite = *of;
      for (ValueId& operand : composite.operands) operand = mapped(here, operand);
      for (ValueId& kept : composite.kept) kept = mapped(here, kept);
      composite.result = mapped(here, composite.result);
      graph.composites.push_back(std::move(composite));
    }
  }

  /// The ways that go on behind a loop, of those exits from `first` on. numbers: what the loop calls the exits; states:
  /// what it gives, and the exit by which it was left where there are several.
  std::vector<ValueId> add_exits(Graph& graph, Here& here, const std::vector<Behind>& exits,
                                 const std::vector<std::int64_t>& numbers, std::size_t first,
                                 const std::vector<ValueId>& states) const {
    if (first + 1 == exits.size()) {
      const Behind& next = exits[first];
      for (std::size_t i = 0; i < next.loop().states.size(); ++i)
        if (states[i].valid()) here[next.loop().states[i].behind] = states[i];
      add_nodes(graph, here, *next.way, next.event + 1);
      return add_rest(graph, here, *next.way, next.event + 1);
    }
    std::set<ValueId> read;
    for (std::size_t k = first; k < exits.size(); ++k) read.merge(read_behind(exits[k]));
    std::vector<ValueId> operands;
    for (ValueId value : read) operands.push_back(mapped(here, value));
    for (ValueId state : states)
      if (state.valid()) operands.push_back(state);
    const auto body_of = [&](const std::vector<Behind>& of, std::size_t from) {
      Graph body;
      body.name = "body";
      body.symbols = graph.symbols;
      Here inside;
      std::size_t next = 0;
      const auto given = [&] {
        const Type type = graph.type(operands[next]);
        return body.add_input("v" + std::to_string(next++), type);
      };
      for (ValueId value : read) inside[value] = given();
      std::vector<ValueId> of_loop(states.size());
      for (std::size_t i = 0; i < states.size(); ++i)
        if (states[i].valid()) of_loop[i] = given();
      for (ValueId result : add_exits(body, inside, of, numbers, from, of_loop))
        body.outputs.push_back({result, std::nullopt});
      return body;
    };
    Graph one = body_of({exits[first]}, 0), other = body_of(exits, first + 1);
    const ValueId number = add_constant(graph, numbers[first]);
    const ValueId is_first = graph.add(Op::eq, {states.back(), number});
    return add_branch(graph, is_first, std::move(operands), std::move(one), std::move(other),
                      exits[first].way->events[exits[first].event].location);
  }

  /// A variable that is read behind an exit (`wanted`, by state) has a value wherever the loop is left by that.
  void check_given(const Behind& next, const std::vector<bool>& wanted) const {
    const std::size_t number = next.way->events[next.event].loop;
    const Decisions before = outcomes_before(*next.way, enters(*next.way, number));
    for (const auto& [decisions, other] : ways_) {
      const Decisions outcomes = outcomes_before(other, other.events.size());
      if (other.end != TracedWay::End::Left || other.ended != number || outcomes.size() < before.size() ||
          !std::equal(before.begin(), before.end(), outcomes.begin()) ||
          other.loops[number].exit != next.loop().exit)
        continue;
      for (std::size_t i = 0; i < wanted.size(); ++i)
        if (wanted[i] && !other.loops[number].given[i].valid())
          apart("a variable may have no value behind the loop");
    }
  }

  const TracedWays& ways_;
  const std::map<TracedWay::Exit, Decisions>& goes_on_;
};

}  // namespace

std::vector<ValueId> add_ways(Graph& graph, const Traced& first, const TracedWays& ways,
                              const std::map<TracedWay::Exit, Decisions>& goes_on) {
  WayTree::Here here;
  for (std::uint32_t i = 0; i < first.events.at(0).values; ++i) here[ValueId{i}] = ValueId{i};
  return WayTree(ways, goes_on).add_rest(graph, here, first, 0);
}

}  // namespace fj
