/// The shape and type rules that rows of ops.def name: one function each. A rule either gives the result's shape or
/// dtype or says what is wrong with the operands; Graph::add and the verifier use the same function.
#pragma once

#include <span>
#include <string>

#include "graph_ir/graph.h"

namespace fj::rules {

/// What a rule sees of a node.
struct Operation {
  Op op;
  std::span<const Type> operands;
  const Attrs& attrs;
};

/// Thrown by rules: "operand 1 has shape [5], expected [4]".
struct Violation {
  std::string message;
};

using ShapeRule = Dims (*)(const Operation&);
using TypeRule = DType (*)(const Operation&);

namespace shape {
Dims Scalar(const Operation&);
Dims Attr(const Operation&);
Dims Same(const Operation&);
Dims Same0(const Operation&);
Dims Permute(const Operation&);
Dims Sizes(const Operation&);
Dims Windows(const Operation&);
Dims Pad(const Operation&);
Dims Concat(const Operation&);
Dims DropAxes(const Operation&);
Dims DropAxis(const Operation&);
Dims Gather(const Operation&);
Dims Along(const Operation&);
Dims Count(const Operation&);
Dims SameCount(const Operation&);
Dims Matmul(const Operation&);
Dims Given(const Operation&);
}  // namespace shape

namespace type {
DType Same(const Operation&);
DType To(const Operation&);
DType Index(const Operation&);
DType Magnitude(const Operation&);
DType Float(const Operation&);
DType Bool(const Operation&);
DType BoolOnly(const Operation&);
DType Integer(const Operation&);
DType Select(const Operation&);
DType Given(const Operation&);
}  // namespace type

/// The result type of a node by its row. Throws Violation.
Type infer(const Operation& operation);

}  // namespace fj::rules
