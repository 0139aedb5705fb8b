// Answers calls that have been made. Start at Replay::run, which the hook calls for every frame.
#include "frame_hook/replay_collectives.h"

#include <utility>

#include "arrays/arrays.h"

namespace fj {

namespace {

/// The error is raised while another one is handled: that is the first context of them all.
void add_context(const Ref<>& error) {
  Ref<> handled = Ref<>::steal(PyErr_GetHandledException());
  if (!handled) return;
  for (Ref<> raised = error; raised.get() != handled.get();) {
    Ref<> context = Ref<>::steal(PyException_GetContext(raised.get()));
    if (!context) return PyException_SetContext(raised.get(), handled.release());
    raised = std::move(context);
  }
}

/// What the call left in its arguments, or the error it raised (false).
bool answer(FjFrame* frame, PastCall& past) {
  if (past.error) {
    // The first entry is the function's caller, which is there again.
    Ref<> traceback = Ref<>::steal(PyException_GetTraceback(past.error.get()));
    if (traceback) {
      auto* next = reinterpret_cast<PyObject*>(reinterpret_cast<PyTracebackObject*>(traceback.get())->tb_next);
      traceback = next != nullptr ? Ref<>::borrow(next) : Ref<>();
    }
    add_context(past.error);
    Ref<> type = Ref<>::borrow(reinterpret_cast<PyObject*>(Py_TYPE(past.error.get())));
    PyErr_Restore(type.release(), past.error.release(), traceback.release());
    return false;
  }
  for (std::size_t i = 0; i < past.contents.size(); ++i) {
    const OnceCall::Written& place = past.call.written[i];
    PyObject* argument = fj_frame_get(frame, place.slot);
    if (argument == nullptr) {
      PyErr_SetString(PyExc_SystemError, "framejit: a collective is made with other arguments than before");
      return false;
    }
    Ref<> tensor = place.item < 0 ? Ref<>::borrow(argument) : Ref<>::steal(PySequence_GetItem(argument, place.item));
    Ref<> data =
        tensor ? Ref<>::steal(PyObject_GetAttrString(tensor.get(), "data")) : Ref<>();  // has a version of its own
    Ref<> done = data ? Ref<>::steal(PyObject_CallMethod(data.get(), "copy_", "O", past.contents[i].get())) : Ref<>();
    if (!done) return false;
    const std::vector<PyObject*> moved(std::size_t(past.version_moves[i]), tensor.get());
    if (!moved.empty() && !bump_versions(moved)) return false;
  }
  return true;
}

}  // namespace

Replay::Replay(PyThreadState* thread, std::vector<PastCall> past) : thread_(thread), past_(std::move(past)) {
  if (past_.empty()) return;
  eager_.emplace();
  outer_ = std::exchange(fj_stack(thread_)->replay, this);
  reach_ = fj_begin_reach(thread_, run);
}

Replay::~Replay() {
  if (past_.empty()) return;
  fj_end_reach(thread_, reach_);
  fj_stack(thread_)->replay = outer_;
}

PyObject* Replay::run(PyThreadState* thread, FjFrame* frame, int throwflag) {
  Replay& replay = *static_cast<Replay*>(fj_stack(thread)->replay);
  if (throwflag || replay.next_ == replay.past_.size() ||
      reinterpret_cast<PyObject*>(fj_frame_code(frame)) != replay.past_[replay.next_].call.code.get())
    return fj_pass_frame(thread, frame, throwflag);
  PastCall& past = replay.past_[replay.next_++];
  return fj_frame_finish(thread, frame, answer(frame, past) ? Ref<>::borrow(Py_None).release() : nullptr);
}

}  // namespace fj
