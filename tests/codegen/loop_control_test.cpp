// Loops as steps of a program: states that change places, passes with products and branches, sizes, no pass at all.
#include <cstring>

#include <gtest/gtest.h>

#include "tests/codegen/harness.h"

namespace fj::test {
namespace {

DenseArray number(double value) {
  DenseArray result(DType::F64, {});
  std::memcpy(result.element(0), &value, sizeof value);
  return result;
}

TEST(Loop, LeavesItsStatesWhereTheyAreWanted) {
  const std::string text = R"(graph @f(%n: f64[], %x: f64[s0, 4], %y: f64[s0, 4], %w: f64[4, 4]) where s0 >= 1 {
    %0 = constant {value = 0.0, to = f64} : f64[]
    %1 = gt %n, %0 : bool[]
    %2, %3, %4 = loop %1, %n, %x, %y, %w {
      pass(%n: f64[], %a: f64[s0, 4], %b: f64[s0, 4], %w: f64[4, 4]) {
        %0 = constant {value = 1.0, to = f64} : f64[]
        %1 = sub %n, %0 : f64[]
        %2 = matmul %a, %w : f64[s0, 4]
        %3 = tanh %2 : f64[s0, 4]
        %4 = constant {value = 0.0, to = f64} : f64[]
        %5 = gt %1, %4 : bool[]
        %6 = reduce_sum %3 {axes = [0, 1]} : f64[]
        %7 = gt %6, %4 : bool[]
        %8 = cond %7, %3, %b {
          then(%a: f64[s0, 4], %b: f64[s0, 4]) {
            %0 = sub %a, %b : f64[s0, 4]
            return %0
          }
          else(%a: f64[s0, 4], %b: f64[s0, 4]) {
            %0 = add %a, %b : f64[s0, 4]
            return %0
          }
        } : f64[s0, 4]
        return %5, %1, %b, %8
      }
    } : f64[], f64[s0, 4], f64[s0, 4]
    %5 = mul %3, %4 : f64[s0, 4]
    %6 = transpose %4 {permutation = [1, 0]} : f64[4, s0]
    return %5, %2, %3, %6
  })";
  for (const double passes : {0.0, 1.0, 2.0, 3.0, 8.0})
    for (const std::int64_t rows : {1, 5, 300})
      same_as_reference(text,
                        {number(passes), sample(DType::F64, {rows, 4}, 1), sample(DType::F64, {rows, 4}, 2),
                         sample(DType::F64, {4, 4}, 3)},
                        {.ulps = 64, .scale = 64, .symbols = {rows}});
}

TEST(Loop, StandsInsideOfOthers) {
  const std::string text = R"(graph @f(%n: f64[], %m: f64[]) {
    %0 = constant {value = 0.0, to = f64} : f64[]
    %1 = gt %n, %0 : bool[]
    %2, %3 = loop %1, %n, %0, %m, %0 {
      pass(%n: f64[], %sum: f64[], %m: f64[], %zero: f64[]) {
        %0 = gt %m, %zero : bool[]
        %1, %2 = loop %0, %m, %sum, %n, %zero {
          pass(%k: f64[], %sum: f64[], %n: f64[], %zero: f64[]) {
            %0 = constant {value = 1.0, to = f64} : f64[]
            %1 = sub %k, %0 : f64[]
            %2 = mul %k, %n : f64[]
            %3 = add %sum, %2 : f64[]
            %4 = gt %1, %zero : bool[]
            return %4, %1, %3
          }
        } : f64[], f64[]
        %3 = constant {value = 1.0, to = f64} : f64[]
        %4 = sub %n, %3 : f64[]
        %5 = gt %4, %zero : bool[]
        return %5, %4, %2
      }
    } : f64[], f64[]
    return %2, %3
  })";
  for (const double n : {0.0, 1.0, 3.0})
    for (const double m : {0.0, 2.0, 5.0}) same_as_reference(text, {number(n), number(m)});
}

TEST(Loop, FailsWithItsPasses) {
  const std::string text = R"(graph @f(%n: i64[], %x: i64[]) {
    %0 = constant {value = true, to = bool} : bool[]
    %1, %2 = loop %0, %n, %x {
      pass(%n: i64[], %x: i64[]) {
        %0 = constant {value = 1, to = i64} : i64[]
        %1 = sub %n, %0 : i64[]
        %2 = floor_div %x, %1 : i64[]
        %3 = gt %2, %0 : bool[]
        return %3, %1, %2
      }
    } : i64[], i64[]
    return %1, %2
  })";
  const auto whole = [](std::int64_t value) {
    DenseArray result(DType::I64, {});
    std::memcpy(result.element(0), &value, sizeof value);
    return result;
  };
  same_as_reference(text, {whole(5), whole(100)});
  same_as_reference(text, {whole(3), whole(1000)});
}

}  // namespace
}  // namespace fj::test
