/// What torch.func computes, by graph_transforms.cpp, where that is what torch gives: what else a trace could tell or
/// do inside of such a function ends the graph.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

/// What the functions of framejit/_support/torch_func.py mean that have a marker. Null: none of these.
V torch_transform(TraceRun& t, const std::string& marker, const std::vector<V>& arguments);
/// Breaks inside of a function that torch.func derives or maps, where tensors are torch's wrappers of others.
void refuse_in_torch_transform(TraceRun& t, const std::string& what);
/// Breaks inside of a function that torch.func derives forwards: what gradients do not see it derives all the same.
void refuse_unrecorded_in_forward(TraceRun& t);
/// The Python code that is traced in the place of a function of torch; null: another callable.
PyObject* code_of_torch_transform(PyObject* callable);

}  // namespace fj
