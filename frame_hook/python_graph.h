/// Graphs as Python objects: what custom back ends receive and `explain` shows.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "graph_ir/graph.h"

namespace fj {

void bind_graph(pybind11::module_& module);
pybind11::object python_graph(std::shared_ptr<const Graph> graph);

}  // namespace fj
