// IEEE conditions: what eager raises a kernel raises, and ordinary numbers raise nothing, whatever the remainder loop.
#include <algorithm>
#include <cmath>

#include "graph_ir/ops.h"
#include "graph_ir/parse.h"
#include "tests/codegen/harness.h"

namespace fj::test {

namespace {

constexpr std::uint32_t kReported = kFloatDivide | kFloatOverflow | kFloatInvalid;

DenseArray filled(DType dtype, std::int64_t count, double value) {
  DenseArray array(dtype, {count});
  const DenseArray one = scalar_array(dtype, value);
  for (std::int64_t i = 0; i < count; ++i) std::copy(one.data.begin(), one.data.end(), array.element(i));
  return array;
}

Graph graph_of(Op op, DType dtype, std::int64_t count) {
  Graph graph;
  std::vector<ValueId> operands;
  for (std::size_t i = 0; i < row(op).operands.size(); ++i)
    operands.push_back(graph.add_input("x" + std::to_string(i), {dtype, {SymDim(count)}}));
  graph.outputs.push_back({graph.add(op, operands), std::nullopt});
  return graph;
}

std::uint32_t raised_by_kernel(const Graph& graph, const std::vector<DenseArray>& inputs, const std::string& level,
                               TierChoice tier = TierChoice::Auto) {
  CompileOptions options;
  options.cpu = level;
  options.tier = tier;
  options.float_conditions = true;
  return run_llvm(graph, inputs, {}, options, kReported).status;
}

}  // namespace

TEST(Conditions, special_results_raise_what_the_evaluator_raises) {
  struct Case {
    Op op;
    std::vector<double> operands;
  };
  const Case cases[] = {
      {Op::log, {0}},
      {Op::log, {-1}},
      {Op::log2, {0}},
      {Op::log10, {-2}},
      {Op::log1p, {-1}},
      {Op::log1p, {-2}},
      {Op::exp, {1000}},
      {Op::exp2, {2000}},
      {Op::expm1, {1000}},
      {Op::sqrt, {-1}},
      {Op::rsqrt, {0}},
      {Op::div, {1, 0}},
      {Op::div, {0, 0}},
      {Op::mul, {1e308, 1e308}},
      {Op::add, {INFINITY, -INFINITY}},
      {Op::pow, {0, -1}},
      {Op::pow, {-2, 0.5}},
      {Op::pow, {1e300, 3}},
      {Op::sin, {INFINITY}},
      {Op::cos, {-INFINITY}},
      {Op::tan, {INFINITY}},
      {Op::asin, {2}},
      {Op::acos, {-2}},
      {Op::acosh, {0.5}},
      {Op::atanh, {1}},
      {Op::atanh, {2}},
      {Op::sinh, {1000}},
      {Op::cosh, {1000}},
      {Op::fmod, {1, 0}},
      {Op::mod, {1, 0}},
      {Op::floor_div, {1, 0}},
      {Op::hypot, {1e308, 1.7e308}},
  };
  for (const Case& test : cases)
    for (DType dtype : {DType::F32, DType::F64}) {
      std::vector<double> operands = test.operands;
      if (dtype == DType::F32)
        for (double& operand : operands)
          if (std::isfinite(operand) && std::fabs(operand) > 1e38) operand = 3e38;
      for (std::int64_t count : {1, 70}) {
        const Graph graph = graph_of(test.op, dtype, count);
        std::vector<DenseArray> inputs;
        for (double operand : operands) inputs.push_back(filled(dtype, count, operand));
        std::vector<DenseArray> results;
        const std::uint32_t expected = evaluate(graph, inputs, {}, results) & kReported;
        for (const std::string& level : all_levels)
          EXPECT_EQ(raised_by_kernel(graph, inputs, level) & expected, expected)
              << name(test.op) << " of " << name(dtype) << " " << operands[0] << " x " << count << " at '" << level
              << "'";
      }
    }
}

TEST(Conditions, ordinary_numbers_raise_nothing) {
  for (int o = 0; o < kOpCount; ++o) {
    const Op op = Op(o);
    if (!is_pointwise(op) || op == Op::cast || op == Op::where) continue;
    for (DType dtype : {DType::F32, DType::F64}) {
      if (!accepts(op, dtype) || row(op).type_rule == "Integer") continue;
      const bool inside = op == Op::asin || op == Op::acos || op == Op::atanh;
      const bool above = op == Op::acosh;
      for (std::int64_t count : {1, 5, 67}) {
        const Graph graph = graph_of(op, dtype, count);
        std::vector<DenseArray> inputs;
        for (std::size_t i = 0; i < graph.inputs.size(); ++i)
          inputs.push_back(sample(dtype, {count}, 3 + i, above ? 1.25 : 0.25, inside ? 0.75 : 3));
        for (const std::string& level : {std::string(), wide_level})
          EXPECT_EQ(raised_by_kernel(graph, inputs, level), 0u)
              << name(op) << " of " << name(dtype) << " x " << count << " at '" << level << "'";
      }
    }
  }
}

TEST(Conditions, comparing_nan_raises_nothing) {
  for (Op op : {Op::lt, Op::le, Op::gt, Op::ge, Op::eq, Op::ne, Op::maximum, Op::minimum, Op::fmax, Op::fmin, Op::sign,
                Op::exp, Op::log, Op::tanh, Op::erf, Op::is_nan, Op::is_finite})
    for (DType dtype : {DType::F32, DType::F64})
      for (std::int64_t count : {1, 67}) {
        const Graph graph = graph_of(op, dtype, count);
        const std::vector<DenseArray> inputs(graph.inputs.size(), filled(dtype, count, NAN));
        for (const std::string& level : {std::string(), wide_level})
          EXPECT_EQ(raised_by_kernel(graph, inputs, level), 0u)
              << name(op) << " of " << name(dtype) << " x " << count << " at '" << level << "'";
      }
}

// x - x = 0 and then a division: a masked-off lane of zeros would divide 0 by 0.
TEST(Conditions, lanes_that_are_masked_off_raise_nothing) {
  for (std::int64_t count : {1, 3, 17, 35}) {
    Graph graph;
    const ValueId x = graph.add_input("x", {DType::F32, {SymDim(count)}});
    const ValueId y = graph.add_input("y", {DType::F32, {SymDim(count)}});
    const ValueId difference = graph.add(Op::sub, {x, y});
    graph.outputs.push_back({graph.add(Op::div, {x, difference}), std::nullopt});
    graph.outputs.push_back({graph.add(Op::log, {x}), std::nullopt});
    for (const std::string& level : all_levels)
      EXPECT_EQ(raised_by_kernel(graph, {filled(DType::F32, count, 3), filled(DType::F32, count, 1)}, level), 0u)
          << count << level;
  }
}

TEST(Conditions, what_is_chosen_nowhere_is_computed_in_every_remainder) {
  for (const std::string& dtype : {std::string("f32"), std::string("f64")})
    for (int count : {1, 2, 3, 4, 5, 7, 8, 17})
      for (const std::string& level : all_levels) {
        const std::string vector = dtype + "[" + std::to_string(count) + "]";
        const std::string shape = " {dims = [], shape = [" + std::to_string(count) + "]} : ";
        const Graph graph =
            parse("graph @f(%x: " + vector + ") {\n  %0 = constant {value = 1.0, to = " + dtype + "} : " + dtype +
                  "[]\n  %1 = broadcast %0" + shape + vector + "\n  %2 = constant {value = 0.0, to = " + dtype +
                  "} : " + dtype + "[]\n  %3 = broadcast %2" + shape + vector + "\n  %4 = gt %x, %3 : bool[" +
                  std::to_string(count) + "]\n  %5 = div %1, %x : " + vector + "\n  %6 = where %4, %5, %3 : " + vector +
                  "\n  return %6\n}");
        DenseArray x = filled(dtype == "f32" ? DType::F32 : DType::F64, count, 2);
        std::fill_n(x.element(0), dtype == "f32" ? 4 : 8, std::byte());
        for (TierChoice tier : {TierChoice::Quick, TierChoice::Optimised})
          EXPECT_EQ(raised_by_kernel(graph, {x}, level, tier) & kReported, kFloatDivide) << vector << " " << level;
      }
}

TEST(Conditions, a_trapped_condition_leaves_the_inputs_alone) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::F32, {SymDim(5)}});
  const ValueId result = graph.add(Op::log, {x});
  graph.writes.push_back({0, result});
  CompileOptions options;
  options.float_conditions = true;
  const Outcome outcome = run_llvm(graph, {filled(DType::F32, 5, -1)}, {}, options, kFloatInvalid);
  EXPECT_EQ(outcome.status & kFloatInvalid, kFloatInvalid);
  EXPECT_TRUE(close(outcome.results[0], filled(DType::F32, 5, -1), 0));
}

}  // namespace fj::test
