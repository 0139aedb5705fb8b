/// Dicts, OrderedDict, defaultdict and their views.
///
/// A dict from outside is opened when its keys are first asked for; single items are fetched and guarded one by one
/// until then. Keys are real objects: constants, or proxies of what is none.
#include "tracer/values/containers/dicts.h"

#include <opcode.h>

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "segment/finalizers.h"
#include "tracer/interpreter/exceptions.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/state/effect_log.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/containers/containers.h"
#include "tracer/values/containers/iterators.h"
#include "tracer/values/outside_objects.h"
#include "tracer/values/proxies.h"

namespace fj {

static void open_by_place(TraceRun& t, DictValue& dict, PyObject* keys,
                          const std::vector<std::pair<Ref<>, V>>& fetched);
static void dict_store_at(TraceRun& t, const V& dict, std::size_t place, Ref<> key, const V& value);

PyObject* defaultdict_type() {
  PyObject* const type = once([] {
    PyObject* found = imported("_collections", "defaultdict").release();
    FJ_CHECK(found, "collections.defaultdict");
    return found;
  });
  return type;
}

namespace {

/// Its hash or == is Python code of a class, which no lookup while tracing may run.
bool runs_code_as_key(PyObject* key) {
  if (is_plain(key) || is_enum_member(key) || PyType_Check(key)) return false;
  if (PyTuple_CheckExact(key)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i)
      if (runs_code_as_key(PyTuple_GET_ITEM(key, i))) return true;
    return false;
  }
  static PyObject* const names[] = {PyUnicode_InternFromString("__hash__"), PyUnicode_InternFromString("__eq__")};
  for (PyObject* name : names) {
    PyObject* found = fj_type_lookup(Py_TYPE(key), name);
    if (found && Py_TYPE(found) != &PyWrapperDescr_Type) return true;
  }
  return false;
}

/// A tensor hashes by its address, and is found by being itself: what Python code says of it is never asked.
bool is_tensor_key(PyObject* key) {
  static PyObject* const name = PyUnicode_InternFromString("__hash__");
  if (array_library(key) != Library::Torch) return false;
  Ref<> tensor = Ref<>::steal(PyObject_GetAttrString(torch_module(), "Tensor"));
  return tensor &&
         fj_type_lookup(Py_TYPE(key), name) == fj_type_lookup(reinterpret_cast<PyTypeObject*>(tensor.get()), name);
}

bool is_ordered(const DictValue& dict) { return dict.type.get() == reinterpret_cast<PyObject*>(&PyODict_Type); }

}  // namespace

void open(TraceRun& t, DictValue& dict) {
  if (dict.opened) return;
  dict.opened = true;
  std::vector<std::pair<Ref<>, V>> fetched = std::move(dict.items);
  dict.items.clear();
  PyObject* real = dict.real.get();
  Ref<> keys;
  if (PyODict_Check(real)) {
    // The order is the OrderedDict's own, not that of the dict it is built on.
    Ref<> iterator = Ref<>::steal(PyODict_Type.tp_iter(real));
    keys = iterator ? Ref<>::steal(PySequence_List(iterator.get())) : Ref<>();
    if (!keys || PyList_GET_SIZE(keys.get()) != PyDict_GET_SIZE(real))
      break_graph(BreakReason::ErrorWhileTracing, take_error());
    add_guard(t, GuardKind::Elements, dict.source, keys.get());
  } else {
    keys = Ref<>::steal(PyDict_Keys(real));
    bool tensors = false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys.get()); ++i)
      tensors = tensors || is_tensor_key(PyList_GET_ITEM(keys.get(), i));
    if (tensors) return open_by_place(t, dict, keys.get(), fetched);
    add_guard(t, GuardKind::DictKeys, dict.source, keys.get());
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys.get()); ++i) {
    PyObject* key = PyList_GET_ITEM(keys.get(), i);
    if (runs_code_as_key(key))
      break_graph(BreakReason::UnsupportedObject, "a key of a class with its own __hash__ or __eq__");
    if (is_watched(key)) break_graph(BreakReason::UnsupportedObject, "a key whose end runs Python code");
    PyObject* item = PyDict_GetItemWithError(real, key);
    if (!item) break_graph(BreakReason::ErrorWhileTracing, "a key that is not found");
    auto known =
        std::find_if(fetched.begin(), fetched.end(), [&](auto& item) { return same_key(item.first.get(), key); });
    V value = known != fetched.end() ? known->second
                                     : t.wrap(item, t.sources().make(SourceKind::DictItem, dict.source, 0, key));
    dict.items.emplace_back(Ref<>::borrow(key), value);
  }
}

/// Keys that no guard may compare: each is guarded at its place, as the value it is.
void open_by_place(TraceRun& t, DictValue& dict, PyObject* keys, const std::vector<std::pair<Ref<>, V>>& fetched) {
  const Py_ssize_t count = PyList_GET_SIZE(keys);
  add_guard(t, GuardKind::Length, dict.source, nullptr, count);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* key = PyList_GET_ITEM(keys, i);
    Py_ssize_t position = i;
    PyObject *there = nullptr, *item = nullptr;
    // A key that was deleted leaves a gap, and those behind it are not at their number.
    if (!PyDict_Next(dict.real.get(), &position, &there, &item) || there != key)
      break_graph(BreakReason::UnsupportedObject, "a dict with tensors as keys of which some were deleted");
    V known = t.wrap(key, t.sources().make(SourceKind::DictKey, dict.source, i));
    Ref<> stored = is_tensor_key(key) && known->kind == ValueKind::Array ? make_proxy(t, known)
                                                                         : Ref<>::borrow(t.constant_object(known));
    if (!stored || (!proxied(stored.get()) && !is_plain(stored.get())))
      break_graph(BreakReason::UnsupportedObject, "a key of a class with its own __hash__ or __eq__");
    auto before = std::find_if(fetched.begin(), fetched.end(), [&](auto& one) { return one.first.get() == key; });
    V value = before != fetched.end() ? before->second
                                      : t.wrap(item, t.sources().make(SourceKind::DictValue, dict.source, i));
    dict.items.emplace_back(stored, value);
  }
}

std::size_t dict_place(TraceRun& t, DictValue& dict, PyObject* key) {
  const Tracer::Mark before = t.mark();
  const Py_hash_t hash = PyObject_Hash(key);
  if (hash == -1) raise_python_error(t);
  for (std::size_t i = 0; i < dict.items.size(); ++i) {
    Ref<> known = dict.items[i].first;
    if (any_identity_number()) refuse_unknown_numbers(key, known.get());
    if (known.get() == key || (proxied(key) && proxied(known.get()) == proxied(key))) return i;
    if (const std::optional<bool> same = same_text(known.get(), key)) {
      if (*same) return i;
      continue;
    }
    if (PyObject_Hash(known.get()) != hash) continue;
    // Which of two keys of one hash is asked first depends on where deleted ones were.
    if (dict.deletions && (holds_proxy(known.get()) || holds_proxy(key)))
      break_graph(BreakReason::UnsupportedObject, "a key with its own __eq__ in a dict that keys were deleted from");
    const bool same = same_key(known.get(), key);
    if (t.written_since(&dict, before))
      break_graph(BreakReason::UnsupportedObject, "a dict that a key's __eq__ changes");
    if (same) return i;
  }
  return dict.items.size();
}

bool has_plain_keys(TraceRun& t, DictValue& dict) {
  Py_ssize_t position = 0;
  PyObject *other, *item;
  while (!dict.plain_keys && PyDict_Next(dict.real.get(), &position, &other, &item))
    if (!PyUnicode_CheckExact(other) && runs_code_as_key(other)) return false;
  return dict.plain_keys = true;
}

V dict_find(TraceRun& t, DictValue& dict, PyObject* key) {
  if (!dict.opened && holds_proxy(key)) open(t, dict);
  if (const std::size_t place = dict_place(t, dict, key); place < dict.items.size()) return dict.items[place].second;
  if (dict.opened) return nullptr;
  if (!has_plain_keys(t, dict))
    break_graph(BreakReason::UnsupportedObject, "a key of a class with its own __hash__ or __eq__");
  PyObject* found = PyDict_GetItemWithError(dict.real.get(), key);
  if (!found) {
    PyErr_Clear();
    add_guard(t, GuardKind::LacksKey, dict.source, key);
    return nullptr;
  }
  add_guard(t, GuardKind::HasKey, dict.source, key);  // the value may never be looked at
  V value = t.wrap(found, t.sources().make(SourceKind::DictItem, dict.source, 0, key));
  dict.items.emplace_back(Ref<>::borrow(key), value);
  return value;
}

void dict_store(TraceRun& t, const V& target, Ref<> key, const V& value) {
  auto& dict = *as<DictValue>(target);
  open(t, dict);
  const std::size_t place = dict_place(t, dict, key.get());
  dict_store_at(t, target, place, std::move(key), value);
}

void dict_store_at(TraceRun& t, const V& target, std::size_t place, Ref<> key, const V& value) {
  auto& dict = *as<DictValue>(target);
  if (dict.attributes_of && !PyUnicode_CheckExact(key.get()))
    break_graph(BreakReason::UnsupportedObject, "an attribute whose name is no string");
  if (place < dict.items.size()) key = dict.items[place].first;  // which the dict keeps
  note_item(t, target, key, value);
  if (place < dict.items.size())
    dict.items[place].second = value;
  else
    dict.items.emplace_back(std::move(key), value);
}

void dict_erase(TraceRun& t, const V& target, std::size_t place) {
  auto& dict = *as<DictValue>(target);
  note_item(t, target, dict.items[place].first, nullptr);
  ++dict.deletions;
  dict.items.erase(dict.items.begin() + std::ptrdiff_t(place));
}

void dict_put(TraceRun& t, DictValue& dict, Ref<> key, const V& value) {
  const std::size_t place = dict_place(t, dict, key.get());
  const bool known = place < dict.items.size();
  if (!value && known) {
    ++dict.deletions;
    dict.items.erase(dict.items.begin() + std::ptrdiff_t(place));
  } else if (known) {
    dict.items[place].second = value;
  } else if (value) {
    dict.items.emplace_back(std::move(key), value);
  }
}

void dict_update(TraceRun& tracer, const V& owner, const std::vector<V>& arguments, const Keywords& keywords) {
  if (!arguments.empty()) {
    const V& from = arguments[0];
    V part = read_as_dict(tracer, from);
    if (auto* other = as<DictValue>(part)) {
      open(tracer, *other);
      auto items = other->items;
      for (auto& [key, value] : items) dict_store(tracer, owner, key, value);
    } else {
      static PyObject* const keys_name = PyUnicode_InternFromString("keys");
      V keys = from->kind == ValueKind::Object || from->kind == ValueKind::Instance
                   ? find_attribute(tracer, from, keys_name)
                   : nullptr;
      if (keys) {
        for (const V& key : tracer.sequence_items(tracer.call(keys, {}, {})))
          dict_store(tracer, owner, dict_key(tracer, owner, key), tracer.get_item(from, key));
      } else {
        V iterator = make_iterator(tracer, from);
        while (V pair = next(tracer, iterator)) {
          std::vector<V> parts = tracer.sequence_items(pair);
          if (parts.size() != 2) break_graph(BreakReason::ErrorWhileTracing, "an update by something that is no pair");
          dict_store(tracer, owner, dict_key(tracer, owner, parts[0]), parts[1]);
          tracer.check_limits();
        }
      }
    }
  }
  for (auto& [key, value] : keywords) dict_store(tracer, owner, Ref<>::steal(PyUnicode_FromString(key.c_str())), value);
}

namespace {

std::shared_ptr<DictValue> copy_of(TraceRun& tracer, DictValue& dict) {
  open(tracer, dict);
  auto copy = std::make_shared<DictValue>();
  copy->items = dict.items;
  copy->type = dict.type;
  copy->default_factory = dict.default_factory;
  return copy;
}

V view(const V& dict, PyTypeObject* type) {
  auto made = std::make_shared<TupleValue>();
  made->view_of = dict;
  made->type = Ref<>::borrow(reinterpret_cast<PyObject*>(type));
  return made;
}

}  // namespace

V dict_copy(TraceRun& tracer, const V& owner) {
  V part = read_as_dict(tracer, owner);
  if (!part && tracer.truth(builtin_part(tracer, owner))) {
    // A class that iterates in its own way is asked for its keys and items.
    auto copy = std::make_shared<DictValue>();
    for (auto& [key, value] : mapping_items(tracer, owner)) dict_store(tracer, copy, constant_key(tracer, key), value);
    return copy;
  }
  return part ? copy_of(tracer, *as<DictValue>(part)) : std::make_shared<DictValue>();
}

V dict_method(TraceRun& tracer, const V& owner, const std::string& name, std::vector<V>& arguments,
              Keywords& keywords) {
  auto& dict = *as<DictValue>(owner);
  const std::size_t count = arguments.size();
  if (name == "move_to_end" && count >= 1 && is_ordered(dict)) {
    V last = count > 1 ? arguments[1] : keywords.empty() ? nullptr : keywords[0].second;
    const bool to_end = !last || tracer.truth(last);
    Ref<> wanted = constant_key(tracer, arguments[0]);
    open(tracer, dict);
    const std::size_t place = dict_place(tracer, dict, wanted.get());
    if (place == dict.items.size()) no_key(tracer, arguments[0]);
    auto moved = dict.items[place];
    note_call(tracer, owner, "move_to_end", moved.first, {tracer.boolean(to_end)});
    ++dict.deletions;
    dict.items.erase(dict.items.begin() + std::ptrdiff_t(place));
    dict.items.insert(to_end ? dict.items.end() : dict.items.begin(), moved);
    return tracer.none();
  }
  if (name == "popitem" && (count == 0 || is_ordered(dict))) {
    V last = count ? arguments[0] : keywords.empty() ? nullptr : keywords[0].second;
    const bool from_end = !last || tracer.truth(last);
    open(tracer, dict);
    if (dict.items.empty())
      raise(tracer, PyExc_KeyError,
            {tracer.string(is_ordered(dict) ? "dictionary is empty" : "popitem(): dictionary is empty")},
            BreakReason::ErrorWhileTracing, "an empty dict");
    const std::size_t place = from_end ? dict.items.size() - 1 : 0;
    auto [key, value] = dict.items[place];
    // Not a deletion: a dict gets its last place back.
    if (is_ordered(dict))
      note_item(tracer, owner, key, nullptr);
    else
      note_call(tracer, owner, "popitem", {}, {});
    ++dict.deletions;
    dict.items.erase(dict.items.begin() + std::ptrdiff_t(place));
    return tracer.tuple({wrap_constant(tracer, key.get()), value});
  }
  if ((name == "update" || name == "__init__") && count <= 1) {
    if (name == "__init__" && dict.type.get() == defaultdict_type()) {
      dict.default_factory = count && !tracer.is_none(arguments[0]) ? arguments[0] : nullptr;
      dict_update(tracer, owner, {}, keywords);
    } else {
      dict_update(tracer, owner, arguments, keywords);
    }
    return tracer.none();
  }
  if (name == "pop" && count == 1 && is_ordered(dict) && keywords.size() == 1 && keywords[0].first == "default")
    arguments.push_back(keywords[0].second);
  else if (name == "setdefault" && count == 1 && is_ordered(dict) && keywords.size() == 1 &&
           keywords[0].first == "default")
    arguments.push_back(keywords[0].second);
  else if (!keywords.empty()) return nullptr;
  const std::size_t given = arguments.size();
  if (name == "get" && (given == 1 || given == 2)) {
    V found = dict_find(tracer, dict, dict_key(tracer, owner, arguments[0]).get());
    return found ? found : given == 2 ? arguments[1] : tracer.none();
  }
  if (given == 0 && (name == "items" || name == "keys" || name == "values")) {
    open(tracer, dict);
    if (is_ordered(dict)) {
      // Views of their own types, which can't be made from a dict's.
      V made = view(owner, name == "items"  ? &PyODictItems_Type
                           : name == "keys" ? &PyODictKeys_Type
                                            : &PyODictValues_Type);
      return made;
    }
    return view(owner, name == "items" ? &PyDictItems_Type : name == "keys" ? &PyDictKeys_Type : &PyDictValues_Type);
  }
  if (given == 0 && (name == "copy" || name == "__copy__")) return copy_of(tracer, dict);
  if (name == "setdefault" && (given == 1 || given == 2)) {
    Ref<> key = dict_key(tracer, owner, arguments[0]);
    if (!dict.opened)
      if (V found = dict_find(tracer, dict, key.get())) return found;
    open(tracer, dict);
    const std::size_t place = dict_place(tracer, dict, key.get());
    if (place < dict.items.size()) return dict.items[place].second;
    V value = given == 2 ? arguments[1] : tracer.none();
    dict_store_at(tracer, owner, place, key, value);
    return value;
  }
  if (name == "pop" && (given == 1 || given == 2)) {
    Ref<> key = dict_key(tracer, owner, arguments[0]);
    if (dict.opened || dict_find(tracer, dict, key.get())) open(tracer, dict);
    const std::size_t place = dict_place(tracer, dict, key.get());
    if (place == dict.items.size()) {
      if (given == 2) return arguments[1];
      no_key(tracer, arguments[0]);
    }
    V found = dict.items[place].second;
    dict_erase(tracer, owner, place);
    return found;
  }
  if (name == "clear" && given == 0) {
    open(tracer, dict);
    note_call(tracer, owner, "clear", {}, {});
    dict.deletions += !dict.items.empty();
    dict.items.clear();
    return tracer.none();
  }
  if (name == "__missing__" && given == 1) return tracer.get_item(owner, arguments[0]);
  if (name == "fromkeys" && (given == 1 || given == 2)) {
    auto made = std::make_shared<DictValue>();
    for (const V& item : tracer.sequence_items(arguments[0]))
      dict_store(tracer, made, dict_key(tracer, made, item), given == 2 ? arguments[1] : tracer.none());
    return made;
  }
  return nullptr;
}

// ---- views

namespace {

bool is_keys(const TupleValue& view) {
  return view.type.get() == reinterpret_cast<PyObject*>(&PyDictKeys_Type) ||
         view.type.get() == reinterpret_cast<PyObject*>(&PyODictKeys_Type);
}
bool is_items(const TupleValue& view) {
  return view.type.get() == reinterpret_cast<PyObject*>(&PyDictItems_Type) ||
         view.type.get() == reinterpret_cast<PyObject*>(&PyODictItems_Type);
}

}  // namespace

void refresh_view(TraceRun& t, TupleValue& view) {
  auto& dict = *as<DictValue>(view.view_of);
  open(t, dict);
  std::vector<V> fresh;
  for (auto& [key, value] : dict.items) {
    V key_value = is_keys(view) || is_items(view) ? wrap_constant(t, key.get()) : nullptr;
    fresh.push_back(is_keys(view) ? key_value : is_items(view) ? t.tuple({key_value, value}) : value);
  }
  view.items = std::move(fresh);
}

bool view_contains(TraceRun& t, TupleValue& view, const V& item) {
  auto& dict = *as<DictValue>(view.view_of);
  if (is_keys(view)) return dict_find(t, dict, dict_key(t, view.view_of, item).get()) != nullptr;
  if (is_items(view)) {
    auto* pair = as<TupleValue>(item);
    if (!pair || pair->items.size() != 2) return false;
    V found = dict_find(t, dict, constant_key(t, pair->items[0]).get());
    return found && same_or_equal(t, found, pair->items[1]);
  }
  refresh_view(t, view);
  for (const V& value : std::vector<V>(view.items))
    if (same_or_equal(t, value, item)) return true;
  return false;
}

V view_method(TraceRun& tracer, const V& owner, const std::string& name, std::vector<V>& arguments) {
  if (name == "isdisjoint" && arguments.size() == 1) {
    auto& view = *as<TupleValue>(owner);
    for (const V& item : tracer.sequence_items(arguments[0]))
      if (view_contains(tracer, view, item)) return tracer.boolean(false);
    return tracer.boolean(true);
  }
  if (name == "__contains__" && arguments.size() == 1)
    return tracer.boolean(view_contains(tracer, *as<TupleValue>(owner), arguments[0]));
  return nullptr;
}

}  // namespace fj
