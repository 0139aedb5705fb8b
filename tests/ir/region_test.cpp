// Regions: their text, what the verifier finds, what they compute.
#include <gtest/gtest.h>

#include <cstring>

#include "graph_ir/parse.h"
#include "graph_ir/region/chunks.h"
#include "graph_ir/region/flow.h"
#include "graph_ir/region/loop_form.h"
#include "graph_ir/region/region.h"

namespace fj::region {
namespace {

const char* const kSmooth = R"(region @smooth(%0: i64, %1: f64) memory x: f64, y: f64 {
^0:
  %2 = constant 0 : i64
  %3 = load x[%2] : f64
  jump ^1(%2, %3)
^1(%4: i64, %5: f64):
  leave_if_asked else 2(%4, %5)
  %6 = lt %4, %0 : bool
  branch %6, ^2, ^3
^2:
  %7 = load x[%4] : f64
  %8 = sub %7, %5 : f64
  %9 = mul %8, %1 : f64
  %10 = add %5, %9 : f64
  store y[%4], %10
  %11 = constant 1 : i64
  %12 = checked_add %4, %11 : i64 else 0(%4, %10)
  jump ^1(%12, %10)
^3:
  exit 1(%5)
}
)";

DenseArray doubles(const std::vector<double>& values) {
  DenseArray result(DType::F64, {std::int64_t(values.size())});
  std::memcpy(result.data.data(), values.data(), result.data.size());
  return result;
}

TEST(Region, TextRoundTrips) {
  const Region region = parse_region(kSmooth);
  EXPECT_EQ(print(region), kSmooth);
  EXPECT_EQ(verify(region), std::vector<std::string>{});
  EXPECT_EQ(region.exits, 3);
}

/// The loop twice; in the copy nothing leaves, and what is the same in all passes is no parameter.
TEST(Region, ALoopInChunksHasACopyWithoutChecks) {
  const Region region = parse_region(R"(region @f(%0: i64, %1: i64 natural) memory x: i64 {
^0:
  %2 = constant 0 : i64
  jump ^1(%2, %2, %0)
^1(%3: i64, %4: i64, %5: i64):
  %6 = lt %3, %5 : bool
  branch %6, ^2, ^3
^2:
  %7 = cast %3 : u64
  %8 = cast %1 : u64
  %9 = ge %7, %8 : bool
  leave_if %9 else 0(%3, %4)
  %10 = load x[%3] : i64
  %11 = constant 1 : i64
  %12 = checked_add %4, %11 : i64 else 1(%3, %4)
  %13 = checked_add %3, %11 : i64 else 2(%3, %12)
  leave_if_asked else 3(%3, %12)
  jump ^1(%13, %12, %5)
^3:
  exit 4(%4)
}
)");
  ASSERT_EQ(verify(region), std::vector<std::string>{});
  const Region chunks = in_chunks(region, false);
  ASSERT_EQ(verify(chunks), std::vector<std::string>{}) << print(chunks);
  EXPECT_EQ(chunks.exits, region.exits);
  int loads = 0, leaving = 0;
  for (const Block& block : chunks.blocks)
    for (const Instruction& instruction : block.body) {
      loads += instruction.code == Code::Load;
      leaving += instruction.leave.exit >= 0;
    }
  EXPECT_EQ(loads, 2) << print(chunks);
  EXPECT_EQ(leaving, 4) << print(chunks);
  std::vector<DenseArray> memories{DenseArray(DType::I64, {100})};
  EXPECT_EQ(evaluate(chunks, {std::int64_t(100), std::int64_t(100)}, memories).exit, 4);
  // In pass 50 the index is out of range.
  const Left left = evaluate(chunks, {std::int64_t(100), std::int64_t(50)}, memories);
  EXPECT_EQ(left.exit, 0);
  EXPECT_EQ(std::get<std::int64_t>(left.values[0]), 50);
}

/// What is added to is read before the loop: the last sum says nothing of those before.
TEST(Region, AStoredSumOfWhatWasReadBeforeIsNoTotal) {
  const Region region = parse_region(R"(region @f(%0: i64) memory x: f64, c: f64 {
^0:
  %1 = constant 0 : i64
  %2 = load c[%1] : f64
  jump ^1(%1)
^1(%3: i64):
  %4 = lt %3, %0 : bool
  branch %4, ^2, ^3
^2:
  %5 = load x[%3] : f64
  %6 = add %2, %5 : f64
  leave_if_reported %6 of %2, %5 else 1(%3)
  store c[%1], %6
  %7 = constant 1 : i64
  leave_if_asked else 0(%3)
  %8 = checked_add %3, %7 : i64 else 2(%3)
  jump ^1(%8)
^3:
  exit 3(%3)
}
)");
  ASSERT_EQ(verify(region), std::vector<std::string>{});
  std::vector<double> x(600, 1.0);
  x[100] = 1.7e308;
  for (const Region& code : {region, in_chunks(region, false), in_chunks(region, true)}) {
    std::vector<DenseArray> memories{doubles(x), doubles({1e308})};
    const Left left = evaluate(code, {std::int64_t(600)}, memories);
    EXPECT_EQ(left.exit, 1);
    EXPECT_EQ(std::get<std::int64_t>(left.values[0]), 100);
  }
}

/// A first pass (^1) that goes on in the jump back of the others (^3), and an outer loop that begins at the inner one's
/// header: no block dominates the inner loop, and then one is the header of two.
TEST(Region, LoopsGetAHeaderOfTheirOwn) {
  const Region region = parse_region(R"(region @f(%0: i64) memory x: f64 {
^0:
  %1 = constant 0 : i64
  %2 = lt %1, %0 : bool
  branch %2, ^1, ^2(%1, %1)
^1:
  jump ^3(%1, %1)
^2(%3: i64, %4: i64):
  %5 = lt %3, %0 : bool
  branch %5, ^4, ^5
^3(%6: i64, %7: i64):
  %8 = constant 1 : i64
  %9 = add %6, %8 : i64
  jump ^2(%9, %7)
^4:
  %10 = constant 2.5 : f64
  store x[%3], %10
  jump ^3(%3, %4)
^5:
  %11 = constant 1 : i64
  %12 = add %4, %11 : i64
  %13 = constant 3 : i64
  %14 = lt %12, %13 : bool
  %15 = constant 0 : i64
  branch %14, ^2(%15, %12), ^6
^6:
  exit 0(%12)
}
)");
  ASSERT_EQ(verify(region), std::vector<std::string>{});
  Region formed = region;
  give_loops_form(formed);
  ASSERT_EQ(verify(formed), std::vector<std::string>{}) << print(formed);
  const Flow flow(formed);
  const std::vector<NaturalLoop> loops = innermost_loops(flow);
  ASSERT_EQ(loops.size(), 1u) << print(formed);
  bool stores = false, exits = false;
  for (int at : loops[0].blocks) {
    for (const Instruction& instruction : formed.blocks[std::size_t(at)].body) stores |= instruction.code == Code::Store;
    for (const Instruction& instruction : formed.blocks[std::size_t(at)].body)
      exits |= instruction.code == Code::Constant && instruction.constant == Scalar(std::int64_t(3));
  }
  EXPECT_TRUE(stores) << print(formed);
  EXPECT_FALSE(exits) << print(formed);
  std::vector<DenseArray> before{doubles({0, 0, 0, 0})}, after = before;
  const Left expected = evaluate(region, {std::int64_t(4)}, before), found = evaluate(formed, {std::int64_t(4)}, after);
  EXPECT_EQ(found.exit, expected.exit);
  EXPECT_EQ(found.values, expected.values);
  EXPECT_EQ(std::memcmp(before[0].data.data(), after[0].data.data(), before[0].data.size()), 0);
}

TEST(Region, NaturalInputsAreIntegers) {
  const Region region = parse_region("region @f(%0: i64 natural, %1: f64) {\n^0:\n  exit 0(%0)\n}\n");
  EXPECT_EQ(verify(region), std::vector<std::string>{});
  Region wrong = region;
  wrong.natural.push_back(wrong.inputs[1]);
  EXPECT_EQ(verify(wrong).size(), 1u);
}

TEST(Region, TheVerifierKnowsTheLibrary) {
  const auto faults = [](const char* line) {
    return verify(parse_region("region @f(%0: i64, %1: f64) memory m: f64 heap {\n^0:\n  " + std::string(line) +
                               "\n  exit 0(%0)\n}\n"));
  };
  EXPECT_EQ(faults("%2 = run sum_f64(%0, %0, %0) : f64"), std::vector<std::string>{});
  EXPECT_FALSE(faults("%2 = run sum_f64(%0, %0, %1) : f64").empty());
  EXPECT_FALSE(faults("%2 = run sum_f64(%0, %0) : f64").empty());
  EXPECT_FALSE(faults("%2 = run sum_f64(%0, %0, %0) : i64").empty());
  EXPECT_FALSE(faults("run sum_f64(%0, %0, %0)").empty());
  EXPECT_FALSE(faults("%2 = opaque %0 : i64").empty());
  EXPECT_FALSE(faults("%2 = address m[%1] : i64").empty());
  EXPECT_THROW(parse_region("region @f() {\n^0:\n  run nothing()\n  exit 0()\n}\n"), ParseError);
}

TEST(Region, IsEvaluated) {
  std::vector<DenseArray> memories{doubles({1, 3, 5, 7}), doubles({0, 0, 0, 0})};
  const Left left = evaluate(parse_region(kSmooth), {std::int64_t(4), 0.5}, memories);
  EXPECT_EQ(left.exit, 1);
  EXPECT_EQ(left.values, std::vector<Scalar>{5.25});
  EXPECT_EQ(memories[1], doubles({1, 2, 3.5, 5.25}));
}

TEST(Region, LeavesWhereAnIntNeedsMoreBits) {
  const Region region = parse_region(R"(region @f(%a: i64, %b: i64) {
^0:
  %c = checked_mul %a, %b : i64 else 1(%a)
  exit 0(%c)
})");
  std::vector<DenseArray> none;
  EXPECT_EQ(evaluate(region, {std::int64_t(1) << 31, std::int64_t(1) << 31}, none).exit, 0);
  const Left left = evaluate(region, {std::int64_t(1) << 32, std::int64_t(1) << 31}, none);
  EXPECT_EQ(left.exit, 1);
  EXPECT_EQ(left.values, std::vector<Scalar>{std::int64_t(1) << 32});
}

std::string first_fault(const std::string& text) {
  const auto faults = verify(parse_region(text));
  return faults.empty() ? "" : faults[0];
}

TEST(Region, VerifierFindsWhatIsWrong) {
  EXPECT_EQ(first_fault("region @f(%a: i64) {\n^0:\n  exit 0(%b)\n}"), "^0: the use of a value that is not defined");
  EXPECT_EQ(first_fault("region @f(%a: i64) {\n^0:\n  %b = add %c, %a : i64\n  %c = neg %a : i64\n  exit 0(%b)\n}"),
            "^0: the use of a value where its definition may not have been passed");
  EXPECT_EQ(
      first_fault("region @f(%a: bool) {\n^0:\n  branch %a, ^1, ^2\n^1:\n  %b = constant 1 : i64\n  jump ^2\n^2:\n  "
                  "exit 0(%b)\n}"),
      "^2: the use of a value where its definition may not have been passed");
  EXPECT_EQ(first_fault("region @f(%a: i64) {\n^0:\n  jump ^1(%a)\n^1:\n  exit 0()\n}"),
            "^0: arguments that are not what ^1 takes");
  EXPECT_EQ(first_fault("region @f(%a: i64) {\n^0:\n  jump ^3\n}"), "^0: a target that is no block");
  EXPECT_EQ(first_fault("region @f(%a: i64, %b: f64) {\n^0:\n  %c = add %a, %b : i64\n  exit 0(%c)\n}"),
            "^0: `add` of i64 and f64");
  EXPECT_EQ(first_fault("region @f(%a: f64) {\n^0:\n  %c = bit_and %a, %a : f64\n  exit 0(%c)\n}"),
            "^0: `bit_and` of f64");
  EXPECT_EQ(first_fault("region @f(%a: f64) {\n^0:\n  %c = reduce_sum %a : f64\n  exit 0(%c)\n}"),
            "^0: `reduce_sum` is not pointwise");
  EXPECT_EQ(first_fault("region @f(%a: i64) memory m: f32 {\n^0:\n  store m[%a], %a\n  exit 0()\n}"),
            "^0: a store of another dtype than the memory's");
  EXPECT_EQ(first_fault("region @f(%a: bool, %b: f64) {\n^0:\n  leave_if %a else 0(%a)\n  exit 0(%b)\n}"),
            "^0: exit 0 with values of other dtypes than elsewhere");
  EXPECT_EQ(first_fault("region @f(%a: i64) {\n^0:\n  exit 1()\n}"), "^1: exit 0 is never taken");
}

TEST(Region, ParserSaysWhere) {
  try {
    parse_region("region @f(%a: i64) {\n^0:\n  %b = sum %a : i64\n  exit 0(%b)\n}");
    FAIL();
  } catch (const ParseError& error) {
    EXPECT_STREQ(error.what(), "line 3: no operation is called `sum`");
  }
}

}  // namespace
}  // namespace fj::region
