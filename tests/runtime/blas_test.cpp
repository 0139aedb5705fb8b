// Matrix products against the plain sum. This process has no library of its own: run with FRAMEJIT_TEST_BLAS=<path>
// (see CMakeLists.txt) the same tests run on NumPy's OpenBLAS or torch's MKL.
#include "runtime/products/blas.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <vector>

#include "runtime/products/packed_product.h"

namespace fj {
namespace {

/// A matrix in a layout, with its own margin of poison so that reads outside show up.
template <class T>
struct Matrix {
  std::vector<T> memory;
  MatrixLayout layout;

  Matrix(std::int64_t rows, std::int64_t columns, bool by_columns, std::int64_t margin, std::mt19937& random) {
    const std::int64_t outer = (by_columns ? rows : columns) + margin;
    layout = by_columns ? MatrixLayout{1, outer} : MatrixLayout{outer, 1};
    memory.assign(std::size_t(outer * (by_columns ? columns : rows) + 1), std::numeric_limits<T>::quiet_NaN());
    std::uniform_real_distribution<T> uniform(-1, 1);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) at(i, j) = uniform(random);
  }
  T& at(std::int64_t i, std::int64_t j) {
    return memory[std::size_t(i * layout.row_stride + j * layout.column_stride)];
  }
};

template <class T>
void check_product(std::int64_t m, std::int64_t n, std::int64_t k, bool a_columns, bool b_columns,
                   std::int64_t margin) {
  std::mt19937 random(unsigned(m * 1000003 + n * 1009 + k));
  Matrix<T> a(m, k, a_columns, margin, random), b(k, n, b_columns, margin, random);
  const std::int64_t stride = n + margin;
  std::vector<T> c(std::size_t(m * stride + 1), T(7));
  gemm(m, n, k, a.memory.data(), a.layout, b.memory.data(), b.layout, c.data(), stride);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double expected = 0, magnitude = 0;
      for (std::int64_t p = 0; p < k; ++p) {
        const double term = double(a.at(i, p)) * double(b.at(p, j));
        expected += term;
        magnitude += std::abs(term);
      }
      ASSERT_NEAR(double(c[std::size_t(i * stride + j)]), expected,
                  magnitude * 8 * double(std::numeric_limits<T>::epsilon()))
          << m << "x" << n << "x" << k << (a_columns ? " a by columns" : "") << (b_columns ? " b by columns" : "")
          << " at " << i << ", " << j;
    }
    for (std::int64_t j = n; j < stride; ++j) ASSERT_EQ(c[std::size_t(i * stride + j)], T(7)) << "wrote between rows";
  }
}

TEST(Blas, IsFoundAmongLoadedLibraries) {
  EXPECT_EQ(blas_name(), "builtin");
  const char* path = std::getenv("FRAMEJIT_TEST_BLAS");
  if (path == nullptr) GTEST_SKIP() << "no library given";
  ASSERT_NE(dlopen(path, RTLD_NOW), nullptr) << dlerror();
  EXPECT_EQ(blas_name(), std::string(path).find("torch") != std::string::npos ? "mkl (torch)" : "openblas");
}

TEST(Blas, MultipliesInEveryLayout) {
  for (std::int64_t m : {0, 1, 2, 5, 70})
    for (std::int64_t n : {0, 1, 3, 65})
      for (std::int64_t k : {0, 1, 4, 130})
        for (int layouts = 0; layouts < 4; ++layouts)
          for (std::int64_t margin : {0, 3}) {
            check_product<float>(m, n, k, layouts & 1, layouts & 2, margin);
            check_product<double>(m, n, k, layouts & 1, layouts & 2, margin);
          }
}

/// Our own products, with each set of vectors that this processor has.
class OwnProducts : public testing::TestWithParam<ProductVectors> {
 protected:
  void SetUp() override {
    set_product_by(ProductBy::Own);
    set_product_vectors(GetParam());
    if (product_vectors() != GetParam()) GTEST_SKIP() << "this processor has none of these vectors";
  }
  void TearDown() override {
    set_product_by(ProductBy::Measured);
    set_product_vectors(ProductVectors::Avx512);
  }
};
INSTANTIATE_TEST_SUITE_P(Blas, OwnProducts,
                         testing::Values(ProductVectors::Baseline, ProductVectors::Avx2, ProductVectors::Avx512));

TEST_P(OwnProducts, GoByPanelsRowsAndDots) {
  for (std::int64_t m : {1, 2, 3, 4, 5, 12, 13, 25, 50})
    for (std::int64_t n : {1, 2, 3, 8, 17, 32, 33, 100})
      for (std::int64_t k : {1, 2, 16, 33, 257, 513})
        for (int layouts = 0; layouts < 4; ++layouts) {
          check_product<float>(m, n, k, layouts & 1, layouts & 2, layouts);
          check_product<double>(m, n, k, layouts & 1, layouts & 2, 3 - layouts);
        }
}

TEST_P(OwnProducts, AreLargerThanTheCaches) {
  for (int layouts = 0; layouts < 4; ++layouts) {
    check_product<float>(400, 2100, 300, layouts & 1, layouts & 2, 1);
    check_product<float>(5, 5000, 700, layouts & 1, layouts & 2, 1);
    check_product<float>(5000, 5, 700, layouts & 1, layouts & 2, 1);
    check_product<double>(1, 3000, 3000, layouts & 1, layouts & 2, 1);
    check_product<double>(3000, 1, 3000, layouts & 1, layouts & 2, 1);
  }
}

TEST_P(OwnProducts, AreTheSameBitsOnAnyNumberOfThreads) {
  std::mt19937 random(3);
  for (auto [m, n, k] : {std::array<std::int64_t, 3>{300, 500, 700}, {1, 5000, 800}, {5000, 1, 800}, {20, 700, 900}}) {
    Matrix<float> a(m, k, false, 0, random), b(k, n, false, 0, random);
    std::vector<float> one(std::size_t(m * n)), many(one);
    gemm(m, n, k, a.memory.data(), a.layout, b.memory.data(), b.layout, one.data(), n, 1);
    for (int threads : {2, 3, 8}) {
      gemm(m, n, k, a.memory.data(), a.layout, b.memory.data(), b.layout, many.data(), n, threads);
      EXPECT_EQ(one, many) << m << "x" << n << "x" << k << " on " << threads;
    }
  }
}

TEST_P(OwnProducts, CarryNaNsThroughTheEdgesOfTiles) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (std::int64_t n : {1, 5, 17, 33})
    for (std::int64_t m : {1, 5, 13, 26}) {
      const std::int64_t k = 37;
      std::vector<float> a(std::size_t(m * k), 1.0f), b(std::size_t(k * n), 1.0f), c(std::size_t(m * n));
      a[std::size_t((m - 1) * k + k - 1)] = infinity;
      b[std::size_t(n - 1)] = nan;
      gemm(m, n, k, a.data(), {k, 1}, b.data(), {n, 1}, c.data(), n);
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          const float found = c[std::size_t(i * n + j)];
          if (j == n - 1) EXPECT_TRUE(std::isnan(found)) << m << "x" << n << " at " << i << ", " << j;
          else EXPECT_EQ(found, i == m - 1 ? infinity : float(k)) << m << "x" << n << " at " << i << ", " << j;
        }
    }
}

TEST(Blas, MultipliesLargeMatrices) { check_product<float>(300, 200, 250, false, true, 0); }

TEST(Blas, TakesLayoutsNoLibraryTakes) {
  // Reversed, broadcast and strided operands of 3 x 3.
  std::vector<float> memory(64);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = float(i);
  for (MatrixLayout a : {MatrixLayout{-3, -1}, MatrixLayout{0, 1}, MatrixLayout{1, 0}, MatrixLayout{0, 0},
                         MatrixLayout{6, 2}, MatrixLayout{1, 1}})
    for (MatrixLayout b : {MatrixLayout{3, 1}, MatrixLayout{0, 1}, MatrixLayout{2, 6}, MatrixLayout{-1, -3}}) {
      float c[9];
      const float *x = memory.data() + 30, *y = memory.data() + 20;
      gemm(3, 3, 3, x, a, y, b, c, 3);
      for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j) {
          float expected = 0;
          for (int p = 0; p < 3; ++p)
            expected += x[i * a.row_stride + p * a.column_stride] * y[p * b.row_stride + j * b.column_stride];
          EXPECT_EQ(c[3 * i + j], expected);
        }
    }
}

TEST(Blas, CarriesNaNsAndInfinities) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const float a[4] = {0, 1, 2, 0}, b[4] = {nan, 1, infinity, 2};
  float c[4];
  gemm(2, 2, 2, a, {2, 1}, b, {2, 1}, c, 2);
  EXPECT_TRUE(std::isnan(c[0]));  // 0 * nan + 1 * inf
  EXPECT_EQ(c[1], 2);
  EXPECT_TRUE(std::isnan(c[2]));
  EXPECT_EQ(c[3], 2);
}

TEST(Blas, SaysWhichLayoutsGoUncopied) {
  EXPECT_TRUE(is_gemm_layout({4, 1}, 3, 4));
  EXPECT_TRUE(is_gemm_layout({1, 3}, 3, 4));
  EXPECT_TRUE(is_gemm_layout({9, 1}, 3, 4));
  EXPECT_TRUE(is_gemm_layout({0, 1}, 1, 4));   // one row: its stride says nothing
  EXPECT_FALSE(is_gemm_layout({0, 1}, 3, 4));  // a broadcast row
  EXPECT_FALSE(is_gemm_layout({1, 1}, 3, 4));  // overlapping rows
  EXPECT_FALSE(is_gemm_layout({8, 2}, 3, 4));
  EXPECT_FALSE(is_gemm_layout({-4, 1}, 3, 4));
}

}  // namespace
}  // namespace fj
