/// What generated kernels are written in: a few types and functions of CUDA C++, put before every kernel. No header is
/// needed to compile them. The same text compiles for the CPU behind tests/cuda/emulation.h.
///
/// Registers: half types live as float holding an exactly representable value; every operation on them computes in
/// float and rounds. Teams: `threads` neighbouring threads that work on one item together; a warp if 32, else the whole
/// block.
#pragma once

#include <string_view>

namespace fj::cuda {

extern const std::string_view prelude;

}  // namespace fj::cuda
