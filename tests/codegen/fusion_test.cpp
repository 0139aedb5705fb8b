// What becomes one kernel, and that it computes what the graph says.
#include <limits>

#include "codegen/schedule/schedule.h"
#include "graph_ir/parse.h"
#include "runtime/thread_pool.h"
#include "tests/codegen/harness.h"

namespace fj::test {

TEST(Fusion, a_chain_of_pointwise_operations_is_one_kernel) {
  same_as_reference(R"(
graph @f(%x: f32[37, 65]) {
  %0 = constant {value = 1.0, to = f32} : f32[]
  %1 = broadcast %0 {dims = [], shape = [37, 65]} : f32[37, 65]
  %2 = add %x, %1 : f32[37, 65]
  %3 = mul %2, %2 : f32[37, 65]
  %4 = maximum %3, %1 : f32[37, 65]
  %5 = sub %4, %x : f32[37, 65]
  return %5
})", {sample(DType::F32, {37, 65}, 1)}, {.kernels = 1});
}

TEST(Fusion, softmax_is_one_kernel) {
  same_as_reference(R"(
graph @f(%x: f32[9, 131]) {
  %0 = reduce_max %x {axes = [1]} : f32[9]
  %1 = broadcast %0 {dims = [0], shape = [9, 131]} : f32[9, 131]
  %2 = sub %x, %1 : f32[9, 131]
  %3 = exp %2 : f32[9, 131]
  %4 = reduce_sum %3 {axes = [1]} : f32[9]
  %5 = broadcast %4 {dims = [0], shape = [9, 131]} : f32[9, 131]
  %6 = div %3, %5 : f32[9, 131]
  return %6
})", {sample(DType::F32, {9, 131}, 1)}, {.ulps = 8, .kernels = 1});
}

TEST(Fusion, what_is_computed_once_a_row_and_needed_elsewhere_is_stored_by_the_row_s_kernel) {
  same_as_reference(R"(
graph @f(%x: f32[9, 131]) {
  %0 = exp %x : f32[9, 131]
  %1 = reduce_sum %0 {axes = [1]} : f32[9]
  %2 = log %1 : f32[9]
  %3 = broadcast %2 {dims = [0], shape = [9, 131]} : f32[9, 131]
  %4 = sub %x, %3 : f32[9, 131]
  %5 = reduce_max %2 {axes = [0]} : f32[]
  return %4, %5
})", {sample(DType::F32, {9, 131}, 1)}, {.ulps = 20, .kernels = 2});
}

TEST(Fusion, the_mean_that_a_variance_is_computed_with_is_stored_by_its_kernel) {
  same_as_reference(R"(
graph @f(%x: f32[57, 66]) {
  %0 = constant {value = 66.0, to = f32} : f32[]
  %1 = reduce_sum %x {axes = [1]} : f32[57]
  %2 = broadcast %0 {dims = []} : f32[57]
  %3 = div %1, %2 : f32[57]
  %4 = reshape %1 : f32[57, 1]
  %5 = broadcast %0 {dims = []} : f32[57, 1]
  %6 = div %4, %5 : f32[57, 1]
  %7 = broadcast %6 {dims = [0, 1]} : f32[57, 66]
  %8 = sub %x, %7 : f32[57, 66]
  %9 = mul %8, %8 : f32[57, 66]
  %10 = reduce_sum %9 {axes = [1]} : f32[57]
  %11 = div %10, %2 : f32[57]
  return %3, %11
})", {sample(DType::F32, {57, 66}, 1)}, {.ulps = 40, .kernels = 1});
}

TEST(Fusion, a_column_reduction_runs_lanes_over_the_columns) {
  same_as_reference(R"(
graph @f(%x: f32[50, 70]) {
  %0 = mul %x, %x : f32[50, 70]
  %1 = reduce_sum %0 {axes = [0]} : f32[70]
  return %1
})", {sample(DType::F32, {50, 70}, 1)}, {.ulps = 20, .kernels = 1});
}

TEST(Fusion, lanes_follow_the_elements_of_a_row_whatever_is_stored_once_a_row) {
  const Graph graph = parse(R"(
graph @f(%x: f32[50, 70]) {
  %0 = reduce_sum %x {axes = [1]} : f32[50]
  %1 = broadcast %0 {dims = [0], shape = [50, 70]} : f32[50, 70]
  %2 = sub %x, %1 : f32[50, 70]
  %3 = reduce_max %2 {axes = [1]} : f32[50]
  return %0, %3
})");
  const std::string loops = compile_llvm(graph, {.dump_ir = true})->text();
  EXPECT_NE(loops.find("for i1 < 70 vector"), std::string::npos) << loops.substr(0, 1000);
}

TEST(Fusion, what_is_read_once_a_row_does_not_narrow_the_lanes) {
  const Graph graph = parse(R"(
graph @f(%x: f32[50, 70], %i: i64[50, 1], %s: f64[50]) {
  %0 = take_along %x, %i {axis = 1} : f32[50, 1]
  %1 = reshape %0 {shape = [50]} : f32[50]
  %2 = cast %s {to = f32} : f32[50]
  %3 = mul %1, %2 : f32[50]
  %4 = broadcast %3 {dims = [0], shape = [50, 70]} : f32[50, 70]
  %5 = sub %x, %4 : f32[50, 70]
  return %5
})");
  const std::string code = compile_llvm(graph, {.cpu = wide_level, .dump_ir = true})->text();
  EXPECT_NE(code.find(wide_level == "generic" ? "<4 x float>" : "<8 x float>"), std::string::npos);
}

TEST(Fusion, a_full_reduction_is_split) {
  same_as_reference(R"(
graph @f(%x: f32[300, 401]) {
  %0 = mul %x, %x : f32[300, 401]
  %1 = reduce_sum %0 {axes = [0, 1]} : f32[]
  %2 = sqrt %1 : f32[]
  return %2, %0
})", {sample(DType::F32, {300, 401}, 1)}, {.ulps = 20, .kernels = 2});
}

TEST(Fusion, sizes_may_change_between_calls) {
  const char* text = R"(
graph @f(%x: f32[s0, s1], %y: f32[s2]) where s0 >= 0, s1 >= 0, s2 >= 0 {
  %0 = reduce_sum %x {axes = [1]} : f32[s0]
  %1 = broadcast %0 {dims = [0], shape = [s0, s1]} : f32[s0, s1]
  %2 = add %x, %1 : f32[s0, s1]
  %3 = exp %y : f32[s2]
  return %2, %3
})";
  for (std::int64_t n : {0, 1, 2, 7, 33})
    for (std::int64_t m : {0, 1, 5, 64, 100})
      same_as_reference(text, {sample(DType::F32, {n, m}, 1, 0.5, 4), sample(DType::F32, {m}, 2)},
                        {.ulps = 64, .symbols = {n, m, m}});
}

TEST(Fusion, index_maps_are_addresses) {
  same_as_reference(R"(
graph @f(%x: f32[6, 10], %y: f32[3, 10], %z: f32[]) {
  %0 = transpose %x {permutation = [1, 0]} : f32[10, 6]
  %1 = slice %x {starts = [1, 9], sizes = [3, 5], steps = [2, -2]} : f32[3, 5]
  %2 = concat %x, %y {axis = 0} : f32[9, 10]
  %3 = mul %2, %2 : f32[9, 10]
  %4 = pad %y, %z {low = [1, 2], high = [0, 3]} : f32[4, 15]
  %5 = slice_update %x, %y {starts = [0, 0], steps = [2, 1]} : f32[6, 10]
  %6 = reshape %x {shape = [60]} : f32[60]
  %7 = reshape %6 {shape = [4, 15]} : f32[4, 15]
  %8 = add %7, %4 : f32[4, 15]
  %9 = concat %x, %x {axis = 1} : f32[6, 20]
  return %0, %1, %3, %4, %5, %8, %9
})", {sample(DType::F32, {6, 10}, 1), sample(DType::F32, {3, 10}, 2), sample(DType::F32, {}, 3)});
}

TEST(Fusion, a_layer_norm_is_one_kernel) {
  same_as_reference(R"(
graph @f(%x: f32[12, 100], %w: f32[100], %b: f32[100]) {
  %n = constant {value = 100.0, to = f32} : f32[]
  %e = constant {value = 0.00001, to = f32} : f32[]
  %nr = broadcast %n {dims = [], shape = [12]} : f32[12]
  %er = broadcast %e {dims = [], shape = [12]} : f32[12]
  %0 = reduce_sum %x {axes = [1]} : f32[12]
  %1 = div %0, %nr : f32[12]
  %2 = broadcast %1 {dims = [0], shape = [12, 100]} : f32[12, 100]
  %3 = sub %x, %2 : f32[12, 100]
  %4 = mul %3, %3 : f32[12, 100]
  %5 = reduce_sum %4 {axes = [1]} : f32[12]
  %6 = div %5, %nr : f32[12]
  %7 = add %6, %er : f32[12]
  %8 = rsqrt %7 : f32[12]
  %9 = broadcast %8 {dims = [0], shape = [12, 100]} : f32[12, 100]
  %10 = mul %3, %9 : f32[12, 100]
  %11 = broadcast %w {dims = [1], shape = [12, 100]} : f32[12, 100]
  %12 = mul %10, %11 : f32[12, 100]
  %13 = broadcast %b {dims = [1], shape = [12, 100]} : f32[12, 100]
  %14 = add %12, %13 : f32[12, 100]
  return %14
})",
                    {sample(DType::F32, {12, 100}, 1), sample(DType::F32, {100}, 2), sample(DType::F32, {100}, 3)},
                    {.ulps = 1000, .kernels = 1});
}

TEST(Fusion, products_scans_and_indices) {
  const DenseArray x = sample(DType::F32, {20, 30}, 1);
  DenseArray indices(DType::I64, {5});
  for (int i = 0; i < 5; ++i) reinterpret_cast<std::int64_t*>(indices.data.data())[i] = i * 3 - 6;
  same_as_reference(R"(
graph @f(%x: f32[20, 30], %i: i64[5]) {
  %0 = transpose %x {permutation = [1, 0]} : f32[30, 20]
  %1 = matmul %x, %0 : f32[20, 20]
  %2 = cumsum %x {axis = 1} : f32[20, 30]
  %3 = cumsum %x {axis = 0} : f32[20, 30]
  %4 = gather %x, %i {axis = 0} : f32[5, 30]
  %5 = gather %x, %i {axis = 1} : f32[20, 5]
  %6 = scatter_add %x, %4, %i {axis = 0} : f32[20, 30]
  %7 = argmax %x {axis = 1} : i64[20]
  %8 = argmin %x {axis = 0} : i64[30]
  return %1, %2, %3, %4, %5, %6, %7, %8
})", {x, indices}, {.ulps = 1000});
  reinterpret_cast<std::int64_t*>(indices.data.data())[3] = 20;
  same_as_reference(R"(
graph @f(%x: f32[20, 30], %i: i64[5]) {
  %4 = gather %x, %i {axis = 0} : f32[5, 30]
  return %4
})", {x, indices});
}

DenseArray of_values(DType dtype, std::vector<std::int64_t> shape, const std::vector<double>& repeated) {
  DenseArray result(dtype, std::move(shape));
  for (std::int64_t i = 0; i < result.element_count(); ++i) {
    const double value = repeated[std::size_t(i) % repeated.size()];
    if (dtype == DType::F64)
      reinterpret_cast<double*>(result.data.data())[i] = value;
    else
      reinterpret_cast<float*>(result.data.data())[i] = float(value);
  }
  return result;
}

TEST(Fusion, running_sums_of_floats_overflow_and_cancel_step_by_step) {
  for (const auto& [name, dtype, huge] : {std::tuple{"f32", DType::F32, 3e38}, {"f64", DType::F64, 1e308}})
    for (const std::vector<double>& values :
         {std::vector<double>{-huge, huge, huge, -huge}, {huge, huge, -huge, 0}, {1, 1e16, -1e16, 1}, {0.1}, {-0.0}})
      for (const char* op : {"cumsum", "cumprod"}) {
        const std::string type = name;
        same_as_reference("graph @f(%x: " + type + "[3, 33]) {\n  %0 = " + op + " %x {axis = 0} : " + type +
                              "[3, 33]\n  %1 = " + op + " %x {axis = 1} : " + type + "[3, 33]\n  return %0, %1\n}",
                          {of_values(dtype, {3, 33}, values)});
      }
}

TEST(Fusion, a_running_sum_of_what_was_widened_is_rounded_as_it_is_stored) {
  for (const char* op : {"cumsum", "cumprod"})
    for (int axis : {0, 1})
      same_as_reference(std::string("graph @f(%x: f32[3, 133]) {\n  %0 = cast %x {to = f64} : f64[3, 133]\n  %1 = ") +
                            op + " %0 {axis = " + std::to_string(axis) +
                            "} : f64[3, 133]\n  %2 = cast %1 {to = f32} : f32[3, 133]\n  return %2\n}",
                        {of_values(DType::F32, {3, 133}, {3e38, 3e38, 1e34, -3e38, -2e38})}, {.ulps = 1, .kernels = 1});
}

TEST(Fusion, the_first_of_the_best_is_found) {
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const auto same = [](const std::string& type, const DenseArray& x) {
    const std::string columns = std::to_string(x.shape[1]);
    same_as_reference(
        "graph @f(%x: " + type + "[3, " + columns +
            "]) {\n  %0 = argmax %x {axis = 1} : i64[3]\n  %1 = argmin %x {axis = 1} : i64[3]\n  return %0, %1\n}",
        {x});
  };
  for (std::int64_t columns : {1, 7, 33, 200, 261}) {
    for (const std::vector<double>& values : {std::vector<double>{-inf},
                                              {inf},
                                              {nan},
                                              {-0.0, 0.0},
                                              {0.0, -0.0, -0.0},
                                              {1, 2, 2, -3, -3, 1, 0},
                                              {-5, -2, -9, -2, -9},
                                              {1, inf, 2, inf, -inf},
                                              {-inf, -inf, -inf, -1e30, -inf},
                                              {3, -2, 7, 7, 1, 0, 4, 5, 2, -1, nan}})
      for (const auto& [name, dtype] : {std::pair{"f32", DType::F32}, {"f64", DType::F64}})
        same(name, of_values(dtype, {3, columns}, values));
    for (const auto& [name, dtype] : {std::pair{"i8", DType::I8},
                                      {"u8", DType::U8},
                                      {"i32", DType::I32},
                                      {"u32", DType::U32},
                                      {"i64", DType::I64},
                                      {"u64", DType::U64},
                                      {"bool", DType::Bool}})
      same(name, sample(dtype, {3, columns}, 7, 0, 200));
  }
}

TEST(Fusion, integers_scan_along_lanes) {
  for (const auto& [name, dtype] : {std::pair{"i32", DType::I32}, {"i64", DType::I64}, {"u8", DType::U8}}) {
    const std::string type = name;
    same_as_reference(
        "graph @f(%x: " + type + "[3, 70]) {\n  %0 = cumsum %x {axis = 1} : " + type + "[3, 70]\n  return %0\n}",
        {sample(dtype, {3, 70}, 1)});
  }
}

TEST(Fusion, an_input_is_written_in_place_if_nothing_can_fail) {
  const std::vector<DenseArray> inputs = {sample(DType::F32, {300}, 1), sample(DType::F32, {300}, 2, 1, 4)};
  same_as_reference(R"(
graph @f(%x: f32[300], %y: f32[300]) {
  %0 = mul %x, %y : f32[300]
  %1 = add %0, %x : f32[300]
  write %x <- %1
  return %1
})", inputs, {.kernels = 2});
  same_as_reference(R"(
graph @f(%x: f32[300], %y: f32[300]) {
  %0 = mul %x, %y : f32[300]
  write %x <- %0
  return %y
})", inputs, {.kernels = 2});
  // Read at another element: beside it, then copied.
  same_as_reference(R"(
graph @f(%x: f32[300], %y: f32[300]) {
  %0 = slice %x {starts = [299], sizes = [300], steps = [-1]} : f32[300]
  %1 = add %0, %y : f32[300]
  write %x <- %1
  return %y
})", inputs, {.kernels = 3});
}

TEST(Fusion, the_librarys_product_reads_a_reshape_where_it_lies) {
  const std::vector<DenseArray> inputs = {sample(DType::F32, {4, 50, 256}, 1), sample(DType::F32, {256, 512}, 2)};
  // One kernel computes what both read: the product, and the last sum.
  const char* both = R"(
graph @f(%x: f32[4, 50, 256], %w: f32[256, 512]) {
  %0 = exp %x : f32[4, 50, 256]
  %1 = reshape %0 {shape = [200, 256]} : f32[200, 256]
  %2 = matmul %1, %w : f32[200, 512]
  %3 = transpose %1 {permutation = [1, 0]} : f32[256, 200]
  %4 = matmul %3, %2 : f32[256, 512]
  return %4, %0
})";
  same_as_reference(both, inputs, {.ulps = 256, .scale = 1e6, .kernels = 1});
  // What is returned has memory of its own.
  same_as_reference(R"(
graph @f(%x: f32[4, 50, 256], %w: f32[256, 512]) {
  %0 = exp %x : f32[4, 50, 256]
  %1 = reshape %0 {shape = [200, 256]} : f32[200, 256]
  %2 = matmul %1, %w : f32[200, 512]
  return %2, %0, %1
})", inputs, {.ulps = 256, .scale = 1e3});
}

TEST(Fusion, several_inputs_are_written_in_place_by_one_kernel) {
  const std::vector<DenseArray> inputs = {sample(DType::F32, {301}, 1), sample(DType::F32, {301}, 2),
                                          sample(DType::F32, {301}, 3)};
  // %x is overwritten by a value that %m's new value needs too, and the other way round.
  same_as_reference(R"(
graph @f(%x: f32[301], %m: f32[301], %g: f32[301]) {
  %0 = mul %m, %g : f32[301]
  %1 = add %0, %x : f32[301]
  %2 = sub %x, %1 : f32[301]
  %3 = mul %2, %x : f32[301]
  write %m <- %1
  write %x <- %2
  return %3
})", inputs, {.kernels = 1});
}

TEST(Fusion, many_reductions_and_stores_are_several_kernels) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::I64, {SymDim(6), SymDim(9)}});
  for (std::int64_t i = 0; i < 80; ++i) {
    Attrs attrs;
    attrs.set("value", Scalar(i));
    attrs.set("to", DType::I64);
    const ValueId number = graph.add(Op::constant, {}, attrs);
    Attrs shape;
    shape.set("dims", std::vector<std::int64_t>{});
    shape.set("shape", Dims{SymDim(6), SymDim(9)});
    const ValueId product = graph.add(Op::mul, {x, graph.add(Op::broadcast, {number}, shape)});
    Attrs axes;
    axes.set("axes", std::vector<std::int64_t>{1});
    graph.outputs.push_back({graph.add(Op::reduce_sum, {product}, axes), std::nullopt});
    graph.outputs.push_back({product, std::nullopt});
  }
  same_as_reference(graph, {sample(DType::I64, {6, 9}, 1)}, {.levels = {""}});
}

namespace {

/// Remembers which arrays were alive at each library call.
struct Watching : MallocHost {
  bool call_extern(std::int64_t handle, std::span<const ArrayRef> operands, std::span<const std::int64_t> symbols,
                   std::span<ArrayRef> results) override {
    alive_at_calls.push_back(alive);
    return MallocHost::call_extern(handle, operands, symbols, results);
  }
  std::vector<int> alive_at_calls;
};

}  // namespace

TEST(Program, releases_what_it_was_given_when_it_was_last_read_and_makes_results_when_they_are_written) {
  const Graph graph = parse(R"(
graph @f(%x: f32[4], %y: f32[4]) {
  %0 = neg %x                                                                                       : f32[4]
  %1 = extern_call %0 {callee = "double", handle = 7, operand_strides = [[1]], result_strides = [[1]]} : f32[4]
  %2 = mul %1, %x                                                                                   : f32[4]
  %3 = extern_call %2 {callee = "double", handle = 7, operand_strides = [[1]], result_strides = [[1]]} : f32[4]
  %4 = add %3, %y                                                                                   : f32[4]
  return %4
}
)");
  const auto program = compile_llvm(graph, {});
  for (const bool given : {false, true}) {
    Watching host;
    std::vector<ArrayRef> inputs, outputs(1);
    for (int i = 0; i < 2; ++i) {
      inputs.push_back(host.allocate(-1, DType::F32, std::vector<std::int64_t>{4}, std::vector<std::int64_t>{1}));
      for (int k = 0; k < 4; ++k) static_cast<float*>(inputs.back().data)[k] = float(k + 1 + 10 * i);
    }
    std::vector<ArrayRef> references = inputs;
    Call call;
    call.host = &host;
    call.inputs = inputs;
    call.outputs = outputs;
    if (given) call.handed_over = references;
    ASSERT_EQ(program->run(call), kOk);
    for (int k = 0; k < 4; ++k)
      EXPECT_EQ(static_cast<float*>(outputs[0].data)[k], float(-4 * (k + 1) * (k + 1) + k + 11));
    // The first call: x, y, its operand. The second one: x if it is still ours, y, its operand; neither is the result
    // there yet.
    EXPECT_EQ(host.alive_at_calls, (std::vector<int>{3, given ? 2 : 3}));
    for (int i = 0; i < 2; ++i) EXPECT_EQ(references[std::size_t(i)].object == nullptr, given);
    for (const ArrayRef& array : given ? references : inputs)
      if (array.object) host.release(array.object);
    host.release(outputs[0].object);
    EXPECT_EQ(host.alive, 0);
  }
}

TEST(Program, an_extern_call_gets_arrays_and_gives_arrays) {
  const Graph graph = parse(R"(
graph @f(%x: f32[4]) {
  %0 = add %x, %x : f32[4]
  %1 = extern_call %0 {callee = "double", handle = 7, operand_strides = [[1]], result_strides = [[1]]} : f32[4]
  %2 = sub %1, %x : f32[4]
  return %2, %1
})");
  const DenseArray x = sample(DType::F32, {4}, 1);
  const Outcome outcome = run_llvm(graph, {x}, {}, {});
  ASSERT_EQ(outcome.status, kOk);
  for (int i = 0; i < 4; ++i) {
    const float value = reinterpret_cast<const float*>(x.data.data())[i];
    EXPECT_EQ(reinterpret_cast<const float*>(outcome.results[0].data.data())[i], 4 * value - value);
    EXPECT_EQ(reinterpret_cast<const float*>(outcome.results[1].data.data())[i], 4 * value);
  }
}

TEST(Program, a_failure_leaves_inputs_and_outputs_alone) {
  DenseArray zeros(DType::I64, {40});
  const DenseArray x = sample(DType::I64, {40}, 1, 1, 9);
  const Graph graph = parse(R"(
graph @f(%x: i64[40], %y: i64[40]) {
  %0 = floor_div %x, %y : i64[40]
  write %x <- %0
  return %0
})");
  const Outcome outcome = run_llvm(graph, {x, zeros}, {}, {});
  EXPECT_EQ(outcome.status, std::uint32_t(kIntegerDivisionByZero));
  EXPECT_TRUE(close(outcome.results[0], x, 0));
}

TEST(Fusion, a_part_that_starts_at_zero_does_not_stand_for_the_whole) {
  same_as_reference(R"(
graph @f(%x: f32[9, 9]) {
  %0 = exp %x : f32[9, 9]
  %1 = slice %0 {starts = [0, 0], sizes = [7, 7], steps = [1, 1]} : f32[7, 7]
  %2 = neg %1 : f32[7, 7]
  return %2, %0
})", {sample(DType::F32, {9, 9}, 1)}, {.ulps = 2});
}

TEST(Fusion, a_loop_that_is_cut_where_comparisons_change_computes_every_element) {
  // Pieces of any length, none too; one of the cuts is not known to come before the other.
  for (const auto& [low, high] :
       {std::pair<std::int64_t, std::int64_t>{0, 100}, {3, 97}, {97, 3}, {50, 50}, {-5, 200}, {200, -5}, {99, 100}})
    same_as_reference(R"(
graph @f(%x: f32[100], %y: f32[100], %z: f32[37]) where s0 >= -1000, s1 >= -1000 {
  %0 = iota {axis = 0} : i64[100]
  %1 = dim {value = s0} : i64[]
  %2 = broadcast %1 {dims = [], shape = [100]} : i64[100]
  %3 = dim {value = s1} : i64[]
  %4 = broadcast %3 {dims = [], shape = [100]} : i64[100]
  %5 = gt %0, %2 : bool[100]
  %6 = le %0, %4 : bool[100]
  %7 = bit_and %5, %6 : bool[100]
  %8 = where %7, %x, %y : f32[100]
  %9 = concat %z, %8, %z {axis = 0} : f32[174]
  %10 = mul %9, %9 : f32[174]
  return %10
})",
                      {sample(DType::F32, {100}, 1), sample(DType::F32, {100}, 2), sample(DType::F32, {37}, 3)},
                      {.symbols = {low, high}});
}

TEST(Fusion, a_loop_is_cut_into_pieces) {
  CompileOptions options;
  options.dump_ir = true;
  const auto text = [&](const char* comparison) {
    return compile_llvm(
               parse(std::string("graph @f(%x: f32[s0], %y: f32[s1]) where s0 >= 0, s1 >= 0 {\n  ") + comparison),
               options)
        ->text();
  };
  const std::string joined =
      text("%0 = concat %x, %y {axis = 0} : f32[s0 + s1]\n  %1 = mul %0, %0 : f32[s0 + s1]\n  return %1\n}");
  const std::string whole = text("%0 = mul %x, %x : f32[s0]\n  return %0\n}");
  const auto multiplications = [](const std::string& listing) {
    std::size_t found = 0;
    for (std::size_t at = listing.find("fmul"); at != std::string::npos; at = listing.find("fmul", at + 1)) ++found;
    return found;
  };
  EXPECT_GE(multiplications(joined), 2 * multiplications(whole)) << joined;
}

TEST(Fusion, pieces_reduce_and_look_up_what_the_whole_loop_would) {
  DenseArray indices(DType::I64, {90});
  for (int i = 0; i < 90; ++i) reinterpret_cast<std::int64_t*>(indices.data.data())[i] = i % 41 - 3;
  for (std::int64_t last : {40, 38}) {  // an index out of range, in the middle piece
    reinterpret_cast<std::int64_t*>(indices.data.data())[50] = last;
    same_as_reference(R"(
graph @f(%x: i32[2, 40], %i: i64[90], %z: i32[2, 17]) {
  %0 = gather %x, %i {axis = 1} : i32[2, 90]
  %1 = concat %z, %0, %z {axis = 1} : i32[2, 124]
  %2 = reduce_sum %1 {axes = [1]} : i32[2]
  %3 = reduce_max %1 {axes = [1]} : i32[2]
  return %1, %2, %3
})", {sample(DType::I32, {2, 40}, 1), indices, sample(DType::I32, {2, 17}, 3)});
  }
}

TEST(Fusion, columns_of_a_large_array_are_reduced_row_by_row) {
  const std::string sums = R"(
graph @f(%a: f32[900, 1037]) {
  %0 = mul %a, %a : f32[900, 1037]
  %1 = reduce_sum %0 {axes = [0]} : f32[1037]
  %2 = reduce_max %a {axes = [0]} : f32[1037]
  %3 = add %1, %2 : f32[1037]
  return %3, %1
})";
  // Accumulators of both are in memory where the whole is one launch; the second kind, in registers, is for the parts
  // threads take.
  const std::string code = compile_llvm(parse(sums), {.cpu = widest_level, .dump_ir = true})->text();
  if (widest_level == "x86-64-v4") {  // the numbers are those of its vectors
    EXPECT_NE(code.find("alloca [2112 x float]"), std::string::npos) << code;
    EXPECT_NE(code.find("phi <64 x float>"), std::string::npos) << code;
  }
  for (int threads : {1, 8}) {  // eight take parts of a row
    set_thread_count(threads);
    same_as_reference(sums, {sample(DType::F32, {900, 1037}, 1)}, {.ulps = 64, .scale = 1});
  }
  set_thread_count(0);
  // The mean is read by the second loop; bytes become 64-bit sums; a row is longer than what is reduced together.
  same_as_reference(R"(
graph @f(%a: f64[200, 519]) {
  %0 = reduce_sum %a {axes = [0]} : f64[519]
  %1 = broadcast %0 {dims = [1], shape = [200, 519]} : f64[200, 519]
  %2 = sub %a, %1 : f64[200, 519]
  %3 = reduce_max %2 {axes = [0]} : f64[519]
  return %3
})", {sample(DType::F64, {200, 519}, 2)}, {.ulps = 64, .scale = 64});
  same_as_reference(R"(
graph @f(%a: i8[90, 6001]) {
  %0 = cast %a {to = i64} : i64[90, 6001]
  %1 = reduce_sum %0 {axes = [0]} : i64[6001]
  return %1
})", {sample(DType::I8, {90, 6001}, 3)});
}

TEST(Fusion, what_is_read_much_later_than_the_graph_has_it_is_computed_later) {
  // Squares of inputs, all at the graph's beginning, that a chain of products reads one by one: as what a backward
  // computes again of its forward. Where all of it fits the cache the order is the graph's.
  for (const int count : {2, 6}) {
    const std::string type = " : f32[260, 260]";
    std::string inputs = "%x" + type.substr(1), squares, chain, last = "%x";
    for (int i = 0; i < count; ++i) {
      const std::string n = std::to_string(i), next = "%" + std::to_string(count + i);
      inputs += ", %a" + n + type.substr(1);
      squares += "  %" + n + " = matmul %a" + n + ", %a" + n + type + "\n";
      chain += "  " + next + " = matmul " + last + ", %" + n + type + "\n";
      last = next;
    }
    const Graph graph = parse("graph @f(" + inputs + ") {\n" + squares + chain + "  return " + last + "\n}");
    const Schedule order = schedule(graph);
    const auto group_of = [&](int node) { return order.producer[graph.nodes[std::size_t(node)].results[0].index]; };
    EXPECT_EQ(group_of(count - 1) < group_of(count), count == 2) << text(graph, order);
    for (int i = 0; i < count; ++i) EXPECT_LT(group_of(i), group_of(count + i)) << text(graph, order);
  }
}

}  // namespace fj::test
