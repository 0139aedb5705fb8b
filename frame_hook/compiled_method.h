/// `object.method` where the class holds a compiled function: a bound method whose `using(...)` keeps the object.
#pragma once

#include <Python.h>

namespace fj {

/// New reference or null with an error set. The type is made at the first call.
PyObject* new_compiled_method(PyObject* function, PyObject* self);

}  // namespace fj
