/// The device of the graph and of what is being made.
#pragma once

#include <optional>

#include "tracer/value.h"

namespace fj {

/// A program runs on one device; numbers of the host may be among its inputs.
struct Placement {
  bool on_device() const { return graph.value_or(kHost) != kHost; }

  std::optional<int> graph;                        // where its arrays are, once that is known
  int made_on = kHost;                             // where what is being made will be (DeviceScope)
  bool made_of_arrays = false;
  int scopes = 0;
};

}  // namespace fj
