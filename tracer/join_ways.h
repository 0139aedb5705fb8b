/// Ways through a function, each traced by itself, as one graph: what they share up to a branch, and what is behind it
/// in bodies (branches.h).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "segment/segment.h"
#include "tracer/branches.h"

namespace fj {

/// Why ways can't be joined.
struct Apart {
  std::string why;
};
[[noreturn]] void apart(std::string why);

using Decisions = std::vector<bool>;

/// A way that was traced.
struct Traced {
  std::unique_ptr<Segment> segment;
  std::vector<TracedWay::Event> events;
  std::vector<TracedWay::Loop> loops;
  TracedWay::End end;
  std::size_t ended;
  const Graph& graph() const { return *segment->graph; }
};
using TracedWays = std::map<Decisions, Traced>;  // by the decisions that they were traced for

bool same_node(const Node& a, const Node& b);

/// Puts into `graph`, which has the nodes of `first` up to its first event, what is behind that on all ways. Results:
/// as the ways return them. goes_on: by exit of a loop, the way that goes on there. Throws Apart.
std::vector<ValueId> add_ways(Graph& graph, const Traced& first, const TracedWays& ways,
                              const std::map<TracedWay::Exit, Decisions>& goes_on);

}  // namespace fj
