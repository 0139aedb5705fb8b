/// Graphs as Python objects: what custom back ends receive and `explain` shows.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <vector>

#include "graph_ir/graph.h"
#include "segment/library_calls/extern_table.h"

namespace fj {

/// framejit._core.CapturedGraph.
struct PythonGraph {
  std::shared_ptr<const Graph> graph;
  std::shared_ptr<const ExternTable> externs;
};

void bind_graph(pybind11::module_& module);
/// An int, or a text where it has symbols.
pybind11::object size_object(const SymDim& size);
pybind11::tuple sizes_object(const Dims& dims);
/// ("constant", object), ("operand", number), ("size", size), ("tuple", items), ("list", items), ("slice", items) or
/// ("held", number).
pybind11::tuple argument_object(const ExternArgument& argument);
/// ("array", number) or ("tuple", items); None for what is neither.
pybind11::object structure_object(const ExternStructure& structure);
/// `externs`: lets extern_call nodes be called; null where the graph is only shown.
pybind11::object python_graph(std::shared_ptr<const Graph> graph, std::shared_ptr<const ExternTable> externs = nullptr);
/// Symbols in use that a callable can't read off its inputs' shapes: int arguments, strides. Their numbers follow the arrays.
std::vector<SymbolId> loose_symbols(const Graph& graph);

}  // namespace fj
