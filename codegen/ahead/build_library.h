/// A graph as the object files of a library with a C interface (library_interface.h), which a linker makes of them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/ahead/program_image.h"
#include "graph_ir/graph.h"

namespace fj {

struct LibraryRequest {
  std::string name;  // an identifier of C: of the function, and the beginning of all other names
  /// What the caller gives. Symbols that are no size here are defined by the graph.
  std::vector<ImageSize> sizes;
  std::vector<int> arguments;  // as ProgramImage::arguments
  std::vector<std::string> argument_names, result_names;
  std::vector<std::string_view> state;  // the bytes of each contiguous array
  std::vector<std::string> cpus;        // of processor.h, each once
  bool any_layout = false;    // results lie in memory as the graph says; else without gaps
  bool float_conditions = false;  // IEEE conditions are collected
};

/// Gives each file to `write`, by its name. The library defines, for sizes n and m, arguments x and y and a result r,
///
///     int NAME(int64_t n, int64_t m, const T *x, const T *y, T *r);
///     const char *NAME_error(void);
///     void NAME_set_threads(int);
///     int NAME_run(const int64_t *sizes, void *const *arguments, void *const *results, uint32_t trapped);
///
/// and needs libframejit_program.so. Arrays are contiguous; a graph that writes an input writes the caller's array.
/// Precondition: the graph calls no array library and has no late size.
void build_objects(const Graph& graph, const LibraryRequest& request,
                   const std::function<void(const std::string& file, const std::string& contents)>& write);

}  // namespace fj
