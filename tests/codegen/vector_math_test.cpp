// The inlined functions over their whole range: units in the last place against the C library in higher precision, and
// special arguments.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "tests/codegen/harness.h"

namespace fj::test {

namespace {

struct Function {
  Op op;
  std::function<long double(long double)> exact;
  std::vector<std::pair<double, double>> ranges;
  double single_bound, double_bound;
};

template <class T>
DenseArray array_of(DType dtype, const std::vector<T>& values) {
  DenseArray array(dtype, {std::int64_t(values.size())});
  std::memcpy(array.data.data(), values.data(), values.size() * sizeof(T));
  return array;
}

template <class T>
double units(T actual, long double exact) {
  if (std::isnan(exact)) return std::isnan(actual) ? 0 : INFINITY;
  if (std::isinf(T(exact)) || std::isinf(actual)) return T(exact) == actual ? 0 : INFINITY;
  const T rounded = T(exact);
  const T next = std::nextafter(std::fabs(rounded), T(INFINITY));
  const long double unit = (long double)(next) - (long double)(std::fabs(rounded));
  return double(std::fabs((long double)(actual) - exact) / unit);
}

template <class T>
double worst(const Function& function, DType dtype, const std::string& level) {
  std::vector<T> arguments;
  for (const auto& [low, high] : function.ranges) {
    const int count = 20000;
    for (int i = 0; i <= count; ++i) arguments.push_back(T(low + (high - low) * i / count));
  }
  if (sizeof(T) == 8)
    for (T& argument : arguments) argument *= T(1 + 1e-12);
  Graph graph;
  const ValueId x = graph.add_input("x", {dtype, {SymDim(std::int64_t(arguments.size()))}});
  graph.outputs.push_back({graph.add(function.op, {x}), std::nullopt});
  CompileOptions options;
  options.cpu = level;
  const Outcome outcome = run_llvm(graph, {array_of(dtype, arguments)}, {}, options);
  double largest = 0;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    T actual;
    std::memcpy(&actual, outcome.results[0].element(std::int64_t(i)), sizeof(T));
    const double error = units(actual, function.exact(arguments[i]));
    if (error > largest) largest = error;
    if (error > 100)
      ADD_FAILURE() << name(function.op) << "(" << arguments[i] << ") = " << actual << ", expected "
                    << function.exact(arguments[i]);
    if (error > 100) break;
  }
  return largest;
}

const Function functions[] = {
    {Op::exp, [](long double x) { return std::exp(x); }, {{-87, 88}, {-1e-3, 1e-3}, {-104, -87}}, 1.1, 1.1},
    {Op::log,
     [](long double x) { return std::log(x); },
     {{1e-30, 1e-20}, {0.1, 10}, {0.99, 1.01}, {1e10, 1e30}}, 1, 1},
    {Op::sin, [](long double x) { return std::sin(x); }, {{-8, 8}, {-100, 100}, {-7000, 7000}}, 1.6, 1.6},
    {Op::cos, [](long double x) { return std::cos(x); }, {{-8, 8}, {-100, 100}, {-7000, 7000}}, 1.6, 1.6},
    {Op::tanh, [](long double x) { return std::tanh(x); }, {{-10, 10}, {-0.1, 0.1}, {-30, 30}}, 1.2, 1.2},
    {Op::erf, [](long double x) { return std::erf(x); }, {{-5, 5}, {-0.1, 0.1}}, 1.2, 1.2},
    {Op::expm1, [](long double x) { return std::expm1(x); }, {{-20, 88}, {-1, 1}, {-1e-3, 1e-3}, {-1e-8, 1e-8}}, 2, 2},
    {Op::log1p,
     [](long double x) { return std::log1p(x); },
     {{-0.99, 10}, {-1e-3, 1e-3}, {-1e-8, 1e-8}, {1e5, 1e8}}, 1, 1},
    {Op::exp2, [](long double x) { return std::exp2(x); }, {{-126, 127}, {-1, 1}, {-149, -126}}, 1.2, 1.2},
    {Op::log2,
     [](long double x) { return std::log2(x); },
     {{1e-30, 1e-20}, {0.1, 10}, {0.99, 1.01}, {1, 1e30}},
     1.2,
     1.2},
    {Op::log10,
     [](long double x) { return std::log10(x); },
     {{1e-30, 1e-20}, {0.1, 10}, {0.99, 1.01}, {1, 1e30}},
     1.2,
     1.2},
    {Op::tan, [](long double x) { return std::tan(x); }, {{-8, 8}, {-100, 100}, {-7000, 7000}}, 0.6, 1.3},
    {Op::asin, [](long double x) { return std::asin(x); }, {{-1, 1}, {-1e-3, 1e-3}, {0.999, 1}}, 2, 2},
    {Op::acos, [](long double x) { return std::acos(x); }, {{-1, 1}, {-1e-3, 1e-3}, {0.999, 1}}, 1.3, 1.3},
    {Op::atan, [](long double x) { return std::atan(x); }, {{-10, 10}, {-1e-3, 1e-3}, {-1e6, 1e6}}, 1.6, 1.8},
    {Op::sinh, [](long double x) { return std::sinh(x); }, {{-10, 10}, {-1e-3, 1e-3}, {-89, 89}}, 1.6, 1.6},
    {Op::cosh, [](long double x) { return std::cosh(x); }, {{-10, 10}, {-1e-3, 1e-3}, {-89, 89}}, 1.6, 1.6},
    {Op::asinh,
     [](long double x) { return std::asinh(x); },
     {{-10, 10}, {-1e-3, 1e-3}, {-1e30, 1e30}, {0, 3e4}},
     1.6,
     1.6},
    {Op::acosh, [](long double x) { return std::acosh(x); }, {{1, 10}, {1, 1.001}, {1, 1e30}, {1, 3e4}}, 2, 2.1},
    {Op::atanh, [](long double x) { return std::atanh(x); }, {{-1, 1}, {-1e-3, 1e-3}, {0.999, 1}}, 2, 2},
};

}  // namespace

TEST(VectorMath, errors_stay_within_the_published_bounds) {
  for (const Function& function : functions)
    for (const std::string& level : all_levels) {
      // Without FMA the reduction of large arguments loses some digits.
      const double slack = level == "x86-64" ? 2 : 1;
      EXPECT_LE(worst<float>(function, DType::F32, level), function.single_bound * slack)
          << name(function.op) << " f32 at '" << level << "'";
      EXPECT_LE(worst<double>(function, DType::F64, level), function.double_bound * slack)
          << name(function.op) << " f64 at '" << level << "'";
    }
}

TEST(VectorMath, special_arguments) {
  const std::vector<double> specials = {0.0,    -0.0, INFINITY, -INFINITY, NAN,  1e-40, -1e-40, 3e38, -3e38,
                                        1e-310, 1e30, -1e30,    88.8,      -104, 710,   -746,   0.5,  1,
                                        -1,     2,    -2,       1e5,       1e7,  -1e7,  3,      1000,   1024,
                                        -0.5,   89,   711,      -711,      89.5, 1e300, -1e300, 1e-300, 88.75};
  std::vector<float> narrow(specials.begin(), specials.end());
  for (Op op : {Op::exp,  Op::log,  Op::sin,  Op::cos,  Op::tanh, Op::erf,  Op::expm1, Op::log1p, Op::sqrt,  Op::rsqrt,
                Op::exp2, Op::log2, Op::log10, Op::tan, Op::asin, Op::acos, Op::atan,  Op::sinh,  Op::cosh,  Op::asinh,
                Op::acosh, Op::atanh})
    for (DType dtype : {DType::F32, DType::F64}) {
      Graph graph;
      const ValueId x = graph.add_input("x", {dtype, {SymDim(std::int64_t(specials.size()))}});
      graph.outputs.push_back({graph.add(op, {x}), std::nullopt});
      same_as_reference(graph, {dtype == DType::F32 ? array_of(dtype, narrow) : array_of(dtype, specials)},
                        {.ulps = 3});
    }
}

TEST(VectorMath, zeros_keep_their_sign) {
  for (Op op : {Op::expm1, Op::log1p, Op::sin, Op::tan, Op::asin, Op::atan, Op::sinh, Op::tanh, Op::asinh, Op::atanh,
                Op::erf})
    for (const std::string& level : all_levels)
      for (DType dtype : {DType::F32, DType::F64}) {
        Graph graph;
        const ValueId x = graph.add_input("x", {dtype, {SymDim(std::int64_t(40))}});
        graph.outputs.push_back({graph.add(op, {x}), std::nullopt});
        CompileOptions options;
        options.cpu = level;
        const DenseArray zeros = dtype == DType::F32 ? array_of(dtype, std::vector<float>(40, -0.0f))
                                                     : array_of(dtype, std::vector<double>(40, -0.0));
        EXPECT_EQ(run_llvm(graph, {zeros}, {}, options).results[0].data, zeros.data)
            << name(op) << " at '" << level << "'";
      }
}

namespace {

const std::vector<double> kOperands = {0.0,   -0.0,  1.0,    -1.0,  2.0, -2.0, 0.5,      10.0,      3.7,
                                       -3.7,  1e-40, -1e-40, 1e-310, 1e30, 3e38, -3e38,  1e-300,    1e300,
                                       7.0,   -7.0,  0.1,    0.3,   1e8, NAN,  INFINITY, -INFINITY};

/// All pairs of special operands, and a few thousand ordinary ones.
template <class T>
std::pair<std::vector<T>, std::vector<T>> pairs() {
  std::vector<T> x, y;
  for (double a : kOperands)
    for (double c : kOperands) x.push_back(T(a)), y.push_back(T(c));
  for (int i = 0; i < 20000; ++i) {
    const double angle = 0.000314159 * i * 20, length = std::exp(0.0011 * (i % 5000) - 2);
    x.push_back(T(length * std::cos(angle)));
    y.push_back(T(std::sin(angle * 3.1) * (i % 7 + 0.01)));
  }
  return {x, y};
}

template <class T>
void binaries(DType dtype) {
  const auto [first, second] = pairs<T>();
  for (auto [op, ulps] : {std::pair{Op::fmod, 0}, {Op::mod, 0}, {Op::floor_div, 0}, {Op::atan2, 3}, {Op::hypot, 2}}) {
    Graph graph;
    const Dims shape{SymDim(std::int64_t(first.size()))};
    const ValueId x = graph.add_input("x", {dtype, shape}), y = graph.add_input("y", {dtype, shape});
    graph.outputs.push_back({graph.add(op, {x, y}), std::nullopt});
    same_as_reference(graph, {array_of(dtype, first), array_of(dtype, second)}, {.ulps = double(ulps)});
  }
}

}  // namespace

namespace {

/// Largest error of a function of two numbers against long double.
template <class T>
double worst_of_two(Op op, DType dtype, const std::string& level,
                    const std::function<long double(long double, long double)>& exact, bool positive) {
  std::vector<T> x, y;
  for (int i = 0; i < 60000; ++i) {
    const double angle = 0.000104729 * i, length = std::exp(0.0011 * (i * 7 % 5000) - 2);
    x.push_back(T(positive ? length : length * std::cos(angle)));
    y.push_back(T(positive ? 8 * std::sin(0.37 * i) : length * std::sin(angle)));
  }
  Graph graph;
  const Dims shape{SymDim(std::int64_t(x.size()))};
  const ValueId a = graph.add_input("x", {dtype, shape}), c = graph.add_input("y", {dtype, shape});
  graph.outputs.push_back({graph.add(op, {a, c}), std::nullopt});
  CompileOptions options;
  options.cpu = level;
  const Outcome outcome = run_llvm(graph, {array_of(dtype, x), array_of(dtype, y)}, {}, options);
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    T actual;
    std::memcpy(&actual, outcome.results[0].element(std::int64_t(i)), sizeof(T));
    largest = std::max(largest, units(actual, exact(x[i], y[i])));
  }
  return largest;
}

}  // namespace

TEST(VectorMath, errors_of_functions_of_two_numbers) {
  struct Row {
    Op op;
    std::function<long double(long double, long double)> exact;
    bool positive;
    double single_bound, double_bound;
  };
  const Row rows[] = {
      {Op::atan2, [](long double x, long double y) { return std::atan2(x, y); }, false, 2, 2.5},
      {Op::hypot, [](long double x, long double y) { return std::hypot(x, y); }, false, 1, 1.2},
      {Op::pow, [](long double x, long double y) { return std::pow(x, y); }, true, 0.6, 0.6},
  };
  for (const auto& [op, exact, positive, single_bound, double_bound] : rows)
    for (const std::string& level : all_levels) {
      const double slack = level == "x86-64" ? 2 : 1;
      EXPECT_LE(worst_of_two<float>(op, DType::F32, level, exact, positive), single_bound * slack)
          << name(op) << " f32 at '" << level << "'";
      EXPECT_LE(worst_of_two<double>(op, DType::F64, level, exact, positive), double_bound * slack)
          << name(op) << " f64 at '" << level << "'";
    }
}

TEST(VectorMath, functions_of_two_numbers) {
  binaries<float>(DType::F32);
  binaries<double>(DType::F64);
}

TEST(VectorMath, logarithms_of_powers_are_whole_numbers) {
  std::vector<double> tens;
  for (int i = -300; i <= 300; ++i) tens.push_back(std::stod("1e" + std::to_string(i)));
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::F64, {SymDim(std::int64_t(tens.size()))}});
  graph.outputs.push_back({graph.add(Op::log10, {x}), std::nullopt});
  same_as_reference(graph, {array_of(DType::F64, tens)}, {.ulps = 0, .levels = {"", wide_level}});
}

namespace {

template <class T>
void powers(DType dtype) {
  std::vector<T> bases, exponents;
  const double infinity = INFINITY, nan = NAN;
  for (double base : {0.0,  -0.0, 1.0,      -1.0,      2.0, -2.0,   0.5, 10.0,       1e-40, 1e30, 1e300,
                      1e-310, -3.0, -1e-3, infinity, -infinity, nan, 1.0001, 3.7, 0.99999999, -0.7})
    for (double exponent : {0.0, -0.0, 1.0, 2.0, 3.0, -1.0, 0.5, 2.7, -2.5, 1e4, 1e8, -1e8, infinity, -infinity, nan,
                            100.0, -7.0, 999999.0, 1e16, 0.3}) {
      bases.push_back(T(base));
      exponents.push_back(T(exponent));
    }
  for (int i = 0; i < 20000; ++i) {
    bases.push_back(T(std::exp(0.002 * (i % 5000) - 5)));
    exponents.push_back(T(60 * std::sin(0.37 * i)));
  }
  Graph graph;
  const Dims shape{SymDim(std::int64_t(bases.size()))};
  const ValueId x = graph.add_input("x", {dtype, shape}), y = graph.add_input("y", {dtype, shape});
  graph.outputs.push_back({graph.add(Op::pow, {x, y}), std::nullopt});
  same_as_reference(graph, {array_of(dtype, bases), array_of(dtype, exponents)}, {.ulps = 1});
}

}  // namespace

TEST(VectorMath, powers) {
  powers<float>(DType::F32);
  powers<double>(DType::F64);
}

}  // namespace fj::test
