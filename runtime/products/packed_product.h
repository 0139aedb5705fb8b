/// Matrix products of our own, of float32 and float64.
///
/// Large ones copy panels of both matrices into the order in which tiles of the result, held in registers, read them: b
/// by blocks of `kDepth` rows that stay in the last-level cache, a by blocks that stay in the second level (the scheme of
/// Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34, 2008). Ones with few rows or
/// columns are as fast as the memory of the large matrix and copy nothing: rows of b are added up, or both matrices are
/// read along k. Threads change no sum.
#pragma once

#include <cstdint>

#include "runtime/products/blas.h"

namespace fj {

/// c[m, n] = a[m, k] b[k, n] on at most so many threads, c row-major with `c_stride` elements from row to row. Strides
/// may be any. False: there is no memory for the panels, and c is undefined.
bool packed_product(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, MatrixLayout a_layout,
                    const float* b, MatrixLayout b_layout, float* c, std::int64_t c_stride, int threads);
bool packed_product(std::int64_t m, std::int64_t n, std::int64_t k, const double* a, MatrixLayout a_layout,
                    const double* b, MatrixLayout b_layout, double* c, std::int64_t c_stride, int threads);

/// The vectors that products use: of 16 bytes, which every processor has, of 32 or of 64.
enum class ProductVectors { Baseline, Avx2, Avx512 };
ProductVectors product_vectors();
/// For tests: these, or the best there are if these are not there.
void set_product_vectors(ProductVectors used);

}  // namespace fj
