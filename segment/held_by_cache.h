/// What functools.lru_cache holds.
#pragma once

#include "cpython/ref.h"

namespace fj {

/// What an lru_cache holds for positional arguments that no code of the user's compares, without asking it: it counts
/// who asks. Null: nothing, or it is not known.
Ref<> held_by_cache(PyObject* wrapper, PyObject* arguments);

}  // namespace fj
