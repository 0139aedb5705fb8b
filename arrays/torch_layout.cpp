// Calibration: makes small tensors with telling numbers through torch's public functions and searches their memory.
#include "arrays/torch_layout.h"

#include <dlfcn.h>

#include <cstring>
#include <string>
#include <vector>

#include "arrays/torch_arrays.h"
#include "arrays/torch_modes.h"
#include "cpython/ref.h"

namespace fj {
namespace {

/// A TensorImpl is at least this long: 176 bytes from torch 2.13 on. Up to 2.12, where the PyObject's slot holds an
/// interpreter too, it has one word more, and the key set is that word.
constexpr int kBytes = 176;

/// Calibration looks at what a candidate pointer points to, which may be shorter than what it hopes for: at most 200
/// bytes into or just behind a live block, never an access of a foreign page in practice, and no business of the
/// address sanitizer.
[[gnu::no_sanitize_address]] [[gnu::noinline]] std::uint64_t word(const void* base, int offset) {
  return *reinterpret_cast<const std::uint64_t*>(static_cast<const char*>(base) + offset);
}
const void* pointer(const void* base, int offset) { return reinterpret_cast<const void*>(word(base, offset)); }
bool looks_like_pointer(std::uint64_t value) { return value > 0x10000 && value < (1ull << 47) && value % 8 == 0; }

std::optional<std::uint64_t> integer(PyObject* object, const char* method) {
  Ref<> value = Ref<>::steal(PyObject_CallMethod(object, method, nullptr));
  const std::uint64_t number = value ? PyLong_AsUnsignedLongLong(value.get()) : 0;
  if (PyErr_Occurred()) {
    PyErr_Clear();
    return std::nullopt;
  }
  return number;
}

/// The only offset at which `fits`; nullopt if none or several.
template <class Fits>
std::optional<int> only(int begin, int end, int step, Fits fits) {
  std::optional<int> found;
  for (int offset = begin; offset + step <= end; offset += step)
    if (fits(offset)) {
      if (found) return std::nullopt;
      found = offset;
    }
  return found;
}

bool sequence_at(const void* base, int offset, std::initializer_list<std::uint64_t> values) {
  for (std::uint64_t value : values) {
    if (word(base, offset) != value) return false;
    offset += 8;
  }
  return true;
}

/// The C++ function behind Tensor.requires_grad. It also knows views, which need a gradient because their base does.
void find_requires_grad(TorchLayout& layout) {
  void* core = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
  const auto function =
      core ? reinterpret_cast<bool (*)(const void*)>(dlsym(core, "_ZNK3c1010TensorImpl13requires_gradEv")) : nullptr;
  if (function == nullptr) return;
  for (const char* expression :
       {"torch.empty(3, device='cpu')", "torch.nn.Parameter(torch.empty(3, device='cpu'))",
        "torch.nn.Parameter(torch.empty(3, device='cpu'), requires_grad=False)",
        "torch.nn.Parameter(torch.empty(3, device='cpu'))[1:]", "torch.nn.Parameter(torch.empty(3, device='cpu')) * 2",
        "torch.nn.Parameter(torch.empty(3, device='cpu')).detach()"}) {
    const Ref<> probe = torch_evaluate(expression);
    const Ref<> expected = Ref<>::steal(probe ? PyObject_GetAttrString(probe.get(), "requires_grad") : nullptr);
    PyErr_Clear();
    if (!expected || function(pointer(probe.get(), layout.implementation)) != (expected.get() == Py_True)) return;
  }
  layout.requires_grad = function;
}

/// The probes read back through the layout as their public getters tell.
bool reads_back(const TorchLayout& layout, const Ref<>& tensor) {
  const void* base = pointer(tensor.get(), layout.implementation);
  const Ref<> shape = Ref<>::steal(PyObject_GetAttrString(tensor.get(), "shape"));
  const Ref<> strides = Ref<>::steal(PyObject_CallMethod(tensor.get(), "stride", nullptr));
  const auto data = integer(tensor.get(), "data_ptr"), offset = integer(tensor.get(), "storage_offset"),
             item = integer(tensor.get(), "element_size");
  PyErr_Clear();
  if (!shape || !strides || !data || !offset || !item ||
      word(base, layout.rank) != std::uint64_t(PyTuple_GET_SIZE(shape.get())))
    return false;
  const auto rank = int(word(base, layout.rank));
  const bool within = rank <= layout.inline_rank;
  const void* sizes =
      within ? static_cast<const char*>(base) + layout.inline_sizes : pointer(base, layout.inline_sizes);
  const void* steps =
      within ? static_cast<const char*>(base) + layout.inline_strides : static_cast<const char*>(sizes) + 8 * rank;
  for (int i = 0; i < rank; ++i)
    if (PyLong_AsLongLong(PyTuple_GET_ITEM(shape.get(), i)) != std::int64_t(word(sizes, 8 * i)) ||
        PyLong_AsLongLong(PyTuple_GET_ITEM(strides.get(), i)) != std::int64_t(word(steps, 8 * i)))
      return false;
  return word(base, layout.storage_offset) == *offset &&
         word(pointer(base, layout.storage), layout.storage_data) + *offset * *item == *data;
}

std::uint16_t half_word(const void* base, int offset) {
  std::uint16_t value;
  std::memcpy(&value, static_cast<const char*>(base) + offset, sizeof value);
  return value;
}

std::uint16_t device_code(const TorchLayout& layout, const Ref<>& tensor) {
  return half_word(pointer(tensor.get(), layout.implementation), layout.device);
}

/// Beside the dtype. A CPU tensor has type 0 and no ordinal, one of the meta device type 14.
void find_device(TorchLayout& layout, std::initializer_list<Ref<>> on_cpu) {
  constexpr std::uint16_t kMetaType = 14;
  const Ref<> meta = torch_evaluate("torch.empty((7, 11, 13), device='meta')");
  if (!meta) return;
  const auto found = only(layout.dtype + 2, std::min(layout.dtype + 8, kBytes), 2, [&](int offset) {
    for (const Ref<>& tensor : on_cpu)
      if (half_word(pointer(tensor.get(), layout.implementation), offset) != TorchLayout::kNoOrdinal << 8) return false;
    return half_word(pointer(meta.get(), layout.implementation), offset) == (kMetaType | TorchLayout::kNoOrdinal << 8);
  });
  if (found) layout.device = *found;
}

bool calibrate(TorchLayout& layout) {
  const Ref<> shaped = torch_evaluate("torch.empty((7, 11, 13), device='cpu', dtype=torch.float32)");
  const Ref<> wide = torch_evaluate("torch.empty((7, 11, 13), device='cpu', dtype=torch.float64)");
  const Ref<> shifted = torch_evaluate(
      "torch.empty((3000,), device='cpu', dtype=torch.float32).as_strided((7, 11, 13), (143, 13, 1), 1234)");
  const Ref<> many = torch_evaluate("torch.empty((2, 3, 4, 5, 6, 7), device='cpu', dtype=torch.float32)");
  const Ref<> leaf = torch_evaluate("torch.nn.Parameter(torch.empty((7, 11, 13), device='cpu', dtype=torch.float32))");
  const Ref<> complex = torch_evaluate("torch.zeros((3,), device='cpu', dtype=torch.complex64)");
  const Ref<> conj = torch_evaluate("torch.zeros((3,), device='cpu', dtype=torch.complex64).conj()");
  const Ref<> negative = torch_evaluate("torch.zeros((3,), device='cpu', dtype=torch.complex64).conj().imag");
  const Ref<> real = torch_evaluate("torch.zeros((3,), device='cpu', dtype=torch.complex64).imag");
  const Ref<> inference = torch_evaluate(
      "(lambda mode: (mode.__enter__(), torch.empty((7, 11, 13), device='cpu', dtype=torch.float32), "
      "mode.__exit__(None, None, None))[1])(torch.inference_mode())");
  if (!inference || !shaped || !wide || !shifted || !many || !leaf || !complex || !conj || !negative || !real)
    return false;

  // The implementation: directly in the Python object, or behind a flag (older releases).
  const auto implementation = only(16, 32, 8, [&](int offset) {
    const std::uint64_t candidate = word(shaped.get(), offset);
    if (!looks_like_pointer(candidate)) return false;
    for (int inner = 0; inner + 24 <= kBytes; inner += 8)
      if (sequence_at(reinterpret_cast<void*>(candidate), inner, {7, 11, 13})) return true;
    return false;
  });
  if (!implementation) return false;
  layout.implementation = *implementation;
  auto impl = [&](const Ref<>& tensor) { return pointer(tensor.get(), *implementation); };
  const void* base = impl(shaped);

  const auto rank = only(0, kBytes - 24, 8, [&](int offset) { return sequence_at(base, offset, {3, 7, 11, 13}); });
  const auto strides = only(0, kBytes - 16, 8, [&](int offset) { return sequence_at(base, offset, {143, 13, 1}); });
  const auto offset = only(0, kBytes, 8, [&](int o) { return word(impl(shifted), o) == 1234 && word(base, o) == 0; });
  const auto data = integer(shaped.get(), "data_ptr");
  if (!rank || !strides || !offset || !data) return false;
  layout.rank = *rank;
  layout.inline_sizes = *rank + 8;
  layout.inline_strides = *strides;
  layout.inline_rank = (*strides - layout.inline_sizes) / 8;
  layout.storage_offset = *offset;
  // More dimensions: sizes then strides in memory of their own.
  if (layout.inline_rank != 5 || word(impl(many), *rank) != 6) return false;
  const void* outside = pointer(impl(many), layout.inline_sizes);
  if (!sequence_at(outside, 0, {2, 3, 4, 5, 6, 7, 2520, 840, 210, 42, 7, 1})) return false;

  // The storage: a pointer to something that holds the data pointer, at the same place for every tensor.
  std::optional<int> storage_data;
  const auto storage = only(16, 64, 8, [&](int o) {
    const std::uint64_t candidate = word(base, o);
    if (!looks_like_pointer(candidate)) return false;
    for (int inner = 8; inner <= 32; inner += 8)
      if (word(reinterpret_cast<void*>(candidate), inner) == *data) {
        storage_data = inner;
        return true;
      }
    return false;
  });
  if (!storage) return false;
  layout.storage = *storage;
  layout.storage_data = *storage_data;

  const auto autograd = only(16, 64, 8, [&](int o) {
    return word(base, o) == 0 && word(wide.get(), 0) != 0 && word(impl(wide), o) == 0 &&
           looks_like_pointer(word(impl(leaf), o));
  });
  if (!autograd) return false;
  layout.autograd_meta = *autograd;

  const auto dtype = only(*strides + 40, kBytes, 2, [&](int o) {
    std::uint16_t a, b;
    std::memcpy(&a, static_cast<const char*>(base) + o, 2);
    std::memcpy(&b, static_cast<const char*>(impl(wide)) + o, 2);
    return a == 6 && b == 7;  // ScalarType's numbers are part of torch's file formats
  });
  if (!dtype) return false;
  layout.dtype = *dtype;

  // Conj and neg are one bit each in the key set.
  const auto is_key_set = [&](int o) {
    const std::uint64_t difference = word(impl(complex), o) ^ word(impl(conj), o);
    return difference != 0 && (difference & (difference - 1)) == 0 && (word(impl(conj), o) & difference) != 0 &&
           word(impl(complex), o) == word(base, o);
  };
  auto keys = only(*dtype & ~7, kBytes, 8, is_key_set);
  if (!keys) keys = only(kBytes, kBytes + 8, 8, is_key_set);
  if (!keys) return false;
  layout.key_set = *keys;
  layout.conj_bit = word(impl(complex), *keys) ^ word(impl(conj), *keys);
  layout.neg_bit = word(impl(real), *keys) ^ word(impl(negative), *keys);
  if (layout.neg_bit == 0 || (layout.neg_bit & (layout.neg_bit - 1)) != 0) return false;
  layout.plain_keys = word(base, *keys);
  layout.plain_keys_with_gradient = word(impl(leaf), *keys);
  layout.inference_keys = word(impl(inference), *keys);

  std::memset(layout.dtype_of_code, -1, sizeof layout.dtype_of_code);
  constexpr struct {
    const char* name;
    DType dtype;
  } dtypes[] = {{"bool", DType::Bool},   {"uint8", DType::U8},      {"uint16", DType::U16},     {"uint32", DType::U32},
                {"uint64", DType::U64},  {"int8", DType::I8},       {"int16", DType::I16},      {"int32", DType::I32},
                {"int64", DType::I64},   {"float16", DType::F16},   {"bfloat16", DType::BF16},  {"float32", DType::F32},
                {"float64", DType::F64}, {"complex64", DType::C64}, {"complex128", DType::C128}};
  for (const auto& row : dtypes) {
    const Ref<> tensor =
        torch_evaluate((std::string("torch.empty((2,), device='cpu', dtype=torch.") + row.name + ")").c_str());
    if (!tensor) continue;  // older torch without the wide unsigned types
    std::uint16_t code;
    std::memcpy(&code, static_cast<const char*>(impl(tensor)) + layout.dtype, 2);
    if (code >= TorchLayout::kDTypeCodes || layout.dtype_of_code[code] != -1) return false;
    layout.dtype_of_code[code] = std::int8_t(row.dtype);
  }
  if (layout.dtype_of_code[6] != int(DType::F32)) return false;
  for (const Ref<>& probe : {shaped, wide, shifted, many, leaf, complex, inference})
    if (!reads_back(layout, probe)) return false;
  for (const char* expression : {"torch.empty((), device='cpu')", "torch.empty((0, 3), device='cpu')",
                                 "torch.empty((2, 3, 4, 5, 6), device='cpu').permute(4, 2, 0, 1, 3)",
                                 "torch.empty((1,) * 9, device='cpu').expand((2,) * 9)",
                                 "torch.ones((9,), device='cpu', dtype=torch.int16)[3:5]"}) {
    const Ref<> probe = torch_evaluate(expression);
    if (!probe || !reads_back(layout, probe)) return false;
  }
  find_requires_grad(layout);
  find_device(layout, {shaped, wide, shifted, leaf, complex, inference});
  return true;
}

TorchLayout known_layout;

}  // namespace

bool learn_cuda_keys(int ordinal) {
  static bool refused = false;
  const TorchLayout* layout = torch_layout();
  if (!layout || layout->device < 0 || refused) return false;
  if (layout->cuda_keys != ~0ull) return true;
  if (torch_modes_refusal() || torch_recorded()) return false;
  // Many programs are in inference mode whenever there is a tensor.
  const InferenceMode left(torch_modes() & torch_mode_bits::kInference, false);
  const std::string there = "device='cuda:" + std::to_string(ordinal) + "'";
  const Ref<> plain = torch_evaluate(("torch.empty((7, 11, 13), " + there + ")").c_str());
  const Ref<> leaf = torch_evaluate(("torch.nn.Parameter(torch.empty((2, 3, 4, 5, 6, 7), " + there + "))").c_str());
  const Ref<> shifted = torch_evaluate(("torch.empty((300,), " + there + ", dtype=torch.int16)[123:]").c_str());
  const Ref<> inference = torch_evaluate(("(lambda mode: (mode.__enter__(), torch.empty((7, 11, 13), " + there +
                                          "), mode.__exit__(None, None, None))[1])(torch.inference_mode())")
                                             .c_str());
  refused = true;
  for (const Ref<>* probe : {&plain, &leaf, &shifted, &inference})
    if (!*probe || !reads_back(*layout, *probe) ||
        device_code(*layout, *probe) != (TorchLayout::kCudaType | ordinal << 8))
      return false;
  refused = false;
  auto keys = [&](const Ref<>& tensor) { return word(pointer(tensor.get(), layout->implementation), layout->key_set); };
  if (keys(shifted) != keys(plain)) return false;
  known_layout.cuda_keys_with_gradient = keys(leaf);
  known_layout.cuda_inference_keys = keys(inference);
  known_layout.cuda_keys = keys(plain);
  return true;
}

const TorchLayout* torch_layout() {
  static enum { Unknown, Understood, Refused } state = Unknown;
  if (state == Unknown) {
    PyObject* torch = torch_module();
    if (torch == nullptr) return nullptr;
    // Modes of the user must not see or change the probes: try again when there are none. Autocast casts nothing that
    // the probes do, and inference mode, which whole programs are in, is left for them. The default dtype, which a
    // program sets once and for all, is that of no probe whose dtype is looked at.
    using namespace torch_mode_bits;
    constexpr std::uint64_t kHarmless =
        kInference | kDeterministic | kAutocast | kAutocastCpu | field(kAutocastDtype) | field(kDefaultDtype);
    const std::uint64_t modes = torch_modes();
    if ((modes & ~kHarmless) != 0 || torch_recorded()) return nullptr;
    const InferenceMode left(modes & kInference, false);
    const HeldSignals held;
    TorchLayout found;
    const bool understood = calibrate(found);
    if (state == Unknown) {  // the probes let other threads in
      known_layout = found;
      state = understood ? Understood : Refused;
    }
  }
  return state == Understood ? &known_layout : nullptr;
}

}  // namespace fj
