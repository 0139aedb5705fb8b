/// Graphs made from Python: what framejit.Graph is turned into when it has been edited.
#pragma once

#include <pybind11/pybind11.h>

namespace fj {

/// framejit._core.GraphBuilder and infer_type.
void bind_graph_builder(pybind11::module_& module);

}  // namespace fj
