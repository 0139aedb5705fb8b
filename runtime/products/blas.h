/// Matrix products of float32 and float64 by the tuned library that is in the process already: MKL inside torch, else
/// the OpenBLAS that NumPy brings; a plain blocked loop where there is neither. Found at the first product, by name,
/// never linked.
#pragma once

#include <cstdint>
#include <string>

namespace fj {

/// A matrix in memory: element (i, j) at data[i * row_stride + j * column_stride]; one of the strides is 1, or the
/// matrix has one row or column.
struct MatrixLayout {
  std::int64_t row_stride, column_stride;
};

/// True if a matrix of such strides can be given to the library as it is. Others give right results by a slow loop:
/// copy first.
bool is_gemm_layout(MatrixLayout layout, std::int64_t rows, std::int64_t columns);

/// c[m, n] = a[m, k] b[k, n], c row-major with `c_stride` elements from row to row. k = 0 gives zeros.
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, MatrixLayout a_layout, const float* b,
          MatrixLayout b_layout, float* c, std::int64_t c_stride);
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const double* a, MatrixLayout a_layout, const double* b,
          MatrixLayout b_layout, double* c, std::int64_t c_stride);

/// Whether the library can be told to run the products of one thread on that thread alone.
bool has_one_thread_products();
/// While it lives: this thread's products do. Only where `has_one_thread_products`.
class OneThreadProducts {
 public:
  OneThreadProducts();
  ~OneThreadProducts();
  OneThreadProducts(const OneThreadProducts&) = delete;

 private:
  int before_ = 0;
};

/// "mkl (torch)", "torch" (with another BLAS), "openblas" or "builtin": for explain and logs.
std::string blas_name();

}  // namespace fj
