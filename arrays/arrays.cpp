// Which library an array is of, and the half of the boundary that serves it.
#include "arrays/arrays.h"

#include "arrays/numpy_arrays.h"
#include "arrays/torch_arrays.h"
#include "arrays/torch_storage.h"

namespace fj {

std::optional<Library> array_library(PyObject* object) {
  if (is_numpy_array(object)) return Library::Numpy;
  if (is_torch_array(object)) return Library::Torch;
  return std::nullopt;
}

ArrayInfo describe(PyObject* array) { return is_numpy_array(array) ? describe_numpy(array) : describe_torch(array); }

bool make_quick(Library library, PyObject* array, QuickCheck& check) {
  return library == Library::Numpy ? make_quick_numpy(array, check) : make_quick_torch(array, check);
}

Ref<> allocate(Library library, DType dtype, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
               int device) {
  return library == Library::Numpy ? allocate_numpy(dtype, shape, strides)
                                   : allocate_torch(dtype, shape, strides, device);
}

Ref<> view_of(PyObject* base, DType dtype, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
              std::int64_t offset) {
  return is_numpy_array(base) ? view_numpy(base, dtype, shape, strides, offset)
                              : view_torch(base, dtype, shape, strides, offset);
}

void* data_pointer(PyObject* array) { return is_numpy_array(array) ? numpy_data(array) : torch_data(array); }

bool is_torch_value(PyObject* object) {
  const std::string_view type = Py_TYPE(object)->tp_name;
  return type == "torch.device" || type == "torch.layout" || type == "torch.memory_format";
}

std::optional<DType> dtype_from_object(PyObject* object) {
  if (const auto dtype = dtype_from_numpy(object)) return dtype;
  return dtype_from_torch(object);
}

Ref<> dtype_object(Library library, DType dtype) {
  return library == Library::Numpy ? numpy_dtype_object(dtype) : torch_dtype_object(dtype);
}

bool has_private_memory(PyObject* array) {
  if (array_library(array) == Library::Torch) return is_memory_of_torch(array);
  // NumPy's views name what they show.
  Ref<> base = Ref<>::borrow(array);
  while (base && base.get() != Py_None && array_library(base.get()) == Library::Numpy)
    base = Ref<>::steal(PyObject_GetAttrString(base.get(), "base"));
  PyErr_Clear();
  return base.get() == Py_None;
}

}  // namespace fj
