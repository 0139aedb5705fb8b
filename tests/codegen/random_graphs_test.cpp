// Random graphs: what the scheduler fuses must not matter.
#include "graph_ir/parse.h"
#include "graph_ir/print.h"
#include "tests/codegen/random_graph.h"

namespace fj::test {

namespace {

void compute_what_the_evaluator_says(bool branches) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    RandomGraph random(seed, branches);
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::vector<std::string> levels = {seed % 3 == 0 ? wide_level : seed % 7 == 0 ? least_level : ""};
    same_as_reference(random.graph, random.inputs, {.symbols = random.symbols, .levels = levels});
    if (testing::Test::HasFailure()) break;
  }
}

}  // namespace

TEST(RandomGraphs, compute_what_the_evaluator_says) { compute_what_the_evaluator_says(false); }

TEST(RandomGraphs, with_branches_compute_what_the_evaluator_says) { compute_what_the_evaluator_says(true); }

TEST(RandomGraphs, with_branches_survive_printing) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const RandomGraph random(seed, true);
    const std::string text = print(random.graph), short_text = print_short(random.graph);
    ASSERT_EQ(print(parse(text)), text);
    ASSERT_EQ(print_short(parse(short_text)), short_text);
  }
}

}  // namespace fj::test
