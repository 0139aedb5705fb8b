/// Matrix products of float32 and float64: by code of our own (packed_product.h), or by the tuned library that is in the
/// process already, MKL inside torch, else the OpenBLAS that NumPy brings; found by name, never linked. Which of the two
/// is faster is measured, once for each class of sizes and layouts, on the first product of that class.
#pragma once

#include <cstdint>
#include <string>

namespace fj {

/// A matrix in memory: element (i, j) at data[i * row_stride + j * column_stride]; one of the strides is 1, or the
/// matrix has one row or column.
struct MatrixLayout {
  std::int64_t row_stride, column_stride;
};

/// True if a matrix of such strides can be given to a library as it is. Others are right and slower: copy first.
bool is_gemm_layout(MatrixLayout layout, std::int64_t rows, std::int64_t columns);

/// c[m, n] = a[m, k] b[k, n], c row-major with `c_stride` elements from row to row. k = 0 gives zeros. `threads`: of our
/// own, at most; 0: thread_count().
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, MatrixLayout a_layout, const float* b,
          MatrixLayout b_layout, float* c, std::int64_t c_stride, int threads = 0);
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const double* a, MatrixLayout a_layout, const double* b,
          MatrixLayout b_layout, double* c, std::int64_t c_stride, int threads = 0);

/// While it lives this thread's products run on it alone.
class OneThreadProducts {
 public:
  OneThreadProducts();
  ~OneThreadProducts();
  OneThreadProducts(const OneThreadProducts&) = delete;

 private:
  int before_ = 0;
};

/// "mkl (torch)", "torch" (with another BLAS), "openblas" or "builtin": the library, for explain and logs.
std::string blas_name();

/// Who computes products, for tests and benchmarks. Measured: see above.
enum class ProductBy { Measured, Own, Library };
void set_product_by(ProductBy by);

}  // namespace fj
