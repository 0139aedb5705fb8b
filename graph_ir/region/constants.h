/// Integers and truths of a region that are the same on every way that may be gone (sparse conditional constant
/// propagation: Wegman and Zadeck, "Constant Propagation with Conditional Branches", 1991).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph_ir/region/region.h"

namespace fj::region {

class Constants {
 public:
  explicit Constants(const Region& region);
  bool is_reached(int block) const { return reached_[std::size_t(block)] != 0; }
  /// Of an I64 or a Bool.
  std::optional<std::int64_t> operator()(ValueId value) const;
  /// Of a comparison of integers that both are known.
  static std::optional<bool> compare(Op op, bool is_unsigned, std::int64_t a, std::int64_t b);

 private:
  struct Known {
    enum class State : std::uint8_t { Open, Constant, Varies } state = State::Open;
    std::int64_t number = 0;
  };
  void note(ValueId value, const Known& found);
  void go(const Target& target);
  void visit(const Block& block);
  Known result(const Instruction& made) const;
  std::optional<std::int64_t> computed(const Instruction& made, std::optional<Op> does, DType dtype,
                                       const std::vector<std::int64_t>& of) const;

  const Region& region_;
  std::vector<Known> known_;
  std::vector<char> reached_;
  bool changed_ = true;
};

/// What is constant as constants, without the ways that are not gone. Some exits may never be taken then.
void fold_constants(Region& region);

}  // namespace fj::region
