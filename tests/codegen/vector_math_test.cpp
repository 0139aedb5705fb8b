// The inlined functions over their whole range: units in the last place against the C library in higher precision, and
// special arguments.
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
    {Op::exp, [](long double x) { return std::exp(x); }, {{-87, 88}, {-1e-3, 1e-3}, {-104, -87}}, 1.5, 1.6},
    {Op::log,
     [](long double x) { return std::log(x); },
     {{1e-30, 1e-20}, {0.1, 10}, {0.99, 1.01}, {1e10, 1e30}},
     1.5,
     1.5},
    {Op::sin, [](long double x) { return std::sin(x); }, {{-8, 8}, {-100, 100}, {-7000, 7000}}, 2, 2},
    {Op::cos, [](long double x) { return std::cos(x); }, {{-8, 8}, {-100, 100}, {-7000, 7000}}, 2, 2},
    {Op::tanh, [](long double x) { return std::tanh(x); }, {{-10, 10}, {-0.1, 0.1}, {-30, 30}}, 2.5, 2.5},
    {Op::erf, [](long double x) { return std::erf(x); }, {{-5, 5}, {-0.1, 0.1}}, 2, 2},
    {Op::expm1, [](long double x) { return std::expm1(x); }, {{-20, 88}, {-1, 1}, {-1e-3, 1e-3}, {-1e-8, 1e-8}}, 1, 2},
    {Op::log1p,
     [](long double x) { return std::log1p(x); },
     {{-0.99, 10}, {-1e-3, 1e-3}, {-1e-8, 1e-8}, {1e5, 1e8}},
     1,
     2},
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
                                        -1,     2,    -2,       1e5,       1e7,  -1e7,  3};
  std::vector<float> narrow(specials.begin(), specials.end());
  for (Op op : {Op::exp, Op::log, Op::sin, Op::cos, Op::tanh, Op::erf, Op::expm1, Op::log1p, Op::sqrt, Op::rsqrt})
    for (DType dtype : {DType::F32, DType::F64}) {
      Graph graph;
      const ValueId x = graph.add_input("x", {dtype, {SymDim(std::int64_t(specials.size()))}});
      graph.outputs.push_back({graph.add(op, {x}), std::nullopt});
      same_as_reference(graph, {dtype == DType::F32 ? array_of(dtype, narrow) : array_of(dtype, specials)},
                        {.ulps = 3});
    }
}

TEST(VectorMath, powers) {
  std::vector<float> bases, exponents;
  for (float base :
       {0.0f, -0.0f, 1.0f, -1.0f, 2.0f, -2.0f, 0.5f, 10.0f, 1e-40f, 1e30f, INFINITY, -INFINITY, NAN, 1.0001f, 3.7f})
    for (float exponent : {0.0f, -0.0f, 1.0f, 2.0f, 3.0f, -1.0f, 0.5f, 2.7f, -2.5f, 1e4f, 1e8f, -1e8f, INFINITY,
                           -INFINITY, NAN, 100.0f}) {
      bases.push_back(base);
      exponents.push_back(exponent);
    }
  Graph graph;
  const Dims shape{SymDim(std::int64_t(bases.size()))};
  const ValueId x = graph.add_input("x", {DType::F32, shape}), y = graph.add_input("y", {DType::F32, shape});
  graph.outputs.push_back({graph.add(Op::pow, {x, y}), std::nullopt});
  same_as_reference(graph, {array_of(DType::F32, bases), array_of(DType::F32, exponents)}, {.ulps = 1});
}

}  // namespace fj::test
