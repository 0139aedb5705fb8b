// Costs: pointwise operations by their rows, the others by how they are lowered.
#include "codegen/schedule/cost.h"

#include "graph_ir/ops.h"

namespace fj {

int operation_cost(Op op) {
  switch (op) {
#define FJ_POINTWISE(name, cost, rule, cuda) \
  case Op::name: return cost;
#include "codegen/pointwise.def"
    case Op::concat: case Op::pad: return 1;  // a comparison with where the parts end
    case Op::slice_update: return 4;
    default: break;
  }
  switch (row(op).lowering) {
    case Lowering::Constant: case Lowering::Index: case Lowering::IndexMap: return 0;
    case Lowering::Gather: return 16;  // an element for each lane
    default: return 1;
  }
}

int expression_cost(const loop::Expr& expr) {
  return expr.kind == loop::ExprKind::Pointwise ? operation_cost(expr.op) : 1;
}

}  // namespace fj
