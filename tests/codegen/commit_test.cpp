// Inputs that are written in place: behind what can fail, and only where nothing needs what lay there.
#include "graph_ir/parse.h"
#include "tests/codegen/harness.h"

namespace fj::test {

namespace {

DenseArray position(std::int64_t at) {
  DenseArray made(DType::I64, {300});
  for (std::int64_t i = 0; i < 300; ++i) *reinterpret_cast<std::int64_t*>(made.element(i)) = i == 7 ? at : i;
  return made;
}

/// Three updates, and elements of %t picked before, between or after them.
std::string updates(int picked) {
  std::string nodes;
  for (int u = 0, next = 0; u < 4; ++u) {
    const auto name = [&] { return "  %" + std::to_string(next++); };
    if (u == picked) nodes += name() + " = gather %t, %i {axis = 0} : f32[300]\n";
    if (u < 3) nodes += name() + " = mul %g, %p" + std::to_string(u) + " : f32[300]\n";
  }
  const auto update = [&](int u) { return "%" + std::to_string(u + (u >= picked)); };
  return "graph @f(%i: i64[300], %t: f32[300], %g: f32[300], %p0: f32[300], %p1: f32[300], %p2: f32[300]) {\n" + nodes +
         "  write %p0 <- " + update(0) + "\n  write %p1 <- " + update(1) + "\n  write %p2 <- " + update(2) +
         "\n  return %" + std::to_string(picked) + "\n}";
}

}  // namespace

TEST(Commit, updates_wait_for_what_can_fail_wherever_it_stands) {
  const auto inputs = [](std::int64_t at) {
    std::vector<DenseArray> made{position(at)};
    for (std::uint64_t seed = 1; seed < 6; ++seed) made.push_back(sample(DType::F32, {300}, seed));
    return made;
  };
  for (int picked = 0; picked < 4; ++picked) {
    // One kernel picks, one launch updates: nothing is copied.
    same_as_reference(updates(picked), inputs(7), {.kernels = 2});
    const Outcome outcome = run_llvm(parse(updates(picked)), inputs(300), {}, {});
    EXPECT_EQ(outcome.status, std::uint32_t(kIndexOutOfRange));
    const std::vector<DenseArray> before = inputs(300);
    ASSERT_EQ(outcome.results.size(), 3u);
    for (std::size_t w = 0; w < 3; ++w) EXPECT_TRUE(close(outcome.results[w], before[w + 3], 0)) << picked << " " << w;
  }
}

TEST(Commit, what_reads_the_old_contents_later_gets_them) {
  same_as_reference(R"(
graph @f(%i: i64[300], %t: f32[300], %g: f32[300], %p: f32[300]) {
  %0 = mul %g, %p : f32[300]
  %1 = gather %t, %i {axis = 0} : f32[300]
  %2 = gather %p, %i {axis = 0} : f32[300]
  %3 = add %1, %2 : f32[300]
  write %p <- %0
  return %3
})", {position(7), sample(DType::F32, {300}, 1), sample(DType::F32, {300}, 2), sample(DType::F32, {300}, 3)});
}

TEST(Commit, the_rest_of_a_product_updates_in_place) {
  const std::vector<DenseArray> inputs = {sample(DType::F32, {24, 16}, 1), sample(DType::F32, {16, 40}, 2),
                                          sample(DType::F32, {24, 40}, 3), sample(DType::F32, {24, 40}, 4)};
  same_as_reference(R"(
graph @f(%x: f32[24, 16], %y: f32[16, 40], %p: f32[24, 40], %m: f32[24, 40]) {
  %0 = matmul %x, %y : f32[24, 40]
  %1 = add %m, %0 : f32[24, 40]
  %2 = sub %p, %1 : f32[24, 40]
  write %m <- %1
  write %p <- %2
  return %0
})", inputs, {.ulps = 64, .scale = 1, .kernels = 1});
}

TEST(Commit, rows_that_are_read_again_are_not_overwritten) {
  const std::vector<DenseArray> inputs = {sample(DType::F32, {24, 40}, 1), sample(DType::F32, {24}, 2)};
  // A row is summed, then every element computed from the sum: one pass reads all that the other writes.
  same_as_reference(R"(
graph @f(%p: f32[24, 40], %s: f32[24]) {
  %0 = reduce_sum %p {axes = [1]} : f32[24]
  %1 = broadcast %0 {dims = [0], shape = [24, 40]} : f32[24, 40]
  %2 = sub %p, %1 : f32[24, 40]
  %3 = reduce_max %2 {axes = [1]} : f32[24]
  %4 = mul %s, %3 : f32[24]
  write %p <- %2
  write %s <- %4
  return
})", inputs, {.ulps = 64, .scale = 8});
  // A product's matrix is what it updates.
  same_as_reference(R"(
graph @f(%p: f32[24, 24], %x: f32[24, 24]) {
  %0 = matmul %p, %x : f32[24, 24]
  %1 = sub %p, %0 : f32[24, 24]
  write %p <- %1
  return
})", {sample(DType::F32, {24, 24}, 1), sample(DType::F32, {24, 24}, 2)}, {.ulps = 64, .scale = 8});
}

TEST(Commit, sums_of_rows_update_in_place) {
  same_as_reference(R"(
graph @f(%x: f32[300, 40], %p: f32[40], %q: f32[300]) {
  %0 = reduce_sum %x {axes = [0]} : f32[40]
  %1 = sub %p, %0 : f32[40]
  %2 = reduce_sum %x {axes = [1]} : f32[300]
  %3 = sub %q, %2 : f32[300]
  write %p <- %1
  write %q <- %3
  return
})",
                    {sample(DType::F32, {300, 40}, 1), sample(DType::F32, {40}, 2), sample(DType::F32, {300}, 3)},
                    {.ulps = 64, .scale = 64});
}

// Small parts of large inputs.

TEST(Commit, parts_are_written_where_they_lie) {
  // One kernel for each part, straight into the input.
  same_as_reference(R"(
graph @f(%a: f32[4000], %x: f32[5]) {
  %0 = add %x, %x : f32[5]
  %1 = slice_update %a, %0 {starts = [7], steps = [1]} : f32[4000]
  %2 = mul %x, %x : f32[5]
  %3 = slice_update %1, %2 {starts = [9], steps = [3]} : f32[4000]
  write %a <- %3
  return
})", {sample(DType::F32, {4000}, 1), sample(DType::F32, {5}, 2)}, {.kernels = 2});
  // Rows, columns and blocks of what is reshaped and transposed on the way.
  same_as_reference(R"(
graph @f(%a: f32[60, 70], %r: f32[70], %b: f32[3, 4]) {
  %0 = reshape %r : f32[1, 70]
  %1 = slice_update %a, %0 {starts = [7, 0], steps = [1, 1]} : f32[60, 70]
  %2 = transpose %1 {permutation = [1, 0]} : f32[70, 60]
  %3 = slice_update %2, %b {starts = [5, 6], steps = [2, 1]} : f32[70, 60]
  %4 = reshape %3 {shape = [7, 10, 60]} : f32[7, 10, 60]
  %5 = reshape %b {shape = [2, 1, 6]} : f32[2, 1, 6]
  %6 = slice_update %4, %5 {starts = [1, 1, 2], steps = [1, 1, 1]} : f32[7, 10, 60]
  %7 = reshape %6 {shape = [70, 60]} : f32[70, 60]
  %8 = transpose %7 {permutation = [1, 0]} : f32[60, 70]
  write %a <- %8
  return
})", {sample(DType::F32, {60, 70}, 1), sample(DType::F32, {70}, 2), sample(DType::F32, {3, 4}, 3)});
}

TEST(Commit, later_parts_lie_over_earlier_ones) {
  same_as_reference(R"(
graph @f(%a: f32[400], %x: f32[9], %y: f32[9]) {
  %0 = slice_update %a, %x {starts = [7], steps = [1]} : f32[400]
  %1 = slice %0 {starts = [5], sizes = [9], steps = [1]} : f32[9]
  %2 = add %1, %y : f32[9]
  %3 = slice_update %0, %2 {starts = [10], steps = [-1]} : f32[400]
  %4 = mul %x, %y : f32[9]
  %5 = mul %4, %4 : f32[9]
  %6 = slice_update %3, %4 {starts = [100], steps = [1]} : f32[400]
  %7 = slice_update %6, %5 {starts = [104], steps = [1]} : f32[400]
  %8 = slice %a {starts = [104], sizes = [9], steps = [1]} : f32[9]
  write %a <- %7
  return %8
})", {sample(DType::F32, {400}, 1), sample(DType::F32, {9}, 2), sample(DType::F32, {9}, 3)});
}

TEST(Commit, parts_of_two_inputs_are_exchanged) {
  same_as_reference(R"(
graph @f(%a: f32[400], %b: f32[5]) {
  %0 = slice %a {starts = [3], sizes = [5], steps = [1]} : f32[5]
  %1 = slice_update %a, %b {starts = [3], steps = [1]} : f32[400]
  write %a <- %1
  write %b <- %0
  return
})", {sample(DType::F32, {400}, 1), sample(DType::F32, {5}, 2)});
}

TEST(Commit, a_part_is_not_written_before_what_can_fail) {
  const std::string graph = R"(
graph @f(%i: i64[300], %a: f32[4000], %t: f32[300]) {
  %0 = gather %t, %i {axis = 0} : f32[300]
  %1 = slice_update %a, %0 {starts = [7], steps = [1]} : f32[4000]
  %2 = gather %0, %i {axis = 0} : f32[300]
  %3 = slice_update %1, %2 {starts = [1007], steps = [1]} : f32[4000]
  write %a <- %3
  return
})";
  const auto inputs = [](std::int64_t at) {
    return std::vector<DenseArray>{position(at), sample(DType::F32, {4000}, 1), sample(DType::F32, {300}, 2)};
  };
  same_as_reference(graph, inputs(7));
  const Outcome outcome = run_llvm(parse(graph), inputs(300), {}, {});
  EXPECT_EQ(outcome.status, std::uint32_t(kIndexOutOfRange));
  ASSERT_EQ(outcome.results.size(), 1u);
  EXPECT_TRUE(close(outcome.results[0], inputs(300)[1], 0));
}

// Where IEEE conditions are reported, all floating-point work can fail.

namespace {

constexpr std::int64_t kLarge = 300'001;  // its copies do not fit a core's cache
constexpr std::uint32_t kTrapped = kFloatDivide | kFloatOverflow | kFloatInvalid;

std::vector<DenseArray> large(int count) {
  std::vector<DenseArray> made;
  for (int i = 0; i < count; ++i) made.push_back(sample(DType::F32, {kLarge}, std::uint64_t(i + 1), 1.25, 2));
  return made;
}

/// Runs compiled with conditions and by the evaluator; what the compiled program's steps are.
std::string reported_like_reference(const std::string& text, const std::vector<DenseArray>& inputs) {
  const Graph graph = parse(text);
  CompileOptions options;
  options.float_conditions = true;
  const auto program = compile_llvm(graph, options);
  const Outcome outcome = run_program(*program, graph, inputs, {}, kTrapped);
  EXPECT_EQ(outcome.status, std::uint32_t(kOk));
  std::vector<DenseArray> expected;
  evaluate(graph, inputs, {}, expected);
  EXPECT_EQ(outcome.results.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(close(outcome.results[i], expected[i], 0)) << i;
  // What fails anywhere leaves all as it was.
  for (std::int64_t at : {std::int64_t(0), kLarge / 2, kLarge - 1}) {
    std::vector<DenseArray> failing = inputs;
    *reinterpret_cast<float*>(failing[0].element(at)) = 3e38f;
    const Outcome failed = run_program(*program, graph, failing, {}, kTrapped);
    EXPECT_TRUE(failed.status & kFloatOverflow) << at;
    const std::size_t writes = graph.writes.size();
    for (std::size_t w = 0; w < writes; ++w)
      EXPECT_TRUE(
          close(failed.results[failed.results.size() - writes + w], failing[std::size_t(graph.writes[w].input)], 0))
          << at << " " << w;
  }
  return program->text();
}

}  // namespace

TEST(Commit, large_updates_that_report_are_checked_and_then_computed_in_place) {
  const std::string steps = reported_like_reference(R"(
graph @f(%x: f32[300001], %y: f32[300001]) {
  %0 = mul %x, %y : f32[300001]
  %1 = mul %0, %x : f32[300001]
  %2 = sub %y, %0 : f32[300001]
  write %x <- %1
  write %y <- %2
  return
})", large(2));
  EXPECT_EQ(steps, "kernel0_check: mul mul sub\nkernel0: mul mul sub (commit)\n");
}

TEST(Commit, small_updates_that_report_are_computed_once) {
  const Graph graph = parse(R"(
graph @f(%x: f32[3000], %y: f32[3000]) {
  %0 = mul %x, %y : f32[3000]
  write %x <- %0
  return
})");
  CompileOptions options;
  options.float_conditions = true;
  EXPECT_EQ(compile_llvm(graph, options)->text().find("check"), std::string::npos);
}

TEST(Commit, updates_that_read_each_other_are_not_written_before_they_are_read) {
  for (const char* order : {"  write %x <- %1\n  write %y <- %3\n", "  write %y <- %3\n  write %x <- %1\n"})
    reported_like_reference(std::string(R"(
graph @f(%x: f32[300001], %y: f32[300001]) {
  %0 = slice %y {starts = [300000], steps = [-1]} : f32[300001]
  %1 = mul %x, %0 : f32[300001]
  %2 = slice %x {starts = [300000], steps = [-1]} : f32[300001]
  %3 = mul %y, %2 : f32[300001]
)") + order + "  return\n}", large(2));
}

TEST(Commit, what_is_returned_and_updated_is_computed_once) {
  const std::string steps = reported_like_reference(R"(
graph @f(%x: f32[300001], %y: f32[300001]) {
  %0 = mul %x, %y : f32[300001]
  %1 = mul %0, %x : f32[300001]
  write %x <- %0
  return %1
})", large(2));
  EXPECT_EQ(steps.find("check"), std::string::npos) << steps;
}

TEST(Commit, checks_find_indices_out_of_range) {
  const Graph graph = parse(R"(
graph @f(%x: f64[300001], %t: f64[300001], %i: i64[300001]) {
  %0 = gather %t, %i {axis = 0} : f64[300001]
  %1 = mul %x, %0 : f64[300001]
  write %x <- %1
  return
})");
  EXPECT_NE(compile_llvm(graph, {})->text().find("check"), std::string::npos);
  const DenseArray x = sample(DType::F64, {kLarge}, 1), table = sample(DType::F64, {kLarge}, 2);
  DenseArray index(DType::I64, {kLarge});
  for (std::int64_t i = 0; i < kLarge; ++i) *reinterpret_cast<std::int64_t*>(index.element(i)) = kLarge - 1 - i;
  const std::vector<DenseArray> inputs = {x, table, index};
  std::vector<DenseArray> expected;
  evaluate(graph, inputs, {}, expected);
  const Outcome good = run_llvm(graph, inputs, {}, {});
  EXPECT_EQ(good.status, std::uint32_t(kOk));
  EXPECT_TRUE(close(good.results.back(), expected.back(), 0));
  for (std::int64_t at : {std::int64_t(0), kLarge - 2}) {
    DenseArray wrong = index;
    *reinterpret_cast<std::int64_t*>(wrong.element(at)) = kLarge;
    const Outcome outcome = run_llvm(graph, {x, table, wrong}, {}, {});
    EXPECT_EQ(outcome.status, std::uint32_t(kIndexOutOfRange));
    EXPECT_TRUE(close(outcome.results.back(), x, 0)) << at;
  }
}

}  // namespace fj::test
