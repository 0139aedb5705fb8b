/// Random graphs over integers, where every result is exact: what is fused and how it is dealt out must not matter.
#pragma once

#include <random>

#include "tests/codegen/harness.h"

namespace fj::test {

class RandomGraph {
 public:
  explicit RandomGraph(std::uint64_t seed, bool branches = false) : random_(seed), branches_(branches ? 2 : 0) {
    symbolic_ = pick(3) == 0;
    if (symbolic_)
      for (std::int64_t size : {5, 8}) {
        Symbol symbol;
        symbol.name = "s" + std::to_string(graph.symbols.size());
        symbol.hint = pick(2) ? size : 100000;
        sizes_.push_back(SymDim(graph.new_symbol(symbol)));
        symbols.push_back(size);
      }
    else
      sizes_ = {SymDim(pick(6) == 0 ? 40 : 5), SymDim(pick(6) == 0 ? 300 : 8)};
    for (int i = 0; i < 3; ++i) {
      Dims shape = random_shape();
      std::optional<Strides> strides;
      if (shape.size() == 2 && pick(3) == 0) strides = Strides{SymDim(1), shape[0]};
      const ValueId value = graph.add_input("x" + std::to_string(i), {DType::I64, shape}, strides);
      inputs.push_back(sample(DType::I64, evaluate(shape, symbols), seed * 8 + std::uint64_t(i), -9, 9));
      values_.push_back(value);
    }
    const int count = 6 + pick(25);
    for (int i = 0; i < count; ++i) grow();
    for (std::size_t i = values_.size() - 1; i >= 3 && graph.outputs.size() < 4; --i)
      if (graph.outputs.empty() || pick(4) == 0) {
        Output output{values_[i], std::nullopt};
        const Dims& shape = graph.type(values_[i]).shape;
        if (shape.size() == 2 && pick(3) == 0) output.strides = Strides{SymDim(1), shape[0]};
        graph.outputs.push_back(output);
      }
    if (pick(2)) {
      for (std::size_t i = values_.size(); i-- > 3;)
        if (graph.type(values_[i]) == graph.type(values_[0])) {
          graph.writes.push_back({0, values_[i]});
          break;
        }
    }
  }

  Graph graph;
  std::vector<DenseArray> inputs;
  std::vector<std::int64_t> symbols;

 private:
  /// Of a branch that takes values of these types and gives the first `results` of them.
  RandomGraph(std::uint64_t seed, const RandomGraph& around, const std::vector<Type>& types, std::size_t results)
      : symbols(around.symbols), random_(seed), branches_(around.branches_ - 1), sizes_(around.sizes_) {
    graph.symbols = around.graph.symbols;
    for (const Type& type : types) values_.push_back(graph.add_input("a" + std::to_string(values_.size()), type));
    for (int i = pick(6); i > 0; --i) grow();
    for (std::size_t i = 0; i < results; ++i) {
      std::size_t last = values_.size() - 1;
      while (last > i && (graph.type(values_[last]) != types[i] || pick(4) == 0)) --last;
      graph.outputs.push_back({values_[last], std::nullopt});
    }
  }

  void branch() {
    const auto total = [&] {
      const ValueId of = any();
      std::vector<std::int64_t> axes;
      for (int d = 0; d < graph.type(of).rank(); ++d) axes.push_back(d);
      return graph.add(Op::reduce_sum, {of}, one("axes", axes));
    };
    std::vector<ValueId> operands = {graph.add(Op::lt, {total(), total()})};
    std::vector<Type> types;
    for (int i = 1 + pick(3); i > 0; --i) {
      operands.push_back(any());
      types.push_back(graph.type(operands.back()));
    }
    const std::size_t results = 1 + std::size_t(pick(int(types.size())));
    std::vector<std::shared_ptr<const Graph>> bodies;
    for (int i = 0; i < 2; ++i)
      bodies.push_back(std::make_shared<Graph>(RandomGraph(random_(), *this, types, results).graph));
    for (ValueId result : graph.add_control(Op::cond, operands, bodies)) values_.push_back(result);
  }

  /// At most three passes, as a counter among the states says.
  void loop() {
    const auto number = [](Graph& of, std::int64_t value) {
      Attrs attrs = one("value", Scalar(value));
      attrs.set("to", DType::I64);
      return of.add(Op::constant, {}, std::move(attrs));
    };
    const ValueId count = number(graph, pick(4));
    std::vector<ValueId> operands = {graph.add(Op::gt, {count, number(graph, 0)}), count};
    std::vector<Type> types = {graph.type(count)};
    for (int i = 1 + pick(3); i > 0; --i) {
      operands.push_back(any());
      types.push_back(graph.type(operands.back()));
    }
    const std::size_t states = 2 + std::size_t(pick(int(types.size()) - 1));
    auto body = std::make_shared<Graph>(RandomGraph(random_(), *this, types, states).graph);
    const ValueId left = body->add(Op::sub, {body->inputs[0].value, number(*body, 1)});
    const ValueId goes = body->add(Op::gt, {left, number(*body, 0)});
    body->outputs[0] = {left, std::nullopt};
    body->outputs.insert(body->outputs.begin(), {goes, std::nullopt});
    for (ValueId result : graph.add_control(Op::loop, operands, {body})) values_.push_back(result);
  }

  int pick(int bound) { return int(random_() % std::uint64_t(bound)); }

  Dims random_shape() {
    switch (pick(6)) {
      case 0: return {sizes_[0]};
      case 1: return {sizes_[1]};
      case 2: return {};
      default: return {sizes_[0], sizes_[1]};
    }
  }

  ValueId any() {
    // Mostly recent ones, so that chains grow.
    if (pick(3)) return values_[values_.size() - 1 - std::size_t(pick(int(std::min<std::size_t>(values_.size(), 5))))];
    return values_[std::size_t(pick(int(values_.size())))];
  }

  ValueId with_shape(const Dims& shape) {
    std::vector<ValueId> same;
    for (ValueId value : values_)
      if (graph.type(value).shape == shape) same.push_back(value);
    return same[std::size_t(pick(int(same.size())))];
  }

  static Attrs one(std::string key, Attr value) {
    Attrs attrs;
    attrs.set(std::move(key), std::move(value));
    return attrs;
  }

  void grow() {
    if (branches_ > 0 && pick(6) == 0) return pick(3) ? branch() : loop();
    const ValueId x = any();
    const Dims shape = graph.type(x).shape;
    const int rank = int(shape.size());
    switch (pick(12)) {
      case 0: case 1: case 2: {
        constexpr Op ops[] = {Op::add, Op::sub, Op::mul, Op::maximum, Op::minimum, Op::bit_xor};
        return add(ops[pick(6)], {x, with_shape(shape)});
      }
      case 3: {
        constexpr Op ops[] = {Op::neg, Op::abs, Op::sign, Op::bit_not};
        return add(ops[pick(4)], {x});
      }
      case 4: {
        const ValueId condition = graph.add(Op::lt, {x, with_shape(shape)});
        return add(Op::where, {condition, with_shape(shape), x});
      }
      case 5: case 6: {
        if (rank == 0) return;
        constexpr Op ops[] = {Op::reduce_sum, Op::reduce_max, Op::reduce_min, Op::reduce_prod};
        std::vector<std::int64_t> axes;
        for (int d = 0; d < rank; ++d)
          if (pick(2)) axes.push_back(d);
        return add(ops[pick(4)], {x}, one("axes", axes));
      }
      case 7: {  // back to a larger shape
        Dims target{sizes_[0], sizes_[1]};
        std::vector<std::int64_t> dims;
        if (rank == 1 && shape[0] == sizes_[0]) dims = {0};
        else if (rank == 1 && shape[0] == sizes_[1]) dims = {1};
        else if (rank != 0) return;
        Attrs attrs = one("dims", dims);
        attrs.set("shape", target);
        return add(Op::broadcast, {x}, attrs);
      }
      case 8: {
        if (rank != 2) return;
        const ValueId turned = graph.add(Op::transpose, {x}, one("permutation", std::vector<std::int64_t>{1, 0}));
        if (pick(2)) return values_.push_back(turned);
        const ValueId changed = graph.add(Op::neg, {turned});
        return add(Op::transpose, {changed}, one("permutation", std::vector<std::int64_t>{1, 0}));
      }
      case 9: {  // reversed, or a part put back into the whole
        if (rank == 0) return;
        Dims starts, sizes = shape, zeros;
        std::vector<std::int64_t> steps, ones;
        for (int d = 0; d < rank; ++d) {
          const bool reverse = pick(2);
          starts.push_back(reverse ? shape[d] - SymDim(1) : SymDim(0));
          steps.push_back(reverse ? -1 : 1);
          zeros.push_back(SymDim(pick(2)));
          ones.push_back(1);
        }
        if (pick(2)) {
          Attrs attrs = one("starts", starts);
          attrs.set("sizes", sizes);
          attrs.set("steps", steps);
          return add(Op::slice, {x}, attrs);
        }
        for (int d = 0; d < rank; ++d) sizes[d] = shape[d] - SymDim(1 + pick(2));
        Attrs attrs = one("starts", zeros);
        attrs.set("sizes", sizes);
        attrs.set("steps", ones);
        const ValueId part = graph.add(Op::slice, {x}, attrs);
        const ValueId changed = graph.add(Op::add, {part, part});
        ValueId updated = with_shape(shape);
        for (int links = pick(4) ? 1 : 12; links > 1; --links) {
          for (int d = 0; d < rank; ++d) zeros[d] = SymDim(pick(2));
          Attrs back = one("starts", zeros);
          back.set("steps", ones);
          updated = graph.add(Op::slice_update, {updated, pick(2) ? changed : part}, back);
        }
        for (int d = 0; d < rank; ++d) zeros[d] = SymDim(pick(2));
        Attrs back = one("starts", zeros);
        back.set("steps", ones);
        return add(Op::slice_update, {updated, changed}, back);
      }
      case 10: {
        if (rank == 0) return;
        const auto axis = std::int64_t(pick(rank));
        std::vector<ValueId> parts{x, with_shape(shape)};
        while (parts.size() < std::size_t(pick(3) ? 2 : 11)) parts.push_back(parts[std::size_t(pick(2))]);
        const ValueId joined = graph.add(Op::concat, parts, one("axis", axis));
        Dims starts(std::size_t(rank), SymDim(0));
        starts[axis] = SymDim(2);
        Attrs attrs = one("starts", starts);
        attrs.set("sizes", shape);
        attrs.set("steps", std::vector<std::int64_t>(std::size_t(rank), 1));
        const ValueId doubled = graph.add(Op::abs, {joined});
        return add(Op::slice, {doubled}, attrs);
      }
      default: {
        if (rank == 0) return;
        if (pick(2)) return add(Op::cumsum, {x}, one("axis", std::int64_t(pick(rank))));
        if (rank != 2) return;
        const ValueId flat = graph.add(Op::reshape, {x}, one("shape", Dims{shape[0] * shape[1]}));
        const ValueId changed = graph.add(Op::neg, {flat});
        return add(Op::reshape, {changed}, one("shape", pick(2) ? shape : Dims{shape[1], shape[0]}));
      }
    }
  }

  void add(Op op, std::vector<ValueId> operands, Attrs attrs = {}) {
    values_.push_back(graph.add(op, std::move(operands), std::move(attrs)));
  }

  std::mt19937_64 random_;
  int branches_;  // how deep they may be
  std::vector<SymDim> sizes_;
  std::vector<ValueId> values_;
  bool symbolic_ = false;
};

}  // namespace fj::test
