#include "codegen/schedule/group_order.h"

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/base/error.h"

namespace fj {

namespace {

// Bytes of temporaries from which their order in time is looked at: a core's cache.
constexpr double kWorthOrdering = double(1 << 20);

/// Topological; among the ready ones the group whose earliest value comes first in the graph.
std::vector<int> graph_order(const Schedule& schedule, const std::vector<int>& key) {
  const int count = int(schedule.groups.size());
  std::vector<int> waiting(count), order;
  for (const Group& g : schedule.groups)
    for (int reader : g.readers) ++waiting[reader];
  std::set<std::pair<int, int>> ready;
  for (int g = 0; g < count; ++g)
    if (waiting[g] == 0) ready.emplace(key[g], g);
  while (!ready.empty()) {
    const int next = ready.begin()->second;
    ready.erase(ready.begin());
    order.push_back(next);
    for (int reader : schedule.groups[next].readers)
      if (--waiting[reader] == 0) ready.emplace(key[reader], reader);
  }
  FJ_CHECK(int(order.size()) == count, "groups depend on each other in a circle");
  return order;
}

/// Topological; what somebody reads comes when it is first read. What a backward computes again of its forward, which
/// the graph has at its beginning, need not be in memory until then.
std::vector<int> demand_order(const Schedule& schedule, const std::vector<int>& key) {
  const int count = int(schedule.groups.size());
  std::vector<std::vector<int>> sources(count);
  std::vector<int> ends, order;
  for (int g = 0; g < count; ++g) {
    for (int reader : schedule.groups[g].readers) sources[reader].push_back(g);
    if (schedule.groups[g].readers.empty()) ends.push_back(g);
  }
  const auto earlier = [&](int a, int b) { return std::pair(key[a], a) < std::pair(key[b], b); };
  std::sort(ends.begin(), ends.end(), earlier);
  // What comes last in the graph is computed first: the others are read by it too, or are not needed before.
  for (auto& list : sources) std::sort(list.begin(), list.end(), [&](int a, int b) { return earlier(b, a); });
  std::vector<std::size_t> looked_at(count);
  std::vector<bool> met(count);
  std::vector<int> path;
  for (int end : ends) {
    path.push_back(end);
    while (!path.empty()) {
      const int g = path.back();
      met[g] = true;
      if (looked_at[g] == sources[g].size()) {
        order.push_back(g);
        path.pop_back();
      } else if (const int source = sources[g][looked_at[g]++]; !met[source]) {
        path.push_back(source);
      }
    }
  }
  return order;
}

/// The most that temporaries take at one time, about: sizes are those of now, results of a group live until all its
/// readers have run.
double most_bytes(const Graph& graph, const Schedule& schedule, const std::vector<int>& order) {
  const std::vector<std::int64_t> hints = symbol_hints(graph.symbols);
  std::vector<bool> is_output(schedule.node_of.size());
  for (const Output& output : graph.outputs) is_output[output.value.index] = true;
  std::vector<double> bytes(order.size());
  std::vector<int> waiting(order.size());
  std::vector<std::vector<int>> sources(order.size());
  for (std::size_t g = 0; g < order.size(); ++g) {
    for (ValueId value : schedule.groups[g].stores) {
      if (is_output[value.index]) continue;
      double size = double(size_in_bytes(graph.type(value).dtype));
      for (const SymDim& dim : graph.type(value).shape) size *= double(dim.evaluate(hints));
      bytes[g] += size;
    }
    waiting[g] = int(schedule.groups[g].readers.size());
    for (int reader : schedule.groups[g].readers) sources[std::size_t(reader)].push_back(int(g));
  }
  double now = 0, most = 0;
  for (int g : order) {
    now += bytes[std::size_t(g)];
    most = std::max(most, now);
    if (waiting[std::size_t(g)] == 0) now -= bytes[std::size_t(g)];
    for (int source : sources[std::size_t(g)])
      if (--waiting[std::size_t(source)] == 0) now -= bytes[std::size_t(source)];
  }
  return most;
}

}  // namespace

void order_groups(const Graph& graph, Schedule& schedule) {
  const int count = int(schedule.groups.size());
  std::vector<int> key(count, -1), position(count, -1);
  for (int g = 0; g < count; ++g) {
    key[g] = schedule.groups[g].node;
    for (ValueId value : schedule.groups[g].stores) key[g] = std::max(key[g], schedule.node_of[value.index]);
  }
  std::vector<int> order = graph_order(schedule, key);
  // The order of the graph is that of the user's program; what fits the cache is not worth another one.
  if (const double most = most_bytes(graph, schedule, order); most > kWorthOrdering)
    if (std::vector<int> other = demand_order(schedule, key); most_bytes(graph, schedule, other) < 0.9 * most)
      order = std::move(other);
  std::vector<Group> sorted;
  for (int g : order) {
    position[g] = int(sorted.size());
    sorted.push_back(schedule.groups[g]);
  }
  for (Group& g : sorted) {
    for (int& reader : g.readers) reader = position[reader];
    const auto earlier = [&](ValueId a, ValueId b) { return schedule.node_of[a.index] < schedule.node_of[b.index]; };
    std::sort(g.stages.begin(), g.stages.end(), earlier);
    std::sort(g.stores.begin(), g.stores.end(), earlier);
  }
  for (int& producer : schedule.producer)
    if (producer >= 0) producer = position[producer];
  schedule.groups = std::move(sorted);
}

}  // namespace fj
