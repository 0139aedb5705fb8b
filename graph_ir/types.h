/// Types of graph values. The graph is about values: dense, immutable arrays of a dtype and a shape.
/// Where an array lies in memory (strides) is said only at the borders: inputs, outputs, extern calls.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/sym_dim.h"

namespace fj {

struct Type {
  DType dtype = DType::F32;
  Dims shape;
  int rank() const { return int(shape.size()); }
  bool operator==(const Type&) const = default;
};

/// Memory layout in elements. Absent (nullopt) where used as optional: row-major contiguous.
using Strides = Dims;

std::string text(const Type& type);  // "f32[s0, 64]"

}  // namespace fj
