// From a row's names to the rules' functions.
#include "graph_ir/ops.h"
#include "graph_ir/rules/rules.h"

namespace fj::rules {
namespace {

struct Rules {
  ShapeRule shape;
  TypeRule type;
};

constexpr Rules table[] = {
#define FJ_OP(name, operands, attrs, shape_rule, type_rule, effect, gradient, lowering, ...) \
  {shape::shape_rule, type::type_rule},
#include "graph_ir/ops.def"
};

}  // namespace

Type infer(const Operation& operation) {
  const OpRow& op = row(operation.op);
  const std::size_t fixed = op.operands.size() - (op.variadic ? 1 : 0);
  if (op.variadic ? operation.operands.size() < fixed : operation.operands.size() != fixed)
    throw Violation{"takes " + std::to_string(fixed) + (op.variadic ? " or more" : "") + " operands, has " +
                    std::to_string(operation.operands.size())};
  for (const AttrRow& attr : op.attrs)
    if (!operation.attrs.find(attr.name) && !attr.optional) throw Violation{"attribute " + attr.name + " is missing"};
  return {table[int(operation.op)].type(operation), table[int(operation.op)].shape(operation)};
}

}  // namespace fj::rules
