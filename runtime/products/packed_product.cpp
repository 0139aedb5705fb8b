// For each set of vector instructions the same code, compiled with them: FJ_VECTORS below. A tile is `rows` by up to
// `across` vectors; each step along k reads a row of b's panel and spreads the numbers of a's column.
#include "runtime/products/packed_product.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "runtime/kept_block.h"
#include "runtime/thread_pool.h"

namespace fj {
namespace {

constexpr std::int64_t kDepth = 256;     // of panels: the vectors of a tile by so many rows stay in the first-level cache
constexpr std::int64_t kRows = 384;      // of a's panels: by kDepth they stay in half of a second-level cache of 1 MiB
constexpr std::int64_t kColumns = 2048;  // of b's panels
constexpr std::int64_t kFewColumns = 16; // are dot products
constexpr std::int64_t kSmall = 4096;    // elements of b that are read where they are
constexpr std::int64_t kShort = 256;     // rows of a that are read where they are
constexpr std::int64_t kSlack = 16;      // elements that `turn` may write behind a panel
constexpr double kPartOperations = 1e6;  // below them a part is not worth a thread

/// A matrix from a place on.
template <class T>
struct Matrix {
  const T* data;
  std::int64_t rows_apart, columns_apart;
  const T* at(std::int64_t i, std::int64_t j) const { return data + i * rows_apart + j * columns_apart; }
  Matrix from(std::int64_t i, std::int64_t j) const { return {at(i, j), rows_apart, columns_apart}; }
  Matrix transposed() const { return {data, columns_apart, rows_apart}; }
};

template <class T, int bytes>
struct Vectors {
  typedef T One __attribute__((vector_size(bytes)));
  typedef T Loose __attribute__((vector_size(bytes), aligned(alignof(T)), may_alias));
  static constexpr int lanes = bytes / int(sizeof(T));
};

/// c[height, width vectors] (+)= the panel `a`, whose columns are `a_step` apart and dense, times rows of b.
template <class T, int bytes, int height, int width>
[[gnu::always_inline]] inline void tile(std::int64_t depth, const T* a, std::int64_t a_step, const T* b,
                                        std::int64_t b_step, T* c, std::int64_t c_step, bool add) {
  using V = Vectors<T, bytes>;
  typename V::One sum[height][width];
#pragma GCC unroll 16
  for (int i = 0; i < height; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < width; ++j) sum[i][j] = typename V::One{};
  for (std::int64_t p = 0; p < depth; ++p, a += a_step, b += b_step) {
    typename V::One row[width];
#pragma GCC unroll 4
    for (int j = 0; j < width; ++j) row[j] = *reinterpret_cast<const typename V::Loose*>(b + j * V::lanes);
#pragma GCC unroll 16
    for (int i = 0; i < height; ++i) {
      const typename V::One spread = typename V::One{} + a[i];
#pragma GCC unroll 4
      for (int j = 0; j < width; ++j) sum[i][j] += spread * row[j];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < height; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < width; ++j) {
      auto* to = reinterpret_cast<typename V::Loose*>(c + i * c_step + j * V::lanes);
      *to = add ? *to + sum[i][j] : typename V::One(sum[i][j]);
    }
}

/// sums[height][width] of rows of a and of b along k, in which both are dense.
template <class T, int bytes, int height, int width>
[[gnu::always_inline]] inline void dots(std::int64_t depth, const T* a, std::int64_t a_step, const T* b,
                                        std::int64_t b_step, T* c, std::int64_t c_step) {
  using V = Vectors<T, bytes>;
  typename V::One sum[height][width];
#pragma GCC unroll 8
  for (int i = 0; i < height; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < width; ++j) sum[i][j] = typename V::One{};
  const auto step = [&](const T* x, std::int64_t x_step, const T* y,
                        std::int64_t y_step) __attribute__((always_inline)) {
    typename V::One ys[width];
#pragma GCC unroll 4
    for (int j = 0; j < width; ++j) ys[j] = *reinterpret_cast<const typename V::Loose*>(y + j * y_step);
#pragma GCC unroll 8
    for (int i = 0; i < height; ++i) {
      const typename V::One xs = *reinterpret_cast<const typename V::Loose*>(x + i * x_step);
#pragma GCC unroll 4
      for (int j = 0; j < width; ++j) sum[i][j] += xs * ys[j];
    }
  };
  std::int64_t p = 0;
  for (; p + V::lanes <= depth; p += V::lanes) step(a + p, a_step, b + p, b_step);
  if (p < depth) {
    T x[height * V::lanes] = {}, y[width * V::lanes] = {};
    for (int i = 0; i < height; ++i) std::copy_n(a + i * a_step + p, depth - p, x + i * V::lanes);
    for (int j = 0; j < width; ++j) std::copy_n(b + j * b_step + p, depth - p, y + j * V::lanes);
    step(x, V::lanes, y, V::lanes);
  }
#pragma GCC unroll 8
  for (int i = 0; i < height; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < width; ++j) {
      T lanes[V::lanes];
      std::memcpy(lanes, &sum[i][j], sizeof lanes);
      for (int half = V::lanes / 2; half > 0; half /= 2)
        for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
      c[i * c_step + j] = lanes[0];
    }
}

/// c[height, count] (+)= a[height, depth] times rows of b: four rows at a time, each in its order in memory.
template <class T, int bytes, int height>
[[gnu::always_inline]] inline void add_rows(std::int64_t depth, std::int64_t count, Matrix<T> a, const T* b,
                                            std::int64_t b_step, T* c, std::int64_t c_step) {
  using V = Vectors<T, bytes>;
  constexpr int together = 4;
  for (int i = 0; i < height; ++i) std::fill_n(c + i * c_step, count, T(0));
  for (std::int64_t p = 0; p < depth; p += together) {
    const int rows = int(std::min<std::int64_t>(together, depth - p));
    T x[height][together] = {};
    const T* y[together];
    for (int q = 0; q < together; ++q) {
      y[q] = b + (p + std::min(q, rows - 1)) * b_step;
      for (int i = 0; i < height && q < rows; ++i) x[i][q] = *a.at(i, p + q);
    }
    std::int64_t j = 0;
    if (rows == together)
      for (; j + V::lanes <= count; j += V::lanes) {
        typename V::One row[together];
#pragma GCC unroll 4
        for (int q = 0; q < together; ++q) row[q] = *reinterpret_cast<const typename V::Loose*>(y[q] + j);
#pragma GCC unroll 4
        for (int i = 0; i < height; ++i) {
          auto* to = reinterpret_cast<typename V::Loose*>(c + i * c_step + j);
          typename V::One sum = *to;
#pragma GCC unroll 4
          for (int q = 0; q < together; ++q) sum += (typename V::One{} + x[i][q]) * row[q];
          *to = sum;
        }
      }
    for (; j < count; ++j)
      for (int i = 0; i < height; ++i)
        for (int q = 0; q < rows; ++q) c[i * c_step + j] += x[i][q] * y[q][j];
  }
}

/// The elements of two vectors in turns: of their first halves, or of their second ones.
template <class T, int bytes, bool second, int... l>
[[gnu::always_inline]] inline auto interleaved(typename Vectors<T, bytes>::One a, typename Vectors<T, bytes>::One b,
                                               std::integer_sequence<int, l...>) {
  constexpr int lanes = Vectors<T, bytes>::lanes, from = second ? lanes / 2 : 0;
  return __builtin_shufflevector(a, b, (from + l / 2 + (l % 2) * lanes)...);
}

/// to[q * width + x] = from[x * apart + q] of x below `count` and q below `depth`; 0 of further x. Writes up to a
/// vector behind the last row. `width` of them from `first` on, at most a vector's lanes.
template <class T, int bytes>
[[gnu::always_inline]] inline void turn(const T* from, std::int64_t apart, std::int64_t count, std::int64_t depth,
                                        T* to, std::int64_t width) {
  using V = Vectors<T, bytes>;
  constexpr int lanes = V::lanes;
  const auto order = std::make_integer_sequence<int, lanes>();
  // The last lanes first: what they write too much is written again.
  const std::int64_t last = (width - 1) / lanes * lanes;
  std::int64_t q = 0;
  for (; q + lanes <= depth; q += lanes)
    for (std::int64_t x = last; x >= 0; x -= lanes) {
      typename V::One rows[lanes], turned[lanes];
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i)
        rows[i] = x + i < count
                      ? typename V::One(*reinterpret_cast<const typename V::Loose*>(from + (x + i) * apart + q))
                      : typename V::One{};
#pragma GCC unroll 4
      for (int stage = 1; stage < lanes; stage *= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < lanes / 2; ++i) {
          turned[2 * i] = interleaved<T, bytes, false>(rows[i], rows[i + lanes / 2], order);
          turned[2 * i + 1] = interleaved<T, bytes, true>(rows[i], rows[i + lanes / 2], order);
        }
#pragma GCC unroll 16
        for (int i = 0; i < lanes; ++i) rows[i] = turned[i];
      }
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) *reinterpret_cast<typename V::Loose*>(to + (q + i) * width + x) = rows[i];
    }
  for (; q < depth; ++q)
    for (std::int64_t x = 0; x < width; ++x) to[q * width + x] = x < count ? from[x * apart + q] : T(0);
}

/// The functions for one set of instructions.
template <class T>
struct Kernels {
  using Turn = void (*)(const T*, std::int64_t, std::int64_t, std::int64_t, T*, std::int64_t);
  using Tile = void (*)(std::int64_t, const T*, std::int64_t, const T*, std::int64_t, T*, std::int64_t, bool);
  using Dots = void (*)(std::int64_t, const T*, std::int64_t, const T*, std::int64_t, T*, std::int64_t);
  using AddRows = void (*)(std::int64_t, std::int64_t, Matrix<T>, const T*, std::int64_t, T*, std::int64_t);
  int rows;           // of the tallest tile
  int across;         // vectors of the widest
  int registers;
  int lanes;
  Tile tiles[13][4];  // by height, then by vectors less 1; null: take the next taller one
  Dots dots[9][5];    // by height and width; null: take the next lower one
  AddRows add_rows[5];
  Turn turn;
};

#define FJ_VECTORS(suffix, bytes, attribute)                                                                           \
  template <class T, int height, int width>                                                                            \
  attribute void tile_##suffix(std::int64_t depth, const T* a, std::int64_t a_step, const T* b, std::int64_t b_step,   \
                               T* c, std::int64_t c_step, bool add) {                                                  \
    tile<T, bytes, height, width>(depth, a, a_step, b, b_step, c, c_step, add);                                        \
  }                                                                                                                    \
  template <class T, int height, int width>                                                                            \
  attribute void dots_##suffix(std::int64_t depth, const T* a, std::int64_t a_step, const T* b, std::int64_t b_step,   \
                               T* c, std::int64_t c_step) {                                                            \
    dots<T, bytes, height, width>(depth, a, a_step, b, b_step, c, c_step);                                             \
  }                                                                                                                    \
  template <class T, int height>                                                                                       \
  attribute void add_rows_##suffix(std::int64_t depth, std::int64_t count, Matrix<T> a, const T* b,                    \
                                   std::int64_t b_step, T* c, std::int64_t c_step) {                                   \
    add_rows<T, bytes, height>(depth, count, a, b, b_step, c, c_step);                                                 \
  }                                                                                                                    \
  template <class T>                                                                                                   \
  attribute void turn_##suffix(const T* from, std::int64_t apart, std::int64_t count, std::int64_t depth, T* to,       \
                               std::int64_t width) {                                                                   \
    turn<T, bytes>(from, apart, count, depth, to, width);                                                              \
  }                                                                                                                    \
  template <class T, int rows, int across, int registers>                                                              \
  constexpr Kernels<T> kernels_##suffix() {                                                                            \
    Kernels<T> made{rows, across, registers, int(bytes / sizeof(T)), {}, {}, {}, turn_##suffix<T>};                    \
    FJ_TILES(suffix, 1) FJ_TILES(suffix, 2) FJ_TILES(suffix, 3) FJ_TILES(suffix, 4) FJ_TILES(suffix, 6)                \
    if constexpr (rows > 6) { FJ_TILES(suffix, 8) FJ_TILES(suffix, 12) }                                               \
    FJ_DOTS(suffix, 1) FJ_DOTS(suffix, 2) FJ_DOTS(suffix, 3) FJ_DOTS(suffix, 4)                                        \
    made.dots[8][1] = dots_##suffix<T, 8, 1>;                                                                          \
    return made;                                                                                                       \
  }
#define FJ_TILES(suffix, height)                         \
  made.tiles[height][0] = tile_##suffix<T, height, 1>;   \
  made.tiles[height][1] = tile_##suffix<T, height, 2>;   \
  if constexpr (across > 2) {                            \
    made.tiles[height][2] = tile_##suffix<T, height, 3>; \
    made.tiles[height][3] = tile_##suffix<T, height, 4>; \
  }
#define FJ_DOTS(suffix, height)                      \
  made.dots[height][1] = dots_##suffix<T, height, 1>; \
  made.dots[height][2] = dots_##suffix<T, height, 2>; \
  made.dots[height][3] = dots_##suffix<T, height, 3>; \
  made.dots[height][4] = dots_##suffix<T, height, 4>; \
  made.add_rows[height] = add_rows_##suffix<T, height>;

FJ_VECTORS(baseline, 16, )
#if defined(__x86_64__)
FJ_VECTORS(avx2, 32, __attribute__((target("avx2,fma"))))
FJ_VECTORS(avx512, 64, __attribute__((target("avx512f,fma"))))
#endif
#undef FJ_VECTORS
#undef FJ_TILES
#undef FJ_DOTS

ProductVectors best_vectors() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return ProductVectors::Avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return ProductVectors::Avx2;
#endif
  return ProductVectors::Baseline;
}

std::atomic<ProductVectors>& vectors() {
  static std::atomic<ProductVectors> used{best_vectors()};
  return used;
}

template <class T>
const Kernels<T>& kernels() {
#if defined(__x86_64__)
  static constexpr Kernels<T> avx512 = kernels_avx512<T, 12, 2, 32>(), avx2 = kernels_avx2<T, 6, 2, 16>();
  const ProductVectors used = vectors().load(std::memory_order_relaxed);
  if (used == ProductVectors::Avx512) return avx512;
  if (used == ProductVectors::Avx2) return avx2;
#endif
#if defined(__aarch64__)  // 24 sums, a row's vectors and a spread number are 29 of 32 registers
  static constexpr Kernels<T> baseline = kernels_baseline<T, 6, 4, 32>();
#else
  static constexpr Kernels<T> baseline = kernels_baseline<T, 6, 2, 16>();
#endif
  return baseline;
}

/// Which of the two panels of a thread.
template <class T>
T* panel(int which, std::size_t elements) {
  thread_local KeptBlock blocks[2];
  return reinterpret_cast<T*>(blocks[which].get(elements * sizeof(T)));
}

/// Strips of `width` columns, each with its rows one behind the other; what is missing in the last one is 0. Writes up
/// to a vector more.
template <class T>
void pack(Matrix<T> from, std::int64_t rows, std::int64_t columns, int width, T* to) {
  for (std::int64_t j = 0; j < columns; j += width) {
    const auto here = std::min<std::int64_t>(width, columns - j);
    const Matrix<T> strip = from.from(0, j);
    if (strip.columns_apart == 1) {
      for (std::int64_t p = 0; p < rows; ++p, to += width) {
        std::memcpy(to, strip.at(p, 0), std::size_t(here) * sizeof(T));
        std::fill(to + here, to + width, T(0));
      }
      continue;
    }
    if (strip.rows_apart == 1) {
      kernels<T>().turn(strip.data, strip.columns_apart, here, rows, to, width);
      to += rows * width;
      continue;
    }
    // A few rows at a time: what is written stays in the first-level cache, and what is read is used up.
    constexpr std::int64_t kTogether = 16;
    for (std::int64_t p = 0; p < rows; p += kTogether) {
      const auto depth = std::min(kTogether, rows - p);
      for (std::int64_t x = 0; x < here; ++x) {
        const T* column = strip.at(p, x);
        for (std::int64_t q = 0; q < depth; ++q) to[q * width + x] = column[q * strip.rows_apart];
      }
      for (std::int64_t q = 0; q < depth; ++q) std::fill(to + q * width + here, to + (q + 1) * width, T(0));
      to += depth * width;
    }
  }
}

/// Heights of tiles that cover `rows`: the tallest, then the next that covers the rest.
template <class T>
int height_for(const Kernels<T>& all, std::int64_t rows) {
  int height = int(std::min<std::int64_t>(all.rows, rows));
  while (!all.tiles[height][1]) ++height;
  return height;
}

template <class T>
struct Product {
  std::int64_t m, n, k;
  Matrix<T> a, b;
  T* c;
  std::int64_t c_step;

  Product part(std::int64_t i, std::int64_t rows, std::int64_t j, std::int64_t columns) const {
    return {rows, columns, k, a.from(i, 0), b.from(0, j), c + i * c_step + j, c_step};
  }
};

/// By panels of both matrices.
template <class T>
bool multiply_packed(const Product<T>& x) {
  const Kernels<T>& all = kernels<T>();
  const int width = all.across * all.lanes;
  const std::int64_t depth = std::min(x.k, kDepth), most_rows = std::min(x.m, kRows / all.rows * all.rows),
                     most_columns = std::min(x.n, kColumns);
  const auto up = [](std::int64_t size, std::int64_t unit) { return (size + unit - 1) / unit * unit; };
  // Rows of b that are dense are read where they are if few rows of a read them, the cache has all of them, or they are
  // short; so are columns of a that are dense and short, if few columns of b read them.
  const bool in_place = x.b.columns_apart == 1 && (x.m <= 2 * all.rows || x.n * x.k <= kSmall || x.n <= 2 * width);
  const bool left_in_place = x.a.rows_apart == 1 && x.m <= kShort && x.n <= 2 * width;
  T* const left = panel<T>(0, std::size_t(up(most_rows, all.rows) * depth + kSlack));
  T* const right = panel<T>(1, std::size_t(up(in_place ? width : most_columns, width) * depth + kSlack));
  if (!left || !right) return false;
  T edge[12 * 2 * 16];
  for (std::int64_t j0 = 0; j0 < x.n; j0 += most_columns) {
    const auto columns = std::min(most_columns, x.n - j0);
    for (std::int64_t p0 = 0; p0 < x.k; p0 += kDepth) {
      const auto here = std::min(kDepth, x.k - p0);
      const Matrix<T> below = x.b.from(p0, j0);
      if (!in_place) pack(below, here, columns, width, right);
      for (std::int64_t i0 = 0; i0 < x.m; i0 += most_rows) {
        const auto rows = std::min(most_rows, x.m - i0);
        T* to = left;
        for (std::int64_t i = 0; i < rows;) {
          const int height = height_for(all, rows - i);
          const auto high = std::min<std::int64_t>(height, rows - i);
          if (!left_in_place || high < height) pack(x.a.from(i0 + i, p0).transposed(), here, high, height, to);
          to += height * here;
          i += height;
        }
        for (std::int64_t j = 0; j < columns; j += width) {
          const auto wide = std::min<std::int64_t>(width, columns - j);
          const T* strip = right + j * here;
          std::int64_t step = width;
          if (in_place && wide % all.lanes == 0) {
            strip = below.at(0, j);
            step = below.rows_apart;
          } else if (in_place) {
            pack(below.from(0, j), here, wide, width, right);
            strip = right;
          }
          const int vectors = int(wide + all.lanes - 1) / all.lanes;
          const T* from = left;
          for (std::int64_t i = 0; i < rows;) {
            const int height = height_for(all, rows - i);
            const auto high = std::min<std::int64_t>(height, rows - i);
            T* const at = x.c + (i0 + i) * x.c_step + j0 + j;
            const bool lies = left_in_place && high == height;
            const T* const column = lies ? x.a.at(i0 + i, p0) : from;
            const std::int64_t column_step = lies ? x.a.columns_apart : height;
            if (high == height && wide == vectors * all.lanes) {
              all.tiles[height][vectors - 1](here, column, column_step, strip, step, at, x.c_step, p0 > 0);
            } else {
              all.tiles[height][vectors - 1](here, column, column_step, strip, step, edge, width, false);
              for (std::int64_t r = 0; r < high; ++r)
                for (std::int64_t s = 0; s < wide; ++s)
                  at[r * x.c_step + s] = p0 > 0 ? at[r * x.c_step + s] + edge[r * width + s] : edge[r * width + s];
            }
            from += height * here;
            i += height;
          }
        }
      }
    }
  }
  return true;
}

/// Both matrices along k, in which they are dense.
template <class T>
bool multiply_dots(const Product<T>& x) {
  const Kernels<T>& all = kernels<T>();
  // Sixteen sums take as many registers; some processors have no more. Of one column eight, to have work for two
  // units of four steps each.
  const int wide = all.registers > 16 ? 4 : 3, tall = x.n == 1 ? 8 : all.registers > 16 ? 4 : 2;
  constexpr std::int64_t kStrip = 64;  // rows of a that stay in the cache for all columns of b
  for (std::int64_t i0 = 0; i0 < x.m; i0 += kStrip) {
    const std::int64_t end = std::min(x.m, i0 + kStrip);
    for (std::int64_t j = 0; j < x.n; j += wide) {
      const auto width = std::min<std::int64_t>(wide, x.n - j);
      for (std::int64_t i = i0; i < end;) {
        auto height = std::min<std::int64_t>(tall, end - i);
        while (!all.dots[height][width]) --height;
        all.dots[height][width](x.k, x.a.at(i, 0), x.a.rows_apart, x.b.at(0, j), x.b.columns_apart,
                                x.c + i * x.c_step + j, x.c_step);
        i += height;
      }
    }
  }
  return true;
}

/// Rows of b, which are dense, added up: columns that stay in the first-level cache at a time.
template <class T>
bool multiply_rows(const Product<T>& x) {
  constexpr std::int64_t kTogether = 4096 / std::int64_t(sizeof(T)) * 4;
  for (std::int64_t i = 0; i < x.m; i += 4)
    for (std::int64_t j = 0; j < x.n; j += kTogether)
      kernels<T>().add_rows[std::min<std::int64_t>(4, x.m - i)](x.k, std::min(kTogether, x.n - j), x.a.from(i, 0),
                                                                x.b.at(0, j), x.b.rows_apart,
                                                                x.c + i * x.c_step + j, x.c_step);
  return true;
}

template <class T>
struct Parts {
  Product<T> whole;
  bool (*multiply)(const Product<T>&);
  std::int64_t rows, columns, across;  // of a part; parts across
  std::atomic<bool> failed{false};

  static void run(void* context, std::int64_t part) {
    Parts& parts = *static_cast<Parts*>(context);
    const std::int64_t i = part / parts.across * parts.rows, j = part % parts.across * parts.columns;
    if (i >= parts.whole.m || j >= parts.whole.n) return;
    if (!parts.multiply(parts.whole.part(i, std::min(parts.rows, parts.whole.m - i), j,
                                         std::min(parts.columns, parts.whole.n - j))))
      parts.failed = true;
  }
};

template <class T>
bool multiply(Product<T> x, int threads) {
  const Kernels<T>& all = kernels<T>();
  const bool few_rows = x.m <= 4, few_columns = x.n <= kFewColumns;
  const bool a_along_k = x.a.columns_apart == 1;
  bool (*method)(const Product<T>&) = multiply_packed<T>;
  if (a_along_k && few_columns && x.b.rows_apart != 1 && x.m > 2 * all.rows) {
    T* const turned = panel<T>(0, std::size_t(x.n * x.k));  // on this thread, which waits for the others
    if (!turned) return false;
    for (std::int64_t p = 0; p < x.k; ++p)
      for (std::int64_t j = 0; j < x.n; ++j) turned[j * x.k + p] = *x.b.at(p, j);
    x.b = {turned, 1, x.k};
  }
  const bool b_along_k = x.b.rows_apart == 1;
  if (a_along_k && b_along_k && (x.m <= 2 * all.rows || few_columns)) method = multiply_dots<T>;
  else if (few_rows && x.b.columns_apart == 1) method = multiply_rows<T>;
  // As equal to each other as they can be, and as square.
  const double operations = double(x.m) * double(x.n) * double(x.k);
  const auto parts = std::int64_t(std::clamp(operations / kPartOperations, 1.0, double(std::max(threads, 1))));
  std::int64_t down = 1;
  const auto unit = [](std::int64_t size, std::int64_t count, std::int64_t of) {
    const std::int64_t each = (size + count - 1) / count;
    return (each + of - 1) / of * of;
  };
  const auto border = [&](std::int64_t d) {
    return double(unit(x.m, d, all.rows)) + double(unit(x.n, parts / d, all.across * all.lanes));
  };
  for (std::int64_t d = 1; d <= parts; ++d)
    if (parts % d == 0 && border(d) < border(down)) down = d;
  Parts<T> made{x, method, unit(x.m, down, all.rows), unit(x.n, parts / down, all.across * all.lanes), parts / down};
  if (parts == 1) return method(x);
  parallel_for(parts, Parts<T>::run, &made, threads);
  return !made.failed;
}

template <class T>
bool product(std::int64_t m, std::int64_t n, std::int64_t k, const T* a, MatrixLayout al, const T* b, MatrixLayout bl,
             T* c, std::int64_t c_stride, int threads) {
  if (m == 0 || n == 0) return true;
  if (k == 0) {
    for (std::int64_t i = 0; i < m; ++i) std::fill_n(c + i * c_stride, n, T(0));
    return true;
  }
  // The stride of an axis of one element says nothing.
  const auto plain = [](std::int64_t stride, std::int64_t size) { return size == 1 ? 1 : stride; };
  Product<T> x{m, n, k, {a, al.row_stride, plain(al.column_stride, k)}, {b, plain(bl.row_stride, k), bl.column_stride},
               c, c_stride};
  if (n == 1 && c_stride == 1) {
    // A column: the row of the transposed product.
    if (x.a.columns_apart == 1 && x.b.rows_apart == 1) return multiply(x, threads);
    x = {1, m, k, x.b.transposed(), x.a.transposed(), c, m};
  }
  if (x.m == 1 && x.a.columns_apart != 1 && x.b.rows_apart == 1) {
    T* const row = panel<T>(0, std::size_t(k));
    if (!row) return false;
    for (std::int64_t p = 0; p < k; ++p) row[p] = *x.a.at(0, p);
    x.a = {row, k, 1};
  }
  return multiply(x, threads);
}

}  // namespace

bool packed_product(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, MatrixLayout al, const float* b,
                    MatrixLayout bl, float* c, std::int64_t c_stride, int threads) {
  return product(m, n, k, a, al, b, bl, c, c_stride, threads);
}
bool packed_product(std::int64_t m, std::int64_t n, std::int64_t k, const double* a, MatrixLayout al, const double* b,
                    MatrixLayout bl, double* c, std::int64_t c_stride, int threads) {
  return product(m, n, k, a, al, b, bl, c, c_stride, threads);
}

ProductVectors product_vectors() { return vectors(); }

void set_product_vectors(ProductVectors used) { vectors() = std::min(used, best_vectors()); }

}  // namespace fj
