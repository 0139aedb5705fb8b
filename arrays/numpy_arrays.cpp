// NumPy's side of the boundary, over its C API. The API table is imported at the first use, never when framejit loads.
#include "arrays/numpy_arrays.h"

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

#include <cstring>

#include "cpython/cpython.h"
#include "runtime/allocator.h"
#include "runtime/base/error.h"
#include "runtime/program.h"

namespace fj {
namespace {

/// NumPy's table of functions, once NumPy is in the process.
bool ready() {
  static bool imported = false;
  if (imported) return true;
  if (numpy_module() == nullptr) return false;
  if (PyArray_ImportNumPyAPI() < 0) {
    PyErr_Clear();
    return false;
  }
  return imported = true;
}

std::optional<DType> from_type_number(int number) {
  switch (number) {
    case NPY_BOOL: return DType::Bool;
    case NPY_UINT8: return DType::U8;
    case NPY_UINT16: return DType::U16;
    case NPY_UINT32: return DType::U32;
    case NPY_UINT64: return DType::U64;
    case NPY_INT8: return DType::I8;
    case NPY_INT16: return DType::I16;
    case NPY_INT32: return DType::I32;
    case NPY_INT64: return DType::I64;
    case NPY_FLOAT16: return DType::F16;
    case NPY_FLOAT32: return DType::F32;
    case NPY_FLOAT64: return DType::F64;
    case NPY_COMPLEX64: return DType::C64;
    case NPY_COMPLEX128: return DType::C128;
    default: return std::nullopt;  // object, string, datetime, longdouble, and C types that duplicate one of these
  }
}

int type_number(DType dtype) {
  switch (dtype) {
    case DType::Bool: return NPY_BOOL;
    case DType::U8: return NPY_UINT8;
    case DType::U16: return NPY_UINT16;
    case DType::U32: return NPY_UINT32;
    case DType::U64: return NPY_UINT64;
    case DType::I8: return NPY_INT8;
    case DType::I16: return NPY_INT16;
    case DType::I32: return NPY_INT32;
    case DType::I64: return NPY_INT64;
    case DType::F16: return NPY_FLOAT16;
    case DType::F32: return NPY_FLOAT32;
    case DType::F64: return NPY_FLOAT64;
    case DType::C64: return NPY_COMPLEX64;
    case DType::C128: return NPY_COMPLEX128;
    case DType::BF16: break;
  }
  FJ_CHECK(false, "NumPy has no " + std::string(name(dtype)));
}

PyArrayObject* array_of(PyObject* object) { return reinterpret_cast<PyArrayObject*>(object); }

// ---- memory of large arrays: NumPy's memory handler, set for one array only (runtime/allocator.h has the blocks)

void* handler_calloc(void*, std::size_t count, std::size_t size) {
  std::size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return nullptr;
  void* block = allocate_owned(bytes);
  return block == nullptr ? nullptr : std::memset(block, 0, bytes);
}

PyDataMem_Handler handler = {"framejit",
                             1,
                             {nullptr, [](void*, std::size_t bytes) { return allocate_owned(bytes); }, handler_calloc,
                              [](void*, void* block, std::size_t bytes) { return resize_owned(block, bytes); },
                              [](void*, void* block, std::size_t) { release_owned(block); }}};

PyObject*& handler_field(PyObject* array) { return reinterpret_cast<PyArrayObject_fields*>(array)->mem_handler; }

/// What it takes to give one array our handler, once it is known that this NumPy keeps handlers where its headers say.
struct ArrayMemory {
  PyObject* capsule = nullptr;
  unsigned trace_domain = 0;  // tracemalloc's number for NumPy's memory

  static const ArrayMemory* get() {
    static ArrayMemory memory;
    static enum { Unknown, Proven, Refused } state = Unknown;
    if (state == Unknown) {
      state = memory.prepare() ? Proven : Refused;
      PyErr_Clear();
    }
    if (state != Proven) return nullptr;
    // A handler of the user's stays in charge of all arrays.
    const Ref<> current = Ref<>::steal(PyDataMem_GetHandler());
    PyErr_Clear();
    return current.get() == PyDataMem_DefaultHandler ? &memory : nullptr;
  }

 private:
  bool prepare() {
    const Ref<> library = Ref<>::steal(PyImport_ImportModule("numpy.lib"));
    const Ref<> domain = Ref<>::steal(library ? PyObject_GetAttrString(library.get(), "tracemalloc_domain") : nullptr);
    if (!domain) return false;
    trace_domain = unsigned(PyLong_AsUnsignedLong(domain.get()));
    npy_intp size = 3;
    const Ref<> probe = Ref<>::steal(PyArray_SimpleNew(1, &size, NPY_DOUBLE));
    if (PyErr_Occurred() || !probe || handler_field(probe.get()) == nullptr) return false;
    capsule = PyCapsule_New(&handler, "mem_handler", nullptr);
    return capsule != nullptr && PyCapsule_IsValid(handler_field(probe.get()), "mem_handler");
  }
};

/// An array that owns a block of ours; null, with no error set, if there is none to be had.
Ref<> array_over_block(PyArray_Descr* descr, int rank, const npy_intp* dims, const npy_intp* strides,
                       std::size_t bytes) {
  const ArrayMemory* memory = ArrayMemory::get();
  void* block = memory == nullptr ? nullptr : allocate_owned(bytes);
  if (block == nullptr) return {};
  Py_INCREF(descr);
  Ref<> array = Ref<>::steal(
      PyArray_NewFromDescr(&PyArray_Type, descr, rank, dims, strides, block, NPY_ARRAY_WRITEABLE, nullptr));
  if (!array) {
    PyErr_Clear();
    release_owned(block);
    return {};
  }
  Py_INCREF(memory->capsule);
  handler_field(array.get()) = memory->capsule;
  PyArray_ENABLEFLAGS(array_of(array.get()), NPY_ARRAY_OWNDATA);
  fj_trace_memory(memory->trace_domain, block, bytes);
  return array;
}

}  // namespace

bool is_numpy_array(PyObject* object) { return ready() && Py_TYPE(object) == &PyArray_Type; }

bool ends_unseen(PyObject* object) {
  while (object != nullptr && is_numpy_array(object)) {
    const auto* array = reinterpret_cast<PyArrayObject_fields*>(object);
    if (array->weakreflist != nullptr || PyDataType_REFCHK(array->descr)) return false;
    object = array->base;
  }
  return object == nullptr;
}

bool warns_of_writes(PyObject* numpy_array) {
  constexpr unsigned kWarnOnWrite = 1u << 31;  // NPY_ARRAY_WARN_ON_WRITE, which NumPy's headers keep to NumPy
  return (unsigned(PyArray_FLAGS(array_of(numpy_array))) & kWarnOnWrite) != 0;
}

/// Metadata of a dtype, and names for parts of a number, go on to views and copies.
bool has_more_than_a_type(const PyArray_Descr* descr) {
  return PyDataType_METADATA(descr) != nullptr || PyDataType_NAMES(descr) != nullptr;
}

bool read_numpy(PyObject* object, ArrayView& view) {
  PyArrayObject* array = array_of(object);
  const auto dtype = from_type_number(PyArray_TYPE(array));
  if (!dtype || !PyArray_ISNOTSWAPPED(array) || has_more_than_a_type(PyArray_DESCR(array))) return false;
  view.dtype = *dtype;
  view.rank = PyArray_NDIM(array);
  view.shape = reinterpret_cast<const std::int64_t*>(PyArray_DIMS(array));
  view.strides = reinterpret_cast<const std::int64_t*>(PyArray_STRIDES(array));
  view.stride_unit = std::int64_t(size_in_bytes(*dtype));
  view.data = PyArray_DATA(array);
  view.requires_grad = false;
  view.writeable = PyArray_ISWRITEABLE(array);
  view.aligned = PyArray_ISALIGNED(array);
  view.key_set = 0;
  return true;
}

bool make_quick_numpy(PyObject* object, QuickCheck& check) {
  PyArrayObject* array = array_of(object);
  // Dtype objects of the user's own may die, and another one be where they were.
  Ref<> singleton = Ref<>::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(PyArray_TYPE(array))));
  if (!singleton) PyErr_Clear();
  if (singleton.get() != reinterpret_cast<PyObject*>(PyArray_DESCR(array)) || !PyArray_ISNOTSWAPPED(array))
    return false;
  check.descriptor = singleton.get();
  return true;
}

bool quick_numpy(PyObject* object, const QuickCheck& check, void*& data) {
  PyArrayObject* array = array_of(object);
  const int required = (check.writeable ? NPY_ARRAY_WRITEABLE : 0) | (check.aligned ? NPY_ARRAY_ALIGNED : 0);
  if (PyArray_NDIM(array) != check.rank || PyArray_DESCR(array) != check.descriptor ||
      (PyArray_FLAGS(array) & required) != required)
    return false;
  static_assert(sizeof(npy_intp) == sizeof(std::int64_t));
  if (!same_layout(check, reinterpret_cast<const std::int64_t*>(PyArray_DIMS(array)),
                   reinterpret_cast<const std::int64_t*>(PyArray_STRIDES(array))))
    return false;
  data = PyArray_DATA(array);
  return true;
}

ArrayInfo describe_numpy(PyObject* object) {
  ArrayInfo info;
  PyArrayObject* array = array_of(object);
  info.library = Library::Numpy;
  ArrayView view;
  if (!read_numpy(object, view)) {
    Ref<> text = Ref<>::steal(PyObject_Str(reinterpret_cast<PyObject*>(PyArray_DESCR(array))));
    PyErr_Clear();
    info.unsupported = "dtype " + std::string(text ? PyUnicode_AsUTF8(text.get()) : "unknown") +
                       (PyArray_ISNOTSWAPPED(array) ? "" : " in foreign byte order");
    return info;
  }
  if (!view.aligned) info.unsupported = "memory that is not aligned to its dtype";
  info.dtype = view.dtype;
  for (int i = 0; i < view.rank; ++i) {
    info.shape.push_back(view.shape[i]);
    info.strides.push_back(view.strides[i] / view.stride_unit);
    // Of an axis of one element too: the guard of such strides, and views of them, count elements.
    if (view.strides[i] % view.stride_unit != 0)
      info.unsupported = "strides that are not a multiple of the element size";
  }
  info.data = view.data;
  info.writeable = view.writeable;
  // NumPy keeps the base chain collapsed: the last array or foreign object owns the memory.
  PyObject* owner = object;
  while (is_numpy_array(owner) && PyArray_BASE(array_of(owner)) != nullptr) owner = PyArray_BASE(array_of(owner));
  info.storage = owner;
  if (is_numpy_array(owner))
    info.storage_offset = (static_cast<char*>(view.data) - PyArray_BYTES(array_of(owner))) / view.stride_unit;
  return info;
}

NumpyHolds numpy_holds(PyObject* array) {
  return {PyArray_BASE(array_of(array)), bool(PyDataType_REFCHK(PyArray_DESCR(array_of(array))))};
}

std::optional<DType> numpy_scalar_dtype(PyObject* object) {
  if (!ready() || !PyArray_IsScalar(object, Generic)) return std::nullopt;
  PyArray_Descr* descr = PyArray_DescrFromScalar(object);
  if (descr == nullptr) {
    PyErr_Clear();
    return std::nullopt;
  }
  // np.float64 is a float and np.bool has no subclasses; users' subclasses of scalar types are not scalars to us.
  const bool exact = descr->typeobj == Py_TYPE(object);
  const auto dtype = exact ? from_type_number(descr->type_num) : std::nullopt;
  Py_DECREF(descr);
  return dtype;
}

void* number_pointer(PyObject* object) {
  if (PyFloat_Check(object)) return &reinterpret_cast<PyFloatObject*>(object)->ob_fval;
  if (!ready() || !PyArray_IsScalar(object, Generic)) return nullptr;
  // NumPy's own structs: the number follows the head of the object. Void and text are none we take.
  return &reinterpret_cast<PyDoubleScalarObject*>(object)->obval;
}

Ref<> allocate_numpy(DType dtype, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  FJ_CHECK(ready(), "NumPy is not loaded");
  static_assert(sizeof(npy_intp) == sizeof(std::int64_t));
  const auto* dims = reinterpret_cast<const npy_intp*>(shape.data());
  const npy_intp item = npy_intp(size_in_bytes(dtype));
  bool contiguous = true;
  npy_intp count = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    contiguous = contiguous && strides[i] == count;
    count *= shape[i];
  }
  contiguous = contiguous || count == 0;  // then the strides are NumPy's own
  npy_intp steps[NPY_MAXDIMS];
  if (!contiguous) {
    // NumPy allocates by the element count and trusts the strides.
    std::int64_t last = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      steps[i] = strides[i] * item;
      last += strides[i] * (shape[i] - 1);
      FJ_CHECK(strides[i] >= 0 || shape[i] <= 1, "a new array has positive strides");
    }
    FJ_CHECK(last < count, "a new array has no gaps");
  }
  PyArray_Descr* descr = PyArray_DescrFromType(type_number(dtype));
  if (const std::size_t bytes = std::size_t(count) * std::size_t(item); bytes >= kOwnedBytes)
    if (Ref<> array = array_over_block(descr, int(shape.size()), dims, contiguous ? nullptr : steps, bytes)) {
      Py_DECREF(descr);
      return array;
    }
  return Ref<>::steal(PyArray_NewFromDescr(&PyArray_Type, descr, int(shape.size()), dims, contiguous ? nullptr : steps,
                                           nullptr, 0, nullptr));
}

Ref<> zeros_of_numpy(DType dtype, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  FJ_CHECK(ready(), "NumPy is not loaded");
  npy_intp count = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (strides[i] != count) return {};
    count *= shape[i];
  }
  return Ref<>::steal(PyArray_Zeros(int(shape.size()), reinterpret_cast<const npy_intp*>(shape.data()),
                                    PyArray_DescrFromType(type_number(dtype)), 0));
}

Ref<> view_numpy(PyObject* base, DType dtype, std::span<const std::int64_t> shape,
                 std::span<const std::int64_t> strides, std::int64_t offset) {
  FJ_CHECK(ready(), "NumPy is not loaded");
  npy_intp dims[NPY_MAXDIMS], bytes[NPY_MAXDIMS];
  const npy_intp item = npy_intp(size_in_bytes(dtype));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    dims[i] = shape[i];
    bytes[i] = strides[i] * item;
  }
  PyArrayObject* whole = array_of(base);
  PyArray_Descr* descr = PyArray_DescrFromType(type_number(dtype));
  Ref<> view = Ref<>::steal(PyArray_NewFromDescr(&PyArray_Type, descr, int(shape.size()), dims, bytes,
                                                 PyArray_BYTES(whole) + offset * item,
                                                 PyArray_ISWRITEABLE(whole) ? NPY_ARRAY_WRITEABLE : 0, nullptr));
  if (!view) return {};
  Py_INCREF(base);
  if (PyArray_SetBaseObject(array_of(view.get()), base) < 0) return {};
  return view;
}

Ref<> numpy_scalar(DType dtype, const void* data) {
  FJ_CHECK(ready(), "NumPy is not loaded");
  PyArray_Descr* descr = PyArray_DescrFromType(type_number(dtype));
  Ref<> scalar = Ref<>::steal(PyArray_Scalar(const_cast<void*>(data), descr, nullptr));
  Py_DECREF(descr);
  return scalar;
}

void* numpy_data(PyObject* array) { return PyArray_DATA(array_of(array)); }

std::optional<DType> dtype_from_numpy(PyObject* object) {
  if (!ready()) return std::nullopt;
  if (PyArray_DescrCheck(object)) {
    const auto* descr = reinterpret_cast<PyArray_Descr*>(object);
    if (descr->byteorder == NPY_OPPBYTE || has_more_than_a_type(descr)) return std::nullopt;
    return from_type_number(descr->type_num);
  }
  if (PyType_Check(object)) {
    const auto* type = reinterpret_cast<PyTypeObject*>(object);
    if (type == &PyBool_Type) return DType::Bool;
    if (type == &PyLong_Type) return DType::I64;
    if (type == &PyFloat_Type) return DType::F64;
    if (type == &PyComplex_Type) return DType::C128;
    if (!PyObject_IsSubclass(object, reinterpret_cast<PyObject*>(&PyGenericArrType_Type))) return std::nullopt;
    PyArray_Descr* descr = PyArray_DescrFromTypeObject(object);
    if (descr == nullptr) {
      PyErr_Clear();
      return std::nullopt;
    }
    const bool exact = descr->typeobj == type;
    const auto dtype = exact ? from_type_number(descr->type_num) : std::nullopt;
    Py_DECREF(descr);
    return dtype;
  }
  return std::nullopt;
}

Ref<> numpy_dtype_object(DType dtype) {
  FJ_CHECK(ready(), "NumPy is not loaded");
  return Ref<>::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(type_number(dtype))));
}

PyObject* numpy_module() {
  static PyObject* module = nullptr;  // NumPy can't be unloaded or reloaded in one process
  if (module == nullptr) {
    module = PyDict_GetItemString(PyImport_GetModuleDict(), "numpy");
    // Half imported: wait until its core is there.
    if (module != nullptr && !PyObject_HasAttrString(module, "ndarray")) return module = nullptr;
    Py_XINCREF(module);
  }
  return module;
}

PyObject* errstate_variable() {
  PyObject* const variable = once([] { return imported("numpy._core.umath", "_extobj_contextvar").release(); });
  return variable;
}

std::uint32_t numpy_trapped_conditions() {
  // The settings live in a context variable; while it holds the object seen last, the answer is the same.
  static PyObject* geterr = nullptr;
  static PyObject* seen = nullptr;
  static std::uint32_t seen_bits = 0;
  if (geterr == nullptr) {
    if (numpy_module() == nullptr) return 0;
    geterr = PyObject_GetAttrString(numpy_module(), "geterr");
    PyErr_Clear();
    if (geterr == nullptr) return ~0u;
  }
  PyObject* const variable = errstate_variable();
  Ref<> current;
  if (variable != nullptr && PyContextVar_CheckExact(variable)) {
    PyObject* value = nullptr;
    if (PyContextVar_Get(variable, Py_None, &value) == 0) current = Ref<>::steal(value);
    if (current && current.get() == seen) return seen_bits;
  }
  Ref<> settings = Ref<>::steal(PyObject_CallNoArgs(geterr));
  if (!settings) {
    PyErr_Clear();
    return ~0u;
  }
  constexpr struct {
    const char* key;
    std::uint32_t bit;
  } conditions[] = {
      {"divide", kFloatDivide}, {"over", kFloatOverflow}, {"under", kFloatUnderflow}, {"invalid", kFloatInvalid}};
  std::uint32_t bits = 0;
  for (const auto& [key, bit] : conditions) {
    PyObject* mode = PyDict_GetItemString(settings.get(), key);
    if (mode == nullptr || PyUnicode_CompareWithASCIIString(mode, "ignore") != 0) bits |= bit;
    if (mode == nullptr || ((bits & bit) && PyUnicode_CompareWithASCIIString(mode, "warn") != 0)) bits |= bit << 16;
  }
  if (current) {
    Py_XSETREF(seen, current.release());
    seen_bits = bits;
  }
  return bits;
}

}  // namespace fj
