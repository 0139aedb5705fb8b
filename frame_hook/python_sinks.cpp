// Start at `tell`, and at WatchedCompilation. Entries of threads without the GIL are kept in `Waiting`, and CPython is
// asked for a call that delivers them.
#include "frame_hook/python_sinks.h"

#include <cstdio>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cpython/cpython.h"
#include "cpython/pending_error.h"
#include "frame_hook/function_state.h"
#include "runtime/base/fork_lock.h"
#include "runtime/base/log.h"

namespace fj {
namespace {

struct Entry {
  Artifact artifact;
  LogLevel level;
  std::string text;
};

struct Waiting {
  std::mutex mutex;  // guards everything here; nothing of Python's runs under it
  std::vector<Entry> entries;
  bool asked = false;  // CPython, for a call of `deliver`
  bool ended = false;
};

Waiting& waiting = *[] {
  auto* made = new Waiting;  // never destroyed: threads may log while the process ends
  keep_over_forks(made->mutex);
  return made;
}();

/// With the GIL held. References that live as long as the process.
PyObject* log_sink = nullptr;
PyObject* compilation_watcher = nullptr;

/// An exception that `who` has raised is set.
void report_error(const char* who) {
  // Ctrl-C while it ran is meant for the program.
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
    PyErr_Clear();
    PyErr_SetInterrupt();
    return;
  }
  const auto what = Ref<>::steal(PyUnicode_FromString(who));
  PyErr_WriteUnraisable(what.get());
}

void write_to_stderr(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  std::fflush(stderr);
}

/// Names of functions and lines of files may be no UTF-8.
Ref<> decoded(const std::string& text) {
  return Ref<>::steal(PyUnicode_DecodeUTF8(text.data(), Py_ssize_t(text.size()), "backslashreplace"));
}

bool has_ended() {
  std::lock_guard lock(waiting.mutex);
  return waiting.ended;
}

void tell(const Entry& entry) {
  const PendingError pending;
  const EagerScope eager;
  const std::string artifact(name(entry.artifact));
  const auto text = decoded(entry.text);
  const Ref<> sink = Ref<>::borrow(log_sink);
  const auto done =
      text ? Ref<>::steal(PyObject_CallFunction(sink.get(), "siO", artifact.c_str(), int(entry.level), text.get()))
           : Ref<>();
  if (done) return;
  if (!has_ended()) return report_error("a sink of framejit's logs");
  PyErr_Clear();  // modules are taken apart by now
  write_to_stderr(entry.text);
}

void deliver_waiting() {
  std::vector<Entry> entries;
  {
    std::lock_guard lock(waiting.mutex);
    entries.swap(waiting.entries);
    waiting.asked = false;
  }
  for (const Entry& entry : entries) tell(entry);
}

int deliver(void*) {
  deliver_waiting();
  return 0;
}

/// On a thread without the GIL.
void keep(Entry entry) {
  bool ask;
  {
    std::lock_guard lock(waiting.mutex);
    if (waiting.ended) return write_to_stderr(entry.text);
    waiting.entries.push_back(std::move(entry));
    ask = !std::exchange(waiting.asked, true);
  }
  if (!ask || Py_AddPendingCall(deliver, nullptr) == 0) return;
  std::lock_guard lock(waiting.mutex);  // too many calls wait: the next entry asks again
  waiting.asked = false;
}

}  // namespace

void set_python_log_sink(Ref<> sink) {
  Py_XSETREF(log_sink, sink.release());
  set_log_sink([](Artifact artifact, LogLevel level, const std::string& text) {
    Entry entry{artifact, level, text};
    if (!fj_holds_gil()) return keep(std::move(entry));
    deliver_waiting();
    tell(entry);
  });
}

void end_python_logs() {
  {
    std::lock_guard lock(waiting.mutex);
    waiting.ended = true;
  }
  deliver_waiting();
}

void set_compilation_watcher(Ref<> watcher) { Py_XSETREF(compilation_watcher, watcher.release()); }

WatchedCompilation::WatchedCompilation(const std::string& function, bool wanted)
    : function_(function), watched_(wanted && compilation_watcher != nullptr && phase_watcher == nullptr) {
  if (watched_) phase_watcher = this;
}

WatchedCompilation::~WatchedCompilation() {
  if (!watched_) return;
  phase_watcher = nullptr;
  at("");
}

void WatchedCompilation::at(const char* stage) {
  const PendingError pending;
  const EagerScope eager;
  const Ref<> watcher = Ref<>::borrow(compilation_watcher);
  const auto function = decoded(function_);
  const auto done =
      function ? Ref<>::steal(PyObject_CallFunction(watcher.get(), "Os", function.get(), stage)) : Ref<>();
  if (!done) report_error("who watches framejit's compilations");
}

}  // namespace fj
