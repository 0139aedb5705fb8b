// Index maps: see the header. Reshape is the only one with a choice: it matches runs of dimensions of equal size from
// the left, so that [n, 8, 8] -> [n, 64] and [n, 64] -> [n*64] are polynomials whatever n is.
#include "codegen/schedule/index_maps.h"

#include "runtime/base/error.h"

namespace fj {

using loop::Affine;
using loop::Index;

namespace {

bool is_one(const SymDim& size) { return size == SymDim(1); }

std::optional<Index> reshape_index(const Dims& operand, const Dims& result, const Index& index) {
  Index mapped(operand.size());
  std::size_t i = 0, j = 0;
  while (i < operand.size() || j < result.size()) {
    // One run: operand dimensions [i, i_end) hold the same elements as result dimensions [j, j_end).
    std::size_t i_end = i, j_end = j;
    SymDim operand_size = 1, result_size = 1;
    if (i_end < operand.size()) operand_size = operand[i_end++];
    if (j_end < result.size()) result_size = result[j_end++];
    while (!(operand_size == result_size) && (i_end < operand.size() || j_end < result.size())) {
      // Which side is smaller is known for constants; a side with more symbols is taken for the larger one.
      const auto a = operand_size.constant(), b = result_size.constant();
      bool grow_operand;
      if (a && b)
        grow_operand = *a < *b;
      else
        grow_operand = operand_size.symbols().size() <= result_size.symbols().size() &&
                       !operand_size.divide_exactly(result_size).has_value();
      if (grow_operand && i_end == operand.size()) grow_operand = false;
      if (!grow_operand && j_end == result.size()) grow_operand = true;
      if (grow_operand)
        operand_size = operand_size * operand[i_end++];
      else
        result_size = result_size * result[j_end++];
    }
    if (i_end == i + 1 && j_end == j + 1) {
      // Also of size 1, where any index would do: a row keeps its variables, by which the scheduler knows it again.
      mapped[i] = index[j];
      i = i_end, j = j_end;
      continue;
    }
    Affine position;
    SymDim stride = 1;
    for (std::size_t d = j_end; d-- > j;) {
      position = position + index[d] * stride;
      stride = stride * result[d];
    }
    std::size_t wide = i_end;
    for (std::size_t d = i; d < i_end; ++d) {
      if (is_one(operand[d])) continue;
      if (wide != i_end) return std::nullopt;
      wide = d;
    }
    if (wide != i_end) mapped[wide] = position;
    i = i_end, j = j_end;
  }
  return mapped;
}

}  // namespace

Index identity_index(std::size_t rank) {
  Index index;
  for (std::uint32_t d = 0; d < rank; ++d) index.push_back(Affine(loop::VarId{d}));
  return index;
}

Index update_index(const Node& update) {
  const auto& starts = update.attrs.get<Dims>("starts");
  const auto& steps = update.attrs.get<std::vector<std::int64_t>>("steps");
  Index index = identity_index(starts.size());
  for (std::size_t d = 0; d < starts.size(); ++d) index[d] = index[d] * SymDim(steps[d]) + Affine(starts[d]);
  return index;
}

Affine linear_index(const Dims& shape, const Index& index) {
  Affine position;
  SymDim stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    position = position + index[d] * stride;
    stride = stride * shape[d];
  }
  return position;
}

std::optional<Index> operand_index(const Graph& graph, const Node& node, const Index& index) {
  const Dims& operand = graph.type(node.operands[0]).shape;
  const Dims& result = graph.type(node.results[0]).shape;
  Index mapped(operand.size());
  switch (node.op) {
    case Op::broadcast: {
      const auto& dims = node.attrs.get<std::vector<std::int64_t>>("dims");
      for (std::size_t d = 0; d < operand.size(); ++d) {
        const bool repeats = is_one(operand[d]) && !is_one(result[dims[d]]);
        if (!repeats) mapped[d] = index[dims[d]];
      }
      return mapped;
    }
    case Op::transpose: {
      const auto& permutation = node.attrs.get<std::vector<std::int64_t>>("permutation");
      for (std::size_t d = 0; d < permutation.size(); ++d) mapped[permutation[d]] = index[d];
      return mapped;
    }
    case Op::slice: {
      const auto& starts = node.attrs.get<Dims>("starts");
      const auto& steps = node.attrs.get<std::vector<std::int64_t>>("steps");
      for (std::size_t d = 0; d < operand.size(); ++d) mapped[d] = index[d] * SymDim(steps[d]) + Affine(starts[d]);
      return mapped;
    }
    case Op::windows: {
      const auto axis = std::size_t(node.attrs.get<std::int64_t>("axis"));
      mapped.assign(index.begin(), index.end() - 1);
      mapped[axis] = mapped[axis] * SymDim(node.attrs.get<std::int64_t>("step")) + index.back();
      return mapped;
    }
    case Op::reshape:
      return reshape_index(operand, result, index);
    default:
      FJ_CHECK(false, "not an index map of one operand: " + std::string(name(node.op)));
  }
  return std::nullopt;
}

std::optional<Index> result_index(const Graph& graph, const Node& node, const Index& index) {
  if (node.op == Op::reshape)
    return reshape_index(graph.type(node.results[0]).shape, graph.type(node.operands[0]).shape, index);
  FJ_CHECK(node.op == Op::transpose, "cannot be turned round: " + std::string(name(node.op)));
  Index mapped;
  for (std::int64_t d : node.attrs.get<std::vector<std::int64_t>>("permutation"))
    mapped.push_back(index[std::size_t(d)]);
  return mapped;
}

}  // namespace fj
