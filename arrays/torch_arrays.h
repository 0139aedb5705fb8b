/// torch's half of arrays.h.
#pragma once

#include <initializer_list>

#include "arrays/arrays.h"
#include "arrays/quick_check.h"

namespace fj {

bool is_torch_array(PyObject* object);
ArrayInfo describe_torch(PyObject* tensor);
bool make_quick_torch(PyObject* tensor, QuickCheck& check);
Ref<> allocate_torch(DType dtype, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
                     int device);
Ref<> view_torch(PyObject* base, DType dtype, std::span<const std::int64_t> shape,
                 std::span<const std::int64_t> strides, std::int64_t offset);
void* torch_data(PyObject* tensor);
std::optional<DType> dtype_from_torch(PyObject* object);
Ref<> torch_dtype_object(DType dtype);

/// The object at a path below the torch module: a new reference, or null with no error set.
PyObject* torch_attribute(std::initializer_list<const char*> path);
/// The value of a Python expression over `torch`; null, with no error set, if it fails.
Ref<> torch_evaluate(const char* expression);

}  // namespace fj
