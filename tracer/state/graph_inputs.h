/// The inputs of the graph.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "tracer/value.h"

namespace fj {

/// The first four have an entry for each input, in order.
struct GraphInputs {
  std::vector<std::shared_ptr<FakeStorage>> storages;
  std::vector<SourceRef> sources;
  std::vector<bool> of_host;                       // it is in the host's memory
  std::vector<int> requiring_gradient;             // of the graph
  std::unordered_map<SourceRef, ValueId> numbers;  // Python numbers that are inputs
  std::vector<std::shared_ptr<FakeStorage>> written;  // in order of the first write
};

}  // namespace fj
