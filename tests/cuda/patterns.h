/// The ways in which work is dealt out, each as the smallest graph that is bound so.
#pragma once

#include "tests/cuda/harness.h"

namespace fj::test {

struct Pattern {
  std::string name;
  std::vector<std::string> bound;  // what the kernels' bindings say somewhere
  std::string graph;
  std::vector<DenseArray> inputs;
  Check check = {};
  std::vector<std::int64_t> hints = {};  // of the graph's symbols
  int registers = 40;                    // a thread may use so many,
  int local_bytes = 0;                   // and so much memory of its own
};

std::vector<Pattern> patterns();
Graph parsed(const Pattern& pattern);

}  // namespace fj::test
