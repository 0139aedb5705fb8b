// Branches in the graph: text, checks, what passes make of them, and the evaluator.
#include <cstring>

#include <gtest/gtest.h>

#include "graph_ir/evaluate/evaluate.h"
#include "graph_ir/parse.h"
#include "graph_ir/pipeline.h"
#include "graph_ir/print.h"
#include "graph_ir/verify.h"

namespace fj {
namespace {

const std::string kBranch = R"(graph @f(%x: f32[s0], %y: f32[s0]) where s0 >= 1 {
  %0 = reduce_sum %x {axes = [0]} : f32[]  ; a.py:1
  %1 = constant {value = 0.0, to = f32} : f32[]
  %2 = gt %0, %1 : bool[]
  %3, %4 = cond %2, %x, %y {
    then(%a: f32[s0], %b: f32[s0]) {
      %0 = mul %a, %b : f32[s0]  ; a.py:2 layers.0
      %1 = constant {value = true, to = bool} : bool[]
      %2 = cond %1, %0 {
        then(%a: f32[s0]) {
          return %a
        }
        else(%a: f32[s0]) {
          %0 = neg %a : f32[s0]
          return %0
        }
      } : f32[s0]
      return %2, %a
    }
    else(%a: f32[s0], %b: f32[s0]) {
      %0 = sub %a, %b : f32[s0]
      return %0, %b
    }
  } : f32[s0], f32[s0]  ; a.py:3
  return %3, %4
}
)";

TEST(Cond, PrintsAndParses) {
  const Graph graph = parse(kBranch);
  EXPECT_TRUE(verify(graph).empty()) << verify(graph)[0].message;
  EXPECT_EQ(print(graph), kBranch);
  const std::string short_text = print_short(graph);
  const Graph again = parse(short_text);
  EXPECT_TRUE(verify(again).empty());
  EXPECT_EQ(print_short(again), short_text);
  EXPECT_EQ(graph.nodes[3].location.line, 3);
  EXPECT_EQ(graph.nodes[3].bodies[0]->nodes[0].location.module, "layers.0");
  EXPECT_EQ(graph.nodes[3].bodies[1]->nodes[0].location.line, 0);
  EXPECT_EQ(print(graph, graph.nodes[3]), "%3, %4 = cond %2, %x, %y : f32[s0], f32[s0]");
}

DenseArray floats(std::vector<float> values) {
  DenseArray result(DType::F32, {std::int64_t(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) std::memcpy(result.element(std::int64_t(i)), &values[i], 4);
  return result;
}

TEST(Cond, RunsTheBodyOfItsCondition) {
  for (const bool optimised : {false, true}) {
    Graph graph = parse(kBranch);
    if (optimised) optimise(graph, false);
    EXPECT_TRUE(verify(graph).empty());
    std::vector<std::int64_t> symbols = {2};
    std::vector<DenseArray> results;
    ASSERT_EQ(evaluate(graph, std::vector{floats({1, 2}), floats({3, 4})}, symbols, results), kOk);
    EXPECT_EQ(results, (std::vector{floats({3, 8}), floats({1, 2})}));
    ASSERT_EQ(evaluate(graph, std::vector{floats({-1, -2}), floats({3, 4})}, symbols, results), kOk);
    EXPECT_EQ(results, (std::vector{floats({-4, -6}), floats({3, 4})}));
  }
}

TEST(Cond, IsCheckedWithItsBodies) {
  const auto first_error = [](const std::string& from, const std::string& to) {
    std::string text = kBranch;
    text.replace(text.find(from), from.size(), to);
    const std::vector<VerifyError> errors = verify(parse(text));
    return errors.empty() ? std::string("sound") : errors[0].message;
  };
  EXPECT_EQ(first_error("cond %2, %x, %y", "cond %0, %x, %y"), "cond: takes a condition of type bool[] first");
  EXPECT_EQ(first_error("cond %2, %x, %y", "cond %2, %x"), "cond: then: has 2 inputs, expected 1");
  EXPECT_EQ(first_error("return %0, %b", "return %0"), "cond: else: has 1 results, expected 2");
  EXPECT_EQ(first_error("then(%a: f32[s0], %b", "then(%a: f32[3], %b"),
            "cond: then: mul: operand 1 has shape [s0], expected [3]");
  EXPECT_EQ(first_error("else(%a: f32[s0], %b: f32[s0])", "else(%a: f32[s0], %b: f32[s0] strides [2])"),
            "cond: else: input `b` is not row-major");
}

TEST(Cond, MustBeWhole) {
  const auto message = [](const std::string& text) {
    try {
      parse("graph @f(%c: bool[], %x: f32[4]) {\n" + text + "\n  return %0\n}");
    } catch (const ParseError& error) {
      return std::string(error.what());
    }
    return std::string("parsed");
  };
  EXPECT_EQ(message("  %0 = cond %c, %x : f32[4]"), "line 2: expected `{`, found `:`");
  EXPECT_EQ(message("  %0 = cond %c {\n then() {\n return %x\n }\n else() {\n return %x\n }\n } : f32[4]"),
            "line 4: no value is called %x");
  std::string deep = "  %0 = cond %c, %c {";
  for (int i = 0; i < 40; ++i) deep += " then(%c: bool[]) { %0 = cond %c, %c {";
  EXPECT_EQ(message(deep), "line 2: more than 16 branches and loops inside of each other");
}

TEST(Cond, IsDeadWhereNobodyReadsItAndNothingFails) {
  const auto nodes = [](const std::string& inner) {
    Graph graph = parse("graph @f(%c: bool[], %i: i64[1], %x: f64[4]) {\n  %0 = cond %c, %i, %x {\n"
                        "    then(%i: i64[1], %x: f64[4]) {\n      %0 = " + inner + "\n      return %0\n    }\n"
                        "    else(%i: i64[1], %x: f64[4]) {\n      %0 = slice %x {starts = [0], steps = [1]} : f64[1]\n"
                        "      return %0\n    }\n  } : f64[1]\n  return %x\n}");
    EXPECT_TRUE(verify(graph).empty()) << verify(graph)[0].message;
    optimise(graph, false);
    return graph.nodes.size();
  };
  EXPECT_EQ(nodes("slice %x {starts = [1], steps = [1]} : f64[1]"), 0u);
  EXPECT_EQ(nodes("gather %x, %i {axis = 0} : f64[1]"), 1u);
}

}  // namespace
}  // namespace fj
