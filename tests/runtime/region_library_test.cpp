// What regions call that works on memory.
#include "runtime/region_library.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace fj {
namespace {

template <class T>
std::uint64_t cell(T value) {
  std::uint64_t made = 0;
  std::memcpy(&made, &value, sizeof value);
  return made;
}

template <class T>
T value(std::uint64_t cell) {
  T made;
  std::memcpy(&made, &cell, sizeof made);
  return made;
}

std::uint64_t address(const void* of) { return std::uint64_t(reinterpret_cast<std::uintptr_t>(of)); }

std::uint64_t call(const char* name, const std::vector<std::uint64_t>& operands) {
  RegionHeap heap;
  const LibraryFunction& function = region_library()[std::size_t(library_number(name))];
  EXPECT_EQ(function.operands.size(), operands.size()) << name;
  return function.invoke(heap, operands.data());
}

TEST(RegionLibrary, TheHeapUsesMemoryAgain) {
  RegionHeap heap;
  const std::int64_t a = heap.allocate(1000), b = heap.allocate(1000);
  EXPECT_NE(a, b);
  EXPECT_EQ(a % 64, 0);
  heap.mark(a);
  heap.sweep();  // b ends
  EXPECT_EQ(heap.allocate(900), b);
  const std::int64_t c = heap.allocate(900);
  EXPECT_NE(c, a);
  EXPECT_NE(c, b);
  heap.release(a);
  EXPECT_EQ(heap.allocate(1000), a);
  EXPECT_NE(heap.allocate(0), 0);
  EXPECT_EQ(heap.allocate(-8), 0);
  EXPECT_EQ(heap.allocate(std::int64_t(1) << 60), 0);
  for (int i = 0; i < 100; ++i) heap.allocate(64 << (i % 5));
  heap.sweep();
  heap.sweep();
}

/// Says what is asked of it.
class SaidLists final : public RegionLists {
 public:
  std::string said;
  bool put(std::int64_t list, std::int64_t index, double number) override { return say("put", list, index, number); }
  bool put(std::int64_t list, std::int64_t index, std::int64_t number) override {
    return say("put", list, index, number);
  }
  bool put(std::int64_t list, std::int64_t index, std::uint64_t number) override {
    return say("put", list, index, number);
  }
  bool append(std::int64_t list, std::uint64_t number) override { return say("append", list, number); }
  bool put(std::int64_t list, std::int64_t index, bool number) override { return say("put", list, index, number); }
  bool put_item(std::int64_t list, std::int64_t index, std::int64_t item) override {
    return say("put_item", list, index, item);
  }
  bool append_item(std::int64_t list, std::int64_t item) override { return say("append_item", list, item); }
  bool append(std::int64_t list, double number) override { return say("append", list, number); }
  bool append(std::int64_t list, std::int64_t number) override { return say("append", list, number); }
  bool append(std::int64_t list, bool number) override { return say("append", list, number); }
  bool put_numpy(std::int64_t list, std::int64_t index, DType dtype, const void* number) override {
    return say("put_numpy", list, index, int(dtype), int(*static_cast<const std::int8_t*>(number)));
  }
  bool append_numpy(std::int64_t list, DType dtype, const void* number) override {
    return say("append_numpy", list, int(dtype), int(*static_cast<const std::int8_t*>(number)));
  }
  bool put_list(std::int64_t list, std::int64_t index, std::int64_t item) override {
    return say("put_list", list, index, item);
  }
  bool append_list(std::int64_t list, std::int64_t item) override { return say("append_list", list, item); }
  bool drop_last(std::int64_t list) override { return say("drop_last", list); }
  bool extend(std::int64_t list, std::int64_t tuple) override { return say("extend", list, tuple); }
  std::int64_t make(std::int64_t count) override { return say("make", count) ? 5 : 0; }
  std::int64_t repeat(std::int64_t list, std::int64_t times) override { return say("repeat", list, times) ? 6 : 0; }
  std::int64_t join(std::int64_t a, std::int64_t b) override { return say("join", a, b) ? 7 : 0; }
  std::int64_t slice(std::int64_t list, std::int64_t start, std::int64_t stop) override {
    return say("slice", list, start, stop) ? 8 : 0;
  }
  void mark(std::int64_t list) override { say("mark", list); }
  void sweep() override { say("sweep"); }
  std::int64_t held() const override { return 9; }

 private:
  template <class... Given>
  bool say(const char* what, Given... given) {
    said = what;
    ((said += " " + std::to_string(given)), ...);
    return true;
  }
};

TEST(RegionLibrary, ListsAreAskedForWhatRegionsCall) {
  SaidLists lists;
  RegionHeap heap(&lists);
  const auto run = [&](const char* name, std::vector<std::uint64_t> operands) {
    const LibraryFunction& function = region_library()[std::size_t(library_number(name))];
    EXPECT_EQ(function.operands.size(), operands.size()) << name;
    return function.invoke(heap, operands.data());
  };
  const auto asks = [&](const char* name, const std::vector<std::uint64_t>& operands, std::uint64_t result) {
    EXPECT_EQ(run(name, operands), result) << name;
    return std::exchange(lists.said, "");
  };
  EXPECT_EQ(asks("put_f64", {1, 2, cell(0.5)}, 1), "put 1 2 0.500000");
  EXPECT_EQ(asks("put_i64", {1, 2, cell(std::int64_t(-3))}, 1), "put 1 2 -3");
  EXPECT_EQ(asks("put_u64", {1, 2, cell(~std::uint64_t(0))}, 1), "put 1 2 18446744073709551615");
  EXPECT_EQ(asks("append_u64", {1, cell(~std::uint64_t(0))}, 1), "append 1 18446744073709551615");
  EXPECT_EQ(asks("put_bool", {1, 2, cell(true)}, 1), "put 1 2 1");
  EXPECT_EQ(asks("put_item", {1, 2, 3}, 1), "put_item 1 2 3");
  EXPECT_EQ(asks("append_item", {1, 2}, 1), "append_item 1 2");
  EXPECT_EQ(asks("append_f64", {1, cell(0.25)}, 1), "append 1 0.250000");
  EXPECT_EQ(asks("append_i64", {1, 4}, 1), "append 1 4");
  EXPECT_EQ(asks("append_bool", {1, 0}, 1), "append 1 0");
  EXPECT_EQ(asks("put_numpy_i8", {1, 2, cell(std::int8_t(-3))}, 1),
            "put_numpy 1 2 " + std::to_string(int(DType::I8)) + " -3");
  EXPECT_EQ(asks("append_numpy_u8", {1, 7}, 1), "append_numpy 1 " + std::to_string(int(DType::U8)) + " 7");
  EXPECT_EQ(asks("put_list", {1, 2, 3}, 1), "put_list 1 2 3");
  EXPECT_EQ(asks("append_list", {1, 2}, 1), "append_list 1 2");
  EXPECT_EQ(asks("drop_last", {1}, 1), "drop_last 1");
  EXPECT_EQ(asks("extend_list", {1, 2}, 1), "extend 1 2");
  EXPECT_EQ(asks("make_list", {3}, 5), "make 3");
  EXPECT_EQ(asks("repeat_list", {1, 2}, 6), "repeat 1 2");
  EXPECT_EQ(asks("join_lists", {1, 2}, 7), "join 1 2");
  EXPECT_EQ(asks("slice_list", {1, 2, 3}, 8), "slice 1 2 3");
  run("mark_list", {4});
  EXPECT_EQ(std::exchange(lists.said, ""), "mark 4");
  run("sweep_lists", {});
  EXPECT_EQ(lists.said, "sweep");
  EXPECT_EQ(run("held_lists", {}), 9u);
}

TEST(RegionLibrary, NamesAreFound) {
  EXPECT_EQ(library_number("nothing"), -1);
  for (std::size_t i = 0; i < region_library().size(); ++i)
    EXPECT_EQ(library_number(region_library()[i].name), int(i));
}

TEST(RegionLibrary, SumsAreAsExactAsPairwiseOnes) {
  for (std::int64_t count : {0, 1, 7, 8, 9, 127, 128, 129, 1000, 4097}) {
    std::vector<float> x(std::size_t(2 * count));
    double exact = 0;
    for (std::int64_t i = 0; i < count; ++i) exact += x[std::size_t(2 * i)] = float(std::sin(double(i)) + 0.3);
    EXPECT_NEAR(value<float>(call("sum_f32", {address(x.data()), cell(count), 2})), exact,
                1e-5 * (1 + double(count) / 10));
  }
  std::vector<std::int8_t> bytes(300, 127);
  EXPECT_EQ(value<std::int64_t>(call("sum_i8", {address(bytes.data()), 300, 1})), 300 * 127);
}

TEST(RegionLibrary, ExtremesKnowNaN) {
  std::vector<double> x(40);
  std::iota(x.begin(), x.end(), -20.0);
  EXPECT_EQ(value<double>(call("greatest_f64", {address(x.data()), 40, 1})), 19);
  EXPECT_EQ(value<double>(call("least_f64", {address(x.data()), 20, 2})), -20);
  EXPECT_EQ(call("where_greatest_f64", {address(x.data()), 40, 1}), 39u);
  for (std::size_t at : {0, 5, 39}) {
    std::vector<double> y = x;
    y[at] = NAN;
    EXPECT_TRUE(std::isnan(value<double>(call("greatest_f64", {address(y.data()), 40, 1}))));
    EXPECT_TRUE(std::isnan(value<double>(call("least_f64", {address(y.data()), 40, 1}))));
    EXPECT_EQ(call("where_least_f64", {address(y.data()), 40, 1}), at);
  }
}

TEST(RegionLibrary, AxesAreReduced) {
  // [2, 3, 4]: along each axis.
  std::vector<std::int32_t> x(24);
  std::iota(x.begin(), x.end(), 0);
  struct Case {
    std::int64_t outer, outer_step, count, step, inner, inner_step;
  };
  for (const Case& of : {Case{1, 0, 2, 12, 12, 1}, Case{2, 12, 3, 4, 4, 1}, Case{6, 4, 4, 1, 1, 1}}) {
    std::vector<std::int64_t> sums(24), where(24);
    std::vector<std::int32_t> most(24);
    const auto operands = [&](void* to) {
      return std::vector<std::uint64_t>{address(x.data()), cell(of.outer), cell(of.outer_step), cell(of.count), cell(of.step),
                                        cell(of.inner),    cell(of.inner_step), address(to)};
    };
    call("sums_i32", operands(sums.data()));
    call("greatests_i32", operands(most.data()));
    call("where_greatests_i32", operands(where.data()));
    for (std::int64_t i = 0; i < of.outer; ++i)
      for (std::int64_t j = 0; j < of.inner; ++j) {
        std::int64_t sum = 0;
        for (std::int64_t k = 0; k < of.count; ++k)
          sum += x[std::size_t(i * of.outer_step + k * of.step + j * of.inner_step)];
        const auto at = std::size_t(i * of.inner + j);
        EXPECT_EQ(sums[at], sum);
        EXPECT_EQ(most[at], x[std::size_t(i * of.outer_step + (of.count - 1) * of.step + j * of.inner_step)]);
        EXPECT_EQ(where[at], of.count - 1);
      }
  }
}

template <class T>
void expect_products(const char* name, const char* dot) {
  constexpr std::int64_t kSizes[][3] = {{1, 1, 1}, {5, 1, 7}, {1, 6, 9}, {33, 1, 70}, {1, 40, 130}, {6, 5, 4}, {40, 30, 50}, {3, 0, 2}, {3, 2, 0}};
  for (const auto& [m, n, k] : kSizes)
    for (int layout = 0; layout < 6; ++layout) {
      // Rows, columns, or with gaps on both sides.
      const auto strides = [&](std::int64_t rows, std::int64_t columns, int kind) {
        return kind == 0   ? std::pair(columns, std::int64_t(1))
               : kind == 1 ? std::pair(std::int64_t(1), rows)
                           : std::pair(2 * columns, std::int64_t(2));
      };
      const auto [a_row, a_column] = strides(m, k, layout % 3);
      const auto [b_row, b_column] = strides(k, n, layout / 2);
      std::vector<T> a(std::size_t(2 * m * k + 1)), b(std::size_t(2 * k * n + 1)), c(std::size_t(m * n + 1), T(-1));
      for (std::size_t i = 0; i < a.size(); ++i) a[i] = T(i * 7 % 13) - 6;
      for (std::size_t i = 0; i < b.size(); ++i) b[i] = T(i * 5 % 11) - 5;
      call(name, {cell(m), cell(n), cell(k), address(a.data()), cell(a_row), cell(a_column), address(b.data()), cell(b_row),
                  cell(b_column), address(c.data())});
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          T sum = 0;
          for (std::int64_t l = 0; l < k; ++l)
            sum += a[std::size_t(i * a_row + l * a_column)] * b[std::size_t(l * b_row + j * b_column)];
          EXPECT_EQ(c[std::size_t(i * n + j)], sum) << m << " " << n << " " << k << " " << layout;
        }
      EXPECT_EQ(c.back(), T(-1));
      if (m == 1 && n == 1) {
        EXPECT_EQ(value<T>(call(dot, {address(a.data()), cell(a_column), address(b.data()), cell(b_row), cell(k)})), c[0]);
      }
    }
}

TEST(RegionLibrary, Products) {
  expect_products<float>("product_f32", "dot_f32");
  expect_products<double>("product_f64", "dot_f64");
}

TEST(RegionLibrary, ElementsAreMoved) {
  std::vector<std::int16_t> x{1, 2, 3, 4, 5, 6}, y(12, 0);
  call("copy", {address(y.data()), 6, 2, address(x.data()), 2, 3, 2});
  EXPECT_EQ(y, (std::vector<std::int16_t>{1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0}));
  call("roll", {address(x.data()), 2, 3, 2, cell(std::int64_t(-1)), address(y.data())});
  EXPECT_EQ(std::vector<std::int16_t>(y.begin(), y.begin() + 6), (std::vector<std::int16_t>{2, 3, 1, 5, 6, 4}));
  const std::vector<std::int64_t> at{5, -1, 0};
  EXPECT_EQ(call("gather", {address(x.data()), 1, 6, address(at.data()), 1, 3, 2, address(y.data())}), 0u);
  EXPECT_EQ(std::vector<std::int16_t>(y.begin(), y.begin() + 3), (std::vector<std::int16_t>{6, 6, 1}));
  EXPECT_EQ(call("gather", {address(x.data()), 1, 5, address(at.data()), 1, 3, 2, address(y.data())}), 1u);
  call("clear", {address(y.data()), 6});
  EXPECT_EQ(y[2], 0);
  EXPECT_EQ(call("count_true", {address("\1\0\1\1"), 2, 2}), 2u);
}

}  // namespace
}  // namespace fj
