/// How a library's autograd collects a gradient: what a tensor's `_version` tells of it.
///
///     y = x * x + x.exp()      # three gradients arrive at x: the first is new memory, the second is added to it, so
///     is the third: 2 y = x + x                # both are the tensor that arrived at y: their sum is a new one: 0
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "graph_ir/autodiff/autodiff.h"

namespace fj {

/// A gradient that repeats elements of a smaller one: as a broadcast by `dims`.
struct Repeat {
  ValueId source;
  std::vector<std::int64_t> dims;
};

/// By the last `levels` nodes that made the gradient.
Repeat repeat_of(const Graph& graph, ValueId gradient, int levels);

class Collected {
 public:
  /// `steps`: of one derivative; what they give is in `graph`. All must live longer.
  Collected(const Graph& graph, const std::vector<BackwardStep>& steps, const Copies& copies);
  /// How often what arrives at a value is added to in place: to the first if it is new memory that nobody else has, and
  /// to every sum.
  int additions_in_place(ValueId wanted) const;
  /// A library gives the gradient as a view of one with fewer elements, that perhaps as a view of one with still fewer:
  /// how many views.
  int views_that_repeat(ValueId gradient) const;
  /// The one gradient that arrives is a cotangent that was given, which sums, remainders and copies have handed on: a
  /// library gives that very tensor. Invalid: it is another one.
  ValueId passed_on(ValueId wanted) const;
  /// A leaf does not keep the one gradient that arrives, but copies it: one that repeats elements, or that somebody
  /// else has.
  bool is_copied(ValueId leaf) const;

 private:
  bool is_own(ValueId gradient) const;

  const Graph& graph_;
  std::map<ValueId, std::vector<ValueId>> parts_;  // by value: what arrives, in order
  std::map<ValueId, std::vector<ValueId>> holders_;  // by gradient: whose part it is until all of it has arrived
  std::map<std::pair<ValueId, ValueId>, ValueId>
      passed_by_;  // by value and what it is given: the result it is given for
  const Copies& copies_;
  std::set<ValueId>
      by_inner_;  // gradients that inner values have given: the function that these are in makes them in new memory
  std::map<ValueId, std::size_t> node_of_;
};

}  // namespace fj
