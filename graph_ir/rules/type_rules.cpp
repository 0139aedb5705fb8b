// Result dtypes. Operands of one operation agree; `where` has its condition, indices are i64.
#include <algorithm>

#include "graph_ir/ops.h"
#include "graph_ir/rules/rules.h"

namespace fj::rules::type {
namespace {

std::string quoted(DType dtype) { return std::string(name(dtype)); }

void expect(std::size_t operand, DType found, DType expected) {
  if (found != expected)
    throw Violation{"operand " + std::to_string(operand) + " is " + quoted(found) + ", expected " + quoted(expected)};
}

void expect_category(const Operation& o, bool allowed, const char* what) {
  if (!allowed) throw Violation{"operand 0 is " + quoted(o.operands[0].dtype) + ", expected " + what};
}

}  // namespace

DType Same(const Operation& o) {
  const DType dtype = o.operands.empty() ? DType::F32 : o.operands[0].dtype;
  for (std::size_t i = 0; i < o.operands.size(); ++i) {
    const auto& names = row(o.op).operands;
    const bool index = names[std::min(i, names.size() - 1)] == "indices";
    expect(i, o.operands[i].dtype, index ? DType::I64 : dtype);
  }
  return dtype;
}

DType To(const Operation& o) { return o.attrs.get<DType>("to"); }

DType Index(const Operation&) { return DType::I64; }

DType Magnitude(const Operation& o) {
  const DType dtype = Same(o);
  return dtype == DType::C64 ? DType::F32 : dtype == DType::C128 ? DType::F64 : dtype;
}

DType Float(const Operation& o) {
  const DType dtype = Same(o);
  expect_category(o, is_float(dtype) || is_complex(dtype), "a floating-point or complex dtype");
  return dtype;
}

DType Bool(const Operation& o) {
  Same(o);
  return DType::Bool;
}

DType BoolOnly(const Operation& o) {
  expect(0, o.operands[0].dtype, DType::Bool);
  return DType::Bool;
}

DType Integer(const Operation& o) {
  const DType dtype = Same(o);
  expect_category(o, is_integer(dtype) || dtype == DType::Bool, "an integer dtype or bool");
  return dtype;
}

DType Select(const Operation& o) {
  expect(0, o.operands[0].dtype, DType::Bool);
  expect(2, o.operands[2].dtype, o.operands[1].dtype);
  return o.operands[1].dtype;
}

DType Given(const Operation&) { throw Violation{"result types of this operation are given, not inferred"}; }

}  // namespace fj::rules::type
