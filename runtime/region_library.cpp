// Sums are as NumPy's, pairwise; a dot product has a fixed order, whatever the machine.
#include "runtime/region_library.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "runtime/products/blas.h"
#include "runtime/float_flags.h"

namespace fj {

RegionHeap::~RegionHeap() {
  for (const Block& block : blocks_) std::free(reinterpret_cast<void*>(block.address));
}

std::int64_t RegionHeap::allocate(std::int64_t bytes) {
  constexpr std::int64_t kLine = 64;
  if (bytes < 0 || bytes > std::int64_t(1) << 46) return 0;
  bytes = (std::max(bytes, kLine) + kLine - 1) / kLine * kLine;
  Block* best = nullptr;
  for (Block& block : blocks_)
    if (!block.used && block.bytes >= bytes && block.bytes <= 4 * bytes && (!best || block.bytes < best->bytes))
      best = &block;
  if (best == nullptr) {
    void* const made = std::aligned_alloc(kLine, std::size_t(bytes));
    if (made == nullptr) return 0;
    blocks_.push_back({std::int64_t(reinterpret_cast<std::uintptr_t>(made)), bytes, false, false});
    best = &blocks_.back();
  }
  best->used = true;
  return best->address;
}

void RegionHeap::mark(std::int64_t address) {
  for (Block& block : blocks_)
    if (block.address == address) block.marked = true;
}

void RegionHeap::release(std::int64_t address) {
  for (Block& block : blocks_)
    if (block.address == address) block.used = false;
}

void RegionHeap::sweep() {
  constexpr std::size_t kSpare = 16;
  std::size_t spare = 0;
  std::erase_if(blocks_, [&](Block& block) {
    block.used = block.used && std::exchange(block.marked, false);
    if (block.used || ++spare <= kSpare) return false;
    std::free(reinterpret_cast<void*>(block.address));
    return true;
  });
}

namespace {

/// A bool as it is in memory: any byte but 0 is true.
struct Truth {
  std::uint8_t byte;
  operator bool() const { return byte != 0; }
};
template <class T>
using InMemory = std::conditional_t<std::is_same_v<T, bool>, Truth, T>;

template <class T>
const T* pointer(std::int64_t address) {
  return reinterpret_cast<const T*>(std::uintptr_t(address));
}

std::int64_t allocate(RegionHeap& heap, std::int64_t bytes) { return heap.allocate(bytes); }
void mark(RegionHeap& heap, std::int64_t address) { heap.mark(address); }
void release(RegionHeap& heap, std::int64_t address) { heap.release(address); }
void sweep(RegionHeap& heap) { heap.sweep(); }
void note_undone(RegionHeap& heap) { heap.note_undone(); }

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, bool>) return DType::Bool;
  else if constexpr (std::is_floating_point_v<T>) return sizeof(T) == 4 ? DType::F32 : DType::F64;
  else if constexpr (std::is_signed_v<T>)
    return sizeof(T) == 1 ? DType::I8 : sizeof(T) == 2 ? DType::I16 : sizeof(T) == 4 ? DType::I32 : DType::I64;
  else return sizeof(T) == 1 ? DType::U8 : sizeof(T) == 2 ? DType::U16 : sizeof(T) == 4 ? DType::U32 : DType::U64;
}

template <class T>
bool put(RegionHeap& heap, std::int64_t list, std::int64_t index, T number) {
  return heap.lists().put(list, index, number);
}
template <class T>
bool append(RegionHeap& heap, std::int64_t list, T number) {
  return heap.lists().append(list, number);
}
bool put_item(RegionHeap& heap, std::int64_t list, std::int64_t index, std::int64_t number) {
  return heap.lists().put_item(list, index, number);
}
bool append_item(RegionHeap& heap, std::int64_t list, std::int64_t number) {
  return heap.lists().append_item(list, number);
}
template <class T>
bool put_numpy(RegionHeap& heap, std::int64_t list, std::int64_t index, T number) {
  return heap.lists().put_numpy(list, index, dtype_of<T>(), &number);
}
template <class T>
bool append_numpy(RegionHeap& heap, std::int64_t list, T number) {
  return heap.lists().append_numpy(list, dtype_of<T>(), &number);
}
bool put_list(RegionHeap& heap, std::int64_t list, std::int64_t index, std::int64_t item) {
  return heap.lists().put_list(list, index, item);
}
bool append_list(RegionHeap& heap, std::int64_t list, std::int64_t item) {
  return heap.lists().append_list(list, item);
}
bool drop_last(RegionHeap& heap, std::int64_t list) { return heap.lists().drop_last(list); }
bool extend_list(RegionHeap& heap, std::int64_t list, std::int64_t tuple) { return heap.lists().extend(list, tuple); }
std::int64_t make_list(RegionHeap& heap, std::int64_t count) { return heap.lists().make(count); }
std::int64_t repeat_list(RegionHeap& heap, std::int64_t list, std::int64_t times) {
  return heap.lists().repeat(list, times);
}
std::int64_t join_lists(RegionHeap& heap, std::int64_t a, std::int64_t b) { return heap.lists().join(a, b); }
std::int64_t slice_list(RegionHeap& heap, std::int64_t list, std::int64_t start, std::int64_t stop) {
  return heap.lists().slice(list, start, stop);
}
void mark_list(RegionHeap& heap, std::int64_t list) { heap.lists().mark(list); }
void sweep_lists(RegionHeap& heap) { heap.lists().sweep(); }
std::int64_t held_lists(RegionHeap& heap) { return heap.lists().held(); }

void clear(RegionHeap&, std::int64_t address, std::int64_t bytes) {
  std::memset(reinterpret_cast<void*>(std::uintptr_t(address)), 0, std::size_t(bytes));
}

template <class T>
void copy_elements(T* to, std::int64_t row_step, std::int64_t step, const T* from, std::int64_t rows,
                   std::int64_t columns) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) to[i * row_step + j * step] = from[i * columns + j];
}

/// Rows without gaps to where the steps, in elements, say.
void copy(RegionHeap&, std::int64_t to, std::int64_t row_step, std::int64_t step, std::int64_t from, std::int64_t rows,
          std::int64_t columns, std::int64_t bytes) {
  auto* target = reinterpret_cast<std::byte*>(std::uintptr_t(to));
  const auto* source = reinterpret_cast<const std::byte*>(std::uintptr_t(from));
  const auto of = [&](auto unit) {
    using T = decltype(unit);
    copy_elements(reinterpret_cast<T*>(target), row_step, step, reinterpret_cast<const T*>(source), rows, columns);
  };
  if (step == 1) {
    for (std::int64_t i = 0; i < rows; ++i)
      std::memcpy(target + i * row_step * bytes, source + i * columns * bytes, std::size_t(columns * bytes));
    return;
  }
  switch (bytes) {
    case 1: return of(std::uint8_t());
    case 2: return of(std::uint16_t());
    case 4: return of(std::uint32_t());
    default: return of(std::uint64_t());
  }
}

template <class T>
std::int64_t gather_elements(const T* from, std::int64_t step, std::int64_t size, const std::int64_t* at,
                             std::int64_t at_step, std::int64_t count, T* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t index = at[i * at_step];
    index += index < 0 ? size : 0;
    if (index < 0 || index >= size) return 1;
    to[i] = from[index * step];
  }
  return 0;
}

/// The elements that indices name, one after the other. 1: an index is out of range.
std::int64_t gather(RegionHeap&, std::int64_t from, std::int64_t step, std::int64_t size, std::int64_t at,
                    std::int64_t at_step, std::int64_t count, std::int64_t bytes, std::int64_t to) {
  const auto of = [&](auto unit) {
    using T = decltype(unit);
    return gather_elements(pointer<T>(from), step, size, pointer<std::int64_t>(at), at_step, count,
                           const_cast<T*>(pointer<T>(to)));
  };
  switch (bytes) {
    case 1: return of(std::uint8_t());
    case 2: return of(std::uint16_t());
    case 4: return of(std::uint32_t());
    default: return of(std::uint64_t());
  }
}

/// The rows of each of `outer` parts, without gaps, moved on by `shift`, and round.
void roll(RegionHeap&, std::int64_t from, std::int64_t outer, std::int64_t rows, std::int64_t row_bytes,
          std::int64_t shift, std::int64_t to) {
  if (rows == 0) return;
  const std::int64_t start = (shift % rows + rows) % rows * row_bytes, bytes = rows * row_bytes;
  const auto* source = reinterpret_cast<const std::byte*>(std::uintptr_t(from));
  auto* target = reinterpret_cast<std::byte*>(std::uintptr_t(to));
  for (std::int64_t i = 0; i < outer; ++i, source += bytes, target += bytes) {
    std::memcpy(target + start, source, std::size_t(bytes - start));
    std::memcpy(target, source + bytes - start, std::size_t(start));
  }
}

void clear_reports(RegionHeap&) { write_flags(read_flags() & ~kFlagBits); }
/// The conditions that NumPy reports unless it is told otherwise.
std::int64_t reports(RegionHeap&) { return conditions(read_flags()) & ~kFloatUnderflow; }

/// Where the elements begin, their number, and the step from one to the next.
template <class T>
struct Elements {
  const InMemory<T>* data;
  std::int64_t count, step;
  T operator[](std::int64_t i) const { return data[i * step]; }
  Elements part(std::int64_t from, std::int64_t length) const { return {data + from * step, length, step}; }
};

/// NumPy's pairwise sum (its loops_utils.h): blocks of 128 by 8 sums, halves of a multiple of 8.
template <class T>
T pairwise(Elements<T> of) {
  constexpr std::int64_t kBlock = 128;
  if (of.count < 8) {
    T sum = 0;
    for (std::int64_t i = 0; i < of.count; ++i) sum += of[i];
    return sum;
  }
  if (of.count <= kBlock) {
    T sums[8];
    for (int k = 0; k < 8; ++k) sums[k] = of[k];
    std::int64_t i = 8;
    for (; i + 8 <= of.count; i += 8)
      for (int k = 0; k < 8; ++k) sums[k] += of[i + k];
    T sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    for (; i < of.count; ++i) sum += of[i];
    return sum;
  }
  std::int64_t half = of.count / 2;
  half -= half % 8;
  return pairwise(of.part(0, half)) + pairwise(of.part(half, of.count - half));
}

template <class T>
using Summed = std::conditional_t<std::is_floating_point_v<T>, T,
                                  std::conditional_t<std::is_signed_v<T> || std::is_same_v<T, bool>, std::int64_t,
                                                     std::uint64_t>>;

template <class T>
Summed<T> sum(RegionHeap&, std::int64_t data, std::int64_t count, std::int64_t step) {
  const Elements<T> of{pointer<InMemory<T>>(data), count, step};
  if constexpr (std::is_floating_point_v<T>) return T(0) + pairwise(of);  // of negative zeros it is zero
  std::uint64_t total = 0;
  for (std::int64_t i = 0; i < count; ++i) total += std::uint64_t(Summed<T>(of[i]));
  return Summed<T>(total);
}

/// Of some elements. NaN where one of them is.
template <class T, class Better>
T extreme(Elements<T> of, Better better) {
  if constexpr (std::is_floating_point_v<T>) {
    constexpr int kLanes = 8;
    if (of.count >= kLanes) {
      T best[kLanes];
      bool nan = false;
      for (int k = 0; k < kLanes; ++k) best[k] = of[k];
      std::int64_t i = 0;
      for (; i + kLanes <= of.count; i += kLanes)
        for (int k = 0; k < kLanes; ++k) {
          const T next = of[i + k];
          nan |= next != next;
          best[k] = better(next, best[k]) ? next : best[k];
        }
      for (; i < of.count; ++i) {
        nan |= of[i] != of[i];
        best[0] = better(of[i], best[0]) ? of[i] : best[0];
      }
      if (nan) return std::numeric_limits<T>::quiet_NaN();
      for (int k = 1; k < kLanes; ++k) best[0] = better(best[k], best[0]) ? best[k] : best[0];
      return best[0];
    }
  }
  T best = of[0];
  for (std::int64_t i = 1; i < of.count; ++i)
    if (better(of[i], best) || of[i] != of[i]) best = of[i];
  return best;
}

/// The first of the best, or the first NaN.
template <class T, class Better>
std::int64_t where_extreme(Elements<T> of, Better better) {
  std::int64_t best = 0;
  for (std::int64_t i = 0; i < of.count; ++i) {
    if (of[i] != of[i]) return i;
    if (better(of[i], of[best])) best = i;
  }
  return best;
}

constexpr auto kLess = [](auto a, auto b) { return a < b; };
constexpr auto kGreater = [](auto a, auto b) { return a > b; };

template <class T>
T least(RegionHeap&, std::int64_t data, std::int64_t count, std::int64_t step) {
  return extreme(Elements<T>{pointer<InMemory<T>>(data), count, step}, kLess);
}
template <class T>
T greatest(RegionHeap&, std::int64_t data, std::int64_t count, std::int64_t step) {
  return extreme(Elements<T>{pointer<InMemory<T>>(data), count, step}, kGreater);
}
template <class T>
std::int64_t where_least(RegionHeap&, std::int64_t data, std::int64_t count, std::int64_t step) {
  return where_extreme(Elements<T>{pointer<InMemory<T>>(data), count, step}, kLess);
}
template <class T>
std::int64_t where_greatest(RegionHeap&, std::int64_t data, std::int64_t count, std::int64_t step) {
  return where_extreme(Elements<T>{pointer<InMemory<T>>(data), count, step}, kGreater);
}

/// An array of three axes, of which the middle one is reduced: sizes and steps.
template <class T>
struct Along {
  const InMemory<T>* data;
  std::int64_t outer, outer_step, count, step, inner, inner_step;

  Elements<T> line(std::int64_t i, std::int64_t j) const {
    return {data + i * outer_step + j * inner_step, count, step};
  }
  template <class R, class Reduce>
  void each(std::int64_t to, Reduce reduce) const {
    R* result = reinterpret_cast<R*>(std::uintptr_t(to));
    for (std::int64_t i = 0; i < outer; ++i)
      for (std::int64_t j = 0; j < inner; ++j) *result++ = reduce(line(i, j));
  }
};

/// Lines that are one after the other are pairwise sums, lines side by side are added row by row, as NumPy does both.
template <class T>
void sums(RegionHeap& heap, std::int64_t data, std::int64_t outer, std::int64_t outer_step, std::int64_t count,
          std::int64_t step, std::int64_t inner, std::int64_t inner_step, std::int64_t to) {
  const Along<T> of{pointer<InMemory<T>>(data), outer, outer_step, count, step, inner, inner_step};
  if (inner == 1) {
    return of.template each<Summed<T>>(to, [&](Elements<T> line) {
      return sum<T>(heap, std::int64_t(reinterpret_cast<std::uintptr_t>(line.data)), line.count, line.step);
    });
  }
  auto* result = reinterpret_cast<Summed<T>*>(std::uintptr_t(to));
  std::fill(result, result + outer * inner, Summed<T>(0));
  for (std::int64_t i = 0; i < outer; ++i, result += inner)
    for (std::int64_t k = 0; k < count; ++k) {
      const InMemory<T>* const row = of.data + i * outer_step + k * step;
      if (inner_step == 1)
        for (std::int64_t j = 0; j < inner; ++j) result[j] += Summed<T>(row[j]);
      else
        for (std::int64_t j = 0; j < inner; ++j) result[j] += Summed<T>(row[j * inner_step]);
    }
}

#define FJ_ALONG(name, Result, reduce)                                                                             \
  template <class T>                                                                                               \
  void name(RegionHeap&, std::int64_t data, std::int64_t outer, std::int64_t outer_step, std::int64_t count,       \
            std::int64_t step, std::int64_t inner, std::int64_t inner_step, std::int64_t to) {                     \
    Along<T>{pointer<InMemory<T>>(data), outer, outer_step, count, step, inner, inner_step}.template each<Result>( \
        to, [](Elements<T> line) { return reduce; });                                                              \
  }
FJ_ALONG(leasts, T, extreme(line, kLess))
FJ_ALONG(greatests, T, extreme(line, kGreater))
FJ_ALONG(where_leasts, std::int64_t, where_extreme(line, kLess))
FJ_ALONG(where_greatests, std::int64_t, where_extreme(line, kGreater))
#undef FJ_ALONG

std::int64_t count_true(RegionHeap&, std::int64_t data, std::int64_t count, std::int64_t step) {
  const auto* of = pointer<std::uint8_t>(data);
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < count; ++i) total += of[i * step] != 0;
  return total;
}

/// The work of dot() and of products with a vector, in vectors of the compiler's that the machine has or that it makes
/// of smaller ones: their lanes are the same everywhere.
template <class T>
struct Work {
  static constexpr int kLanes = 64 / sizeof(T);
  typedef T Vector __attribute__((vector_size(64)));

  /// (A result would be a vector that functions of other targets are given in another way.)
  [[gnu::always_inline]] static inline void load(const T* from, Vector& to) { std::memcpy(&to, from, sizeof to); }

  [[gnu::always_inline]] static inline void add_products(Vector& sum, const T* a, const T* b) {
    Vector left, right;
    load(a, left);
    load(b, right);
    sum += left * right;
  }

  [[gnu::always_inline]] static inline T dot(const T* a, const T* b, std::int64_t count) {
    Vector sums[4] = {};
    std::int64_t i = 0;
    for (; i + 4 * kLanes <= count; i += 4 * kLanes)
      for (int k = 0; k < 4; ++k) add_products(sums[k], a + i + k * kLanes, b + i + k * kLanes);
    for (; i + kLanes <= count; i += kLanes) add_products(sums[0], a + i, b + i);
    const Vector all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    T lanes[kLanes];
    std::memcpy(lanes, &all, sizeof lanes);
    for (int width = kLanes / 2; width > 0; width /= 2)
      for (int k = 0; k < width; ++k) lanes[k] += lanes[k + width];
    T sum = lanes[0];
    for (; i < count; ++i) sum += a[i] * b[i];
    return sum;
  }

  /// c[i] += sum over k < 4 of a[k][i] * b[k]
  [[gnu::always_inline]] static inline void add_columns(T* c, const T* const* a, const T* b, int columns,
                                                        std::int64_t count) {
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      Vector sum, part;
      load(c + i, sum);
      for (int k = 0; k < columns; ++k) {
        load(a[k] + i, part);
        sum += part * b[k];
      }
      std::memcpy(c + i, &sum, sizeof sum);
    }
    for (; i < count; ++i)
      for (int k = 0; k < columns; ++k) c[i] += a[k][i] * b[k];
  }
};

/// c[rows] = a[rows, depth] b[depth]; a's rows or columns are dense, b and c are.
template <class T>
[[gnu::always_inline]] inline void multiply(const T* a, std::int64_t rows, std::int64_t depth, std::int64_t row_stride,
                                            std::int64_t column_stride, const T* b, T* c) {
  if (column_stride == 1) {
    for (std::int64_t i = 0; i < rows; ++i) c[i] = Work<T>::dot(a + i * row_stride, b, depth);
    return;
  }
  std::fill(c, c + rows, T(0));
  for (std::int64_t k = 0; k < depth; k += 4) {
    const int columns = int(std::min<std::int64_t>(4, depth - k));
    const T* parts[4] = {};
    for (int j = 0; j < columns; ++j) parts[j] = a + (k + j) * column_stride;
    if (columns == 4) Work<T>::add_columns(c, parts, b + k, 4, rows);
    else Work<T>::add_columns(c, parts, b + k, columns, rows);
  }
}

// Multiplied and added without fused instructions (CMakeLists.txt): the same bits on each machine.
template <class T>
using DotFunction = T (*)(const T*, const T*, std::int64_t);
template <class T>
using MultiplyFunction = void (*)(const T*, std::int64_t, std::int64_t, std::int64_t, std::int64_t, const T*, T*);

#define FJ_WORK(suffix, attribute)                                                                              \
  template <class T>                                                                                            \
  attribute T dot_##suffix(const T* a, const T* b, std::int64_t count) {                                        \
    return Work<T>::dot(a, b, count);                                                                           \
  }                                                                                                             \
  template <class T>                                                                                            \
  attribute void multiply_##suffix(const T* a, std::int64_t rows, std::int64_t depth, std::int64_t row_stride,  \
                                   std::int64_t column_stride, const T* b, T* c) {                              \
    multiply(a, rows, depth, row_stride, column_stride, b, c);                                                  \
  }
FJ_WORK(plain, )
#if defined(__x86_64__)
FJ_WORK(wide, __attribute__((target("avx2"))))
FJ_WORK(widest, __attribute__((target("avx512f"))))
#endif
#undef FJ_WORK

template <class T>
struct Chosen {
  DotFunction<T> dot = dot_plain<T>;
  MultiplyFunction<T> multiply = multiply_plain<T>;
  Chosen() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) dot = dot_wide<T>, multiply = multiply_wide<T>;
    if (__builtin_cpu_supports("avx512f")) dot = dot_widest<T>, multiply = multiply_widest<T>;
#endif
  }
};
template <class T>
const Chosen<T>& chosen() {
  static const Chosen<T> made;
  return made;
}

/// As many elements without gaps, the given ones where they are so already.
template <class T>
const T* dense(const T* from, std::int64_t count, std::int64_t step, std::vector<T>& room) {
  if (step == 1 || count <= 1) return from;
  room.resize(std::size_t(count));
  for (std::int64_t i = 0; i < count; ++i) room[std::size_t(i)] = from[i * step];
  return room.data();
}

template <class T>
T dot(RegionHeap&, std::int64_t a, std::int64_t a_step, std::int64_t b, std::int64_t b_step, std::int64_t count) {
  std::vector<T> rooms[2];
  return chosen<T>().dot(dense(pointer<T>(a), count, a_step, rooms[0]), dense(pointer<T>(b), count, b_step, rooms[1]),
                         count);
}

/// c[m, n] = a[m, k] b[k, n], c without gaps.
template <class T>
void product(RegionHeap&, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t a_address, std::int64_t a_row,
             std::int64_t a_column, std::int64_t b_address, std::int64_t b_row, std::int64_t b_column,
             std::int64_t c_address) {
  std::vector<T> rooms[2];
  const T *a = pointer<T>(a_address), *b = pointer<T>(b_address);
  T* const c = const_cast<T*>(pointer<T>(c_address));
  const auto whole = [](const T*& of, std::int64_t rows, std::int64_t columns, std::int64_t& row, std::int64_t& column,
                        std::vector<T>& room) {
    if (is_gemm_layout({row, column}, rows, columns) && row >= 0 && column >= 0) return;
    room.resize(std::size_t(rows * columns));
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) room[std::size_t(i * columns + j)] = of[i * row + j * column];
    of = room.data();
    row = columns;
    column = 1;
  };
  if (n == 1 && (a_row == 1 || a_column == 1))
    return chosen<T>().multiply(a, m, k, a_row, a_column, dense(b, k, b_row, rooms[1]), c);
  if (m == 1 && (b_row == 1 || b_column == 1))
    return chosen<T>().multiply(b, n, k, b_column, b_row, dense(a, k, a_column, rooms[0]), c);
  whole(a, m, k, a_row, a_column, rooms[0]);
  whole(b, k, n, b_row, b_column, rooms[1]);
  gemm(m, n, k, a, {a_row, a_column}, b, {b_row, b_column}, c, n);
}

template <auto function, class Type = decltype(function)>
struct Described;
template <auto function, class Result, class... Operands>
struct Described<function, Result (*)(RegionHeap&, Operands...)> {
  template <class T>
  static T read([[maybe_unused]] const std::uint64_t*& from) {
    T value;
    std::memcpy(&value, from++, sizeof value);
    return value;
  }
  static std::uint64_t invoke(RegionHeap& heap, [[maybe_unused]] const std::uint64_t* operands) {
    const std::tuple<Operands...> values{read<Operands>(operands)...};
    std::uint64_t cell = 0;
    const auto call = [&](Operands... of) { return function(heap, of...); };
    if constexpr (std::is_void_v<Result>) {
      std::apply(call, values);
    } else {
      const Result made = std::apply(call, values);
      std::memcpy(&cell, &made, sizeof made);
    }
    return cell;
  }
  static LibraryFunction row(std::string_view name) {
    std::optional<DType> result;
    if constexpr (!std::is_void_v<Result>) result = dtype_of<Result>();
    return {name, result, {dtype_of<Operands>()...}, reinterpret_cast<const void*>(function), invoke};
  }
};

}  // namespace

std::span<const LibraryFunction> region_library() {
  static const std::vector<LibraryFunction> functions = {
#define FJ_LIBRARY(name, function) Described<function>::row(#name),
#define FJ_LIBRARY_TYPES(name, function)                                                                   \
  Described<function<bool>>::row(#name "_bool"), Described<function<std::int8_t>>::row(#name "_i8"),       \
      Described<function<std::int16_t>>::row(#name "_i16"), Described<function<std::int32_t>>::row(#name "_i32"),  \
      Described<function<std::int64_t>>::row(#name "_i64"), Described<function<std::uint8_t>>::row(#name "_u8"),   \
      Described<function<std::uint16_t>>::row(#name "_u16"), Described<function<std::uint32_t>>::row(#name "_u32"), \
      Described<function<std::uint64_t>>::row(#name "_u64"), Described<function<float>>::row(#name "_f32"),  \
      Described<function<double>>::row(#name "_f64"),
#include "runtime/region_library.def"
  };
  return functions;
}

int library_number(std::string_view name) {
  const auto all = region_library();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].name == name) return int(i);
  return -1;
}

}  // namespace fj
