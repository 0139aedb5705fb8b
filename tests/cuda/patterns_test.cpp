// Every pattern: its binding, then its numbers.
#include "tests/codegen/random_graph.h"
#include "tests/cuda/patterns.h"

namespace fj::test {

TEST(CudaPatterns, are_bound_as_they_should_be) {
  for (const Pattern& pattern : patterns()) {
    std::string all;
    for (const CudaKernel& kernel : cuda_kernels(parsed(pattern), "k"))
      all += cuda::text(kernel.kernel, kernel.forms[0].binding);
    for (const std::string& part : pattern.bound) EXPECT_NE(all.find(part),
        std::string::npos) << pattern.name << ": no `" << part << "` in\n" << all;
  }
}

TEST(CudaPatterns, compute_what_the_evaluator_says) {
  Suite suite;
  for (const Pattern& pattern : patterns()) suite.add(pattern.name, parsed(pattern), pattern.inputs, pattern.check);
  suite.run();
  EXPECT_TRUE(suite.left_out.empty());
}

TEST(CudaPatterns, compute_it_however_they_are_dealt_out) {
  Suite suite;
  for (suite.alternative = 0; suite.alternative < 5; ++suite.alternative)
    for (const Pattern& pattern : patterns())
      suite.add(pattern.name + ", alternative " + std::to_string(suite.alternative), parsed(pattern), pattern.inputs,
                pattern.check);
  for (std::uint64_t seed = 61; seed <= 90; ++seed) {
    RandomGraph random(seed);
    suite.alternative = int(seed % 5);
    suite.add("seed " + std::to_string(seed), random.graph, random.inputs, {.symbols = random.symbols});
  }
  suite.run();
}

TEST(CudaPatterns, random_graphs_compute_what_the_evaluator_says) {
  Suite suite;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    RandomGraph random(seed);
    suite.add("seed " + std::to_string(seed), random.graph, random.inputs, {.symbols = random.symbols});
  }
  suite.run();
}

}  // namespace fj::test
