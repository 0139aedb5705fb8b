// Sizes as integer polynomials. Terms are kept sorted by degree (highest first), then by their
// symbols: a monomial order, so that `divide_exactly` is plain polynomial long division. Coefficients
// wrap like int64 in machine code; whoever allocates checks sizes.
#include "runtime/base/sym_dim.h"

#include <algorithm>
#include <cstdlib>

#include "runtime/base/error.h"

namespace fj {
namespace {

std::int64_t wrapping_add(std::int64_t a, std::int64_t b) { return std::int64_t(std::uint64_t(a) + std::uint64_t(b)); }
std::int64_t wrapping_multiply(std::int64_t a, std::int64_t b) {
  return std::int64_t(std::uint64_t(a) * std::uint64_t(b));
}

bool precedes(const std::vector<SymbolId>& a, const std::vector<SymbolId>& b) {
  if (a.size() != b.size()) return a.size() > b.size();
  return a < b;
}

// Sorts, adds up terms over the same symbols, drops those that vanish. overflow: where to say that a sum has wrapped.
std::vector<SymDim::Term> canonical(std::vector<SymDim::Term> terms, bool* overflow = nullptr) {
  std::sort(terms.begin(), terms.end(),
            [](const SymDim::Term& a, const SymDim::Term& b) { return precedes(a.symbols, b.symbols); });
  std::vector<SymDim::Term> result;
  for (SymDim::Term& term : terms) {
    if (result.empty() || result.back().symbols != term.symbols) {
      result.push_back(std::move(term));
      continue;
    }
    std::int64_t& sum = result.back().coefficient;
    std::int64_t unused;
    if (overflow && __builtin_add_overflow(sum, term.coefficient, &unused)) *overflow = true;
    sum = wrapping_add(sum, term.coefficient);
  }
  std::erase_if(result, [](const SymDim::Term& term) { return term.coefficient == 0; });
  return result;
}

}  // namespace

SymDim::SymDim(std::int64_t constant) {
  if (constant != 0) terms_.push_back({{}, constant});
}

SymDim::SymDim(SymbolId symbol) { terms_.push_back({{symbol}, 1}); }

std::optional<SymDim> SymDim::sum_exactly(std::vector<Term> terms) {
  SymDim result;
  bool overflow = false;
  result.terms_ = canonical(std::move(terms), &overflow);
  return overflow ? std::nullopt : std::optional(std::move(result));
}

std::vector<SymDim::Term> SymDim::products(const SymDim& a, const SymDim& b) {
  std::vector<Term> terms;
  for (const Term& x : a.terms_)
    for (const Term& y : b.terms_) {
      Term term{{}, wrapping_multiply(x.coefficient, y.coefficient)};
      std::merge(x.symbols.begin(), x.symbols.end(), y.symbols.begin(), y.symbols.end(),
                 std::back_inserter(term.symbols));
      terms.push_back(std::move(term));
    }
  return terms;
}

std::optional<SymDim> SymDim::multiply_exactly(const SymDim& a, const SymDim& b) {
  for (const Term& x : a.terms_)
    for (const Term& y : b.terms_) {
      std::int64_t unused;
      if (__builtin_mul_overflow(x.coefficient, y.coefficient, &unused)) return std::nullopt;
    }
  return sum_exactly(products(a, b));
}

bool SymDim::is_constant() const { return terms_.empty() || (terms_.size() == 1 && terms_[0].symbols.empty()); }

std::optional<std::int64_t> SymDim::constant() const {
  if (!is_constant()) return std::nullopt;
  return terms_.empty() ? 0 : terms_[0].coefficient;
}

std::int64_t SymDim::value() const {
  FJ_CHECK(is_constant(), "size " + text() + " is not a constant");
  return *constant();
}

std::vector<SymbolId> SymDim::symbols() const {
  std::vector<SymbolId> result;
  for (const Term& term : terms_) result.insert(result.end(), term.symbols.begin(), term.symbols.end());
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

std::int64_t SymDim::evaluate(std::span<const std::int64_t> symbol_values) const {
  std::int64_t sum = 0;
  for (const Term& term : terms_) {
    std::int64_t factor = term.coefficient;
    for (SymbolId symbol : term.symbols) {
      FJ_CHECK(symbol.index < symbol_values.size(), "no value for symbol s" + std::to_string(symbol.index));
      factor = wrapping_multiply(factor, symbol_values[symbol.index]);
    }
    sum = wrapping_add(sum, factor);
  }
  return sum;
}

std::vector<std::int64_t> evaluate(std::span<const SymDim> dims, std::span<const std::int64_t> symbols) {
  std::vector<std::int64_t> values;
  values.reserve(dims.size());
  for (const SymDim& dim : dims) values.push_back(dim.evaluate(symbols));
  return values;
}

std::optional<std::int64_t> SymDim::evaluate_exactly(std::span<const std::int64_t> symbol_values) const {
  __int128 sum = 0;
  for (const Term& term : terms_) {
    __int128 factor = term.coefficient;
    for (SymbolId symbol : term.symbols) {
      FJ_CHECK(symbol.index < symbol_values.size(), "no value for symbol s" + std::to_string(symbol.index));
      if (__builtin_mul_overflow(factor, __int128(symbol_values[symbol.index]), &factor)) return std::nullopt;
    }
    if (__builtin_add_overflow(sum, factor, &sum)) return std::nullopt;
  }
  if (sum < INT64_MIN || sum > INT64_MAX) return std::nullopt;
  return std::int64_t(sum);
}

std::optional<std::int64_t> SymDim::magnitude() const {
  std::int64_t sum = 0;
  for (const Term& term : terms_)
    if (term.coefficient == INT64_MIN || __builtin_add_overflow(sum, std::abs(term.coefficient), &sum))
      return std::nullopt;
  return sum;
}

SymDim SymDim::substitute(const std::function<SymDim(SymbolId)>& mapping) const {
  SymDim sum;
  for (const Term& term : terms_) {
    SymDim factor(term.coefficient);
    for (SymbolId symbol : term.symbols) factor = factor * mapping(symbol);
    sum = sum + factor;
  }
  return sum;
}

std::optional<SymDim> SymDim::divide_exactly(const SymDim& divisor) const {
  if (divisor.terms_.empty()) return std::nullopt;
  const Term& leading = divisor.terms_[0];
  SymDim quotient, remainder = *this;
  while (!remainder.terms_.empty()) {
    const Term& term = remainder.terms_[0];
    // The second test keeps INT64_MIN / -1 from trapping.
    if (leading.coefficient == -1 && term.coefficient == INT64_MIN) return std::nullopt;
    if (term.coefficient % leading.coefficient != 0) return std::nullopt;
    if (!std::includes(term.symbols.begin(), term.symbols.end(), leading.symbols.begin(), leading.symbols.end()))
      return std::nullopt;
    SymDim step;
    step.terms_.push_back({{}, term.coefficient / leading.coefficient});
    std::set_difference(term.symbols.begin(), term.symbols.end(), leading.symbols.begin(), leading.symbols.end(),
                        std::back_inserter(step.terms_[0].symbols));
    quotient = quotient + step;
    remainder = remainder - step * divisor;
  }
  return quotient;
}

std::string SymDim::text() const {
  if (terms_.empty()) return "0";
  std::string result;
  for (const Term& term : terms_) {
    bool negative = term.coefficient < 0;
    // The magnitude of INT64_MIN exists only as an unsigned number.
    std::uint64_t magnitude = negative ? 0 - std::uint64_t(term.coefficient) : std::uint64_t(term.coefficient);
    if (result.empty())
      result += negative ? "-" : "";
    else
      result += negative ? " - " : " + ";
    for (std::size_t i = 0; i < term.symbols.size(); ++i)
      result += (i ? "*s" : "s") + std::to_string(term.symbols[i].index);
    if (term.symbols.empty() || magnitude != 1) result += (term.symbols.empty() ? "" : "*") + std::to_string(magnitude);
  }
  return result;
}

SymDim operator+(const SymDim& a, const SymDim& b) {
  SymDim result;
  result.terms_ = a.terms_;
  result.terms_.insert(result.terms_.end(), b.terms_.begin(), b.terms_.end());
  result.terms_ = canonical(std::move(result.terms_));
  return result;
}

SymDim operator-(const SymDim& a, const SymDim& b) { return a + SymDim(-1) * b; }

SymDim operator*(const SymDim& a, const SymDim& b) {
  SymDim result;
  result.terms_ = canonical(SymDim::products(a, b));
  return result;
}

std::size_t SymDim::hash() const {
  std::uint64_t state = 0xcbf29ce484222325u;  // FNV-1a over the canonical form
  auto mix = [&](std::uint64_t word) { state = (state ^ word) * 0x100000001b3u; };
  for (const Term& term : terms_) {
    mix(std::uint64_t(term.coefficient));
    mix(term.symbols.size());
    for (SymbolId symbol : term.symbols) mix(symbol.index);
  }
  return std::size_t(state);
}

std::optional<std::int64_t> floor_quotient(std::int64_t dividend, std::int64_t divisor, bool remainder) {
  if (divisor == 0) return std::nullopt;
  if (divisor == -1) {  // INT64_MIN / -1 traps
    if (remainder) return 0;
    return dividend == INT64_MIN ? std::nullopt : std::optional(-dividend);
  }
  const std::int64_t rest = dividend % divisor;
  const bool adjust = rest != 0 && (rest < 0) != (divisor < 0);
  return remainder ? rest + (adjust ? divisor : 0) : dividend / divisor - adjust;
}

SymDim product(std::span<const SymDim> dims) {
  SymDim result(1);
  for (const SymDim& dim : dims) result = result * dim;
  return result;
}

Dims contiguous_strides(std::span<const SymDim> shape) {
  Dims strides(shape.size());
  SymDim stride(1);
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    // Both libraries step over empty dimensions as if they had one element.
    if (shape[i] != SymDim(0)) stride = stride * shape[i];
  }
  return strides;
}

}  // namespace fj
