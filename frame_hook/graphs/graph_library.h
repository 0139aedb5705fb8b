/// Graphs as libraries with a C interface, from Python.
#pragma once

#include <pybind11/pybind11.h>

namespace fj {

/// framejit._core.build_objects, training_graphs, processor_levels and processor_has.
void bind_graph_library(pybind11::module_& module);

}  // namespace fj
