// Every row of ops.def: its samples verify, print, parse back to the same text, and mean the same afterwards.
#include <gtest/gtest.h>

#include "graph_ir/parse.h"
#include "graph_ir/print.h"
#include "graph_ir/samples.h"
#include "graph_ir/verify.h"

namespace fj {
namespace {

class EveryRow : public testing::TestWithParam<int> {
 protected:
  Op op() const { return Op(GetParam()); }
};

TEST_P(EveryRow, HasSamplesThatVerifyAndSurvivePrinting) {
  if (op() == Op::extern_call) GTEST_SKIP() << "the array library's functions have no samples here";
  if (bodies_of(op()) != 0) GTEST_SKIP() << "cond_test.cpp and loop_test.cpp have those of branches and loops";
  const std::vector<DType> dtypes = sample_dtypes(op());
  ASSERT_FALSE(dtypes.empty());
  for (DType dtype : dtypes) {
    const std::vector<Sample> all = samples(op(), dtype);
    ASSERT_FALSE(all.empty());
    for (const Sample& sample : all) {
      SCOPED_TRACE(sample.description);
      for (const VerifyError& error : verify(sample.graph))
        ADD_FAILURE() << error.message << "\n" << print(sample.graph);
      const std::string text = print(sample.graph);
      const Graph parsed = parse(text);
      ASSERT_EQ(print(parsed), text);
      const std::string short_text = print_short(sample.graph);
      const Graph of_short = parse(short_text);
      ASSERT_EQ(print_short(of_short), short_text);
      for (const VerifyError& error : verify(of_short)) ADD_FAILURE() << error.message << "\n" << short_text;

      std::vector<DenseArray> first, second, third;
      std::vector<std::int64_t> symbols = sample.symbols;
      const std::uint32_t status = evaluate(sample.graph, sample.inputs, symbols, first);
      EXPECT_EQ(status & ~kFloatConditions, kOk);
      evaluate(parsed, sample.inputs, symbols, second);
      evaluate(of_short, sample.inputs, symbols, third);
      ASSERT_EQ(first.size(), 1u);
      EXPECT_EQ(first, second);
      EXPECT_EQ(first, third);
      const Type& type = sample.graph.type(sample.graph.outputs[0].value);
      EXPECT_EQ(first[0].dtype, type.dtype);
      EXPECT_EQ(first[0].shape, evaluate(type.shape, symbols));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, EveryRow, testing::Range(0, kOpCount),
                         [](const auto& info) { return std::string(name(Op(info.param))); });

TEST(Print, GivesEveryInputAWordOfItsOwn) {
  Graph graph;
  for (const char* name : {"L.self.w[0]", "L.self.w(0)", "0", "", "\xc3\xa9"}) graph.add_input(name, {DType::F32, {}});
  EXPECT_EQ(
      print(graph),
      "graph @f(%L.self.w_0_: f32[], %L.self.w_0__2: f32[], %_0: f32[], %_: f32[], %__2: f32[]) {\n  return\n}\n");
  EXPECT_EQ(print(parse(print(graph))), print(graph));
}

TEST(Parse, SaysTheLineAndWhatItFound) {
  auto message = [](const char* text) {
    try {
      parse(text);
    } catch (const ParseError& error) {
      return std::string(error.what());
    }
    return std::string("parsed");
  };
  EXPECT_EQ(message("graph @f(%x: f32[4]) {\n  %0 = frob %x : f32[4]\n  return %0\n}"),
            "line 2: no operation is called `frob`");
  EXPECT_EQ(message("graph @f(%x: f33[4]) {\n  return\n}"), "line 1: no dtype is called `f33`");
  EXPECT_EQ(message("graph @f() {\n\n  %0 = neg %y : f32[]\n  return\n}"), "line 3: no value is called %y");
  EXPECT_EQ(message("graph @f(%x: f32[4]) {\n  return %x\n} trailing"),
            "line 3: expected the end of the text, found `trailing`");
  EXPECT_EQ(message("graph @f(%x: f32[4]"), "line 1: expected `)`, found the end of the text");
}

TEST(Verify, FindsUsesBeforeDefinition) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::F32, {}});
  const ValueId a = graph.add(Op::neg, {x});
  graph.add(Op::neg, {a});
  std::swap(graph.nodes[0], graph.nodes[1]);
  const std::vector<VerifyError> errors = verify(graph);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].node, 0u);
  EXPECT_EQ(errors[0].message, "neg: operand 0 is not defined before its use");
}

}  // namespace
}  // namespace fj
