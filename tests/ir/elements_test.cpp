// Half types and conversions, against values worked out by hand.
#include <gtest/gtest.h>

#include "graph_ir/evaluate/elements.h"

namespace fj {
namespace {

TEST(Elements, EveryHalfSurvivesDecodingAndEncoding) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const float half = Half::decode(std::uint16_t(bits)), brain = BFloat::decode(std::uint16_t(bits));
    if (!std::isnan(half)) { EXPECT_EQ(Half::encode(half), bits); }
    if (!std::isnan(brain)) {
      EXPECT_EQ(BFloat::encode(brain), bits);
      EXPECT_EQ(std::bit_cast<float>(std::uint32_t(bits) << 16), brain);
    }
  }
}

TEST(Elements, HalfRoundsToNearestEven) {
  EXPECT_EQ(Half::encode(1.0 + 0x1p-11), 0x3c00);           // a tie, to even
  EXPECT_EQ(Half::encode(1.0 + 3 * 0x1p-11), 0x3c02);       // a tie, to even
  EXPECT_EQ(Half::encode(1.0 + 0x1p-11 + 0x1p-40), 0x3c01); // just above: rounded once, from double
  EXPECT_EQ(Half::encode(65519.9), 0x7bff);
  EXPECT_EQ(Half::encode(65520.0), 0x7c00);
  EXPECT_EQ(Half::encode(0x1p-24), 0x0001);
  EXPECT_EQ(Half::encode(0x1p-25), 0x0000);
  EXPECT_EQ(Half::encode(-0x1p-25 * 1.01), 0x8001);
  EXPECT_EQ(BFloat::encode(3.4e38), 0x7f80);
}

TEST(Elements, FloatsBecomeIntegersAsOnThisProcessor) {
  const double nan = std::nan("");
  EXPECT_EQ(convert<std::int32_t>(-1.9), -1);
  EXPECT_EQ(convert<std::int32_t>(-2147483648.5), INT32_MIN);
#if defined(__aarch64__)
  EXPECT_EQ(convert<std::int32_t>(3e9f), INT32_MAX);
  EXPECT_EQ(convert<std::int32_t>(3e9), -1294967296);
  EXPECT_EQ(convert<std::int32_t>(nan), 0);
  EXPECT_EQ(convert<std::int64_t>(1e19), INT64_MAX);
  EXPECT_EQ(convert<std::uint32_t>(-1.0), UINT32_MAX);
  EXPECT_EQ(convert<std::uint32_t>(-1.0f), 0u);
  EXPECT_EQ(convert<std::uint32_t>(5e9f), UINT32_MAX);
  EXPECT_EQ(convert<std::uint64_t>(2e19), UINT64_MAX);
  EXPECT_EQ(convert<std::int16_t>(1e10f), -1);
  EXPECT_EQ(convert<std::uint8_t>(-50.5f), 206);
#else
  EXPECT_EQ(convert<std::int32_t>(3e9), INT32_MIN);
  EXPECT_EQ(convert<std::int32_t>(nan), INT32_MIN);
  EXPECT_EQ(convert<std::int64_t>(1e19), INT64_MIN);
  EXPECT_EQ(convert<std::uint32_t>(-1.0), UINT32_MAX);
#endif
  EXPECT_EQ(convert<std::uint32_t>(-0.9), 0u);
  EXPECT_EQ(convert<std::uint32_t>(3e9), 3000000000u);
  EXPECT_EQ(convert<std::uint8_t>(300.7), 44);
  EXPECT_EQ(convert<std::int8_t>(200.0f), -56);
  EXPECT_EQ(convert<std::uint64_t>(1.8e19), 18000000000000000000u);
  EXPECT_EQ(convert<bool>(nan), true);
  EXPECT_EQ(convert<bool>(-0.0), false);
  EXPECT_EQ(convert<float>(std::complex<double>(2, 3)), 2.0f);
}

}  // namespace
}  // namespace fj
