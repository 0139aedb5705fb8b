/// Notes the calls of the array libraries for framejit.capture(level="library"), those inside of others before these.
#pragma once

#include <optional>
#include <vector>

#include "segment/library_calls/recorded_call.h"
#include "tracer/interpreter/trace_run.h"

namespace fj {

/// The library's function or method that a call of `callable` runs; null: none, or one that is not noted.
Ref<> recorded_function(const V& callable);

/// One call, from before it is traced to its result.
class CallRecorder {
 public:
  CallRecorder(TraceRun& t, Ref<> function, const V& callable, const std::vector<V>& positional,
               const Keywords& keywords);
  CallRecorder(const CallRecorder&) = delete;
  void done(const V& result);

 private:
  std::optional<ExternArgument> argument(const V& value);
  std::optional<ExternStructure> structure(const V& value);

  TraceRun& t_;
  RecordedCall call_;
  std::vector<const ArrayValue*> arrays_;  // by operand
  std::vector<V> alive_;
  bool wanted_ = true;
};

}  // namespace fj
