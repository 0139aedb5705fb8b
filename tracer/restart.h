/// Rolling back by tracing again: how `trace` chooses the step to stop before.
#pragma once

#include <string>

#include "segment/segment.h"

namespace fj {

/// A live value can't be handed back to Python, or is not exactly what Python would have made; it was made at outer
/// step `born`.
struct CannotRebuildValue {
  int born;
  std::string what;
  BreakReason reason = BreakReason::CannotRebuild;
};

/// Something was learnt (and remembered) that makes the trace another one from its start.
struct TraceAgain {};

}  // namespace fj
