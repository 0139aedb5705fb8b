// torch's side of the boundary. Nothing is linked: tensors are read through the calibrated layout and made through
// torch's public Python functions, whose objects are looked up once.
#include "arrays/torch_arrays.h"

#include <algorithm>
#include <cstring>

#include "arrays/numpy_arrays.h"
#include "arrays/torch_empty.h"
#include "arrays/torch_layout.h"
#include "arrays/torch_modes.h"
#include "arrays/torch_storage.h"
#include "runtime/allocator.h"
#include "runtime/base/error.h"

namespace fj {
namespace {

/// torch's objects that are used at each call; owned for the life of the process, as torch itself is.
struct TorchObjects {
  PyTypeObject* tensor = nullptr;
  PyTypeObject* parameter = nullptr;
  PyObject *empty_strided = nullptr, *as_strided = nullptr, *from_numpy = nullptr;
  PyObject* increment_version = nullptr;
  PyObject* increment_versions = nullptr;  // (iterable of tensors), without a frame of Python; may be null
  PyObject* set_versions = nullptr;        // (tuple of tensors, tuple of ints); may be null
  /// (sizes, strides, dtype) -> CPU tensor, without empty_strided's argument parser; may be null.
  PyObject* quick_empty = nullptr;
  PyObject* dtypes[kDTypeCount] = {};
  PyObject* allocation_keywords = nullptr;  // ("dtype", "device")
  PyObject* cpu = nullptr;
};

constexpr const char* torch_names[] = {"bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
                                       "float16", "bfloat16", "float32", "float64", "complex64", "complex128"};
static_assert(std::size(torch_names) == kDTypeCount, "one torch name per row of dtype.def");

const TorchObjects* objects() {
  static TorchObjects found;
  static bool complete = false;
  if (complete) return &found;
  PyObject* torch = torch_module();
  if (torch == nullptr) return nullptr;
  const HeldSignals held;
  const PlainThread plain;
  found.tensor = reinterpret_cast<PyTypeObject*>(torch_attribute({"Tensor"}));
  found.parameter = reinterpret_cast<PyTypeObject*>(torch_attribute({"nn", "Parameter"}));
  found.empty_strided = torch_attribute({"empty_strided"});
  found.as_strided = torch_attribute({"_C", "TensorBase", "as_strided"});
  found.from_numpy = torch_attribute({"from_numpy"});
  found.increment_version = torch_attribute({"autograd", "graph", "increment_version"});
  // Private, so it is tried out: what it makes must be an ordinary tensor of the layout asked for.
  const Ref<> ordinary = torch_evaluate(
      "(lambda t: type(t) is torch.Tensor and t.shape == (2, 3) and t.stride() == (1, 2) and t.dtype is torch.float64 "
      "and t.device.type == 'cpu'"
      " and t._base is None and t._version == 0 and t.untyped_storage().nbytes() == 48 and "
      "t.untyped_storage().resizable())"
      "(torch._C._dynamo.guards._empty_strided_cpu((2, 3), (1, 2), torch.float64))");
  const Ref<> twice =
      torch_evaluate("(lambda t: torch._C._increment_version((t, t)) is None and t._version == 2)(torch.empty(1))");
  if (twice.get() == Py_True) found.increment_versions = torch_attribute({"_C", "_increment_version"});
  const Ref<> sets = torch_evaluate(
      "(lambda t: torch._C._autograd._unsafe_set_version_counter((t,), (7,)) is None and t._version == 7)"
      "(torch.empty(1))");
  if (sets.get() == Py_True) found.set_versions = torch_attribute({"_C", "_autograd", "_unsafe_set_version_counter"});
  if (ordinary.get() == Py_True) found.quick_empty = torch_attribute({"_C", "_dynamo", "guards", "_empty_strided_cpu"});
  for (int i = 0; i < kDTypeCount; ++i) found.dtypes[i] = torch_attribute({torch_names[i]});
  found.allocation_keywords = Py_BuildValue("(ss)", "dtype", "device");
  Ref<> device = Ref<>::steal(PyObject_CallMethod(torch, "device", "s", "cpu"));
  PyErr_Clear();
  found.cpu = device.release();
  // Half imported, or a torch without these: try again at the next call.
  complete = found.tensor && found.parameter && found.empty_strided && found.as_strided && found.from_numpy &&
             found.increment_version && found.allocation_keywords && found.cpu;
  return complete ? &found : nullptr;
}

template <class T>
T read_at(const void* base, int offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + offset, sizeof value);
  return value;
}

/// A mode of the user's is not asked.
bool attribute_is_true(PyObject* object, const char* name) {
  const PlainThread plain;
  Ref<> value = Ref<>::steal(PyObject_GetAttrString(object, name));
  if (!value) PyErr_Clear();
  return value && value.get() == Py_True;
}

/// Only tensors with autograd metadata can need a gradient.
bool needs_gradient(PyObject* tensor, const void* implementation, const TorchLayout& layout) {
  if (read_at<const void*>(implementation, layout.autograd_meta) == nullptr) return false;
  if (layout.requires_grad != nullptr) return layout.requires_grad(implementation);
  return attribute_is_true(tensor, "requires_grad");
}

/// kHost for the CPU's.
int device_of(const void* implementation, const TorchLayout& layout) {
  const std::uint16_t code = layout.device < 0 ? 0 : read_at<std::uint16_t>(implementation, layout.device);
  return (code & 0xff) == TorchLayout::kCudaType ? code >> 8 : kHost;
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
  static PyObject *module = nullptr, *name = nullptr;
  if (module == nullptr) {
    if (name == nullptr && (name = PyUnicode_InternFromString("torch")) == nullptr) return nullptr;
    module = PyDict_GetItemWithError(PyImport_GetModuleDict(), name);
    // Half imported (framejit used while torch is being imported): not there yet.
    if (module != nullptr && !(PyObject_HasAttrString(module, "compile") && PyObject_HasAttrString(module, "nn")))
      return module = nullptr;
    Py_XINCREF(module);
  }
  return module;
}

PyObject* torch_attribute(std::initializer_list<const char*> path) {
  Ref<> current = Ref<>::borrow(torch_module());
  for (const char* name : path) {
    if (current) current = Ref<>::steal(PyObject_GetAttrString(current.get(), name));
    if (!current) PyErr_Clear();
  }
  return current.release();
}

Ref<> torch_evaluate(const char* expression) {
  const Ref<> scope = Ref<>::steal(PyDict_New());
  if (torch_module() == nullptr || !scope || PyDict_SetItemString(scope.get(), "torch", torch_module()) < 0 ||
      PyDict_SetItemString(scope.get(), "__builtins__", PyEval_GetBuiltins()) < 0)
    return {};
  Ref<> result = Ref<>::steal(PyRun_String(expression, Py_eval_input, scope.get(), scope.get()));
  PyErr_Clear();
  return result;
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
  if (!layout->is_plain(view.key_set)) return false;
  view.dtype = DType(layout->dtype_of_code[code]);
  view.rank = int(read_at<std::uint64_t>(implementation, layout->rank));
  if (view.rank <= layout->inline_rank) {
    view.shape = reinterpret_cast<const std::int64_t*>(static_cast<const char*>(implementation) + layout->inline_sizes);
    view.strides =
        reinterpret_cast<const std::int64_t*>(static_cast<const char*>(implementation) + layout->inline_strides);
  } else {
    view.shape = read_at<const std::int64_t*>(implementation, layout->inline_sizes);
    view.strides = view.shape + view.rank;
  }
  view.stride_unit = 1;
  const void* storage = read_at<const void*>(implementation, layout->storage);
  if (storage == nullptr) return false;
  char* data = read_at<char*>(storage, layout->storage_data);
  const std::size_t size = size_in_bytes(view.dtype);
  view.data = data == nullptr
                  ? nullptr
                  : data + std::int64_t(size) * read_at<std::int64_t>(implementation, layout->storage_offset);
  view.requires_grad = needs_gradient(tensor, implementation, *layout);
  view.writeable = true;
  view.device = device_of(implementation, *layout);
  view.aligned = reinterpret_cast<std::uintptr_t>(view.data) % (size > 8 ? 8 : size) == 0;
  return true;
}

bool make_quick_torch(PyObject* tensor, QuickCheck& check) {
  const TorchLayout* layout = torch_layout();
  const void* implementation = layout ? read_at<const void*>(tensor, layout->implementation) : nullptr;
  if (implementation == nullptr) return false;
  check.dtype_code = read_at<std::uint16_t>(implementation, layout->dtype);
  check.key_set = read_at<std::uint64_t>(implementation, layout->key_set);
  if (check.dtype_code >= TorchLayout::kDTypeCodes || layout->dtype_of_code[check.dtype_code] < 0) return false;
  // Of other key sets it is not known where sizes and memory are.
  if (!layout->is_plain(check.key_set)) return false;
  check.device_code = layout->device < 0 ? 0 : read_at<std::uint16_t>(implementation, layout->device);
  check.alignment =
      std::uint8_t(std::min<std::size_t>(8, size_in_bytes(DType(layout->dtype_of_code[check.dtype_code]))));
  return true;
}

bool quick_torch(PyObject* tensor, const QuickCheck& check, void*& data) {
  const TorchLayout& layout = *torch_layout();
  const void* implementation = read_at<const void*>(tensor, layout.implementation);
  if (implementation == nullptr || read_at<std::uint16_t>(implementation, layout.dtype) != check.dtype_code ||
      read_at<std::uint64_t>(implementation, layout.key_set) != check.key_set ||
      read_at<std::uint64_t>(implementation, layout.rank) != std::uint64_t(check.rank) ||
      (layout.device >= 0 && read_at<std::uint16_t>(implementation, layout.device) != check.device_code))
    return false;
  const auto* inline_sizes =
      reinterpret_cast<const std::int64_t*>(static_cast<const char*>(implementation) + layout.inline_sizes);
  const auto* inline_strides =
      reinterpret_cast<const std::int64_t*>(static_cast<const char*>(implementation) + layout.inline_strides);
  const bool is_inline = check.rank <= layout.inline_rank;
  const std::int64_t* sizes =
      is_inline ? inline_sizes : read_at<const std::int64_t*>(implementation, layout.inline_sizes);
  if (!same_layout(check, sizes, is_inline ? inline_strides : sizes + check.rank)) return false;
  const void* storage = read_at<const void*>(implementation, layout.storage);
  if (storage == nullptr || needs_gradient(tensor, implementation, layout) != check.requires_grad) return false;
  char* first = read_at<char*>(storage, layout.storage_data);
  const auto size = std::int64_t(size_in_bytes(DType(layout.dtype_of_code[check.dtype_code])));
  data = first == nullptr ? nullptr : first + size * read_at<std::int64_t>(implementation, layout.storage_offset);
  return !check.aligned || reinterpret_cast<std::uintptr_t>(data) % check.alignment == 0;
}

namespace {

/// The first CUDA tensor of the process is here.
bool learn_cuda_keys_of(PyObject* tensor) {
  const TorchLayout* layout = torch_layout();
  if (layout == nullptr || layout->device < 0) return false;
  const int device = device_of(read_at<const void*>(tensor, layout->implementation), *layout);
  return device != kHost && learn_cuda_keys(device);
}

}  // namespace

ArrayInfo describe_torch(PyObject* tensor) {
  ArrayInfo info;
  info.library = Library::Torch;
  info.parameter = Py_TYPE(tensor) == objects()->parameter;
  ArrayView view;
  if (!read_torch(tensor, view) && !(learn_cuda_keys_of(tensor) && read_torch(tensor, view))) {
    const TorchLayout* layout = torch_layout();
    Ref<> kind;
    if (layout != nullptr)
      for (const char* property : {"device", "layout", "dtype"}) {
        kind = Ref<>::steal(PyObject_GetAttrString(tensor, property));
        Ref<> text = kind ? Ref<>::steal(PyObject_Str(kind.get())) : Ref<>();
        PyErr_Clear();
        const std::string found = text ? PyUnicode_AsUTF8(text.get()) : "?";
        if (property[0] == 'd' && property[1] == 'e' ? found != "cpu"
            : property[0] == 'l'                     ? found != "torch.strided"
                                                     : true) {
          info.unsupported = "a tensor of " + std::string(property) + " " + found;
          break;
        }
      }
    if (layout == nullptr) info.unsupported = "a tensor of a torch whose memory layout framejit does not know";
    const std::uint64_t keys =
        layout != nullptr
            ? read_at<std::uint64_t>(read_at<const void*>(tensor, layout->implementation), layout->key_set)
            : 0;
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
  info.inference = layout.is_inference(view.key_set);
  info.device = view.device;
  if (!view.aligned) info.unsupported = "memory that is not aligned to its dtype";
  return info;
}

namespace {

/// Bytes of the storage of a new tensor; 0 if it has no elements.
std::size_t storage_bytes(DType dtype, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  std::size_t last = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return 0;
    last += std::size_t(shape[i] - 1) * std::size_t(strides[i]);
  }
  return (last + 1) * size_in_bytes(dtype);
}

Ref<> empty_tensor(DType dtype, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  const TorchObjects* torch = objects();
  FJ_CHECK(torch != nullptr, "torch is not loaded");
  if (Ref<> tensor = torch_empty(dtype, shape, strides)) return tensor;
  const Ref<> sizes = int_tuple(shape), steps = int_tuple(strides);
  if (!sizes || !steps) return {};
  if (torch->quick_empty != nullptr) {
    PyObject* arguments[] = {sizes.get(), steps.get(), torch->dtypes[int(dtype)]};
    if (Ref<> tensor = Ref<>::steal(PyObject_Vectorcall(torch->quick_empty, arguments, 3, nullptr))) return tensor;
    PyErr_Clear();  // the public function decides, with its own exception
  }
  // The device is said: a default device of the user must not catch it.
  PyObject* arguments[] = {sizes.get(), steps.get(), torch->dtypes[int(dtype)], torch->cpu};
  return Ref<>::steal(PyObject_Vectorcall(torch->empty_strided, arguments, 2, torch->allocation_keywords));
}

}  // namespace

namespace {

/// torch.device("cuda", ordinal); kept.
PyObject* device_object(int device) {
  static auto* known = new std::vector<Ref<>>;
  if (std::size_t(device) >= known->size()) known->resize(std::size_t(device) + 1);
  Ref<>& object = (*known)[std::size_t(device)];
  if (!object) object = Ref<>::steal(PyObject_CallMethod(torch_module(), "device", "si", "cuda", device));
  return object.get();
}

}  // namespace

std::string device_text(int device) { return device == kHost ? "cpu" : "cuda:" + std::to_string(device); }

std::optional<void*> torch_stream(int device) {
  // Private, as all that asks for a stream without making an object of it: where it is missing the public function
  // does.
  PyObject* const raw = once([] { return torch_attribute({"_C", "_cuda_getCurrentRawStream"}); });
  Ref<> stream;
  if (raw) {
    stream = Ref<>::steal(PyObject_CallFunction(raw, "i", device));
  } else {
    const Ref<> cuda = Ref<>::steal(PyObject_GetAttrString(torch_module(), "cuda"));
    const Ref<> object = cuda ? Ref<>::steal(PyObject_CallMethod(cuda.get(), "current_stream", "i", device)) : Ref<>();
    if (object) stream = Ref<>::steal(PyObject_GetAttrString(object.get(), "cuda_stream"));
  }
  void* handle = stream ? PyLong_AsVoidPtr(stream.get()) : nullptr;
  if (PyErr_Occurred() || !stream) {
    PyErr_Clear();
    return std::nullopt;
  }
  return handle;
}

Ref<> allocate_torch(DType dtype, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
                     int device) {
  if (device != kHost) {
    const TorchObjects* torch = objects();
    FJ_CHECK(torch != nullptr, "torch is not loaded");
    const Ref<> sizes = int_tuple(shape), steps = int_tuple(strides);
    PyObject* there = device_object(device);
    if (!sizes || !steps || !there) return {};
    PyObject* arguments[] = {sizes.get(), steps.get(), torch->dtypes[int(dtype)], there};
    return Ref<>::steal(PyObject_Vectorcall(torch->empty_strided, arguments, 2, torch->allocation_keywords));
  }
  Ref<> tensor = empty_tensor(dtype, shape, strides);
  if (!tensor) return {};
  if (const std::size_t bytes = storage_bytes(dtype, shape, strides); bytes >= kOwnedBytes)
    if (const TorchLayout* layout = torch_layout())
      put_block_into(read_at<void*>(tensor.get(), layout->implementation), bytes);
  return tensor;
}

namespace {

/// No element of the memory of a tensor, complex numbers as real ones or real ones as complex: what other views are
/// made of, which then have the base that view_as_real() and view_as_complex() give.
Ref<> seen_as_parts(PyObject* base, bool complex) {
  const Ref<> none = Ref<>::steal(complex ? PyObject_CallMethod(base, "as_strided", "(i)(i)i", 0, 1, 0)
                                          : PyObject_CallMethod(base, "as_strided", "(ii)(ii)i", 0, 2, 2, 1, 0));
  return none ? Ref<>::steal(PyObject_CallMethod(torch_module(), complex ? "view_as_real" : "view_as_complex", "O",
                                                 none.get()))
              : Ref<>();
}

}  // namespace

Ref<> view_torch(PyObject* base, DType dtype, std::span<const std::int64_t> shape,
                 std::span<const std::int64_t> strides, std::int64_t offset) {
  const TorchObjects* torch = objects();
  FJ_CHECK(torch != nullptr, "torch is not loaded");
  const TorchLayout* layout = torch_layout();
  FJ_CHECK(layout != nullptr, "torch's layout is not known");
  const void* implementation = read_at<const void*>(base, layout->implementation);
  const auto own = DType(layout->dtype_of_code[read_at<std::uint16_t>(implementation, layout->dtype)]);
  auto start = read_at<std::int64_t>(implementation, layout->storage_offset);
  Ref<> seen;
  if (own != dtype) {
    FJ_CHECK(is_complex(own) != is_complex(dtype), "a view of a tensor has its dtype, or that of its parts");
    seen = seen_as_parts(base, is_complex(own));
    if (!seen) return {};
    base = seen.get();
    start = start * std::int64_t(size_in_bytes(own)) / std::int64_t(size_in_bytes(dtype));
  }
  const Ref<> sizes = int_tuple(shape), steps = int_tuple(strides);
  const Ref<> first = Ref<>::steal(PyLong_FromLongLong(start + offset));
  if (!sizes || !steps || !first) return {};
  PyObject* arguments[] = {base, sizes.get(), steps.get(), first.get()};
  return Ref<>::steal(PyObject_Vectorcall(torch->as_strided, arguments, 4, nullptr));
}

void* torch_data(PyObject* tensor) {
  ArrayView view;
  if (read_torch(tensor, view)) return view.data;
  // Of a key set that guards don't know.
  Ref<> address = Ref<>::steal(PyObject_CallMethod(tensor, "data_ptr", nullptr));
  void* data = address ? PyLong_AsVoidPtr(address.get()) : nullptr;
  PyErr_Clear();
  return data;
}

bool bump_versions(std::span<PyObject* const> tensors) {
  const TorchObjects* torch = objects();
  if (torch->increment_versions == nullptr)
    return std::all_of(tensors.begin(), tensors.end(), [&](PyObject* tensor) {
      return bool(Ref<>::steal(PyObject_CallOneArg(torch->increment_version, tensor)));
    });
  auto all = Ref<>::steal(PyTuple_New(Py_ssize_t(tensors.size())));
  if (!all) return false;
  for (std::size_t i = 0; i < tensors.size(); ++i) PyTuple_SET_ITEM(all.get(), Py_ssize_t(i), Py_NewRef(tensors[i]));
  return bool(Ref<>::steal(PyObject_CallOneArg(torch->increment_versions, all.get())));
}

bool add_to_version(PyObject* tensor, std::int64_t times) {
  const TorchObjects* torch = objects();
  if (times <= 1 || torch->set_versions == nullptr) {
    for (std::int64_t i = 0; i < times; ++i)
      if (!bump_versions({&tensor, 1})) return false;
    return true;
  }
  const auto version = Ref<>::steal(PyObject_GetAttrString(tensor, "_version"));
  const auto added = Ref<>::steal(PyLong_FromLongLong(times));
  const auto sum = version && added ? Ref<>::steal(PyNumber_Add(version.get(), added.get())) : Ref<>();
  return sum && Ref<>::steal(PyObject_CallFunction(torch->set_versions, "(O)(O)", tensor, sum.get()));
}

Ref<> joined_rows(PyObject* tuple, std::int64_t begin) {
  const Py_ssize_t count = PyTuple_GET_SIZE(tuple);
  const auto base_of = [](PyObject* tensor) {
    auto base = Ref<>::steal(PyObject_GetAttrString(tensor, "_base"));
    PyErr_Clear();
    return base;
  };
  ArrayView first{}, row{};
  std::ptrdiff_t step = 0;  // bytes
  Ref<> base;
  if (Py_REFCNT(tuple) != 1) return {};
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const tensor = PyTuple_GET_ITEM(tuple, i);
    if (!is_torch_array(tensor) || (i >= begin && Py_REFCNT(tensor) != 1) || !read_torch(tensor, row)) return {};
    if (i == 0) {
      first = row;
      base = base_of(tensor);
      if (row.requires_grad || !base || base.get() == Py_None) return {};
      continue;
    }
    const auto same = [&](const std::int64_t* a, const std::int64_t* b) { return std::equal(a, a + first.rank, b); };
    const std::ptrdiff_t from_first = static_cast<char*>(row.data) - static_cast<char*>(first.data);
    if (i == 1) step = from_first;
    if (row.dtype != first.dtype || row.rank != first.rank || row.key_set != first.key_set ||
        row.device != first.device || row.requires_grad || from_first != i * step || !same(row.shape, first.shape) ||
        !same(row.strides, first.strides) || base_of(tensor).get() != base.get())
      return {};
  }
  const auto size = std::ptrdiff_t(size_in_bytes(first.dtype));
  if (step % size != 0 || step < 0) return {};
  std::vector<std::int64_t> sizes{count}, strides{step / size};
  sizes.insert(sizes.end(), first.shape, first.shape + first.rank);
  strides.insert(strides.end(), first.strides, first.strides + first.rank);
  Ref<> joined = view_torch(PyTuple_GET_ITEM(tuple, 0), first.dtype, sizes, strides, 0);
  PyErr_Clear();
  return joined;
}

bool tensor_ends_unseen(PyObject* tensor) {
  PyObject* const attributes = fj_instance_dict(tensor);
  const Py_ssize_t offset = Py_TYPE(tensor)->tp_weaklistoffset;
  const bool seen = offset != 0 && *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(tensor) + offset) != nullptr;
  return !seen && (attributes == nullptr || PyDict_GET_SIZE(attributes) == 0);
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

const char* torch_unsupported_reason() {
  if (torch_module() == nullptr || torch_modes() != 0 || torch_recorded() || torch_layout() != nullptr) return nullptr;
  return "framejit does not know how this torch lays out its tensors: functions on tensors run eagerly";
}

}  // namespace fj
