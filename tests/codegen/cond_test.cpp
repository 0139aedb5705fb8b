// Branches as steps of a program: both bodies, their memory, products and failures inside, sizes, results that leave.
#include <gtest/gtest.h>

#include "tests/codegen/harness.h"

namespace fj::test {
namespace {

DenseArray truth(bool value) {
  DenseArray result(DType::Bool, {});
  *result.element(0) = std::byte(value);
  return result;
}

TEST(Cond, WritesWhereItsResultsAreWanted) {
  const std::string text = R"(graph @f(%c: bool[], %x: f32[s0, 8], %y: f32[s0, 8]) where s0 >= 1 {
    %0 = mul %x, %y : f32[s0, 8]
    %1, %2, %3 = cond %c, %0, %y {
      then(%a: f32[s0, 8], %b: f32[s0, 8]) {
        %0 = add %a, %b : f32[s0, 8]
        %1 = reduce_sum %0 {axes = [1]} : f32[s0]
        %2 = reduce_sum %1 {axes = [0]} : f32[]
        return %0, %1, %2
      }
      else(%a: f32[s0, 8], %b: f32[s0, 8]) {
        %0 = reduce_max %b {axes = [1]} : f32[s0]
        %1 = reduce_sum %0 {axes = [0]} : f32[]
        return %a, %0, %1
      }
    } : f32[s0, 8], f32[s0], f32[]
    %4 = mul %1, %x : f32[s0, 8]
    %5 = transpose %1 {permutation = [1, 0]} : f32[8, s0]
    return %4, %1, %2, %3, %5 strides [1, 8]
  })";
  for (const bool condition : {true, false})
    for (const std::int64_t rows : {1, 5, 300})
      same_as_reference(text,
                        {truth(condition), sample(DType::F32, {rows, 8}, 1), sample(DType::F32, {rows, 8}, 2)},
                        {.ulps = 4, .scale = 2400, .symbols = {rows}});
}

TEST(Cond, StandsInOthersAndBehindThem) {
  const std::string whole = R"(graph @f(%x: f64[16, 16], %y: f64[16, 16]) {
    %0 = reduce_sum %x {axes = [0, 1]} : f64[]
    %1 = constant {value = 0.0, to = f64} : f64[]
    %2 = gt %0, %1 : bool[]
    %3 = cond %2, %x, %y {
      then(%a: f64[16, 16], %b: f64[16, 16]) {
        %0 = matmul %a, %b : f64[16, 16]
        %1 = constant {value = 0.0, to = f64} : f64[]
        %2 = reduce_max %0 {axes = [0, 1]} : f64[]
        %3 = gt %2, %1 : bool[]
        %4 = cond %3, %0 {
          then(%a: f64[16, 16]) {
            %0 = exp %a : f64[16, 16]
            return %0
          }
          else(%a: f64[16, 16]) {
            return %a
          }
        } : f64[16, 16]
        return %4
      }
      else(%a: f64[16, 16], %b: f64[16, 16]) {
        %0 = cumsum %b {axis = 0} : f64[16, 16]
        return %0
      }
    } : f64[16, 16]
    %4 = cond %2, %3, %3 {
      then(%a: f64[16, 16], %b: f64[16, 16]) {
        %0 = sub %a, %b : f64[16, 16]
        return %0
      }
      else(%a: f64[16, 16], %b: f64[16, 16]) {
        %0 = neg %b : f64[16, 16]
        return %0
      }
    } : f64[16, 16]
    return %3, %4
  })";
  for (const std::uint64_t seed : {1, 2, 3, 4})
    same_as_reference(
        whole, {sample(DType::F64, {16, 16}, seed, -.1, .1), sample(DType::F64, {16, 16}, seed + 9, -1, 1)},
        {.ulps = 8, .scale = 64});
}

TEST(Cond, FailsAsTheBodyThatRuns) {
  const std::string text = R"(graph @f(%c: bool[], %x: f32[4], %i: i64[2]) {
    %0 = cond %c, %x, %i {
      then(%x: f32[4], %i: i64[2]) {
        %0 = gather %x, %i {axis = 0} : f32[2]
        return %0
      }
      else(%x: f32[4], %i: i64[2]) {
        %0 = slice %x {starts = [1], steps = [1]} : f32[2]
        return %0
      }
    } : f32[2]
    write %x <- %x
    return %0
  })";
  DenseArray outside(DType::I64, {2});
  outside.data[0] = std::byte{9};
  for (const bool condition : {true, false})
    same_as_reference(text, {truth(condition), sample(DType::F32, {4}, 1), outside});
}

TEST(Cond, WritesInputsWhenItIsDone) {
  const std::string text = R"(graph @f(%c: bool[], %x: f32[64], %y: f32[64]) {
    %0, %1 = cond %c, %x, %y {
      then(%x: f32[64], %y: f32[64]) {
        %0 = add %x, %y : f32[64]
        return %0, %x
      }
      else(%x: f32[64], %y: f32[64]) {
        %0 = sub %x, %y : f32[64]
        return %x, %0
      }
    } : f32[64], f32[64]
    write %x <- %1
    write %y <- %0
    return
  })";
  for (const bool condition : {true, false})
    same_as_reference(text, {truth(condition), sample(DType::F32, {64}, 1), sample(DType::F32, {64}, 2)});
}

}  // namespace
}  // namespace fj::test
