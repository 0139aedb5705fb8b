/// Where torch keeps the metadata of a tensor, found out by looking at tensors that differ in one property.
///
/// Private layout, so nothing is assumed: each offset must be the only one that fits, and a set of probe tensors must
/// read back exactly, or the layout counts as unknown and torch functions run eagerly, with one notice.
#pragma once

#include <Python.h>

#include <cstdint>
#include <optional>

#include "arrays/arrays.h"
#include "cpython/signals.h"
#include "runtime/base/dtype.h"

namespace fj {

struct TorchLayout {
  int implementation = 0;     // in the Python object: pointer to the TensorImpl
  // in the TensorImpl:
  int storage = 0;            // pointer to the StorageImpl
  int autograd_meta = 0;      // pointer, null for tensors that never needed a gradient
  int rank = 0;
  int inline_sizes = 0, inline_strides = 0,
      inline_rank = 0;  // up to inline_rank dimensions; else a pointer at inline_sizes
  int storage_offset = 0;
  int dtype = 0;              // 16-bit code
  int key_set = 0;            // 64-bit dispatch key set
  int device = -1;  // 16 bits: the type of device, then its ordinal; -1: not found, which only devices but the CPU need
  int storage_data = 0;       // in the StorageImpl: pointer to the first byte
  /// TensorImpl::requires_grad where torch's library exports it and it says what the getter says; null: ask the tensor.
  bool (*requires_grad)(const void* implementation) = nullptr;
  std::uint64_t conj_bit = 0, neg_bit = 0;
  std::uint64_t plain_keys = 0, plain_keys_with_gradient = 0;  // key sets of ordinary CPU tensors
  std::uint64_t inference_keys = 0;  // of one made in inference mode
  /// The same of CUDA tensors, from when the first one is seen (learn_cuda_keys); until then no key set that a tensor
  /// has.
  std::uint64_t cuda_keys = ~0ull, cuda_keys_with_gradient = ~0ull, cuda_inference_keys = ~0ull;
  bool is_plain(std::uint64_t keys) const {
    return keys == plain_keys || keys == plain_keys_with_gradient || keys == inference_keys || keys == cuda_keys ||
           keys == cuda_keys_with_gradient || keys == cuda_inference_keys;
  }
  bool is_inference(std::uint64_t keys) const { return keys == inference_keys || keys == cuda_inference_keys; }
  /// Of types of devices, as torch numbers them in its files.
  static constexpr std::uint16_t kCudaType = 1, kNoOrdinal = 0xff;
  static constexpr int kDTypeCodes = 64;
  std::int8_t dtype_of_code[kDTypeCodes];     // DType or -1
};

/// The layout of the torch in this process; null if torch is not loaded or its layout is not understood.
const TorchLayout* torch_layout();
/// A tensor of CUDA device `ordinal` has been seen, so there is one: tells what ordinary tensors there look like by
/// making some. False: they can't be read as others are, or not now.
bool learn_cuda_keys(int ordinal);

/// What is found out about torch beyond its layout, by trying: null until it can be, and for good where `find(Found&,
/// layout)` says that it is not as thought.
template <class Found, class Find>
const Found* tried_out(Find find) {
  static Found found;
  static enum { Unknown, Proven, Refused } state = Unknown;
  if (state == Unknown) [[unlikely]] {
    const TorchLayout* layout = torch_layout();
    if (!layout || torch_modes() != 0 || torch_recorded()) return nullptr;  // they would see the probes: later
    const HeldSignals held;
    state = Refused;  // while it is tried out
    if (find(found, *layout)) state = Proven;
    PyErr_Clear();
  }
  return state == Proven ? &found : nullptr;
}

}  // namespace fj
