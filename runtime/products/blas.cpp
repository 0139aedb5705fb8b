// The search looks through the objects the process has loaded. torch may come late: until its library was found, the
// search is repeated when another object has been loaded.
#include "runtime/products/blas.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace fj {
namespace {

// BLAS's Fortran interface, the one that torch exports too: column-major, every argument a pointer, the lengths of the
// two one-letter texts behind. Sizes are passed as pointers to 64-bit numbers: a library with 32-bit integers reads the
// low halves.
template <class T>
using Gemm = void (*)(const char* transpose_a, const char* transpose_b, const std::int64_t* m, const std::int64_t* n,
                      const std::int64_t* k, const T* alpha, const T* a, const std::int64_t* a_stride, const T* b,
                      const std::int64_t* b_stride, const T* beta, T* c, const std::int64_t* c_stride, std::size_t,
                      std::size_t);

struct Blas {
  Gemm<float> sgemm = nullptr;
  Gemm<double> dgemm = nullptr;
  /// Sets how many products of this thread use, gives how many they did; 0: as before that; null: can't.
  int (*threads)(int) = nullptr;
  std::int64_t largest = INT32_MAX;  // of sizes and strides
  bool best = false;                 // nothing better can be loaded later
  const char* name = "builtin";
};

/// Where products are looked for, best first: a library by a part of its file name, its functions by name. (OpenBLAS's
/// number of threads "of this thread" is that of all.)
constexpr struct {
  const char *file, *sgemm, *dgemm, *threads;
  std::int64_t largest;
  const char* name;
} kLibraries[] = {
    {"libtorch_cpu", "sgemm_", "dgemm_", "MKL_Set_Num_Threads_Local", INT32_MAX, "torch"},
    {"openblas", "scipy_sgemm_64_", "scipy_dgemm_64_", nullptr, INT64_MAX, "openblas"},
    {"openblas", "sgemm_", "dgemm_", nullptr, INT32_MAX, "openblas"},
};

struct LoadedObjects {
  std::vector<std::string> paths;
};

int collect(dl_phdr_info* info, std::size_t, void* data) {
  if (info->dlpi_name != nullptr && info->dlpi_name[0] != 0)
    static_cast<LoadedObjects*>(data)->paths.push_back(info->dlpi_name);
  return 0;
}

template <class F>
bool find(void* library, const char* symbol, F& function) {
  function = reinterpret_cast<F>(dlsym(library, symbol));
  return function != nullptr;
}

Blas search(const LoadedObjects& loaded) {
  for (const auto& row : kLibraries)
    for (const std::string& path : loaded.paths) {
      const std::size_t file = path.find_last_of('/') + 1;  // 0 if there is no slash
      if (path.find(row.file, file) == std::string::npos) continue;
      void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);  // kept: the functions must stay
      if (library == nullptr) continue;
      Blas blas{.largest = row.largest, .best = &row == &kLibraries[0], .name = row.name};
      if (find(library, row.sgemm, blas.sgemm) && find(library, row.dgemm, blas.dgemm)) {
        if (row.threads != nullptr) find(library, row.threads, blas.threads);
        if (blas.best && dlsym(library, "MKL_Get_Version_String") != nullptr) blas.name = "mkl (torch)";
        return blas;
      }
    }
  return {};
}

/// Objects loaded since the process started: moves when one arrives, and is the first thing the walk reports.
int count_loads(dl_phdr_info* info, std::size_t, void* data) {
  *static_cast<unsigned long long*>(data) = info->dlpi_adds;
  return 1;
}

const Blas& blas() {
  static std::mutex lock;
  static std::atomic<const Blas*> current{nullptr};
  static std::atomic<unsigned long long> loads_seen{0};
  const Blas* found = current.load(std::memory_order_acquire);
  if (found != nullptr && found->best) return *found;
  unsigned long long loads = 0;
  dl_iterate_phdr(count_loads, &loads);
  if (found != nullptr && loads == loads_seen.load(std::memory_order_acquire)) return *found;
  std::lock_guard guard(lock);
  LoadedObjects loaded;
  dl_iterate_phdr(collect, &loaded);
  // Readers may hold the old one, so what was found stays. Most loads bring nothing new.
  static auto& all = *new std::deque<Blas>;
  const Blas now = search(loaded);
  if (all.empty() || all.back().sgemm != now.sgemm) all.push_back(now);
  found = &all.back();
  current.store(found, std::memory_order_release);
  loads_seen.store(loads, std::memory_order_release);
  return *found;
}

/// Correct for every layout; blocked so that the panel of b stays in cache.
template <class T>
void plain_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const T* a, MatrixLayout al, const T* b,
                MatrixLayout bl, T* c, std::int64_t cs) {
  for (std::int64_t i = 0; i < m; ++i) std::fill(c + i * cs, c + i * cs + n, T(0));
  constexpr std::int64_t kBlock = 64;
  for (std::int64_t k0 = 0; k0 < k; k0 += kBlock)
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t p = k0; p < std::min(k, k0 + kBlock); ++p) {
        const T x = a[i * al.row_stride + p * al.column_stride];
        for (std::int64_t j = 0; j < n; ++j) c[i * cs + j] += x * b[p * bl.row_stride + j * bl.column_stride];
      }
}

/// BLAS's view of a row-major layout: transposed or not, and the leading dimension.
struct Leading {
  char transpose;
  std::int64_t stride;
};

Leading leading(MatrixLayout layout, std::int64_t rows, std::int64_t columns) {
  if (layout.column_stride == 1 || columns == 1)
    return {'N', rows == 1 ? std::max(columns, layout.row_stride) : layout.row_stride};
  return {'T', columns == 1 ? std::max(rows, layout.column_stride) : layout.column_stride};
}

template <class T>
void product(Gemm<T> function, std::int64_t largest, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
             MatrixLayout al, const T* b, MatrixLayout bl, T* c, std::int64_t cs) {
  if (m == 0 || n == 0) return;
  if (function == nullptr || k == 0 || !is_gemm_layout(al, m, k) || !is_gemm_layout(bl, k, n))
    return plain_gemm(m, n, k, a, al, b, bl, c, cs);
  const Leading x = leading(al, m, k), y = leading(bl, k, n);
  const std::int64_t c_stride = m == 1 ? std::max(n, cs) : cs;
  if (std::max({m, n, k, x.stride, y.stride, c_stride}) > largest) return plain_gemm(m, n, k, a, al, b, bl, c, cs);
  // Row-major c = a b is column-major transpose(c) = transpose(b) transpose(a).
  const T one = 1, zero = 0;
  function(&y.transpose, &x.transpose, &n, &m, &k, &one, b, &y.stride, a, &x.stride, &zero, c, &c_stride, 1, 1);
}

}  // namespace

bool is_gemm_layout(MatrixLayout layout, std::int64_t rows, std::int64_t columns) {
  const bool by_rows = (layout.column_stride == 1 || columns == 1) &&
                       (rows == 1 || layout.row_stride >= std::max<std::int64_t>(columns, 1));
  const bool by_columns = (layout.row_stride == 1 || rows == 1) &&
                          (columns == 1 || layout.column_stride >= std::max<std::int64_t>(rows, 1));
  return by_rows || by_columns;
}

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, MatrixLayout al, const float* b,
          MatrixLayout bl, float* c, std::int64_t cs) {
  const Blas& library = blas();
  product(library.sgemm, library.largest, m, n, k, a, al, b, bl, c, cs);
}

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const double* a, MatrixLayout al, const double* b,
          MatrixLayout bl, double* c, std::int64_t cs) {
  const Blas& library = blas();
  product(library.dgemm, library.largest, m, n, k, a, al, b, bl, c, cs);
}

bool has_one_thread_products() { return blas().threads != nullptr; }

OneThreadProducts::OneThreadProducts() {
  if (const auto set = blas().threads) before_ = set(1);
}
OneThreadProducts::~OneThreadProducts() {
  if (const auto set = blas().threads) set(before_);
}

std::string blas_name() { return blas().name; }

}  // namespace fj
