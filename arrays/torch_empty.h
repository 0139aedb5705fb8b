/// New tensors straight from torch's C++ library, without the argument parser of a Python function.
#pragma once

#include <span>

#include "cpython/ref.h"
#include "runtime/base/dtype.h"

namespace fj {

/// What torch.empty_strided(shape, strides, dtype=dtype, device="cpu") makes; null, with no error set, where this torch
/// does not export the functions for it or they failed: the public function then makes the tensor or raises.
Ref<> torch_empty(DType dtype, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);

}  // namespace fj
