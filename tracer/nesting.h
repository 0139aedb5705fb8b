/// The bound on what walks into containers: a container may hold itself, and has no end then.
#pragma once

#include "segment/break_reason.h"

namespace fj {

/// One exists while a function that calls itself for the items of a container looks at one of them. A graph break where
/// it is too deep; Python then says what becomes of it (a RecursionError, "..." in a text, or nothing unusual).
class Nesting {
 public:
  Nesting() {
    if (depth >= kDeepest) break_graph(BreakReason::UnsupportedObject, "containers in containers, or one in itself");
    ++depth;
  }
  ~Nesting() { --depth; }
  Nesting(const Nesting&) = delete;

 private:
  static constexpr int kDeepest = 200;  // levels, of all walks that are under way: no more than Python itself goes
  static inline thread_local int depth = 0;
};

}  // namespace fj
