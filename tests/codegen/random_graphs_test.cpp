// Random graphs: what the scheduler fuses must not matter.
#include "tests/codegen/random_graph.h"

namespace fj::test {

TEST(RandomGraphs, compute_what_the_evaluator_says) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    RandomGraph random(seed);
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::vector<std::string> levels = {seed % 3 == 0 ? wide_level : seed % 7 == 0 ? least_level : ""};
    same_as_reference(random.graph, random.inputs, {.symbols = random.symbols, .levels = levels});
    if (testing::Test::HasFailure()) break;
  }
}

}  // namespace fj::test
