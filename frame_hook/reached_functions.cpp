// Which frames get segments. Start at run_reached, which the hook calls for every frame.
#include "frame_hook/reached_functions.h"

#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "arrays/arrays.h"
#include "cpython/objects.h"
#include "cpython/pending_error.h"
#include "frame_hook/dispatch.h"
#include "frame_hook/events.h"
#include "runtime/base/log.h"

namespace fj {

/// One code object.
struct Reached {
  FunctionState state;
  bool library = false;         // of a library that has no array work to compile: only what it calls is looked at
  bool mentions_arrays = false; // its globals have NumPy, torch or arrays
  int idle = 0;                 // frames in a row without array work of their own
  int barren = 0;               // ... nor in what they called
  std::uint32_t passed = 0;     // frames since it was given up
};

namespace {

constexpr int kPatience = 3;
/// Deeper than this CPython runs alone: under a hook every Python call takes C stack.
constexpr int kDepth = 200;
constexpr std::size_t kFunctions = 4096;

thread_local std::uint64_t array_work = 0;

/// After 64, 128, 256, ... frames of a function that was given up it is tried again: it may be given arrays by now.
bool is_due(std::uint32_t passed) { return passed >= 64 && (passed & (passed - 1)) == 0; }

std::string directory_of(const char* module) {
  PyObject* found = PyDict_GetItemString(PyImport_GetModuleDict(), module);
  Ref<> file = found != nullptr ? Ref<>::steal(PyObject_GetAttrString(found, "__file__")) : Ref<>();
  const char* text = file && PyUnicode_Check(file.get()) ? PyUnicode_AsUTF8(file.get()) : nullptr;
  PyErr_Clear();
  std::string path = text != nullptr ? text : "";
  const auto slash = path.find_last_of('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

enum class Origin : std::uint8_t {
  Users,
  Others,   // installed packages and torch.nn, whose array work is compiled as the user's is
  Library,  // the standard library and the insides of the array libraries
};

Origin origin_of(PyCodeObject* code) {
  const char* text = PyUnicode_AsUTF8(code->co_filename);
  if (text == nullptr) {
    PyErr_Clear();
    return Origin::Library;
  }
  const std::string_view file = text;
  if (file.starts_with("<frozen")) return Origin::Library;
  const std::string& standard = once([] { return directory_of("os"); });
  if (!standard.empty() && file.starts_with(standard) && file.find("site-packages") == file.npos &&
      file.find("dist-packages") == file.npos)
    return Origin::Library;
  for (const char* module : {"numpy", "framejit"})
    if (const std::string directory = directory_of(module); !directory.empty() && file.starts_with(directory))
      return Origin::Library;
  const std::string torch = directory_of("torch");
  if (torch.empty() || !file.starts_with(torch))
    return file.find("/site-packages/") == file.npos && file.find("/dist-packages/") == file.npos ? Origin::Users
                                                                                                  : Origin::Others;
  const std::string_view inside = file.substr(torch.size());
  // Of recurrent layers and packed sequences each function is one call of the library, whatever is checked around it.
  return !inside.starts_with("nn/") || inside.ends_with("nn/modules/module.py") || inside.ends_with("/rnn.py") ||
                 inside.starts_with("nn/parallel/")
             ? Origin::Library
             : Origin::Others;
}

/// The lambda that makes a named tuple: collections compiles it, with globals of its own.
bool is_of_namedtuple(PyObject* globals) {
  PyObject* name = PyDict_CheckExact(globals) ? PyDict_GetItemString(globals, "__name__") : nullptr;
  return name != nullptr && text_of(name).starts_with("namedtuple_");
}

bool is_array_module(PyObject* object) {
  if (!PyModule_Check(object)) return false;
  const char* name = PyModule_GetName(object);
  if (name == nullptr) PyErr_Clear();
  const std::string_view text = name != nullptr ? name : "";
  return text == "numpy" || text == "torch" || text.starts_with("numpy.") || text.starts_with("torch.");
}

bool mentions_arrays(PyCodeObject* code, PyObject* globals) {
  if (!PyDict_CheckExact(globals)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_names); i++) {
    PyObject* found = PyDict_GetItemWithError(globals, PyTuple_GET_ITEM(code->co_names, i));
    if (found == nullptr) PyErr_Clear();
    else if (is_array_module(found) || array_library(found)) return true;
  }
  return false;
}

/// An array, a container with one, or an object of a class written in Python, which may hold some.
bool may_hold_array(PyObject* object, int levels) {
  if (object == nullptr) return false;
  if (array_library(object)) return true;
  if (PyTuple_Check(object) || PyList_CheckExact(object)) {
    const Py_ssize_t size = PySequence_Fast_GET_SIZE(object);
    for (Py_ssize_t i = 0; levels > 0 && i < size && i < 8; i++)
      if (may_hold_array(PySequence_Fast_GET_ITEM(object, i), levels - 1)) return true;
    return false;
  }
  if (PyDict_CheckExact(object)) {
    Py_ssize_t position = 0;
    PyObject *key, *value;
    for (int i = 0; levels > 0 && i < 8 && PyDict_Next(object, &position, &key, &value); i++)
      if (may_hold_array(value, levels - 1)) return true;
    return false;
  }
  if (PyFunction_Check(object)) {
    PyObject* closure = reinterpret_cast<PyFunctionObject*>(object)->func_closure;
    for (Py_ssize_t i = 0; closure != nullptr && levels > 0 && i < PyTuple_GET_SIZE(closure); i++)
      if (may_hold_array(PyCell_GET(PyTuple_GET_ITEM(closure, i)), levels - 1)) return true;
    return false;
  }
  return (Py_TYPE(object)->tp_flags & Py_TPFLAGS_HEAPTYPE) && Py_TYPE(object)->tp_dictoffset != 0;
}

bool sees_arrays(const Reached& entry, FjFrame* frame) {
  if (entry.mentions_arrays) return true;
  const int slots = fj_frame_slot_count(frame);
  for (int i = 0; i < slots; i++)
    if (may_hold_array(fj_frame_get(frame, i), 2)) return true;
  return may_hold_array(reinterpret_cast<PyObject*>(fj_frame_function(frame)), 2);
}

/// Said once for a function of the user's, and for a line of the user's that calls those of a library.
void left_to_cpython(PyThreadState* thread, const FunctionState& state) {
  // Of the user's, innermost.
  const auto* const place = static_cast<const BreakPlace*>(fj_stack(thread)->break_place);
  const FunctionState& users = state.of_library && place != nullptr ? place->state : state;
  if (users.of_library || !log_enabled(Artifact::fallbacks, users.name)) return;
  const PendingError pending;  // of the call that ended
  const std::string ours = directory_of("framejit");
  if (!ours.empty() && text_of(state.code->co_filename).starts_with(ours)) return;
  std::string what = users.name;
  if (&users != &state) {
    const int line = place->code.instrs[place->instruction].line;
    if (!static_cast<ReachedFunctions*>(fj_stack(thread)->reached)->first_at(place->code.code, line)) return;
    BreakEvent event;
    event.file = text_of(reinterpret_cast<PyCodeObject*>(place->code.code)->co_filename);
    event.line = line;
    what = "what `" + event.source() + "` calls, at " + event.file + ":" + std::to_string(line) + " in " + users.name;
  }
  log(Artifact::fallbacks, "framejit: left to CPython: " + what + "\n  no array work in it in " +
                               std::to_string(kPatience) + " calls from a graph break");
}

PyObject* run_reached(PyThreadState* thread, FjFrame* frame, int throwflag) {
  if (fj_stack(thread)->reached_depth >= kDepth) return fj_pass_frame_unhooked(thread, frame, throwflag);
  struct Deeper {
    Deeper(PyThreadState* thread) : thread(thread) { fj_stack(thread)->reached_depth++; }
    ~Deeper() { fj_stack(thread)->reached_depth--; }
    PyThreadState* thread;
  } deeper(thread);
  if (runs_eagerly() || fj_frame_must_pass(thread, frame, throwflag)) return fj_pass_frame(thread, frame, throwflag);
  PyCodeObject* code = fj_frame_code(frame);
  auto* const functions = static_cast<ReachedFunctions*>(fj_stack(thread)->reached);
  Reached* entry = functions->find(code, frame);
  if (entry == nullptr) return fj_pass_frame(thread, frame, throwflag);
  const bool due = entry->barren >= kPatience || entry->idle >= kPatience ? is_due(++entry->passed) : false;
  if (entry->barren >= kPatience && !due) return fj_pass_frame_unhooked(thread, frame, throwflag);

  const std::shared_ptr<Reached> alive = functions->keep(code);
  const std::uint64_t before = array_work, own_before = entry->state.programs_run;
  const bool looked_at =
      !entry->library && (entry->idle < kPatience || due) && sees_arrays(*entry, frame) && fj_enter_recursion(thread);
  PyObject* result =
      looked_at ? run_entered_frame(entry->state, thread, frame) : fj_pass_frame(thread, frame, throwflag);
  entry->idle = entry->state.programs_run != own_before ? 0 : entry->idle + (looked_at || !entry->library);
  entry->barren = array_work != before ? 0 : entry->barren + 1;
  if (entry->barren == kPatience && entry->passed == 0) left_to_cpython(thread, entry->state);
  return result;
}

}  // namespace

Reached* ReachedFunctions::find(PyCodeObject* code, FjFrame* frame) {
  auto known = functions_.find(code);
  if (known != functions_.end()) [[likely]] return known->second.get();
  if (functions_.size() >= kFunctions) return nullptr;
  auto entry = std::make_shared<Reached>();
  const Origin origin = origin_of(code);
  entry->library = origin == Origin::Library;
  entry->state.of_library = origin != Origin::Users || is_of_namedtuple(fj_frame_globals(frame));
  entry->mentions_arrays = !entry->library && mentions_arrays(code, fj_frame_globals(frame));
  entry->state.code = Ref<PyCodeObject>::borrow(code);
  entry->state.options = root_.options;
  entry->state.backend = root_.backend;
  entry->state.passes = root_.passes;
  entry->state.events = root_.events;
  entry->state.reached = std::shared_ptr<ReachedFunctions>(std::shared_ptr<void>(), this);  // the root owns it
  const char* name = PyUnicode_AsUTF8(code->co_qualname);
  if (name == nullptr) PyErr_Clear();
  entry->state.name = name != nullptr ? name : "?";
  return functions_.emplace(code, std::move(entry)).first->second.get();
}

int ReachedFunctions::traverse(visitproc visit, void* arg) const {
  for (const auto& [code, reached] : functions_)
    for (const auto& cache : reached->state.caches)
      if (const int stop = cache->traverse(visit, arg)) return stop;
  return 0;
}

std::shared_ptr<const void> ReachedFunctions::take() {
  return std::make_shared<const Functions>(std::exchange(functions_, {}));
}

std::shared_ptr<Reached> ReachedFunctions::keep(PyCodeObject* code) const {
  auto known = functions_.find(code);
  return known != functions_.end() ? known->second : nullptr;
}

ReachScope::ReachScope(PyThreadState* thread, ReachedFunctions* functions)
    : thread_(thread),
      outer_functions_(fj_stack(thread)->reached),
      outer_place_(fj_stack(thread)->break_place),
      outer_(fj_begin_reach(thread, functions != nullptr ? run_reached : nullptr)) {
  fj_stack(thread)->reached = functions;
}

ReachScope::ReachScope(PyThreadState* thread, const BreakPlace& where) : ReachScope(thread, where.state.reached.get()) {
  if (!where.state.of_library) fj_stack(thread)->break_place = &where;
}

ReachScope::~ReachScope() {
  fj_end_reach(thread_, outer_);
  fj_stack(thread_)->reached = outer_functions_;
  fj_stack(thread_)->break_place = outer_place_;
}

bool ReachedFunctions::first_at(const void* code, int line) { return said_.emplace(code, line).second; }

void note_array_work(FunctionState& state) {
  state.programs_run++;
  array_work++;
}

std::uint64_t array_work_besides(const FunctionState& state) { return array_work - state.programs_run; }

}  // namespace fj
