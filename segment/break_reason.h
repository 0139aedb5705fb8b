/// Why a graph ends before the function does: the rows of breaks.def.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace fj {

enum class BreakReason : std::uint16_t {
#define FJ_BREAK(number, name, what, remedy) name = number,
#include "segment/breaks.def"
};

/// Thrown anywhere in the tracer or a front end: this can't be captured.
struct BreakGraph {
  BreakReason reason;
  std::string detail;
};

[[noreturn]] inline void break_graph(BreakReason reason, std::string detail = "") {
  throw BreakGraph{reason, std::move(detail)};
}

}  // namespace fj
