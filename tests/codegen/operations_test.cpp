// Every row of ops.def for every dtype it accepts, on its samples, against the evaluator: exact where the
// contract is exact, else within the published bound. All samples of a row and dtype form one program.
#include <cmath>

#include "graph_ir/samples.h"
#include "tests/codegen/harness.h"

namespace fj::test {

namespace {

struct Bound {
  double ulps = 0, scale = 0;
};

Bound bound(Op op, DType dtype) {
  const bool complex = is_complex(dtype), real = is_float(dtype);
  if (!complex && !real) return {};
  switch (op) {
    case Op::exp:
    case Op::exp2:
    case Op::expm1:
    case Op::log:
    case Op::log2:
    case Op::log10:
    case Op::log1p:
    case Op::sin:
    case Op::cos:
    case Op::tan:
    case Op::asin:
    case Op::acos:
    case Op::atan:
    case Op::sinh:
    case Op::cosh:
    case Op::tanh:
    case Op::asinh:
    case Op::acosh:
    case Op::atanh:
    case Op::erf:
    case Op::pow:
    case Op::atan2:
    case Op::hypot:
    case Op::rsqrt: return {complex ? 16.0 : 4.0, complex ? 1.0 : 0.0};
    case Op::abs: case Op::sqrt: return {complex ? 4.0 : 0.0};
    case Op::div: case Op::mul: return {complex ? 4.0 : 0.0, complex ? 8.0 : 0.0};
    case Op::reduce_sum: case Op::cumsum: case Op::scatter_add: return {8, 64};
    case Op::reduce_prod: case Op::cumprod: return {64, complex ? 1.0 : 0.0};
    case Op::matmul: return {16, 256};
    default: return {};
  }
}

/// Several graphs as one: inputs, symbols and outputs one after the other.
class Merger {
 public:
  void add(const Sample& sample) {
    const auto first = std::uint32_t(graph.symbols.size());
    for (const Symbol& symbol : sample.graph.symbols) graph.new_symbol(symbol);
    symbols.insert(symbols.end(), sample.symbols.begin(), sample.symbols.end());
    auto moved = [&](const SymDim& dim) {
      return dim.substitute([&](SymbolId symbol) { return SymDim(SymbolId{symbol.index + first}); });
    };
    auto moved_dims = [&](const Dims& dims) {
      Dims result;
      for (const SymDim& dim : dims) result.push_back(moved(dim));
      return result;
    };
    std::vector<ValueId> values(sample.graph.value_count());
    for (const Input& input : sample.graph.inputs) {
      const Type& type = sample.graph.type(input.value);
      values[input.value.index] =
          graph.add_input("x" + std::to_string(inputs.size()), {type.dtype, moved_dims(type.shape)});
      inputs.push_back(sample.inputs[inputs.size() - input_base_]);
    }
    input_base_ = inputs.size();
    for (const Node& node : sample.graph.nodes) {
      std::vector<ValueId> operands;
      for (ValueId operand : node.operands) operands.push_back(values[operand.index]);
      Attrs attrs;
      for (const auto& [name, attr] : node.attrs.items()) {
        if (const auto* dims = std::get_if<Dims>(&attr))
          attrs.set(name, moved_dims(*dims));
        else if (const auto* dim = std::get_if<SymDim>(&attr))
          attrs.set(name, moved(*dim));
        else
          attrs.set(name, attr);
      }
      values[node.results[0].index] = graph.add(node.op, operands, attrs, node.location);
    }
    for (const Output& output : sample.graph.outputs)
      graph.outputs.push_back({values[output.value.index], std::nullopt});
  }

  Graph graph;
  std::vector<DenseArray> inputs;
  std::vector<std::int64_t> symbols;

 private:
  std::size_t input_base_ = 0;
};

class EveryOperation : public testing::TestWithParam<int> {};

std::string operation_name(const testing::TestParamInfo<int>& info) { return std::string(name(Op(info.param))); }

}  // namespace

TEST_P(EveryOperation, computes_what_the_evaluator_says) {
  const Op op = Op(GetParam());
  for (DType dtype : sample_dtypes(op)) {
    SCOPED_TRACE(std::string(name(op)) + " of " + std::string(name(dtype)));
    Merger merged;
    for (const Sample& sample : samples(op, dtype)) merged.add(sample);
    const Bound allowed = bound(op, dtype);
    same_as_reference(merged.graph, merged.inputs,
                      {.ulps = allowed.ulps, .scale = allowed.scale, .symbols = merged.symbols});
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, EveryOperation, testing::Range(0, kOpCount), operation_name);

// An optimiser must not know what becomes of a number that the integers have no place for.
TEST(Casts, of_chosen_constants_out_of_range_are_the_evaluators) {
  for (const char* from : {"f32", "f64"})
    for (const char* constant : {"-1.0", "-50.5", "3e9", "-3e9", "1e10", "1e19", "inf", "nan"})
      for (const char* to : {"i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"}) {
        const std::string shape = std::string(from) + "[67]";
        const std::string text = "graph @f(%m: bool[67], %x: " + shape + ") {\n  %0 = constant {value = " + constant +
                                 ", to = " + from + "} : " + from + "[]\n  %1 = broadcast %0 {dims = []} : " + shape +
                                 "\n  %2 = where %m, %1, %x : " + shape + "\n  %3 = cast %2 {to = " + to + "} : " + to +
                                 "[67]\n  return %3\n}";
        SCOPED_TRACE(text);
        const DType dtype = std::string(from) == "f32" ? DType::F32 : DType::F64;
        same_as_reference(text, {sample(DType::Bool, {67}, 1), sample(dtype, {67}, 2, 0, 100)});
      }
}

}  // namespace fj::test
