/// Runs single instructions of our instruction set on a live frame, as CPython would: what a graph breaks at.
///
/// The frame is linked while anything runs that could look at frames, so callees, warnings, debuggers and tracebacks
/// see the true one. An exception is unwound in the frame: to its handler, where execution goes on, or out of the
/// function.
#pragma once

#include <Python.h>

#include <memory>
#include <span>
#include <vector>

#include "cpython/cpython.h"
#include "cpython/ref.h"

namespace fj {

struct Step {
  enum class Kind {
    Next,      // the frame stands before instruction `next`
    Finished,  // the function is over and its frame cleared: `result`, or null with the error set
    Handover,  // nothing happened: CPython has to go on at instruction `next`
  } kind = Kind::Next;
  int next = 0;
  PyObject* result = nullptr;
};

/// A call that is under way: its frame stands before this instruction, with these slots and this stack.
struct Resumed {
  std::shared_ptr<const FjCode> code;
  int instruction;
  std::vector<Ref<>> slots;
};

/// Runs instruction `index`, and on to the next instruction at which a frame can be resumed. `called`: what it calls is
/// not begun but goes on as the first of them, and that one's call as the next.
Step execute(PyThreadState* thread, FjFrame* frame, const FjCode& code, int index, std::span<Resumed> called = {});

/// The frame gets these slots, and then this stack; `slots` what it had.
void exchange_slots(FjFrame* frame, std::vector<Ref<>>& slots);

/// CPython runs the frame from instruction `index` to its end.
PyObject* hand_over(PyThreadState* thread, FjFrame* frame, const FjCode& code, int index);

}  // namespace fj
