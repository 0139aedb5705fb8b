/// The error that is set, kept while code of ours or of somebody who is told of something runs beside it.
#pragma once

#include <Python.h>

namespace fj {

/// The error that is set when it is made is set again when it ends, whatever comes meanwhile; with none, none is set.
/// For what ends a `with` of ours, and for what words, logs and tells: it asks Python, which an error that is set
/// confuses, and forgets the errors of its questions.
class PendingError {
 public:
  PendingError() { PyErr_Fetch(&type_, &value_, &traceback_); }
  ~PendingError() { PyErr_Restore(type_, value_, traceback_); }
  PendingError(const PendingError&) = delete;

 private:
  PyObject *type_ = nullptr, *value_ = nullptr, *traceback_ = nullptr;
};

}  // namespace fj
