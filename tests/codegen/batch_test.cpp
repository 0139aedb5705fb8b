// What becomes one launch of several kernels, what is written in place, and that both compute what the graph says.
#include "graph_ir/parse.h"
#include "tests/codegen/harness.h"

namespace fj::test {

namespace {

/// p_i -= rate * g_i for parameters of the sizes given.
std::string updates(const std::vector<std::int64_t>& sizes) {
  std::string inputs, nodes, writes;
  int next = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::string n = std::to_string(i), type = " : f32[" + std::to_string(sizes[i]) + "]";
    const std::string p = "%p" + n, g = "%g" + n;
    inputs += (i ? ", " : "") + p + type.substr(1) + ", " + g + type.substr(1);
    const auto value = [](int number) { return "%" + std::to_string(number); };
    nodes += "  " + value(next) + " = broadcast %0 {dims = []}" + type + "\n  " + value(next + 1) + " = mul " + g +
             ", " + value(next) + type + "\n  " + value(next + 2) + " = sub " + p + ", " + value(next + 1) + type +
             "\n";
    writes += "  write " + p + " <- " + value(next + 2) + "\n";
    next += 3;
  }
  return "graph @f(" + inputs + ") {\n  %0 = constant {value = 0.5, to = f32} : f32[]\n" + nodes + writes +
         "  return\n}";
}

std::vector<DenseArray> arrays(const std::vector<std::int64_t>& sizes) {
  std::vector<DenseArray> made;
  for (std::size_t i = 0; i < 2 * sizes.size(); ++i) made.push_back(sample(DType::F32, {sizes[i / 2]}, i + 1));
  return made;
}

}  // namespace

TEST(Batch, updates_of_many_parameters_are_one_launch) {
  for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{7, 7},
                                                 {64, 10, 1000, 33, 128},
                                                 {5, 0, 17},
                                                 {0, 0},
                                                 std::vector<std::int64_t>(60, 40),
                                                 {20000, 20000, 20000, 3, 20000, 19999}})
    same_as_reference(updates(sizes), arrays(sizes), {.kernels = 1});
}

TEST(Batch, what_fills_threads_by_itself_is_left_alone) {
  const std::vector<std::int64_t> sizes = {40, 1 << 20, 50, 1 << 20};
  same_as_reference(updates(sizes), arrays(sizes), {.kernels = 3, .levels = {""}});
}

TEST(Batch, a_launch_waits_for_what_its_kernels_read) {
  // The second sum of each pair reads the first; so there are two launches and not one.
  same_as_reference(R"(
graph @f(%x: f32[30, 5], %y: f32[30, 5]) {
  %0 = reduce_sum %x {axes = [0]} : f32[5]
  %1 = reduce_sum %y {axes = [0]} : f32[5]
  %2 = broadcast %0 {dims = [1]} : f32[30, 5]
  %3 = mul %2, %x : f32[30, 5]
  %4 = reduce_sum %3 {axes = [0, 1]} : f32[]
  %5 = broadcast %1 {dims = [1]} : f32[30, 5]
  %6 = mul %5, %y : f32[30, 5]
  %7 = reduce_sum %6 {axes = [0, 1]} : f32[]
  return %4, %7
})", {sample(DType::F32, {30, 5}, 1), sample(DType::F32, {30, 5}, 2)}, {.ulps = 20, .scale = 1000, .kernels = 2});
}

TEST(Batch, other_constants_and_other_types_are_other_work) {
  same_as_reference(R"(
graph @f(%x: f32[30], %y: f32[31], %z: f64[30], %m: f32[30], %n: f32[30]) {
  %0 = constant {value = 0.0, to = f32} : f32[]
  %1 = constant {value = -0.0, to = f32} : f32[]
  %2 = broadcast %0 {dims = []} : f32[30]
  %3 = mul %x, %2 : f32[30]
  %4 = broadcast %1 {dims = []} : f32[31]
  %5 = mul %y, %4 : f32[31]
  %6 = mul %z, %z : f64[30]
  %7 = mul %m, %n : f32[30]
  return %3, %5, %6, %7
})",
                    {sample(DType::F32, {30}, 1), sample(DType::F32, {31}, 2), sample(DType::F64, {30}, 3),
                     sample(DType::F32, {30}, 4), sample(DType::F32, {30}, 5)},
                    {.kernels = 4});
}

// A number that is checked before parameters are written, as Python's numbers in an optimiser's step are: the check is
// a kernel of its own, what follows it writes in place, and what counts the steps is copied last.
const char* const checked = R"(
graph @f(%n: i64[], %p: f32[300], %m: f32[300], %c: i64[], %q: f32[200]) {
  %0 = constant {value = 7, to = i64} : i64[]
  %1 = floor_div %0, %n : i64[]
  %2 = cast %1 {to = f32} : f32[]
  %3 = broadcast %2 {dims = []} : f32[300]
  %4 = add %m, %3 : f32[300]
  %5 = mul %p, %4 : f32[300]
  %6 = floor_div %0, %c : i64[]
  %7 = cast %6 {to = f32} : f32[]
  %8 = broadcast %7 {dims = []} : f32[200]
  %9 = add %q, %8 : f32[200]
  write %p <- %5
  write %m <- %4
  write %q <- %9
  write %n <- %1
  return
})";

DenseArray integer(std::int64_t value) {
  DenseArray made(DType::I64, {});
  *reinterpret_cast<std::int64_t*>(made.data.data()) = value;
  return made;
}

TEST(Batch, checks_come_before_what_is_written_in_place) {
  const auto inputs = [](std::int64_t n, std::int64_t c) {
    return std::vector<DenseArray>{integer(n), sample(DType::F32, {300}, 1), sample(DType::F32, {300}, 2), integer(c),
                                   sample(DType::F32, {200}, 3)};
  };
  // Checks, two updates, the copy of n.
  same_as_reference(checked, inputs(2, -3), {.kernels = 5});
  // Either check fails: nothing was written.
  for (const auto& [n, c] : {std::pair<std::int64_t, std::int64_t>{0, 1}, {1, 0}, {0, 0}}) {
    const Outcome outcome = run_llvm(parse(checked), inputs(n, c), {}, {});
    EXPECT_EQ(outcome.status, std::uint32_t(kIntegerDivisionByZero));
    const std::vector<DenseArray> before = inputs(n, c);
    ASSERT_EQ(outcome.results.size(), 4u);
    const std::size_t written[] = {1, 2, 4, 0};
    for (std::size_t w = 0; w < 4; ++w) EXPECT_TRUE(close(outcome.results[w], before[written[w]], 0)) << w;
  }
}

}  // namespace fj::test
