/// What functools.lru_cache holds.
#pragma once

#include "cpython/ref.h"

namespace fj {

/// What an lru_cache holds for plain positional arguments, without asking it: it counts who asks. Null: nothing, or it
/// is not known.
Ref<> held_by_cache(PyObject* wrapper, PyObject* arguments);

}  // namespace fj
