/// What is known of the values of an innermost loop before it runs. Integers are followed as affine functions of the
/// number of the pass: such a function is between its values in the first and the last pass, so that a comparison of
/// two of them that has one result in both has it in all.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "graph_ir/region/flow.h"
#include "graph_ir/region/loop_form.h"
#include "graph_ir/region/region.h"

namespace fj::region {

class LoopValues {
 protected:
  LoopValues(Region& region, const NaturalLoop& loop);
  void find_definitions();

  Block& block(int at) { return region_.blocks[std::size_t(at)]; }
  bool is_inside(int at) const { return at >= 0 && at < int(inside_.size()) && inside_[std::size_t(at)]; }
  bool is_defined_inside(ValueId value) const { return is_inside(defined_in_[value.index]); }
  const Instruction* maker(ValueId value) const { return (*maker_)(value); }
  std::optional<std::int64_t> constant(ValueId value) const { return maker_->constant(value); }
  ValueId new_value(DType dtype);
  template <class Visit>
  void each_jump_back(const Visit& visit) {
    for (int at : loop_.blocks)
      for (const Target* target : {&block(at).end.yes, &block(at).end.no})
        if (target->block == header_) visit(*target);
  }

  /// Parameters of the header that grow by the same in each pass, or stay what they are.
  void find_inductions();
  /// What is added to this one in each pass.
  std::optional<ValueId> stride(std::size_t parameter);

  /// An integer as a function of the pass.
  struct Affine {
    double most;                        // it is between this and its negative
    std::optional<std::int64_t> slope;  // per pass; nothing: it is not known
    bool is_invariant() const { return slope == 0; }
  };
  static bool is_pure(Op op);
  /// It is the same in each pass, and computed outside of the loop or from what is.
  bool is_invariant(ValueId value);
  const std::optional<Affine>& affine(ValueId value);
  std::optional<Affine> look_at(ValueId value);
  bool is_sign(ValueId condition);

  /// What a comparison compares, as signed numbers, and whether it takes them as unsigned ones.
  struct Compared {
    ValueId a, b;
    Op op;
    bool is_unsigned;
  };
  std::optional<Compared> compared(ValueId condition);
  /// Whether two looks, in the first and the last pass, are enough to know that the condition has this value in all.
  bool can_be(ValueId condition, bool wanted);
  void look_at_checks();

  /// By how many bits a number differs at most from the parameter of the header; nothing: it is not known. `sums`: the
  /// checked instructions between the two.
  std::optional<int> growth(ValueId value, ValueId parameter, std::map<std::uint32_t, std::optional<int>>& seen,
                            std::vector<ValueId>& sums);
  /// Of a constant, or of a number that is small by its type.
  std::optional<int> bits(ValueId value);
  void find_counters();
  /// The type holds the result of the checked instruction in all passes.
  bool is_known(const Instruction& made) const;

  Region& region_;
  const Flow flow_;
  const NaturalLoop& loop_;
  const int header_;
  std::vector<char> inside_;
  std::vector<int> defined_in_;
  std::optional<Makers> maker_;
  std::map<std::uint32_t, std::int64_t> steps_;  // of parameters of the header that grow by a constant in each pass
  std::map<std::uint32_t, ValueId> strides_;     // of those that grow by a number that is not known, but the same
  std::map<std::uint32_t, bool> invariant_;
  std::map<std::uint32_t, std::optional<Affine>> affine_;
  std::map<std::uint32_t, ValueId> taken_;       // indices that are not negative, by which condition
  std::set<std::pair<ValueId, bool>> needed_, ends_;  // conditions, and what each has to be; ends_: of passes
  std::map<int, bool> decided_;                  // branches: the way that stays in the loop
  std::set<std::uint32_t> counted_;              // checked sums that make counters_
  std::vector<ValueId> counters_;                // parameters of the header that grow by little in each pass
};

}  // namespace fj::region
