/* Everything framejit knows about a CPython version, behind one C interface. One file per version
 * implements it (v311.c, v312.c, v313.c); nothing outside this folder includes an internal header
 * or asks for a version. */
#ifndef FRAMEJIT_CPYTHON_H
#define FRAMEJIT_CPYTHON_H

#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- decoding ------------------------------------------------------------------------------- */

typedef enum {
#define FJ_INSTR(name, flow, slot, python) FJ_##name,
#include "cpython/bytecode.def"
} FjOpcode;

/* The columns of bytecode.def, which says what they mean. */
typedef enum { FJ_FLOW_Next, FJ_FLOW_Jump, FJ_FLOW_Branch, FJ_FLOW_Leave } FjFlow;
typedef enum { FJ_SLOT_None, FJ_SLOT_Reads, FJ_SLOT_Assigns, FJ_SLOT_Cell, FJ_SLOT_Cells } FjSlot;
typedef enum { FJ_PYTHON_Quiet, FJ_PYTHON_Runs } FjPython;
typedef struct {
  FjFlow flow;
  FjSlot slot;
  FjPython python;
} FjOpcodeRow;
extern const FjOpcodeRow fj_opcode_rows[]; /* by FjOpcode */

typedef struct {
  uint8_t opcode;   /* FjOpcode */
  bool resumable;   /* false for the second half of a split superinstruction: no segment may start here */
  int32_t arg, arg2;
  int32_t offset;   /* code unit to resume at: the first EXTENDED_ARG or KW_NAMES of the instruction */
  int32_t executing; /* code unit of the opcode itself: for tracebacks */
  int32_t line;      /* of the source text; 0 where it has none */
} FjInstr;

typedef struct {
  PyObject* code;       /* borrowed: PyCodeObject the decode belongs to */
  FjInstr* instrs;
  int32_t count;
  int32_t* index_of;    /* code unit -> instruction index (or of the next instruction), length code_units + 1 */
  int32_t code_units;
  bool is_generator;    /* generator, coroutine or async generator: left to CPython */
} FjCode;

/* New decode or NULL with MemoryError. Unknown raw opcodes decode to FJ_UNSUPPORTED. */
FjCode* fj_decode(PyCodeObject* code);
void fj_free_code(FjCode* code);
const char* fj_opcode_name(int opcode);

typedef struct { int32_t start, end, target, depth; bool lasti; } FjHandler;
/* The exception handler that covers code unit `unit`; false if none. Units as in FjInstr.executing. */
bool fj_find_handler(PyCodeObject* code, int32_t unit, FjHandler* handler);

/* True on 3.13+: the two slots under a call's arguments are (callable, self or NULL);
 * false: (method, self) or (NULL, callable). LOAD_GLOBAL's NULL is placed likewise. */
bool fj_call_layout_callable_first(void);
/* How many entries of the value stack an iterator takes in a `for` or `yield from`: 2 on 3.15+, the iterator and above it
 * NULL (where CPython runs the loop itself, the position in a list or tuple that stands for its iterator). */
int fj_iterator_entries(void);
/* Where an iterator of CPython's own stands. */
typedef enum {
  FJ_ITERATOR_NONE, FJ_ITERATOR_RANGE, FJ_ITERATOR_ITEMS, FJ_ITERATOR_ENUMERATE, FJ_ITERATOR_ZIP
} FjIteratorKind;
typedef struct {
  FjIteratorKind kind; /* none: another object, or one that is exhausted, strict, or counts beyond Py_ssize_t */
  int64_t next, step;  /* of a range its next number, of a sequence's items the next index, of enumerate its count */
  int64_t left;        /* of a range: how many numbers; of zip: how many iterators */
  PyObject* over;      /* the sequence; what enumerate counts; a tuple of what zip goes through. Borrowed */
} FjIterator;
FjIterator fj_iterator(PyObject* object);
/* An iterator over a list that goes on at this index, which may be beyond the list's end. NULL with MemoryError. */
PyObject* fj_list_iterator(PyObject* list, Py_ssize_t index);
/* How an int lies in memory behind its class: true on 3.12+: a word with the number of digits times 8 and the sign, 0, 1
 * for zero or 2; false: one with the number of digits, negative if the int is. Then the digits, of 30 bits in 32 each. */
bool fj_int_has_tag(void);
/* True on 3.14+: the error of too many values to unpack says how many an exact list, tuple or dict has. */
bool fj_unpacking_counts(PyTypeObject* type);
/* True on 3.14+: a defaultdict keeps what it has for a missing key past the __setitem__ of its class, and past what its
 * factory has stored meanwhile not at all. */
bool fj_missing_stores_itself(void);
/* True on 3.14+: the error of a list's index() does not name the value; that of a value that cannot be hashed names what
 * it was to be; numbers divided by zero have one message. */
bool fj_errors_since_v314(void);
/* True on 3.14+: annotations are given by a function (`__annotate__`) when somebody asks for them. */
bool fj_annotations_wait(void);
/* What a function statement gives a new function: names and values, flat in a tuple or in a dict, or that function.
 * Steals; the function's own getter turns it into a dict when somebody asks. */
void fj_set_annotations(PyObject* function, PyObject* annotations);
/* The qualified name that a function statement gives the function that gives the annotations of one called `qualname`
 * (new reference). NULL: it keeps its own, as on all but later releases of 3.14. */
PyObject* fj_giver_qualname(PyObject* qualname);
/* True on 3.14+: a real number beside a complex one has no imaginary part, not even 0, and products of complex numbers
 * keep infinities. */
bool fj_complex_keeps_reals_apart(void);
/* What LOAD_COMMON_CONSTANT loads (borrowed): AssertionError is 0 in every version. NULL: not known. */
PyObject* fj_common_constant(int which);
/* True on 3.12+: `~` of a bool gives a DeprecationWarning. */
bool fj_bool_invert_warns(void);

/* ---- live frames ---------------------------------------------------------------------------- */

typedef struct _PyInterpreterFrame FjFrame;

PyCodeObject* fj_frame_code(FjFrame* frame);         /* borrowed */
PyFunctionObject* fj_frame_function(FjFrame* frame); /* borrowed */
PyObject* fj_frame_globals(FjFrame* frame);          /* borrowed */
PyObject* fj_frame_builtins(FjFrame* frame);         /* borrowed */
int fj_frame_slot_count(FjFrame* frame);             /* co_nlocalsplus */
int fj_frame_stack_depth(FjFrame* frame);
/* Slots 0..slot_count+depth: locals, cells, free variables, then the value stack. Borrowed; may be NULL. */
PyObject* fj_frame_get(FjFrame* frame, int slot);
/* `count` of them from `first` on, as an array: the frame's own, or `room` with them in it. NULL: `room` is NULL and
 * needed. Valid until the frame runs on or ends, or one of them is set. */
PyObject* const* fj_frame_objects(FjFrame* frame, int first, int count, PyObject** room);
/* Steals `value`, releases the old one. */
void fj_frame_set(FjFrame* frame, int slot, PyObject* value);
/* Steals `value`; the old one (new reference). */
PyObject* fj_frame_exchange(FjFrame* frame, int slot, PyObject* value);
/* Stack only: the entry is neither read nor released. Steals. */
void fj_frame_push(FjFrame* frame, PyObject* value);
PyObject* fj_frame_pop(FjFrame* frame);              /* new reference, may be NULL */
int fj_frame_next_unit(FjFrame* frame);
void fj_frame_set_next(FjFrame* frame, int unit);
void fj_frame_set_executing(FjFrame* frame, int unit);
void fj_frame_link(PyThreadState* thread, FjFrame* frame);
void fj_frame_unlink(PyThreadState* thread, FjFrame* frame);
/* The frame runs on in CPython from where it stands. It must not be linked. */
PyObject* fj_eval_default(PyThreadState* thread, FjFrame* frame, int throwflag);
/* As it was handed to the hook: to the evaluator that would have run it without framejit. */
PyObject* fj_pass_frame(PyThreadState* thread, FjFrame* frame, int throwflag);
/* The function returns `value` (stolen), or raises the error that is set if NULL: clears the frame as CPython would. */
PyObject* fj_frame_finish(PyThreadState* thread, FjFrame* frame, PyObject* value);
/* True if the frame is entered midway, by a generator, with an exception, or is observed (trace, profile, monitoring).
 */
bool fj_frame_must_pass(PyThreadState* thread, FjFrame* frame, int throwflag);
bool fj_tracing_active(PyThreadState* thread);
/* True if events of this code object are observed: it has to run in CPython. */
bool fj_code_observed(PyThreadState* thread, PyCodeObject* code);
/* Depth accounting: false if the limit is reached (then nothing was counted). */
bool fj_enter_recursion(PyThreadState* thread);
void fj_leave_recursion(PyThreadState* thread);
/* How many calls of Python functions within one another there may still be. */
int fj_recursion_left(PyThreadState* thread);
/* Adds a traceback entry for the linked frame to the error that is set. */
void fj_add_traceback(PyThreadState* thread, FjFrame* frame);
/* The position (code unit) that a handler with `lasti` finds under the exception: new reference, NULL with an error set. */
PyObject* fj_position(int unit);
int fj_position_unit(PyObject* position);
void fj_frame_push_position(FjFrame* frame, int unit);
/* Sets/gets the handled exception (what PUSH_EXC_INFO and POP_EXCEPT do); steals, may be NULL. */
PyObject* fj_swap_handled_exception(PyThreadState* thread, PyObject* exception);
/* The error that is set, as one normalised exception with its traceback (new reference), and back. */
PyObject* fj_take_exception(void);
void fj_restore_exception(PyObject* exception);      /* steals; NULL: none */
int fj_handle_pending(PyThreadState* thread);        /* signals etc.; -1 with error set */

/* ---- the GIL -------------------------------------------------------------------------------- */

/* As PyEval_SaveThread and PyEval_RestoreThread. When the interpreter has ended the latter doesn't return. */
PyThreadState* fj_release_gil(void);
void fj_take_gil(PyThreadState* thread);
/* Whether this thread has the GIL; false for one that CPython doesn't know. */
bool fj_holds_gil(void);
/* Whether Python's signal handlers run on this thread. Needs no GIL. */
bool fj_handles_signals(void);
/* A byte that is not 0 while the evaluator has to look at something between two instructions: a signal, a thread that waits
 * for the GIL. It may be read without the GIL. */
const volatile uint8_t* fj_pending_word(PyThreadState* thread);
/* The same for a thread that has no GIL meanwhile, on which signal handlers run: before CPython 3.13 another thread
 * that takes the GIL may take the note away, for as long as this one does not ask for it. */
const volatile uint8_t* fj_signal_word(PyThreadState* thread);
/* One that says that a signal waits for this thread, and nothing else. */
const volatile uint8_t* fj_tripped_word(void);
/* CPython raises `exception` where it comes to `line` of `file`, before that line runs; if there is no such line (file
 * NULL, or a function traces already) at the next place where it looks for signals, but not at the RESUME of `code`,
 * which no `try` covers. On the thread of the signal handlers. False: it can't. */
bool fj_raise_soon(PyCodeObject* code, PyObject* exception, const char* file, int line);

/* ---- the hook ------------------------------------------------------------------------------- */

typedef PyObject* (*FjEvalHook)(PyThreadState* thread, FjFrame* frame, int throwflag);
/* NULL if this interpreter's layout is what we were built for; else a sentence why framejit runs eagerly. */
const char* fj_self_check(void);
FjEvalHook fj_installed_hook(PyThreadState* thread); /* what evaluates frames now; NULL: CPython */
/* Calls `function` so that its own frame, and only that, is run by `evaluator`, which is given `context`. Where that
 * can't be done CPython runs it. */
typedef PyObject* (*FjCallEvaluator)(void* context, PyThreadState* thread, FjFrame* frame, int throwflag);
PyObject* fj_call_with_evaluator(PyThreadState* thread, PyObject* function, PyObject* const* args, size_t nargsf,
                                 PyObject* kwnames, FjCallEvaluator evaluator, void* context);
/* Every frame that this stack enters until fj_end_reach is run by `evaluator`; NULL: as without framejit. Scopes nest.
 */
typedef struct { FjEvalHook reaching, replaced; bool armed; } FjReach;
FjReach fj_begin_reach(PyThreadState* thread, FjEvalHook evaluator);
void fj_end_reach(PyThreadState* thread, FjReach outer);
/* As fj_pass_frame, and what the frame calls is not seen either: it runs at full speed. */
PyObject* fj_pass_frame_unhooked(PyThreadState* thread, FjFrame* frame, int throwflag);

/* ---- stacks of frames ------------------------------------------------------------------------ */

/* What scopes that begin and end with a call note for the code that runs meanwhile. A thread may have several stacks
 * (greenlets: gevent, SQLAlchemy's bridge to asyncio), whose calls end in another order than they began; so none of
 * this is the thread's. Pointers are to the C stack, or live as long as a scope on it: only its own code follows them,
 * for greenlet moves the C stack of one that waits elsewhere. All zero: nothing is noted. */
typedef struct FjStack {
  const void* root;
  struct FjStack* next;
  /* of hook.c */
  struct FjAwaited* awaited;   /* the call whose frame is awaited; NULL: none */
  FjEvalHook reaching;         /* what runs every other frame; NULL: nothing */
  FjFrame* handed;             /* the frame being run by a foreign evaluator that had it from us */
  FjFrame* beneath;            /* the frame that a foreign evaluator above ours has left to us */
  Py_ssize_t arms;             /* of the hook, those of this stack */
  /* of the rooms above: a pointer each, and counts of what is open */
  void* reached;
  const void* break_place;
  void* replay;
  void* compared;
  PyObject* node;
  Py_ssize_t eager_depth, reached_depth;
} FjStack;
/* Of the code that runs. Good until Python code has run: asked again after it. */
FjStack* fj_stack(PyThreadState* thread);
/* Makes sure that this stack can be told from others. False: it can't. */
bool fj_begin_stack(PyThreadState* thread);

/* ---- invalidation --------------------------------------------------------------------------- */

/* A number that changes when the dict does, or 0 where the version has none (use watchers or compare). */
uint64_t fj_dict_version(PyObject* dict);
/* Where that number is while the dict lives, or NULL where the version has none. */
const uint64_t* fj_dict_version_word(PyObject* dict);
bool fj_has_watchers(void);
/* callback(object): a watched dict, type or function is about to change. Must not raise or run Python code. */
bool fj_init_watchers(void (*dict_changed)(PyObject*), void (*type_changed)(PyObject*),
                      void (*function_changed)(PyObject*));
bool fj_watch_dict(PyObject* dict);
bool fj_watch_type(PyObject* type);
/* The instance's dict (borrowed, materialised) or NULL. */
PyObject* fj_instance_dict(PyObject* object);
/* Where the object keeps the pointer to its dict, for objects that have one now; else NULL. */
PyObject* const* fj_instance_dict_word(PyObject* object);
/* As the interpreter's LOAD_METHOD: 1 and an unbound method to be called with `object` first, 0 and the attribute
 * itself, or 0 and NULL with the error set. New reference. */
int fj_get_method(PyObject* object, PyObject* name, PyObject** method);
/* True on 3.15+: imports may wait for their first use; a package imports a submodule that waits when it is asked for it. */
bool fj_has_lazy_imports(void);
/* True for what stands in a namespace for a module, or a name of one, that `lazy import` has not imported yet. */
bool fj_is_lazy_import(PyObject* object);
/* The value of `name` in `names`, imported now if it is such a one (new reference, NULL with an error set). */
PyObject* fj_imported(PyThreadState* thread, PyObject* value, PyObject* name, PyObject* names);
/* What a weak reference refers to, None if it is gone: new reference. */
PyObject* fj_weakly_held(PyObject* reference);
/* Borrowed lookup through the MRO, no descriptors, no error. */
PyObject* fj_type_lookup(PyTypeObject* type, PyObject* name);

/* Tells tracemalloc, where it is on, of memory that did not come from CPython. */
void fj_trace_memory(unsigned domain, const void* block, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
