/* A CPython without a file of its own, or a free-threaded one: fj_self_check says so and nothing else is ever used. */
#include "cpython/cpython.h"
#include "cpython/signals.h"

const char* fj_self_check(void) {
  return "framejit compiles nothing on this Python: it supports CPython"
#define FJ_VERSION(major, minor) " " #major "." #minor
#include "cpython/versions.def"
         " (standard builds); everything runs as without it";
}

const FjOpcodeRow fj_opcode_rows[] = {
#define FJ_INSTR(name, flow, slot, python) {FJ_FLOW_##flow, FJ_SLOT_##slot, FJ_PYTHON_##python},
#include "cpython/bytecode.def"
};
FjCode* fj_decode(PyCodeObject* code) { (void)code; return NULL; }
void fj_free_code(FjCode* code) { (void)code; }
const char* fj_opcode_name(int opcode) { (void)opcode; return "?"; }
bool fj_find_handler(PyCodeObject* code, int32_t unit, FjHandler* handler) {
  (void)code;
  (void)unit;
  (void)handler;
  return false;
}
bool fj_call_layout_callable_first(void) { return false; }
int fj_iterator_entries(void) { return 1; }
FjIterator fj_iterator(PyObject* object) {
  (void)object;
  return (FjIterator){FJ_ITERATOR_NONE, 0, 0, 0, NULL};
}
PyObject* fj_list_iterator(PyObject* list, Py_ssize_t index) { (void)index; return PyObject_GetIter(list); }
bool fj_int_has_tag(void) { return false; }
bool fj_unpacking_counts(PyTypeObject* type) { (void)type; return false; }
bool fj_missing_stores_itself(void) { return false; }
bool fj_errors_since_v314(void) { return false; }
bool fj_annotations_wait(void) { return false; }
void fj_set_annotations(PyObject* function, PyObject* annotations) {
  (void)function;
  Py_DECREF(annotations);
}
PyObject* fj_giver_qualname(PyObject* qualname) { (void)qualname; return NULL; }
bool fj_complex_keeps_reals_apart(void) { return false; }
PyObject* fj_common_constant(int which) { (void)which; return NULL; }
bool fj_bool_invert_warns(void) { return false; }
PyCodeObject* fj_frame_code(FjFrame* frame) { (void)frame; return NULL; }
PyFunctionObject* fj_frame_function(FjFrame* frame) { (void)frame; return NULL; }
PyObject* fj_frame_globals(FjFrame* frame) { (void)frame; return NULL; }
PyObject* fj_frame_builtins(FjFrame* frame) { (void)frame; return NULL; }
int fj_frame_slot_count(FjFrame* frame) { (void)frame; return 0; }
int fj_frame_stack_depth(FjFrame* frame) { (void)frame; return 0; }
PyObject* fj_frame_get(FjFrame* frame, int slot) { (void)frame; (void)slot; return NULL; }
void fj_frame_set(FjFrame* frame, int slot, PyObject* value) { (void)frame; (void)slot; (void)value; }
void fj_frame_push(FjFrame* frame, PyObject* value) { (void)frame; (void)value; }
PyObject* fj_frame_pop(FjFrame* frame) { (void)frame; return NULL; }
PyObject* const* fj_frame_objects(FjFrame* frame, int first, int count, PyObject** room) {
  (void)frame; (void)first; (void)count;
  return room;
}
PyObject* fj_frame_exchange(FjFrame* frame, int slot, PyObject* value) {
  (void)frame; (void)slot; (void)value;
  return NULL;
}
PyObject* fj_position(int unit) { return PyLong_FromLong(unit); }
int fj_position_unit(PyObject* position) { return (int)PyLong_AsLong(position); }
void fj_frame_push_position(FjFrame* frame, int unit) { (void)frame; (void)unit; }
int fj_frame_next_unit(FjFrame* frame) { (void)frame; return 0; }
void fj_frame_set_next(FjFrame* frame, int unit) { (void)frame; (void)unit; }
void fj_frame_set_executing(FjFrame* frame, int unit) { (void)frame; (void)unit; }
void fj_frame_link(PyThreadState* thread, FjFrame* frame) { (void)thread; (void)frame; }
void fj_frame_unlink(PyThreadState* thread, FjFrame* frame) { (void)thread; (void)frame; }
PyObject* fj_eval_default(PyThreadState* thread, FjFrame* frame, int throwflag) {
  (void)thread;
  (void)frame;
  (void)throwflag;
  return NULL;
}
PyThreadState* fj_release_gil(void) { return PyEval_SaveThread(); }
void fj_take_gil(PyThreadState* thread) { PyEval_RestoreThread(thread); }
bool fj_holds_gil(void) { return true; }
bool fj_handles_signals(void) { return false; }
bool fj_hold_signals(void) { return false; }
void fj_let_signals(void) {}
bool fj_holds_signals(void) { return false; }
bool fj_signal_waits(void) { return false; }
const volatile uint8_t* fj_pending_word(PyThreadState* thread) {
  static const volatile uint8_t nothing;
  (void)thread;
  return &nothing;
}
const volatile uint8_t* fj_signal_word(PyThreadState* thread) { return fj_pending_word(thread); }
const volatile uint8_t* fj_tripped_word(void) { return fj_pending_word(NULL); }
bool fj_raise_soon(PyCodeObject* code, PyObject* exception, const char* file, int line) {
  (void)code; (void)exception; (void)file; (void)line;
  return false;
}
PyObject* fj_frame_finish(PyThreadState* thread, FjFrame* frame, PyObject* value) {
  (void)thread;
  (void)frame;
  return value;
}
bool fj_frame_must_pass(PyThreadState* thread, FjFrame* frame, int throwflag) {
  (void)thread;
  (void)frame;
  (void)throwflag;
  return true;
}
bool fj_tracing_active(PyThreadState* thread) { (void)thread; return true; }
bool fj_code_observed(PyThreadState* thread, PyCodeObject* code) { (void)thread; (void)code; return true; }
PyObject* fj_pass_frame(PyThreadState* thread, FjFrame* frame, int throwflag) {
  (void)thread;
  (void)frame;
  (void)throwflag;
  return NULL;
}
bool fj_enter_recursion(PyThreadState* thread) { (void)thread; return false; }
void fj_leave_recursion(PyThreadState* thread) { (void)thread; }
int fj_recursion_left(PyThreadState* thread) { (void)thread; return 0; }
void fj_add_traceback(PyThreadState* thread, FjFrame* frame) { (void)thread; (void)frame; }
PyObject* fj_swap_handled_exception(PyThreadState* thread, PyObject* exception) { (void)thread; return exception; }
PyObject* fj_take_exception(void) { return NULL; }
void fj_restore_exception(PyObject* exception) { Py_XDECREF(exception); }
int fj_handle_pending(PyThreadState* thread) { (void)thread; return 0; }
FjEvalHook fj_installed_hook(PyThreadState* thread) { (void)thread; return NULL; }
PyObject* fj_call_with_evaluator(PyThreadState* thread, PyObject* function, PyObject* const* args, size_t nargsf,
                                 PyObject* kwnames, FjCallEvaluator evaluator, void* context) {
  (void)thread; (void)evaluator; (void)context;
  return PyObject_Vectorcall(function, args, nargsf, kwnames);
}
FjStack* fj_stack(PyThreadState* thread) {
  static _Thread_local FjStack only;
  (void)thread;
  return &only;
}
bool fj_begin_stack(PyThreadState* thread) { (void)thread; return true; }
FjReach fj_begin_reach(PyThreadState* thread, FjEvalHook evaluator) {
  (void)thread; (void)evaluator;
  return (FjReach){NULL, NULL, false};
}
void fj_end_reach(PyThreadState* thread, FjReach outer) { (void)thread; (void)outer; }
PyObject* fj_pass_frame_unhooked(PyThreadState* thread, FjFrame* frame, int throwflag) {
  (void)thread;
  (void)frame;
  (void)throwflag;
  return NULL;
}
uint64_t fj_dict_version(PyObject* dict) { (void)dict; return 0; }
const uint64_t* fj_dict_version_word(PyObject* dict) { (void)dict; return NULL; }
bool fj_has_watchers(void) { return false; }
bool fj_init_watchers(void (*dict_changed)(PyObject*), void (*type_changed)(PyObject*),
                      void (*function_changed)(PyObject*)) {
  (void)dict_changed; (void)type_changed; (void)function_changed;
  return false;
}
bool fj_watch_dict(PyObject* dict) { (void)dict; return false; }
bool fj_watch_type(PyObject* type) { (void)type; return false; }
PyObject* fj_instance_dict(PyObject* object) { (void)object; return NULL; }
PyObject* const* fj_instance_dict_word(PyObject* object) { (void)object; return NULL; }
bool fj_has_lazy_imports(void) { return false; }
bool fj_is_lazy_import(PyObject* object) { (void)object; return false; }
PyObject* fj_imported(PyThreadState* thread, PyObject* value, PyObject* name, PyObject* names) {
  (void)thread; (void)name; (void)names;
  return Py_NewRef(value);
}
PyObject* fj_weakly_held(PyObject* reference) {
  (void)reference;
  return Py_NewRef(Py_None);
}
void fj_trace_memory(unsigned domain, const void* block, size_t bytes) { (void)domain; (void)block; (void)bytes; }
PyObject* fj_type_lookup(PyTypeObject* type, PyObject* name) { (void)type; (void)name; return NULL; }
int fj_get_method(PyObject* object, PyObject* name, PyObject** method) {
  *method = PyObject_GetAttr(object, name);
  return 0;
}
