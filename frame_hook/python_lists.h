/// What regions change of Python's lists (RegionLists), where they are.
#pragma once

#include <Python.h>

#include <cstdint>

#include "runtime/region_library.h"

namespace fj {

inline std::int64_t word_address(const PyObject* object) {
  return std::int64_t(reinterpret_cast<std::uintptr_t>(object) / 8);
}
inline PyObject* object_at(std::int64_t word) { return reinterpret_cast<PyObject*>(std::uintptr_t(word) * 8); }

/// No function runs code of the user's, and no error is set.
class PythonLists final : public RegionLists {
 public:
  bool put(std::int64_t list, std::int64_t index, double number) override;
  bool put(std::int64_t list, std::int64_t index, std::int64_t number) override;
  bool put(std::int64_t list, std::int64_t index, bool number) override;
  bool append(std::int64_t list, double number) override;
  bool append(std::int64_t list, std::int64_t number) override;
  bool append(std::int64_t list, bool number) override;
  bool drop_last(std::int64_t list) override;
};

}  // namespace fj
