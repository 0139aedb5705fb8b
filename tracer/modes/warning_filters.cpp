/// `with warnings.catch_warnings():` and the filters that are set in it.
///
/// The filters are the process's own, and they are put back at the end of the `with`: nothing of them is left but the
/// note that they changed, which the exit makes as often as the program did. So while tracing they are a list of their
/// own on top of what is outside. It is known to whom a warning would go: to `warnings.warn`, which does nothing where
/// the uppermost filter for the category says "ignore" and breaks the graph elsewhere, and to NumPy's floating-point
/// conditions, which nobody asks for where their RuntimeWarning is ignored. Any other code that could warn, a library
/// call, ends the piece; as a piece may not end between (`refuse_open_modes`), that one runs in Python with the filters
/// it sets.
#include "tracer/modes/warning_filters.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/status.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/restart.h"
#include "tracer/state/effect_log.h"
#include "tracer/state/modes.h"
#include "tracer/state/warning_ledger.h"
#include "tracer/values/classes/attributes.h"

namespace fj {

static WarningLedger::Filter read_filter(TraceRun& t, const V& action, const V& category,
                                         std::initializer_list<V> patterns, const V& line, const V& append);
static void add_filter(TraceRun& t, const WarningLedger::Filter& filter);
static PyObject* warned_category(TraceRun& t, const V& message, const V& category, const V& level);
static V warn(TraceRun& t, const std::vector<V>& positional, const Keywords& keywords);

namespace {

PyObject* of_warnings(const char* name) {
  Ref<> found = imported("warnings", name);
  if (!found) PyErr_Clear();
  return found.get();  // the module keeps it alive
}

[[noreturn]] void give_up(const std::string& what) { break_graph(BreakReason::Warning, what); }

/// The arguments of a function by name; those that are not given are null.
std::vector<V> arguments_of(const char* function, std::initializer_list<const char*> names,
                            const std::vector<V>& positional, const Keywords& keywords) {
  std::vector<V> found(names.size());
  if (positional.size() > names.size()) give_up(std::string(function) + "() with too many arguments");
  std::copy(positional.begin(), positional.end(), found.begin());
  for (auto& [key, value] : keywords) {
    auto at = std::find_if(names.begin(), names.end(), [&](const char* name) { return key == name; });
    if (at == names.end()) give_up(std::string(function) + "() with the argument '" + key + "'");
    V& place = found[std::size_t(at - names.begin())];
    if (place) give_up(std::string(function) + "() with the argument '" + key + "' given twice");
    place = value;
  }
  return found;
}

bool is_category(PyObject* object) {
  return object && PyType_Check(object) &&
         PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(object), reinterpret_cast<PyTypeObject*>(PyExc_Warning));
}

bool is_action(const std::string& action) {
  constexpr const char* kActions[] = {"error", "ignore", "always", "default", "module", "once"};
  return std::any_of(std::begin(kActions), std::end(kActions), [&](const char* known) { return action == known; });
}

bool is_line(PyObject* number) {
  int overflow = 0;
  return number && PyLong_CheckExact(number) && PyLong_AsLongAndOverflow(number, &overflow) >= 0 && !overflow;
}

/// What filterwarnings takes for a message or a module.
bool is_valid_pattern(PyObject* text) {
  if (!text || !PyUnicode_CheckExact(text)) return false;
  Ref<> compile = imported("re", "compile"),
        tried = imported("framejit._support.numpy", "tried");  // warnings are errors here
  Ref<> compiled =
      compile && tried ? Ref<>::steal(PyObject_CallFunction(tried.get(), "O(O){}", compile.get(), text)) : Ref<>();
  PyErr_Clear();
  return bool(compiled);
}

/// The functions of the module that Python code defines.
bool is_code_of_warnings(PyObject* callable) {
  PyObject* known = of_warnings("simplefilter");
  return known && PyFunction_Check(known) && PyFunction_Check(callable) &&
         PyFunction_GET_GLOBALS(known) == PyFunction_GET_GLOBALS(callable);
}

}  // namespace

bool is_warning_context(PyTypeObject* type) {
  return !std::strcmp(type->tp_name, "catch_warnings") &&
         reinterpret_cast<PyObject*>(type) == of_warnings("catch_warnings");
}

/// The filter that simplefilter(action, category, lineno, append) or filterwarnings(action, message, category, module,
/// lineno, append) adds.
WarningLedger::Filter read_filter(TraceRun& t, const V& action, const V& category, std::initializer_list<V> patterns,
                                  const V& line, const V& append) {
  WarningLedger::Filter filter;
  PyObject* how = action ? t.constant_object(action) : nullptr;
  if (!how || !PyUnicode_CheckExact(how) || !is_action(text_of(how))) give_up("a filter of an unknown action");
  filter.action = text_of(how);
  PyObject* of = category ? t.constant_object(category) : PyExc_Warning;
  if (!is_category(of)) give_up("a filter of an unknown category");
  filter.category = Ref<>::borrow(of);
  for (const V& pattern : patterns) {
    if (pattern && !is_valid_pattern(t.constant_object(pattern))) give_up("a filter of an unknown pattern");
    filter.conditional = filter.conditional || (pattern && t.truth(pattern));
  }
  if (line && !is_line(t.constant_object(line))) give_up("a filter of an unknown line");
  filter.conditional = filter.conditional || (line && t.truth(line));
  if (append && t.truth(append)) give_up("a filter below the others");
  return filter;
}

/// warnings.catch_warnings(...)
V make_warning_context(TraceRun& t, PyTypeObject* type, const std::vector<V>& positional, const Keywords& keywords) {
  if (!positional.empty()) give_up("catch_warnings() with positional arguments");
  const std::vector<V> given = arguments_of(
      "catch_warnings", {"record", "module", "action", "category", "lineno", "append"}, positional, keywords);
  if (given[0] && t.truth(given[0])) give_up("warnings are recorded here");
  if (given[1] && !t.is_none(given[1])) give_up("catch_warnings() of another module");
  for (const char* name : {"__init__", "__enter__", "__exit__"})
    class_attribute(t, type, Ref<>::steal(PyUnicode_InternFromString(name)).get());
  auto context = std::make_shared<InstanceValue>();
  context->type = Ref<PyTypeObject>::borrow(type);
  if (given[2] && !t.is_none(given[2]))
    t.warnings->plans.emplace_back(context.get(), read_filter(t, given[2], given[3], {}, given[4], given[5]));
  t.warnings->values.push_back(context);
  return context;
}

void enter_warning_context(TraceRun& t, const InstanceValue& context) {
  t.collected_conditions();
  t.warnings->changed_at = t.step;
  t.warnings->contexts.push_back({&context, t.warnings->filters.size(), t.modes->now.float_conditions});
  ++t.warnings->changes;
  for (auto& [owner, filter] : t.warnings->plans)
    if (owner == &context) add_filter(t, filter);
}

void leave_warning_context(TraceRun& t, const InstanceValue& context) {
  if (t.warnings->contexts.empty() || t.warnings->contexts.back().context != &context)
    give_up("catch_warnings() left out of order");
  t.collected_conditions();
  t.warnings->changed_at = t.step;
  t.warnings->filters.resize(t.warnings->contexts.back().filters);
  t.modes->now.float_conditions = t.warnings->contexts.back().conditions;
  t.warnings->contexts.pop_back();
  ++t.warnings->changes;
  if (!t.warnings->contexts.empty()) return;
  // What warned once may warn again, as it may after any change of the filters.
  Ref<> changed = imported("framejit._api", "filters_mutated");
  if (!changed) give_up(take_error());
  t.effects->add(
      {Effect::Kind::Call, t.integer(std::int64_t(std::exchange(t.warnings->changes, 0))), {}, {}, changed, {}});
}

void refuse_warning_filters(TraceRun& t, PyObject* module, PyObject* name, bool written) {
  Ref<> warnings = Ref<>::steal(PyImport_ImportModule("warnings"));
  PyErr_Clear();
  const std::string text = text_of(name);
  if (warnings.get() == module && (written || text == "filters" || text == "__dict__"))
    give_up("`" + t.source_text() + "`");
}

void add_filter(TraceRun& t, const WarningLedger::Filter& filter) {
  t.warnings->filters.push_back(filter);
  if (filter.action != "ignore" || filter.conditional ||
      !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(PyExc_RuntimeWarning),
                        reinterpret_cast<PyTypeObject*>(filter.category.get()))) {
    // Of conditions that are ignored by now some may be reported again.
    t.modes->now.float_conditions |= t.warnings->contexts.front().conditions;
    return;
  }
  t.modes->now.float_conditions &=
      ~(numpy_trapped_conditions() & ~numpy_otherwise_reported(numpy_trapped_conditions()) &
        ~t.modes->now.otherwise_reported);
}

/// Functions of the module, inside of a `with`. Null: something else.
V call_warnings_function(TraceRun& t, PyObject* callable, const std::vector<V>& positional, const Keywords& keywords) {
  const bool function = PyFunction_Check(callable) || PyCFunction_Check(callable);
  if (!function) return nullptr;
  if (callable == of_warnings("warn")) return warn(t, positional, keywords);
  if (t.warnings->contexts.empty()) return nullptr;
  const bool simple = callable == of_warnings("simplefilter");
  if (!simple && callable != of_warnings("filterwarnings")) {
    if (callable == of_warnings("resetwarnings")) give_up("all filters are taken away");
    if (is_code_of_warnings(callable)) give_up("`" + t.source_text() + "`");
    return nullptr;
  }
  t.collected_conditions();
  t.warnings->changed_at = t.step;
  ++t.warnings->changes;
  if (simple) {
    const std::vector<V> given =
        arguments_of("simplefilter", {"action", "category", "lineno", "append"}, positional, keywords);
    add_filter(t, read_filter(t, given[0], given[1], {}, given[2], given[3]));
  } else {
    const std::vector<V> given = arguments_of(
        "filterwarnings", {"action", "message", "category", "module", "lineno", "append"}, positional, keywords);
    add_filter(t, read_filter(t, given[0], given[2], {given[1], given[3]}, given[4], given[5]));
  }
  return t.none();
}

/// The category that warnings.warn gives its message; null: it raises, or runs code that isn't known here.
PyObject* warned_category(TraceRun& t, const V& message, const V& category, const V& level) {
  PyObject* depth = level ? t.constant_object(level) : nullptr;
  if (!message || (level && !(depth && PyLong_CheckExact(depth) && PyLong_AsLong(depth) != -1)))
    return PyErr_Clear(), nullptr;
  if (t.type_of(message) != &PyUnicode_Type) {
    // A warning as the message is its own category.
    auto* instance = as<InstanceValue>(message);
    static PyObject* const str_name = PyUnicode_InternFromString("__str__");
    const bool plain = instance && is_category(reinterpret_cast<PyObject*>(instance->type.get())) &&
                       class_attribute(t, instance->type.get(), str_name) ==
                           fj_type_lookup(reinterpret_cast<PyTypeObject*>(PyExc_BaseException), str_name);
    return plain ? reinterpret_cast<PyObject*>(instance->type.get()) : nullptr;
  }
  PyObject* of = category && !t.is_none(category) ? t.constant_object(category) : PyExc_UserWarning;
  return is_category(of) ? of : nullptr;
}

V warn(TraceRun& t, const std::vector<V>& positional, const Keywords& keywords) {
  const std::vector<V> given =
      arguments_of("warn", {"message", "category", "stacklevel", "source"}, positional, keywords);
  PyObject* of = warned_category(t, given[0], given[1], given[2]);
  for (std::size_t i = t.warnings->filters.size(); of && i-- > 0;) {
    const WarningLedger::Filter& filter = t.warnings->filters[i];
    if (!PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(of), reinterpret_cast<PyTypeObject*>(filter.category.get())))
      continue;
    if (filter.conditional || filter.action != "ignore") break;
    return t.none();
  }
  give_up("`" + t.source_text() + "`");
}

}  // namespace fj
