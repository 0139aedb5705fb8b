/// The boundary with array libraries: reading, making and viewing real numpy.ndarray and torch.Tensor objects.
///
/// torch is never linked or imported here: it is used when it is already in sys.modules. Its private layout is
/// found once by calibration (comparing tensors that differ in one property) and falls back to public calls.
/// A leaf target: guards, the front ends' tables and the frame hook all use it.
#pragma once

#include <Python.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cpython/ref.h"
#include "runtime/base/dtype.h"
#include "runtime/host.h"

namespace fj {

enum class Library : std::uint8_t { Numpy, Torch };

/// Everything a compile needs to know of one array.
struct ArrayInfo {
  Library library = Library::Numpy;
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape, strides;  // in elements
  void* data = nullptr;                      // element 0
  std::int64_t storage_offset = 0;           // torch: elements from the storage's start
  const void* storage = nullptr;             // identity of the memory owner (torch StorageImpl; NumPy: ultimate base)
  bool requires_grad = false;
  bool is_leaf = true;
  bool inference = false;                    // torch: made in inference mode
  bool writeable = true;
  bool parameter = false;                    // exact type torch.nn.Parameter
  std::uint64_t key_set = 0;
  int device = kHost;                        // torch: where its memory is
  /// Empty if framejit compiles such arrays; else why not, in the user's words ("dtype object", "sparse tensor").
  std::string unsupported;
};

/// Exactly numpy.ndarray, torch.Tensor or torch.nn.Parameter (subclasses are not arrays to us).
std::optional<Library> array_library(PyObject* object);
ArrayInfo describe(PyObject* array);
/// numpy.generic scalars of supported dtypes (np.float32(3)).
std::optional<DType> numpy_scalar_dtype(PyObject* object);
/// Where a float or a numpy.generic scalar has its number; null: it is neither.
void* number_pointer(PyObject* object);

/// The fast reads of one guard: no allocation, no Python code, no error left set. Shape and strides are borrowed
/// until the array changes. False: not an array we can read fast.
struct ArrayView {
  DType dtype;
  int rank;
  const std::int64_t* shape;
  const std::int64_t* strides;               // torch: elements; numpy: bytes (see unit)
  std::int64_t stride_unit;                  // 1 or itemsize
  void* data;
  bool requires_grad, writeable, aligned;
  std::uint64_t key_set;
  int device = kHost;
};
bool read_numpy(PyObject* array, ArrayView& view);
bool read_torch(PyObject* tensor, ArrayView& view);
/// When the NumPy array ends nothing happens but that memory is free: no weak reference sees it, and what owns the
/// memory is such an array too.
bool ends_unseen(PyObject* numpy_array);
/// torch: the tensor whose rows a tuple holds, from `begin` on nobody else; null, with no error set: it holds others,
/// or such that require a gradient.
Ref<> joined_rows(PyObject* tuple, std::int64_t begin);
/// torch: no weak reference sees it, and it has no attributes of its own. Its memory may be another's all the same.
bool tensor_ends_unseen(PyObject* tensor);
/// What np.broadcast_arrays gives: NumPy warns where it is written.
bool warns_of_writes(PyObject* numpy_array);

/// New arrays whose storage is the library's own (resizable, picklable, OWNDATA), on a device from the library's
/// allocator there.
Ref<> allocate(Library library, DType dtype, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
               int device = kHost);
/// A view of `base`'s memory: element strides, offset in elements from base's element 0. numpy: base chain as NumPy
/// makes it.
Ref<> view_of(PyObject* base, DType dtype, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
              std::int64_t offset);
/// numpy scalar object (np.float64) from the memory of a rank-0 result.
Ref<> numpy_scalar(DType dtype, const void* data);
void* data_pointer(PyObject* array);
/// The array's memory is known to be of this process only: the library's allocator has made it.
bool has_private_memory(PyObject* array);
/// torch: what eager's in-place operations do to `_version`, once for each mention. One call into torch for all of
/// them: an optimiser's step writes hundreds of tensors.
bool bump_versions(std::span<PyObject* const> tensors);
/// torch: as so many of them do.
bool add_to_version(PyObject* tensor, std::int64_t times);
/// numpy array sharing a CPU tensor's memory and the reverse: what `.numpy()` and `torch.from_numpy` return.
Ref<> cross_view(PyObject* array, Library to);

/// torch.device, torch.layout, torch.memory_format: values of torch that nothing changes, equal by what they say.
bool is_torch_value(PyObject* object);
std::optional<DType> dtype_from_object(
    PyObject* dtype);  // np.dtype, scalar types, torch.dtype, str handled by front ends
Ref<> dtype_object(Library library, DType dtype);          // np.dtype / torch.dtype

/// "cpu", "cuda:1": as torch writes devices.
std::string device_text(int device);
/// torch's current stream on a device, a CUstream. Nullopt: this torch does not say.
std::optional<void*> torch_stream(int device);

/// torch as found in sys.modules, or null. Cheap; call each time.
PyObject* torch_module();
PyObject* numpy_module();
bool torch_grad_enabled();
/// A word that differs whenever inference mode, autocast, function/dispatch modes,
/// functorch or forward-mode levels, default dtype or device or the deterministic flag differ; 0 in a fresh process.
std::uint64_t torch_modes();
/// Whether hooks on what autograd saves are set (torch.autograd.graph.saved_tensors_hooks, torch.utils.checkpoint),
/// which see each tensor that eager would save.
bool torch_saved_tensors_hooks();
/// Whether somebody is told of each of torch's operations in this thread: torch.profiler. Compiled code runs, and says
/// itself what it does.
bool torch_recorded();
/// Whether torch's operations in this thread are another's to see or to change: a profiler, a recorder of graphs
/// (torch.jit.trace, make_fx, torch.export), a __torch_dispatch__ mode, torch.func. Nothing may be tried out then.
bool torch_observed();
/// nullptr, or which mode is on that gives torch's operations another meaning than the one framejit compiles.
const char* torch_modes_refusal();
/// The context variable that holds np.errstate's settings; null: this NumPy has none.
PyObject* errstate_variable();
/// np.geterr() as KernelStatus bits that are not 'ignore'; and whether anything but warn/ignore is set.
std::uint32_t numpy_trapped_conditions();
/// Those of `trapped` that NumPy reports by something else than a warning: they are told apart by bits of their own.
constexpr std::uint32_t numpy_otherwise_reported(std::uint32_t trapped) { return trapped >> 16; }

/// nullptr, or a sentence: the torch in this process has a layout we do not know, its tensors run eagerly.
const char* torch_unsupported_reason();

}  // namespace fj
