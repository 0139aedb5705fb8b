/* Signals that wait while framejit does what must not end halfway. */
#ifndef FRAMEJIT_CPYTHON_SIGNALS_H
#define FRAMEJIT_CPYTHON_SIGNALS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* From here on Python's signal handlers wait for fj_let_signals. False: they don't run on this thread, or wait already.
 */
bool fj_hold_signals(void);
/* What came meanwhile is handled at the next place where CPython looks for signals. */
void fj_let_signals(void);
/* Whether this thread holds signals. */
bool fj_holds_signals(void);
/* Whether one has come while this thread holds them. Also without the GIL. */
bool fj_signal_waits(void);

#ifdef __cplusplus
}

namespace fj {

/// The handlers of signals wait for the end of the scope: what they raise would be taken for an error of what runs
/// here.
class HeldSignals {
 public:
  HeldSignals() : held_(fj_hold_signals()) {}
  ~HeldSignals() {
    if (held_) fj_let_signals();
  }
  HeldSignals(const HeldSignals&) = delete;

 private:
  const bool held_;
};

/// Code of the user's inside of such a scope, which may run long and whose errors the user sees.
class LetSignals {
 public:
  LetSignals() : held_(fj_holds_signals()) {
    if (held_) fj_let_signals();
  }
  ~LetSignals() {
    if (held_) fj_hold_signals();
  }
  LetSignals(const LetSignals&) = delete;

 private:
  const bool held_;
};

}  // namespace fj
#endif

#endif
