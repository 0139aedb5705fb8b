// A derivative in parts.
//
// What decides where a value belongs is the set of results (values of `of`) that it leads to without passing another
// one: values with the same set are one part. A result is the only one in its own, but that what one call derives
// together has the sets of all of it. Since a value's set holds the sets of all that is computed from it, or these begin
// with a result, no part needs what comes of it. And every operation of a part is on the way back from each of the
// part's set: what a backward frees is what eager's would.
#include "graph_ir/autodiff/autodiff_parts.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

namespace fj {
namespace {

/// Sets of results, by number.
class Sets {
 public:
  int of(std::vector<int> members) {
    const auto [known, fresh] = numbers_.try_emplace(std::move(members), int(sets_.size()));
    if (fresh) sets_.push_back(&known->first);
    return known->second;
  }
  int united(int a, int b) {
    if (a == b) return a;
    const auto [known, fresh] = unions_.try_emplace(std::minmax(a, b), -1);
    if (fresh) {
      std::vector<int> members;
      std::set_union(sets_[std::size_t(a)]->begin(), sets_[std::size_t(a)]->end(), sets_[std::size_t(b)]->begin(),
                     sets_[std::size_t(b)]->end(), std::back_inserter(members));
      known->second = of(std::move(members));
    }
    return known->second;
  }
  std::size_t size(int number) const { return sets_[std::size_t(number)]->size(); }

 private:
  std::map<std::vector<int>, int> numbers_;
  std::vector<const std::vector<int>*> sets_;
  std::map<std::pair<int, int>, int> unions_;
};

void add_once(std::vector<ValueId>& list, ValueId value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

/// Each part after those whose results are its sources.
DerivativeParts sorted(DerivativeParts parts, const std::set<ValueId>& given) {
  const std::size_t count = parts.all.size();
  std::vector<int> place(count, -1);
  std::vector<bool> entered(count, false);
  DerivativeParts result;
  std::vector<std::size_t> open;
  for (std::size_t first = 0; first < count; ++first) {
    open.push_back(first);
    while (!open.empty()) {
      const std::size_t part = open.back();
      if (!entered[part]) {
        entered[part] = true;
        for (ValueId source : parts.all[part].sources)
          if (!given.count(source))
            if (const auto from = std::size_t(parts.of.at(source)); !entered[from]) open.push_back(from);
        continue;
      }
      open.pop_back();
      if (place[part] >= 0) continue;
      place[part] = int(result.all.size());
      result.all.push_back(std::move(parts.all[part]));
    }
  }
  for (const auto& [value, part] : parts.of) result.of.emplace(value, place[std::size_t(part)]);
  return result;
}

/// The ends behind values that get no cotangent: what a node of the library's graph leads to, though nothing comes of
/// it.
class Behind {
 public:
  Behind(const Joint& joint, std::span<const ValueId> wanted, const std::function<bool(ValueId)>& is_end)
      : graph_(joint.graph), needs_(gradient_flow(joint.graph, wanted)), is_end_(is_end) {
    for (const Node& node : graph_.nodes)
      for (ValueId result : node.results) operands_[result] = &node.operands;
    for (const Composite& composite : graph_.composites) operands_[composite.result] = &composite.operands;
  }
  std::vector<ValueId> ends(ValueId operand) {
    std::vector<ValueId> found, open{operand};
    std::set<ValueId> seen;
    while (!open.empty()) {
      const ValueId value = open.back();
      open.pop_back();
      if (!needs_[value.index] || !seen.insert(value).second) continue;
      if (is_end_(value)) found.push_back(value);
      else if (const auto known = operands_.find(value); known != operands_.end())
        open.insert(open.end(), known->second->begin(), known->second->end());
    }
    return found;
  }

 private:
  const Graph& graph_;
  const std::vector<bool> needs_;
  const std::function<bool(ValueId)>& is_end_;
  std::map<ValueId, const std::vector<ValueId>*> operands_;
};

}  // namespace

DerivativeParts parts_of(const Joint& joint, std::span<const ValueId> wanted, std::span<const ValueId> of) {
  const std::set<ValueId> given(wanted.begin(), wanted.end()), results(of.begin(), of.end());
  const std::function<bool(ValueId)> is_end = [&](ValueId value) {
    return given.count(value) > 0 || results.count(value) > 0;
  };
  std::optional<Behind> search;
  Sets sets;
  std::vector<int> leads_to(joint.forward_values, -1);
  for (std::size_t i = 0; i < of.size(); ++i) leads_to[of[i].index] = sets.of({int(i)});
  std::map<ValueId, std::vector<ValueId>> behind;  // by a step's result: ends behind operands that get no cotangent
  for (const BackwardStep& step : joint.steps) {
    // What is derived by one call is one part; all that is computed from it has been passed.
    for (ValueId other : step.together)
      leads_to[step.result.index] = sets.united(leads_to[step.result.index], leads_to[other.index]);
    for (ValueId other : step.together) leads_to[other.index] = leads_to[step.result.index];
    for (std::size_t i = 0; i < step.into.size(); ++i) {
      const ValueId value = step.into[i];
      if (!step.given[i].valid()) {
        if (!search) search.emplace(joint, wanted, is_end);
        for (ValueId end : search->ends(value)) behind[step.result].push_back(end);
      } else if (!is_end(value)) {
        int& set = leads_to[value.index];
        set = set < 0 ? leads_to[step.result.index] : sets.united(set, leads_to[step.result.index]);
      }
    }
  }
  // What several parts need and reads nothing, back to sources.
  std::map<ValueId, std::vector<ValueId>> shared;  // with the sources it leads to
  for (auto step = joint.steps.rbegin(); step != joint.steps.rend(); ++step) {
    if (step->reads || behind.count(step->result) || is_end(step->result) ||
        sets.size(leads_to[step->result.index]) == 1)
      continue;
    if (!std::all_of(step->into.begin(), step->into.end(),
                     [&](ValueId value) { return is_end(value) || shared.count(value); }))
      continue;
    std::vector<ValueId>& sources = shared[step->result];
    for (ValueId value : step->into) {
      if (is_end(value)) add_once(sources, value);
      else for (ValueId source : std::vector<ValueId>(shared[value])) add_once(sources, source);
    }
  }
  DerivativeParts parts;
  std::map<int, int> numbers;  // by set
  auto part_of = [&](ValueId value) {
    const auto [known, fresh] = numbers.try_emplace(leads_to[value.index], int(parts.all.size()));
    if (fresh) parts.all.emplace_back();
    parts.of.emplace(value, known->second);
    return known->second;
  };
  for (ValueId value : results) add_once(parts.all[std::size_t(part_of(value))].results, value);
  for (ValueId value : results)
    if (given.count(value)) add_once(parts.all[std::size_t(parts.of.at(value))].sources, value);
  for (const BackwardStep& step : joint.steps) {
    if (shared.count(step.result)) continue;
    const int number = part_of(step.result);
    if (const auto ends = behind.find(step.result); ends != behind.end())
      for (ValueId end : ends->second) add_once(parts.all[std::size_t(number)].sources, end);
    for (std::size_t i = 0; i < step.into.size(); ++i) {
      const ValueId value = step.into[i];
      if (!step.given[i].valid()) continue;
      if (auto through = shared.find(value); through != shared.end()) {
        for (ValueId source : through->second) add_once(parts.all[std::size_t(number)].sources, source);
        continue;
      }
      if (!is_end(value)) {
        const int from = part_of(value);
        if (from == number) continue;
        add_once(parts.all[std::size_t(from)].results, value);
      }
      add_once(parts.all[std::size_t(number)].sources, value);
    }
  }
  // In the order of values, as they are wanted and made.
  for (DerivativePart& part : parts.all)
    for (std::vector<ValueId>* list : {&part.results, &part.sources}) std::sort(list->begin(), list->end());
  return sorted(std::move(parts), given);
}

}  // namespace fj
