/// Views: how one is seen in a graph, and how torch makes it.
#pragma once

#include <Python.h>

#include <span>
#include <vector>

#include "frame_hook/cpython/ref.h"
#include "graph_ir/graph.h"

namespace fj {

/// One step from a storage's owner to a view, in graph operations that can be run in both directions.
struct ViewStep {
  Op op;                        // slice, transpose, reshape, broadcast; extern_call: the library's own view function
  Attrs attrs;
  Dims shape_before, shape_after;
  std::vector<Type> types = {};  // of an extern_call: its results, of which the view is number `result`
  int result = 0;
};

/// The view of a tensor by torch's own functions, so that what a gradient does on its way through it is torch's. Null: a Python error is set.
Ref<> torch_view(PyObject* tensor, std::span<const ViewStep> steps, const Strides& strides, std::span<const std::int64_t> symbols);

}  // namespace fj
