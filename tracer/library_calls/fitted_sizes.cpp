#include "tracer/library_calls/fitted_sizes.h"

#include <iterator>

#include "tracer/frontends/builders.h"
#include "tracer/values/numbers/operators.h"

namespace fj {
namespace {

constexpr std::int64_t kSteps[] = {1, 2, 3, 4, 5, 6, 7, 8, 32};

/// Gives up on the call: another way to run it exists.
[[noreturn]] void give_up() {
  break_graph(BreakReason::UnsupportedOperation, "an operation of tensors whose sizes vary");
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return floor_quotient(a, b, false).value_or(0); }

}  // namespace

FittedSizes::FittedSizes(TraceRun& t, const std::vector<SymbolId>& symbols, std::vector<SymDim> counts,
                         Predict predict)
    : t_(t), predict_(std::move(predict)), counts_(std::move(counts)), hints_(symbol_hints(t.graph().symbols)) {
  for (SymbolId symbol : symbols) {
    if (taken_.count(symbol.index)) continue;
    Group group{{symbol}, {}};
    if (!sample(group)) {
      // Tied to others by the operation: those of the same size move together.
      for (SymbolId other : symbols)
        if (other != symbol && hints_[other.index] == hints_[symbol.index] && !taken_.count(other.index))
          group.symbols.push_back(other);
      if (group.symbols.size() == 1 || !sample(group)) give_up();
    }
    for (SymbolId member : group.symbols) taken_.insert(member.index);
    groups_.push_back(std::move(group));
  }
}

SymDim FittedSizes::expression(const Pick& pick) {
  const std::int64_t now = pick(predict_(hints_));
  for (const SymDim& count : counts_)
    if (is_always(count, pick)) return count;
  SymDim result = now;
  for (const Group& group : groups_) {
    std::vector<std::int64_t> values;
    for (const Sample& one : group.samples) values.push_back(pick(predict_(one.symbols)));
    result = result + variation(group, now, values);
  }
  // Not a sum of what each symbol does alone: a product, say.
  if (groups_.size() > 1) {
    std::vector<std::int64_t> all = hints_;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (SymbolId member : groups_[g].symbols) all[member.index] += std::int64_t(g + 1);
    derive(all);
    const Prediction& other = predict_(all);
    std::vector<std::int64_t> with_new = all;
    for (std::size_t s = with_new.size(); s < t_.graph().symbols.size(); ++s) with_new.push_back(0);
    derive(with_new);
    if (!other.refusal.empty() || pick(other) != result.evaluate(with_new))
      give_up();
  }
  return result;
}

void FittedSizes::derive(std::vector<std::int64_t>& values) const {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (const auto& definition = t_.graph().symbols[i].definition) {
      values[i] = floor_quotient(definition->dividend.evaluate(values), definition->divisor.evaluate(values),
                                 definition->remainder)
                      .value_or(0);
    }
}

bool FittedSizes::sample(Group& group) {
  group.samples.clear();
  for (std::int64_t step : kSteps) {
    std::vector<std::int64_t> values = hints_;
    for (SymbolId member : group.symbols) values[member.index] += step;
    derive(values);
    const Prediction &here = predict_(values), &now = predict_(hints_);
    // What a call takes may be bounded, as k by the size it is chosen from.
    if (!here.refusal.empty()) return !group.samples.empty();
    if (here.arrays.size() != now.arrays.size()) return false;
    for (std::size_t i = 0; i < here.arrays.size(); ++i)
      if (here.arrays[i].shape.size() != now.arrays[i].shape.size() ||
          here.arrays[i].view_of != now.arrays[i].view_of)
        return false;
    group.samples.push_back({step, std::move(values)});
  }
  return true;
}

bool FittedSizes::is_always(const SymDim& size, const Pick& pick) {
  if (pick(predict_(hints_)) != size.evaluate(hints_)) return false;
  for (const Group& group : groups_)
    for (const Sample& one : group.samples)
      if (pick(predict_(one.symbols)) != size.evaluate(one.symbols)) return false;
  return true;
}

SymDim FittedSizes::variation(const Group& group, std::int64_t now, const std::vector<std::int64_t>& values) {
  const SymbolId symbol = group.symbols[0];
  const std::int64_t base = hints_[symbol.index];
  const std::int64_t slope = values[0] - now;
  bool affine = true;
  const std::vector<Sample>& samples = group.samples;
  for (std::size_t i = 0; i < values.size(); ++i) affine = affine && values[i] == now + slope * samples[i].step;
  if (affine) return SymDim(slope) * (SymDim(symbol) - SymDim(base));
  if (samples.size() < std::size(kSteps)) give_up();
  // (symbol + shift) // divisor: strided convolutions and pooling.
  for (std::int64_t divisor = 2; divisor <= 64; ++divisor)
    for (std::int64_t shift = 0; shift < divisor; ++shift) {
      const std::int64_t first = floor_divide(base + shift, divisor);
      bool fits = true;
      for (std::size_t i = 0; fits && i < values.size(); ++i)
        fits = values[i] - now == floor_divide(base + samples[i].step + shift, divisor) - first;
      if (fits) return floor_divide(t_, SymDim(symbol) + SymDim(shift), SymDim(divisor)) - SymDim(first);
    }
  give_up();
}

}  // namespace fj
