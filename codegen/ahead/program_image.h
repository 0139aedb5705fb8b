/// A program as bytes: everything that a CompiledProgram is made of but its kernels' code. It is read where it was put
/// into a library (run_library.cpp), by the same version of framejit that has written it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/compiled_program.h"

namespace fj {

/// A size that the caller gives.
struct ImageSize {
  std::string name;  // "batch"
  int symbol = 0;
  std::int64_t low = 0, high = INT64_MAX;
};

struct ProgramImage {
  ProgramParts parts;         // for this process's cores; `kernels` have no code
  std::vector<int> functions;  // by kernel (each_kernel): the number of its machine code
  std::vector<ImageSize> sizes;
  /// By input of the graph: the number of the caller's array, or ~n for array n of the state.
  std::vector<int> arguments;
  std::vector<std::string> argument_names, result_names;
};

std::string write_image(const ProgramImage& image);
/// Throws InternalError for bytes that `write_image` has not written.
ProgramImage read_image(std::string_view bytes);

}  // namespace fj
