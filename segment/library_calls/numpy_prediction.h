/// What a function of NumPy returns, found by trying it on arrays of the same layout with contents of our own: NumPy
/// has nothing like torch's meta device.
#pragma once

#include <span>

#include "segment/library_calls/extern_prediction.h"

namespace fj {

/// As `predict`, without its memory. Refuses functions that raise on such contents, that write into anything but
/// `call.mutated`, whose results share memory, and arrays so large that a break costs nothing beside the call.
Prediction try_numpy(const ExternCall& call, std::span<const ExternArray> operands,
                     std::span<const std::int64_t> symbols);

/// An array of this layout with such contents. Null with an error set.
Ref<> numpy_stand_in(const ExternArray& array, bool writeable);
/// The function on stand-ins; a warning raises. Null with the error set.
Ref<> try_on_stand_ins(PyObject* callable, PyObject* positional, PyObject* keywords);

}  // namespace fj
