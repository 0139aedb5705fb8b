/// The invariants of a graph. Checked:
///
///  * Every operand, output and write is an input or the result of an earlier node; every value is defined once.
///  * A node has the operands its row of ops.def declares, every attribute of the row in the row's kind, no other
///    attribute, and one result (`extern_call`: any number).
///  * Its dtype is one the operation accepts (`accepts`), and its result type is what the row's rules infer.
///  * A constant's value is of its dtype's category. Slices do not step by 0. No axis has a negative size.
///  * Slices, their updates and windows stay inside, and reshapes keep the number of elements, for some values of the
///    symbols in their ranges.
///  * `extern_call` gives one layout per result and per operand that the function gets, each of the array's rank.
///  * Strides of inputs and outputs have the array's rank.
///  * Sizes use declared symbols only; a definition uses earlier symbols only; ranges are not empty.
///  * A symbol is counted by one `nonzero` or `as_size` at most, and used by nodes behind it only.
///  * A write is to an input, of that input's type, at most one per input.
///
/// Not checked, since symbols have no values here: that slices stay inside and reshapes keep the number of elements for
/// all values of the symbols; that layouts do not overlap, where symbols are involved; that the reduced axes of a maximum are
/// not empty; that a symbol's range is what its definition allows.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph_ir/graph.h"

namespace fj {

struct VerifyError {
  std::optional<std::size_t> node;  // index, if a node is at fault
  std::string message;              // "add: operand 1 has shape [5], expected [4]"
};

/// Empty if the graph is well formed.
std::vector<VerifyError> verify(const Graph& graph);

/// FJ_CHECKs the graph; `stage` says what made it ("after cse").
void check(const Graph& graph, std::string_view stage);

}  // namespace fj
