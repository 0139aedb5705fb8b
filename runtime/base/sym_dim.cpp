// Polynomials in canonical form: terms sorted by their symbols, none with coefficient 0.
#include "runtime/base/sym_dim.h"

#include <algorithm>
#include <map>
#include <set>

#include "runtime/base/error.h"

namespace fj {
namespace {

using Terms = std::map<std::vector<SymbolId>, std::int64_t>;

// Overflow wraps; sizes are checked where they are used.
std::int64_t wrapping_add(std::int64_t a, std::int64_t b) { return std::int64_t(std::uint64_t(a) + std::uint64_t(b)); }
std::int64_t wrapping_mul(std::int64_t a, std::int64_t b) { return std::int64_t(std::uint64_t(a) * std::uint64_t(b)); }

std::vector<SymDim::Term> canonical(Terms terms) {
  std::vector<SymDim::Term> result;
  for (auto& [symbols, coefficient] : terms)
    if (coefficient != 0) result.push_back({symbols, coefficient});
  return result;
}

std::vector<SymbolId> merged(const std::vector<SymbolId>& a, const std::vector<SymbolId>& b) {
  std::vector<SymbolId> result;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(result));
  return result;
}

/// a / b as multisets, if b is contained in a.
std::optional<std::vector<SymbolId>> without(const std::vector<SymbolId>& a, const std::vector<SymbolId>& b) {
  if (!std::includes(a.begin(), a.end(), b.begin(), b.end())) return std::nullopt;
  std::vector<SymbolId> result;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(result));
  return result;
}

}  // namespace

SymDim::SymDim(std::int64_t constant) {
  if (constant != 0) terms_.push_back({{}, constant});
}

SymDim::SymDim(SymbolId symbol) { terms_.push_back({{symbol}, 1}); }

bool SymDim::is_constant() const { return terms_.empty() || (terms_.size() == 1 && terms_[0].symbols.empty()); }

std::optional<std::int64_t> SymDim::constant() const {
  if (!is_constant()) return std::nullopt;
  return terms_.empty() ? 0 : terms_[0].coefficient;
}

std::int64_t SymDim::value() const {
  FJ_CHECK(is_constant(), "size " + text() + " depends on symbols");
  return terms_.empty() ? 0 : terms_[0].coefficient;
}

std::vector<SymbolId> SymDim::symbols() const {
  std::set<SymbolId> all;
  for (const Term& term : terms_) all.insert(term.symbols.begin(), term.symbols.end());
  return {all.begin(), all.end()};
}

std::int64_t SymDim::evaluate(std::span<const std::int64_t> symbol_values) const {
  std::int64_t sum = 0;
  for (const Term& term : terms_) {
    std::int64_t product = term.coefficient;
    for (SymbolId symbol : term.symbols) product = wrapping_mul(product, symbol_values[symbol.index]);
    sum = wrapping_add(sum, product);
  }
  return sum;
}

SymDim SymDim::substitute(const std::function<SymDim(SymbolId)>& mapping) const {
  SymDim sum;
  for (const Term& term : terms_) {
    SymDim product(term.coefficient);
    for (SymbolId symbol : term.symbols) product = product * mapping(symbol);
    sum = sum + product;
  }
  return sum;
}

std::optional<SymDim> SymDim::divide_exactly(const SymDim& divisor) const {
  if (divisor.terms_.empty()) return std::nullopt;
  // Long division by the divisor's last term in the canonical order.
  const Term& leading = divisor.terms_.back();
  SymDim remainder = *this, quotient;
  while (!remainder.terms_.empty()) {
    const Term& last = remainder.terms_.back();
    auto symbols = without(last.symbols, leading.symbols);
    if (!symbols || last.coefficient % leading.coefficient != 0) return std::nullopt;
    SymDim step;
    step.terms_.push_back({*symbols, last.coefficient / leading.coefficient});
    const SymDim next = remainder - step * divisor;
    // The canonical order is not a monomial order for every divisor: without progress there is no quotient.
    if (next.terms_.size() > remainder.terms_.size() + divisor.terms_.size() || next == remainder) return std::nullopt;
    if (!next.terms_.empty() && next.terms_.back().symbols >= last.symbols) return std::nullopt;
    quotient = quotient + step;
    remainder = next;
  }
  return quotient;
}

std::string SymDim::text() const {
  if (terms_.empty()) return "0";
  std::string result;
  // The constant comes last: "s0*64 + 1".
  auto append = [&](const Term& term) {
    std::int64_t coefficient = term.coefficient;
    if (!result.empty()) {
      result += coefficient < 0 ? " - " : " + ";
      if (coefficient < 0 && coefficient != INT64_MIN) coefficient = -coefficient;
    }
    std::string factors;
    for (SymbolId symbol : term.symbols) factors += (factors.empty() ? "s" : "*s") + std::to_string(symbol.index);
    if (factors.empty()) result += std::to_string(coefficient);
    else if (coefficient == 1) result += factors;
    else result += factors + "*" + std::to_string(coefficient);
  };
  for (const Term& term : terms_)
    if (!term.symbols.empty()) append(term);
  if (terms_[0].symbols.empty()) append(terms_[0]);
  return result;
}

SymDim operator+(const SymDim& a, const SymDim& b) {
  Terms terms;
  for (const auto& term : a.terms_) terms[term.symbols] = term.coefficient;
  for (const auto& term : b.terms_) terms[term.symbols] = wrapping_add(terms[term.symbols], term.coefficient);
  SymDim result;
  result.terms_ = canonical(std::move(terms));
  return result;
}

SymDim operator-(const SymDim& a, const SymDim& b) { return a + b * SymDim(-1); }

SymDim operator*(const SymDim& a, const SymDim& b) {
  Terms terms;
  for (const auto& x : a.terms_)
    for (const auto& y : b.terms_) {
      std::int64_t& coefficient = terms[merged(x.symbols, y.symbols)];
      coefficient = wrapping_add(coefficient, wrapping_mul(x.coefficient, y.coefficient));
    }
  SymDim result;
  result.terms_ = canonical(std::move(terms));
  return result;
}

std::size_t SymDim::hash() const {
  std::size_t hash = 0x9e3779b97f4a7c15;
  auto mix = [&](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3 + (hash >> 29); };
  for (const Term& term : terms_) {
    for (SymbolId symbol : term.symbols) mix(symbol.index + 1);
    mix(std::uint64_t(term.coefficient));
  }
  return hash;
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
    stride = stride * shape[i];
  }
  return strides;
}

}  // namespace fj
