/// Which of 0.0 and -0.0 NumPy's maximum is.
#pragma once

#include "runtime/base/dtype.h"

namespace fj {

/// True if it is the second one in this dtype: so it is where NumPy's loops use x86's instructions.
bool takes_second_of_equals(DType dtype);

}  // namespace fj
