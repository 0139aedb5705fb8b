/// Which of 0.0 and -0.0 NumPy's maximum is.
#pragma once

#include "runtime/base/dtype.h"

namespace fj {

/// The first operand (C's comparison), the second (x86's instructions), or 0.0 as the larger of both (AArch64's).
enum class EqualZeros { First, Second, Ordered };

/// What NumPy's loops for this dtype do here.
EqualZeros equal_zeros(DType dtype);

}  // namespace fj
