#include "graph_ir/region/flow.h"

#include <algorithm>
#include <map>

namespace fj::region {

// The dominators are found as in Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001).
Flow::Flow(const Region& region)
    : before_(region.blocks.size()), place_(region.blocks.size(), -1), dominator_(region.blocks.size(), -1) {
  struct Open {
    int block, next = 0;
  };
  const auto target = [&](int block, int which) {
    const Terminator& end = region.blocks[std::size_t(block)].end;
    return which == 0 ? end.yes.block : end.no.block;
  };
  std::vector<char> seen(region.blocks.size());
  std::vector<Open> open{{0}};
  seen[0] = 1;
  while (!open.empty()) {
    Open& top = open.back();
    if (top.next == 2) {
      order_.push_back(top.block);
      open.pop_back();
      continue;
    }
    const int from = top.block, to = target(from, top.next++);
    if (to < 0) continue;
    before_[std::size_t(to)].push_back(from);
    if (!std::exchange(seen[std::size_t(to)], 1)) open.push_back({to});
  }
  std::reverse(order_.begin(), order_.end());
  for (std::size_t i = 0; i < order_.size(); ++i) place_[std::size_t(order_[i])] = int(i);
  const auto nearest_common = [&](int a, int b) {
    while (a != b) {
      int& later = place_[std::size_t(a)] > place_[std::size_t(b)] ? a : b;
      later = dominator_[std::size_t(later)];
    }
    return a;
  };
  dominator_[0] = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 1; i < order_.size(); ++i) {
      const auto at = std::size_t(order_[i]);
      int found = -1;
      for (int from : before_[at])
        if (dominator_[std::size_t(from)] >= 0) found = found < 0 ? from : nearest_common(found, from);
      changed = changed || found != dominator_[at];
      dominator_[at] = found;
    }
  }
}

bool Flow::dominates(int a, int b) const {
  if (!is_reached(b)) return true;
  if (!is_reached(a)) return false;
  while (place_[std::size_t(b)] > place_[std::size_t(a)]) b = dominator_[std::size_t(b)];
  return a == b;
}

std::vector<NaturalLoop> innermost_loops(const Flow& flow) {
  std::map<int, std::vector<char>> inside;  // by header
  for (int header : flow.order()) {
    std::vector<int> open;
    for (int from : flow.before(header))
      if (flow.dominates(header, from)) open.push_back(from);
    if (open.empty()) continue;
    std::vector<char>& blocks = inside[header];
    blocks.resize(std::size_t(*std::max_element(flow.order().begin(), flow.order().end())) + 1);
    blocks[std::size_t(header)] = 1;
    while (!open.empty()) {
      const int block = open.back();
      open.pop_back();
      if (std::exchange(blocks[std::size_t(block)], 1)) continue;
      open.insert(open.end(), flow.before(block).begin(), flow.before(block).end());
    }
  }
  std::vector<NaturalLoop> loops;
  for (const auto& [header, blocks] : inside) {
    const bool has_inner = std::any_of(inside.begin(), inside.end(), [&, own = header](const auto& other) {
      return other.first != own && inside.at(own)[std::size_t(other.first)];
    });
    if (has_inner) continue;
    NaturalLoop& loop = loops.emplace_back(NaturalLoop{header, {}});
    for (int block : flow.order())
      if (blocks[std::size_t(block)]) loop.blocks.push_back(block);
  }
  return loops;
}

}  // namespace fj::region
