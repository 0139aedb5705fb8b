// The search looks through the objects the process has loaded. torch may come late: until its library was found, the
// search is repeated when another object has been loaded.
#include "runtime/products/blas.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/fork_lock.h"
#include "runtime/products/packed_product.h"
#include "runtime/thread_pool.h"

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
  static std::mutex& lock = *[] {
    auto* made = new std::mutex;
    keep_over_forks(*made);
    return made;
  }();
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
void library_product(Gemm<T> function, std::int64_t m, std::int64_t n, std::int64_t k, const T* a, MatrixLayout al,
                     const T* b, MatrixLayout bl, T* c, std::int64_t cs) {
  const Leading x = leading(al, m, k), y = leading(bl, k, n);
  const std::int64_t c_stride = m == 1 ? std::max(n, cs) : cs;
  // Row-major c = a b is column-major transpose(c) = transpose(b) transpose(a).
  const T one = 1, zero = 0;
  function(&y.transpose, &x.transpose, &n, &m, &k, &one, b, &y.stride, a, &x.stride, &zero, c, &c_stride, 1, 1);
}

/// Whether the library takes a product of these sizes and strides.
bool library_takes(std::int64_t largest, std::int64_t m, std::int64_t n, std::int64_t k, MatrixLayout al,
                   MatrixLayout bl, std::int64_t cs) {
  return k > 0 && is_gemm_layout(al, m, k) && is_gemm_layout(bl, k, n) &&
         std::max({m, n, k, leading(al, m, k).stride, leading(bl, k, n).stride, std::max(n, cs)}) <= largest;
}

// ---- who computes it

thread_local int products_alone = 0;  // OneThreadProducts that live
std::atomic<ProductBy> product_by{ProductBy::Measured};

/// The next power of four, up to 1024 and above; from 512 on in all three one class.
constexpr int kBuckets = 7;
int bucket(std::int64_t size) { return std::min((int(std::bit_width(std::uint64_t(size - 1))) + 1) / 2, kBuckets - 1); }

struct Classes {
  /// By dtype, threads, library, layouts, m, n and k: what was measured.
  std::atomic<std::uint8_t> found[2][2][2][4][kBuckets][kBuckets][kBuckets];
};
Classes& classes() {
  static auto& all = *new Classes{};
  return all;
}

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Ours if it takes no longer: its results do not depend on the number of threads.
constexpr double kMargin = 1.03;

template <class T>
void gemm_by(Gemm<T> function, const Blas& library, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
             MatrixLayout al, const T* b, MatrixLayout bl, T* c, std::int64_t cs, int threads) {
  if (m == 0 || n == 0) return;
  const bool alone = products_alone > 0;
  if (alone || threads < 0) threads = 1;
  else if (threads == 0) threads = thread_count();
  const auto own = [&](std::int64_t rows, std::int64_t columns, std::int64_t depth) {
    return packed_product(rows, columns, depth, a, al, b, bl, c, cs, threads);
  };
  const auto theirs = [&](std::int64_t rows, std::int64_t columns, std::int64_t depth) {
    library_product(function, rows, columns, depth, a, al, b, bl, c, cs);
  };
  const bool can = function != nullptr && (!alone || library.threads != nullptr) &&
                   library_takes(library.largest, m, n, k, al, bl, cs);
  const ProductBy by = product_by.load(std::memory_order_relaxed);
  if (!can || by == ProductBy::Own) {
    if (own(m, n, k)) return;
    return can ? theirs(m, n, k) : plain_gemm(m, n, k, a, al, b, bl, c, cs);
  }
  if (by == ProductBy::Library) return theirs(m, n, k);
  const bool large = std::min({m, n, k}) >= 512;
  const auto of = [&](std::int64_t size) { return large ? kBuckets - 2 : bucket(size); };
  const int layouts = (leading(al, m, k).transpose == 'T') * 2 + (leading(bl, k, n).transpose == 'T');
  std::atomic<std::uint8_t>& known =
      classes().found[sizeof(T) == 8][threads > 1][library.best][layouts][of(m)][of(n)][of(k)];
  std::uint8_t choice = known.load(std::memory_order_relaxed);
  if (choice == 0) {
    // On a part of this product, whose result comes after that: about a millisecond. Of a thin one the large matrix is
    // larger than a second-level cache, and is read in runs as long as those of the whole.
    constexpr std::int64_t kSide = 256, kElements = 1 << 20, kLeast = 64;
    std::int64_t rows = std::min(m, kSide), columns = std::min(n, kSide), depth = std::min(k, kSide);
    if (std::min(m, n) <= 8) {
      const bool wide = m <= n, along_k = wide ? layouts & 1 : !(layouts & 2);
      std::int64_t& other = wide ? columns : rows;
      const std::int64_t size = wide ? n : m;
      std::int64_t& longer = along_k ? depth : other;
      std::int64_t& shorter = along_k ? other : depth;
      rows = m, columns = n;
      longer = std::min(along_k ? k : size, kElements);
      shorter = std::min(along_k ? size : k, std::max(kElements / longer, kLeast));
    }
    double best[2] = {1e30, 1e30};
    bool all = true;
    for (int round = 0; round < 3 && all; ++round)
      for (int which = 0; which < 2; ++which) {
        const double start = seconds();
        if (which == 0) all = own(rows, columns, depth) && all;
        else theirs(rows, columns, depth);
        if (round > 0) best[which] = std::min(best[which], seconds() - start);
      }
    choice = all && best[0] <= kMargin * best[1] ? 1 : 2;
    // Another thread may have measured too: the first says it for both.
    std::uint8_t unknown = 0;
    if (!known.compare_exchange_strong(unknown, choice)) choice = unknown;
  }
  if (choice == 1 && own(m, n, k)) return;
  theirs(m, n, k);
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
          MatrixLayout bl, float* c, std::int64_t cs, int threads) {
  const Blas& library = blas();
  gemm_by(library.sgemm, library, m, n, k, a, al, b, bl, c, cs, threads);
}

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const double* a, MatrixLayout al, const double* b,
          MatrixLayout bl, double* c, std::int64_t cs, int threads) {
  const Blas& library = blas();
  gemm_by(library.dgemm, library, m, n, k, a, al, b, bl, c, cs, threads);
}

OneThreadProducts::OneThreadProducts() {
  ++products_alone;
  if (const auto set = blas().threads) before_ = set(1);
}
OneThreadProducts::~OneThreadProducts() {
  --products_alone;
  if (const auto set = blas().threads) set(before_);
}

void set_product_by(ProductBy by) { product_by = by; }

std::string blas_name() { return blas().name; }

}  // namespace fj
