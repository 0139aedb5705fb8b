/* Which stack of Python frames a thread is on. CPython's frames lie on chunks that belong to the thread, of which the
 * first is never given back while frames may come; whoever switches stacks within a thread (greenlet) gives each stack
 * chunks of its own. So the first chunk tells the stacks apart, whatever library switches them. */
#include "cpython/internal.h"

#include <stddef.h>
#include <string.h>

static _Thread_local FjStack first;  /* of the list; the only one where nothing switches */
static _Thread_local FjStack* current;

static const void* root_of(PyThreadState* thread) {
  const _PyStackChunk* chunk = thread->datastack_chunk;
  while (chunk != NULL && chunk->previous != NULL) chunk = chunk->previous;
  return chunk;
}

static bool is_idle(const FjStack* stack) {
  static const FjStack idle;
  const size_t from = offsetof(FjStack, next) + sizeof stack->next;
  return memcmp((const char*)stack + from, (const char*)&idle + from, sizeof idle - from) == 0;
}

/* The stack with this root. Those of which nothing is known go: a stack that has ended, or one that may begin afresh. */
static FjStack* switch_to(const void* root) {
  FjStack* found = NULL;
  for (FjStack** place = &first.next; *place != NULL;) {
    FjStack* const stack = *place;
    if (stack->root == root) found = stack;
    if (stack->root != root && is_idle(stack)) {
      *place = stack->next;
      PyMem_RawFree(stack);
    } else {
      place = &stack->next;
    }
  }
  if (found == NULL && (first.root == root || is_idle(&first))) found = &first;
  if (found == NULL) {
    found = PyMem_RawCalloc(1, sizeof *found);
    if (found == NULL) Py_FatalError("framejit: no memory for what is known of a stack of frames");
    found->next = first.next;
    first.next = found;
  }
  found->root = root;
  return current = found;
}

FjStack* fj_stack(PyThreadState* thread) {
  const void* const root = root_of(thread);
  return current != NULL && current->root == root ? current : switch_to(root);
}

/* A stack has no chunk before its first frame: a frame without code makes it. */
bool fj_begin_stack(PyThreadState* thread) {
  static PyObject *code, *globals;
  if (thread->datastack_chunk != NULL) return true;
  if (fj_tracing_active(thread)) return false;
  if (code == NULL) code = Py_CompileString("", "<framejit>", Py_file_input);
  if (globals == NULL) globals = PyDict_New();
  PyObject* const none = code != NULL && globals != NULL ? PyEval_EvalCode(code, globals, globals) : NULL;
  if (none == NULL) PyErr_Clear();
  Py_XDECREF(none);
  return thread->datastack_chunk != NULL;
}
