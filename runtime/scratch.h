/// Memory of one run that is mostly small enough for the stack.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

namespace fj {

/// Of the temporaries of a program, in bytes: a cache line.
inline constexpr std::size_t kAlignment = 64;

/// A few elements inside, more on the heap: calls of small programs allocate nothing. Not initialised: clearing the
/// room for all costs more than the few that are used.
template <class T, std::size_t inside>
class Scratch {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  explicit Scratch(std::size_t count)
      : data_(reinterpret_cast<T*>(
            count <= inside ? local_
                            : (heap_ = std::make_unique_for_overwrite<std::byte[]>(count * sizeof(T))).get())) {}
  T& operator[](std::size_t i) { return data_[i]; }
  T* data() { return data_; }

 private:
  alignas(T) std::byte local_[inside * sizeof(T)];
  std::unique_ptr<std::byte[]> heap_;
  T* data_;
};

}  // namespace fj
