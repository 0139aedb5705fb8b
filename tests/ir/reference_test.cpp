// The reference back end over a host that counts: strides, extern calls, and that a failed run leaves no trace.
#include <gtest/gtest.h>

#include <cstdlib>

#include "codegen/compile.h"
#include "graph_ir/parse.h"

namespace fj {
namespace {

class FakeHost : public Host {
 public:
  ArrayRef allocate(int output, DType dtype, std::span<const std::int64_t> shape,
                    std::span<const std::int64_t> strides) override {
    if (output == failing_output) return {};
    std::int64_t extent = 1;
    for (std::size_t i = 0; i < shape.size(); ++i) extent += (shape[i] - 1) * strides[i];
    void* data = std::calloc(std::size_t(extent), size_in_bytes(dtype));
    ++live;
    return {data, data};
  }
  ArrayRef view(const ArrayRef&, DType, std::span<const std::int64_t>, std::span<const std::int64_t>,
                std::int64_t) override {
    return {};
  }
  bool call_extern(std::int64_t handle, std::span<const ArrayRef> operands, std::span<const std::int64_t>,
                   std::span<ArrayRef> results) override {
    if (handle < 0) return false;
    const std::int64_t shape[] = {2}, strides[] = {1};
    results[0] = allocate(-1, DType::F32, shape, strides);
    const float* x = static_cast<const float*>(operands[0].data);
    for (int i = 0; i < 2; ++i) static_cast<float*>(results[0].data)[i] = x[i * 3] * 10;
    return true;
  }
  void retain(void*) override { ++live; }
  void release(void* object) override {
    std::free(object);
    --live;
  }

  int failing_output = -2;
  int live = 0;
};

struct Outcome {
  std::uint32_t status;
  std::vector<ArrayRef> outputs;
};

Outcome run(const Graph& graph, FakeHost& host, std::vector<void*> inputs, std::vector<std::int64_t> symbols = {}) {
  std::vector<ArrayRef> arrays;
  for (void* data : inputs) arrays.push_back({data, data});
  Outcome result{0, std::vector<ArrayRef>(graph.outputs.size())};
  Call call{&host, arrays, symbols, result.outputs};
  result.status = compile_reference(graph, {})->run(call);
  return result;
}

TEST(Reference, ReadsAndWritesThroughStrides) {
  FakeHost host;
  float x[] = {1, 2, 3, 4, 5, 6};
  const Graph graph = parse(R"(
    graph @f(%x: f32[s0, 3] strides [1, s0]) where s0 >= 0 {
      %0 = neg %x : f32[s0, 3]
      write %x <- %0
      return %x strides [3, 1], %0 strides [1, s0]
    })");
  const Outcome result = run(graph, host, {x}, {2});
  ASSERT_EQ(result.status, kOk);
  const float* rows = static_cast<const float*>(result.outputs[0].data);
  EXPECT_EQ(std::vector<float>(rows, rows + 6), (std::vector<float>{1, 3, 5, 2, 4, 6}));
  const float* columns = static_cast<const float*>(result.outputs[1].data);
  EXPECT_EQ(std::vector<float>(columns, columns + 6), (std::vector<float>{-1, -2, -3, -4, -5, -6}));
  EXPECT_EQ(std::vector<float>(x, x + 6), (std::vector<float>{-1, -2, -3, -4, -5, -6}));
  EXPECT_EQ(host.live, 2);
  for (const ArrayRef& output : result.outputs) host.release(output.object);
}

const char* const with_extern = R"(
    graph @f(%x: f32[2], %i: i64[1]) {
      %0 = neg %x : f32[2]
      %1 = extern_call %0 {callee = "f", handle = HANDLE, operand_strides = [[3]], result_strides = [contiguous]} : f32[2]
      %2 = gather %1, %i {axis = 0} : f32[1]
      write %x <- %1
      return %2
    })";

Graph graph_with_extern(const char* handle) {
  std::string text = with_extern;
  return parse(text.replace(text.find("HANDLE"), 6, handle));
}

TEST(Reference, GivesExternCallsArraysInTheLayoutTheyAskFor) {
  FakeHost host;
  float x[] = {1, 2};
  std::int64_t index[] = {-1};
  const Outcome result = run(graph_with_extern("7"), host, {x, index});
  ASSERT_EQ(result.status, kOk);
  EXPECT_EQ(*static_cast<const float*>(result.outputs[0].data), -20);
  EXPECT_EQ(x[0], -10);
  EXPECT_EQ(host.live, 1);
  host.release(result.outputs[0].object);
}

TEST(Reference, AFailedRunLeavesNoTrace) {
  for (const char* why : {"extern", "index", "allocation"}) {
    SCOPED_TRACE(why);
    FakeHost host;
    float x[] = {1, 2};
    std::int64_t index[] = {why == std::string("index") ? 2 : 0};
    if (why == std::string("allocation")) host.failing_output = 0;
    const Outcome result = run(graph_with_extern(why == std::string("extern") ? "-1" : "7"), host, {x, index});
    EXPECT_EQ(result.status, why == std::string("index") ? kIndexOutOfRange : kHostFailed);
    EXPECT_EQ(x[0], 1);
    EXPECT_EQ(result.outputs[0].object, nullptr);
    EXPECT_EQ(host.live, 0);
  }
}

}  // namespace
}  // namespace fj
