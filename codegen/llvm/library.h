/// The C library's functions as generated code calls them: over a few lanes in memory.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/base/dtype.h"

namespace fj {

/// The symbol of `void f(const T* a[, const T* b], T* result, int64 lanes)`.
std::string library_symbol(const std::string& name, DType dtype);
bool is_library_symbol(const std::string& symbol);
/// Every symbol generated code may need, with its address: the above and what LLVM itself calls.
const std::vector<std::pair<std::string, void*>>& library_symbols();

}  // namespace fj
