// The evaluator against values worked out by hand: what operations mean where libraries and languages differ.
#include <gtest/gtest.h>

#include <cmath>

#include "graph_ir/evaluate/elements.h"
#include "graph_ir/evaluate/evaluate.h"
#include "graph_ir/parse.h"

namespace fj {
namespace {

template <class T>
DenseArray array(DType dtype, std::vector<std::int64_t> shape, std::vector<T> values) {
  DenseArray result(dtype, std::move(shape));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const DenseArray one = scalar_array(dtype, Scalar(values[i]));
    std::memcpy(result.element(std::int64_t(i)), one.data.data(), one.data.size());
  }
  return result;
}
DenseArray doubles(std::vector<double> values) {
  const auto count = std::int64_t(values.size());
  return array(DType::F64, {count}, std::move(values));
}
DenseArray integers(DType dtype, std::vector<std::int64_t> values) {
  const auto count = std::int64_t(values.size());
  return array(dtype, {count}, std::move(values));
}

std::vector<double> values(const DenseArray& array) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < array.element_count(); ++i)
    result.push_back(std::visit(
        [](const auto& v) -> double {
          if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::pair<double, double>>) return v.first;
          else return double(v);
        },
        array.scalar(i)));
  return result;
}

struct Result {
  DenseArray array;
  std::uint32_t status;
};

Result run(Op op, std::vector<DenseArray> operands, Attrs attrs = {}) {
  Graph graph;
  std::vector<ValueId> inputs;
  for (const DenseArray& operand : operands)
    inputs.push_back(graph.add_input("x", {operand.dtype, Dims(operand.shape.begin(), operand.shape.end())}));
  graph.outputs.push_back({graph.add(op, inputs, std::move(attrs)), std::nullopt});
  std::vector<DenseArray> results;
  const std::uint32_t status = evaluate(graph, operands, {}, results);
  return {results[0], status};
}

using D = std::vector<double>;
const double inf = INFINITY, nan = NAN;

TEST(Evaluate, IntegersWrap) {
  EXPECT_EQ(values(run(Op::add, {integers(DType::I8, {127}), integers(DType::I8, {1})}).array), D{-128});
  EXPECT_EQ(values(run(Op::mul, {integers(DType::U8, {200}), integers(DType::U8, {2})}).array), D{144});
  EXPECT_EQ(values(run(Op::neg, {integers(DType::I16, {-32768})}).array), D{-32768});
}

TEST(Evaluate, QuotientsOfIntegersFollowPythonOrC) {
  const DenseArray a = integers(DType::I32, {7, -7, 7, -7}), b = integers(DType::I32, {2, 2, -2, -2});
  EXPECT_EQ(values(run(Op::floor_div, {a, b}).array), (D{3, -4, -4, 3}));
  EXPECT_EQ(values(run(Op::mod, {a, b}).array), (D{1, 1, -1, -1}));
  EXPECT_EQ(values(run(Op::trunc_div, {a, b}).array), (D{3, -3, -3, 3}));
  EXPECT_EQ(values(run(Op::fmod, {a, b}).array), (D{1, -1, 1, -1}));
}

TEST(Evaluate, IntegerDivisionByZeroIsReported) {
  EXPECT_EQ(run(Op::floor_div, {integers(DType::I64, {1}), integers(DType::I64, {0})}).status, kIntegerDivisionByZero);
  EXPECT_EQ(run(Op::mod, {integers(DType::U8, {1}), integers(DType::U8, {0})}).status, kIntegerDivisionByZero);
}

TEST(Evaluate, TheLowestIntegerByMinusOneOverflows) {
  const DenseArray lowest = integers(DType::I64, {INT64_MIN}), by = integers(DType::I64, {-1});
  EXPECT_EQ(run(Op::floor_div, {lowest, by}).status, kFloatOverflow);  // as NumPy reports it
  EXPECT_EQ(run(Op::mod, {lowest, by}).status, kOk);
  EXPECT_EQ(run(Op::trunc_div, {lowest, by}).status, kOk);
}

TEST(Evaluate, QuotientsOfFloatsFollowPython) {
  const DenseArray a = doubles({7, -7, 7, -7, 1, -6, 0.3}), b = doubles({2, 2, -2, -2, 0, 3, 0.1});
  EXPECT_EQ(values(run(Op::floor_div, {a, b}).array), (D{3, -4, -4, 3, inf, -2, 2}));
  const D rests = values(run(Op::mod, {a, b}).array);
  EXPECT_EQ(D(rests.begin(), rests.begin() + 4), (D{1, 1, -1, -1}));
  EXPECT_TRUE(std::isnan(rests[4]));
  EXPECT_EQ(rests[5], 0);
  EXPECT_FALSE(std::signbit(rests[5]));
}

TEST(Evaluate, MaximumPropagatesNanAndFmaxIgnoresIt) {
  const DenseArray a = doubles({1, nan, 3, nan}), b = doubles({2, 2, nan, nan});
  const D maximum = values(run(Op::maximum, {a, b}).array), fmax = values(run(Op::fmax, {a, b}).array);
  EXPECT_EQ(maximum[0], 2);
  for (int i = 1; i < 4; ++i) EXPECT_TRUE(std::isnan(maximum[std::size_t(i)]));
  EXPECT_EQ(D(fmax.begin(), fmax.begin() + 3), (D{2, 2, 3}));
  EXPECT_TRUE(std::isnan(fmax[3]));
  EXPECT_EQ(run(Op::lt, {a, b}).status, kOk);
}

TEST(Evaluate, RoundIsHalfToEven) {
  EXPECT_EQ(values(run(Op::round, {doubles({0.5, 1.5, 2.5, -0.5})}).array), (D{0, 2, 2, -0.0}));
}

TEST(Evaluate, ShiftsByTheWidthOrMoreEmptyTheNumber) {
  const DenseArray a = integers(DType::I8, {1, -1, -128, 5}), by = integers(DType::I8, {8, 8, 7, -1});
  EXPECT_EQ(values(run(Op::shift_left, {a, by}).array), (D{0, 0, 0, 0}));
  EXPECT_EQ(values(run(Op::shift_right, {a, by}).array), (D{0, -1, -1, 0}));
}

TEST(Evaluate, IntegerPowersWrapAndNegativeExponentsGiveFractionsRoundedToZero) {
  const DenseArray a = integers(DType::I32, {3, -1, -1, 2, 0, 10}), b = integers(DType::I32, {4, -3, -2, -1, 0, 10});
  EXPECT_EQ(values(run(Op::pow, {a, b}).array), (D{81, -1, 1, 0, 1, 1410065408}));
}

TEST(Evaluate, BoolArithmeticIsLogic) {
  const DenseArray a = integers(DType::Bool, {0, 0, 1, 1}), b = integers(DType::Bool, {0, 1, 0, 1});
  EXPECT_EQ(values(run(Op::add, {a, b}).array), (D{0, 1, 1, 1}));
  EXPECT_EQ(values(run(Op::mul, {a, b}).array), (D{0, 0, 0, 1}));
  EXPECT_EQ(values(run(Op::bit_not, {a}).array), (D{1, 1, 0, 0}));
}

TEST(Evaluate, HalfArithmeticRoundsPerOperation) {
  const DenseArray a = array(DType::F16, {1}, D{2048}), one = array(DType::F16, {1}, D{1});
  EXPECT_EQ(values(run(Op::add, {a, one}).array), D{2048});  // 2049 is a tie
  const DenseArray many(array(DType::F16, {4}, D{2048, 1, 1, 1}));
  Attrs axes;
  axes.set("axes", std::vector<std::int64_t>{0});
  EXPECT_EQ(values(run(Op::reduce_sum, {many}, axes).array), D{2052});  // 2051 in float, a tie
}

TEST(Evaluate, FloatConditionsAreReported) {
  const DenseArray one = array(DType::F32, {1}, D{1}), zero = array(DType::F32, {1}, D{0});
  EXPECT_EQ(run(Op::div, {one, zero}).status, kFloatDivide);
  EXPECT_EQ(run(Op::div, {zero, zero}).status, kFloatInvalid);
  EXPECT_EQ(run(Op::exp, {array(DType::F32, {1}, D{100})}).status, kFloatOverflow);
  EXPECT_EQ(run(Op::log, {zero}).status, kFloatDivide);
  EXPECT_EQ(run(Op::sqrt, {array(DType::F32, {1}, D{-1})}).status, kFloatInvalid);
  EXPECT_EQ(run(Op::add, {one, zero}).status, kOk);
}

TEST(Evaluate, ArgmaxTakesTheFirstAndNanWins) {
  Attrs axis;
  axis.set("axis", std::int64_t{0});
  EXPECT_EQ(values(run(Op::argmax, {doubles({1, 3, 3, 2})}, axis).array), D{1});
  EXPECT_EQ(values(run(Op::argmax, {doubles({1, nan, 3, nan})}, axis).array), D{1});
  EXPECT_EQ(values(run(Op::argmin, {doubles({2, 1, 1})}, axis).array), D{1});
}

TEST(Evaluate, IndicesCountFromTheEndAndOutOfRangeIsReported) {
  Attrs axis;
  axis.set("axis", std::int64_t{0});
  const DenseArray x = doubles({10, 20, 30});
  EXPECT_EQ(values(run(Op::gather, {x, integers(DType::I64, {-1, 0})}, axis).array), (D{30, 10}));
  EXPECT_EQ(run(Op::gather, {x, integers(DType::I64, {3})}, axis).status, kIndexOutOfRange);
  EXPECT_EQ(run(Op::take_along, {x, integers(DType::I64, {-4})}, axis).status, kIndexOutOfRange);
  EXPECT_EQ(values(run(Op::scatter_add, {x, doubles({1, 2}), integers(DType::I64, {1, 1})}, axis).array),
            (D{10, 23, 30}));
  EXPECT_EQ(values(run(Op::scatter, {x, doubles({1, 2}), integers(DType::I64, {1, -2})}, axis).array), (D{10, 2, 30}));
  EXPECT_EQ(run(Op::scatter, {x, doubles({1, 2}), integers(DType::I64, {1, 3})}, axis).status, kIndexOutOfRange);
}

TEST(Evaluate, WholeGraphsWithDefinedSymbols) {
  const Graph graph = parse(R"(
    graph @f(%x: f64[s0]) where s0 >= 1, s1 = s0 // 2 {
      %0 = slice %x {starts = [s0 - s1], steps = [1]} : f64[s1]
      %1 = dim {value = s1*10 + s0} : i64[]
      %2 = neg %x : f64[s0]
      write %x <- %2
      return %0, %1
    })");
  std::vector<std::int64_t> symbols = {5, 0};
  std::vector<DenseArray> results;
  EXPECT_EQ(evaluate(graph, std::vector{doubles({1, 2, 3, 4, 5})}, symbols, results), kOk);
  EXPECT_EQ(symbols[1], 2);
  EXPECT_EQ(values(results[0]), (D{4, 5}));
  EXPECT_EQ(values(results[1]), D{25});
  EXPECT_EQ(values(results[2]), (D{-1, -2, -3, -4, -5}));
}

TEST(Evaluate, MatrixProducts) {
  const DenseArray a = array(DType::F32, {2, 3}, D{1, 2, 3, 4, 5, 6}),
                   b = array(DType::F32, {3, 2}, D{1, 0, 0, 1, 1, 1});
  EXPECT_EQ(values(run(Op::matmul, {a, b}).array), (D{4, 5, 10, 11}));
}

}  // namespace
}  // namespace fj
