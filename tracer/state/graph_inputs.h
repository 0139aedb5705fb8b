/// The inputs of the graph.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "tracer/value.h"

namespace fj {

/// `sources` and `of_host` have an entry for each input, in order; `requiring_gradient` has the numbers of some.
struct GraphInputs {
  std::vector<std::shared_ptr<FakeStorage>> storages;  // of arrays from outside, inputs or not yet
  std::vector<SourceRef> sources;
  std::vector<bool> of_host;                       // it is in the host's memory
  std::vector<int> requiring_gradient;             // of the graph
  std::unordered_map<SourceRef, ValueId> numbers;  // Python numbers that are inputs
  std::vector<std::shared_ptr<FakeStorage>> written;  // in order of the first write
};

}  // namespace fj
