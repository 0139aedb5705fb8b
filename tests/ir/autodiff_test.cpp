// Derivatives against finite differences, for every row of ops.def that has a rule, to second order; and the split into
// forward and backward against the whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "graph_ir/autodiff/autodiff.h"
#include "graph_ir/autodiff/autodiff_parts.h"
#include "graph_ir/evaluate/elements.h"
#include "graph_ir/evaluate/evaluate.h"
#include "graph_ir/parse.h"
#include "graph_ir/pipeline.h"
#include "graph_ir/rules/grad_rules.h"
#include "graph_ir/samples.h"
#include "graph_ir/verify.h"

namespace fj {
namespace {

double* elements(DenseArray& array) { return reinterpret_cast<double*>(array.data.data()); }
const double* elements(const DenseArray& array) { return reinterpret_cast<const double*>(array.data.data()); }

std::vector<DenseArray> run(const Graph& graph, const std::vector<DenseArray>& inputs,
                            std::vector<std::int64_t> symbols) {
  std::vector<DenseArray> results;
  symbols.resize(graph.symbols.size());
  EXPECT_EQ(evaluate(graph, inputs, symbols, results) & ~kFloatConditions, kOk);
  return results;
}

std::vector<DenseArray> moved(std::vector<DenseArray> inputs, const std::vector<DenseArray>& direction, double step) {
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].dtype == DType::F64)
      for (std::int64_t k = 0; k < inputs[i].element_count(); ++k)
        elements(inputs[i])[k] += step * elements(direction[i])[k];
  return inputs;
}

double dot(const std::vector<DenseArray>& a, const std::vector<DenseArray>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].dtype == DType::F64)
      for (std::int64_t k = 0; k < a[i].element_count(); ++k) sum += elements(a[i])[k] * elements(b[i])[k];
  return sum;
}

std::vector<ValueId> real_inputs(const Graph& graph) {
  std::vector<ValueId> values;
  for (const Input& input : graph.inputs)
    if (graph.type(input.value).dtype == DType::F64) values.push_back(input.value);
  return values;
}
std::vector<ValueId> real_outputs(const Graph& graph) {
  std::vector<ValueId> values;
  for (const Output& output : graph.outputs)
    if (graph.type(output.value).dtype == DType::F64) values.push_back(output.value);
  return values;
}

/// What `joint` computes, as a graph of its own.
Graph gradients_of(const Joint& joint) {
  Graph graph = joint.graph;
  for (ValueId gradient : joint.gradients)
    if (gradient.valid()) graph.outputs.push_back({gradient, std::nullopt});
  return graph;
}

/// The directional derivative of <weights, graph(inputs)> by `joint` against differences. Returns the joint graph's
/// inputs.
std::vector<DenseArray> expect_derivative(const Graph& graph, const Joint& joint, const std::vector<DenseArray>& inputs,
                                          const std::vector<std::int64_t>& symbols, std::mt19937_64& random,
                                          const std::string& what) {
  std::vector<DenseArray> direction;
  for (const DenseArray& input : inputs)
    direction.push_back(input.dtype == DType::F64 ? random_array(random, DType::F64, input.shape, Samples::Unit)
                                                  : input);
  const double h = 1e-6;
  std::vector<DenseArray> high = run(graph, moved(inputs, direction, h), symbols),
                          low = run(graph, moved(inputs, direction, -h), symbols);
  std::vector<DenseArray> weights, given = inputs;
  for (std::size_t i = 0; i < high.size(); ++i) {
    weights.push_back(high[i]);
    if (high[i].dtype != DType::F64) continue;
    weights[i] = random_array(random, DType::F64, high[i].shape, Samples::Unit);
    given.push_back(weights[i]);
  }
  const double expected = (dot(high, weights) - dot(low, weights)) / (2 * h);
  std::vector<DenseArray> found = run(gradients_of(joint), given, symbols), along;
  std::size_t next = 0;
  double actual = 0;
  for (std::size_t i = 0, wanted = 0; i < inputs.size(); ++i) {
    if (inputs[i].dtype != DType::F64) continue;
    if (!joint.gradients[wanted++].valid()) continue;
    actual += dot({found[next++]}, {direction[i]});
  }
  EXPECT_NEAR(actual, expected, 1e-4 * std::max(1.0, std::fabs(expected))) << what;
  return given;
}

/// Samples away from kinks and infinities.
std::vector<Sample> smooth_samples(Op op) {
  std::vector<Sample> result = samples(op, DType::F64);
  std::mt19937_64 random(7);
  for (Sample& sample : result)
    if (row(op).samples == Samples::Special)
      for (DenseArray& input : sample.inputs) input = random_array(random, input.dtype, input.shape, Samples::Real);
  return result;
}

bool is_differentiable(Op op) { return gradient_rule(op) != nullptr && accepts(op, DType::F64); }

TEST(Autodiff, EveryRuleAgreesWithDifferences) {
  int rules = 0;
  for (Op op : all_ops()) {
    if (!is_differentiable(op)) continue;
    ++rules;
    for (const Sample& sample : smooth_samples(op)) {
      if (real_outputs(sample.graph).empty()) continue;
      const Graph& graph = sample.graph;
      const Joint joint = differentiate(graph, real_inputs(graph), real_outputs(graph));
      check(gradients_of(joint), sample.description);
      std::mt19937_64 random(11);
      std::vector<DenseArray> given =
          expect_derivative(graph, joint, sample.inputs, sample.symbols, random, sample.description);
      // The derivative of the derivative, as a function of inputs and cotangents.
      const Graph first = gradients_of(joint);
      if (first.outputs.empty()) continue;
      try {
        const Joint second = differentiate(first, real_inputs(first), real_outputs(first));
        check(gradients_of(second), sample.description + ", second");
        expect_derivative(first, second, given, sample.symbols, random, sample.description + ", second derivative");
      } catch (const NoDerivative& missing) {
        // Running products are derived in as many steps as there are powers of two in their number: it has to be known.
        EXPECT_TRUE(missing.op == Op::cumprod && !sample.symbols.empty())
            << sample.description << ": " << missing.what();
      }
    }
  }
  EXPECT_GT(rules, 50);
}

TEST(Autodiff, BackwardFromWhatWasSavedIsTheWhole) {
  for (Op op : all_ops()) {
    if (!is_differentiable(op)) continue;
    for (const Sample& sample : smooth_samples(op)) {
      const Graph& graph = sample.graph;
      if (real_outputs(graph).empty()) continue;
      const Joint joint = differentiate(graph, real_inputs(graph), real_outputs(graph));
      std::vector<ValueId> visible;
      for (const Input& input : graph.inputs) visible.push_back(input.value);
      for (const Output& output : graph.outputs) visible.push_back(output.value);
      const std::vector<ValueId> saved = choose_saved(graph, values_read_backward(joint), visible);
      Graph forward = graph, backward = backward_graph(joint, saved);
      for (ValueId value : saved) forward.outputs.push_back({value, std::nullopt});
      optimise(forward);
      check(backward, sample.description);
      optimise(backward);
      check(backward, sample.description);
      std::vector<DenseArray> values = run(forward, sample.inputs, sample.symbols);
      std::vector<DenseArray> given(values.begin() + std::ptrdiff_t(graph.outputs.size()), values.end()),
          whole = sample.inputs;
      for (std::size_t i = 0; i < graph.outputs.size(); ++i)
        if (values[i].dtype == DType::F64) {
          given.push_back(values[i]);
          whole.push_back(values[i]);
        }
      const auto expected = run(gradients_of(joint), whole, sample.symbols),
                 found = run(backward, given, sample.symbols);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        for (std::int64_t k = 0; k < found[i].element_count(); ++k) {
          const double a = elements(found[i])[k], b = elements(expected[i])[k];
          ASSERT_TRUE(a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= 1e-9 * std::fabs(b))
              << sample.description;
        }
    }
  }
}

Graph parsed(const std::string& text) { return parse(text); }

TEST(Autodiff, APointwiseChainIsRepeatedFromOneArray) {
  // Eager saves %0, %1 and %2; one of them is enough.
  const Graph graph = parsed(R"(graph @f(%x: f32[1000]) {
    %0 = sin %x   : f32[1000]
    %1 = sin %0   : f32[1000]
    %2 = sin %1   : f32[1000]
    return %2
  }
)");
  const std::vector<ValueId> x{graph.inputs[0].value}, y{graph.outputs[0].value};
  const Joint joint = differentiate(graph, x, y);
  const std::vector<ValueId> saved = choose_saved(graph, values_read_backward(joint), {x[0], y[0]});
  EXPECT_EQ(saved.size(), 1u);
}

TEST(Autodiff, TheGradientOfATurnedMatrixLiesAsTheMatrix) {
  // As torch's linear: the gradient of %w is a product, not a copy of one.
  const Graph graph = parsed(R"(graph @f(%x: f32[4, 8], %w: f32[3, 8]) {
    %0 = transpose %w {permutation = [1, 0]} : f32[8, 3]
    %1 = matmul %x, %0                       : f32[4, 3]
    return %1
  }
)");
  const std::vector<ValueId> inputs{graph.inputs[0].value, graph.inputs[1].value}, y{graph.outputs[0].value};
  Graph gradients = gradients_of(differentiate(graph, inputs, y));
  gradients.outputs.erase(gradients.outputs.begin());
  optimise(gradients, false);
  for (const Output& output : gradients.outputs)
    EXPECT_TRUE(std::any_of(gradients.nodes.begin(), gradients.nodes.end(), [&](const Node& node) {
      return node.op == Op::matmul && node.results[0] == output.value;
    }));
}

TEST(Autodiff, WhatTheUserSeesIsSavedOnlyIfItIsRead) {
  // x + 1 is returned and read by nobody's derivative; sin reads it.
  const Graph graph = parsed(R"(graph @f(%x: f32[8]) {
    %0 = exp %x   : f32[8]
    %1 = neg %0   : f32[8]
    return %1
  }
)");
  const std::vector<ValueId> x{graph.inputs[0].value}, y{graph.outputs[0].value};
  const std::vector<ValueId> saved =
      choose_saved(graph, values_read_backward(differentiate(graph, x, y)), {x[0], y[0]});
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_EQ(saved[0], graph.nodes[0].results[0]);
}

TEST(Autodiff, WhatTheUserSeesIsSavedIfItIsRead) {
  // The product is returned and read; it could be computed again from x, which is read too.
  const Graph graph = parsed(R"(graph @f(%x: f32[8]) {
    %0 = sin %x   : f32[8]
    %1 = mul %0, %x : f32[8]
    return %0, %1
  }
)");
  const std::vector<ValueId> x{graph.inputs[0].value}, y{graph.outputs[0].value, graph.outputs[1].value};
  const std::vector<ValueId> saved =
      choose_saved(graph, values_read_backward(differentiate(graph, x, y)), {x[0], y[0], y[1]});
  EXPECT_EQ(saved, (std::vector<ValueId>{x[0], y[0]}));
}

TEST(Autodiff, ACheckpointIsComputedAgainFromWhatItBeganWith) {
  // Two layers: what is inside is not saved, products neither; what the first gives is.
  Graph graph = parsed(R"(graph @f(%x: f32[64, 8], %w: f32[8, 8]) {
    %0 = matmul %x, %w : f32[64, 8]
    %1 = tanh %0       : f32[64, 8]
    %2 = sin %1        : f32[64, 8]
    %3 = matmul %2, %w : f32[64, 8]
    %4 = tanh %3       : f32[64, 8]
    %5 = sin %4        : f32[64, 8]
    return %5
  }
)");
  const std::vector<ValueId> inputs{graph.inputs[0].value, graph.inputs[1].value}, y{graph.outputs[0].value};
  const Joint plain = differentiate(graph, inputs, y);
  const std::vector<ValueId> visible{inputs[0], inputs[1], y[0]};
  const auto result = [&](std::size_t node) { return graph.nodes[node].results[0]; };
  EXPECT_GT(choose_saved(graph, values_read_backward(plain), visible).size(), 3u);
  for (std::size_t i = 0; i < 6; ++i) graph.checkpoints[result(i)] = i < 3 ? 1 : 2;
  const Joint joint = differentiate(graph, inputs, y);
  const std::vector<ValueId> saved = choose_saved(graph, values_read_backward(joint), visible);
  EXPECT_EQ(saved, (std::vector<ValueId>{inputs[0], inputs[1], result(2)}));
  // The second layer comes first, and the first when the gradient has come to it.
  const Graph backward = backward_graph(joint, saved);
  std::vector<std::size_t> products;
  for (std::size_t i = 0; i < backward.nodes.size(); ++i)
    if (backward.nodes[i].op == Op::tanh) products.push_back(i);
  ASSERT_EQ(products.size(), 2u);
  EXPECT_GT(products[1] - products[0], 2u);
  // Both in one: from the inputs alone.
  for (std::size_t i = 0; i < 6; ++i) graph.checkpoints[result(i)] = 1;
  EXPECT_EQ(choose_saved(graph, values_read_backward(differentiate(graph, inputs, y)), visible), inputs);
}

TEST(Autodiff, ACheckpointIsComputedAgainFromAnInputThatNoDerivativeReads) {
  Graph graph = parsed(R"(graph @f(%x: f64[100], %s: f64[100]) {
    %0 = mul %x, %s : f64[100]
    %1 = cumsum %0 {axis = 0} : f64[100]
    %2 = exp %1     : f64[100]
    %3 = neg %2     : f64[100]
    return %3
  }
)");
  const ValueId x = graph.inputs[0].value, s = graph.inputs[1].value;
  const std::vector<ValueId> wanted{x}, y{graph.outputs[0].value}, visible{x, s, y[0]};
  for (const Node& node : graph.nodes) graph.checkpoints[node.results[0]] = 1;
  EXPECT_EQ(choose_saved(graph, values_read_backward(differentiate(graph, wanted, y)), visible),
            (std::vector<ValueId>{x, s}));
}

DerivativeParts parts(const Graph& graph) {
  std::vector<ValueId> x, y;
  for (const Input& input : graph.inputs) x.push_back(input.value);
  for (const Output& output : graph.outputs) y.push_back(output.value);
  return parts_of(differentiate(graph, x, y), x, y);
}

TEST(AutodiffParts, AResultIsASourceOfWhatIsComputedFromIt) {
  const Graph graph = parsed(R"(graph @f(%x: f64[3]) {
    %0 = exp %x     : f64[3]
    %1 = sin %0     : f64[3]
    %2 = mul %1, %0 : f64[3]
    return %0, %2
  }
)");
  const DerivativeParts found = parts(graph);
  ASSERT_EQ(found.all.size(), 2u);
  const ValueId x = graph.inputs[0].value, h = graph.nodes[0].results[0], y = graph.nodes[2].results[0];
  EXPECT_EQ(found.all[0].results, std::vector<ValueId>{h});
  EXPECT_EQ(found.all[0].sources, std::vector<ValueId>{x});
  EXPECT_EQ(found.all[1].results, std::vector<ValueId>{y});
  EXPECT_EQ(found.all[1].sources, std::vector<ValueId>{h});
  // A source is a variable: the derivative of y by h is not that of h by x.
  const Joint joint = differentiate(graph, std::vector<ValueId>{x, h}, std::vector<ValueId>{y}, true);
  EXPECT_FALSE(joint.gradients[0].valid());
  EXPECT_TRUE(joint.gradients[1].valid());
}

TEST(AutodiffParts, WhatSeveralResultsReadHasAPartAndWhatIsOnlyPassedOnHasNone) {
  const Graph graph = parsed(R"(graph @f(%x: f64[3], %w: f64[3]) {
    %0 = neg %x     : f64[3]
    %1 = mul %0, %w : f64[3]
    %2 = sin %1     : f64[3]
    %3 = cos %1     : f64[3]
    %4 = exp %0     : f64[3]
    return %2, %3, %4
  }
)");
  const DerivativeParts found = parts(graph);
  ASSERT_EQ(found.all.size(), 4u);
  const ValueId x = graph.inputs[0].value, w = graph.inputs[1].value, product = graph.nodes[1].results[0];
  const int shared = found.of.at(product);
  EXPECT_EQ(found.all[std::size_t(shared)].results, std::vector<ValueId>{product});
  EXPECT_EQ(found.all[std::size_t(shared)].sources, (std::vector<ValueId>{x, w}));
  EXPECT_EQ(found.all[std::size_t(found.of.at(graph.nodes[2].results[0]))].sources, std::vector<ValueId>{product});
  EXPECT_EQ(found.all[std::size_t(found.of.at(graph.nodes[4].results[0]))].sources, std::vector<ValueId>{x});
  EXPECT_LT(shared, found.of.at(graph.nodes[2].results[0]));
}

TEST(AutodiffParts, WhatALibraryCallRequiresAGradientByIsASourceThoughNoneArrives) {
  Graph graph = parsed(R"(graph @f(%x: f64[3], %w: f64[3]) {
    %0 = neg %x     : f64[3]
    return %0
  }
)");
  const ValueId x = graph.inputs[0].value, w = graph.inputs[1].value, between = graph.nodes[0].results[0];
  const std::vector<std::optional<Dims>> layouts(2);
  Attrs call;
  call.set("callee", std::string("call"));
  call.set("handle", std::int64_t{0});
  call.set("operand_strides", layouts);
  call.set("result_strides", std::vector<std::optional<Dims>>(1));
  const ValueId result = graph.add_extern({between, w}, call, std::vector<Type>{graph.type(w)}, {})[0];
  Attrs derivative = call;
  derivative.set("derived", std::vector<std::int64_t>{1});
  derivative.set("gradients", std::vector<std::int64_t>{-1, 0});
  graph.composites.push_back({CompositeRule::Extern, {between, w}, result, {between, w}, derivative});
  graph.outputs = {{result, std::nullopt}};
  const std::vector<ValueId> wanted{x, w}, of{result};
  const Joint joint = differentiate(graph, wanted, of);
  EXPECT_FALSE(joint.gradients[0].valid());
  EXPECT_TRUE(joint.gradients[1].valid());
  const DerivativeParts found = parts_of(joint, wanted, of);
  ASSERT_EQ(found.all.size(), 1u);
  EXPECT_EQ(found.all[0].sources, wanted);
}

TEST(Autodiff, NothingFlowsThroughAStop) {
  Graph graph = parsed(R"(graph @f(%x: f64[3]) {
    %0 = sin %x   : f64[3]
    %1 = mul %0, %x : f64[3]
    return %1
  }
)");
  graph.composites.push_back({CompositeRule::Stop, {}, graph.nodes[0].results[0], {}, {}});
  const std::vector<ValueId> x{graph.inputs[0].value}, y{graph.outputs[0].value};
  const Joint joint = differentiate(graph, x, y);
  DenseArray at(DType::F64, {3}), one(DType::F64, {3});
  for (int i = 0; i < 3; ++i) elements(at)[i] = i + 0.5, elements(one)[i] = 1;
  const auto found = run(gradients_of(joint), {at, one}, {});
  for (int i = 0; i < 3; ++i) EXPECT_DOUBLE_EQ(elements(found[0])[i], std::sin(i + 0.5));
}

}  // namespace
}  // namespace fj
