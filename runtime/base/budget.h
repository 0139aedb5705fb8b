/// How much work compiling one piece may be. Counted in steps, not in time, so that it is the same everywhere.
///
/// Each walk of the compiler over a graph, a schedule or loop expressions is meant to be linear; one that turns out not
/// to be must not hang whoever calls the function. A step is one operation, use or expression that is looked at.
#pragma once

#include <cstdint>
#include <limits>

namespace fj {

/// Thrown by the step that is too much. No std::exception: what catches failures of ours lets it through.
struct OverBudget {};

/// Steps that this thread may take while the object lives.
class Budget {
 public:
  explicit Budget(std::int64_t steps) : outer_(left_) { left_ = steps; }
  ~Budget() { left_ = outer_; }
  Budget(const Budget&) = delete;

  static void spend(std::size_t steps) {
    if ((left_ -= std::int64_t(steps)) < 0) [[unlikely]] throw OverBudget{};
  }
  std::int64_t left() const { return left_; }

 private:
  const std::int64_t outer_;
  inline static thread_local std::int64_t left_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace fj
