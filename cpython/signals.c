/* Signals that wait: CPython runs their handlers on its main thread only, and for a while takes no thread for that one.
 */
#include "cpython/signals.h"

#include "cpython/internal.h"

#include <internal/pycore_ceval.h>

static _Thread_local bool holding;

bool fj_holds_signals(void) { return holding; }

bool fj_signal_waits(void) {
  if (!holding) return false;
#if PY_VERSION_HEX >= 0x030d0000
  return _Py_atomic_load_int_relaxed(&_PyRuntime.signals.is_tripped) != 0;
#else
  return _Py_atomic_load_relaxed(&_PyRuntime.ceval.signals_pending) != 0;
#endif
}

bool fj_hold_signals(void) {
  if (holding || !fj_handles_signals()) return false;
  holding = true;
  _PyRuntime.main_thread = 0; /* no thread's */
  return true;
}

void fj_let_signals(void) {
  holding = false;
  _PyRuntime.main_thread = PyThread_get_thread_ident();
  /* An evaluation loop that looked meanwhile may have taken the note away that there is something to do: a signal, or a
   * call that another thread wants made here. */
  PyThreadState* thread = PyThreadState_Get();
#if PY_VERSION_HEX >= 0x030d0000
  _Py_set_eval_breaker_bit(thread, _PY_SIGNALS_PENDING_BIT);
  if (_PyRuntime.ceval.pending_mainthread.npending) _Py_set_eval_breaker_bit(thread, _PY_CALLS_TO_DO_BIT);
#else
#if PY_VERSION_HEX >= 0x030c0000
  const struct _pending_calls* calls = &_PyRuntime.ceval.pending_mainthread;
#else
  const struct _pending_calls* calls = &thread->interp->ceval.pending;
#endif
  const bool waiting = calls->first != calls->last;
  if (waiting) _Py_atomic_store_relaxed(&thread->interp->ceval.pending.calls_to_do, 1);
  /* Nothing would take back a note that has no reason. */
  if (waiting || _Py_atomic_load_relaxed(&_PyRuntime.ceval.signals_pending))
    _Py_atomic_store_relaxed(&thread->interp->ceval.eval_breaker, 1);
#endif
}
