#include "tests/cuda/patterns.h"

#include <cmath>
#include <cstring>

#include "graph_ir/parse.h"

namespace fj::test {

namespace {

std::string softmax(const std::string& n, const std::string& m, const std::string& type,
                    const std::string& where = "") {
  const std::string whole = type + "[" + n + ", " + m + "]", row = type + "[" + n + "]",
                    shape = "shape = [" + n + ", " + m + "]";
  return "graph @f(%x: " + whole + ")" + where + " {\n"
         "  %0 = reduce_max %x {axes = [1]} : " + row + "\n"
         "  %1 = broadcast %0 {dims = [0], " + shape + "} : " + whole + "\n"
         "  %2 = sub %x, %1 : " + whole + "\n"
         "  %3 = exp %2 : " + whole + "\n"
         "  %4 = reduce_sum %3 {axes = [1]} : " + row + "\n"
         "  %5 = broadcast %4 {dims = [0], " + shape + "} : " + whole + "\n"
         "  %6 = div %3, %5 : " + whole + "\n"
         "  return %6\n}";
}

}  // namespace

std::vector<Pattern> patterns() {
  std::vector<Pattern> all;
  all.push_back({"a chain takes 16 bytes at once, and the rest one by one", {"items, 4 at once"}, R"(
graph @f(%x: f32[1003], %y: f32[1003]) {
  %0 = mul %x, %y : f32[1003]
  %1 = add %0, %x : f32[1003]
  %2 = exp %1 : f32[1003]
  return %2, %1
})", {sample(DType::F32, {1003}, 1), sample(DType::F32, {1003}, 2)}, {.ulps = 4}});
  all.push_back({"half types are eight at once", {"items, 8 at once"}, R"(
graph @f(%x: bf16[40, 64], %y: bf16[64]) {
  %0 = broadcast %y {dims = [1], shape = [40, 64]} : bf16[40, 64]
  %1 = mul %x, %0 : bf16[40, 64]
  %2 = add %1, %x : bf16[40, 64]
  return %2
})", {sample(DType::BF16, {40, 64}, 1), sample(DType::BF16, {64}, 2)}});
  all.push_back({"a chain of unknown size", {"i0 < s0  items, 4 at once"}, R"(
graph @f(%x: f32[s0], %y: f32[s0]) where s0 >= 0 {
  %0 = mul %x, %y : f32[s0]
  %1 = maximum %0, %x : f32[s0]
  return %1
})", {sample(DType::F32, {777}, 1), sample(DType::F32, {777}, 2)}, {.symbols = {777}}, {1000}});
  all.push_back({"nothing at all", {}, R"(
graph @f(%x: f32[s0, s1]) where s0 >= 0, s1 >= 0 {
  %0 = reduce_sum %x {axes = [1]} : f32[s0]
  %1 = neg %x : f32[s0, s1]
  return %0, %1
})", {sample(DType::F32, {0, 5}, 1)}, {.symbols = {0, 5}}, {3, 5}, 40, 8});
  all.push_back({"rows of nothing", {}, R"(
graph @f(%x: f32[s0, s1]) where s0 >= 0, s1 >= 0 {
  %0 = reduce_sum %x {axes = [1]} : f32[s0]
  return %0
})", {sample(DType::F32, {5, 0}, 1)}, {.symbols = {5, 0}}, {3, 5}});
  all.push_back({"a few rows are a block's each, read once",
                 {"a team of 256 an item", "team, 1 rounds kept in registers, 4 at once"},
                 softmax("3", "1024", "f32"),
                 {sample(DType::F32, {3, 1024}, 1)},
                 {.ulps = 8}});
  all.push_back({"many rows are a warp's each, read once",
                 {"a team of 32 an item", "team, 2 rounds kept in registers, 4 at once"},
                 softmax("512", "200", "f32"),
                 {sample(DType::F32, {512, 200}, 1)},
                 {.ulps = 8}});
  all.push_back({"a row of odd length",
                 {"team, 4 rounds kept in registers"},
                 softmax("2", "999", "f32"),
                 {sample(DType::F32, {2, 999}, 1)},
                 {.ulps = 8}});
  all.push_back({"a long row is read again from memory",
                 {"team, 4 at once"},
                 softmax("1", "40000", "f32"),
                 {sample(DType::F32, {1, 40000}, 1)},
                 {.ulps = 32}});
  all.push_back({"a row of halves",
                 {"team, 1 rounds kept in registers, 8 at once"},
                 softmax("3", "768", "f16"),
                 {sample(DType::F16, {3, 768}, 1)},
                 {.ulps = 2}});
  for (std::int64_t columns : {300, 2048, 2300, 301})
    all.push_back({"rows of unknown size, here " + std::to_string(columns),
                   {"team, up to 2 rounds kept in registers, 4 at once"},
                   softmax("s0", "s1", "f32", " where s0 >= 0, s1 >= 0"),
                   {sample(DType::F32, {5, columns}, 1)},
                   {.ulps = 16, .symbols = {5, columns}},
                   {64, 512}});
  all.push_back({"short rows are a thread's each",
                 {"serial"},
                 softmax("700", "5", "f32"),
                 {sample(DType::F32, {700, 5}, 1)},
                 {.ulps = 8}});
  all.push_back({"a full reduction has two stages", {"k1:", "team, 4 at once"}, R"(
graph @f(%x: f32[200, 101]) {
  %0 = mul %x, %x : f32[200, 101]
  %1 = reduce_sum %0 {axes = [0, 1]} : f32[]
  %2 = sqrt %1 : f32[]
  return %2, %0
})", {sample(DType::F32, {200, 101}, 1)}, {.ulps = 20}});
  all.push_back({"a full reduction of unknown size", {"k1:"}, R"(
graph @f(%x: f32[s0]) where s0 >= 0 {
  %0 = reduce_sum %x {axes = [0]} : f32[]
  %1 = reduce_max %x {axes = [0]} : f32[]
  return %0, %1
})", {sample(DType::F32, {9001}, 1)}, {.ulps = 20, .scale = 64, .symbols = {9001}}, {100000}});
  all.push_back({"columns are summed by neighbouring threads, in parts", {"i1 < 40  items", "k1:"}, R"(
graph @f(%x: f32[700, 40]) {
  %0 = reduce_sum %x {axes = [0]} : f32[40]
  return %0
})", {sample(DType::F32, {700, 40}, 1)}, {.ulps = 20, .scale = 64}});
  all.push_back({"two reduced loops that are not one", {"team"}, R"(
graph @f(%x: i64[6, 30, 7, 20]) {
  %0 = reduce_sum %x {axes = [1, 3]} : i64[6, 7]
  return %0
})", {sample(DType::I64, {6, 30, 7, 20}, 1)}});
  all.push_back({"where the largest is", {"team, 4 at once"}, R"(
graph @f(%x: f32[5, 1000]) {
  %0 = argmax %x {axis = 1} : i64[5]
  %1 = argmin %x {axis = 0} : i64[1000]
  return %0, %1
})", {sample(DType::F32, {5, 1000}, 1)}});
  DenseArray ties = sample(DType::F32, {3, 600}, 1);
  for (std::int64_t at : {100, 599, 700, 1100, 1300, 1799})
    std::memcpy(ties.element(at), scalar_array(DType::F32, Scalar(at < 1200 ? 9.0 : std::nan(""))).data.data(), 4);
  all.push_back({"of equal ones the first, and a NaN before all", {"team"}, R"(
graph @f(%x: f32[3, 600]) {
  %0 = argmax %x {axis = 1} : i64[3]
  %1 = reduce_max %x {axes = [1]} : f32[3]
  return %0, %1
})", {ties}});
  all.push_back({"running sums along a row", {"team"}, R"(
graph @f(%x: f32[3, 1000], %y: i64[2, 700]) {
  %0 = cumsum %x {axis = 1} : f32[3, 1000]
  %1 = cumprod %y {axis = 1} : i64[2, 700]
  %2 = cumsum %y {axis = 0} : i64[2, 700]
  return %0, %1, %2
})", {sample(DType::F32, {3, 1000}, 1), sample(DType::I64, {2, 700}, 2)}, {.ulps = 8, .scale = 64}});
  all.push_back({"a transpose goes through shared memory", {"a tile of 32 x 32"}, R"(
graph @f(%x: f32[70, 45], %y: f32[45, 70]) {
  %0 = transpose %x {permutation = [1, 0]} : f32[45, 70]
  %1 = add %0, %y : f32[45, 70]
  return %1
})", {sample(DType::F32, {70, 45}, 1), sample(DType::F32, {45, 70}, 2)}});
  all.push_back({"several transposes of unknown size", {"a tile of 32 x 32"}, R"(
graph @f(%x: f16[3, s0, s1], %y: f16[3, s0, s1]) where s0 >= 0, s1 >= 0 {
  %0 = mul %x, %y : f16[3, s0, s1]
  %1 = transpose %0 {permutation = [0, 2, 1]} : f16[3, s1, s0]
  return %1
})", {sample(DType::F16, {3, 40, 33}, 1), sample(DType::F16, {3, 40, 33}, 2)}, {.symbols = {40, 33}}, {64, 64}});
  DenseArray indices(DType::I64, {9});
  for (std::int64_t i = 0; i < 9; ++i) {
    const std::int64_t value = i * 7 % 50 - (i % 2 ? 50 : 0);
    std::memcpy(indices.element(i), &value, sizeof value);
  }
  all.push_back({"rows gathered by an index, 16 bytes at once", {"4 at once"}, R"(
graph @f(%x: f32[50, 64], %i: i64[9]) {
  %0 = gather %x, %i {axis = 0} : f32[9, 64]
  %1 = add %0, %0 : f32[9, 64]
  return %1
})", {sample(DType::F32, {50, 64}, 1), indices}});
  DenseArray outside = indices;
  const std::int64_t beyond = 50;
  std::memcpy(outside.element(3), &beyond, sizeof beyond);
  all.push_back({"an index outside is reported", {}, R"(
graph @f(%x: f32[50, 64], %i: i64[9]) {
  %0 = gather %x, %i {axis = 0} : f32[9, 64]
  return %0
})", {sample(DType::F32, {50, 64}, 1), outside}});
  all.push_back({"arrays put together", {"items"}, R"(
graph @f(%x: f32[20, 64], %y: f32[20, 36]) {
  %0 = concat %x, %y {axis = 1} : f32[20, 100]
  %1 = mul %0, %0 : f32[20, 100]
  return %1
})", {sample(DType::F32, {20, 64}, 1), sample(DType::F32, {20, 36}, 2)}});
  return all;
}

Graph parsed(const Pattern& pattern) {
  Graph graph = parse(pattern.graph);
  for (std::size_t s = 0; s < pattern.hints.size(); ++s) graph.symbols[s].hint = pattern.hints[s];
  return graph;
}

}  // namespace fj::test
