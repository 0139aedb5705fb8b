/// An array's metadata as a guard without symbols expects it, in the form that takes the fewest loads to compare.
///
/// Made from an array that has passed the guard's full check; what passes here would pass there. Another array may
/// still pass there (a dtype object of its own, say), so a failure here decides nothing.
#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

#include "arrays/arrays.h"

namespace fj {

struct QuickCheck {
  int rank = -1;                          // -1: not made
  bool writeable = false, aligned = false, requires_grad = false;  // the first two: asked for
  std::vector<std::int64_t> numbers;      // sizes, then strides in the library's unit
  const void* descriptor = nullptr;       // NumPy: the dtype's one object
  std::uint64_t key_set = 0;              // torch
  std::uint16_t dtype_code = 0;           // torch
  std::uint16_t device_code = 0;          // torch
  std::uint8_t alignment = 1;             // torch: of elements
};

/// Fills in what the library adds; false: this array can't be checked quickly.
bool make_quick(Library library, PyObject* array, QuickCheck& check);
/// The array is of exactly the guard's type. On success `data` is where element 0 is.
bool quick_numpy(PyObject* array, const QuickCheck& check, void*& data);
bool quick_torch(PyObject* tensor, const QuickCheck& check, void*& data);

inline bool same_layout(const QuickCheck& check, const std::int64_t* sizes, const std::int64_t* strides) {
  const std::int64_t* expected = check.numbers.data();
  for (int i = 0; i < check.rank; ++i) {
    if (sizes[i] != expected[i]) return false;
    if (strides[i] != expected[check.rank + i]) return false;
  }
  return true;
}

}  // namespace fj
