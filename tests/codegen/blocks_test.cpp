// Chains of steps that run block of rows by block of rows.
#include "graph_ir/parse.h"
#include "tests/codegen/harness.h"

namespace fj::test {

namespace {

/// softmax(q @ k) @ v with the scores' sizes as they are, and more results.
std::string attention(const std::string& batch, const std::string& rows, const std::string& columns,
                      const std::string& more = "") {
  const std::string scores = "f32[" + batch + ", " + rows + ", " + columns + "]",
                    of_rows = "f32[" + batch + ", " + rows + "]";
  const std::string wide =
      " {dims = [0, 1], shape = [" + batch + ", " + rows + ", " + columns + "]} : " + scores + "\n";
  return "graph @f(%q: f32[" + batch + ", " + rows + ", 16], %k: f32[" + batch + ", 16, " + columns + "], %v: f32[" +
         batch + ", " + columns + ", 16]) {\n" + "  %0 = matmul %q, %k : " + scores +
         "\n  %1 = reduce_max %0 {axes = [2]} : " + of_rows + "\n  %2 = broadcast %1" + wide +
         "  %3 = sub %0, %2 : " + scores + "\n  %4 = exp %3 : " + scores +
         "\n  %5 = reduce_sum %4 {axes = [2]} : " + of_rows + "\n  %6 = broadcast %5" + wide +
         "  %7 = div %4, %6 : " + scores + "\n  %8 = matmul %7, %v : f32[" + batch + ", " + rows +
         ", 16]\n  return %8" + more + "\n}";
}

std::vector<DenseArray> operands(std::int64_t batch, std::int64_t rows, std::int64_t columns) {
  return {sample(DType::F32, {batch, rows, 16}, 1, -1, 1), sample(DType::F32, {batch, 16, columns}, 2, -1, 1),
          sample(DType::F32, {batch, columns, 16}, 3, -1, 1)};
}

bool runs_in_blocks(const std::string& text) {
  return compile_llvm(parse(text), {})->text().find("in blocks of ") != std::string::npos;
}

}  // namespace

TEST(Blocks, attention_never_has_all_scores) {
  const std::string text = attention("2", "400", "600");
  EXPECT_TRUE(runs_in_blocks(text));
  same_as_reference(text, operands(2, 400, 600), {.ulps = 64, .scale = 1, .kernels = 3, .levels = {"", wide_level}});
}

TEST(Blocks, the_last_block_is_shorter_and_a_block_may_hold_the_end_of_one_matrix_and_the_begin_of_the_next) {
  const std::string text = attention("3", "172", "900");
  EXPECT_TRUE(runs_in_blocks(text));
  same_as_reference(text, operands(3, 172, 900), {.ulps = 64, .scale = 1, .levels = {""}});
}

TEST(Blocks, what_is_returned_is_there_as_a_whole) {
  same_as_reference(attention("2", "400", "600", ", %7"), operands(2, 400, 600),
                    {.ulps = 64, .scale = 1, .levels = {""}});
  same_as_reference(attention("2", "400", "600", ", %0, %5"), operands(2, 400, 600),
                    {.ulps = 64, .scale = 1, .levels = {""}});
}

TEST(Blocks, what_fits_the_cache_runs_whole) { EXPECT_FALSE(runs_in_blocks(attention("2", "40", "60"))); }

TEST(Blocks, sizes_that_vary_are_looked_at_in_each_run) {
  const auto with_sizes = [](const std::string& text) {
    return text.substr(0, text.find(") {")) + ") where s0 >= 0, s1 >= 0" + text.substr(text.find(" {"));
  };
  const std::string rows = with_sizes(attention("2", "s0", "600")), all = with_sizes(attention("s0", "s1", "s1"));
  EXPECT_TRUE(runs_in_blocks(all));
  for (const std::int64_t size : {0, 1, 2, 40, 400, 901})
    same_as_reference(rows, operands(2, size, 600), {.ulps = 64, .scale = 1, .levels = {""}});
  for (const std::int64_t size : {0, 1, 3, 127, 128, 129, 700})
    same_as_reference(all, operands(3, size, size), {.ulps = 64, .scale = 1, .levels = {""}});
}

}  // namespace fj::test
