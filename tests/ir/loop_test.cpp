// Loops in the graph: text, checks, what passes make of them, and the evaluator.
#include <cstring>

#include <gtest/gtest.h>

#include "graph_ir/autodiff/autodiff.h"
#include "graph_ir/evaluate/evaluate.h"
#include "graph_ir/parse.h"
#include "graph_ir/pipeline.h"
#include "graph_ir/print.h"
#include "graph_ir/verify.h"

namespace fj {
namespace {

/// Halves x until its sum is at most the limit, and counts the passes.
const std::string kLoop = R"(graph @f(%x: f32[s0], %limit: f32[]) where s0 >= 1 {
  %0 = reduce_sum %x {axes = [0]} : f32[]  ; a.py:1
  %1 = gt %0, %limit : bool[]
  %2 = constant {value = 0, to = i64} : i64[]
  %3, %4 = loop %1, %x, %2, %limit {
    pass(%a: f32[s0], %n: i64[], %b: f32[]) {
      %0 = constant {value = 0.5, to = f32} : f32[]
      %1 = broadcast %0 {dims = []} : f32[s0]
      %2 = mul %a, %1 : f32[s0]  ; a.py:3 layers.0
      %3 = constant {value = 1, to = i64} : i64[]
      %4 = add %n, %3 : i64[]
      %5 = reduce_sum %2 {axes = [0]} : f32[]
      %6 = gt %5, %b : bool[]
      return %6, %2, %4
    }
  } : f32[s0], i64[]  ; a.py:2
  return %3, %4
}
)";

TEST(Loop, PrintsAndParses) {
  const Graph graph = parse(kLoop);
  EXPECT_TRUE(verify(graph).empty()) << verify(graph)[0].message;
  EXPECT_EQ(print(graph), kLoop);
  const std::string short_text = print_short(graph);
  const Graph again = parse(short_text);
  EXPECT_TRUE(verify(again).empty());
  EXPECT_EQ(print_short(again), short_text);
  EXPECT_EQ(graph.nodes[3].bodies[0]->nodes[2].location.module, "layers.0");
  EXPECT_EQ(print(graph, graph.nodes[3]), "%3, %4 = loop %1, %x, %2, %limit : f32[s0], i64[]");
}

DenseArray of_floats(std::vector<float> values, std::vector<std::int64_t> shape) {
  DenseArray result(DType::F32, shape);
  for (std::size_t i = 0; i < values.size(); ++i) std::memcpy(result.element(std::int64_t(i)), &values[i], 4);
  return result;
}

DenseArray whole(std::int64_t value) {
  DenseArray result(DType::I64, {});
  std::memcpy(result.element(0), &value, 8);
  return result;
}

TEST(Loop, GoesOnAsItsBodySays) {
  for (const bool optimised : {false, true}) {
    Graph graph = parse(kLoop);
    if (optimised) optimise(graph, false);
    EXPECT_TRUE(verify(graph).empty());
    std::vector<std::int64_t> symbols = {2};
    std::vector<DenseArray> results;
    ASSERT_EQ(evaluate(graph, std::vector{of_floats({8, 24}, {2}), of_floats({5}, {})}, symbols, results), kOk);
    EXPECT_EQ(results, (std::vector{of_floats({1, 3}, {2}), whole(3)}));
    ASSERT_EQ(evaluate(graph, std::vector{of_floats({1, 2}, {2}), of_floats({5}, {})}, symbols, results), kOk);
    EXPECT_EQ(results, (std::vector{of_floats({1, 2}, {2}), whole(0)}));
  }
}

TEST(Loop, IsCheckedWithItsBody) {
  const auto first_error = [](const std::string& from, const std::string& to) {
    std::string text = kLoop;
    text.replace(text.find(from), from.size(), to);
    const std::vector<VerifyError> errors = verify(parse(text));
    return errors.empty() ? std::string("sound") : errors[0].message;
  };
  EXPECT_EQ(first_error("loop %1, %x", "loop %0, %x"), "loop: takes a condition of type bool[] first");
  EXPECT_EQ(first_error("loop %1, %x, %2, %limit", "loop %1, %x"),
            "loop: has 2 results, and 1 states to begin with");
  EXPECT_EQ(first_error("loop %1, %x, %2, %limit", "loop %1, %limit, %2, %x"),
            "loop: result 0 has type f32[s0], expected f32[]");
  EXPECT_EQ(first_error("loop %1, %x, %2, %limit", "loop %1, %x, %2"), "loop: pass: has 3 inputs, expected 2");
  EXPECT_EQ(first_error("return %6, %2, %4", "return %2, %4"), "loop: pass: has 2 results, expected 3");
  EXPECT_EQ(first_error("return %6, %2, %4", "return %5, %2, %4"),
            "loop: pass: result 0 has type f32[], expected bool[]");
  EXPECT_EQ(first_error("return %6, %2, %4", "return %6, %2, %6"),
            "loop: pass: result 2 has type bool[], expected i64[]");
}

TEST(Loop, HasNoDerivative) {
  Graph graph = parse(kLoop);
  EXPECT_TRUE(gradient_flow(graph, {&graph.inputs[0].value, 1})[graph.outputs[0].value.index]);
  const ValueId cotangent = graph.add_input("cotangent", graph.type(graph.outputs[0].value));
  const ValueId input = graph.inputs[0].value, result = graph.outputs[0].value;
  EXPECT_THROW(add_gradients(graph, {&input, 1}, {&result, 1}, {&cotangent, 1}), NoDerivative);
}

}  // namespace
}  // namespace fj
