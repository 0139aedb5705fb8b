/// What a `with` (or a pair of calls) changes for the thread: torch's grad, inference and autocast modes, and context
/// variables, of which one holds np.errstate.
///
/// A mode is entered and left while tracing and known of every node; nothing of it is left at an exit
/// (`refuse_open_modes`): a piece that would end inside of one ends before it was entered, and Python enters it.
/// Autocast is the thread's own while it is traced, so that whoever asks torch gets the right answer; `AutocastState`
/// puts it back.
#include "tracer/modes/modes.h"

#include <algorithm>

#include "arrays/arrays.h"
#include "arrays/torch_layout.h"
#include "arrays/torch_modes.h"
#include "runtime/base/error.h"
#include "tracer/gradients/torch_transforms.h"
#include "tracer/interpreter/exceptions.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/modes/warning_filters.h"
#include "tracer/restart.h"
#include "tracer/state/graph_inputs.h"
#include "tracer/state/modes.h"
#include "tracer/state/warning_ledger.h"
#include "tracer/values/outside_objects.h"

namespace fj {

static V make_errstate(TraceRun& t, const Keywords& keywords);

namespace {

PyObject* member(PyObject* owner, const char* name) {
  Ref<> found = owner ? Ref<>::steal(PyObject_GetAttrString(owner, name)) : Ref<>();
  if (!found) PyErr_Clear();
  return found.get();  // the module keeps it alive
}

PyObject* torch_member(const char* name) { return member(torch_module(), name); }
PyObject* core_member(const char* name) { return member(torch_member("_C"), name); }

PyTypeObject* grad_mode_type(const char* name) { return reinterpret_cast<PyTypeObject*>(torch_member(name)); }

bool is_grad_mode(PyTypeObject* type) {
  return torch_module() && (type == grad_mode_type("no_grad") || type == grad_mode_type("enable_grad") ||
                            type == grad_mode_type("set_grad_enabled"));
}

bool is_inference_mode(PyTypeObject* type) {
  return torch_module() && reinterpret_cast<PyObject*>(type) == core_member("_InferenceMode");
}

/// torch.autograd.profiler.record_function: it tells a profiler, and nobody else, what runs.
bool is_profiler_label(PyTypeObject* type) {
  return torch_module() &&
         reinterpret_cast<PyObject*>(type) == member(member(torch_member("autograd"), "profiler"), "record_function");
}

Ref<> name_of(const char* text) { return Ref<>::steal(PyUnicode_InternFromString(text)); }

V* attribute_of(InstanceValue& instance, const char* name) {
  for (auto& [key, value] : instance.attributes)
    if (PyUnicode_CompareWithASCIIString(key.get(), name) == 0) return &value;
  return nullptr;
}

bool is_extobj_maker(PyObject* callable) {
  static PyObject* maker = nullptr;  // held for ever
  // Only who has imported NumPy has it.
  if (!maker && numpy_module()) maker = imported("numpy._core.umath", "_make_extobj").release();
  return maker && callable == maker;
}

}  // namespace

bool is_mode(const InstanceValue& instance) {
  PyTypeObject* type = instance.type.get();
  return type == &PyContextToken_Type || type == &PyCapsule_Type || is_grad_mode(type) || is_inference_mode(type) ||
         is_profiler_label(type) || is_warning_context(type);
}

bool mode_is_known(const InstanceValue& instance) {
  PyTypeObject* type = instance.type.get();
  return is_inference_mode(type) || is_profiler_label(type) || is_warning_context(type);
}

/// What np.errstate(divide="ignore", ...) makes for its context variable. The program is run with what is trapped
/// outside, so a condition that is looked at inside must be trapped there too; how it is reported is then Python's,
/// which runs the piece again.
V make_errstate(TraceRun& t, const Keywords& keywords) {
  constexpr std::pair<const char*, std::uint32_t> kConditions[] = {
      {"divide", kFloatDivide}, {"over", kFloatOverflow}, {"under", kFloatUnderflow}, {"invalid", kFloatInvalid}};
  std::uint32_t ignored = 0, wanted = 0;
  for (auto& [name, value] : keywords) {
    if (t.is_none(value)) continue;
    PyObject* how = t.constant_object(value);
    if (!how || !PyUnicode_CheckExact(how)) break_graph(BreakReason::UnknownCall, "np.errstate(" + name + "=...)");
    for (auto& [known, bit] : kConditions) {
      if (name != known && name != "all") continue;
      // `all` is for those that are not named.
      if (name == "all" && std::any_of(keywords.begin(), keywords.end(),
                                       [&](auto& other) { return other.first == known && !t.is_none(other.second); }))
        continue;
      (text_of(how) == "ignore" ? ignored : wanted) |= bit;
    }
    if (name == "call") break_graph(BreakReason::UnknownCall, "np.errstate(call=...)");
  }
  if (!t.uses_numpy) {
    t.uses_numpy = true;
    add_guard(t, GuardKind::NumpyErrState, nullptr, nullptr, numpy_trapped_conditions());
  }
  if (wanted & ~numpy_trapped_conditions())
    break_graph(BreakReason::UnknownCall, "np.errstate() that reports what is ignored outside");
  auto settings = std::make_shared<InstanceValue>();
  settings->type = Ref<PyTypeObject>::borrow(&PyCapsule_Type);
  settings->attributes.emplace_back(name_of("ignored"), t.integer(std::int64_t(ignored)));
  settings->attributes.emplace_back(name_of("wanted"), t.integer(std::int64_t(wanted)));
  return settings;
}

V call_mode_function(TraceRun& t, PyObject* callable, const std::vector<V>& positional, const Keywords& keywords) {
  if (V done = call_warnings_function(t, callable, positional, keywords)) return done;
  if (!PyCFunction_Check(callable)) return nullptr;
  if (is_extobj_maker(callable) && positional.empty()) return make_errstate(t, keywords);
  if (!torch_module()) return nullptr;
  constexpr const char* kAutocast[] = {"set_autocast_enabled",       "set_autocast_dtype",
                                       "set_autocast_cache_enabled", "autocast_increment_nesting",
                                       "autocast_decrement_nesting", "clear_autocast_cache"};
  const std::string name = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
  for (const char* known : kAutocast)
    if (name == known && callable == torch_member(known) && keywords.empty())
      return t.modes->autocast.call(t, callable, name, positional);
  return nullptr;
}

static void enter_grad_mode(TraceRun& t, bool records) {
  if (!records) t.note_stop();
  if (!records && t.modes->now.grad) refuse_unrecorded_in_forward(t);
  t.modes->now.grad = records;
}

V make_mode(TraceRun& t, const V& callable, PyTypeObject* type, std::vector<V>& positional, Keywords& keywords) {
  if (is_warning_context(type)) return make_warning_context(t, type, positional, keywords);
  if (is_profiler_label(type)) {
    PyObject* asked = member(torch_member("autograd"), "_profiler_enabled");
    if (!asked) return nullptr;
    static PyObject* const nothing = PyTuple_New(0);
    Ref<> answer = Ref<>::steal(PyObject_CallNoArgs(asked));
    if (!answer || t.truth(t.wrap(t.keep(answer).get(),
                                  t.sources().make(SourceKind::Answer, t.sources().constant(asked), 0, nothing))))
      break_graph(BreakReason::UnsupportedObject, "a profiler records what runs");
    auto label = std::make_shared<InstanceValue>();
    label->type = Ref<PyTypeObject>::borrow(type);
    return label;
  }
  const bool inference = is_inference_mode(type);
  if (!inference && !is_grad_mode(type)) return nullptr;
  const bool sets = type == grad_mode_type("set_grad_enabled");
  if (positional.size() != (sets || inference ? 1 : 0) || !keywords.empty())
    break_graph(BreakReason::UnknownCall, describe(callable));
  t.note_torch();
  auto mode = std::make_shared<InstanceValue>();
  mode->type = Ref<PyTypeObject>::borrow(type);
  if (inference) mode->attributes.emplace_back(name_of("enabled"), t.boolean(t.truth(positional[0])));
  if (sets) {
    // Sets the mode when it is made.
    t.modes->changed_at = t.step;
    mode->attributes.emplace_back(name_of("prev"), t.boolean(t.modes->now.grad));
    enter_grad_mode(t, t.truth(positional[0]));
  }
  return mode;
}

/// no_grad and its like: entered and left while tracing. Null: another method.
V call_mode_method(TraceRun& t, const V& owner, const std::string& name) {
  auto* instance = as<InstanceValue>(owner);
  if (!instance || (name != "__enter__" && name != "__exit__")) return nullptr;
  auto& attributes = instance->attributes;
  if (is_warning_context(instance->type.get())) {
    if (name == "__enter__") enter_warning_context(t, *instance);
    else leave_warning_context(t, *instance);
    return t.none();
  }
  if (is_profiler_label(instance->type.get())) return name == "__enter__" ? owner : t.none();
  if (is_inference_mode(instance->type.get())) {
    t.modes->changed_at = t.step;
    if (name == "__enter__") {
      const bool enabled = t.truth(*attribute_of(*instance, "enabled"));
      if (!enabled && t.modes->outside.inference)
        break_graph(BreakReason::UnsupportedObject, "the inference mode that is on outside is left");
      attributes.emplace_back(name_of("grad"), t.boolean(t.modes->now.grad));
      attributes.emplace_back(name_of("inference"), t.boolean(t.modes->now.inference));
      t.modes->now.inference = enabled;
      enter_grad_mode(t, !enabled);
      return owner;
    }
    if (attributes.size() == 3) {
      t.modes->now.grad = t.truth(*attribute_of(*instance, "grad"));
      t.modes->now.inference = t.truth(*attribute_of(*instance, "inference"));
      attributes.resize(1);
      return t.none();
    }
  }
  if (is_grad_mode(instance->type.get())) {
    t.modes->changed_at = t.step;
    if (name == "__enter__" && instance->type.get() == grad_mode_type("set_grad_enabled"))
      return t.none();  // it is on already
    if (name == "__enter__") {
      attributes.emplace_back(name_of("prev"), t.boolean(t.modes->now.grad));
      enter_grad_mode(t, instance->type.get() == grad_mode_type("enable_grad"));
      return t.none();
    }
    if (!attributes.empty()) {
      t.modes->now.grad = t.truth(attributes.back().second);
      attributes.pop_back();
      return t.none();
    }
  }
  return nullptr;
}

// ---- context variables

V call_context_variable(TraceRun& t, const V& owner, const std::string& name, const std::vector<V>& positional) {
  auto* known = as<ObjectValue>(owner);
  if (!known || Py_TYPE(known->object.get()) != &PyContextVar_Type) return nullptr;
  PyObject* variable = known->object.get();
  if (owner->source && owner->source->kind != SourceKind::Constant)
    add_guard(t, GuardKind::Identity, owner->source, variable);
  auto current = std::find_if(t.modes->context_values.begin(), t.modes->context_values.end(),
                              [&](auto& entry) { return entry.first.get() == variable; });
  const bool errors = variable == errstate_variable();
  if (name == "get" && positional.size() <= 1 && !errors) {
    if (current != t.modes->context_values.end() && current->second) return current->second;
    Ref<> getter = t.keep(Ref<>::steal(PyObject_GetAttrString(variable, "get")));
    static PyObject* const nothing = PyTuple_New(0);
    Ref<> found = Ref<>::steal(PyObject_CallObject(getter.get(), nothing));
    if (!found) break_graph(BreakReason::UnsupportedObject, take_error());
    return t.wrap(t.keep(found).get(),
                  t.sources().make(SourceKind::Answer, t.sources().constant(getter.get()), 0, nothing));
  }
  auto apply = [&](const V& value) {
    t.modes->context_changed_at = t.step;
    if (current != t.modes->context_values.end())
      current->second = value;
    else
      t.modes->context_values.emplace_back(Ref<>::borrow(variable), value);
  };
  if (name == "set" && positional.size() == 1) {
    auto token = std::make_shared<InstanceValue>();
    token->type = Ref<PyTypeObject>::borrow(&PyContextToken_Type);
    token->attributes.emplace_back(name_of("var"), owner);
    if (current != t.modes->context_values.end() && current->second)
      token->attributes.emplace_back(name_of("old"), current->second);
    if (errors) {
      auto* settings = as<InstanceValue>(positional[0]);
      if (!settings || settings->type.get() != &PyCapsule_Type) break_graph(BreakReason::UnknownCall, "np.errstate()");
      t.collected_conditions();
      token->attributes.emplace_back(name_of("conditions"), t.integer(std::int64_t(t.modes->now.float_conditions)));
      token->attributes.emplace_back(name_of("otherwise"), t.integer(std::int64_t(t.modes->now.otherwise_reported)));
      t.modes->now.float_conditions &= ~std::uint32_t(*t.constant_int(*attribute_of(*settings, "ignored")));
      const auto wanted = std::uint32_t(*t.constant_int(*attribute_of(*settings, "wanted")));
      t.modes->now.float_conditions |= wanted;
      t.modes->now.otherwise_reported |= wanted;
    }
    apply(positional[0]);
    return token;
  }
  if (name == "reset" && positional.size() == 1) {
    auto* token = as<InstanceValue>(positional[0]);
    if (!token || token->type.get() != &PyContextToken_Type || !attribute_of(*token, "var") ||
        *attribute_of(*token, "var") != owner)
      break_graph(BreakReason::UnknownCall, "method reset of " + describe(owner));
    if (V* before = attribute_of(*token, "conditions")) {
      t.collected_conditions();
      t.modes->now.float_conditions = std::uint32_t(*t.constant_int(*before));
      t.modes->now.otherwise_reported = std::uint32_t(*t.constant_int(*attribute_of(*token, "otherwise")));
    }
    V* old = attribute_of(*token, "old");
    apply(old ? *old : nullptr);
    token->attributes.clear();  // a token is good once
    return t.none();
  }
  return nullptr;
}

void refuse_open_modes(TraceRun& t) {
  if (t.modes->now.grad != t.modes->outside.grad)
    throw CannotRebuildValue{t.modes->changed_at, "a grad mode that is not what it was outside"};
  if (t.modes->now.inference != t.modes->outside.inference)
    throw CannotRebuildValue{t.modes->changed_at, "an inference mode that is not what it was outside"};
  // torch refuses to save such a tensor for a backward.
  if (t.modes->inference_read_at >= 0 && !t.inputs->requiring_gradient.empty())
    throw CannotRebuildValue{t.modes->inference_read_at, "an inference tensor where gradients are computed"};
  if (t.warnings->any())
    throw CannotRebuildValue{t.warnings->changed_at, "warning filters that are not what they were outside"};
  if (t.modes->autocast.changed())
    throw CannotRebuildValue{t.modes->autocast.changed_at, "an autocast that is not what it was outside"};
  for (auto& [variable, value] : t.modes->context_values)
    if (value)
      throw CannotRebuildValue{t.modes->context_changed_at, "a context variable that is not what it was outside"};
}

bool modes_changed(TraceRun& t) {
  if (t.modes->now.grad != t.modes->outside.grad || t.modes->now.inference != t.modes->outside.inference ||
      t.modes->now.float_conditions != t.modes->outside.float_conditions)
    return true;
  return t.warnings->any() || t.modes->autocast.changed() ||
         std::any_of(t.modes->context_values.begin(), t.modes->context_values.end(),
                     [](auto& set) { return set.second != nullptr; });
}

// ---- autocast

namespace {

Ref<> ask(const char* function, const char* device = nullptr) {
  PyObject* callable = torch_member(function);
  Ref<> answer =
      callable ? Ref<>::steal(device ? PyObject_CallFunction(callable, "s", device) : PyObject_CallNoArgs(callable))
               : Ref<>();
  PyErr_Clear();
  return answer;
}

}  // namespace

AutocastState::~AutocastState() {
  if (!begun_) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  set("set_autocast_enabled", enabled_.get());
  set("set_autocast_dtype", dtype_.get());
  Ref<>::steal(PyObject_CallOneArg(torch_member("set_autocast_cache_enabled"), cache_.get()));
  for (; nesting_ > 0; --nesting_) Ref<>::steal(PyObject_CallNoArgs(torch_member("autocast_decrement_nesting")));
  PyErr_Clear();
  PyErr_Restore(type, value, traceback);
}

void AutocastState::set(const char* function, PyObject* value) {
  Ref<>::steal(PyObject_CallFunction(torch_member(function), "sO", "cpu", value));
}

bool AutocastState::changed() const {
  return begun_ && (nesting_ != 0 || ask("is_autocast_enabled", "cpu").get() != enabled_.get() ||
                    ask("get_autocast_dtype", "cpu").get() != dtype_.get() ||
                    ask("is_autocast_cache_enabled").get() != cache_.get());
}

V AutocastState::call(TraceRun& t, PyObject* function, const std::string& name, const std::vector<V>& positional) {
  t.note_torch();  // guards the modes as they are outside
  torch_layout();  // found out without modes only
  if (!begun_) {
    enabled_ = ask("is_autocast_enabled", "cpu");
    dtype_ = ask("get_autocast_dtype", "cpu");
    cache_ = ask("is_autocast_cache_enabled");
    if (!enabled_ || !dtype_ || !cache_) break_graph(BreakReason::UnknownCall, "torch." + name + "()");
    // torch's modes, which are guarded, have the first; the others are asked again at each call.
    for (const char* question : {"get_autocast_dtype", "is_autocast_cache_enabled"}) {
      const V function = wrap_constant(t, torch_member(question));
      std::vector<V> about;
      if (question[0] == 'g') about.push_back(t.string("cpu"));
      t.constant_object(t.call(function, about, {}));
    }
    begun_ = true;
  }
  // Of a cache that was in use before, nothing is dropped while tracing; outside of autocast it has nothing.
  if (name == "clear_autocast_cache") return t.none();
  if (name == "autocast_decrement_nesting" && nesting_ == 0)
    break_graph(BreakReason::UnknownCall, "torch." + name + "() of a mode entered outside");
  Ref<> arguments = Ref<>::steal(PyTuple_New(Py_ssize_t(positional.size())));
  for (std::size_t i = 0; i < positional.size(); ++i) {
    PyObject* value = t.constant_object(positional[i]);
    const bool device = i == 0 && positional.size() == 2;
    if (!value || (device && (!PyUnicode_CheckExact(value) || text_of(value) != "cpu")))
      break_graph(BreakReason::UnknownCall, "torch." + name + "() for another device than the CPU");
    PyTuple_SET_ITEM(arguments.get(), Py_ssize_t(i), Py_NewRef(value));
  }
  changed_at = t.step;
  Ref<> answer = Ref<>::steal(PyObject_CallObject(function, arguments.get()));
  if (!answer) raise_python_error(t);
  nesting_ += name == "autocast_increment_nesting" ? 1 : name == "autocast_decrement_nesting" ? -1 : 0;
  return wrap_constant(t, t.keep(answer).get());
}

void AutocastState::note(ExternCall& call) const {
  if (!changed()) return;
  call.autocast = ask("is_autocast_enabled", "cpu").get() == Py_True;
  call.autocast_dtype = ask("get_autocast_dtype", "cpu");
}

}  // namespace fj
