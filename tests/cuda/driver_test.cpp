// From a graph to calls of the driver: order, streams, contexts, which form is launched, what is waited for, and what
// is said when it fails.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "graph_ir/parse.h"
#include "runtime/base/log.h"
#include "runtime/cuda/driver.h"
#include "tests/cuda/fake_driver.h"
#include "tests/cuda/patterns.h"

namespace fj::test {

namespace {

using Calls = std::vector<std::string>;

const char* kTwoStages = R"(
graph @f(%x: f32[20000]) {
  %0 = mul %x, %x : f32[20000]    ; model.py:40
  %1 = reduce_sum %0 {axes = [0]} : f32[]    ; model.py:41
  return %1
})";

const char* kGather = R"(
graph @f(%x: f32[50, 64], %i: i64[9]) {
  %0 = gather %x, %i {axis = 0} : f32[9, 64]    ; model.py:7
  return %0
})";

DenseArray numbers(std::vector<std::int64_t> values) {
  DenseArray array(DType::I64, {std::int64_t(values.size())});
  std::memcpy(array.data.data(), values.data(), 8 * values.size());
  return array;
}

std::vector<DenseArray> expected(const Graph& graph, const std::vector<DenseArray>& inputs,
                                 std::vector<std::int64_t> symbols = {}) {
  std::vector<DenseArray> results;
  symbols.resize(graph.symbols.size());
  evaluate(graph, inputs, symbols, results);
  return results;
}

/// What was called since the last question, without contexts, modules and functions.
Calls taken(FakeDriver& fake) {
  Calls calls;
  for (const std::string& call : std::exchange(fake.calls, {}))
    if (!call.starts_with("push") && call != "pop" && call != "load" && !call.starts_with("function"))
      calls.push_back(call);
  return calls;
}

}  // namespace

TEST(CudaDriver, launches_in_order_on_the_library_s_stream_and_waits_for_nothing) {
  FakeDriver fake;
  std::string reason;
  const Graph graph = parse(kTwoStages);
  const auto program = compile_cuda(graph, fake.options(), reason);
  ASSERT_TRUE(program) << reason;
  const std::vector<DenseArray> inputs{sample(DType::F32, {20000}, 1)};
  for (int run = 0; run < 2; ++run) {
    const Outcome outcome = run_program(*program, graph, inputs, {});
    ASSERT_EQ(outcome.status, kOk) << outcome.error;
    EXPECT_TRUE(close(outcome.results[0], expected(graph, inputs)[0], 20));
  }
  EXPECT_EQ(fake.calls,
            (Calls{"push 101", "load", "function kernel0", "launch kernel0 of 5 x 256 on 701", "function kernel1",
                   "launch kernel1 of 1 x 256 on 701", "pop",  // the second run finds both
                   "push 101", "launch kernel0 of 5 x 256 on 701", "launch kernel1 of 1 x 256 on 701", "pop"}));
  EXPECT_EQ(fake.compiled, 1);
}

TEST(CudaDriver, a_launch_that_can_not_take_16_bytes_at_once_gets_the_other_form) {
  FakeDriver fake;
  std::string reason;
  const Graph graph = parse(R"(
graph @f(%x: f32[s0, s1]) where s0 >= 0, s1 >= 0 {
  %0 = reduce_max %x {axes = [1]} : f32[s0]
  %1 = broadcast %0 {dims = [0], shape = [s0, s1]} : f32[s0, s1]
  %2 = sub %x, %1 : f32[s0, s1]
  return %2
})");
  const auto program = compile_cuda(graph, fake.options(), reason);
  ASSERT_TRUE(program) << reason;
  EXPECT_EQ(fake.compiled, 1);
  for (std::int64_t columns : {64, 63}) {
    const std::vector<DenseArray> inputs{sample(DType::F32, {5, columns}, 1)};
    fake.calls.clear();
    const Outcome outcome = run_program(*program, graph, inputs, {5, columns});
    ASSERT_EQ(outcome.status, kOk) << outcome.error;
    EXPECT_TRUE(close(outcome.results[0], expected(graph, inputs, {5, columns})[0], 0));
    EXPECT_NE(fake.calls[fake.calls.size() - 2].find(columns == 64 ? "launch kernel0" : "launch single0"),
        std::string::npos) << fake.calls[fake.calls.size() - 2];
  }
  EXPECT_EQ(fake.compiled, 2);
}

TEST(CudaDriver, nothing_is_launched_for_nothing) {
  FakeDriver fake;
  std::string reason;
  const Graph graph = parse("graph @f(%x: f32[s0]) where s0 >= 0 {\n  %0 = neg %x : f32[s0]\n  return %0\n}");
  const auto program = compile_cuda(graph, fake.options(), reason);
  ASSERT_TRUE(program) << reason;
  EXPECT_EQ(run_program(*program, graph, {sample(DType::F32, {0}, 1)}, {0}).status, kOk);
  EXPECT_EQ(fake.calls, (Calls{"push 101", "pop"}));
}

TEST(CudaDriver, a_program_that_can_fail_waits_once_for_its_status) {
  FakeDriver fake;
  std::string reason;
  const Graph graph = parse(kGather);
  const auto program = compile_cuda(graph, fake.options(), reason);
  ASSERT_TRUE(program) << reason;
  const DenseArray x = sample(DType::F32, {50, 64}, 1);
  EXPECT_EQ(run_program(*program, graph, {x, numbers({0, 1, 2, 3, -50, 49, 6, 7, 8})}, {}).status, kOk);
  EXPECT_EQ(fake.calls, (Calls{"push 101", "set on 701", "load", "function kernel0", "launch kernel0 of 1 x 256 on 701",
                               "copy on 701", "wait for 701", "pop"}));
  EXPECT_EQ(run_program(*program, graph, {x, numbers({0, 1, 2, 3, 50, 5, 6, 7, 8})}, {}).status, kIndexOutOfRange);
}

TEST(CudaDriver, the_status_is_known_before_an_input_is_written) {
  FakeDriver fake;
  std::string reason;
  const Graph graph = parse(R"(
graph @f(%x: f32[50], %i: i64[50]) {
  %0 = gather %x, %i {axis = 0} : f32[50]
  write %x <- %0
  return %0
})");
  const auto program = compile_cuda(graph, fake.options(), reason);
  ASSERT_TRUE(program) << reason;
  const DenseArray x = sample(DType::F32, {50}, 1);
  std::vector<std::int64_t> indices(50, 3);
  const Outcome done = run_program(*program, graph, {x, numbers(indices)}, {});
  ASSERT_EQ(done.status, kOk);
  EXPECT_EQ(done.results.back().scalar(0), x.scalar(3));
  const auto wait = std::find(fake.calls.begin(), fake.calls.end(), "wait for 701");
  EXPECT_TRUE(std::any_of(wait, fake.calls.end(), [](const std::string& call) { return call.starts_with("launch");
      })) << "the input is written after the wait";
  indices[7] = 50;
  const Outcome failed = run_program(*program, graph, {x, numbers(indices)}, {});
  EXPECT_EQ(failed.status, kIndexOutOfRange);
  EXPECT_EQ(failed.results.back(), x);
}

TEST(CudaDriver, an_error_names_the_kernel_and_the_line_and_leaves_the_context) {
  const Graph graph = parse(kTwoStages);
  const std::vector<DenseArray> inputs{sample(DType::F32, {20000}, 1)};
  struct Case {
    std::string failing, error;
    Calls calls;
  };
  const Case cases[] = {
      {"push", "CUDA error 700 (an illegal memory access was encountered) making device 1 current", {"push 101"}},
      {"load",
       "CUDA error 700 (an illegal memory access was encountered) loading kernel0 (model.py:41)",
       {"push 101", "load", "pop"}},
      {"function",
       "CUDA error 700 (an illegal memory access was encountered) finding kernel0 (model.py:41)",
       {"push 101", "load", "function kernel0", "pop"}},
      {"launch",
       "CUDA error 700 (an illegal memory access was encountered) launching kernel0 (model.py:41)",
       {"push 101", "load", "function kernel0", "launch kernel0 of 5 x 256 on 701", "pop"}},
  };
  for (const Case& failure : cases) {
    FakeDriver fake;
    std::string reason;
    const auto program = compile_cuda(graph, fake.options(), reason);
    fake.failing = failure.failing, fake.code = 700;
    const Outcome outcome = run_program(*program, graph, inputs, {});
    EXPECT_EQ(outcome.status, kDeviceFailed);
    EXPECT_EQ(outcome.error, failure.error);
    EXPECT_EQ(fake.calls, failure.calls) << failure.failing;
  }
}

TEST(CudaDriver, a_kernel_that_fails_is_told_by_the_wait) {
  FakeDriver fake;
  std::string reason;
  const Graph graph = parse(kGather);
  const auto program = compile_cuda(graph, fake.options(), reason);
  fake.failing = "wait", fake.code = 700;
  const Outcome outcome =
      run_program(*program, graph, {sample(DType::F32, {50, 64}, 1), numbers({0, 1, 2, 3, 4, 5, 6, 7, 8})}, {});
  EXPECT_EQ(outcome.status, kDeviceFailed);
  EXPECT_EQ(outcome.error,
            "CUDA error 700 (an illegal memory access was encountered) running the program up to kernel0 (model.py:7)");
}

TEST(CudaDriver, numbers_of_the_host_are_copied_to_the_device_at_once) {
  FakeDriver fake;
  std::string reason;
  const Graph graph = parse(R"(
graph @f(%x: f32[40], %a: f64[], %b: f32[]) {
  %0 = cast %a {to = f32} : f32[]
  %1 = mul %0, %b : f32[]
  %2 = broadcast %1 {dims = [], shape = [40]} : f32[40]
  %3 = mul %x, %2 : f32[40]
  return %3
})");
  CudaOptions options = fake.options();
  options.host_inputs = {false, true, true};
  const auto program = compile_cuda(graph, options, reason);
  ASSERT_TRUE(program) << reason;
  const std::vector<DenseArray> inputs{sample(DType::F32, {40}, 1), sample(DType::F64, {}, 2),
                                       sample(DType::F32, {}, 3)};
  const Outcome outcome = run_program(*program, graph, inputs, {});
  ASSERT_EQ(outcome.status, kOk) << outcome.error;
  EXPECT_TRUE(close(outcome.results[0], expected(graph, inputs)[0], 1));
  EXPECT_EQ(fake.calls, (Calls{"push 101", "upload 32 on 701", "load", "function kernel0",
                               "launch kernel0 of 1 x 256 on 701", "pop"}));
}

TEST(CudaDriver, library_calls_run_between_kernels_with_the_library_s_own_device_current) {
  FakeDriver fake;
  std::string reason;
  const Graph graph = parse(R"(
graph @f(%x: f32[4]) {
  %0 = add %x, %x : f32[4]
  %1 = extern_call %0 {callee = "double", handle = 7, operand_strides = [[1]], result_strides = [[1]]} : f32[4]
  %2 = sub %1, %x : f32[4]
  return %2, %1
})");
  const auto program = compile_cuda(graph, fake.options(), reason);
  ASSERT_TRUE(program) << reason;
  const DenseArray x = sample(DType::F32, {4}, 1);
  const Outcome outcome = run_program(*program, graph, {x}, {});
  ASSERT_EQ(outcome.status, kOk) << outcome.error;
  for (int i = 0; i < 4; ++i) {
    const double value = std::get<double>(x.scalar(i));
    EXPECT_FLOAT_EQ(float(std::get<double>(outcome.results[1].scalar(i))), float(4 * value));
    EXPECT_FLOAT_EQ(float(std::get<double>(outcome.results[0].scalar(i))), float(3 * value));
  }
  EXPECT_EQ(fake.calls, (Calls{"push 101", "load", "function kernel0", "launch kernel0 of 1 x 256 on 701", "pop",
                               "push 101", "function kernel1", "launch kernel1 of 1 x 256 on 701", "pop"}));
}

TEST(CudaDriver, what_kernels_report_is_known_before_a_library_call) {
  FakeDriver fake;
  std::string reason;
  const Graph graph = parse(R"(
graph @f(%x: f32[50], %i: i64[4]) {
  %0 = gather %x, %i {axis = 0} : f32[4]
  %1 = extern_call %0 {callee = "double", handle = 7, operand_strides = [[1]], result_strides = [[1]]} : f32[4]
  return %1
})");
  const auto program = compile_cuda(graph, fake.options(), reason);
  ASSERT_TRUE(program) << reason;
  const DenseArray x = sample(DType::F32, {50}, 1);
  EXPECT_EQ(run_program(*program, graph, {x, numbers({0, 1, 2, 3})}, {}).status, kOk);
  fake.calls.clear();
  EXPECT_EQ(run_program(*program, graph, {x, numbers({0, 1, 2, 50})}, {}).status, kIndexOutOfRange);
  EXPECT_EQ(fake.calls, (Calls{"push 101", "set on 701", "launch kernel0 of 1 x 256 on 701", "copy on 701",
                               "wait for 701", "pop"}));
}

TEST(CudaDriver, equal_kernels_are_one_text) {
  FakeDriver fake;
  std::string reason;
  const Graph graph = parse(R"(
graph @f(%x: f32[64, 32], %y: f32[64, 32]) {
  %0 = reduce_sum %x {axes = [1]} : f32[64]
  %1 = reduce_sum %y {axes = [1]} : f32[64]
  return %0, %1
})");
  const auto program = compile_cuda(graph, fake.options(), reason);
  ASSERT_TRUE(program) << reason;
  const std::vector<DenseArray> inputs{sample(DType::F32, {64, 32}, 1), sample(DType::F32, {64, 32}, 2)};
  const Outcome outcome = run_program(*program, graph, inputs, {});
  for (int i : {0, 1})
    EXPECT_TRUE(close(outcome.results[std::size_t(i)], expected(graph, inputs)[std::size_t(i)], 8, 64));
  EXPECT_EQ(std::count(fake.calls.begin(), fake.calls.end(), "function kernel0"), 1);
  EXPECT_EQ(std::count(fake.calls.begin(), fake.calls.end(), "function kernel1"), 0);
}

// ---- small kernels of the same work are one launch

TEST(CudaBatch, kernels_of_the_same_work_are_one_launch_whatever_their_lengths) {
  const Graph graph = parse(R"(
graph @f(%a: f32[40], %b: f32[1003], %c: f32[64, 3], %d: f32[40], %e: f32[1003], %f: f32[64, 3], %g: f32[40]) {
  %0 = add %a, %d : f32[40]    ; model.py:3
  %1 = add %b, %e : f32[1003]
  %2 = add %c, %f : f32[64, 3]
  %3 = neg %g : f32[40]
  write %a <- %0
  write %b <- %1
  write %c <- %2
  return %3
})");
  std::vector<DenseArray> inputs;
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{40}, {1003}, {64, 3}, {40}, {1003}, {64, 3}, {40}})
    inputs.push_back(sample(DType::F32, shape, inputs.size()));
  for (const bool graphs : {false, true}) {
    FakeDriver fake;
    std::string reason;
    CudaOptions options = fake.options();
    options.graphs = graphs;
    const auto program = compile_cuda(graph, options, reason);
    ASSERT_TRUE(program) << reason;
    for (int run = 0; run < 3; ++run) {
      const Outcome outcome = run_program(*program, graph, inputs, {});
      ASSERT_EQ(outcome.status, kOk) << outcome.error;
      const auto wanted = expected(graph, inputs);
      ASSERT_EQ(outcome.results.size(), wanted.size());
      for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(close(outcome.results[i], wanted[i], 0)) << i;
      const Calls calls = taken(fake);
      if (graphs && run > 0) {
        EXPECT_EQ(calls.back(), "launch graph kernel0 kernel1 on 701");
        continue;
      }
      EXPECT_EQ(calls.size(), 2);
      EXPECT_EQ(std::count_if(calls.begin(), calls.end(),
                              [](const std::string& call) { return call.ends_with(" of 3 x 256 on 701"); }),
                1)
          << calls[0] << calls[1];
    }
  }
}

TEST(CudaBatch, a_launch_takes_as_many_kernels_as_fit_its_parameters) {
  FakeDriver fake;
  std::string parameters, body, results, reason;
  for (int i = 0; i < 300; ++i) {
    const std::string n = std::to_string(i), size = std::to_string(1 + i % 7);
    parameters += (i ? ", %x" : "%x") + n + ": f32[" + size + "]";
    body += "  %" + n + " = neg %x" + n + " : f32[" + size + "]\n";
    results += (i ? ", %" : "%") + n;
  }
  const Graph graph = parse("graph @f(" + parameters + ") {\n" + body + "  return " + results + "\n}");
  std::vector<DenseArray> inputs;
  for (int i = 0; i < 300; ++i) inputs.push_back(sample(DType::F32, {1 + i % 7}, std::uint64_t(i)));
  const auto program = compile_cuda(graph, fake.options(), reason);
  ASSERT_TRUE(program) << reason;
  const Outcome outcome = run_program(*program, graph, inputs, {});
  ASSERT_EQ(outcome.status, kOk) << outcome.error;
  const auto wanted = expected(graph, inputs);
  for (std::size_t i = 0; i < 300; ++i) EXPECT_TRUE(close(outcome.results[i], wanted[i], 0)) << i;
  // 448 numbers: the rows have two buffers and a length.
  EXPECT_EQ(program->kernel_count(), 3);
  EXPECT_EQ(taken(fake).size(), 3);
}

TEST(CudaBatch, what_one_of_the_kernels_reports_fails_the_program) {
  FakeDriver fake;
  std::string reason;
  const Graph graph = parse(R"(
graph @f(%x: f32[50, 64], %y: f32[50, 64], %i: i64[3], %j: i64[3]) {
  %0 = gather %x, %i {axis = 0} : f32[3, 64]
  %1 = gather %y, %j {axis = 0} : f32[3, 64]
  return %0, %1
})");
  const auto program = compile_cuda(graph, fake.options(), reason);
  ASSERT_TRUE(program) << reason;
  EXPECT_EQ(program->kernel_count(), 1);
  const DenseArray x = sample(DType::F32, {50, 64}, 1), y = sample(DType::F32, {50, 64}, 2);
  for (const std::int64_t last : {49, 50}) {
    const std::vector<DenseArray> inputs{x, y, numbers({0, 1, 2}), numbers({3, 4, last})};
    const Outcome outcome = run_program(*program, graph, inputs, {});
    EXPECT_EQ(outcome.status, last == 50 ? std::uint32_t(kIndexOutOfRange) : std::uint32_t(kOk));
    if (last == 49)
      for (std::size_t i : {0, 1}) EXPECT_TRUE(close(outcome.results[i], expected(graph, inputs)[i], 0));
  }
}

TEST(CudaDriver, machine_code_is_found_on_disk) {
  std::string folder = testing::TempDir() + "framejit-cubin-XXXXXX", reason;
  ASSERT_TRUE(mkdtemp(folder.data()));
  const Graph graph = parse(kTwoStages);
  const std::vector<DenseArray> inputs{sample(DType::F32, {20000}, 1)};
  for (int process = 0; process < 2; ++process) {
    FakeDriver fake;
    CudaOptions options = fake.options();
    options.cache_folder = folder, options.cache_bytes = 1 << 20;
    const auto program = compile_cuda(graph, options, reason);
    EXPECT_EQ(fake.compiled, process == 0 ? 1 : 0);
    EXPECT_TRUE(close(run_program(*program, graph, inputs, {}).results[0], expected(graph, inputs)[0], 20));
  }
  std::filesystem::remove_all(folder);
}

TEST(CudaDriver, what_has_no_form_is_said) {
  FakeDriver fake;
  std::string reason;
  EXPECT_FALSE(compile_cuda(parse("graph @f(%x: c64[8]) {\n  %0 = add %x, %x : c64[8]\n  return %0\n}"), fake.options(),
                            reason));
  EXPECT_EQ(reason, "complex numbers have no CUDA kernels");
  EXPECT_FALSE(
      compile_cuda(parse("graph @f(%x: f32[512, 512]) {\n  %0 = matmul %x, %x : f32[512, 512]\n  return %0\n}"),
                   fake.options(), reason));
  EXPECT_EQ(reason, "matrix products of a CUDA device are not taken into compiled programs");
}

TEST(CudaDriver, more_arrays_than_parameters_have_no_form) {
  FakeDriver fake;
  std::string reason, graph = "graph @f(", list;
  for (int i = 0; i < 500; ++i) {
    graph += (i ? ", %x" : "%x") + std::to_string(i) + ": f32[3]";
    list += (i ? ", %x" : "%x") + std::to_string(i);
  }
  graph += ") {\n  %0 = concat " + list + " {axis = 0} : f32[1500]\n  %1 = neg %0 : f32[1500]\n  return %1\n}";
  EXPECT_FALSE(compile_cuda(parse(graph), fake.options(), reason));
  EXPECT_EQ(reason, "more arrays in one kernel than CUDA takes parameters");
}

// ---- mode="reduce-overhead"

namespace {

const char* kRows = R"(
graph @f(%x: f32[s0, 64]) where s0 >= 0 {
  %0 = reduce_sum %x {axes = [1]} : f32[s0]    ; model.py:3
  %1 = cumsum %0 {axis = 0} : f32[s0]    ; model.py:4
  return %1, %0
})";

std::unique_ptr<Program> joined(FakeDriver& fake, const Graph& graph) {
  std::string reason;
  CudaOptions options = fake.options();
  options.graphs = true;
  auto program = compile_cuda(graph, options, reason);
  EXPECT_TRUE(program) << reason;
  return program;
}

class Logged {
 public:
  Logged() {
    set_logs("fallbacks");
    set_log_sink([this](Artifact, LogLevel, const std::string& text) { lines.push_back(text); });
  }
  ~Logged() {
    set_log_sink({});
    set_logs("");
  }
  Calls lines;
};

}  // namespace

TEST(CudaGraphs, launches_that_come_again_are_one_graph_whose_parameters_are_the_run_s) {
  FakeDriver fake;
  const Graph graph = parse(kRows);
  auto program = joined(fake, graph);
  for (int run = 0; run < 5; ++run) {
    const std::int64_t rows = run < 3 ? 5 : 40 * run;
    const std::vector<DenseArray> inputs{sample(DType::F32, {rows, 64}, std::uint64_t(run))};
    const Outcome outcome = run_program(*program, graph, inputs, {rows});
    ASSERT_EQ(outcome.status, kOk) << outcome.error;
    for (std::size_t i : {0, 1})
      EXPECT_TRUE(close(outcome.results[i], expected(graph, inputs, {rows})[i], 40, 64)) << run;
    const Calls calls = taken(fake);
    if (run == 0) {
      EXPECT_EQ(calls.size(), 2u);
      EXPECT_TRUE(calls[0].starts_with("launch kernel0 of 5 x ") && calls[1].starts_with("launch kernel1 of 1 x "))
          << calls[0] << calls[1];
    } else if (run == 1) {
      ASSERT_EQ(calls.size(), 5u);
      EXPECT_EQ(calls[0], "graph");
      EXPECT_TRUE(calls[1].starts_with("node kernel0 of 5 x ") && calls[2].starts_with("node kernel1 of 1 x "));
      EXPECT_EQ(calls[3], "instantiate");
      EXPECT_EQ(calls[4], "launch graph kernel0 kernel1 on 701");
    } else {
      EXPECT_EQ(calls.back(), "launch graph kernel0 kernel1 on 701");
      for (std::size_t i = 0; i + 1 < calls.size(); ++i) EXPECT_TRUE(calls[i].starts_with("set kernel")) << calls[i];
    }
    if (run >= 3)
      EXPECT_TRUE(calls[0].starts_with("set kernel0 of " + std::to_string(run == 3 ? 120 : 128) + " x ")) << calls[0];
  }
  EXPECT_EQ(fake.graphs, 1);
  program.reset();
  EXPECT_EQ(fake.graphs, 0);
  EXPECT_EQ(fake.executables, 0);
  EXPECT_EQ(fake.capture_mode, 0);
}

TEST(CudaGraphs, what_the_driver_refuses_is_launched_one_by_one_and_said_once) {
  const Graph graph = parse(kTwoStages);
  const std::vector<DenseArray> inputs{sample(DType::F32, {20000}, 1)};
  for (const std::string failing : {"graph", "node", "instantiate", "graph launch"}) {
    FakeDriver fake;
    const auto program = joined(fake, graph);
    const Logged logged;
    fake.failing = failing, fake.code = 2;
    for (int run = 0; run < 4; ++run) {
      const Outcome outcome = run_program(*program, graph, inputs, {});
      ASSERT_EQ(outcome.status, kOk) << failing << ": " << outcome.error;
      EXPECT_TRUE(close(outcome.results[0], expected(graph, inputs)[0], 20));
      const Calls calls = taken(fake);
      EXPECT_EQ(Calls(calls.end() - 2, calls.end()),
                (Calls{"launch kernel0 of 5 x 256 on 701", "launch kernel1 of 1 x 256 on 701"}))
          << failing;
      EXPECT_EQ(calls.size() > 2, run == 1) << failing;
    }
    EXPECT_EQ(fake.executables, 0);
    EXPECT_EQ(fake.graphs, 0);
    EXPECT_EQ(logged.lines,
              (Calls{"CUDA error 2 (out of memory) making a graph of 2 launches: they are made one by one"}));
  }
}

TEST(CudaGraphs, an_update_that_is_refused_is_launched_one_by_one) {
  FakeDriver fake;
  const Graph graph = parse(kRows);
  const auto program = joined(fake, graph);
  for (int run = 0; run < 4; ++run) {
    const std::int64_t rows = 5 + 40 * run;
    fake.failing = run == 2 ? "set node" : "", fake.code = 1;
    const std::vector<DenseArray> inputs{sample(DType::F32, {rows, 64}, std::uint64_t(run))};
    const Outcome outcome = run_program(*program, graph, inputs, {rows});
    ASSERT_EQ(outcome.status, kOk) << outcome.error;
    for (std::size_t i : {0, 1})
      EXPECT_TRUE(close(outcome.results[i], expected(graph, inputs, {rows})[i], 40, 64)) << run;
    EXPECT_EQ(taken(fake).back().starts_with("launch graph"), run == 1);
  }
  EXPECT_EQ(fake.executables, 0);
}

TEST(CudaGraphs, an_error_names_the_kernel_that_is_launched) {
  FakeDriver fake;
  const Graph graph = parse(kTwoStages);
  const auto program = joined(fake, graph);
  fake.failing = "launch", fake.code = 700;
  const Outcome outcome = run_program(*program, graph, {sample(DType::F32, {20000}, 1)}, {});
  EXPECT_EQ(outcome.status, kDeviceFailed);
  EXPECT_EQ(outcome.error, "CUDA error 700 (an illegal memory access was encountered) launching kernel0 (model.py:41)");
  EXPECT_EQ(fake.calls.back(), "pop");
}

TEST(CudaGraphs, what_the_user_records_is_recorded_as_launches) {
  FakeDriver fake;
  const Graph graph = parse(kTwoStages);
  const auto program = joined(fake, graph);
  const std::vector<DenseArray> inputs{sample(DType::F32, {20000}, 1)};
  for (int run = 0; run < 4; ++run) {
    fake.capturing = run == 3;
    ASSERT_EQ(run_program(*program, graph, inputs, {}).status, kOk);
    const Calls calls = taken(fake);
    if (run == 2) EXPECT_EQ(calls.back(), "launch graph kernel0 kernel1 on 701");
    if (run == 3) EXPECT_EQ(calls, (Calls{"launch kernel0 of 5 x 256 on 701", "launch kernel1 of 1 x 256 on 701"}));
  }
}

TEST(CudaGraphs, launches_are_issued_before_library_calls_and_before_the_status_is_read) {
  FakeDriver fake;
  const Graph graph = parse(R"(
graph @f(%x: f32[20000], %i: i64[1]) {
  %9 = reduce_sum %x {axes = [0]} : f32[]
  %0 = reshape %9 {shape = [1]} : f32[1]
  %1 = gather %0, %i {axis = 0} : f32[1]
  %2 = extern_call %1 {callee = "double", handle = 7, operand_strides = [[1]], result_strides = [[1]]} : f32[1]
  %3 = neg %2 : f32[1]
  return %3
})");
  const auto program = joined(fake, graph);
  for (int run = 0; run < 3; ++run) {
    const std::vector<DenseArray> inputs{sample(DType::F32, {20000}, std::uint64_t(run)), numbers({run == 2 ? 1 : 0})};
    const Outcome outcome = run_program(*program, graph, inputs, {});
    EXPECT_EQ(outcome.status, run == 2 ? std::uint32_t(kIndexOutOfRange) : std::uint32_t(kOk));
    const Calls calls = taken(fake);
    const auto wait = std::find(calls.begin(), calls.end(), "wait for 701");
    ASSERT_NE(wait, calls.end());
    const auto launch = std::find_if(calls.begin(), calls.end(),
                                     [](const std::string& call) { return call.starts_with("launch graph"); });
    if (run == 0) EXPECT_EQ(launch, calls.end());
    if (run > 0) EXPECT_LT(launch, wait);
    EXPECT_EQ(wait + 1 == calls.end(), run == 2) << "what follows the library's call";
  }
}

TEST(CudaGraphs, without_the_driver_s_functions_launches_are_as_ever) {
  FakeDriver fake;
  fake.table().graph_set_kernel = nullptr;
  const Logged logged;
  const Graph graph = parse(kTwoStages);
  const std::vector<DenseArray> inputs{sample(DType::F32, {20000}, 1)};
  CudaOptions options = fake.options();
  options.graphs = true;
  for (int program = 0; program < 2; ++program) {
    std::string reason;
    const auto made = compile_cuda(graph, options, reason);
    for (int run = 0; run < 3; ++run) {
      ASSERT_EQ(run_program(*made, graph, inputs, {}).status, kOk);
      EXPECT_EQ(taken(fake), (Calls{"launch kernel0 of 5 x 256 on 701", "launch kernel1 of 1 x 256 on 701"}));
    }
  }
  EXPECT_EQ(logged.lines, (Calls{"mode reduce-overhead launches kernels one by one: libcuda has no "
                                 "cuGraphExecKernelNodeSetParams; NVIDIA's driver is too "
                                 "old for graphs"}));
}

// ---- mode="max-autotune"

namespace {

const char* kSoftmax = R"(
graph @f(%x: f32[600, 512]) {
  %0 = reduce_max %x {axes = [1]} : f32[600]
  %1 = broadcast %0 {dims = [0], shape = [600, 512]} : f32[600, 512]
  %2 = sub %x, %1 : f32[600, 512]    ; model.py:5
  %3 = mul %2, %2 : f32[600, 512]
  write %x <- %3
  return %0
})";

std::unique_ptr<Program> measured(FakeDriver& fake, const Graph& graph, const std::string& folder = {}) {
  std::string reason;
  CudaOptions options = fake.options();
  options.measured = true;
  options.cache_folder = folder, options.cache_bytes = folder.empty() ? 0 : 1 << 20;
  auto program = compile_cuda(graph, options, reason);
  EXPECT_TRUE(program) << reason;
  return program;
}

}  // namespace

TEST(CudaMeasured, the_fastest_form_is_kept_and_nothing_of_the_user_s_is_written_twice) {
  std::string folder = testing::TempDir() + "framejit-measured-XXXXXX";
  ASSERT_TRUE(mkdtemp(folder.data()));
  const Graph graph = parse(kSoftmax);
  const std::vector<DenseArray> inputs{sample(DType::F32, {600, 512}, 1)};
  for (int process = 0; process < 2; ++process) {
    FakeDriver fake;
    fake.cost = [](const std::string&, unsigned threads) { return threads == 128 ? 1.0f : 2.0f; };
    const auto program = measured(fake, graph, folder);
    for (int run = 0; run < 3; ++run) {
      const Outcome outcome = run_program(*program, graph, inputs, {});
      ASSERT_EQ(outcome.status, kOk) << outcome.error;
      for (std::size_t i : {0, 1}) EXPECT_TRUE(close(outcome.results[i], expected(graph, inputs)[i], 4)) << run;
      const Calls calls = taken(fake);
      const bool measures = process == 0 && run == 0;
      EXPECT_EQ(std::count(calls.begin(), calls.end(), "wait for event") > 0, measures);
      EXPECT_EQ(std::count(calls.begin(), calls.end(), "allocate") > 0, measures);
      EXPECT_NE(calls.back().find(" x 128 on 701"), std::string::npos) << calls.back();
    }
    EXPECT_EQ(fake.blocks, 0);
    EXPECT_EQ(fake.events, 0);
  }
  std::filesystem::remove_all(folder);
}

TEST(CudaMeasured, what_can_not_be_measured_is_the_model_s) {
  const Graph graph = parse(kSoftmax);
  const std::vector<DenseArray> inputs{sample(DType::F32, {600, 512}, 1)};
  for (const std::string failing : {"allocate", "copy on device", "event wait", "capture", "no functions", "equal"}) {
    FakeDriver fake;
    fake.cost = [&](const std::string&, unsigned threads) {
      return threads == 128 && failing != "equal" ? 1.0f : 2.0f;
    };
    if (failing == "no functions") fake.table().event_elapsed = nullptr;
    const auto program = measured(fake, graph);
    fake.failing = failing, fake.code = 2;
    fake.capturing = failing == "capture";
    for (int run = 0; run < 3; ++run) {
      const Outcome outcome = run_program(*program, graph, inputs, {});
      ASSERT_EQ(outcome.status, kOk) << failing << outcome.error;
      for (std::size_t i : {0, 1}) EXPECT_TRUE(close(outcome.results[i], expected(graph, inputs)[i], 4)) << run;
      const Calls calls = taken(fake);
      EXPECT_NE(calls.back().find(" x 256 on 701"), std::string::npos) << failing << calls.back();
      if (run > 0) EXPECT_EQ(std::count(calls.begin(), calls.end(), "allocate"), 0) << failing;
    }
    EXPECT_EQ(fake.blocks, 0) << failing;
    EXPECT_EQ(fake.events, 0) << failing;
  }
}

TEST(CudaMeasured, a_run_in_which_there_is_nothing_to_choose_leaves_it_open) {
  FakeDriver fake;
  fake.cost = [](const std::string&, unsigned threads) { return float(threads); };
  const Graph graph = parse(
      "graph @f(%x: f32[s0, s1]) where s0 >= 0, s1 >= 0 {\n  %0 = reduce_max %x {axes = [1]} : f32[s0]\n  return "
      "%0\n}");
  const auto program = measured(fake, graph);
  for (const auto& [rows, columns] :
       {std::pair<std::int64_t, std::int64_t>{0, 512}, {20, 511}, {20, 512}, {20, 511}, {20, 512}}) {
    const std::vector<DenseArray> inputs{sample(DType::F32, {rows, columns}, 1)};
    const Outcome outcome = run_program(*program, graph, inputs, {rows, columns});
    ASSERT_EQ(outcome.status, kOk) << outcome.error;
    EXPECT_TRUE(close(outcome.results[0], expected(graph, inputs, {rows, columns})[0], 0));
    const Calls calls = taken(fake);
    const auto measurements = std::count(calls.begin(), calls.end(), "wait for event");
    if (rows == 0) EXPECT_EQ(calls, Calls());
    if (columns == 511) EXPECT_EQ(measurements, 0);
  }
  EXPECT_EQ(fake.blocks, 0);
}

namespace {

const char* kRowMaxima = "graph @f(%x: f32[3, 512]) {\n  %0 = reduce_max %x {axes = [1]} : f32[3]\n  return %0\n}";

}  // namespace

TEST(CudaMeasured, what_was_measured_holds_for_all_equal_kernels_of_the_device) {
  FakeDriver fake;
  fake.cost = [](const std::string&, unsigned threads) { return threads == 128 ? 1.0f : 2.0f; };
  const Graph graph = parse(kRowMaxima);
  const std::vector<DenseArray> inputs{sample(DType::F32, {3, 512}, 1)};
  CudaOptions options = fake.options();
  options.measured = true;
  std::string reason;
  const auto before = compile_cuda(graph, options, reason), same = compile_cuda(graph, options, reason);
  for (int run = 0; run < 3; ++run) {
    // The second was compiled when nothing was known, the third is when it is.
    const auto after = run == 2 ? compile_cuda(graph, options, reason) : nullptr;
    const Program& program = run == 0 ? *before : run == 1 ? *same : *after;
    EXPECT_TRUE(close(run_program(program, graph, inputs, {}).results[0], expected(graph, inputs)[0], 0));
    const Calls calls = taken(fake);
    EXPECT_EQ(calls.size() > 1, run == 0);
    EXPECT_NE(calls.back().find(" x 128 on 701"), std::string::npos) << calls.back();
  }
}

TEST(CudaMeasured, while_one_thread_measures_another_launches_the_model_s_form) {
  FakeDriver fake;
  const Graph graph = parse(kRowMaxima);
  const auto program = measured(fake, graph);
  const std::vector<DenseArray> inputs{sample(DType::F32, {3, 512}, 1)};
  bool other = false;
  fake.cost = [&](const std::string&, unsigned threads) {
    if (!std::exchange(other, true)) {
      // In the place of another thread: in the middle of the first measured launch.
      fake.calls.clear();
      EXPECT_TRUE(close(run_program(*program, graph, inputs, {}).results[0], expected(graph, inputs)[0], 0));
      EXPECT_EQ(taken(fake), (Calls{"launch kernel0 of 3 x 256 on 701"}));
    }
    return threads == 128 ? 1.0f : 2.0f;
  };
  EXPECT_TRUE(close(run_program(*program, graph, inputs, {}).results[0], expected(graph, inputs)[0], 0));
  EXPECT_NE(taken(fake).back().find(" x 128 on 701"), std::string::npos);
}

TEST(CudaMeasured, what_takes_long_is_measured_less_often) {
  const Graph graph = parse(kRowMaxima);
  const std::vector<DenseArray> inputs{sample(DType::F32, {3, 512}, 1)};
  // Milliseconds of a launch: with three forms, and the launch of the run itself.
  for (const auto& [cost, launches] : {std::pair{0.01f, 3 * (1 + 3 * 10) + 1},
                                       {1.0f, 3 * (1 + 3) + 1},
                                       {5.0f, 3 * 2 + 1},
                                       {30.0f, 4 + 1},
                                       {200.0f, 1 + 1}}) {
    FakeDriver fake;
    fake.cost = [cost = cost](const std::string&, unsigned) { return cost; };
    const auto program = measured(fake, graph);
    EXPECT_TRUE(close(run_program(*program, graph, inputs, {}).results[0], expected(graph, inputs)[0], 0));
    const Calls calls = taken(fake);
    EXPECT_EQ(
        std::count_if(calls.begin(), calls.end(), [](const std::string& call) { return call.starts_with("launch"); }),
        launches)
        << cost;
  }
}

TEST(CudaMeasured, an_index_out_of_range_is_reported_once_by_the_run_itself) {
  FakeDriver fake;
  const Graph graph = parse(kGather);
  const auto program = measured(fake, graph);
  const DenseArray x = sample(DType::F32, {50, 64}, 1);
  EXPECT_EQ(run_program(*program, graph, {x, numbers({0, 1, 2, 3, 50, 5, 6, 7, 8})}, {}).status, kIndexOutOfRange);
  EXPECT_EQ(run_program(*program, graph, {x, numbers({0, 1, 2, 3, 4, 5, 6, 7, 8})}, {}).status, kOk);
}

TEST(CudaDriver, says_what_is_missing) {
  std::string missing;
  if (cuda::driver(missing)) GTEST_SKIP() << "there is a driver here";
  EXPECT_TRUE(missing.starts_with("no CUDA kernels can run: ")) << missing;
}

}  // namespace fj::test
