/// What a stretch of passes of a loop takes for granted, so that none of its instructions leaves: integers that are
/// loaded are small, and floats that NumPy would look at are finite. Whether it was so is known behind the stretch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "graph_ir/region/flow.h"
#include "graph_ir/region/loop_form.h"
#include "graph_ir/region/region.h"

namespace fj::region {

/// Numbers of so many bits are between -2^bits and 2^bits. Those that sums and products are made of are checked to have
/// so few; the results have as many as follows from that, and no more than kMostBits.
constexpr int kLeafBits = 31, kMostBits = 62;
/// A number that grows by less than 2^kGrowthBits in a pass is checked to have kCounterBits.
constexpr int kCounterBits = 61, kGrowthBits = 33;
/// One that is granted to have so few; then it has one more in the passes of a stretch.
constexpr int kGrantedBits = 45;

/// What is known of the loop without them.
struct LoopFacts {
  std::function<std::optional<double>(ValueId)> affine;   // how large an integer is that is a function of the pass
  std::function<bool(ValueId)> is_invariant;
  std::function<bool(const Instruction&)> is_checked_before;  // a leave_if that holds in no pass of the stretch
  std::function<bool(int)> is_decided;                    // a block whose branch goes on in the loop
};

class Assumptions {
 public:
  Assumptions(const Region& region, const Flow& flow, const NaturalLoop& loop, const Makers& makers,
              const LoopFacts& facts)
      : region_(region), flow_(flow), loop_(loop), maker_(makers), facts_(facts) {}

  /// `loaded`: bits of integers that are loaded. False: something leaves whatever is taken for granted, or nothing has
  /// to be.
  bool find(int loaded);

  struct Begin {
    std::size_t parameter;  // of the header
    int bits;
  };
  std::set<std::uint32_t> small;        // integers that are loaded, to be looked at in each pass
  std::set<std::uint32_t> finite;       // floats likewise
  std::set<std::uint32_t> unmet;        // conditions of floats that are to hold in no pass
  std::vector<std::size_t> sums;        // parameters of the header that were finite throughout if they are at the end
  std::vector<Begin> begin;             // integers that have to be small at the beginning
  std::vector<ValueId> functions;       // of the pass, which are relied on
  /// Memory that is changed, at a function of the pass.
  struct Stored {
    std::vector<const Instruction*> ways;  // one store, or one in each block that leads to `join`, of the same element
    int join;                              // the block in which it is stored then; -1: where the store is
    bool always;                           // in each pass
    bool once;                             // at one place, and always
    bool total;  // which a float is added to: it was finite throughout if it is at the end
    const Instruction& store() const { return *ways.front(); }
    bool is(const Instruction& one) const { return std::find(ways.begin(), ways.end(), &one) != ways.end(); }
  };
  std::vector<Stored> stores;              // in the order of a pass

 private:
  std::optional<int> bits(ValueId value);
  std::optional<int> bits_of(ValueId value);
  std::optional<int> bits_of_parameter(ValueId value);
  void find_parameters();
  bool is_counter(std::size_t parameter);
  struct Growth {
    int by;                   // bits, of what is added to the parameter in a pass
    std::optional<int> most;  // bits of what it may be instead
  };
  std::optional<Growth> growth(ValueId value, ValueId parameter, std::map<std::uint32_t, std::optional<Growth>>& seen);
  bool is_harmless(const Instruction& made) const;
  bool is_never(ValueId condition);
  bool is_of_floats(ValueId condition) const;
  bool look_at(const Instruction& made);
  bool is_sum(ValueId value);
  bool is_in_the_loop(const Instruction& made) const;
  bool is_total(const Instruction& store) const;
  bool find_stores();
  bool add_store(std::vector<const Instruction*> ways, int at, int join);
  std::vector<const Instruction*> stores_before(int join, const std::set<const Instruction*>& taken) const;
  bool is_same(ValueId a, ValueId b, int depth) const;
  /// `visit` is given the block that goes there, and the target.
  template <class Visit>
  void each_way_to(int block, Visit visit) const;

  const Region& region_;
  const Flow& flow_;
  const NaturalLoop& loop_;
  const Makers& maker_;
  const LoopFacts& facts_;
  std::map<std::uint32_t, std::optional<int>> bits_;        // of values, as far as they have been asked for
  std::map<std::uint32_t, std::optional<int>> parameters_;  // of the header's
  std::map<std::uint32_t, int> defined_in_;                 // the block of a parameter
  std::set<std::uint32_t> unchecked_;                       // results that their types hold
  int loaded_ = 0;
  bool relies_ = false;                                     // what is asked for now is taken for granted
};

}  // namespace fj::region
