// Passes keep what a graph means: random small programs evaluate to the same bits before and after optimise().
#include <gtest/gtest.h>

#include "graph_ir/pipeline.h"
#include "graph_ir/print.h"
#include "graph_ir/samples.h"
#include "graph_ir/verify.h"

namespace fj {
namespace {

/// Programs made to be optimised: few distinct values, constants, index maps that compose, casts back and forth.
class RandomProgram {
 public:
  explicit RandomProgram(std::uint64_t seed) : random_(seed) {
    for (DType dtype : {DType::F32, DType::I32, DType::F16}) {
      input(dtype, {3, 4});
      input(dtype, {4});
    }
    for (int i = 0; i < 40; ++i) step();
    for (int i = 0; i < 4; ++i) graph.outputs.push_back({any(), std::nullopt});
  }

  Graph graph;
  std::vector<DenseArray> inputs;

 private:
  void input(DType dtype, std::vector<std::int64_t> shape) {
    values_.push_back(graph.add_input("x" + std::to_string(inputs.size()), {dtype, Dims(shape.begin(), shape.end())}));
    inputs.push_back(random_array(random_, dtype, shape, Samples::Special));
  }

  ValueId any() { return values_[random_() % values_.size()]; }
  std::size_t below(std::size_t count) { return random_() % count; }

  ValueId like(ValueId value) {
    std::vector<ValueId> same;
    for (ValueId other : values_)
      if (graph.type(other) == graph.type(value)) same.push_back(other);
    return same[below(same.size())];
  }

  ValueId constant_like(ValueId value) {
    const Type type = graph.type(value);
    const double numbers[] = {0.0, -0.0, 1.0, 2.0, 3.0};
    Attrs attrs;
    attrs.set("value", scalar_array(type.dtype, numbers[below(5)]).scalar(0));
    attrs.set("to", type.dtype);
    return widened(graph.add(Op::constant, {}, std::move(attrs)), {}, type.shape);
  }

  ValueId widened(ValueId value, std::vector<std::int64_t> dims, Dims shape) {
    Attrs attrs;
    attrs.set("dims", std::move(dims));
    attrs.set("shape", std::move(shape));
    return graph.add(Op::broadcast, {value}, std::move(attrs));
  }

  void step() {
    const ValueId x = any();
    const Type type = graph.type(x);
    const std::size_t rank = type.shape.size();
    Attrs attrs;
    switch (below(9)) {
      case 0:
      case 1: {
        const Op binary[] = {Op::add, Op::mul, Op::maximum, Op::sub, Op::minimum};
        values_.push_back(
            graph.add(binary[below(type.dtype == DType::Bool ? 3 : 5)], {x, below(2) ? like(x) : constant_like(x)}));
        break;
      }
      case 2: {
        const Op unary[] = {Op::abs, Op::floor, Op::round, Op::neg};
        values_.push_back(graph.add(unary[below(type.dtype == DType::Bool ? 3 : 4)], {x}));
        break;
      }
      case 3: {
        const DType dtypes[] = {DType::F32, DType::F64, DType::I32,  DType::I64, DType::U8,
                                DType::U32, DType::F16, DType::BF16, DType::Bool};
        attrs.set("to", dtypes[below(9)]);
        values_.push_back(graph.add(Op::cast, {x}, attrs));
        break;
      }
      case 4: {
        std::vector<std::int64_t> permutation(rank);
        std::iota(permutation.begin(), permutation.end(), 0);
        for (std::size_t i = rank; i > 1; --i) std::swap(permutation[i - 1], permutation[below(i)]);
        attrs.set("permutation", permutation);
        values_.push_back(graph.add(Op::transpose, {x}, attrs));
        break;
      }
      case 5: {
        Dims starts, sizes;
        std::vector<std::int64_t> steps;
        for (const SymDim& size : type.shape) {
          const std::int64_t extent = size.value();
          const bool backwards = below(3) == 0;
          steps.push_back(backwards ? -1 : 1);
          starts.push_back(backwards ? extent - 1 : 0);
          sizes.push_back(extent);
        }
        attrs.set("starts", starts);
        attrs.set("sizes", sizes);
        attrs.set("steps", steps);
        values_.push_back(graph.add(Op::slice, {x}, attrs));
        break;
      }
      case 6: {
        Dims shape = type.shape;
        if (below(2)) shape.insert(shape.begin() + long(below(rank + 1)), SymDim(1));
        else shape = {product(shape)};
        if (shape.size() > 4) break;
        attrs.set("shape", shape);
        values_.push_back(graph.add(Op::reshape, {x}, attrs));
        break;
      }
      case 7: {
        if (rank >= 3) break;
        std::vector<std::int64_t> dims(rank);
        std::iota(dims.begin(), dims.end(), 0);
        const std::size_t place = below(rank + 1);
        for (std::size_t i = place; i < rank; ++i) ++dims[i];
        Dims shape = type.shape;
        shape.insert(shape.begin() + long(place), SymDim(std::int64_t(1 + below(3))));
        for (SymDim& size : shape)
          if (size == SymDim(1) && below(2)) size = SymDim(2);
        values_.push_back(widened(x, dims, shape));
        break;
      }
      default:
        values_.push_back(
            graph.add(Op::where, {graph.add(Op::lt, {x, like(x)}), x, below(2) ? like(x) : constant_like(x)}));
    }
  }

  std::mt19937_64 random_;
  std::vector<ValueId> values_;
};

// NaN is NaN, whatever its payload: which operand's payload survives is not specified.
bool same_number(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

bool same_values(const DenseArray& a, const DenseArray& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  for (std::int64_t i = 0; i < a.element_count(); ++i) {
    const Scalar x = a.scalar(i), y = b.scalar(i);
    if (is_float(a.dtype)) {
      if (!same_number(std::get<double>(x), std::get<double>(y))) return false;
    } else if (is_complex(a.dtype)) {
      const auto [real, imaginary] = std::get<std::pair<double, double>>(x);
      const auto [other_real, other_imaginary] = std::get<std::pair<double, double>>(y);
      if (!same_number(real, other_real) || !same_number(imaginary, other_imaginary)) return false;
    } else if (x != y) {
      return false;
    }
  }
  return true;
}

TEST(Optimise, KeepsEveryBitOfRandomPrograms) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const RandomProgram program(seed);
    Graph optimised = program.graph;
    optimise(optimised);
    check(optimised, "after optimise");
    std::vector<DenseArray> before, after;
    evaluate(program.graph, program.inputs, {}, before);
    evaluate(optimised, program.inputs, {}, after);
    ASSERT_EQ(before.size(), after.size());
    for (std::size_t i = 0; i < before.size(); ++i)
      ASSERT_TRUE(same_values(before[i], after[i])) << "seed " << seed << ", output " << i << "\n"
                                                    << print(program.graph) << print(optimised);
  }
}

TEST(Optimise, KeepsEveryBitOfEveryPairOfCasts) {
  std::mt19937_64 random(1);
  for (int from = 0; from < kDTypeCount; ++from) {
    const std::vector<DenseArray> inputs{random_array(random, DType(from), {40}, Samples::Special)};
    for (int middle = 0; middle < kDTypeCount; ++middle)
      for (int to = 0; to < kDTypeCount; ++to) {
        Graph graph;
        ValueId value = graph.add_input("x", {DType(from), {40}});
        for (int dtype : {middle, to}) {
          Attrs attrs;
          attrs.set("to", DType(dtype));
          value = graph.add(Op::cast, {value}, std::move(attrs));
        }
        graph.outputs.push_back({value, std::nullopt});
        Graph optimised = graph;
        optimise(optimised);
        std::vector<DenseArray> before, after;
        evaluate(graph, inputs, {}, before);
        evaluate(optimised, inputs, {}, after);
        EXPECT_TRUE(same_values(before[0], after[0])) << print(graph) << print(optimised);
      }
  }
}

TEST(Optimise, KeepsEverySample) {
  for (Op op : all_ops())
    for (DType dtype : sample_dtypes(op))
      for (const Sample& sample : samples(op, dtype)) {
        Graph optimised = sample.graph;
        optimise(optimised);
        std::vector<DenseArray> before, after;
        std::vector<std::int64_t> symbols = sample.symbols;
        evaluate(sample.graph, sample.inputs, symbols, before);
        evaluate(optimised, sample.inputs, symbols, after);
        EXPECT_EQ(before, after) << sample.description;
      }
}

}  // namespace
}  // namespace fj
