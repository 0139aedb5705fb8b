#include "tests/codegen/harness.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "graph_ir/parse.h"
#include "graph_ir/print.h"

namespace fj::test {

namespace {

constexpr std::size_t kGuard = 64;  // bytes behind every array, which nobody may write

struct Block {
  int references = 1;
  void* memory = nullptr;
  std::size_t bytes = 0;
};

double read(const DenseArray& array, std::int64_t i, bool imaginary = false) {
  const Scalar scalar = array.scalar(i);
  if (const auto* complex = std::get_if<std::pair<double, double>>(&scalar))
    return imaginary ? complex->second : complex->first;
  if (const auto* real = std::get_if<double>(&scalar)) return *real;
  return 0;
}

/// Distance to the next number of the dtype at `x`.
double unit(DType dtype, double x) {
  int digits = 52, lowest = -1022;
  switch (dtype) {
    case DType::F16: digits = 10, lowest = -14; break;
    case DType::BF16: digits = 7, lowest = -126; break;
    case DType::F32: case DType::C64: digits = 23, lowest = -126; break;
    default: break;
  }
  int exponent = lowest;
  if (x != 0 && std::isfinite(x)) exponent = std::max(lowest, std::ilogb(x));
  return std::ldexp(1.0, exponent - digits);
}

bool near(DType dtype, double actual, double expected, double ulps, double scale) {
  if (std::isnan(expected)) return std::isnan(actual);
  if (actual == expected) return std::signbit(actual) == std::signbit(expected) || ulps > 0;
  if (std::isinf(actual) || std::isinf(expected)) {
    const double finite = std::isinf(actual) ? expected : actual;
    // One step over the border to infinity.
    return ulps > 0 && std::isfinite(finite) && std::fabs(finite) >= (dtype == DType::F16 ? 65000 : 3.3e38);
  }
  return std::fabs(actual - expected) <= ulps * unit(dtype, std::max(std::fabs(expected), scale));
}

}  // namespace

ArrayRef MallocHost::allocate(int, DType dtype, std::span<const std::int64_t> shape, std::span<const std::int64_t>) {
  std::int64_t count = 1;
  for (auto size : shape) count *= size;
  auto* block = new Block;
  const std::size_t bytes = std::size_t(count) * size_in_bytes(dtype);
  block->bytes = bytes;
  block->memory = std::malloc(bytes + kGuard);
  std::memset(block->memory, 0xcd, bytes + kGuard);
  ++alive;
  return {block->memory, block};
}

ArrayRef MallocHost::view(const ArrayRef& array, DType dtype, std::span<const std::int64_t>,
                          std::span<const std::int64_t>, std::int64_t offset) {
  retain(array.object);
  return {static_cast<char*>(array.data) + offset * std::int64_t(size_in_bytes(dtype)), array.object};
}

bool MallocHost::call_extern(std::int64_t, std::span<const ArrayRef> operands, std::span<const std::int64_t>,
                             std::span<ArrayRef> results) {
  // The only function here: a copy of four floats, doubled.
  ++extern_calls;
  results[0] = allocate(-1, DType::F32, std::vector<std::int64_t>{4}, std::vector<std::int64_t>{1});
  for (int i = 0; i < 4; ++i) static_cast<float*>(results[0].data)[i] = 2 * static_cast<float*>(operands[0].data)[i];
  return true;
}

void* MallocHost::stream(int device) { return reinterpret_cast<void*>(std::intptr_t(0x700 + device)); }

void MallocHost::retain(void* object) { ++static_cast<Block*>(object)->references; }

void MallocHost::release(void* object) {
  auto* block = static_cast<Block*>(object);
  if (--block->references) return;
  const auto* guard = static_cast<const unsigned char*>(block->memory) + block->bytes;
  EXPECT_TRUE(std::all_of(guard, guard + kGuard, [](unsigned char byte) { return byte == 0xcd; }))
      << "written behind an array of " << block->bytes << " bytes";
  std::free(block->memory);
  delete block;
  --alive;
}

DenseArray sample(DType dtype, std::vector<std::int64_t> shape, std::uint64_t seed, double low, double high) {
  DenseArray array(dtype, std::move(shape));
  std::uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  auto next = [&] {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return low + (high - low) * (double(state >> 11) / 9007199254740992.0);
  };
  for (std::int64_t i = 0; i < array.element_count(); ++i) {
    const double x = next();
    Scalar scalar;
    switch (category(dtype)) {
      case DTypeCategory::Bool: scalar = x > (low + high) / 2; break;
      case DTypeCategory::Unsigned: scalar = std::uint64_t(std::fabs(x)); break;
      case DTypeCategory::Signed: scalar = std::int64_t(x); break;
      case DTypeCategory::Float: scalar = x; break;
      case DTypeCategory::Complex: scalar = std::pair(x, next()); break;
    }
    const DenseArray one = scalar_array(dtype, scalar);
    std::memcpy(array.element(i), one.data.data(), one.data.size());
  }
  return array;
}

Outcome run_llvm(const Graph& graph, const std::vector<DenseArray>& inputs, std::vector<std::int64_t> symbols,
                 const CompileOptions& options, std::uint32_t trapped) {
  return run_program(*compile_llvm(graph, options), graph, inputs, std::move(symbols), trapped);
}

Outcome run_program(const Program& program, const Graph& graph, const std::vector<DenseArray>& inputs,
                    std::vector<std::int64_t> symbols, std::uint32_t trapped) {
  symbols.resize(graph.symbols.size());
  std::vector<std::vector<std::byte>> memory;
  std::vector<ArrayRef> arrays;
  auto for_each = [](const DenseArray& array, const std::vector<std::int64_t>& strides, auto visit) {
    for (std::int64_t i = 0; i < array.element_count(); ++i) {
      std::int64_t rest = i, offset = 0;
      for (std::size_t d = array.shape.size(); d-- > 0; rest /= array.shape[d])
        offset += rest % array.shape[d] * strides[d];
      visit(i, offset);
    }
  };
  auto strides_of = [&](const std::optional<Strides>& strides, ValueId value) {
    return evaluate(strides ? *strides : contiguous_strides(graph.type(value).shape), symbols);
  };
  std::vector<std::int64_t> definitions = symbols;
  EXPECT_TRUE(evaluate_definitions(graph, definitions));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto strides = strides_of(graph.inputs[i].strides, graph.inputs[i].value);
    const std::size_t bytes = size_in_bytes(inputs[i].dtype);
    std::int64_t low = 0, high = 0;
    for_each(inputs[i], strides,
             [&](std::int64_t, std::int64_t offset) { low = std::min(low, offset), high = std::max(high, offset); });
    memory.emplace_back(std::size_t(high - low + 1) * bytes, std::byte(0xab));
    std::byte* data = memory.back().data() - low * std::int64_t(bytes);
    for_each(inputs[i], strides, [&](std::int64_t at, std::int64_t offset) {
      std::memcpy(data + offset * std::int64_t(bytes), inputs[i].element(at), bytes);
    });
    arrays.push_back({data, nullptr});
  }
  MallocHost host;
  std::vector<ArrayRef> outputs(graph.outputs.size());
  Call call;
  call.host = &host;
  call.inputs = arrays;
  call.symbols = symbols;
  call.outputs = outputs;
  call.trapped = trapped;
  Outcome outcome;
  outcome.status = program.run(call);
  outcome.error = call.error;
  outcome.kernels = program.kernel_count();
  auto gather = [&](void* data, ValueId value, const std::vector<std::int64_t>& strides) {
    DenseArray array(graph.type(value).dtype, evaluate(graph.type(value).shape, symbols));
    const std::size_t bytes = size_in_bytes(array.dtype);
    for_each(array, strides, [&](std::int64_t at, std::int64_t offset) {
      std::memcpy(array.element(at), static_cast<std::byte*>(data) + offset * std::int64_t(bytes), bytes);
    });
    outcome.results.push_back(std::move(array));
  };
  if (outcome.status == kOk) {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      gather(outputs[i].data, graph.outputs[i].value, strides_of(graph.outputs[i].strides, graph.outputs[i].value));
      host.release(outputs[i].object);
    }
  }
  EXPECT_EQ(host.alive, 0) << "arrays leaked";
  for (const Write& write : graph.writes)
    gather(arrays[write.input].data, write.value,
           strides_of(graph.inputs[write.input].strides, graph.inputs[write.input].value));
  return outcome;
}

testing::AssertionResult close(const DenseArray& actual, const DenseArray& expected, double ulps, double scale) {
  if (actual.shape != expected.shape || actual.dtype != expected.dtype)
    return testing::AssertionFailure() << "types differ";
  const bool floats = is_float(expected.dtype) || is_complex(expected.dtype);
  const std::size_t bytes = size_in_bytes(expected.dtype);
  for (std::int64_t i = 0; i < expected.element_count(); ++i) {
    bool equal;
    if (floats)
      equal = near(expected.dtype, read(actual, i), read(expected, i), ulps, scale) &&
              near(expected.dtype, read(actual, i, true), read(expected, i, true), ulps, scale);
    else
      equal = std::memcmp(actual.element(i), expected.element(i), bytes) == 0;
    if (!equal)
      return testing::AssertionFailure() << "element " << i << " of " << expected.element_count() << ": "
                                         << text(actual.scalar(i)) << ", expected " << text(expected.scalar(i));
  }
  return testing::AssertionSuccess();
}

void same_as_reference(const Graph& graph, const std::vector<DenseArray>& inputs, const Check& check) {
  std::vector<std::int64_t> symbols = check.symbols;
  symbols.resize(graph.symbols.size());
  std::vector<DenseArray> expected;
  const std::uint32_t status = evaluate(graph, inputs, symbols, expected) & ~kFloatConditions;
  for (const std::string& level : check.levels) {
    CompileOptions options;
    options.cpu = level;
    options.tier = TierChoice::Quick;
    const Outcome quick = run_llvm(graph, inputs, check.symbols, options);
    options.tier = TierChoice::Optimised;
    const Outcome outcome = run_llvm(graph, inputs, check.symbols, options);
    EXPECT_EQ(quick.status, outcome.status) << "of the quick tier at level '" << level << "'\n" << print(graph);
    for (std::size_t i = 0; i < quick.results.size() && i < outcome.results.size(); ++i)
      EXPECT_TRUE(close(quick.results[i], outcome.results[i], 0))
          << "result " << i << " of the quick tier at level '" << level << "'\n"
          << print(graph);
    ASSERT_EQ(outcome.status, status) << "at level '" << level << "'\n" << print(graph);
    if (status) continue;
    ASSERT_EQ(outcome.results.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(close(outcome.results[i], expected[i], check.ulps, check.scale))
          << "result " << i << " at level '" << level << "'\n"
          << print(graph);
    if (check.kernels >= 0) {
      EXPECT_EQ(outcome.kernels, check.kernels) << "level '" << level << "'\n" << print(graph);
    }
  }
}

void same_as_reference(const std::string& text, const std::vector<DenseArray>& inputs, const Check& check) {
  same_as_reference(parse(text), inputs, check);
}

}  // namespace fj::test
