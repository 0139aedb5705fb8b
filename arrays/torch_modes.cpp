// Modes are thread-local state of torch. Its Python functions tell each of them, which takes ten calls; nearly all of
// it shows in the thread's dispatch keys too, two words that are zero in a thread without modes. Those are read where
// torch lets us find them and entering each mode is seen to change them; else every question goes through the
// functions.
#include "arrays/torch_modes.h"

#include <dlfcn.h>

#include <algorithm>
#include <initializer_list>

#include "arrays/torch_arrays.h"
#include "cpython/pending_error.h"

namespace fj {
namespace {

/// A function of torch that takes nothing, called without the interpreter's help where it is plain C.
class Getter {
 public:
  void find(std::initializer_list<const char*> path) {
    function_ = torch_attribute(path);
    if (function_ != nullptr && PyCFunction_CheckExact(function_) && PyCFunction_GET_FLAGS(function_) == METH_NOARGS)
      code_ = PyCFunction_GET_FUNCTION(function_);
  }
  explicit operator bool() const { return function_ != nullptr; }

  /// Null: the function failed; the error is dropped.
  Ref<> operator()() const {
    Ref<> value = Ref<>::steal(code_ != nullptr ? code_(PyCFunction_GET_SELF(function_), nullptr)
                                                : PyObject_CallNoArgs(function_));
    if (!value) PyErr_Clear();
    return value;
  }
  /// Failing counts as on.
  bool truth() const {
    const Ref<> value = (*this)();
    return !value || value.get() == Py_True;
  }
  /// None counts as 0, failing as a number that no mode has.
  std::uint64_t number() const {
    const Ref<> value = (*this)();
    if (value && value.get() == Py_None) return 0;
    const long number = value ? PyLong_AsLong(value.get()) : -1;
    if (PyErr_Occurred()) PyErr_Clear();
    return number < 0 || number > 0xfe ? 0xff : std::uint64_t(number);
  }

 private:
  PyObject* function_ = nullptr;  // owned for the life of the process, as torch is
  PyCFunction code_ = nullptr;
};

struct Getters {
  Getter grad, inference, deterministic, any_autocast, default_dtype, function_modes, dispatch_modes, functorch_level,
      script_recorder;
  PyObject *autocast_dtype = nullptr, *autocast_enabled = nullptr, *float32 = nullptr;
  PyObject *forward_variables = nullptr,
           *forward_level = nullptr;  // torch.autograd.forward_ad's dict, "_current_level"
};

/// Null: torch is not loaded, or not completely.
const Getters* getters() {
  static Getters found;
  static bool complete = false;
  if (complete) return &found;
  if (torch_module() == nullptr) return nullptr;
  found.grad.find({"_C", "is_grad_enabled"});
  if (!found.grad) found.grad.find({"is_grad_enabled"});
  found.inference.find({"is_inference_mode_enabled"});
  found.deterministic.find({"_C", "_get_deterministic_algorithms"});
  found.any_autocast.find({"_C", "_is_any_autocast_enabled"});
  found.default_dtype.find({"get_default_dtype"});
  found.function_modes.find({"_C", "_len_torch_function_stack"});
  found.dispatch_modes.find({"_C", "_len_torch_dispatch_stack"});
  found.functorch_level.find({"_C", "_functorch", "maybe_current_level"});
  found.script_recorder.find({"_C", "_get_tracing_state"});
  found.autocast_dtype = torch_attribute({"get_autocast_dtype"});
  found.autocast_enabled = torch_attribute({"is_autocast_enabled"});
  found.float32 = torch_attribute({"float32"});
  found.forward_variables = torch_attribute({"autograd", "forward_ad", "__dict__"});
  found.forward_level = PyUnicode_InternFromString("_current_level");
  complete = found.grad && found.inference && found.deterministic && found.any_autocast && found.default_dtype &&
             found.function_modes && found.dispatch_modes && found.functorch_level && found.script_recorder &&
             found.float32 && found.forward_variables && found.forward_level;
  return complete ? &found : nullptr;
}

std::uint64_t dtype_code(PyObject* dtype) {
  const auto known = dtype != nullptr ? dtype_from_torch(dtype) : std::nullopt;
  return known ? std::uint64_t(*known) + 1 : 0xff;
}

/// Levels of forward-mode differentiation that are open. Tensors have tangents only while there is one.
std::uint64_t forward_levels(const Getters& get) {
  PyObject* level = PyDict_GetItemWithError(get.forward_variables, get.forward_level);
  const long number = level != nullptr ? PyLong_AsLong(level) : 0xfd;
  if (PyErr_Occurred()) PyErr_Clear();
  return std::uint64_t(number + 1) & 0xff;
}

/// What the dispatch keys do not show.
std::uint64_t other_modes(const Getters& get) {
  using namespace torch_mode_bits;
  std::uint64_t word = get.deterministic.truth() ? kDeterministic : 0;
  const Ref<> dtype = get.default_dtype();
  // 0 where nothing differs from a fresh process.
  if (dtype.get() != get.float32) word |= dtype_code(dtype.get()) << kDefaultDtype;
  return word | forward_levels(get) << kForwardLevel;
}

std::uint64_t dispatch_modes(const Getters& get) {
  using namespace torch_mode_bits;
  std::uint64_t word = get.inference.truth() ? kInference : 0;
  if (get.any_autocast.truth()) {
    Ref<> dtype =
        get.autocast_dtype != nullptr ? Ref<>::steal(PyObject_CallFunction(get.autocast_dtype, "s", "cpu")) : Ref<>();
    PyErr_Clear();
    Ref<> on_cpu = get.autocast_enabled != nullptr
                       ? Ref<>::steal(PyObject_CallFunction(get.autocast_enabled, "s", "cpu"))
                       : Ref<>();
    PyErr_Clear();
    word |= kAutocast | dtype_code(dtype.get()) << kAutocastDtype | (on_cpu.get() == Py_True ? kAutocastCpu : 0);
  }
  if (const Ref<> recorder = get.script_recorder(); recorder.get() != Py_None)
    word |= kOtherDispatch;  // torch.jit.trace's
  return word | get.dispatch_modes.number() << kDispatchModes | get.functorch_level.number() << kFunctorchLevel;
}

/// C++ symbols that torch's libraries export; null where one is missing.
struct Symbols {
  bool (*grad_enabled)() = nullptr;
  std::int64_t (*function_modes)() = nullptr;
  bool (*recorded)() = nullptr;  // somebody is told of each operation: a profiler
  bool (*recording_allowed)() = nullptr;
  void (*allow_recording)(bool) = nullptr;
  /// Whether __torch_function__ is asked: 0, but within DisableTorchFunction.
  std::uint8_t (*functions_disabled)() = nullptr;
  void (*disable_functions)(std::uint8_t) = nullptr;
  void* core = nullptr;

  static const Symbols* get() {
    static Symbols found;
    static enum { Unknown, There, Missing } state = Unknown;
    if (state == Unknown && torch_module() != nullptr) state = found.find() ? There : Missing;
    return state == There ? &found : nullptr;
  }

  /// This thread's included and excluded dispatch keys, as differences from those of a thread without modes.
  std::uint64_t* keys() const {
    static thread_local std::uint64_t* keys = nullptr;
    if (keys == nullptr) keys = static_cast<std::uint64_t*>(dlsym(core, "_ZN3c104impl26raw_local_dispatch_key_setE"));
    return keys;
  }
  bool plain_keys() const { return (keys()[0] | keys()[1]) == 0; }

 private:
  template <class F>
  static bool symbol(void* library, const char* name, F& function) {
    function = reinterpret_cast<F>(dlsym(library, name));
    return function != nullptr;
  }

  bool find() {
    core = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
    void* cpu = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    return core != nullptr && cpu != nullptr && dlsym(core, "_ZN3c104impl26raw_local_dispatch_key_setE") != nullptr &&
           symbol(core, "_ZN3c108GradMode10is_enabledEv", grad_enabled) &&
           symbol(cpu, "_ZN2at12hasCallbacksEv", recorded) &&
           symbol(cpu, "_ZN2at23isRecordFunctionEnabledEv", recording_allowed) &&
           symbol(cpu, "_ZN2at20enableRecordFunctionEb", allow_recording) &&
           symbol(cpu, "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv", function_modes) &&
           symbol(cpu, "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv", functions_disabled) &&
           symbol(cpu, "_ZN2at4impl22PythonTorchFunctionTLS18set_disabled_stateENS0_26TorchFunctionDisabledStateE",
                  disable_functions);
  }
};

/// The short way: symbols in place of functions.
class Shortcut {
 public:

  /// Null if they are not there or do not say what the functions say. Only tried in a thread without modes.
  static const Symbols* get() {
    static enum { Unknown, Proven, Refused } state = Unknown;
    static bool trying = false;
    const Symbols* symbols = Symbols::get();
    if (state == Unknown && !trying) {
      const Getters* get = getters();
      if (get == nullptr || (dispatch_modes(*get) | other_modes(*get) | get->function_modes.number()) != 0)
        return nullptr;
      if (symbols != nullptr && (!symbols->plain_keys() || symbols->recorded()))
        return nullptr;  // a state that no function tells
      trying = true;  // entering modes runs Python code, which may come here again
      state = symbols != nullptr && Shortcut(*symbols).prove(*get) ? Proven : Refused;
      trying = false;
    }
    return state == Proven ? symbols : nullptr;
  }

 private:
  explicit Shortcut(const Symbols& symbols) : symbols_(symbols) {}
  const Symbols& symbols_;

  /// The same answer as the functions', for the state the thread is in.
  bool agrees(const Getters& get) const {
    return symbols_.grad_enabled() == get.grad.truth() &&
           std::uint64_t(symbols_.function_modes()) == get.function_modes.number() &&
           symbols_.plain_keys() == (dispatch_modes(get) == 0);
  }

  /// Enters the mode that `expression` makes and asks there and after.
  bool agrees_within(const Getters& get, const char* expression) const {
    const Ref<> mode = torch_evaluate(expression);
    if (!mode || !Ref<>::steal(PyObject_CallMethod(mode.get(), "__enter__", nullptr))) {
      PyErr_Clear();
      return false;
    }
    const bool inside = agrees(get);
    const bool left = bool(Ref<>::steal(PyObject_CallMethod(mode.get(), "__exit__", "OOO", Py_None, Py_None, Py_None)));
    PyErr_Clear();
    return inside && left && agrees(get);
  }

  bool prove(const Getters& get) const {
    if (!agrees(get)) return false;
    for (const char* mode : {"torch.no_grad()", "torch.enable_grad()", "torch.inference_mode()",
                             "torch.autocast('cpu', dtype=torch.bfloat16)", "torch.overrides.TorchFunctionMode()",
                             "torch.utils._python_dispatch.TorchDispatchMode()"})
      if (!agrees_within(get, mode)) return false;
    const Ref<> enter = torch_evaluate("torch._C._functorch._vmap_increment_nesting(2, 'error')");
    if (!enter) return false;
    const bool inside = agrees(get);
    return bool(torch_evaluate("torch._C._functorch._vmap_decrement_nesting()")) && inside && agrees(get);
  }
};

}  // namespace

bool torch_grad_enabled() {
  if (const Symbols* shortcut = Shortcut::get()) return shortcut->grad_enabled();
  const Getters* get = getters();
  return get != nullptr && get->grad.truth();
}

namespace {

/// Whether who is told of torch's operations is torch's profiler, which takes what compiled code says of itself.
bool is_profiled() {
  PyObject* const asked = once([] { return torch_attribute({"_C", "_autograd", "_profiler_enabled"}); });
  const Ref<> answer = asked ? Ref<>::steal(PyObject_CallNoArgs(asked)) : Ref<>();
  PyErr_Clear();
  return answer.get() == Py_True;
}

}  // namespace

std::uint64_t torch_modes() {
  const Getters* get = getters();
  if (get == nullptr) return 0;
  using namespace torch_mode_bits;
  const Symbols* shortcut = Shortcut::get();
  const Symbols* symbols = Symbols::get();
  std::uint64_t word = other_modes(*get);
  if (symbols != nullptr && symbols->recorded() && !is_profiled()) word |= kRecorded;
  if (shortcut == nullptr) {
    word |= get->function_modes.number() << kFunctionModes;
    const std::uint64_t known = dispatch_modes(*get);
    return word | (known == 0 && symbols != nullptr && !symbols->plain_keys() ? kOtherDispatch : known);
  }
  if (shortcut->function_modes() != 0) word |= get->function_modes.number() << kFunctionModes;
  if (!shortcut->plain_keys()) {
    const std::uint64_t known = dispatch_modes(*get);
    word |= known != 0 ? known : kOtherDispatch;
  }
  return word;
}

bool torch_recorded() {
  const Symbols* symbols = Symbols::get();
  return symbols != nullptr && symbols->recorded();
}

bool torch_observed() {
  const Symbols* symbols = Symbols::get();
  if (symbols == nullptr) return false;
  if (symbols->recorded()) return true;
  const std::uint64_t* keys = symbols->keys();
  if ((keys[0] | keys[1]) == 0) return false;
  // Autocast and inference mode, which are kept on for long, show in the keys as well.
  static thread_local std::uint64_t unobserved[2] = {0, 0};
  if (keys[0] == unobserved[0] && keys[1] == unobserved[1]) return false;
  const Getters* get = getters();
  if (get == nullptr) return true;
  using namespace torch_mode_bits;
  const std::uint64_t known = dispatch_modes(*get);
  if (known == 0 || known & (kOtherDispatch | field(kDispatchModes) | field(kFunctorchLevel))) return true;
  std::copy(keys, keys + 2, unobserved);
  return false;
}

namespace {

bool in_inference_mode() {
  const Getters* get = getters();
  return get != nullptr && get->inference.truth();
}

}  // namespace

PlainThread::PlainThread() : left_inference_(in_inference_mode(), false), symbols_(Symbols::get()) {
  const auto* symbols = static_cast<const Symbols*>(symbols_);
  if (symbols == nullptr) return;
  std::copy(symbols->keys(), symbols->keys() + 2, keys_);
  std::fill(symbols->keys(), symbols->keys() + 2, 0);
  recording_ = symbols->recording_allowed();
  symbols->allow_recording(false);
  functions_ = symbols->functions_disabled();
  constexpr std::uint8_t kAll = 2;  // modes and subclasses
  symbols->disable_functions(kAll);
}

PlainThread::~PlainThread() {
  const auto* symbols = static_cast<const Symbols*>(symbols_);
  if (symbols == nullptr) return;
  symbols->disable_functions(functions_);
  symbols->allow_recording(recording_);
  std::copy(keys_, keys_ + 2, symbols->keys());
}

bool torch_saved_tensors_hooks() {
  PyObject* const top = once([] { return torch_attribute({"_C", "_autograd", "_top_saved_tensors_default_hooks"}); });
  const Ref<> hooks = top != nullptr ? Ref<>::steal(PyObject_CallOneArg(top, Py_True)) : Ref<>();
  PyErr_Clear();
  return hooks.get() != Py_None;
}

InferenceMode::InferenceMode(bool wanted, bool on) {
  if (!wanted) return;
  PyObject* const maker = once([] { return torch_attribute({"_C", "_InferenceMode"}); });
  Ref<> mode = maker ? Ref<>::steal(PyObject_CallOneArg(maker, on ? Py_True : Py_False)) : Ref<>();
  if (mode && Ref<>::steal(PyObject_CallMethod(mode.get(), "__enter__", nullptr))) mode_ = std::move(mode);
  PyErr_Clear();
}

InferenceMode::~InferenceMode() {
  if (!mode_) return;
  const PendingError pending;
  Ref<>::steal(PyObject_CallMethod(mode_.get(), "__exit__", "OOO", Py_None, Py_None, Py_None));
  PyErr_Clear();
}

namespace {

void set_grad_mode(bool on) {
  PyObject* const setter = once([] { return torch_attribute({"_C", "_set_grad_enabled"}); });
  Ref<> done = setter ? Ref<>::steal(PyObject_CallOneArg(setter, on ? Py_True : Py_False)) : Ref<>();
  PyErr_Clear();
}

}  // namespace

GradMode::GradMode(bool wanted) : changed_(!wanted && torch_grad_enabled()) {
  if (changed_) set_grad_mode(false);
}

GradMode::~GradMode() {
  if (!changed_) return;
  const PendingError pending;
  set_grad_mode(true);
}

std::optional<DType> torch_autocast_dtype() {
  if (!(torch_modes() & torch_mode_bits::kAutocast)) return std::nullopt;
  const Getters* get = getters();
  Ref<> dtype = get != nullptr && get->autocast_dtype != nullptr
                    ? Ref<>::steal(PyObject_CallFunction(get->autocast_dtype, "s", "cpu"))
                    : Ref<>();
  PyErr_Clear();
  return dtype ? dtype_from_object(dtype.get()) : std::nullopt;
}

const char* torch_modes_refusal() {
  using namespace torch_mode_bits;
  const std::uint64_t word = torch_modes();
  if (word & field(kFunctionModes)) return "a __torch_function__ mode or a default device is set";
  if (word & field(kDispatchModes)) return "a __torch_dispatch__ mode is on";
  if (word & field(kFunctorchLevel)) return "the call is inside torch.func (vmap, grad, jvp, ...)";
  if (word & field(kForwardLevel)) return "forward-mode differentiation is on";
  if (word & kRecorded) return "something records torch's operations";
  if (word & kOtherDispatch) return "torch's dispatcher is in a state framejit does not know";
  return nullptr;
}

}  // namespace fj
