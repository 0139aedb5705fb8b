// Where machine code comes from: compiled in either tier, shared, read from disk, never for another machine.
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "codegen/compiler_counts.h"
#include "codegen/llvm/machine.h"
#include "graph_ir/parse.h"
#include "runtime/background.h"
#include "runtime/disk_cache.h"
#include "tests/codegen/harness.h"

namespace fj::test {

namespace {

namespace fs = std::filesystem;

class Tiers : public testing::Test {
 protected:
  void SetUp() override {
    static int number = 0;
    folder =
        fs::temp_directory_path() / ("framejit-tiers-" + std::to_string(::getpid()) + "-" + std::to_string(number++));
    finish_background();
    reset_compiler_counts();
  }
  void TearDown() override {
    finish_background();
    EXPECT_EQ(compiler_counts().failed, 0u);
    fs::remove_all(folder);
  }
  CompileOptions on_disk(TierChoice tier = TierChoice::Auto) const {
    CompileOptions options;
    options.tier = tier;
    options.cache_folder = folder;
    options.cache_bytes = 1 << 20;
    return options;
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    if (fs::exists(folder))
      for (const auto& item : fs::directory_iterator(folder)) found.push_back(item.path());
    return found;
  }

  fs::path folder;
};

const char* const kLayers = R"(graph @f(%x: f32[64]) {
  %0 = cumsum %x {axis = 0} : f32[64]
  %1 = cumsum %0 {axis = 0} : f32[64]
  %2 = cumsum %1 {axis = 0} : f32[64]
  return %2
})";
const char* const kSmall = R"(graph @f(%x: f32[100]) {
  %0 = tanh %x : f32[100]
  %1 = add %0, %x : f32[100]
  return %1
})";

std::vector<DenseArray> arguments(const Graph& graph) {
  std::vector<DenseArray> inputs;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i)
    inputs.push_back(sample(DType::F32, evaluate(graph.type(graph.inputs[i].value).shape, {}), i + 1));
  return inputs;
}

Outcome run(const char* text, const CompileOptions& options) {
  const Graph graph = parse(text);
  return run_llvm(graph, arguments(graph), {}, options);
}

TEST_F(Tiers, EqualKernelsOfAProgramAreCompiledOnce) {
  const Outcome outcome = run(kLayers, on_disk());
  EXPECT_EQ(outcome.kernels, 3);
  EXPECT_EQ(compiler_counts().quick, 1u);
  EXPECT_EQ(compiler_counts().shared, 2u);
  same_as_reference(kLayers, arguments(parse(kLayers)), {.ulps = 64, .scale = 1000});
}

TEST_F(Tiers, ASecondProgramFindsTheKernelsOfALiveOne) {
  const Graph graph = parse(kSmall);
  const auto first = compile_llvm(graph, {});
  EXPECT_EQ(compiler_counts().quick, 1u);
  const auto second = compile_llvm(graph, {});
  EXPECT_EQ(compiler_counts().quick, 1u);
  EXPECT_EQ(compiler_counts().shared, 1u);
}

TEST_F(Tiers, TheSecondRunAsksForOptimisedCode) {
  const Graph graph = parse(kSmall);
  const auto inputs = arguments(graph);
  const Outcome quick = run(kSmall, on_disk(TierChoice::Quick));
  finish_background();  // what stores the code keeps it alive, and it would be shared
  reset_compiler_counts();
  fs::remove_all(folder);
  const auto program = compile_llvm(graph, on_disk());
  std::vector<float> x(100), y;
  std::memcpy(x.data(), inputs[0].data.data(), 400);
  for (int call_number = 0; call_number < 4; ++call_number) {
    if (call_number == 3) finish_background();
    MallocHost host;
    ArrayRef input{x.data(), nullptr}, output{};
    Call call;
    call.host = &host;
    call.inputs = {&input, 1};
    call.outputs = {&output, 1};
    ASSERT_EQ(program->run(call), kOk);
    EXPECT_EQ(std::memcmp(output.data, quick.results[0].data.data(), 400), 0) << "call " << call_number;
    host.release(output.object);
    EXPECT_LE(compiler_counts().optimised, call_number > 0 ? 1u : 0u);
  }
  EXPECT_EQ(compiler_counts().quick, 1u);
  EXPECT_EQ(compiler_counts().optimised, 1u);
  // The better code has replaced the quick one on disk.
  const auto listed = DiskCache::list(folder);
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].tier, 1u);
}

TEST_F(Tiers, ALongFirstLaunchIsOptimisedAtOnce) {
  const Graph graph = parse("graph @f(%x: f32[400000000]) {\n  %0 = add %x, %x : f32[400000000]\n  return %0\n}");
  const auto program = compile_llvm(graph, {});
  EXPECT_EQ(compiler_counts().quick, 0u);
  EXPECT_EQ(compiler_counts().optimised, 1u);
}

TEST_F(Tiers, CodeFromDiskComputesTheSame) {
  for (const TierChoice tier : {TierChoice::Quick, TierChoice::Optimised}) {
    const Outcome compiled = run(kLayers, on_disk(tier));
    finish_background();
    reset_compiler_counts();
    const Outcome loaded = run(kLayers, on_disk(tier));
    EXPECT_EQ(compiler_counts().quick + compiler_counts().optimised, 0u);
    EXPECT_GT(compiler_counts().loaded, 0u);
    EXPECT_EQ(loaded.results[0].data, compiled.results[0].data);
    fs::remove_all(folder);
  }
}

TEST_F(Tiers, CodeFromDiskCallsTheLibraryByName) {
  const char* const text = R"(graph @f(%x: c64[16]) {
  %0 = exp %x : c64[16]
  return %0
})";
  const Graph graph = parse(text);
  const std::vector<DenseArray> inputs{sample(DType::C64, {16}, 3)};
  const Outcome compiled = run_llvm(graph, inputs, {}, on_disk());
  finish_background();
  reset_compiler_counts();
  EXPECT_EQ(run_llvm(graph, inputs, {}, on_disk()).results[0].data, compiled.results[0].data);
  EXPECT_EQ(compiler_counts().loaded, 1u);
}

TEST_F(Tiers, AnotherMachinesCodeIsNotLoaded) {
  run(kSmall, on_disk());
  finish_background();
  std::set<std::string> machines{target_for("").identity};  // AArch64 has one level, which may be all that the host has
  for (const std::string& level : {wide_level, least_level}) {
    if (!machines.insert(target_for(level).identity).second) continue;
    CompileOptions options = on_disk();
    options.cpu = level;
    reset_compiler_counts();
    run(kSmall, options);
    finish_background();
    EXPECT_EQ(compiler_counts().loaded, 0u) << level;
    EXPECT_EQ(compiler_counts().quick, 1u) << level;
  }
  EXPECT_EQ(files().size(), machines.size());
}

TEST_F(Tiers, AWholeFileThatIsNoObjectIsCompiledAgain) {
  run(kSmall, on_disk());
  finish_background();
  const auto listed = DiskCache::list(folder);
  ASSERT_EQ(listed.size(), 1u);
  CacheKey key;
  for (std::size_t i = 0; i < key.size(); ++i)
    key[i] = std::uint8_t(std::stoul(listed[0].name.substr(2 * i, 2), nullptr, 16));
  const std::string object = DiskCache::in(folder).find(key)->object;
  for (const std::string& bad :
       {std::string("not an object file"), std::string(), object.substr(0, 64), object.substr(0, object.size() / 2)}) {
    DiskCache::in(folder).store(key, {0, bad}, 1 << 20);
    reset_compiler_counts();
    const Outcome outcome = run(kSmall, on_disk());
    finish_background();
    EXPECT_EQ(compiler_counts().quick, 1u);
    EXPECT_EQ(compiler_counts().loaded, 0u);
    EXPECT_EQ(outcome.status, kOk);
    EXPECT_EQ(DiskCache::in(folder).find(key)->object, object) << "and stored again";
  }
}

TEST_F(Tiers, AFolderThatCantBeWrittenIsRead) {
  run(kSmall, on_disk());
  finish_background();
  fs::permissions(folder, fs::perms::owner_read | fs::perms::owner_exec);
  reset_compiler_counts();
  run(kSmall, on_disk());
  EXPECT_EQ(compiler_counts().loaded, 1u);
  fs::permissions(folder, fs::perms::owner_all);
}

TEST_F(Tiers, ManyThreadsCompileAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 6; ++round) {
        const std::string size = std::to_string(20 + (t + round) % 5);
        const std::string text =
            "graph @f(%x: f32[" + size + "]) {\n  %0 = add %x, %x : f32[" + size + "]\n  return %0\n}";
        const Graph graph = parse(text);
        const auto inputs = arguments(graph);
        const Outcome outcome = run_llvm(graph, inputs, {}, on_disk());
        const auto* in = reinterpret_cast<const float*>(inputs[0].data.data());
        const auto* out = reinterpret_cast<const float*>(outcome.results[0].data.data());
        for (int i = 0; i < 20 + (t + round) % 5; ++i) wrong += out[i] != 2 * in[i];
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace

}  // namespace fj::test
