/// Slots of a frame as an array of objects, however the version of CPython keeps them.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>

#include "cpython/cpython.h"

namespace fj {

/// References are borrowed: valid until the frame runs on or ends, or one of the slots is set.
class FrameObjects {
 public:
  FrameObjects(FjFrame* frame, int first, int count) : count_(std::size_t(count)) {
    objects_ = fj_frame_objects(frame, first, count, count <= kFew ? few_ : nullptr);
    if (objects_ != nullptr) return;
    many_.reset(new (std::nothrow) PyObject*[count_]);
    if (many_) objects_ = fj_frame_objects(frame, first, count, many_.get());
  }
  /// False: there was no memory for them.
  explicit operator bool() const { return objects_ != nullptr; }
  /// After what may have run Python code, which can set variables of a frame that it has hold of.
  void look_again(FjFrame* frame, int first = 0) {
    objects_ = fj_frame_objects(frame, first, int(count_), many_ ? many_.get() : few_);
  }
  /// All: the slots, then the value stack.
  explicit FrameObjects(FjFrame* frame)
      : FrameObjects(frame, 0, fj_frame_slot_count(frame) + fj_frame_stack_depth(frame)) {}
  FrameObjects(const FrameObjects&) = delete;
  FrameObjects& operator=(const FrameObjects&) = delete;

  std::span<PyObject* const> all() const { return {objects_, count_}; }
  PyObject* operator[](int i) const { return objects_[i]; }

 private:
  static constexpr int kFew = 32;
  PyObject* const* objects_;
  const std::size_t count_;
  std::unique_ptr<PyObject*[]> many_;
  PyObject* few_[kFew];
};

}  // namespace fj
