/// What a segment's program asks of the array libraries, answered for one run of one segment.
///
/// Lives on the stack of Segment::run. Failures leave no Python error set: the program is abandoned and CPython runs
/// the piece, which raises the true exception. Ctrl-C during a library call is put back to be seen there; what a
/// handler raises while the program itself works ends the program, and CPython raises it there.
#pragma once

#include <Python.h>

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arrays/arrays.h"
#include "cpython/cpython.h"
#include "runtime/host.h"
#include "segment/library_calls/extern_table.h"

namespace fj {

class SegmentHost final : public Host {
 public:
  /// `inference_outputs`: outputs that are tensors of torch's inference mode; may be null. `device`: where arrays are
  /// made.
  SegmentHost(std::span<const Library> output_library, const ExternTable* externs,
              const std::vector<bool>* inference_outputs = nullptr, int device = kHost)
      : output_library_(output_library), externs_(externs), inference_outputs_(inference_outputs), device_(device) {}

  ArrayRef allocate_zeros(int output, DType dtype, std::span<const std::int64_t> shape,
                          std::span<const std::int64_t> strides) override;
  ArrayRef allocate(int output, DType dtype, std::span<const std::int64_t> shape,
                    std::span<const std::int64_t> strides) override;
  ArrayRef view(const ArrayRef& array, DType dtype, std::span<const std::int64_t> shape,
                std::span<const std::int64_t> strides, std::int64_t offset) override;
  bool call_extern(std::int64_t handle, std::span<const ArrayRef> operands, std::span<const std::int64_t> symbols,
                   std::span<ArrayRef> results) override;
  void* stream(int device) override;
  void* begin_range(const std::string& name) override;
  void end_range(void* range) override;
  bool unlock() override;
  void lock() override;
  bool asks_again() const override { return asks_ && !writes_; }
  bool may_write() override;
  /// It was not: others have changed what the piece has read.
  bool disturbed() const { return disturbed_; }
  bool handles_signals() const override;
  bool interrupted() override;
  void retain(void* object) override { Py_XINCREF(static_cast<PyObject*>(object)); }
  void release(void* object) override { Py_XDECREF(static_cast<PyObject*>(object)); }

  /// Whether others may run Python while the program works.
  void share(bool wanted) { shares_ = wanted; }
  /// Before the first write and after the last, if others have run meanwhile: whether what the piece has read is as it was.
  void ask_before_writing(std::function<bool()> holds) { asks_ = std::move(holds); }
  /// After kInterrupted: what the handler raised; null if it raised nothing.
  Ref<> take_interrupt();
  /// The objects that calls are made on, in the order of ExternTable::held().
  void hold(std::vector<Ref<>> objects) { held_ = std::move(objects); }
  const std::vector<Ref<>>& held() const { return held_; }
  /// Why the last call failed, in the user's words; "" if none has.
  const std::string& failure() const { return failure_; }
  /// What the library raised in that call; null if it was something else.
  PyObject* raised() const { return raised_.get(); }
  /// The failure was a wrong prediction, which has been corrected: traced again, the piece can run.
  bool mispredicted() const { return mispredicted_; }
  /// The calls made so far that must not be made again, in order.
  std::vector<PastCall> take_past() { return std::move(past_); }

 private:
  bool fail(std::string why);
  bool note_past(const ExternCall& call, std::span<const Ref<>> operands);

  std::span<const Library> output_library_;
  const ExternTable* externs_;
  const std::vector<bool>* inference_outputs_;
  int device_;
  std::vector<Ref<>> held_;
  std::string failure_;
  Ref<> raised_;
  std::vector<PastCall> past_;
  PyThreadState* thread_ = nullptr;  // while the GIL is released
  bool shares_ = true;
  bool unlocked_ = false;  // since the piece has read or asked
  bool writes_ = false;    // it has asked, and writes
  bool disturbed_ = false;
  std::function<bool()> asks_;
  Ref<> interrupt_;
  bool waits_ = false;  // Ctrl-C was pressed, and its handler has not run
  bool mispredicted_ = false;
};

/// States of the generators that a program's random functions draw from, as they were before it: put back unless it is
/// kept, when everything that can fail has succeeded.
class RandomStates {
 public:
  /// Null: nothing is random. `held`: the generators among them are NumPy's and Python's.
  RandomStates(const ExternTable* externs, std::span<const Ref<>> held);
  ~RandomStates();
  RandomStates(const RandomStates&) = delete;
  void keep() { states_.clear(); }

 private:
  struct State {
    Ref<> owner, state;
    const char* setter;      // a method; null: the attribute `state`
    std::vector<char> bytes; // of a random.Random: what C holds of it; `state` is what its `gauss_next` was
  };
  std::vector<State> states_;
};

}  // namespace fj
