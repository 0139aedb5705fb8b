/* Signals that wait: CPython runs their handlers on its main thread only, and for a while takes no thread for that one. */
#include "cpython/signals.h"

#include "cpython/internal.h"

#include <internal/pycore_ceval.h>

static _Thread_local bool holding;

bool fj_holds_signals(void) { return holding; }

bool fj_hold_signals(void) {
  if (holding || !fj_handles_signals()) return false;
  holding = true;
  _PyRuntime.main_thread = 0; /* no thread's */
  return true;
}

void fj_let_signals(void) {
  holding = false;
  _PyRuntime.main_thread = PyThread_get_thread_ident();
  /* An evaluation loop that looked meanwhile may have taken the note away that there is something to do. */
#if PY_VERSION_HEX >= 0x030d0000
  _Py_set_eval_breaker_bit(PyThreadState_Get(), _PY_SIGNALS_PENDING_BIT);
#else
  /* Nothing would take back a note that has no reason. */
  if (_Py_atomic_load_relaxed(&_PyRuntime.ceval.signals_pending))
    _Py_atomic_store_relaxed(&PyThreadState_Get()->interp->ceval.eval_breaker, 1);
#endif
}
