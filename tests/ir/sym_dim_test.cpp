// Sizes as polynomials.
#include <gtest/gtest.h>

#include "runtime/base/sym_dim.h"

namespace fj {
namespace {

const SymDim s0(SymbolId{0}), s1(SymbolId{1}), s2(SymbolId{2});
SymDim number(std::int64_t value) { return SymDim(value); }

TEST(SymDim, EqualValuesHaveEqualForms) {
  EXPECT_EQ((s0 + number(1)) * (s0 - number(1)), s0 * s0 - number(1));
  EXPECT_EQ(s0 * s1, s1 * s0);
  EXPECT_EQ((s0 * s1).hash(), (s1 * s0).hash());
  EXPECT_EQ(s0 - s0, number(0));
  EXPECT_NE(s0, s1);
}

TEST(SymDim, TextIsReadableAndConstantsComeLast) {
  EXPECT_EQ((number(1) + s0 * number(64)).text(), "s0*64 + 1");
  EXPECT_EQ((s0 * s1 * number(4) + number(2)).text(), "s0*s1*4 + 2");
  EXPECT_EQ((number(3) - s0).text(), "-s0 + 3");
  EXPECT_EQ((s1 - number(1) - s0 * number(2)).text(), "-s0*2 + s1 - 1");
  EXPECT_EQ(number(0).text(), "0");
  EXPECT_EQ(number(INT64_MIN).text(), "-9223372036854775808");
}

TEST(SymDim, EvaluatesUnderValues) {
  const std::int64_t values[] = {3, 5};
  EXPECT_EQ((s0 * s1 * number(2) - number(1)).evaluate(values), 29);
  EXPECT_EQ(number(7).evaluate({}), 7);
}

TEST(SymDim, SubstitutesSymbols) {
  const SymDim size = s0 * s0 + s1;
  EXPECT_EQ(size.substitute([](SymbolId symbol) { return symbol.index == 0 ? s1 + number(1) : SymDim(symbol); }),
            s1 * s1 + s1 * number(3) + number(1));
}

TEST(SymDim, DividesExactlyOrNotAtAll) {
  EXPECT_EQ((s0 * number(6) + number(4)).divide_exactly(number(2)), s0 * number(3) + number(2));
  EXPECT_EQ((s0 * number(6) + number(5)).divide_exactly(number(2)), std::nullopt);
  EXPECT_EQ((s0 * s1 * number(8)).divide_exactly(s1 * number(4)), s0 * number(2));
  EXPECT_EQ(s0.divide_exactly(s1), std::nullopt);
  EXPECT_EQ(number(0).divide_exactly(s0), number(0));
  EXPECT_EQ(s0.divide_exactly(number(0)), std::nullopt);
  EXPECT_EQ(number(INT64_MIN).divide_exactly(number(-1)), std::nullopt);
}

TEST(SymDim, DividesByWhatItWasMultipliedWith) {
  const SymDim factors[] = {s0 + s1, s0 * s2 - s1 * s1 + number(1), s1 - s2 * number(3),
                            s0 * s0 * number(2) + number(7)};
  for (const SymDim& a : factors)
    for (const SymDim& b : factors) EXPECT_EQ((a * b).divide_exactly(b), a) << a.text() << " by " << b.text();
}

TEST(SymDim, ContiguousStridesStepOverEmptyDimensionsAsOverOne) {
  EXPECT_EQ(contiguous_strides(Dims{s0, 4, s1}), (Dims{s1 * number(4), s1, 1}));
  EXPECT_EQ(contiguous_strides(Dims{2, 0, 3}), (Dims{3, 3, 1}));
  EXPECT_EQ(product(Dims{}), number(1));
}

}  // namespace
}  // namespace fj
