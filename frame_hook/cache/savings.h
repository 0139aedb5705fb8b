/// What a piece saves and what it has cost, by estimates that know its operations and sizes only: they take no time, so
/// that the same calls are decided alike in each process (a piece may differ from the library in last bits).
#pragma once

#include <cstdint>
#include <span>

#include "segment/segment.h"

namespace fj {

/// What the library's operations of a piece take longer in CPython than the piece itself, in nanoseconds, about.
/// `symbols`: the sizes of this call.
double saved_nanoseconds(const Segment& segment, std::span<const std::int64_t> symbols);
/// The same for the sizes that the piece was traced with.
double saved_nanoseconds(const Segment& segment);
/// What tracing and compiling the piece has taken, in nanoseconds, about.
double compile_nanoseconds(const Segment& segment);

}  // namespace fj
