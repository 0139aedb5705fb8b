/// A node of torch's graph that stands for one run of a compiled program: an application of a torch.autograd.Function
/// whose forward and backward are functions of ours, so that making one runs no Python code.
#pragma once

#include <Python.h>

#include <functional>
#include <span>
#include <vector>

#include "cpython/ref.h"

namespace fj {

/// The gradients by the sources, None where none reaches it. Null: a Python error is set. Of a backward that frees what
/// was saved, `saved` is all that holds it: what has been read can go before the rest runs.
using RunBackward = std::function<Ref<>(std::vector<Ref<>> saved, std::span<PyObject* const> cotangents)>;

/// The results as a tuple of those of a node that begins with `sources`. Null: a Python error is set.
/// `saved` is torch's to keep: it checks the tensors' versions when backward reads them, and frees them. `frees`:
/// backward can run once even if nothing is saved, as where eager would save what ours does not read.
Ref<> make_autograd_node(Ref<> results, Ref<> saved, bool frees, std::span<PyObject* const> sources,
                         RunBackward backward);

}  // namespace fj
