// Products and other reductions whose rows are computed several at a time.
#include "graph_ir/parse.h"
#include "tests/codegen/harness.h"

namespace fj::test {

namespace {

std::string dims(std::initializer_list<std::int64_t> sizes) {
  std::string out;
  for (std::int64_t size : sizes) out += (out.empty() ? "" : ", ") + std::to_string(size);
  return out;
}

std::string product(const std::string& dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
  return "graph @f(%a: " + dtype + "[" + dims({m, k}) + "], %b: " + dtype + "[" + dims({k, n}) +
         "]) {\n  %0 = matmul %a, %b : " + dtype + "[" + dims({m, n}) + "]\n  return %0\n}";
}

/// The loops and the machine code of a program, for the widest vectors.
std::string listing(const std::string& graph) {
  CompileOptions options;
  options.cpu = widest_level;
  options.dump_ir = true;
  return compile_llvm(parse(graph), options)->text();
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

}  // namespace

TEST(Jam, rows_of_a_product_share_what_they_load) {
  // 6 rows at a time, and the 7th in a kernel of its own.
  const std::string several = listing(product("f32", 13, 40, 33));
  EXPECT_GE(count(several, " = sum()"), 6u) << several;
  EXPECT_EQ(count(several, "kernel kernel0_rest("), 1u) << several;
  EXPECT_EQ(count(listing(product("f32", 1, 40, 33)), " = sum()"), 1u);
  // Of an unknown number of rows the rest is taken one by one.
  const std::string unknown = listing(
      "graph @f(%a: f32[s0, 20], %b: f32[20, 24]) where s0 >= 0 {\n  %0 = matmul %a, %b : f32[s0, 24]\n  return %0\n}");
  EXPECT_GE(count(unknown, " = sum()"), 4u) << unknown;
  EXPECT_EQ(count(unknown, "kernel kernel0_rest("), 1u) << unknown;
}

TEST(Jam, a_product_of_any_size_is_the_evaluators) {
  for (std::int64_t m : {1, 6, 13})
    for (std::int64_t n : {1, 16, 37})
      for (std::int64_t k : {0, 1, 33})
        same_as_reference(product("f32", m, n, k), {sample(DType::F32, {m, k}, 1), sample(DType::F32, {k, n}, 2)},
                          {.ulps = 16, .scale = 256});
}

TEST(Jam, a_product_of_any_dtype_is_the_evaluators) {
  for (const auto& [name, dtype] : {std::pair{"f64", DType::F64},
                                    {"f16", DType::F16},
                                    {"bf16", DType::BF16},
                                    {"i32", DType::I32},
                                    {"i64", DType::I64},
                                    {"u8", DType::U8},
                                    {"bool", DType::Bool},
                                    {"c64", DType::C64}})
    same_as_reference(product(name, 9, 21, 18), {sample(dtype, {9, 18}, 1), sample(dtype, {18, 21}, 2)},
                      {.ulps = 16, .scale = 256});
}

TEST(Jam, a_small_product_takes_what_surrounds_it_along) {
  same_as_reference(R"(
graph @f(%x: f16[48, 40], %w: f32[40, 30], %bias: f32[30], %rest: f32[48, 30]) {
  %0 = cast %x {to = f32} : f32[48, 40]
  %1 = matmul %0, %w : f32[48, 30]
  %2 = broadcast %bias {dims = [1], shape = [48, 30]} : f32[48, 30]
  %3 = add %1, %2 : f32[48, 30]
  %4 = tanh %3 : f32[48, 30]
  %5 = add %4, %rest : f32[48, 30]
  %6 = cast %5 {to = bf16} : bf16[48, 30]
  return %6
})",
                    {sample(DType::F16, {48, 40}, 1), sample(DType::F32, {40, 30}, 2), sample(DType::F32, {30}, 3),
                     sample(DType::F32, {48, 30}, 4)},
                    {.ulps = 8, .scale = 1, .kernels = 1});
}

TEST(Jam, a_transposed_weight_serves_few_rows_and_many) {
  for (std::int64_t m : {3, 40})
    same_as_reference("graph @f(%x: f32[" + dims({m, 35}) + R"(], %w: f32[19, 35], %bias: f32[19]) {
  %0 = transpose %w {permutation = [1, 0]} : f32[35, 19]
  %1 = matmul %x, %0 : f32[)" + dims({m, 19}) + R"(]
  %2 = broadcast %bias {dims = [1], shape = [)" + dims({m, 19}) + R"(]} : f32[)" + dims({m, 19}) + R"(]
  %3 = add %1, %2 : f32[)" + dims({m, 19}) + R"(]
  %4 = exp %3 : f32[)" + dims({m, 19}) + R"(]
  return %3, %4
})", {sample(DType::F32, {m, 35}, 1, -1, 1), sample(DType::F32, {19, 35}, 2, -1, 1), sample(DType::F32, {19}, 3)},
                      {.ulps = 1000, .scale = 32});
}

TEST(Jam, batches_and_rows_that_vary_keep_their_places) {
  same_as_reference(R"(
graph @f(%a: f32[3, s0, 20], %b: f32[3, 20, 24]) where s0 >= 0 {
  %0 = matmul %a, %b : f32[3, s0, 24]
  return %0
})",
                    {sample(DType::F32, {3, 11, 20}, 1), sample(DType::F32, {3, 20, 24}, 2)},
                    {.ulps = 16, .scale = 256, .symbols = {11}});
}

TEST(Jam, a_sum_over_pairs_is_the_evaluators) {
  same_as_reference(R"(
graph @f(%p: f32[50, 3]) {
  %0 = broadcast %p {dims = [0, 2], shape = [50, 50, 3]} : f32[50, 50, 3]
  %1 = broadcast %p {dims = [1, 2], shape = [50, 50, 3]} : f32[50, 50, 3]
  %2 = sub %1, %0 : f32[50, 50, 3]
  %3 = mul %2, %2 : f32[50, 50, 3]
  %4 = reduce_sum %3 {axes = [2]} : f32[50, 50]
  %5 = sqrt %4 : f32[50, 50]
  %6 = broadcast %5 {dims = [0, 1], shape = [50, 50, 3]} : f32[50, 50, 3]
  %7 = mul %2, %6 : f32[50, 50, 3]
  %8 = reduce_sum %7 {axes = [1]} : f32[50, 3]
  return %8
})", {sample(DType::F32, {50, 3}, 1)}, {.ulps = 64, .scale = 1024});
}

TEST(Jam, a_transposed_operand_is_turned_in_registers) {
  for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>{5, 37}, {50, 37}, {50, 64}})
    for (const auto& [name, dtype] :
         {std::pair{"f32", DType::F32}, {"f64", DType::F64}, {"bf16", DType::BF16}, {"i8", DType::I8}}) {
      const std::string graph = "graph @f(%x: " + std::string(name) + "[" + dims({m, n}) + "], %y: " + name + "[" +
                                dims({n, m}) + "]) {\n  %0 = transpose %x {permutation = [1, 0]} : " + name + "[" +
                                dims({n, m}) + "]\n  %1 = sub %0, %y : " + name + "[" + dims({n, m}) +
                                "]\n  return %1\n}";
      same_as_reference(graph, {sample(dtype, {m, n}, 1), sample(dtype, {n, m}, 2)});
      if (m == 50 && dtype == DType::F32) {
        const std::size_t least = widest_level == "x86-64-v4" ? 16 * 4 : 4 * 2;  // of lanes and stages
        EXPECT_GE(count(listing(graph), "shufflevector"), least) << listing(graph);
      }
    }
}

}  // namespace fj::test
