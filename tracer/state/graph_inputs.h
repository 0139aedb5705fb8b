/// The inputs of the graph.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "tracer/value.h"

namespace fj {

/// `sources` and `of_host` have an entry for each input, in order; `requiring_gradient` has the positions of some.
struct GraphInputs {
  std::vector<std::shared_ptr<FakeStorage>> storages;  // of arrays from outside, inputs or not yet
  std::vector<SourceRef> sources;
  std::vector<bool> of_host;                       // whether the input is in the host's memory
  std::vector<int> requiring_gradient;             // positions in the graph's inputs
  std::unordered_map<SourceRef, ValueId> numbers;  // Python floats and NumPy scalars that are inputs
  std::vector<std::shared_ptr<FakeStorage>> written;  // of `storages`, in order of the first write
};

}  // namespace fj
