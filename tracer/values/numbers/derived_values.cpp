/// Results: what pure functions of C make of numbers and texts from outside that change between calls.
///
/// Such a result is a value from outside itself. Its source says which function makes it of which other sources
/// (SourceKind::Result), so all that is known of values from outside holds for it: a branch on it is guarded by its
/// answer (`L.p < 0.5 == True`), an int among them (`int(L.x.shape[0] * 0.8)`) is a symbol, a float an input of the
/// graph, a text that is handed back needs no guard, and a text or int as the key of a dict from outside finds what
/// that dict has there at each call (SourceKind::ItemOf). Nothing is made of values that have never changed: those are
/// constants of the trace.
#include "tracer/values/numbers/derived_values.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "runtime/base/error.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/state/identity.h"
#include "tracer/state/size_ledger.h"
#include "tracer/values/containers/containers.h"
#include "tracer/values/containers/dicts.h"
#include "tracer/values/numbers/operators.h"
#include "tracer/values/numbers/size_ranges.h"
#include "tracer/values/outside_objects.h"

namespace fj {

namespace {

/// A value from outside, as this call has it.
struct Known {
  Ref<> object;
  SourceRef source = nullptr;
};

}  // namespace

static Known known_outside(TraceRun& t, const V& value);
static SourceRef source_of(TraceRun& t, const SymDim& expression);
namespace {

/// Results of results: a source is fetched by recursion.
constexpr int kDeepest = 500;
/// Texts of texts, which on a path that is not taken may double each time.
constexpr int kDeepestText = 16;

/// A guard asks before it is known which way the function goes: what an int or a specification of a format that nobody
/// has seen yet makes large is not made of one that changes.
bool may_be_large(TraceRun& t, PyObject* function, const std::vector<V>& operands) {
  static constexpr std::string_view kGrowing[] = {"factorial", "comb", "perm", "pow", "lshift"};
  auto int_changes = [&](const V& value) {
    auto* object = as<ObjectValue>(value);
    return value->kind == ValueKind::SymInt || (object && PyLong_Check(object->object.get()) && changes(t, value));
  };
  if (function == reinterpret_cast<PyObject*>(&PyBytes_Type) || Py_TYPE(function) == &PyMethodDescr_Type)
    return std::any_of(operands.begin(), operands.end(), int_changes);
  if (!PyCFunction_Check(function)) return false;
  const std::string_view name = reinterpret_cast<PyCFunctionObject*>(function)->m_ml->ml_name;
  if (name == "format" || name == "round") return operands.size() > 1 && changes(t, operands[1]);
  // 0.9 ** n is a float.
  const bool all_ints = std::all_of(operands.begin(), operands.end(), [&](const V& operand) {
    auto* object = as<ObjectValue>(operand);
    return operand->kind == ValueKind::SymInt || (object && PyLong_Check(object->object.get()));
  });
  return all_ints && std::find(std::begin(kGrowing), std::end(kGrowing), name) != std::end(kGrowing);
}

/// The same at each call.
bool is_of_constants(SourceRef source) {
  return source->kind == SourceKind::Constant ||
         (source->kind == SourceKind::Result &&
          std::all_of(source->operands.begin(), source->operands.end(), is_of_constants));
}

/// What functions of texts give besides: lists, tuples and dicts of such, and matches. Nobody else has them.
bool is_fresh(PyObject* object) {
  auto all = [](PyObject** items, Py_ssize_t count) {
    return std::all_of(items, items + count, [](PyObject* item) {
      return is_plain_operand(item) || (PyTuple_CheckExact(item) && is_fresh(item));
    });
  };
  if (PyDict_CheckExact(object)) {
    Py_ssize_t position = 0;
    PyObject *key, *item;
    while (PyDict_Next(object, &position, &key, &item))
      if (!PyUnicode_CheckExact(key) || !is_plain_operand(item)) return false;
    return true;
  }
  if (PyList_CheckExact(object) || PyTuple_CheckExact(object))
    return all(PySequence_Fast_ITEMS(object), PySequence_Fast_GET_SIZE(object));
  return is_match(object);
}

bool is_number(PyObject* object) {
  return PyFloat_CheckExact(object) || PyLong_CheckExact(object) || PyBool_Check(object);
}

}  // namespace

PyObject* operator_function(const char* name) {
  static auto* const known = new std::unordered_map<std::string, Ref<>>;
  Ref<>& found = (*known)[name];
  if (!found) found = imported("operator", name);
  FJ_CHECK(found, name);
  return found.get();
}

bool changes(TraceRun& t, const V& value) {
  if (value->kind == ValueKind::SymInt) return true;
  if (auto* number = as<NumberValue>(value)) return number->known && changes(t, number->known);
  auto* held = as<ObjectValue>(value);
  if (!held || !held->source || held->guarded_value || t.request.generalise.never_dynamic) return false;
  if (is_match(held->object.get())) return !is_of_constants(held->source);
  if (is_made_anew(held->source)) return is_plain_operand(held->object.get());
  const auto& names = t.request.generalise.sources;
  return !names.empty() && held->source->kind != SourceKind::Constant && is_plain_operand(held->object.get()) &&
         std::find(names.begin(), names.end(), held->source->text()) != names.end();
}

SourceRef source_of(TraceRun& t, const SymDim& expression) {
  PyObject* const add = once([] { return operator_function("__add__"); });
  PyObject* const multiply = once([] { return operator_function("mul"); });
  PyObject* const quotient = once([] { return operator_function("floordiv"); });
  PyObject* const remainder = once([] { return operator_function("mod"); });
  auto number = [&](std::int64_t value) {
    return t.sources().constant(t.keep(Ref<>::steal(PyLong_FromLongLong(value))).get());
  };
  auto of_symbol = [&](SymbolId id) -> SourceRef {
    if (auto known = t.sizes->sources.find(id); known != t.sizes->sources.end()) return known->second;
    const auto& definition = t.graph().symbols[id.index].definition;
    if (!definition) return nullptr;
    SourceRef dividend = source_of(t, definition->dividend), divisor = source_of(t, definition->divisor);
    if (!dividend || !divisor) return nullptr;
    return t.sources().make(SourceKind::Result, nullptr, 0, definition->remainder ? remainder : quotient,
                            {dividend, divisor});
  };
  SourceRef sum = nullptr;
  for (const auto& term : expression.terms()) {
    SourceRef product = term.coefficient == 1 && !term.symbols.empty() ? nullptr : number(term.coefficient);
    for (SymbolId id : term.symbols) {
      SourceRef factor = of_symbol(id);
      if (!factor) return nullptr;
      product = product ? t.sources().make(SourceKind::Result, nullptr, 0, multiply, {factor, product}) : factor;
    }
    sum = sum ? t.sources().make(SourceKind::Result, nullptr, 0, add, {sum, product}) : product;
  }
  return sum ? sum : number(0);
}

/// The plain value and where it is from; no source: it is none, or computed by the program.
Known known_outside(TraceRun& t, const V& value) {
  if (auto* symbolic = as<SymIntValue>(value)) {
    if (t.graph().is_late(symbolic->expression)) return {};
    return {Ref<>::steal(PyLong_FromLongLong(hint(t, symbolic->expression))), source_of(t, symbolic->expression)};
  }
  if (auto* number = as<NumberValue>(value)) return number->known ? known_outside(t, number->known) : Known{};
  auto* held = as<ObjectValue>(value);
  if (value->kind == ValueKind::Tuple || value->kind == ValueKind::Slice) {
    PyObject* whole = t.constant_object(value);
    return whole && is_operand(whole) ? Known{Ref<>::borrow(whole), t.sources().constant(whole)} : Known{};
  }
  if (!held || !is_operand(held->object.get())) return {};
  if (held->source && is_match(held->object.get())) return {held->object, held->source};
  return {held->object, changes(t, value) ? held->source : t.sources().constant(held->object.get())};
}

V result_of(TraceRun& t, PyObject* function, const std::vector<V>& operands, bool looked_at) {
  if (t.request.generalise.never_dynamic ||
      std::none_of(operands.begin(), operands.end(), [&](const V& operand) { return changes(t, operand); }))
    return nullptr;
  return made_by(t, function, operands, looked_at);
}

V made_by(TraceRun& t, PyObject* function, const std::vector<V>& operands, bool looked_at) {
  if (may_be_large(t, function, operands)) return nullptr;
  std::vector<SourceRef> from;
  std::vector<Ref<>> held;
  std::vector<PyObject*> objects;
  for (const V& operand : operands) {
    Known known = known_outside(t, operand);
    if (!known.source || known.source->depth >= kDeepest) return nullptr;
    from.push_back(known.source);
    objects.push_back(known.object.get());
    held.push_back(std::move(known.object));
  }
  Ref<> made = Ref<>::steal(PyObject_Vectorcall(function, objects.data(), objects.size(), nullptr));
  if (!made) return PyErr_Clear(), nullptr;
  const bool plain = is_plain_operand(made.get());
  if (!plain && !is_fresh(made.get())) return nullptr;
  for (const V& operand : operands) {
    auto* object = as<ObjectValue>(operand);
    if (object && changes(t, operand)) guard_type(t, *object);
    if (object && !changes(t, operand) && !guard_value(t, *object) && object->source && !is_match(object->object.get()))
      add_guard(t, GuardKind::Identity, object->source, object->object.get());
  }
  const bool constant = std::all_of(from.begin(), from.end(), is_of_constants);
  if (constant && plain) return wrap_constant(t, t.keep(made).get());
  // An object that can be told from others is another one each time it is made.
  SourceRef source = t.sources().make(SourceKind::Result, nullptr,
                                      plain ? 0 : std::int64_t(t.identity->derived.size()) + 1, function, from);
  if (PyUnicode_Check(made.get()) && source->depth > kDeepestText) return nullptr;
  auto [known, fresh] = t.identity->derived.emplace(source, nullptr);
  if (fresh) known->second = t.wrap(t.keep(made).get(), source);
  // It is there, and of this type: fetched before the program runs, so that handing it back can't fail.
  if (auto* object = as<ObjectValue>(known->second); object && looked_at) guard_type(t, *object);
  if (!plain && !constant) add_guard(t, GuardKind::TypeIs, source, reinterpret_cast<PyObject*>(Py_TYPE(made.get())));
  return known->second;
}

/// `name`: of a function of the module operator.
V result_of_operator(TraceRun& t, const char* name, const std::vector<V>& operands) {
  if (std::none_of(operands.begin(), operands.end(), [&](const V& operand) { return changes(t, operand); }))
    return nullptr;
  bool text = false;
  for (const V& operand : operands) {
    if (operand->kind == ValueKind::SymInt) continue;
    if (auto* number = as<NumberValue>(operand)) {
      if (!number->known) return nullptr;
      continue;
    }
    auto* held = as<ObjectValue>(operand);
    if (!held || !is_plain_operand(held->object.get())) return nullptr;
    text = text || !is_number(held->object.get());
  }
  if (text && std::strcmp(name, "__add__"))
    return nullptr;  // a repeated text may be huge, others are compared by their own rules
  return result_of(t, operator_function(name), operands);
}

V result_of_comparison(TraceRun& t, int comparison, const V& a, const V& b) {
  constexpr const char* kNames[] = {"__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"};
  return result_of_operator(t, kNames[comparison], {a, b});  // texts are guarded by value, or as another one
}

V item_of(TraceRun& t, const V& container, const V& key) {
  if (container->kind != ValueKind::Dict) {
    // Of a list or tuple a number or text: other items are known by their places.
    auto* list = as<ListValue>(container);
    auto* tuple = as<TupleValue>(container);
    auto* index = as<SymIntValue>(key);
    if (!index || !container->source ||
        (list && (list->type || t.written_since(container.get(), Tracer::Mark{0, 0}))) ||
        (tuple && (tuple->type || tuple->view_of)))
      return nullptr;
    const std::vector<V> items = t.sequence_items(container);
    const std::int64_t size = std::int64_t(items.size());
    Known known = known_outside(t, key);
    if (!known.source) return nullptr;
    const bool backwards = hint(t, index->expression) < 0;
    const std::int64_t place = hint(t, index->expression) + (backwards ? size : 0);
    auto* item = place >= 0 && place < size ? as<ObjectValue>(items[std::size_t(place)]) : nullptr;
    if (!item || !is_plain_operand(item->object.get())) return nullptr;
    // Out of range it raises, whether or not somebody reads the item.
    t.decide(index->expression, Py_GE, SymDim(backwards ? -size : 0));
    t.decide(index->expression, Py_LT, SymDim(backwards ? 0 : size));
    return t.wrap(item->object.get(),
                  t.sources().make(SourceKind::ItemOf, container->source, 0, nullptr, {known.source}));
  }
  auto& dict = *as<DictValue>(container);
  auto* held = as<ObjectValue>(key);
  if (dict.opened || !dict.real || !dict.source || dict.attributes_of || !changes(t, key)) return nullptr;
  if (dict.source->kind == SourceKind::FunctionGlobals || dict.source->kind == SourceKind::InstanceDict)
    return nullptr;  // written by name too
  if (t.written_since(container.get(), Tracer::Mark{0, 0})) return nullptr;  // perhaps under this key
  if (held && !PyUnicode_CheckExact(held->object.get())) return nullptr;
  Known known = known_outside(t, key);
  if (!known.source || !has_plain_keys(t, dict)) return nullptr;
  PyObject* found = PyDict_GetItemWithError(dict.real.get(), known.object.get());
  if (!found) return PyErr_Clear(), nullptr;
  if (held) guard_type(t, *held);
  // A key that isn't there raises, whether or not somebody reads the item.
  const SourceRef item = t.sources().make(SourceKind::ItemOf, dict.source, 0, nullptr, {known.source});
  add_guard(t, GuardKind::TypeIs, item, reinterpret_cast<PyObject*>(Py_TYPE(found)));
  return t.wrap(found, item);
}

}  // namespace fj
