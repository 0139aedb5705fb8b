/// The memory a segment holds, for the option `kept_bytes`.
///
/// Guards, graph and recipe are counted by their parts; machine code, and what is private to other folders, by
/// constants. benchmarks/kept_memory.py checks the count against the growth of the process. A segment is counted
/// once, when it is made, as if it had been used again: its kernels have optimised code too. A backward is added
/// when it is compiled.
#pragma once

#include <cstddef>

#include "cpython/cpython.h"
#include "segment/segment.h"

namespace fj {

/// `kernels`: the memory of the machine code, as CompileOptions::code_bytes counts it. `code`: of the function; it is
/// counted with the piece that starts the function.
std::size_t bytes_of(const Segment& segment, std::size_t kernels, const FjCode& code);
/// A graph and what its program has for it, but for machine code.
std::size_t bytes_of(const Graph& graph);

}  // namespace fj
