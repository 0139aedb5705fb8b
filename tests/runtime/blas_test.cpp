// Matrix products against the plain sum. This process has no library of its own: run with FRAMEJIT_TEST_BLAS=<path>
// (see CMakeLists.txt) the same tests run on NumPy's OpenBLAS or torch's MKL.
#include "runtime/products/blas.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <vector>

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
