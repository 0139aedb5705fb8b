/// How a derivative falls into the nodes of a library's own graph of derivatives.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "graph_ir/autodiff/autodiff.h"

namespace fj {

/// A derivative in parts that can be run and freed one by one where eager's nodes can: the cotangent of each value in
/// `of` is complete between two parts, and what several of them are computed from has a part that all of these lead to.
/// Operations whose derivative reads nothing are not kept apart: each part that needs them has its own.
struct DerivativePart {
  std::vector<ValueId> results;  // one value of `of`, or such as several of these are computed from
  std::vector<ValueId> sources;  // wanted values, and results of other parts
};
struct DerivativeParts {
  std::vector<DerivativePart> all;  // each after those whose results are its sources
  std::map<ValueId, int> of;     // the part that a value's cotangent is in, if it is in one
};
DerivativeParts parts_of(const Joint& joint, std::span<const ValueId> wanted, std::span<const ValueId> of);

}  // namespace fj
