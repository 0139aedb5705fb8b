/// Hooks of torch that Python can't ask for.
#pragma once

#include <Python.h>

namespace fj {

/// The C function may_have_accumulator_hooks(tensor): whether a hook is on the node that adds to a leaf's gradient
/// (AccumulateGrad), as libraries of distributed training put there. True too where torch's memory is not understood.
/// Borrowed.
PyObject* accumulator_hooks_function();

}  // namespace fj
