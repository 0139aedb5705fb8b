// torch's side of the boundary. Nothing is linked: tensors are read through the calibrated layout and made through torch's
// public Python functions, whose objects are looked up once.
#include "tracer/frontends/arrays/torch_arrays.h"

#include <cstring>

#include "runtime/base/error.h"
#include "tracer/frontends/arrays/numpy_arrays.h"
#include "tracer/frontends/arrays/torch_layout.h"

namespace fj {
namespace {

/// torch's objects that are used at each call; owned for the life of the process, as torch itself is.
struct TorchObjects {
  PyTypeObject* tensor = nullptr;
  PyTypeObject* parameter = nullptr;
  PyObject *empty_strided = nullptr, *as_strided = nullptr, *from_numpy = nullptr;
  PyObject *is_grad_enabled = nullptr, *is_inference_mode = nullptr, *increment_version = nullptr;
  PyObject *any_autocast = nullptr, *autocast_dtype = nullptr, *default_dtype = nullptr, *deterministic = nullptr;
  PyObject *function_modes = nullptr, *dispatch_modes = nullptr, *functorch_level = nullptr;
  PyObject* no_grad = nullptr;
  PyObject* dtypes[kDTypeCount] = {};
  PyObject* allocation_keywords = nullptr;  // ("dtype", "device")
  PyObject* cpu = nullptr;
};

PyObject* attribute(PyObject* owner, std::initializer_list<const char*> path) {
  Ref<> current = Ref<>::borrow(owner);
  for (const char* name : path) {
    current = Ref<>::steal(PyObject_GetAttrString(current.get(), name));
    if (!current) {
      PyErr_Clear();
      return nullptr;
    }
  }
  return current.release();
}

constexpr const char* torch_names[] = {"bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
                                       "float16", "bfloat16", "float32", "float64", "complex64", "complex128"};
static_assert(std::size(torch_names) == kDTypeCount, "one torch name per row of dtype.def");

const TorchObjects* objects() {
  static TorchObjects found;
  static bool complete = false;
  if (complete) return &found;
  PyObject* torch = torch_module();
  if (torch == nullptr) return nullptr;
  found.tensor = reinterpret_cast<PyTypeObject*>(attribute(torch, {"Tensor"}));
  found.parameter = reinterpret_cast<PyTypeObject*>(attribute(torch, {"nn", "Parameter"}));
  found.empty_strided = attribute(torch, {"empty_strided"});
  found.as_strided = attribute(torch, {"_C", "TensorBase", "as_strided"});
  found.from_numpy = attribute(torch, {"from_numpy"});
  found.is_grad_enabled = attribute(torch, {"_C", "is_grad_enabled"});
  if (found.is_grad_enabled == nullptr) found.is_grad_enabled = attribute(torch, {"is_grad_enabled"});
  found.is_inference_mode = attribute(torch, {"is_inference_mode_enabled"});
  found.increment_version = attribute(torch, {"autograd", "graph", "increment_version"});
  found.any_autocast = attribute(torch, {"_C", "_is_any_autocast_enabled"});
  found.autocast_dtype = attribute(torch, {"get_autocast_dtype"});
  found.default_dtype = attribute(torch, {"get_default_dtype"});
  found.deterministic = attribute(torch, {"_C", "_get_deterministic_algorithms"});
  found.function_modes = attribute(torch, {"_C", "_len_torch_function_stack"});
  found.dispatch_modes = attribute(torch, {"_C", "_len_torch_dispatch_stack"});
  found.functorch_level = attribute(torch, {"_C", "_functorch", "maybe_current_level"});
  found.no_grad = attribute(torch, {"no_grad"});
  for (int i = 0; i < kDTypeCount; ++i) found.dtypes[i] = attribute(torch, {torch_names[i]});
  found.allocation_keywords = Py_BuildValue("(ss)", "dtype", "device");
  Ref<> device = Ref<>::steal(PyObject_CallMethod(torch, "device", "s", "cpu"));
  PyErr_Clear();
  found.cpu = device.release();
  // Half imported, or a torch without these: try again at the next call.
  complete = found.tensor && found.parameter && found.empty_strided && found.as_strided && found.from_numpy && found.is_grad_enabled &&
             found.is_inference_mode && found.increment_version && found.any_autocast && found.default_dtype && found.function_modes &&
             found.dispatch_modes && found.functorch_level && found.cpu;
  return complete ? &found : nullptr;
}

std::int64_t call_for_number(PyObject* function) {
  Ref<> value = Ref<>::steal(PyObject_CallNoArgs(function));
  if (!value) {
    PyErr_Clear();
    return -1;
  }
  if (value.get() == Py_None) return 0;
  const long number = PyLong_AsLong(value.get());
  if (PyErr_Occurred()) PyErr_Clear();
  return number;
}

bool call_for_truth(PyObject* function) {
  Ref<> value = Ref<>::steal(PyObject_CallNoArgs(function));
  if (!value) PyErr_Clear();
  return !value || value.get() == Py_True;
}

template <class T>
T read_at(const void* base, int offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + offset, sizeof value);
  return value;
}

bool attribute_is_true(PyObject* object, const char* name) {
  Ref<> value = Ref<>::steal(PyObject_GetAttrString(object, name));
  if (!value) PyErr_Clear();
  return value && value.get() == Py_True;
}

/// requires_grad() is the flag of a leaf or the presence of a grad_fn; only tensors with autograd metadata can have either.
bool needs_gradient(PyObject* tensor, const void* implementation, const TorchLayout& layout) {
  if (read_at<const void*>(implementation, layout.autograd_meta) == nullptr) return false;
  return attribute_is_true(tensor, "requires_grad");
}

Ref<> int_tuple(std::span<const std::int64_t> values) {
  Ref<> tuple = Ref<>::steal(PyTuple_New(Py_ssize_t(values.size())));
  for (std::size_t i = 0; tuple && i < values.size(); ++i) {
    PyObject* number = PyLong_FromLongLong(values[i]);
    if (number == nullptr) return {};
    PyTuple_SET_ITEM(tuple.get(), Py_ssize_t(i), number);
  }
  return tuple;
}

}  // namespace

PyObject* torch_module() {
  static PyObject* module = nullptr;
  if (module == nullptr) {
    module = PyDict_GetItemString(PyImport_GetModuleDict(), "torch");
    // Half imported (framejit used while torch is being imported): not there yet.
    if (module != nullptr && !(PyObject_HasAttrString(module, "compile") && PyObject_HasAttrString(module, "nn"))) return module = nullptr;
    Py_XINCREF(module);
  }
  return module;
}

bool is_torch_array(PyObject* object) {
  const TorchObjects* torch = objects();
  return torch != nullptr && (Py_TYPE(object) == torch->tensor || Py_TYPE(object) == torch->parameter);
}

bool read_torch(PyObject* tensor, ArrayView& view) {
  const TorchLayout* layout = torch_layout();
  if (layout == nullptr) return false;
  const void* implementation = read_at<const void*>(tensor, layout->implementation);
  if (implementation == nullptr) return false;
  const auto code = read_at<std::uint16_t>(implementation, layout->dtype);
  if (code >= TorchLayout::kDTypeCodes || layout->dtype_of_code[code] < 0) return false;
  view.key_set = read_at<std::uint64_t>(implementation, layout->key_set);
  // Only these are known to keep sizes, strides and storage where we look.
  if (view.key_set != layout->plain_keys && view.key_set != layout->plain_keys_with_gradient) return false;
  view.dtype = DType(layout->dtype_of_code[code]);
  view.rank = int(read_at<std::uint64_t>(implementation, layout->rank));
  if (view.rank <= layout->inline_rank) {
    view.shape = reinterpret_cast<const std::int64_t*>(static_cast<const char*>(implementation) + layout->inline_sizes);
    view.strides = reinterpret_cast<const std::int64_t*>(static_cast<const char*>(implementation) + layout->inline_strides);
  } else {
    view.shape = read_at<const std::int64_t*>(implementation, layout->inline_sizes);
    view.strides = view.shape + view.rank;
  }
  view.stride_unit = 1;
  const void* storage = read_at<const void*>(implementation, layout->storage);
  if (storage == nullptr) return false;
  char* data = read_at<char*>(storage, layout->storage_data);
  const std::size_t size = size_in_bytes(view.dtype);
  view.data = data == nullptr ? nullptr : data + std::int64_t(size) * read_at<std::int64_t>(implementation, layout->storage_offset);
  view.requires_grad = needs_gradient(tensor, implementation, *layout);
  view.writeable = true;
  view.aligned = reinterpret_cast<std::uintptr_t>(view.data) % (size > 8 ? 8 : size) == 0;
  return true;
}

ArrayInfo describe_torch(PyObject* tensor) {
  ArrayInfo info;
  info.library = Library::Torch;
  info.parameter = Py_TYPE(tensor) == objects()->parameter;
  ArrayView view;
  if (!read_torch(tensor, view)) {
    const TorchLayout* layout = torch_layout();
    Ref<> kind;
    if (layout != nullptr)
      for (const char* property : {"device", "layout", "dtype"}) {
        kind = Ref<>::steal(PyObject_GetAttrString(tensor, property));
        Ref<> text = kind ? Ref<>::steal(PyObject_Str(kind.get())) : Ref<>();
        PyErr_Clear();
        const std::string found = text ? PyUnicode_AsUTF8(text.get()) : "?";
        if (property[0] == 'd' && property[1] == 'e' ? found != "cpu" : property[0] == 'l' ? found != "torch.strided" : true) {
          info.unsupported = "a tensor of " + std::string(property) + " " + found;
          break;
        }
      }
    if (layout == nullptr) info.unsupported = "a tensor of a torch whose memory layout framejit does not know";
    const std::uint64_t keys =
        layout != nullptr ? read_at<std::uint64_t>(read_at<const void*>(tensor, layout->implementation), layout->key_set) : 0;
    if (layout != nullptr && (keys & layout->conj_bit)) info.unsupported = "a lazily conjugated tensor";
    if (layout != nullptr && (keys & layout->neg_bit)) info.unsupported = "a lazily negated tensor";
    return info;
  }
  info.dtype = view.dtype;
  info.shape.assign(view.shape, view.shape + view.rank);
  info.strides.assign(view.strides, view.strides + view.rank);
  info.data = view.data;
  const TorchLayout& layout = *torch_layout();
  const void* implementation = read_at<const void*>(tensor, layout.implementation);
  info.storage = read_at<const void*>(implementation, layout.storage);
  info.storage_offset = read_at<std::int64_t>(implementation, layout.storage_offset);
  info.requires_grad = view.requires_grad;
  info.is_leaf = !info.requires_grad || attribute_is_true(tensor, "is_leaf");
  info.key_set = view.key_set;
  if (!view.aligned) info.unsupported = "memory that is not aligned to its dtype";
  return info;
}

Ref<> allocate_torch(DType dtype, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  const TorchObjects* torch = objects();
  FJ_CHECK(torch != nullptr, "torch is not loaded");
  const Ref<> sizes = int_tuple(shape), steps = int_tuple(strides);
  if (!sizes || !steps) return {};
  // The device is said: a default device of the user must not catch it.
  PyObject* arguments[] = {sizes.get(), steps.get(), torch->dtypes[int(dtype)], torch->cpu};
  return Ref<>::steal(PyObject_Vectorcall(torch->empty_strided, arguments, 2, torch->allocation_keywords));
}

Ref<> view_torch(PyObject* base, DType, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides, std::int64_t offset) {
  const TorchObjects* torch = objects();
  FJ_CHECK(torch != nullptr, "torch is not loaded");
  const TorchLayout* layout = torch_layout();
  FJ_CHECK(layout != nullptr, "torch's layout is not known");
  const auto start = read_at<std::int64_t>(read_at<const void*>(base, layout->implementation), layout->storage_offset);
  const Ref<> sizes = int_tuple(shape), steps = int_tuple(strides);
  const Ref<> first = Ref<>::steal(PyLong_FromLongLong(start + offset));
  if (!sizes || !steps || !first) return {};
  PyObject* arguments[] = {base, sizes.get(), steps.get(), first.get()};
  return Ref<>::steal(PyObject_Vectorcall(torch->as_strided, arguments, 4, nullptr));
}

void* torch_data(PyObject* tensor) {
  ArrayView view;
  return read_torch(tensor, view) ? view.data : nullptr;
}

bool bump_version(PyObject* tensor, int by) {
  const TorchObjects* torch = objects();
  for (int i = 0; i < by; ++i)
    if (!Ref<>::steal(PyObject_CallOneArg(torch->increment_version, tensor))) return false;
  return true;
}

Ref<> cross_view(PyObject* array, Library to) {
  if (to == Library::Numpy) return Ref<>::steal(PyObject_CallMethod(array, "numpy", nullptr));
  return Ref<>::steal(PyObject_CallOneArg(objects()->from_numpy, array));
}

std::optional<DType> dtype_from_torch(PyObject* object) {
  const TorchObjects* torch = objects();
  if (torch == nullptr) return std::nullopt;
  for (int i = 0; i < kDTypeCount; ++i)
    if (object == torch->dtypes[i]) return DType(i);
  return std::nullopt;
}

Ref<> torch_dtype_object(DType dtype) {
  const TorchObjects* torch = objects();
  FJ_CHECK(torch != nullptr, "torch is not loaded");
  return Ref<>::borrow(torch->dtypes[int(dtype)]);
}

bool torch_grad_enabled() {
  const TorchObjects* torch = objects();
  return torch != nullptr && call_for_truth(torch->is_grad_enabled);
}

std::uint64_t torch_modes() {
  const TorchObjects* torch = objects();
  if (torch == nullptr) return 0;
  std::uint64_t word = 0;
  if (call_for_truth(torch->is_inference_mode)) word |= 1;
  if (torch->deterministic != nullptr && call_for_truth(torch->deterministic)) word |= 2;
  if (call_for_truth(torch->any_autocast)) {
    word |= 4;
    Ref<> dtype = torch->autocast_dtype != nullptr ? Ref<>::steal(PyObject_CallFunction(torch->autocast_dtype, "s", "cpu")) : Ref<>();
    PyErr_Clear();
    const auto known = dtype ? dtype_from_torch(dtype.get()) : std::nullopt;
    word |= std::uint64_t(known ? int(*known) + 1 : 0xff) << 8;
  }
  Ref<> default_dtype = Ref<>::steal(PyObject_CallNoArgs(torch->default_dtype));
  PyErr_Clear();
  const auto known = default_dtype ? dtype_from_torch(default_dtype.get()) : std::nullopt;
  // 0 where nothing differs from a fresh process.
  if (!known || *known != DType::F32) word |= std::uint64_t(known ? int(*known) + 1 : 0xff) << 16;
  word |= std::uint64_t(call_for_number(torch->function_modes) & 0xff) << 24;
  word |= std::uint64_t(call_for_number(torch->dispatch_modes) & 0xff) << 32;
  word |= std::uint64_t(call_for_number(torch->functorch_level) & 0xff) << 40;
  return word;
}

const char* torch_unsupported_reason() {
  if (torch_module() == nullptr || torch_modes() != 0 || torch_layout() != nullptr) return nullptr;
  return "framejit does not know how this torch lays out its tensors: functions on tensors run eagerly";
}

}  // namespace fj
