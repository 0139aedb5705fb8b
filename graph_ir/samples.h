/// Small sample programs for every row of ops.def, from its `samples` column: what the generic tests of the
/// evaluator, the passes and the code generators run. Header only, so that nothing of it is in the product.
///
///     for (Op op : all_ops())
///       for (DType dtype : sample_dtypes(op))
///         for (const Sample& sample : samples(op, dtype)) compare(sample);
///
/// Deterministic: the numbers depend only on operation and dtype.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "graph_ir/evaluate/elements.h"
#include "graph_ir/evaluate/evaluate.h"
#include "graph_ir/graph.h"
#include "graph_ir/ops.h"

namespace fj {

struct Sample {
  std::string description;  // "add f32 [33, 5]"
  Graph graph;              // returns the operation's result
  std::vector<DenseArray> inputs;
  std::vector<std::int64_t> symbols;
};

inline std::vector<Op> all_ops() {
  std::vector<Op> ops;
  for (int i = 0; i < kOpCount; ++i) ops.push_back(Op(i));
  return ops;
}

/// The dtypes a row is tested with. Empty for operations without samples of their own kind (extern_call).
inline std::vector<DType> sample_dtypes(Op op) {
  std::vector<DType> result;
  if (op == Op::extern_call) return result;
  for (int i = 0; i < kDTypeCount; ++i)
    if (accepts(op, DType(i))) result.push_back(DType(i));
  return result;
}

namespace detail {

using Random = std::mt19937_64;
using Sizes = std::vector<std::int64_t>;

inline double uniform(Random& random, double low, double high) {
  // Not std::uniform_real_distribution, whose numbers differ between standard libraries.
  return low + (high - low) * double(random() >> 11) * 0x1p-53;
}

inline std::int64_t uniform_integer(Random& random, std::int64_t low, std::int64_t high) {
  return low + std::int64_t(random() % std::uint64_t(high - low + 1));
}

inline double random_real(Random& random, Samples domain) {
  switch (domain) {
    case Samples::Positive: return uniform(random, 0.05, 8);
    case Samples::AboveOne: return uniform(random, 1, 8);
    case Samples::Unit: return uniform(random, -0.98, 0.98);
    case Samples::Nonzero: return std::copysign(uniform(random, 0.1, 8), uniform(random, -1, 1));
    case Samples::Special: {
      const double special[] = {0.0,
                                -0.0,
                                1.0,
                                -1.0,
                                1e-3,
                                std::numeric_limits<double>::infinity(),
                                -std::numeric_limits<double>::infinity(),
                                std::numeric_limits<double>::quiet_NaN(),
                                3.5};
      return random() % 2 ? special[random() % std::size(special)] : uniform(random, -8, 8);
    }
    default: return uniform(random, -8, 8);
  }
}

template <class T>
T random_integer(Random& random, Samples domain) {
  constexpr T low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  const bool is_signed = low < 0;
  switch (domain) {
    case Samples::Integer: return T(random());
    case Samples::Positive: return T(uniform_integer(random, 0, 6));
    case Samples::Shift: return T(uniform_integer(random, 0, sizeof(T) * 8 + 1));
    case Samples::Nonzero: {
      const std::int64_t magnitude = uniform_integer(random, 1, 9);
      return T(is_signed && random() % 2 ? -magnitude : magnitude);
    }
    case Samples::Special: {
      const T special[] = {low, high, T(0), T(1), T(high - 1)};
      return random() % 2 ? special[random() % 5] : T(random());
    }
    default: return T(uniform_integer(random, is_signed ? -100 : 0, 100));
  }
}

/// All elements different: a shuffled range around 0, halves for floats. Types too small for that repeat.
inline double distinct_real(std::int64_t rank, std::int64_t count) { return (double(rank) - double(count / 2)) / 2; }

}  // namespace detail

/// An array of the domain's values.
inline DenseArray random_array(std::mt19937_64& random, DType dtype, std::vector<std::int64_t> shape, Samples domain) {
  DenseArray array(dtype, std::move(shape));
  const std::int64_t count = array.element_count();
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  with_dtype(dtype, [&]<DType d>() {
    using Compute = typename Element<d>::Compute;
    for (std::int64_t i = 0; i < count; ++i) {
      std::byte* place = array.element(i);
      if constexpr (std::is_same_v<Compute, bool>) {
        Element<d>::store(place, random() % 2 == 0);
      } else if constexpr (is_complex_type<Compute>) {
        const double real = detail::random_real(random, domain);
        Element<d>::store(place, convert<Compute>(std::complex<double>(real, detail::random_real(random, domain))));
      } else if constexpr (std::is_integral_v<Compute>) {
        Element<d>::store(place, domain == Samples::Distinct ? Compute(order[std::size_t(i)])
                                                             : detail::random_integer<Compute>(random, domain));
      } else {
        Element<d>::store(place,
                          Compute(domain == Samples::Distinct ? detail::distinct_real(order[std::size_t(i)], count)
                                                              : detail::random_real(random, domain)));
      }
    }
  });
  return array;
}

namespace detail {

/// Builds the samples of one row: `make` adds inputs and the node.
class SampleMaker {
 public:
  SampleMaker(Op op, DType dtype) : op_(op), dtype_(dtype), random_(std::uint64_t(op) * 64 + std::uint64_t(dtype)) {}

  std::vector<Sample> run() {
    switch (row(op_).lowering) {
      case Lowering::Constant: case Lowering::Index: sources(); break;
      case Lowering::Pointwise: pointwise(); break;
      case Lowering::IndexMap: index_maps(); break;
      case Lowering::Reduce: reductions(); break;
      case Lowering::Scan: scans(); break;
      case Lowering::Gather: case Lowering::Scatter: gathers(); break;
      case Lowering::Count: counted(); break;
      case Lowering::Matmul: products(); break;
      case Lowering::Extern: case Lowering::Bodies: break;
    }
    return std::move(samples_);
  }

 private:
  static Dims dims(const Sizes& sizes) { return Dims(sizes.begin(), sizes.end()); }

  // ---- one sample

  void begin() {
    sample_ = Sample{};
    sample_.graph.name = std::string(name(op_));
    sample_.description = std::string(name(op_)) + " " + std::string(name(dtype_));
  }

  ValueId input(DType dtype, const Sizes& sizes, Samples domain) {
    return input_array(random_array(random_, dtype, sizes, domain), dims(sizes));
  }

  ValueId input_array(DenseArray array, Dims shape) {
    const ValueId value =
        sample_.graph.add_input("x" + std::to_string(sample_.inputs.size()), {array.dtype, std::move(shape)});
    sample_.description += " " + text(sample_.graph.type(value));
    sample_.inputs.push_back(std::move(array));
    return value;
  }

  void end(std::vector<ValueId> operands, Attrs attrs = {}) {
    for (const auto& [attr_name, attr] : attrs.items())
      if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&attr)) {
        sample_.description += " " + attr_name + "=";
        for (std::int64_t integer : *integers) sample_.description += std::to_string(integer) + ",";
      }
    const ValueId result = sample_.graph.add(op_, std::move(operands), std::move(attrs), {"sample.py", 1});
    sample_.graph.outputs.push_back({result, std::nullopt});
    samples_.push_back(std::move(sample_));
  }

  static Attrs with(std::string key, Attr value) {
    Attrs attrs;
    attrs.set(std::move(key), std::move(value));
    return attrs;
  }
  static Attrs with(std::string key, Attr value, std::string key2, Attr value2) {
    Attrs attrs = with(std::move(key), std::move(value));
    attrs.set(std::move(key2), std::move(value2));
    return attrs;
  }
  static Attrs with(std::string key, Attr value, std::string key2, Attr value2, std::string key3, Attr value3) {
    Attrs attrs = with(std::move(key), std::move(value), std::move(key2), std::move(value2));
    attrs.set(std::move(key3), std::move(value3));
    return attrs;
  }

  Samples domain() const { return row(op_).samples; }

  // ---- by lowering

  void sources() {
    begin();
    if (op_ == Op::constant) {
      end({}, with("value", random_array(random_, dtype_, {}, Samples::Real).scalar(0), "to", dtype_));
      begin();
      end({}, with("value", random_array(random_, dtype_, {}, Samples::Special).scalar(0), "to", dtype_));
      return;
    }
    const SymbolId symbol = sample_.graph.new_symbol({.name = "s0", .min = 0});
    sample_.symbols = {11};
    if (op_ == Op::dim) return end({}, with("value", SymDim(symbol) * SymDim(3) + SymDim(-4)));
    end({}, with("shape", Dims{SymDim(3), SymDim(symbol)}, "axis", std::int64_t{1}));
    begin();
    end({}, with("shape", Dims{SymDim(37)}, "axis", std::int64_t{0}));
  }

  std::vector<ValueId> pointwise_operands(const Sizes& sizes, Dims shape) {
    std::vector<ValueId> operands;
    for (std::size_t i = 0; i < row(op_).operands.size(); ++i) {
      DType dtype = op_ == Op::where && i == 0 ? DType::Bool : dtype_;
      // A shift moves any bits by a count; a quotient divides anything by what is not 0.
      Samples of_operand = domain();
      if (of_operand == Samples::Shift && i == 0) of_operand = Samples::Integer;
      if (of_operand == Samples::Nonzero && i == 0) of_operand = Samples::Real;
      operands.push_back(input_array(random_array(random_, dtype, sizes, of_operand), shape));
    }
    return operands;
  }

  void pointwise() {
    for (const Sizes& sizes : {Sizes{}, Sizes{1}, Sizes{103}, Sizes{3, 37}, Sizes{2, 0}}) {
      if (op_ != Op::cast) {
        begin();
        end(pointwise_operands(sizes, dims(sizes)));
        continue;
      }
      for (int to = 0; to < kDTypeCount; ++to) {
        begin();
        sample_.description += " to " + std::string(name(DType(to)));
        end(pointwise_operands(sizes, dims(sizes)), with("to", DType(to)));
      }
    }
    begin();
    const SymbolId symbol = sample_.graph.new_symbol({.name = "s0", .min = 0});
    sample_.symbols = {53};
    std::vector<ValueId> operands = pointwise_operands({2, 53}, {SymDim(2), SymDim(symbol)});
    end(std::move(operands), op_ == Op::cast ? with("to", DType::F32) : Attrs{});
  }

  void index_maps() {
    using Integers = std::vector<std::int64_t>;
    const Samples real = Samples::Real;
    auto ds = [](std::initializer_list<std::int64_t> sizes) { return Dims(sizes.begin(), sizes.end()); };
    switch (op_) {
      case Op::broadcast:
        begin(); end({input(dtype_, {}, real)}, with("dims", Integers{}, "shape", ds({5, 7})));
        begin(); end({input(dtype_, {19}, real)}, with("dims", Integers{1}, "shape", ds({3, 19})));
        begin(); end({input(dtype_, {5}, real)}, with("dims", Integers{0}, "shape", ds({5, 21})));
        begin(); end({input(dtype_, {4, 1}, real)}, with("dims", Integers{0, 2}, "shape", ds({4, 2, 6})));
        break;
      case Op::reshape:
        begin(); end({input(dtype_, {6, 8}, real)}, with("shape", ds({4, 3, 4})));
        begin(); end({input(dtype_, {24}, real)}, with("shape", ds({2, 3, 1, 4})));
        begin(); end({input(dtype_, {1}, real)}, with("shape", Dims{}));
        break;
      case Op::transpose:
        begin(); end({input(dtype_, {5, 19}, real)}, with("permutation", Integers{1, 0}));
        begin(); end({input(dtype_, {3, 4, 5}, real)}, with("permutation", Integers{2, 0, 1}));
        break;
      case Op::slice:
        begin(); end({input(dtype_, {40}, real)}, with("starts", ds({3}), "sizes", ds({17}), "steps", Integers{2}));
        begin();
        end({input(dtype_, {6, 23}, real)},
            with("starts", ds({1, 22}), "sizes", ds({4, 12}), "steps", Integers{1, -2}));
        begin();
        end({input(dtype_, {6, 5}, real)}, with("starts", ds({6, 0}), "sizes", ds({0, 5}), "steps", Integers{1, 1}));
        break;
      case Op::windows: {
        const auto windows = [&](const Sizes& sizes, std::int64_t axis, std::int64_t count, std::int64_t size,
                                 std::int64_t step) {
          begin();
          sample_.description += " size=" + std::to_string(size) + " step=" + std::to_string(step);
          const ValueId x = input(dtype_, sizes, real);
          Attrs attrs = with("axis", axis, "count", SymDim(count), "size", size);
          attrs.set("step", step);
          end({x}, std::move(attrs));
        };
        windows({41}, 0, 34, 8, 1);
        windows({3, 37}, 1, 9, 5, 4);
        windows({23, 6}, 0, 5, 3, 5);
        windows({7}, 0, 1, 7, 2);
        windows({2, 5}, 1, 6, 0, 1);
        windows({2, 40}, 1, 3, 20, 10);
        break;
      }
      case Op::pad:
        begin();
        end({input(dtype_, {3, 9}, real), input(dtype_, {}, real)}, with("low", ds({1, 2}), "high", ds({0, 3})));
        begin(); end({input(dtype_, {9}, real), input(dtype_, {}, real)}, with("low", ds({-2}), "high", ds({4})));
        break;
      case Op::concat:
        begin();
        end({input(dtype_, {3, 4}, real), input(dtype_, {3, 0}, real), input(dtype_, {3, 9}, real)},
            with("axis", std::int64_t{1}));
        begin(); end({input(dtype_, {17}, real), input(dtype_, {5}, real)}, with("axis", std::int64_t{0}));
        break;
      default:  // slice_update
        begin();
        end({input(dtype_, {20}, real), input(dtype_, {6}, real)}, with("starts", ds({2}), "steps", Integers{3}));
        begin();
        end({input(dtype_, {4, 18}, real), input(dtype_, {2, 5}, real)},
            with("starts", ds({1, 17}), "steps", Integers{2, -3}));
    }
  }

  void reductions() {
    using Integers = std::vector<std::int64_t>;
    const bool one_axis = op_ == Op::argmax || op_ == Op::argmin;
    const bool has_identity =
        op_ == Op::reduce_sum || op_ == Op::reduce_prod || op_ == Op::reduce_and || op_ == Op::reduce_or;
    // Products of a hundred numbers up to 8 leave every float type.
    const Samples values = op_ == Op::reduce_prod ? Samples::Unit : domain();
    if (one_axis) {
      for (std::int64_t axis : {0, 1, 2}) {
        begin();
        end({input(dtype_, {3, 5, 37}, values)}, with("axis", axis));
      }
      begin();
      end({input(dtype_, {130}, values)}, with("axis", std::int64_t{0}));
      return;
    }
    for (const Integers& axes : {Integers{0}, Integers{1}, Integers{0, 1}}) {
      begin();
      end({input(dtype_, {6, 67}, values)}, with("axes", axes));
    }
    for (const Integers& axes : {Integers{1}, Integers{0, 2}, Integers{}}) {
      begin();
      end({input(dtype_, {3, 5, 17}, values)}, with("axes", axes));
    }
    begin();
    const SymbolId symbol = sample_.graph.new_symbol({.name = "s0", .min = 1});
    sample_.symbols = {45};
    const ValueId x = input_array(random_array(random_, dtype_, {2, 45}, values), {SymDim(2), SymDim(symbol)});
    end({x}, with("axes", Integers{1}));
    if (has_identity) {
      begin();
      end({input(dtype_, {4, 0}, values)}, with("axes", Integers{1}));
    }
  }

  void scans() {
    const Samples values = op_ == Op::cumprod ? Samples::Unit : domain();
    for (std::int64_t axis : {0, 1}) {
      begin();
      end({input(dtype_, {7, 19}, values)}, with("axis", axis));
    }
    begin();
    end({input(dtype_, {50}, values)}, with("axis", std::int64_t{0}));
  }

  ValueId indices(const Sizes& sizes, std::int64_t extent) {
    DenseArray array(DType::I64, sizes);
    for (std::int64_t i = 0; i < array.element_count(); ++i)
      Element<DType::I64>::store(array.element(i), uniform_integer(random_, -extent, extent - 1));
    return input_array(std::move(array), dims(sizes));
  }

  void gathers() {
    const Samples real = Samples::Real;
    for (std::int64_t axis : {0, 1}) {
      begin();
      const std::int64_t extent = axis ? 9 : 6;
      const ValueId x = input(dtype_, {6, 9}, real);
      if (op_ == Op::gather) {
        end({x, indices({2, 7}, extent)}, with("axis", axis));
      } else if (op_ == Op::take_along) {
        end({x, indices(axis ? Sizes{6, 4} : Sizes{3, 9}, extent)}, with("axis", axis));
      } else {
        const ValueId rows = indices({5}, extent);
        end({x, input(dtype_, axis ? Sizes{6, 5} : Sizes{5, 9}, real), rows}, with("axis", axis));
      }
    }
    if (op_ == Op::take_along) return;
    // Several indices, at the front, in the middle and for every axis.
    const std::vector<std::pair<std::int64_t, std::int64_t>> places{{0, 2}, {1, 2}, {0, 3}};
    for (const auto& [axis, count] : places) {
      begin();
      const Sizes from{4, 5, 3};
      std::vector<ValueId> operands{input(dtype_, from, real)};
      if (op_ != Op::gather) {
        Sizes updates(from.begin(), from.begin() + axis);
        updates.insert(updates.end(), {2, 3});
        updates.insert(updates.end(), from.begin() + axis + count, from.end());
        operands.push_back(input(dtype_, updates, real));
      }
      for (std::int64_t i = axis; i < axis + count; ++i) operands.push_back(indices({2, 3}, from[std::size_t(i)]));
      end(operands, with("axis", axis));
    }
  }

  void counted() {
    const std::vector<Sizes> of_number(3), of_masks{{50}, {6, 9}, {0, 4}, {1}};
    for (const Sizes& sizes : op_ == Op::as_size ? of_number : of_masks) {
      begin();
      Symbol symbol;
      symbol.min = 0;
      symbol.late = true;
      Attrs attrs = with("count", SymDim(sample_.graph.new_symbol(symbol)));
      sample_.symbols.push_back(0);
      attrs.set("excluded", std::vector<std::int64_t>{});
      end({input(dtype_, sizes, domain())}, std::move(attrs));
    }
  }

  void products() {
    const Samples real = Samples::Real;
    begin();
    end({input(dtype_, {5, 7}, real), input(dtype_, {7, 9}, real)});
    begin();
    end({input(dtype_, {2, 3, 17}, real), input(dtype_, {2, 17, 4}, real)});
    begin();
    end({input(dtype_, {33, 40}, real), input(dtype_, {40, 35}, real)});
    begin();
    end({input(dtype_, {3, 0}, real), input(dtype_, {0, 4}, real)});
  }

  Op op_;
  DType dtype_;
  Random random_;
  Sample sample_;
  std::vector<Sample> samples_;
};

}  // namespace detail

/// Several shapes and attributes of one operation: tails of vectors, empty arrays, symbolic sizes.
inline std::vector<Sample> samples(Op op, DType dtype) { return detail::SampleMaker(op, dtype).run(); }

}  // namespace fj
