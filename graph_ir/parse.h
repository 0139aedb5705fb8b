/// Text to graph: the inverse of print.h. The result is what the text says, right or wrong: result types are
/// taken as written and nothing is inferred, so that verifier tests can state broken graphs.
#pragma once

#include <stdexcept>
#include <string_view>
#include <vector>

#include "graph_ir/graph.h"

namespace fj {

/// "line 3: expected `]`, found `}`".
struct ParseError : std::runtime_error {
  ParseError(int line, const std::string& message)
      : std::runtime_error("line " + std::to_string(line) + ": " + message), line(line) {}
  int line;
};

/// One graph; comments before and after it are skipped. Throws ParseError.
Graph parse(std::string_view text);

/// A size alone: "s0*4 + 1". Throws ParseError.
SymDim parse_size(std::string_view text);

/// As `parse`, and the line of the text each node stands on.
Graph parse(std::string_view text, std::vector<int>& node_lines);

}  // namespace fj
