/// Where torch keeps the metadata of a tensor, found out by looking at tensors that differ in one property.
///
/// Private layout, so nothing is assumed: each offset must be the only one that fits, and a set of probe tensors must read back
/// exactly, or the layout counts as unknown and torch functions run eagerly, with one notice.
#pragma once

#include <Python.h>

#include <cstdint>
#include <optional>

#include "runtime/base/dtype.h"
#include "tracer/frontends/arrays/arrays.h"

namespace fj {

struct TorchLayout {
  int implementation = 0;     // in the Python object: pointer to the TensorImpl
  // in the TensorImpl:
  int storage = 0;            // pointer to the StorageImpl
  int autograd_meta = 0;      // pointer, null for tensors that never needed a gradient
  int rank = 0;
  int inline_sizes = 0, inline_strides = 0, inline_rank = 0;  // up to inline_rank dimensions; else a pointer at inline_sizes
  int storage_offset = 0;
  int dtype = 0;              // 16-bit code
  int key_set = 0;            // 64-bit dispatch key set
  int storage_data = 0;       // in the StorageImpl: pointer to the first byte
  /// TensorImpl::requires_grad where torch's library exports it and it says what the getter says; null: ask the tensor.
  bool (*requires_grad)(const void* implementation) = nullptr;
  std::uint64_t conj_bit = 0, neg_bit = 0;
  std::uint64_t plain_keys = 0, plain_keys_with_gradient = 0;  // key sets of ordinary CPU tensors
  std::uint64_t inference_keys = 0;  // of one made in inference mode
  bool is_plain(std::uint64_t keys) const { return keys == plain_keys || keys == plain_keys_with_gradient || keys == inference_keys; }
  static constexpr int kDTypeCodes = 64;
  std::int8_t dtype_of_code[kDTypeCodes];     // DType or -1
};

/// The layout of the torch in this process; null if torch is not loaded or its layout is not understood.
const TorchLayout* torch_layout();

/// What is found out about torch beyond its layout, by trying: null until it can be, and for good where `find(Found&, layout)` says that it is
/// not as thought.
template <class Found, class Find>
const Found* tried_out(Find find) {
  static Found found;
  static enum { Unknown, Proven, Refused } state = Unknown;
  if (state == Unknown) [[unlikely]] {
    const TorchLayout* layout = torch_layout();
    if (!layout || torch_modes() != 0) return nullptr;  // a mode would see the probes: later
    state = Refused;  // while it is tried out
    if (find(found, *layout)) state = Proven;
    PyErr_Clear();
  }
  return state == Proven ? &found : nullptr;
}

}  // namespace fj
