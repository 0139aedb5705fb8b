/// The device of the graph, and of the arrays that are being made.
#pragma once

#include <optional>

#include "tracer/value.h"

namespace fj {

/// A program runs on one device; numbers of the host may be among its inputs.
struct Placement {
  bool on_device() const { return graph.value_or(kHost) != kHost; }

  std::optional<int> graph;                        // where its arrays are; empty: no array has decided it yet
  int made_on = kHost;                             // where new arrays are (DeviceScope)
  bool made_of_arrays = false;                     // of arrays, not of numbers alone
  int scopes = 0;                                  // DeviceScopes that are open
};

}  // namespace fj
