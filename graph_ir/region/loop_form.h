/// Loops in the form that chunks.h and LLVM know them by: each is entered at its header, which is no other loop's.
#pragma once

#include <optional>
#include <vector>

#include "graph_ir/region/flow.h"
#include "graph_ir/region/region.h"

namespace fj::region {

constexpr std::int64_t kMostStep = 1 << 20;  // of what grows by a constant in each pass

bool is_checked(const Instruction& made);
/// What an instruction on integers computes where the type holds its result; nothing: it is none of add, sub and mul.
std::optional<Op> arithmetic(const Instruction& made);

/// Where values are made. Good while no instruction is added.
class Makers {
 public:
  explicit Makers(const Region& region);
  /// Null: a parameter or an input, or newer.
  const Instruction* operator()(ValueId value) const {
    return value.index < made_by_.size() ? made_by_[value.index] : nullptr;
  }
  std::optional<std::int64_t> constant(ValueId value) const;
  /// The constant by which a value is more than another; nothing: it is none, or not made of it so.
  std::optional<std::int64_t> change(ValueId value, ValueId from) const;

 private:
  std::vector<const Instruction*> made_by_;
};

/// By value: the block in which it is defined; -1: an input, or in none that is reached.
std::vector<int> definitions(const Region& region, const Flow& flow);

/// What is defined in the loop and used behind it becomes a parameter of the block that is gone to: there may be copies
/// of the loop. False, and nothing has changed: another block is in the way.
bool pass_on_exits(Region& region, const Flow& flow, const NaturalLoop& loop);

/// The same program, whose jumps back are blocks of their loop alone, whose parameters differ from way to way, and
/// whose headers are one loop's.
void give_loops_form(Region& region);

}  // namespace fj::region
