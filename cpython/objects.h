/// Small questions about Python objects.
#pragma once

#include <Python.h>

#include <cstdint>
#include <optional>
#include <string>

namespace fj {

/// str(object); "" for null, or where it raises.
std::string text_of(PyObject* object);
/// Forgets the Python error that is set; its text.
std::string take_error();
/// Exactly int, float, complex, bool, str, bytes, None, Ellipsis: values whose operators are pure.
bool is_plain(PyObject* object);

/// `int | str`
bool is_union(PyObject* object);

/// Where an iterator over a range stands. The numbers are no larger than 2**62, and one more step is none either.
struct RangePosition {
  std::int64_t next, end, step;  // `end`: the first number of the range's that it does not reach
  std::int64_t left() const { return (end - next) / step; }
};
/// Nothing: the object is no such iterator.
std::optional<RangePosition> range_position(PyObject* iterator);

}  // namespace fj
