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

/// Thrown where the user wants the thread back. No std::exception either.
struct Interrupted {};

/// Steps that this thread may take while the object lives.
class Budget {
 public:
  /// interrupted: asked now and then; null: nobody is.
  explicit Budget(std::int64_t steps, bool (*interrupted)() = nullptr) : outer_(left_), asked_outside_(interrupted_) {
    left_ = steps;
    interrupted_ = interrupted;
  }
  ~Budget() {
    left_ = outer_;
    interrupted_ = asked_outside_;
  }
  Budget(const Budget&) = delete;

  static void spend(std::size_t steps) {
    if ((left_ -= std::int64_t(steps)) < 0) [[unlikely]] throw OverBudget{};
    if ((until_asked_ -= std::int64_t(steps)) < 0) [[unlikely]] ask();
  }
  /// Before what takes long and spends nothing.
  static void ask() {
    constexpr std::int64_t kBetween = 1024;
    until_asked_ = kBetween;
    if (interrupted_ != nullptr && interrupted_()) throw Interrupted{};
  }
  std::int64_t left() const { return left_; }

 private:
  const std::int64_t outer_;
  bool (*const asked_outside_)();
  inline static thread_local std::int64_t left_ = std::numeric_limits<std::int64_t>::max();
  inline static thread_local std::int64_t until_asked_ = 0;
  inline static thread_local bool (*interrupted_)() = nullptr;
};

}  // namespace fj
