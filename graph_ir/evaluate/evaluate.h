/// The reference evaluator: what every operation means, one node at a time on dense arrays, written to be
/// obviously right rather than fast. It is the oracle of the code generator's tests, the `reference` back end
/// and the constant folder.
///
/// Integers wrap. `floor_div` and `mod` follow Python's signs, `trunc_div` and `fmod` C's. `maximum` and
/// `minimum` propagate NaN, `fmax` and `fmin` ignore it. `round` is half to even. Shifts by the width or more
/// give 0 (or -1 for negative values to the right). Half types compute in float and round per operation;
/// functions of f32 are computed in double and rounded once; sums and products of elements accumulate in
/// float for half types and in double for f32. A cast rounds once. Complex numbers have no order: see
/// `accepts` in ops.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "graph_ir/graph.h"
#include "runtime/base/status.h"

namespace fj {

/// An array in row-major order, its elements as in memory.
struct DenseArray {
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> data;

  DenseArray() = default;
  DenseArray(DType dtype, std::vector<std::int64_t> shape);  // zeros
  std::int64_t element_count() const;
  std::byte* element(std::int64_t index) { return data.data() + std::size_t(index) * size_in_bytes(dtype); }
  const std::byte* element(std::int64_t index) const { return data.data() + std::size_t(index) * size_in_bytes(dtype); }
  /// One element as a scalar of the dtype's category.
  Scalar scalar(std::int64_t index) const;
  bool operator==(const DenseArray&) const = default;  // bit for bit
};

/// Rank 0, `value` rounded to the dtype.
DenseArray scalar_array(DType dtype, const Scalar& value);

/// Fills in the symbols that are defined by others. False if a divisor is zero, unless it is late.
[[nodiscard]] bool evaluate_definitions(const Graph& graph, std::span<std::int64_t> symbols);

/// Of a `nonzero` or an `as_size`: its symbol gets its value, and those that are computed from it. KernelStatus bits.
/// Any other node: nothing.
std::uint32_t count_size(const Graph& graph, const Node& node, std::span<const DenseArray* const> operands,
                            std::span<std::int64_t> symbols);

/// One node other than `extern_call`, `cond`, `loop`, its sizes known. Returns KernelStatus bits; with an integer bit
/// (an index out of range, a division by zero) the result is not meaningful. The IEEE bits report what was raised;
/// callers that do not collect them mask them out.
std::uint32_t evaluate(const Graph& graph, const Node& node, std::span<const DenseArray* const> operands,
                       std::span<const std::int64_t> symbols, DenseArray& result);

/// A `cond` or `loop`, whose bodies have no extern calls: its results, in order. Status as above, of the bodies that
/// run.
std::uint32_t evaluate_control(const Node& node, std::span<const DenseArray* const> operands,
                               std::span<std::int64_t> symbols, std::vector<DenseArray>& results);

/// A whole graph without extern calls: `results` are its outputs, then the values of its writes.
std::uint32_t evaluate(const Graph& graph, std::span<const DenseArray> inputs, std::span<std::int64_t> symbols,
                       std::vector<DenseArray>& results);

/// IEEE bits of KernelStatus.
inline constexpr std::uint32_t kFloatConditions = kFloatDivide | kFloatOverflow | kFloatUnderflow | kFloatInvalid;

namespace detail {
// The two halves of `evaluate` for one node, by the lowering column; each returns integer status bits.
std::uint32_t evaluate_pointwise(const Node& node, std::span<const DenseArray* const> operands, DenseArray& result);
std::uint32_t evaluate_structured(const Node& node, std::span<const DenseArray* const> operands,
                                  std::span<const std::int64_t> symbols, DenseArray& result);
}  // namespace detail

}  // namespace fj
