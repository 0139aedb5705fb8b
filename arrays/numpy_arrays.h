/// NumPy's half of arrays.h.
#pragma once

#include "arrays/arrays.h"
#include "arrays/quick_check.h"

namespace fj {

bool is_numpy_array(PyObject* object);
ArrayInfo describe_numpy(PyObject* array);
bool make_quick_numpy(PyObject* array, QuickCheck& check);
Ref<> allocate_numpy(DType dtype, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);
/// Of zeros, in memory that the system gives where they are many; null without an error where they lie otherwise than row by row.
Ref<> zeros_of_numpy(DType dtype, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);
Ref<> view_numpy(PyObject* base, DType dtype, std::span<const std::int64_t> shape,
                 std::span<const std::int64_t> strides, std::int64_t offset);
/// What goes with an array: what its memory belongs to (null: nobody else), the objects that are its elements.
struct NumpyHolds {
  PyObject* base;
  bool objects;
};
NumpyHolds numpy_holds(PyObject* array);
void* numpy_data(PyObject* array);
std::optional<DType> dtype_from_numpy(PyObject* object);
Ref<> numpy_dtype_object(DType dtype);

}  // namespace fj
