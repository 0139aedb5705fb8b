/// Sizes of a library call's results as expressions over the graph's symbols: fitted to what is predicted at the symbols'
/// values of now and at others near them. Each run checks them.
#pragma once

#include <functional>
#include <set>
#include <span>
#include <vector>

#include "segment/library_calls/extern_prediction.h"
#include "tracer/interpreter/trace_run.h"

namespace fj {

class FittedSizes {
 public:
  using Predict = std::function<const Prediction&(std::span<const std::int64_t>)>;
  /// The number of a prediction that is wanted.
  using Pick = std::function<std::int64_t(const Prediction&)>;
  /// `counts`: how many elements the operands have. Breaks, as `expression` does, where the sizes follow no rule that is
  /// known here.
  FittedSizes(TraceRun& t, const std::vector<SymbolId>& symbols, std::vector<SymDim> counts, Predict predict);

  SymDim expression(const Pick& pick);

 private:
  struct Sample {
    std::int64_t step;
    std::vector<std::int64_t> symbols;  // values of all of them
  };
  struct Group {
    std::vector<SymbolId> symbols;  // move together
    std::vector<Sample> samples;
  };

  void derive(std::vector<std::int64_t>& values) const;
  bool sample(Group& group);
  bool is_always(const SymDim& size, const Pick& pick);
  /// What moving the group adds to `now`.
  SymDim variation(const Group& group, std::int64_t now, const std::vector<std::int64_t>& values);

  TraceRun& t_;
  Predict predict_;
  std::vector<SymDim> counts_;
  std::vector<std::int64_t> hints_;
  std::vector<Group> groups_;
  std::set<std::uint32_t> taken_;
};

}  // namespace fj
