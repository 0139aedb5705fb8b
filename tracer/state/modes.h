/// The modes that a traced `with` changes while it lasts.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "segment/library_calls/extern_table.h"
#include "tracer/tracer.h"

namespace fj {

/// torch's grad and inference mode, and NumPy's errstate.
struct Modes {
  bool grad = true;
  bool inference = false;
  bool records() const { return grad && !inference; }  // results have a derivative; views only inherit one
  std::uint32_t float_conditions = ~0u;  // KernelStatus bits NumPy may report, of those that are trapped outside
  /// Those of them that an np.errstate in the trace may report otherwise than by a warning.
  std::uint32_t otherwise_reported = 0;
};

class TraceRun;

/// torch's autocast of the CPU in this thread, which a traced `with` changes while it is traced; put back at the end of
/// the trace.
class AutocastState {
 public:
  AutocastState() = default;
  ~AutocastState();
  AutocastState(const AutocastState&) = delete;
  /// One of torch.set_autocast_*, autocast_*_nesting.
  V call(TraceRun& tracer, PyObject* function, const std::string& name, const std::vector<V>& positional);
  bool begun() const { return begun_; }
  bool changed() const;
  /// The call is to run under the autocast of now, if another is set outside.
  void note(ExternCall& call) const;
  int changed_at = 0;  // the step that changed autocast last

 private:
  static void set(const char* function, PyObject* value);
  bool begun_ = false;
  int nesting_ = 0;
  Ref<> enabled_, dtype_, cache_;  // outside
};

/// The traced code runs under `now`; `outside` was set when the trace began. While they differ the trace can't end:
/// code after an exit would run under `outside`.
struct ModeLedger {
  Modes now, outside;
  int changed_at = 0;                              // the step that changed the grad or inference mode last
  AutocastState autocast;
  std::vector<std::pair<Ref<>, V>> context_values; // values of context variables; null: as outside
  int context_changed_at = 0;
  bool backward_to_come = false;  // what is traced is called later, in the modes of then
  int inference_read_at = -1;  // the first step that read an inference tensor outside of inference mode
};

}  // namespace fj
