// Sizes that are known to be equal are written as one, everywhere in the graph, and the graph means the same.
#include <gtest/gtest.h>

#include "graph_ir/parse.h"
#include "graph_ir/passes/equal_sizes.h"
#include "graph_ir/print.h"
#include "graph_ir/verify.h"

namespace fj {
namespace {

using Pairs = std::vector<std::pair<SymDim, SymDim>>;

SymDim symbol(std::uint32_t index) { return SymDim(SymbolId{index}); }

Graph two_arrays() {
  return parse(R"(
graph @f(%x: f32[s0, s1], %y: f32[s2, s3]) where s0 >= 0, s1 >= 0, s2 >= 0, s3 >= 0 {
  %0 = mul %x, %x : f32[s0, s1]
  %1 = mul %y, %y : f32[s2, s3]
  %2 = broadcast %1 {dims = [0, 1], shape = [s2, s3]} : f32[s2, s3]
  return %0, %2
})");
}

}  // namespace

TEST(EqualSizes, later_symbols_become_earlier_ones_in_types_and_attributes) {
  Graph graph = two_arrays();
  equate_sizes(graph, Pairs{{symbol(2), symbol(0)}, {symbol(1), symbol(3)}});
  check(graph, "equated");
  const std::string text = print(graph);
  EXPECT_NE(text.find("%y: f32[s0, s1]"), std::string::npos) << text;
  EXPECT_EQ(graph.nodes[2].attrs.get<Dims>("shape"), (Dims{symbol(0), symbol(1)}));
  EXPECT_EQ(graph.type(graph.outputs[0].value), graph.type(graph.outputs[1].value));
  EXPECT_EQ(graph.symbols.size(), 4u);  // the caller binds them all
}

TEST(EqualSizes, chains_constants_and_expressions) {
  Graph graph = two_arrays();
  equate_sizes(graph, Pairs{{symbol(3), symbol(2)}, {symbol(2), symbol(0) * SymDim(2)}, {symbol(0), SymDim(5)}});
  check(graph, "equated");
  EXPECT_EQ(text(graph.type(graph.outputs[1].value)), "f32[10, 10]");
  EXPECT_EQ(text(graph.type(graph.outputs[0].value)), "f32[5, s1]");
}

TEST(EqualSizes, what_can_not_be_replaced_stays) {
  Graph graph = two_arrays();
  const std::string before = print(graph);
  equate_sizes(graph, Pairs{{symbol(0) * SymDim(2), symbol(2) * SymDim(3)},
                            {symbol(1), symbol(1)},
                            {symbol(0) + symbol(1), SymDim(9)}});
  EXPECT_EQ(print(graph), before);
}

}  // namespace fj
