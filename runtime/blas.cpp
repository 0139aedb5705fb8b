// The search looks through the objects the process has loaded. torch comes and goes late: until MKL was found, the search is
// repeated when the number of loaded objects has grown.
#include "runtime/blas.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

namespace fj {
namespace {

// The CBLAS interface (netlib): enumeration values and argument order. MKL in torch takes 32-bit sizes (LP64), NumPy's OpenBLAS 64-bit.
constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;

template <class T, class Int>
using Gemm = void (*)(int, int, int, Int, Int, Int, T, const T*, Int, const T*, Int, T, T*, Int);

struct Blas {
  Gemm<float, std::int32_t> sgemm32 = nullptr;
  Gemm<double, std::int32_t> dgemm32 = nullptr;
  Gemm<float, std::int64_t> sgemm64 = nullptr;
  Gemm<double, std::int64_t> dgemm64 = nullptr;
  const char* name = "builtin";
};

struct LoadedObjects {
  std::vector<std::string> paths;
};

int collect(dl_phdr_info* info, std::size_t, void* data) {
  if (info->dlpi_name != nullptr && info->dlpi_name[0] != 0) static_cast<LoadedObjects*>(data)->paths.push_back(info->dlpi_name);
  return 0;
}

template <class F>
bool find(void* library, const char* symbol, F& function) {
  function = reinterpret_cast<F>(dlsym(library, symbol));
  return function != nullptr;
}

Blas search(const LoadedObjects& loaded) {
  Blas blas;
  for (const std::string& path : loaded.paths) {
    const bool torch = path.find("libtorch_cpu") != std::string::npos;
    const bool openblas = path.find("openblas") != std::string::npos;
    if (!torch && !openblas) continue;
    void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    // MKL_Get_Version_String tells torch's own copy of MKL from a torch built on another BLAS with other integer sizes.
    if (torch && dlsym(library, "MKL_Get_Version_String") != nullptr && find(library, "cblas_sgemm", blas.sgemm32) &&
        find(library, "cblas_dgemm", blas.dgemm32)) {
      blas.name = "mkl (torch)";
      return blas;
    }
    if (openblas && blas.sgemm64 == nullptr && find(library, "scipy_cblas_sgemm64_", blas.sgemm64) &&
        find(library, "scipy_cblas_dgemm64_", blas.dgemm64))
      blas.name = "openblas (numpy)";
  }
  return blas;
}

const Blas& blas() {
  static std::mutex lock;
  static std::atomic<const Blas*> current{nullptr};
  static std::size_t objects_seen = 0;
  const Blas* found = current.load(std::memory_order_acquire);
  if (found != nullptr && found->sgemm32 != nullptr) return *found;
  std::lock_guard guard(lock);
  LoadedObjects loaded;
  dl_iterate_phdr(collect, &loaded);
  if (found == nullptr || loaded.paths.size() != objects_seen) {
    objects_seen = loaded.paths.size();
    found = new Blas(search(loaded));  // a few in a process's life; readers may hold the old one
    current.store(found, std::memory_order_release);
  }
  return *found;
}

/// Correct for every layout; blocked so that the panel of b stays in cache.
template <class T>
void plain_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const T* a, MatrixLayout al, const T* b, MatrixLayout bl, T* c, std::int64_t cs) {
  for (std::int64_t i = 0; i < m; ++i) std::fill(c + i * cs, c + i * cs + n, T(0));
  constexpr std::int64_t kBlock = 64;
  for (std::int64_t k0 = 0; k0 < k; k0 += kBlock)
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t p = k0; p < std::min(k, k0 + kBlock); ++p) {
        const T x = a[i * al.row_stride + p * al.column_stride];
        for (std::int64_t j = 0; j < n; ++j) c[i * cs + j] += x * b[p * bl.row_stride + j * bl.column_stride];
      }
}

/// CBLAS's view of a layout: transposed or not, and the leading dimension.
template <class Int>
struct Leading {
  int transpose;
  Int stride;
};

template <class Int>
Leading<Int> leading(MatrixLayout layout, std::int64_t rows, std::int64_t columns) {
  if (layout.column_stride == 1 || columns == 1) return {kNoTrans, Int(rows == 1 ? std::max(columns, layout.row_stride) : layout.row_stride)};
  return {kTrans, Int(columns == 1 ? std::max(rows, layout.column_stride) : layout.column_stride)};
}

template <class T, class Int>
void call(Gemm<T, Int> function, std::int64_t m, std::int64_t n, std::int64_t k, const T* a, MatrixLayout al, const T* b, MatrixLayout bl,
          T* c, std::int64_t cs) {
  const auto x = leading<Int>(al, m, k), y = leading<Int>(bl, k, n);
  function(kRowMajor, x.transpose, y.transpose, Int(m), Int(n), Int(k), T(1), a, x.stride, b, y.stride, T(0), c, Int(m == 1 ? std::max(n, cs) : cs));
}

template <class T>
void product(Gemm<T, std::int32_t> f32, Gemm<T, std::int64_t> f64, std::int64_t m, std::int64_t n, std::int64_t k, const T* a, MatrixLayout al,
             const T* b, MatrixLayout bl, T* c, std::int64_t cs) {
  if (m == 0 || n == 0) return;
  const bool fits = std::max({m, n, k, cs, al.row_stride, al.column_stride, bl.row_stride, bl.column_stride}) <= INT32_MAX;
  if (k == 0 || !is_gemm_layout(al, m, k) || !is_gemm_layout(bl, k, n)) return plain_gemm(m, n, k, a, al, b, bl, c, cs);
  if (f32 != nullptr && fits) return call(f32, m, n, k, a, al, b, bl, c, cs);
  if (f64 != nullptr) return call(f64, m, n, k, a, al, b, bl, c, cs);
  plain_gemm(m, n, k, a, al, b, bl, c, cs);
}

}  // namespace

bool is_gemm_layout(MatrixLayout layout, std::int64_t rows, std::int64_t columns) {
  const bool by_rows = (layout.column_stride == 1 || columns == 1) && (rows == 1 || layout.row_stride >= std::max<std::int64_t>(columns, 1));
  const bool by_columns = (layout.row_stride == 1 || rows == 1) && (columns == 1 || layout.column_stride >= std::max<std::int64_t>(rows, 1));
  return by_rows || by_columns;
}

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, MatrixLayout al, const float* b, MatrixLayout bl, float* c, std::int64_t cs) {
  product(blas().sgemm32, blas().sgemm64, m, n, k, a, al, b, bl, c, cs);
}

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const double* a, MatrixLayout al, const double* b, MatrixLayout bl, double* c, std::int64_t cs) {
  product(blas().dgemm32, blas().dgemm64, m, n, k, a, al, b, bl, c, cs);
}

std::string blas_name() { return blas().name; }

}  // namespace fj
