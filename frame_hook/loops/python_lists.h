/// What regions change of Python's lists (RegionLists), where they are.
#pragma once

#include <Python.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "cpython/ref.h"
#include "runtime/region_library.h"

namespace fj {

inline std::int64_t word_address(const PyObject* object) {
  return std::int64_t(reinterpret_cast<std::uintptr_t>(object) / 8);
}
inline PyObject* object_at(std::int64_t word) { return reinterpret_cast<PyObject*>(std::uintptr_t(word) * 8); }

/// No function runs code of the user's, and no error is set: the garbage collector waits as long as there are lists
/// that the region has made.
class PythonLists final : public RegionLists {
 public:
  PythonLists() = default;
  PythonLists(const PythonLists&) = delete;
  ~PythonLists() override;
  bool put(std::int64_t list, std::int64_t index, double number) override;
  bool put(std::int64_t list, std::int64_t index, std::int64_t number) override;
  bool put(std::int64_t list, std::int64_t index, std::uint64_t number) override;
  bool put(std::int64_t list, std::int64_t index, bool number) override;
  bool put_item(std::int64_t list, std::int64_t index, std::int64_t number) override;
  bool append_item(std::int64_t list, std::int64_t number) override;
  bool append(std::int64_t list, double number) override;
  bool append(std::int64_t list, std::int64_t number) override;
  bool append(std::int64_t list, std::uint64_t number) override;
  bool append(std::int64_t list, bool number) override;
  bool put_numpy(std::int64_t list, std::int64_t index, DType dtype, const void* number) override;
  bool append_numpy(std::int64_t list, DType dtype, const void* number) override;
  bool put_list(std::int64_t list, std::int64_t index, std::int64_t item) override;
  bool append_list(std::int64_t list, std::int64_t item) override;
  bool drop_last(std::int64_t list) override;
  bool extend(std::int64_t list, std::int64_t tuple) override;
  std::int64_t make(std::int64_t count) override;
  std::int64_t repeat(std::int64_t list, std::int64_t times) override;
  std::int64_t join(std::int64_t a, std::int64_t b) override;
  std::int64_t slice(std::int64_t list, std::int64_t start, std::int64_t stop) override;
  void mark(std::int64_t list) override { marked_.push_back(list); }
  void sweep() override;
  std::int64_t held() const override { return bytes_; }

 private:
  bool put_object(std::int64_t list, std::int64_t index, PyObject* number);
  void let_go(PyObject* number);
  void stop_collector();
  std::int64_t hold(PyObject* made);
  void keep(Ref<> object);

  std::unique_ptr<std::array<Ref<>, kGone>> gone_;  // the last numbers that have gone, in turn; null: none has
  std::size_t next_gone_ = 0;
  std::vector<Ref<>> held_;
  static constexpr std::int64_t kSwept = 1 << 16;
  std::int64_t bytes_ = 0, sweep_at_ = kSwept;
  std::vector<std::int64_t> marked_;
  bool stopped_ = false, collects_ = false;
};

}  // namespace fj
