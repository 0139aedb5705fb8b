/* What the end of the interpreter does to a thread that asks for the GIL: CPython ends it by pthread_exit, which
 * unwinds its stack. Destructors would run without the GIL, and the process aborts at a C++ frame that lets nothing
 * through. Such a thread waits at the first of our C++ frames instead, as from CPython 3.14 on it does by itself. */
#include "cpython/internal.h"

#include <unistd.h>
#include <unwind.h>

/* The linker gives these names to what C++ frames call to be unwound (frame_hook/CMakeLists.txt). */
_Unwind_Reason_Code __real___gxx_personality_v0(int version, _Unwind_Action actions, _Unwind_Exception_Class kind,
                                                struct _Unwind_Exception* exception, struct _Unwind_Context* context);

_Unwind_Reason_Code __wrap___gxx_personality_v0(int version, _Unwind_Action actions, _Unwind_Exception_Class kind,
                                                struct _Unwind_Exception* exception, struct _Unwind_Context* context) {
  while ((actions & _UA_FORCE_UNWIND) && _PyRuntimeState_GetFinalizing(&_PyRuntime) != NULL) pause();
  return __real___gxx_personality_v0(version, actions, kind, exception, context);
}
