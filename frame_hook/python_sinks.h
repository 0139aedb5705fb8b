/// Python functions that are told what framejit does: the sink of its logs.
///
/// They run on the thread that tells, as what `framejit.disable` marks does: nothing of theirs is compiled while
/// something else is. A pending exception is the program's and goes on afterwards; what they raise is reported as
/// unraisable, and the program goes on.
#pragma once

#include <Python.h>

#include "cpython/cpython.h"
#include "cpython/ref.h"

namespace fj {

/// While user code runs that is told of something: an exception that is pending is the program's and goes on
/// afterwards.
class AsideForUser {
 public:
  AsideForUser() : pending_(fj_take_exception()) {}
  ~AsideForUser() {
    if (pending_) fj_restore_exception(pending_);
  }
  AsideForUser(const AsideForUser&) = delete;

 private:
  PyObject* pending_;
};

/// Entries of the logs go to `sink(artifact, level, text)` from now on. A thread without the GIL may be one that
/// another waits for with the GIL: its entries wait until the main thread looks for signals, or the next entry comes.
void set_python_log_sink(Ref<> sink);

/// Delivers what waits. The program ends: from now on what threads without the GIL log goes to stderr, and what the sink
/// can't take any more.
void end_python_logs();

}  // namespace fj
