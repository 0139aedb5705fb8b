/// What a row of ops.def says of an operation, as data.
#pragma once

#include <string_view>
#include <vector>

#include "graph_ir/graph.h"

namespace fj {

enum class OpEffect : std::uint8_t { Pure, Fallible, Extern };
enum class Lowering : std::uint8_t {
  Constant,
  Index,
  Pointwise,
  IndexMap,
  Reduce,
  Scan,
  Gather,
  Scatter,
  Count,
  Matmul,
  Extern,
  Bodies
};
enum class Samples : std::uint8_t {
  None,
  Real,
  Positive,
  AboveOne,
  Unit,
  Nonzero,
  Special,
  Integer,
  Shift,
  Boolean,
  Distinct,
  Indices
};

/// Of operands; of the result, of an operation without any. Number: no bool. Real: no complex.
enum class Accepts : std::uint8_t {
  All,
  Number,
  Real,
  RealNumber,
  Float,
  RealFloat,
  F32OrF64,
  Integer,
  IntegerOrBool,
  Bool,
  I64
};
/// How a floating-point result compares with the libraries' own.
enum class Accuracy : std::uint8_t { Exact, Equal, Bounded };
/// What of NumPy's floating-point conditions an operation on floats may report.
enum class Raises : std::uint8_t { Quiet, Rounding, Any };

struct AttrRow {
  std::string name, kind;
  bool optional;                      // a node may be without
};

struct OpRow {
  std::string_view name;
  std::vector<std::string> operands;
  bool variadic;                      // the last operand name starts with '*'
  std::vector<AttrRow> attrs;
  std::string_view shape_rule, type_rule, gradient;
  OpEffect effect;
  Lowering lowering;
  Samples samples;
  Accepts accepts;
  Accuracy accuracy;
  Raises raises;
};

const OpRow& row(Op op);
/// Whether nodes of it have graphs inside, as many as this: 2 of a branch, 1 of a loop.
std::size_t bodies_of(Op op);
/// How each begins in text: `then`, `else`, `pass`.
const char* word_of_body(Op op, std::size_t body);
/// Which output of a body is the node's first result: 1 of a loop's, behind whether another pass follows.
constexpr std::size_t first_state(Op op) { return op == Op::loop ? 1 : 0; }
std::optional<Op> op_from_name(std::string_view name);
/// Whether the operation means something for operands of this dtype (of `where`: its second and third). Complex
/// numbers have no order and a part of the functions; bool has no negation, difference, quotient, power or shift.
/// Operations without operands accept the dtypes their result can have.
bool accepts(Op op, DType dtype);
/// Whether the node gives a size that depends on data its value: `nonzero`, `as_size`.
inline bool counts_size(Op op) { return row(op).lowering == Lowering::Count; }
inline bool is_pointwise(Op op) { return row(op).lowering == Lowering::Pointwise; }

}  // namespace fj
