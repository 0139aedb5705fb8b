/// Sizes as integer polynomials over run-time symbols: `4*s0*s1 + 2`.
///
/// A size is an int64 constant in static code; a size, a stride or an int argument that changed
/// between calls is a symbol whose value arrives with each call. Polynomials are closed under
/// + - *, which is all that strides and offsets need; quotients and remainders become symbols of
/// their own, defined in the graph's symbol table (`Symbol::definition`), so equal text is equal
/// value and comparison is structural: a canonical form with terms sorted by their symbols.
/// Lives in runtime/base because the runtime evaluates sizes of buffers at each call.
#pragma once

#include <cstdint>
#include <compare>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace fj {

/// Index into a graph's symbol table; printed `s0`, `s1`, ...
struct SymbolId {
  std::uint32_t index;
  auto operator<=>(const SymbolId&) const = default;
};

constexpr std::int64_t kLargestSize = std::int64_t(1) << 47;  // of an axis; more than memory holds

class SymDim {
 public:
  /// Product of symbols (sorted, with repetition) and its coefficient (never 0).
  struct Term {
    std::vector<SymbolId> symbols;  // empty for the constant term
    std::int64_t coefficient;
    bool operator==(const Term&) const = default;
  };

  SymDim() = default;  // 0
  SymDim(std::int64_t constant);
  SymDim(SymbolId symbol);

  /// The sum of these terms, in any order, and the product of two sizes; nullopt: a coefficient has more than 64 bits.
  static std::optional<SymDim> sum_exactly(std::vector<Term> terms);
  static std::optional<SymDim> multiply_exactly(const SymDim& a, const SymDim& b);

  bool is_constant() const;
  /// The value if constant.
  std::optional<std::int64_t> constant() const;
  /// Precondition: is_constant().
  std::int64_t value() const;
  const std::vector<Term>& terms() const { return terms_; }
  std::vector<SymbolId> symbols() const;

  /// Values of the symbols by index -> value of the expression. Wraps on overflow: sizes and strides of arrays that
  /// exist do not overflow, and for other numbers a guard asks `evaluate_exactly`.
  std::int64_t evaluate(std::span<const std::int64_t> symbol_values) const;
  /// nullopt: the value has more than 64 bits.
  std::optional<std::int64_t> evaluate_exactly(std::span<const std::int64_t> symbol_values) const;
  /// The sum of the coefficients' magnitudes; nullopt: more than 63 bits. Coefficients of a sum are at most the sum of
  /// these, of a product the product.
  std::optional<std::int64_t> magnitude() const;
  /// Replaces symbols: `mapping(s)` for each.
  SymDim substitute(const std::function<SymDim(SymbolId)>& mapping) const;

  /// If `divisor` divides every term exactly (as polynomials), the quotient.
  std::optional<SymDim> divide_exactly(const SymDim& divisor) const;

  std::string text() const;  // "s0*64 + 1"

  friend SymDim operator+(const SymDim& a, const SymDim& b);
  friend SymDim operator-(const SymDim& a, const SymDim& b);
  friend SymDim operator*(const SymDim& a, const SymDim& b);
  bool operator==(const SymDim&) const = default;
  std::size_t hash() const;

 private:
  static std::vector<Term> products(const SymDim& a, const SymDim& b);

  std::vector<Term> terms_;  // sorted by symbols; no zero coefficients
};

using Dims = std::vector<SymDim>;

/// Sizes under the values of the symbols.
std::vector<std::int64_t> evaluate(std::span<const SymDim> dims, std::span<const std::int64_t> symbols);

/// Floor division as Python's, or its remainder; nullopt: the divisor is 0 or the quotient has more than 64 bits.
std::optional<std::int64_t> floor_quotient(std::int64_t dividend, std::int64_t divisor, bool remainder);

/// Product of all sizes; 1 for rank 0.
SymDim product(std::span<const SymDim> dims);
/// Row-major strides, in elements.
Dims contiguous_strides(std::span<const SymDim> shape);

}  // namespace fj
