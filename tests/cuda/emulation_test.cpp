// The emulation itself: it has to find what a device would show only now and then.
#include "codegen/cuda/prelude.h"
#include "tests/cuda/harness.h"

namespace fj::test {

namespace {

/// Sums 256 numbers by one block with the prelude's team_reduce, of which `without` was taken out.
struct PlantedResult {
  std::vector<int> sums;
  std::string error;
};

PlantedResult sums_with(std::string text, const std::string& without, const std::string& instead = "") {
  if (!without.empty()) {
    const std::size_t at = text.find(without, text.find("T team_reduce"));
    EXPECT_NE(at, std::string::npos);
    text.replace(at, without.size(), instead);
  }
  text += R"(
extern "C" __global__ void sums(const int* numbers, int* result) {
  for (int round = 0; round < 2; ++round) {
    const int sum = team_reduce<Sum, 256>(numbers[threadIdx.x] + round);
    result[round * 256 + threadIdx.x] = sum;
  }
}
}  // namespace fj
extern "C" void sums_run(void** all) {
  emulation::launch(256, [](void* context) { void** all = static_cast<void**>(context); fj::sums((const int*)all[0], (int*)all[1]); }, all);
}
)";
  const Emulated emulated(text);
  const auto set = reinterpret_cast<void (*)(long, long, bool)>(emulated["emulation_set"]);
  const auto error = reinterpret_cast<const char* (*)()>(emulated["emulation_error"]);
  const auto run = reinterpret_cast<void (*)(void**)>(emulated["sums_run"]);
  PlantedResult result;
  if (!run) return result;
  std::vector<int> numbers(256);
  for (int i = 0; i < 256; ++i) numbers[std::size_t(i)] = i;
  result.sums.resize(512);
  void* all[] = {numbers.data(), result.sums.data()};
  set(1, 7, false);
  run(all);
  if (error()) result.error = error();
  return result;
}

bool right(const PlantedResult& result) {
  for (std::size_t i = 0; i < result.sums.size(); ++i)
    if (result.sums[i] != 255 * 128 + (i < 256 ? 0 : 256)) return false;
  return result.error.empty();
}

const std::string text(cuda::prelude);

}  // namespace

TEST(Emulation, computes_a_sum_of_a_block) { EXPECT_TRUE(right(sums_with(text, ""))); }

TEST(Emulation, finds_a_missing_barrier_between_a_write_and_a_read) {
  const std::string write = "partial[threadIdx.x / 32] = value;\n  ";
  EXPECT_FALSE(right(sums_with(text, write + "__syncthreads();", write)));
}

TEST(Emulation, finds_a_missing_barrier_between_a_read_and_the_next_write) {
  EXPECT_FALSE(right(sums_with(text, "__syncthreads();  // whoever read the last results has done so")));
}

TEST(Emulation, finds_a_barrier_that_only_some_threads_reach) {
  const std::string write = "partial[threadIdx.x / 32] = value;\n  ";
  const PlantedResult result =
      sums_with(text, write + "__syncthreads();", write + "if (threadIdx.x < 64) __syncthreads();");
  EXPECT_EQ(result.error, "a barrier that not all threads of a block reach");
}

TEST(Emulation, finds_a_shuffle_that_only_some_lanes_reach) {
  const PlantedResult result = sums_with(text, "if (threads == 32)",
      "if (threadIdx.x % 32 < 7) value = shuffle_from(value, 0);\n  if (threads == 32)");
  EXPECT_EQ(result.error, "a shuffle that not all lanes of a warp reach");
}

}  // namespace fj::test
