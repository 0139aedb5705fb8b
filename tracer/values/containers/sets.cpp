/// Sets and frozensets: CPython's own functions on the real set that a SetValue keeps, so that the order comes out as
/// eager's.
#include "tracer/values/containers/sets.h"

#include <opcode.h>

#include <array>

#include "runtime/base/error.h"
#include "tracer/interpreter/exceptions.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/state/effect_log.h"
#include "tracer/values/containers/containers.h"
#include "tracer/values/containers/iterators.h"
#include "tracer/values/outside_objects.h"
#include "tracer/values/proxies.h"

namespace fj {

SetValue::SetValue(bool frozen)
    : Value(ValueKind::Set),
      real(Ref<>::steal(frozen ? PyFrozenSet_New(nullptr) : PySet_New(nullptr))),
      frozen(frozen) {}

Ref<> elements_of(PyObject* set) {
  Ref<> iterator = Ref<>::steal(PySet_Type.tp_iter(set));  // a frozenset's is the same
  return iterator ? Ref<>::steal(PySequence_List(iterator.get())) : Ref<>();
}

namespace {

/// Before keys of `other`, or `other` itself, are looked for in a set.
void refuse_unknown_elements(PyObject* set, PyObject* other, bool is_key) {
  if (!any_identity_number()) return;
  Ref<> elements = elements_of(set);
  Ref<> keys = is_key ? Ref<>() : Ref<>::steal(PySequence_List(other));
  for (Py_ssize_t i = 0; elements && i < PyList_GET_SIZE(elements.get()); ++i) {
    PyObject* element = PyList_GET_ITEM(elements.get(), i);
    if (is_key) refuse_unknown_numbers(other, element);
    for (Py_ssize_t j = 0; keys && j < PyList_GET_SIZE(keys.get()); ++j)
      if (holds_proxy(element) || holds_proxy(PyList_GET_ITEM(keys.get(), j)))
        refuse_unknown_numbers(PyList_GET_ITEM(keys.get(), j), element);
  }
}

/// Only looks at the elements of exact builtin types and proxies, so nothing of the user's runs but through a proxy.
Ref<> checked(TraceRun& tracer, Ref<> result) {
  check_proxies();
  if (!result) raise_python_error(tracer);
  return result;
}

bool holds_addresses(PyObject* set) {
  Ref<> items = elements_of(set);
  for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items.get()); ++i)
    if (hashes_by_address(PyList_GET_ITEM(items.get(), i))) return true;
  return false;
}

V new_set(Ref<> real, bool ordered) {
  auto set = std::make_shared<SetValue>(PyFrozenSet_Check(real.get()));
  set->ordered = ordered && !holds_addresses(real.get());
  set->real = std::move(real);
  return set;
}

/// What a method of a set is given instead of a set: with its keys made real, in the same order.
Ref<> real_operand(TraceRun& tracer, const V& value, bool& ordered) {
  V part = value->kind == ValueKind::Set ? value : builtin_part(tracer, value);
  if (auto* set = as<SetValue>(part)) {
    ordered = ordered && set->ordered;
    return set->real;
  }
  std::vector<V> items = tracer.sequence_items(value);
  Ref<> list = Ref<>::steal(PyList_New(Py_ssize_t(items.size())));
  for (std::size_t i = 0; i < items.size(); ++i) {
    Ref<> key = constant_key(tracer, items[i]);
    PyList_SET_ITEM(list.get(), Py_ssize_t(i), Py_NewRef(key.get()));
  }
  if (value->kind != ValueKind::Dict || as<DictValue>(value)->type) return list;
  // A dict is taken over with its hashes, which sizes the table differently.
  Ref<> dict = Ref<>::steal(PyDict_New());
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i)
    PyDict_SetItem(dict.get(), PyList_GET_ITEM(list.get(), i), Py_None);
  check_proxies();
  return dict;
}

/// A set, frozenset, or view of keys or items as a set; null: something else.
std::shared_ptr<SetValue> as_set_operand(TraceRun& tracer, const V& value) {
  V part = value->kind == ValueKind::Set ? value : builtin_part(tracer, value);
  if (part && part->kind == ValueKind::Set) return std::static_pointer_cast<SetValue>(part);
  auto* view = as<TupleValue>(value);
  if (!view || !view->view_of) return nullptr;
  auto* type = reinterpret_cast<PyTypeObject*>(view->type.get());
  if (!type->tp_as_number || !type->tp_as_number->nb_and) return nullptr;  // values()
  bool ordered = true;
  Ref<> real = real_operand(tracer, value, ordered);
  return std::static_pointer_cast<SetValue>(new_set(Ref<>::steal(PySet_New(real.get())), true));
}

/// Sets take what a derived set holds; a view of a dict asks it for its length, its items and what it contains.
void refuse_derived(const V& a, const V& b) {
  for (const V& value : {a, b})
    if (value->kind == ValueKind::Object || value->kind == ValueKind::Instance)
      break_graph(BreakReason::UnsupportedObject, "a view of a dict with " + describe(value));
}

}  // namespace

std::vector<V> set_items(TraceRun& t, const SetValue& set) {
  std::vector<V> items;
  Ref<> list = Ref<>::steal(PySequence_List(set.real.get()));
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list.get()); ++i)
    items.push_back(wrap_constant(t, t.keep(Ref<>::borrow(PyList_GET_ITEM(list.get(), i))).get()));
  return items;
}

namespace {

/// An argument of a method of a set as it is now, for the log: what is in it, in its order. A set from outside is
/// itself, since it will be at the exit what it is here.
V logged_operand(TraceRun& tracer, const V& argument, const Ref<>& real) {
  V part = argument->kind == ValueKind::Set ? argument : builtin_part(tracer, argument);
  if (part && part->kind == ValueKind::Set && part->source) return argument;
  if (PyAnySet_Check(real.get())) {
    auto copy = std::make_shared<SetValue>();
    copy->real = Ref<>::steal(PySet_New(real.get()));
    return copy;
  }
  std::vector<V> keys;
  Ref<> list = Ref<>::steal(PySequence_List(real.get()));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i)
    keys.push_back(wrap_constant(tracer, tracer.keep(Ref<>::borrow(PyList_GET_ITEM(list.get(), i))).get()));
  if (!PyDict_Check(real.get())) return tracer.tuple(std::move(keys));
  auto dict = std::make_shared<DictValue>();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i)
    dict->items.emplace_back(Ref<>::borrow(PyList_GET_ITEM(list.get(), i)), tracer.none());
  return dict;
}

/// A set or exact dict, which has its hashes, is taken over whole, anything else item by item: an iterator that raises
/// leaves what it gave.
void update(TraceRun& tracer, const V& owner, const V& from) {
  auto& set = *as<SetValue>(owner);
  V part = from->kind == ValueKind::Set ? from : builtin_part(tracer, from);
  const bool exact_dict = from->kind == ValueKind::Dict && !as<DictValue>(from)->type;
  if (exact_dict || (part && part->kind == ValueKind::Set)) {
    bool ordered = true;
    Ref<> real = real_operand(tracer, from, ordered);
    std::vector<V> logged;
    if (owner->source) logged.push_back(logged_operand(tracer, from, real));
    refuse_unknown_elements(set.real.get(), real.get(), false);
    Ref<> method = Ref<>::steal(PyObject_GetAttrString(set.real.get(), "update"));
    checked(tracer, Ref<>::steal(PyObject_CallOneArg(method.get(), real.get())));
    set.ordered = set.ordered && ordered;
    note_call(tracer, owner, "update", {}, std::move(logged));
  } else {
    for_each(tracer, from, [&](const V& item) {
      Ref<> key = constant_key(tracer, item);
      add_to_set(tracer, set, key);
      note_call(tracer, owner, "add", key, {});
    });
  }
  // How many free places a set from outside has is not known, so neither is the order after this.
  if (owner->source) set.ordered = false;
}

}  // namespace

bool set_contains(TraceRun& tracer, const SetValue& set, const Ref<>& key) {
  refuse_unknown_elements(set.real.get(), key.get(), true);
  const int answer = PySet_Contains(set.real.get(), key.get());
  check_proxies();
  if (answer < 0) raise_python_error(tracer);
  return answer;
}

void add_to_set(TraceRun& t, SetValue& set, Ref<> item) {
  if (hashes_by_address(item.get())) set.ordered = false;
  refuse_unknown_elements(set.real.get(), item.get(), true);
  const int done = PySet_Add(set.real.get(), item.get());
  check_proxies();
  if (done < 0) raise_python_error(t);
}

V set_operator(TraceRun& tracer, int op, const V& a, const V& b) {
  const bool is_view = a->kind == ValueKind::Tuple || b->kind == ValueKind::Tuple;
  if (is_view) refuse_derived(a, b);
  auto left = as_set_operand(tracer, a);
  auto right = as_set_operand(tracer, b);
  if (!left || (!right && a->kind != ValueKind::Tuple)) return nullptr;
  bool ordered = left->ordered;
  Ref<> other = right ? right->real : real_operand(tracer, b, ordered);
  if (!right) other = Ref<>::steal(PySet_New(other.get()));
  refuse_unknown_elements(left->real.get(), other.get(), false);
  ordered = ordered && (!right || right->ordered);
  using Function = PyObject* (*)(PyObject*, PyObject*);
  Function function = op == NB_OR         ? PyNumber_Or
                      : op == NB_AND      ? PyNumber_And
                      : op == NB_SUBTRACT ? PyNumber_Subtract
                      : op == NB_XOR      ? PyNumber_Xor
                                          : nullptr;
  if (!function) return nullptr;
  // With a view the result is built in another way, in another order.
  Ref<> first = is_view && left->frozen ? Ref<>::steal(PySet_New(left->real.get())) : left->real;
  return new_set(checked(tracer, Ref<>::steal(function(first.get(), other.get()))), ordered && !is_view);
}

V set_comparison(TraceRun& tracer, int comparison, const V& a, const V& b) {
  auto left = as_set_operand(tracer, a), right = as_set_operand(tracer, b);
  if (!left || !right) return nullptr;
  if (a->kind == ValueKind::Tuple || b->kind == ValueKind::Tuple) refuse_derived(a, b);
  refuse_unknown_elements(left->real.get(), right->real.get(), false);
  Ref<> answer = checked(tracer, Ref<>::steal(PyObject_RichCompare(left->real.get(), right->real.get(), comparison)));
  return tracer.boolean(answer.get() == Py_True);
}

V set_method(TraceRun& tracer, const V& owner, const std::string& name, std::vector<V>& arguments) {
  auto& set = *as<SetValue>(owner);
  if (name == "__init__" && !set.frozen) {
    std::vector<V> nothing;
    if (PySet_GET_SIZE(set.real.get())) set_method(tracer, owner, "clear", nothing);
    if (arguments.empty()) return tracer.none();
    return arguments.size() == 1 ? set_method(tracer, owner, "update", arguments) : nullptr;
  }
  struct Row {
    const char* name;
    bool changes;   // the set itself
    bool key;       // takes one element; else any number of iterables
  };
  static constexpr Row rows[] = {
      {"add", true, true},          {"discard", true, true},       {"remove", true, true},
      {"update", true, false},      {"intersection_update", true, false}, {"difference_update", true, false},
      {"symmetric_difference_update", true, false}, {"clear", true, false}, {"union", false, false},
      {"intersection", false, false}, {"difference", false, false}, {"symmetric_difference", false, false},
      {"issubset", false, false},   {"issuperset", false, false},  {"isdisjoint", false, false},
      {"copy", false, false},       {"pop", true, false},
  };
  for (const Row& row : rows) {
    if (name != row.name || (row.changes && set.frozen)) continue;
    if (name == "pop" && !set.ordered && PySet_GET_SIZE(set.real.get()) > 1)
      break_graph(BreakReason::UnsupportedObject, "the order of a set");
    bool ordered = set.ordered;
    if (name == "update") {
      for (const V& from : arguments) update(tracer, owner, from);
      return tracer.none();
    }
    Ref<> real = Ref<>::steal(PyTuple_New(Py_ssize_t(arguments.size())));
    std::vector<V> operands;
    if (row.key && arguments.empty()) return nullptr;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      Ref<> argument;
      if (row.key) {
        if (i > 0) return nullptr;
        argument = constant_key(tracer, arguments[i]);
        refuse_unknown_elements(set.real.get(), argument.get(), true);
        ordered = ordered && (name != "add" || !hashes_by_address(argument.get()));
      } else {
        argument = real_operand(tracer, arguments[i], ordered);
        refuse_unknown_elements(set.real.get(), argument.get(), false);
        if (row.changes && owner->source) operands.push_back(logged_operand(tracer, arguments[i], argument));
      }
      PyTuple_SET_ITEM(real.get(), Py_ssize_t(i), Py_NewRef(argument.get()));
    }
    if (name == "copy" && set.frozen) return owner;
    Ref<> method = Ref<>::steal(PyObject_GetAttrString(set.real.get(), row.name));
    Ref<> result = checked(tracer, Ref<>::steal(PyObject_CallObject(method.get(), real.get())));
    if (row.changes) {
      // How many free places a set from outside has is not known, so neither is the order after this.
      set.ordered = set.ordered && ordered && !owner->source;
      if (row.key)
        note_call(tracer, owner, row.name, Ref<>::borrow(PyTuple_GET_ITEM(real.get(), 0)), {});
      else
        note_call(tracer, owner, row.name, {}, std::move(operands));
      return result.get() == Py_None ? tracer.none() : wrap_constant(tracer, tracer.keep(result).get());
    }
    if (PyAnySet_Check(result.get())) return new_set(result, ordered);
    return wrap_constant(tracer, result.get());
  }
  return nullptr;
}

}  // namespace fj
