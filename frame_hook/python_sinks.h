/// Python functions that are told what framejit does: the sink of its logs, and who watches long compilations.
///
/// They run on the thread that tells, as what `framejit.disable` marks does: nothing of theirs is compiled while
/// something else is. A pending exception is the program's and goes on afterwards; what they raise is reported as
/// unraisable, and the program goes on.
#pragma once

#include <Python.h>

#include <string>

#include "cpython/ref.h"
#include "runtime/base/phase.h"

namespace fj {

/// Entries of the logs go to `sink(artifact, level, text)` from now on. A thread without the GIL may be one that
/// another waits for with the GIL: its entries wait until the main thread looks for signals, or the next entry comes.
void set_python_log_sink(Ref<> sink);

/// Delivers what waits. The program ends: from now on what threads without the GIL log goes to stderr, and what the
/// sink can't take any more.
void end_python_logs();

/// `watcher(function, stage)` is called on the thread that compiles, with the stages trace, passes and code as they
/// begin, now and then while it traces, and with "" at the end.
void set_compilation_watcher(Ref<> watcher);

/// While one exists this thread compiles `function`, and the watcher is told. One inside of another says nothing.
class WatchedCompilation final : PhaseWatcher {
 public:
  WatchedCompilation(const std::string& function, bool wanted);
  ~WatchedCompilation();
  WatchedCompilation(const WatchedCompilation&) = delete;

 private:
  void at(const char* stage) override;

  const std::string& function_;
  const bool watched_;
};

}  // namespace fj
