/// CPython runs a piece whose program failed behind a collective. What the program has done is undone, but for that
/// call: other processes have answered it. So CPython's run is given what the call gave, where it makes the call.
///
/// The call is made by a Python function of torch.distributed, however the user's code gets there: while calls are left
/// to be answered, each frame this thread enters is looked at, and the frame of that function is finished without being
/// run. Compiled functions run uncompiled meanwhile, since their calls may be among those that were made.
#pragma once

#include <optional>
#include <vector>

#include "cpython/cpython.h"
#include "frame_hook/dispatch.h"
#include "segment/library_calls/extern_table.h"

namespace fj {

class Replay {
 public:
  /// Does nothing if `past` is empty.
  Replay(PyThreadState* thread, std::vector<PastCall> past);
  ~Replay();
  Replay(const Replay&) = delete;
  /// Of this frame, if its call is the next of those that were made.
  static PyObject* run(PyThreadState* thread, FjFrame* frame, int throwflag);

 private:
  PyThreadState* thread_;
  std::vector<PastCall> past_;
  std::size_t next_ = 0;
  void* outer_ = nullptr;
  std::optional<EagerScope> eager_;
  FjReach reach_{};
};

}  // namespace fj
