/// Views: how one is seen in a graph, and how torch makes it.
#pragma once

#include <Python.h>

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cpython/ref.h"
#include "graph_ir/graph.h"

namespace fj {

/// The call of torch that made a view, function(tensor, *arguments, **keywords): its name is in errors of autograd, and
/// where it returns several views, autograd refuses writes into them. Null references: none.
struct ViewCall {
  Ref<> function, arguments, keywords;
  int which = -1;               // of the several
  std::size_t steps = 1;        // that it stands for
  std::shared_ptr<const char> together = nullptr;  // one for all that the call returned
};

/// What calls that return several views have returned, by call and tensor: they are made once for all.
using ViewsMade = std::map<std::pair<const char*, PyObject*>, Ref<>>;

/// One step from a storage's owner to a view, in graph operations that can be run in both directions.
struct ViewStep {
  Op op;                        // slice, transpose, reshape, broadcast; extern_call: the library's own view function
  Attrs attrs;
  Dims shape_before, shape_after;
  std::vector<Type> types = {};  // of an extern_call: its results, of which the view is number `result`
  int result = 0;
  bool recorded = true;          // by autograd, where it was made
  /// Of the first step of a tensor's view, where its arguments are known.
  std::shared_ptr<const ViewCall> made_by = nullptr;
};

/// The view of a tensor by torch's own functions, so that what a gradient does on its way through it is torch's. Null:
/// a Python error is set.
Ref<> torch_view(PyObject* tensor, std::span<const ViewStep> steps, const Strides& strides,
                 std::span<const std::int64_t> symbols, ViewsMade* made = nullptr);

}  // namespace fj
