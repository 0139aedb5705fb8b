// arrays.h as Python sees it in tests, and how long its calls take.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "arrays/arrays.h"
#include "runtime/base/status.h"

namespace py = pybind11;
using namespace fj;

namespace {

using Sizes = std::vector<std::int64_t>;

DType dtype_named(const std::string& text) {
  const auto dtype = dtype_from_name(text);
  if (!dtype) throw py::value_error("no dtype " + text);
  return *dtype;
}
Library library_named(const std::string& text) { return text == "numpy" ? Library::Numpy : Library::Torch; }
py::object optional_name(std::optional<DType> dtype) {
  return dtype ? py::object(py::str(std::string(name(*dtype)))) : py::none();
}

py::object owned(Ref<> object) {
  if (!object) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(object.release());
}

py::dict described(const ArrayInfo& info) {
  py::dict result;
  result["library"] = info.library == Library::Numpy ? "numpy" : "torch";
  result["unsupported"] = info.unsupported;
  if (!info.unsupported.empty()) return result;
  result["dtype"] = std::string(name(info.dtype));
  result["shape"] = py::tuple(py::cast(info.shape));
  result["strides"] = py::tuple(py::cast(info.strides));
  result["data"] = reinterpret_cast<std::uintptr_t>(info.data);
  result["offset"] = info.storage_offset;
  result["storage"] = reinterpret_cast<std::uintptr_t>(info.storage);
  result["requires_grad"] = info.requires_grad;
  result["is_leaf"] = info.is_leaf;
  result["writeable"] = info.writeable;
  result["parameter"] = info.parameter;
  return result;
}

/// None: not readable fast.
py::object read_fast(py::object array) {
  ArrayView view;
  const auto library = array_library(array.ptr());
  if (!library || !(*library == Library::Numpy ? read_numpy(array.ptr(), view) : read_torch(array.ptr(), view)))
    return py::none();
  Sizes strides;
  for (int i = 0; i < view.rank; ++i) strides.push_back(view.strides[i] / view.stride_unit);
  py::dict result;
  result["dtype"] = std::string(name(view.dtype));
  result["shape"] = py::tuple(py::cast(Sizes(view.shape, view.shape + view.rank)));
  result["strides"] = py::tuple(py::cast(strides));
  result["data"] = reinterpret_cast<std::uintptr_t>(view.data);
  result["requires_grad"] = view.requires_grad;
  result["writeable"] = view.writeable;
  result["aligned"] = view.aligned;
  return result;
}

/// Nanoseconds of one call, the best of some rounds.
template <class F>
double time(F call) {
  double best = 1e18;
  for (int round = 0; round < 20; ++round) {
    constexpr int kCalls = 2000;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    best = std::min(
        best, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / kCalls);
  }
  return best;
}

py::dict timings(py::object array) {
  py::dict result;
  ArrayView view;
  volatile std::uint64_t sink = 0;
  const Library library = array_library(array.ptr()).value();
  if (library == Library::Numpy) {
    result["read_numpy"] = time([&] { sink = sink + read_numpy(array.ptr(), view); });
    result["numpy_trapped_conditions"] = time([&] { sink = sink + numpy_trapped_conditions(); });
  } else {
    result["read_torch"] = time([&] { sink = sink + read_torch(array.ptr(), view); });
    result["torch_grad_enabled"] = time([&] { sink = sink + torch_grad_enabled(); });
    result["torch_modes"] = time([&] { sink = sink + torch_modes(); });
    result["bump_version"] = time([&] { bump_versions(std::array{array.ptr()}); });
  }
  result["array_library"] = time([&] { sink = sink + std::uint64_t(array_library(array.ptr()).has_value()); });
  const ArrayInfo info = describe(array.ptr());
  result["allocate"] = time([&] { allocate(library, info.dtype, info.shape, info.strides); });
  result["view_of"] = time([&] { view_of(array.ptr(), info.dtype, info.shape, info.strides, 0); });
  return result;
}

}  // namespace

PYBIND11_MODULE(framejit_array_tests, module) {
  module.def("array_library", [](py::object object) -> py::object {
    const auto library = array_library(object.ptr());
    return library ? py::object(py::str(*library == Library::Numpy ? "numpy" : "torch")) : py::none();
  });
  module.def("describe", [](py::object array) { return described(describe(array.ptr())); });
  module.def("read", &read_fast);
  module.def("numpy_scalar_dtype", [](py::object object) { return optional_name(numpy_scalar_dtype(object.ptr())); });
  module.def("allocate", [](const std::string& library, const std::string& dtype, Sizes shape, Sizes strides) {
    return owned(allocate(library_named(library), dtype_named(dtype), shape, strides));
  });
  module.def("view_of", [](py::object base, const std::string& dtype, Sizes shape, Sizes strides, std::int64_t offset) {
    return owned(view_of(base.ptr(), dtype_named(dtype), shape, strides, offset));
  });
  module.def("numpy_scalar", [](py::object array) {
    const ArrayInfo info = describe(array.ptr());
    return owned(numpy_scalar(info.dtype, info.data));
  });
  module.def("data_pointer",
             [](py::object array) { return reinterpret_cast<std::uintptr_t>(data_pointer(array.ptr())); });
  module.def("bump_versions", [](const std::vector<py::object>& tensors) {
    std::vector<PyObject*> all;
    for (const py::object& tensor : tensors) all.push_back(tensor.ptr());
    return bump_versions(all);
  });
  module.def("cross_view",
             [](py::object array, const std::string& to) { return owned(cross_view(array.ptr(), library_named(to))); });
  module.def("dtype_from_object", [](py::object dtype) { return optional_name(dtype_from_object(dtype.ptr())); });
  module.def("dtype_object", [](const std::string& library, const std::string& dtype) {
    return owned(dtype_object(library_named(library), dtype_named(dtype)));
  });
  module.def("has_torch", [] { return torch_module() != nullptr; });
  module.def("torch_grad_enabled", &torch_grad_enabled);
  module.def("torch_modes", &torch_modes);
  module.def("torch_modes_refusal", [] { return std::string(torch_modes_refusal() ? torch_modes_refusal() : ""); });
  module.def("torch_unsupported_reason",
             [] { return std::string(torch_unsupported_reason() ? torch_unsupported_reason() : ""); });
  module.def("numpy_trapped_conditions", &numpy_trapped_conditions);
  module.def("timings", &timings);
  module.attr("divide") = std::uint32_t(kFloatDivide);
  module.attr("overflow") = std::uint32_t(kFloatOverflow);
  module.attr("underflow") = std::uint32_t(kFloatUnderflow);
  module.attr("invalid") = std::uint32_t(kFloatInvalid);
}
