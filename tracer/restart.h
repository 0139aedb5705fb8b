/// Rolling back by tracing again: how `trace` chooses the step to stop before.
#pragma once

#include <string>

namespace fj {

/// Thrown by the exit builder: a live value can't be handed back to Python; it was made at outer step `born`.
struct CannotRebuildValue {
  int born;
  std::string what;
};

}  // namespace fj
