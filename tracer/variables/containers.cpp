/// Tuples, lists, dicts, sets: items, methods and tracked mutation.
///
/// A container from outside that is mutated in the trace keeps its Value; its final contents are written into the real
/// object at the exit (side_effects). Keys of dicts and sets are constants.
#include <opcode.h>

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "tracer/interpreter.h"

namespace fj {

namespace {

bool same_key(PyObject* a, PyObject* b) {
  if (a == b) return true;
  const int same = PyObject_RichCompareBool(a, b, Py_EQ);
  if (same < 0) PyErr_Clear();
  return same == 1;
}

/// The bounds of a constant slice over `length` items.
struct Bounds {
  Py_ssize_t start, stop, step, count;
};
Bounds slice_of(TracerImpl& tracer, const V& key, std::size_t length) {
  auto& slice = *as<SliceValue>(key);
  auto bound = [&](const V& value) -> PyObject* {
    if (value->kind == ValueKind::SymInt) return tracer.constant_object(tracer.tracer.integer(*tracer.tracer.constant_int(value)));
    PyObject* object = tracer.constant_object(value);
    if (!object || !(object == Py_None || PyLong_Check(object))) break_graph(BreakReason::UnsupportedObject, "a slice of " + describe(value));
    return object;
  };
  Ref<> real = Ref<>::steal(PySlice_New(bound(slice.start), bound(slice.stop), bound(slice.step)));
  Bounds result{};
  if (PySlice_Unpack(real.get(), &result.start, &result.stop, &result.step) < 0) break_graph(BreakReason::ErrorWhileTracing, take_error());
  result.count = PySlice_AdjustIndices(Py_ssize_t(length), &result.start, &result.stop, result.step);
  return result;
}

std::size_t index_of(TracerImpl& tracer, const V& key, std::size_t length, const char* message = "list index out of range") {
  auto index = tracer.tracer.constant_int(key);
  if (!index) break_graph(BreakReason::UnsupportedObject, "an index that is " + describe(key));
  const std::int64_t position = *index < 0 ? *index + std::int64_t(length) : *index;
  if (position < 0 || position >= std::int64_t(length))
    tracer.raise(PyExc_IndexError, {tracer.tracer.string(message)}, BreakReason::ErrorWhileTracing, "index out of range");
  return std::size_t(position);
}

[[noreturn]] void no_key(TracerImpl& tracer, const V& key) {
  tracer.raise(PyExc_KeyError, {key}, BreakReason::ErrorWhileTracing, "a key that is not there");
}

std::shared_ptr<SetValue> new_set(bool frozen) {
  auto set = std::make_shared<SetValue>();
  set->frozen = frozen;
  return set;
}

bool in_set(const SetValue& set, PyObject* item) {
  return std::any_of(set.items.begin(), set.items.end(), [&](const Ref<>& known) { return same_key(known.get(), item); });
}

/// Elements of a set or of what its methods take instead.
std::shared_ptr<SetValue> as_set(TracerImpl& tracer, const V& value) {
  if (value->kind == ValueKind::Set) return std::static_pointer_cast<SetValue>(value);
  auto set = new_set(false);
  for (const V& item : tracer.sequence_items(value)) tracer.add_to_set(*set, tracer.constant_key(item));
  return set;
}

}  // namespace

Ref<> TracerImpl::constant_key(const V& value) {
  V settled = value->kind == ValueKind::SymInt ? tracer.integer(*tracer.constant_int(value)) : value;
  PyObject* object = constant_object(settled);
  if (!object) {
    // An object that hashes by identity is its own key.
    auto* real = as<ObjectValue>(settled);
    if (real && type_of(settled)->tp_hash == PyBaseObject_Type.tp_hash &&
        type_of(settled)->tp_richcompare == PyBaseObject_Type.tp_richcompare) {
      if (real->source) add_guard(GuardKind::Identity, real->source, real->object.get());
      return real->object;
    }
    break_graph(BreakReason::UnsupportedObject, "a key that is " + describe(value));
  }
  return Ref<>::borrow(object);
}

void TracerImpl::note_mutation(const V& container) {
  bool* flag = nullptr;
  if (auto* list = as<ListValue>(container)) flag = &list->mutated;
  if (auto* dict = as<DictValue>(container)) flag = &dict->mutated;
  if (auto* set = as<SetValue>(container)) flag = &set->mutated;
  FJ_CHECK(flag, "mutation of something that can't be mutated");
  if (*flag) return;
  *flag = true;
  if (container->source) mutated.push_back(container);
}

// ---- dicts

void TracerImpl::open(DictValue& dict) {
  if (dict.opened) return;
  dict.opened = true;
  std::vector<std::pair<Ref<>, V>> fetched = std::move(dict.items);
  dict.items.clear();
  Ref<> keys = Ref<>::steal(PyDict_Keys(dict.real.get()));
  add_guard(GuardKind::DictKeys, dict.source, keys.get());
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys.get()); ++i) {
    PyObject* key = PyList_GET_ITEM(keys.get(), i);
    auto known = std::find_if(fetched.begin(), fetched.end(), [&](auto& item) { return same_key(item.first.get(), key); });
    V value = known != fetched.end() ? known->second
                                     : wrap(PyDict_GetItem(dict.real.get(), key), sources->make(SourceKind::DictItem, dict.source, 0, key));
    dict.items.emplace_back(Ref<>::borrow(key), value);
  }
}

V TracerImpl::dict_find(DictValue& dict, PyObject* key) {
  for (auto& [known, value] : dict.items)
    if (same_key(known.get(), key)) return value;
  if (dict.opened) return nullptr;
  PyObject* found = PyDict_GetItemWithError(dict.real.get(), key);
  if (!found) {
    PyErr_Clear();
    add_guard(GuardKind::LacksKey, dict.source, key);
    return nullptr;
  }
  add_guard(GuardKind::HasKey, dict.source, key);  // the value may never be looked at
  V value = wrap(found, sources->make(SourceKind::DictItem, dict.source, 0, key));
  dict.items.emplace_back(Ref<>::borrow(key), value);
  return value;
}

void TracerImpl::dict_store(const V& target, Ref<> key, const V& value) {
  auto& dict = *as<DictValue>(target);
  if (dict.type) break_graph(BreakReason::UnsupportedObject, "assigns an item of " + describe(target));
  open(dict);
  note_mutation(target);
  for (auto& [known, old] : dict.items)
    if (same_key(known.get(), key.get())) {
      old = value;
      return;
    }
  dict.items.emplace_back(std::move(key), value);
}

void TracerImpl::add_to_set(SetValue& set, Ref<> item) {
  for (const Ref<>& known : set.items)
    if (same_key(known.get(), item.get())) return;
  set.items.push_back(std::move(item));
}

// ---- items

std::vector<V> TracerImpl::sequence_items(const V& value) {
  switch (value->kind) {
    case ValueKind::Tuple: return as<TupleValue>(value)->items;
    case ValueKind::List: return as<ListValue>(value)->items;
    case ValueKind::Array: return array_iterate(tracer, value);
    case ValueKind::Dict: {
      std::vector<V> keys;
      open(*as<DictValue>(value));
      for (auto& [key, item] : as<DictValue>(value)->items) keys.push_back(wrap_constant(key.get()));
      return keys;
    }
    default: {
      V iterator = make_iterator(value);
      std::vector<V> items;
      while (V item = next(iterator)) {
        items.push_back(item);
        check_limits();
      }
      return items;
    }
  }
}

V TracerImpl::length(const V& value) {
  switch (value->kind) {
    case ValueKind::Tuple: return tracer.integer(std::int64_t(as<TupleValue>(value)->items.size()));
    case ValueKind::List: return tracer.integer(std::int64_t(as<ListValue>(value)->items.size()));
    case ValueKind::Set: return tracer.integer(std::int64_t(as<SetValue>(value)->items.size()));
    case ValueKind::Dict:
      open(*as<DictValue>(value));
      return tracer.integer(std::int64_t(as<DictValue>(value)->items.size()));
    case ValueKind::Array: return array_length(tracer, value);
    case ValueKind::Range: {
      auto& range = *as<RangeValue>(value);
      const SymDim distance = range.step > 0 ? range.stop - range.start : range.start - range.stop;
      if (!decide(distance, Py_GT, 0)) return tracer.integer(std::int64_t(0));
      if (range.step == 1 || range.step == -1) return integer(distance);
      const std::int64_t count = *tracer.constant_int(integer(distance)), step = range.step < 0 ? -range.step : range.step;
      return tracer.integer((count + step - 1) / step);
    }
    default: break;
  }
  static PyObject* const len_name = PyUnicode_InternFromString("__len__");
  if (value->kind == ValueKind::Object || value->kind == ValueKind::Instance) {
    PyTypeObject* type = type_of(value);
    PyObject* method = class_attribute(type, len_name);
    if (method && PyFunction_Check(method)) {
      return call(wrap_constant(method), {value}, {});
    }
    if (V length = string_length(value)) return length;
    PyObject* object = constant_object(value);
    if (object && is_plain(object)) {
      const Py_ssize_t size = PyObject_Size(object);
      if (size >= 0) return tracer.integer(std::int64_t(size));
      break_graph(BreakReason::ErrorWhileTracing, take_error());
    }
  }
  break_graph(BreakReason::UnsupportedObject, "len() of " + describe(value));
}

V TracerImpl::get_item(const V& container, const V& key) {
  switch (container->kind) {
    case ValueKind::Array: return array_get_item(tracer, container, key);
    case ValueKind::Tuple: case ValueKind::List: {
      std::vector<V> items = sequence_items(container);
      if (key->kind != ValueKind::Slice)
        return items[index_of(*this, key, items.size(), container->kind == ValueKind::List ? "list index out of range" : "tuple index out of range")];
      const Bounds bounds = slice_of(*this, key, items.size());
      std::vector<V> part;
      for (Py_ssize_t i = 0; i < bounds.count; ++i) part.push_back(items[bounds.start + i * bounds.step]);
      if (container->kind == ValueKind::List) return tracer.list(part);
      auto tuple = std::make_shared<TupleValue>();
      tuple->items = std::move(part);
      auto& whole = *as<TupleValue>(container);
      // torch.Size stays one; a slice of a named tuple is a tuple.
      if (whole.type && !std::strcmp(reinterpret_cast<PyTypeObject*>(whole.type.get())->tp_name, "torch.Size")) tuple->type = whole.type;
      return tuple;
    }
    case ValueKind::Dict: {
      V found = dict_find(*as<DictValue>(container), constant_key(key).get());
      if (!found) no_key(*this, key);
      return found;
    }
    case ValueKind::Range: {
      auto& range = *as<RangeValue>(container);
      auto index = int_expression(key);
      if (!index) break;
      auto size = int_expression(length(container));
      SymDim position = decide(*index, Py_LT, 0) ? *index + *size : *index;
      if (decide(position, Py_LT, 0) || !decide(position, Py_LT, *size)) break_graph(BreakReason::ErrorWhileTracing, "index out of range");
      return integer(range.start + position * SymDim(range.step));
    }
    case ValueKind::Object: case ValueKind::Instance: {
      PyTypeObject* type = type_of(container);
      static PyObject* const name = PyUnicode_InternFromString("__getitem__");
      PyObject* method = class_attribute(type, name);
      if (method && PyFunction_Check(method)) {
        return call(wrap_constant(method), {container, key}, {});
      }
      PyObject* left = constant_object(container);
      PyObject* right = constant_object(key);
      if (left && right && is_plain(left)) {
        Ref<> result = Ref<>::steal(PyObject_GetItem(left, right));
        if (!result) break_graph(BreakReason::ErrorWhileTracing, take_error());
        return wrap_constant(keep(result).get());
      }
      break;
    }
    default: break;
  }
  break_graph(BreakReason::UnsupportedObject, "an item of " + describe(container));
}

void TracerImpl::set_item(const V& container, const V& key, const V& value) {
  switch (container->kind) {
    case ValueKind::Array: return array_set_item(tracer, container, key, value);
    case ValueKind::List: {
      auto& items = as<ListValue>(container)->items;
      if (key->kind != ValueKind::Slice) {
        const std::size_t index = index_of(*this, key, items.size(), "list assignment index out of range");
        note_mutation(container);
        items[index] = value;
        return;
      }
      const Bounds bounds = slice_of(*this, key, items.size());
      if (bounds.step != 1) break;
      std::vector<V> fresh = sequence_items(value);
      note_mutation(container);
      items.erase(items.begin() + bounds.start, items.begin() + bounds.start + bounds.count);
      items.insert(items.begin() + bounds.start, fresh.begin(), fresh.end());
      return;
    }
    case ValueKind::Dict: return dict_store(container, constant_key(key), value);
    case ValueKind::Object: case ValueKind::Instance: {
      PyTypeObject* type = type_of(container);
      static PyObject* const name = PyUnicode_InternFromString("__setitem__");
      PyObject* method = class_attribute(type, name);
      if (method && PyFunction_Check(method)) {
        call(wrap_constant(method), {container, key, value}, {});
        return;
      }
      break;
    }
    default: break;
  }
  break_graph(BreakReason::UnsupportedObject, "assigns an item of " + describe(container));
}

void TracerImpl::delete_item(const V& container, const V& key) {
  if (auto* list = as<ListValue>(container); list && key->kind != ValueKind::Slice) {
    const std::size_t index = index_of(*this, key, list->items.size(), "list assignment index out of range");
    note_mutation(container);
    list->items.erase(list->items.begin() + std::ptrdiff_t(index));
    return;
  }
  if (auto* dict = as<DictValue>(container)) {
    open(*dict);
    Ref<> wanted = constant_key(key);
    auto found = std::find_if(dict->items.begin(), dict->items.end(), [&](auto& item) { return same_key(item.first.get(), wanted.get()); });
    if (found == dict->items.end()) no_key(*this, key);
    note_mutation(container);
    dict->items.erase(found);
    return;
  }
  break_graph(BreakReason::UnsupportedObject, "deletes an item of " + describe(container));
}

// ---- methods

namespace {

V list_method(TracerImpl& tracer, const V& owner, const std::string& name, std::vector<V>& arguments) {
  auto& items = as<ListValue>(owner)->items;
  const std::size_t count = arguments.size();
  if (name == "append" && count == 1) {
    tracer.note_mutation(owner);
    items.push_back(arguments[0]);
    return tracer.none;
  }
  if (name == "extend" && count == 1) {
    std::vector<V> fresh = tracer.sequence_items(arguments[0]);
    tracer.note_mutation(owner);
    items.insert(items.end(), fresh.begin(), fresh.end());
    return tracer.none;
  }
  if (name == "insert" && count == 2) {
    auto index = tracer.tracer.constant_int(arguments[0]);
    if (!index) return nullptr;
    tracer.note_mutation(owner);
    std::int64_t position = *index < 0 ? *index + std::int64_t(items.size()) : *index;
    position = std::clamp<std::int64_t>(position, 0, std::int64_t(items.size()));
    items.insert(items.begin() + position, arguments[1]);
    return tracer.none;
  }
  if (name == "pop" && count <= 1) {
    if (items.empty()) break_graph(BreakReason::ErrorWhileTracing, "pop from empty list");
    const std::size_t index = count ? index_of(tracer, arguments[0], items.size(), "pop index out of range") : items.size() - 1;
    tracer.note_mutation(owner);
    V item = items[index];
    items.erase(items.begin() + std::ptrdiff_t(index));
    return item;
  }
  if (name == "clear" && count == 0) {
    tracer.note_mutation(owner);
    items.clear();
    return tracer.none;
  }
  if (name == "reverse" && count == 0) {
    tracer.note_mutation(owner);
    std::reverse(items.begin(), items.end());
    return tracer.none;
  }
  if (name == "copy" && count == 0) return tracer.tracer.list(items);
  if (name == "remove" && count == 1) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (items[i] != arguments[0] && !tracer.truth(tracer.compare(Py_EQ, items[i], arguments[0]))) continue;
      tracer.note_mutation(owner);
      items.erase(items.begin() + std::ptrdiff_t(i));
      return tracer.none;
    }
  }
  return nullptr;
}

V sequence_method(TracerImpl& tracer, const V& owner, const std::string& name, std::vector<V>& arguments) {
  if (arguments.size() != 1) return nullptr;
  std::vector<V> items = tracer.sequence_items(owner);
  std::int64_t seen = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (name != "index" && name != "count") return nullptr;
    if (items[i] != arguments[0] && !tracer.truth(tracer.compare(Py_EQ, items[i], arguments[0]))) continue;
    if (name == "index") return tracer.tracer.integer(std::int64_t(i));
    ++seen;
  }
  if (name == "count") return tracer.tracer.integer(seen);
  if (name == "index") break_graph(BreakReason::ErrorWhileTracing, "a value that is not there");
  return nullptr;
}

V snapshot(const V& dict, std::vector<V> items, PyTypeObject* type) {
  auto view = std::make_shared<TupleValue>();
  view->view_of = dict;
  view->items = std::move(items);
  view->type = Ref<>::borrow(reinterpret_cast<PyObject*>(type));
  return view;
}

V dict_method(TracerImpl& tracer, const V& owner, const std::string& name, std::vector<V>& arguments, Keywords& keywords) {
  auto& dict = *as<DictValue>(owner);
  const std::size_t count = arguments.size();
  if (!keywords.empty() && name != "update") return nullptr;
  if (name == "get" && (count == 1 || count == 2)) {
    V found = tracer.dict_find(dict, tracer.constant_key(arguments[0]).get());
    return found ? found : count == 2 ? arguments[1] : tracer.none;
  }
  if (count == 0 && (name == "items" || name == "keys" || name == "values" || name == "copy")) {
    tracer.open(dict);
    std::vector<V> parts;
    auto copy = std::make_shared<DictValue>();
    for (auto& [key, value] : dict.items) {
      V key_value = tracer.wrap_constant(key.get());
      if (name == "items") parts.push_back(tracer.tracer.tuple({key_value, value}));
      if (name == "keys") parts.push_back(key_value);
      if (name == "values") parts.push_back(value);
      if (name == "copy") copy->items.emplace_back(key, value);
    }
    if (name == "copy") return copy;
    return snapshot(owner, std::move(parts), name == "items" ? &PyDictItems_Type : name == "keys" ? &PyDictKeys_Type : &PyDictValues_Type);
  }
  if (name == "setdefault" && (count == 1 || count == 2)) {
    Ref<> key = tracer.constant_key(arguments[0]);
    if (V found = tracer.dict_find(dict, key.get())) return found;
    V value = count == 2 ? arguments[1] : tracer.none;
    tracer.dict_store(owner, key, value);
    return value;
  }
  if (name == "pop" && (count == 1 || count == 2)) {
    Ref<> key = tracer.constant_key(arguments[0]);
    V found = tracer.dict_find(dict, key.get());
    if (!found && count == 2) return arguments[1];
    if (!found) no_key(tracer, arguments[0]);
    tracer.delete_item(owner, arguments[0]);
    return found;
  }
  if (name == "update" && count <= 1) {
    if (count) {
      auto* other = as<DictValue>(arguments[0]);
      if (!other) return nullptr;
      tracer.open(*other);
      auto items = other->items;
      for (auto& [key, value] : items) tracer.dict_store(owner, key, value);
    }
    for (auto& [key, value] : keywords) tracer.dict_store(owner, Ref<>::steal(PyUnicode_FromString(key.c_str())), value);
    return tracer.none;
  }
  if (name == "popitem" && count == 0) {
    tracer.open(dict);
    if (dict.items.empty()) return nullptr;
    auto [key, value] = dict.items.back();
    tracer.note_mutation(owner);
    dict.items.pop_back();
    return tracer.tracer.tuple({tracer.wrap_constant(key.get()), value});
  }
  if (name == "clear" && count == 0) {
    tracer.open(dict);
    tracer.note_mutation(owner);
    dict.items.clear();
    return tracer.none;
  }
  return nullptr;
}

V set_method(TracerImpl& tracer, const V& owner, const std::string& name, std::vector<V>& arguments) {
  auto& set = *as<SetValue>(owner);
  if (name == "add" && arguments.size() == 1 && !set.frozen) {
    Ref<> key = tracer.constant_key(arguments[0]);
    tracer.note_mutation(owner);
    tracer.add_to_set(set, key);
    return tracer.none;
  }
  if ((name == "discard" || name == "remove") && arguments.size() == 1 && !set.frozen) {
    Ref<> key = tracer.constant_key(arguments[0]);
    if (!in_set(set, key.get())) {
      if (name == "remove") no_key(tracer, arguments[0]);
      return tracer.none;
    }
    tracer.note_mutation(owner);
    std::erase_if(set.items, [&](const Ref<>& item) { return same_key(item.get(), key.get()); });
    return tracer.none;
  }
  if (name == "update" && !set.frozen) {
    std::vector<std::shared_ptr<SetValue>> others;
    for (const V& argument : arguments) others.push_back(as_set(tracer, argument));
    tracer.note_mutation(owner);
    for (const auto& other : others)
      for (const Ref<>& item : std::vector<Ref<>>(other->items)) tracer.add_to_set(set, item);
    return tracer.none;
  }
  if (name == "clear" && arguments.empty() && !set.frozen) {
    tracer.note_mutation(owner);
    set.items.clear();
    return tracer.none;
  }
  if (name == "copy" && arguments.empty()) {
    auto copy = new_set(set.frozen);
    copy->items = set.items;
    return copy;
  }
  if (arguments.size() != 1) return nullptr;
  constexpr std::pair<const char*, int> kOperators[] = {
      {"union", NB_OR}, {"intersection", NB_AND}, {"difference", NB_SUBTRACT}, {"symmetric_difference", NB_XOR}};
  for (auto [method, op] : kOperators)
    if (name == method) return tracer.set_binary(op, set, *as_set(tracer, arguments[0]));
  if (name == "issubset") return tracer.tracer.boolean(tracer.set_compare(Py_LE, set, *as_set(tracer, arguments[0])));
  if (name == "issuperset") return tracer.tracer.boolean(tracer.set_compare(Py_GE, set, *as_set(tracer, arguments[0])));
  if (name == "isdisjoint") {
    auto other = as_set(tracer, arguments[0]);
    return tracer.tracer.boolean(std::none_of(set.items.begin(), set.items.end(), [&](const Ref<>& item) { return in_set(*other, item.get()); }));
  }
  return nullptr;
}

}  // namespace

V TracerImpl::set_binary(int op, const SetValue& a, const SetValue& b) {
  auto result = new_set(a.frozen);
  for (const Ref<>& item : a.items)
    if (op == NB_OR || in_set(b, item.get()) == (op == NB_AND)) result->items.push_back(item);
  if (op == NB_OR || op == NB_XOR)
    for (const Ref<>& item : b.items)
      if (!in_set(a, item.get())) result->items.push_back(item);
  return result;
}

bool TracerImpl::set_compare(int comparison, const SetValue& a, const SetValue& b) {
  auto within = [](const SetValue& part, const SetValue& whole) {
    return std::all_of(part.items.begin(), part.items.end(), [&](const Ref<>& item) { return in_set(whole, item.get()); });
  };
  const bool below = within(a, b), above = within(b, a);
  switch (comparison) {
    case Py_LE: return below;
    case Py_LT: return below && !above;
    case Py_GE: return above;
    case Py_GT: return above && !below;
    case Py_EQ: return below && above;
    default: return !(below && above);
  }
}

V TracerImpl::container_method(const V& owner, const std::string& name, std::vector<V>& positional, Keywords& keywords) {
  V result;
  if (owner->kind == ValueKind::Dict) result = dict_method(*this, owner, name, positional, keywords);
  if (owner->kind == ValueKind::List && name == "sort" && positional.empty()) {
    V sorted = call(wrap_constant(PyDict_GetItemString(PyEval_GetBuiltins(), "sorted")), {owner}, keywords);
    note_mutation(owner);
    as<ListValue>(owner)->items = as<ListValue>(sorted)->items;
    return none;
  }
  if (keywords.empty()) {
    if (owner->kind == ValueKind::List) result = list_method(*this, owner, name, positional);
    if (owner->kind == ValueKind::Set) result = set_method(*this, owner, name, positional);
    if (!result && (owner->kind == ValueKind::List || owner->kind == ValueKind::Tuple))
      result = sequence_method(*this, owner, name, positional);
    if (!result && name == "__len__" && positional.empty()) result = length(owner);
    if (!result && name == "__getitem__" && positional.size() == 1) result = get_item(owner, positional[0]);
    if (!result && name == "__setitem__" && positional.size() == 2) {
      set_item(owner, positional[0], positional[1]);
      result = none;
    }
    if (!result && name == "__contains__" && positional.size() == 1) result = tracer.boolean(contains(owner, positional[0]));
    if (!result && name == "__iter__" && positional.empty()) result = make_iterator(owner);
    if (!result && name == "numel" && owner->kind == ValueKind::Tuple && positional.empty()) {
      V count = tracer.integer(std::int64_t(1));
      constexpr int kMultiply = 5;  // NB_MULTIPLY
      for (const V& item : as<TupleValue>(owner)->items) count = binary(kMultiply, count, item);
      result = count;
    }
  }
  if (!result) break_graph(BreakReason::UnsupportedObject, "method " + name + " of " + describe(owner));
  return result;
}

}  // namespace fj
