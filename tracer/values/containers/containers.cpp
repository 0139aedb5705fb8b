/// What all containers share: keys, items, length, iteration into a list, methods by name, tracked mutation.
///
/// A container from outside that is mutated in the trace keeps its Value; its final contents are written into the real
/// object at the exit. An object of a class derived from a builtin container is the object and, in `builtin_part`, a
/// container Value: what the class does not define itself, C code does on that part. Lists, dicts and sets have files
/// of their own beside this one.
#include "tracer/values/containers/containers.h"

#include <opcode.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/base/error.h"
#include "segment/finalizers.h"
#include "tracer/frontends/numpy/parts.h"
#include "tracer/interpreter/exceptions.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/nesting.h"
#include "tracer/state/identity.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/containers/dicts.h"
#include "tracer/values/containers/iterators.h"
#include "tracer/values/numbers/derived_values.h"
#include "tracer/values/numbers/operators.h"
#include "tracer/values/numbers/truths.h"
#include "tracer/values/outside_objects.h"
#include "tracer/values/proxies.h"

namespace fj {

Bounds slice_of(TraceRun& tracer, const V& key, std::size_t length) {
  auto& slice = *as<SliceValue>(key);
  auto bound = [&](const V& value) -> Ref<> {
    if (value->kind == ValueKind::SymInt) return tracer.constant_object(tracer.integer(*tracer.constant_int(value)));
    V number = value->kind == ValueKind::Object && tracer.is_none(value) ? value : index_number(tracer, value);
    PyObject* object = tracer.constant_object(number);
    if (!object || !(object == Py_None || PyLong_Check(object)))
      break_graph(BreakReason::UnsupportedObject, "a slice of " + describe(value));
    return Ref<>::borrow(object);
  };
  Ref<> real = Ref<>::steal(PySlice_New(bound(slice.start).get(), bound(slice.stop).get(), bound(slice.step).get()));
  Bounds result{};
  if (PySlice_Unpack(real.get(), &result.start, &result.stop, &result.step) < 0) raise_python_error(tracer);
  result.count = PySlice_AdjustIndices(Py_ssize_t(length), &result.start, &result.stop, result.step);
  return result;
}

std::size_t index_of(TraceRun& tracer, const V& key, std::size_t length, const char* message) {
  auto index = tracer.constant_int(index_number(tracer, key));
  if (!index) break_graph(BreakReason::UnsupportedObject, "an index that is " + describe(key));
  const std::int64_t position = *index < 0 ? *index + std::int64_t(length) : *index;
  if (position < 0 || position >= std::int64_t(length))
    raise(tracer, PyExc_IndexError, {tracer.string(message)}, BreakReason::ErrorWhileTracing, "index out of range");
  return std::size_t(position);
}

/// Each is told from each other one by a guard.
constexpr std::size_t kMostVaryingKeys = 16;

bool same_key(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (const std::optional<bool> same = same_text(a, b)) return *same;
  const Py_hash_t left = PyObject_Hash(a), right = PyObject_Hash(b);
  if (left != right) {
    PyErr_Clear();
    return false;
  }
  const int same = PyObject_RichCompareBool(a, b, Py_EQ);
  check_proxies();
  if (same < 0) PyErr_Clear();
  return same == 1;
}

namespace {
thread_local bool met_identity_number = false;
}

bool any_identity_number() { return met_identity_number; }

bool is_identity_number(const V& value) {
  auto* instance = as<InstanceValue>(value);
  return instance && instance->type.get() == &PyLong_Type && instance->raised;
}

void refuse_unknown_numbers(PyObject* key, PyObject* known) {
  if (PyTuple_Check(key) && PyTuple_Check(known) && PyTuple_GET_SIZE(key) == PyTuple_GET_SIZE(known))
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i)
      refuse_unknown_numbers(PyTuple_GET_ITEM(key, i), PyTuple_GET_ITEM(known, i));
  auto is_unknown = [](PyObject* object) {
    V value = proxied(object);
    return value && is_identity_number(value);
  };
  auto is_number = [](PyObject* object) {
    return PyLong_Check(object) || PyFloat_Check(object) || PyComplex_Check(object);
  };
  if ((is_unknown(key) && is_number(known)) || (is_unknown(known) && is_number(key)))
    break_graph(BreakReason::UnsupportedObject, "a key that is the id() of an object");
}

bool same_or_equal(TraceRun& tracer, const V& a, const V& b) {
  if (a == b) return true;
  auto is_nan = [](const V& value) {
    auto* object = as<ObjectValue>(value);
    PyObject* real = object ? object->object.get() : nullptr;
    if (!real || !(PyFloat_CheckExact(real) || PyComplex_CheckExact(real))) return false;
    Ref<> answer = Ref<>::steal(PyObject_RichCompare(real, real, Py_EQ));
    return answer.get() == Py_False;
  };
  // Equal to nothing, but in a container it is found: an object may have several Values.
  if (is_nan(a) && is_nan(b)) break_graph(BreakReason::UnsupportedObject, "a nan among the elements of a container");
  return tracer.truth(tracer.compare(Py_EQ, a, b));
}

namespace {

/// The hash that an int given by a __hash__() means: itself where it fits.
Py_hash_t hash_from(PyObject* number) {
  const Py_ssize_t hash = PyLong_AsSsize_t(number);
  if (hash == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    return PyObject_Hash(number);
  }
  return hash == -1 ? -2 : hash;
}

/// Derived from int, float, str or bytes, and neither hashed nor compared in another way: `re` has such a number for
/// "no count given".
bool compares_as_number_or_text(PyTypeObject* type) {
  PyTypeObject* const builtins[] = {&PyLong_Type, &PyFloat_Type, &PyUnicode_Type, &PyBytes_Type};
  return std::any_of(std::begin(builtins), std::end(builtins), [&](PyTypeObject* builtin) {
    return PyType_IsSubtype(type, builtin) && type->tp_hash == builtin->tp_hash &&
           type->tp_richcompare == builtin->tp_richcompare;
  });
}

}  // namespace

Ref<> dict_key(TraceRun& t, const V& container, const V& value) {
  auto* held = as<ObjectValue>(value);
  auto* dict = as<DictValue>(container);
  // In a dict that is known whole: of another one the keys would have to be looked at first.
  if (!held || !dict || !dict->opened || dict->attributes_of || !PyUnicode_CheckExact(held->object.get()) ||
      !changes(t, value))
    return constant_key(t, value);
  if (dict->source &&
      (dict->source->kind == SourceKind::FunctionGlobals || dict->source->kind == SourceKind::InstanceDict))
    return constant_key(t, value);
  if (dict->items.size() > kMostVaryingKeys) return constant_key(t, value);
  guard_type(t, *held);
  return make_proxy(t, value, PyObject_Hash(held->object.get()));
}

Ref<> constant_key(TraceRun& t, const V& value) {
  auto unhashable = [&](const char* type) {
    if (fj_errors_since_v314()) break_graph(BreakReason::ErrorWhileTracing, "a key that is " + describe(value));
    raise(t, PyExc_TypeError, {t.string("unhashable type: '" + std::string(type) + "'")},
          BreakReason::ErrorWhileTracing, "a key that is " + describe(value));
  };
  // Another one at each call: no guard tells it from others.
  if (auto* held = as<ObjectValue>(value);
      held && held->source && is_made_anew(held->source) && !is_plain_operand(held->object.get()))
    break_graph(BreakReason::UnsupportedObject, "a key that is " + describe(value));
  switch (value->kind) {
    case ValueKind::SymInt: return constant_key(t, t.integer(*t.constant_int(value)));
    case ValueKind::Tuple: {
      const Nesting nesting;
      auto& tuple = *as<TupleValue>(value);
      if (tuple.view_of) unhashable(reinterpret_cast<PyTypeObject*>(tuple.type.get())->tp_name);
      auto* type = tuple.type ? reinterpret_cast<PyTypeObject*>(tuple.type.get()) : &PyTuple_Type;
      if ((type->tp_hash != PyTuple_Type.tp_hash || type->tp_richcompare != PyTuple_Type.tp_richcompare) &&
          !is_plain_named_tuple(type))
        break_graph(BreakReason::UnsupportedObject, "a key that is " + describe(value));
      Ref<> items = Ref<>::steal(PyTuple_New(Py_ssize_t(tuple.items.size())));
      for (std::size_t i = 0; i < tuple.items.size(); ++i) {
        Ref<> item = constant_key(t, tuple.items[i]);
        PyTuple_SET_ITEM(items.get(), Py_ssize_t(i), Py_NewRef(item.get()));
      }
      if (tuple.type) {
        Ref<> whole = Ref<>::steal(PyTuple_Pack(1, items.get()));
        items = Ref<>::steal(PyTuple_Type.tp_new(type, whole.get(), nullptr));
      }
      // It stands for this tuple wherever the key is looked at, and at the exit.
      t.identity->keys.emplace(t.keep(items).get(), value);
      return items;
    }
    case ValueKind::Set:
      if (as<SetValue>(value)->frozen) {
        t.identity->keys.emplace(as<SetValue>(value)->real.get(), value);
        return as<SetValue>(value)->real;
      }
      unhashable("set");
      break;
    case ValueKind::List: unhashable(t.type_of(value)->tp_name); break;
    case ValueKind::Dict: unhashable(t.type_of(value)->tp_name); break;
    case ValueKind::Array:
      if (as<ArrayValue>(value)->library == Library::Torch) return make_proxy(t, value);
      break;
    case ValueKind::Function: return make_proxy(t, value);
    case ValueKind::Object: case ValueKind::Instance: {
      if (PyObject* object = t.constant_object(value)) {
        if (value->source && !is_plain(object)) t.identity->keys.emplace(object, value);
        // A nan is found, and since 3.10 hashed, by identity.
        const bool nan =
            PyFloat_CheckExact(object) ? std::isnan(PyFloat_AS_DOUBLE(object)) : PyComplex_CheckExact(object);
        if (nan && value->source) add_guard(t, GuardKind::Identity, value->source, object);
        return Ref<>::borrow(object);
      }
      if (is_identity_number(value)) return make_proxy(t, value);
      PyTypeObject* type = t.type_of(value);
      static PyObject* const hash_name = PyUnicode_InternFromString("__hash__");
      PyObject* method = class_attribute(t, type, hash_name);
      if (method == Py_None) unhashable(type->tp_name);
      if (method && is_python_method(t, method)) {
        Ref<> hash = t.constant_object(t.call(wrap_constant(t, method), {value}, {}));
        if (!hash || !PyLong_CheckExact(hash.get()))
          break_graph(BreakReason::UnsupportedObject, "a hash that is no constant");
        return make_proxy(t, value, hash_from(hash.get()));
      }
      auto* real = as<ObjectValue>(value);
      const bool hashed_by_identity = type->tp_hash == PyBaseObject_Type.tp_hash;
      if (!real && hashed_by_identity) return make_proxy(t, value);
      // An object that no Python code hashes or compares is its own key.
      if (real && (hashed_by_identity ? type->tp_richcompare == PyBaseObject_Type.tp_richcompare
                                      : compares_as_number_or_text(type))) {
        if (real->source) {
          if (is_watched(real->object.get()))
            break_graph(BreakReason::UnsupportedObject, "a key whose end runs Python code");
          add_guard(t, GuardKind::Identity, real->source, real->object.get());
          t.identity->keys.emplace(real->object.get(), value);
        }
        return real->object;
      }
      if (hashed_by_identity) break;
      if (V part = builtin_part(t, value); part && part->kind != ValueKind::Dict) {
        Ref<> key = constant_key(t, part);
        return make_proxy(t, value, PyObject_Hash(key.get()));
      }
      break;
    }
    default: break;
  }
  break_graph(BreakReason::UnsupportedObject, "a key that is " + describe(value));
}

namespace {

void leave_unopened(TraceRun& t, ListValue& list, const Ref<>& object) {
  list.unopened = [&t, &list, object] {
    std::vector<V> before;
    try {
      add_guard(t, GuardKind::Length, list.source, nullptr, PyList_GET_SIZE(object.get()));
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object.get()); ++i)
        before.push_back(
            t.wrap(PyList_GET_ITEM(object.get(), i), t.sources().make(SourceKind::ListItem, list.source, i)));
    } catch (...) {
      leave_unopened(t, list, object);
      throw;
    }
    list.items.insert(list.items.begin(), before.begin(), before.end());
  };
}

/// Whether a module has the class or function under its name, so that it lives as long as the module whoever holds it.
bool is_of_a_module(PyObject* object) {
  const Ref<> module = Ref<>::steal(PyObject_GetAttrString(object, "__module__"));
  const Ref<> name = Ref<>::steal(PyObject_GetAttrString(object, "__qualname__"));
  PyErr_Clear();
  if (!module || !name || !PyUnicode_CheckExact(module.get()) || !PyUnicode_CheckExact(name.get())) return false;
  PyObject* const found = PyDict_GetItem(PyImport_GetModuleDict(), module.get());
  return found && PyModule_Check(found) && PyDict_GetItem(PyModule_GetDict(found), name.get()) == object;
}

}  // namespace

bool is_itself_alone(PyObject* object) {
  const PyTypeObject* type = Py_TYPE(object);
  if (PyType_Check(object) && type->tp_hash == PyBaseObject_Type.tp_hash &&
      type->tp_richcompare == PyBaseObject_Type.tp_richcompare && type->tp_getattro == PyType_Type.tp_getattro)
    return !(reinterpret_cast<PyTypeObject*>(object)->tp_flags & Py_TPFLAGS_HEAPTYPE) || is_of_a_module(object);
  if (PyFunction_Check(object)) return is_of_a_module(object);
  if (PyCFunction_Check(object)) {
    PyObject* const self = PyCFunction_GET_SELF(object);  // of a bound method: what it is bound to
    return !self || PyModule_Check(self) || PyType_Check(self);
  }
  return dtype_from_object(object) || is_torch_value(object) || !std::strcmp(type->tp_name, "numpy.ufunc");
}

V wrap_builtin(TraceRun& t, PyObject* object, SourceRef source) {
  constexpr Py_ssize_t kLongContainer = 2000;
  if (PyList_Check(object) && PyList_GET_SIZE(object) <= kLongContainer) {
    auto list = std::make_shared<ListValue>();
    list->source = source;
    add_guard(t, GuardKind::TypeIs, source, reinterpret_cast<PyObject*>(Py_TYPE(object)));
    leave_unopened(t, *list, Ref<>::borrow(object));
    if (PyList_CheckExact(object)) t.identity->values[object] = list;  // before its items: a list may contain itself
    else as<ListValue>(list);
    return list;
  }
  if (PyTuple_Check(object) && PyTuple_GET_SIZE(object) <= kLongContainer) {
    // Of a derived class. The part alone is another object.
    auto tuple = std::make_shared<TupleValue>();
    add_guard(t, GuardKind::Length, source, nullptr, PyTuple_GET_SIZE(object));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
      tuple->items.push_back(t.wrap(PyTuple_GET_ITEM(object, i), t.sources().make(SourceKind::TupleItem, source, i)));
    return tuple;
  }
  if (is_deque(object) && Py_SIZE(object) <= kLongContainer) {
    auto list = std::make_shared<ListValue>();
    list->source = source;
    list->type = Ref<>::borrow(reinterpret_cast<PyObject*>(Py_TYPE(object)));
    t.identity->values[object] = list;
    add_guard(t, GuardKind::TypeIs, source, list->type.get());
    add_guard(t, GuardKind::Length, source, nullptr, Py_SIZE(object));
    static PyObject* const maxlen = PyUnicode_InternFromString("maxlen");
    Ref<> longest = t.keep(Ref<>::steal(PyObject_GetAttr(object, maxlen)));
    V bound = t.wrap(longest.get(), t.sources().make(SourceKind::SlotMember, source, 0, maxlen));
    if (!t.is_none(bound)) list->longest = t.constant_int(bound);
    for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i)
      list->items.push_back(t.wrap(t.keep(Ref<>::steal(PySequence_GetItem(object, i))).get(),
                                   t.sources().make(SourceKind::DequeItem, source, i)));
    return list;
  }
  if (PyDict_Check(object) && PyDict_GET_SIZE(object) <= kLongContainer) {
    auto dict = std::make_shared<DictValue>();
    dict->source = source;
    dict->real = Ref<>::borrow(object);
    dict->opened = false;
    add_guard(t, GuardKind::TypeIs, source, reinterpret_cast<PyObject*>(Py_TYPE(object)));
    if (PyODict_Check(object)) dict->type = Ref<>::borrow(reinterpret_cast<PyObject*>(&PyODict_Type));
    if (PyObject* type = defaultdict_type(); PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(type))) {
      dict->type = Ref<>::borrow(type);
      static PyObject* const name = PyUnicode_InternFromString("default_factory");
      Ref<> factory = t.keep(Ref<>::steal(PyObject_GenericGetAttr(object, name)));
      if (factory && factory.get() != Py_None)
        dict->default_factory = t.wrap(factory.get(), t.sources().make(SourceKind::SlotMember, source, 0, name));
    }
    return dict;
  }
  if (PyAnySet_Check(object) && PySet_GET_SIZE(object) <= kLongContainer) {
    Ref<> items = elements_of(object);
    for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items.get()); ++i) {
      PyObject* item = PyList_GET_ITEM(items.get(), i);
      const bool known = is_plain(item) || ((PyTuple_CheckExact(item) || is_itself_alone(item)) &&
                                            t.constant_object(wrap_constant(t, item)));
      if (!known) return nullptr;
    }
    auto set = std::make_shared<SetValue>(PyFrozenSet_Check(object));
    set->source = source;
    set->real = Ref<>::steal(set->frozen ? PyFrozenSet_New(object) : PySet_New(object));
    add_guard(t, GuardKind::TypeIs, source, reinterpret_cast<PyObject*>(Py_TYPE(object)));
    add_guard(t, GuardKind::Elements, source, items.get());
    Ref<> copied = Ref<>::steal(PySequence_List(set->real.get()));
    set->ordered = copied && PyObject_RichCompareBool(items.get(), copied.get(), Py_EQ) == 1;
    return set;
  }
  PyErr_Clear();
  return nullptr;
}

V builtin_part(TraceRun& t, const V& value) {
  if (auto* instance = as<InstanceValue>(value)) return instance->contents;
  auto* object = as<ObjectValue>(value);
  if (!object || !object->source) return object ? object->contents : nullptr;
  if (object->contents) return object->contents;
  PyObject* real = object->object.get();
  if (!PyDict_Check(real) && !PyList_Check(real) && !PyAnySet_Check(real) && !PyTuple_Check(real)) return nullptr;
  t.type_of(value);
  object->contents = wrap_builtin(t, real, value->source);
  return object->contents;
}

// ---- items

std::vector<V> TraceRun::sequence_items(const V& value) {
  switch (value->kind) {
    case ValueKind::Tuple:
      if (as<TupleValue>(value)->view_of) refresh_view(*this, *as<TupleValue>(value));
      return as<TupleValue>(value)->items;
    case ValueKind::List: return as<ListValue>(value)->items;
    case ValueKind::Array: return array_iterate(*this, value);
    case ValueKind::Dict: {
      std::vector<V> keys;
      open(*this, *as<DictValue>(value));
      for (auto& [key, item] : as<DictValue>(value)->items) keys.push_back(wrap_constant(*this, key.get()));
      return keys;
    }
    default: {
      return drained(*this, make_iterator(*this, value));
    }
  }
}

V read_as_dict(TraceRun& tracer, const V& mapping) {
  if (mapping->kind == ValueKind::Dict) return mapping;
  if (mapping->kind != ValueKind::Object && mapping->kind != ValueKind::Instance) return nullptr;
  static PyObject* const iter_name = PyUnicode_InternFromString("__iter__");
  PyTypeObject* type = tracer.type_of(mapping);
  class_attribute(tracer, type, iter_name);
  V part = PyType_IsSubtype(type, &PyDict_Type) && type->tp_iter == PyDict_Type.tp_iter ? builtin_part(tracer, mapping)
                                                                                        : nullptr;
  return as<DictValue>(part) ? part : nullptr;
}

std::vector<V> drained(TraceRun& tracer, const V& iterator) {
  std::vector<V> items;
  while (V item = next(tracer, iterator)) {
    items.push_back(item);
    tracer.check_limits();
  }
  return items;
}

std::vector<std::pair<V, V>> mapping_items(TraceRun& t, const V& mapping) {
  std::vector<std::pair<V, V>> items;
  if (V part = read_as_dict(t, mapping)) {
    auto* dict = as<DictValue>(part);
    open(t, *dict);
    for (auto& [key, value] : dict->items) items.emplace_back(wrap_constant(t, key.get()), value);
    return items;
  }
  static PyObject* const keys_name = PyUnicode_InternFromString("keys");
  V keys = mapping->kind == ValueKind::Object || mapping->kind == ValueKind::Instance
               ? find_attribute(t, mapping, keys_name)
               : nullptr;
  if (!keys) break_graph(BreakReason::UnsupportedObject, "unpacks " + describe(mapping) + " as a mapping");
  // All keys, then the items.
  for (const V& key : listed_items(t, make_iterator(t, t.call(keys, {}, {}))))
    items.emplace_back(key, t.get_item(mapping, key));
  return items;
}

V make_measured_iterator(TraceRun& t, const V& value) {
  V iterator = make_iterator(t, value);
  if (value->kind != ValueKind::Object && value->kind != ValueKind::Instance) return iterator;
  V method = python_method(t, value, "__len__");
  if (!method) method = python_method(t, value, "__length_hint__");
  if (!method) return iterator;
  auto size = t.constant_int(t.call(method, {}, {}));
  if (!size || *size < 0) break_graph(BreakReason::ErrorWhileTracing, "a length that is none");
  return iterator;
}

std::vector<V> listed_items(TraceRun& t, const V& value) {
  if (value->kind != ValueKind::Object && value->kind != ValueKind::Instance) return t.sequence_items(value);
  return drained(t, make_measured_iterator(t, value));
}

V length(TraceRun& t, const V& value) {
  switch (value->kind) {
    case ValueKind::Tuple: return t.integer(std::int64_t(t.sequence_items(value).size()));
    case ValueKind::List:
      if (V unseen = unopened_length(t, value)) return unseen;
      return t.integer(std::int64_t(as<ListValue>(value)->items.size()));
    case ValueKind::Set: return t.integer(std::int64_t(PySet_GET_SIZE(as<SetValue>(value)->real.get())));
    case ValueKind::Dict: {
      auto& dict = *as<DictValue>(value);
      if (dict.opened) return t.integer(std::int64_t(dict.items.size()));
      add_guard(t, GuardKind::Length, dict.source, nullptr, PyDict_GET_SIZE(dict.real.get()));
      return t.integer(std::int64_t(PyDict_GET_SIZE(dict.real.get())));
    }
    case ValueKind::Array: return array_length(t, value);
    case ValueKind::Range: {
      auto& range = *as<RangeValue>(value);
      const auto known = [&](const SymDim& bound) { return *t.constant_int(t.integer(bound)); };
      std::int64_t fits;
      if (range.start.is_constant() && range.stop.is_constant() &&
          __builtin_sub_overflow(known(range.stop), known(range.start), &fits))
        break_graph(BreakReason::UnsupportedObject, "the length of a range as long as this");
      const SymDim distance = range.step > 0 ? range.stop - range.start : range.start - range.stop;
      if (!t.decide(distance, Py_GT, 0)) return t.integer(std::int64_t(0));
      if (range.step == 1 || range.step == -1) return t.integer(distance);
      const std::int64_t count = *t.constant_int(t.integer(distance));
      // Without a sum or a sign that might not fit.
      return t.integer(1 + std::int64_t(std::uint64_t(count - 1) / (range.step < 0 ? 0 - std::uint64_t(range.step)
                                                                                   : std::uint64_t(range.step))));
    }
    default: break;
  }
  if (value->kind == ValueKind::Object || value->kind == ValueKind::Instance) {
    if (V method = python_method(t, value, "__len__")) {
      V size = index_number(t, t.call(method, {}, {}));
      if (auto known = t.constant_int(size); known && *known >= 0) return size;
      break_graph(BreakReason::ErrorWhileTracing, "a length that is none");
    }
    if (V part = builtin_part(t, value)) return length(t, part);
    if (V length = string_length(t, value)) return length;
    Ref<> object = t.constant_object(number_part(t, value));
    if (object && (is_plain(object.get()) || Py_TYPE(object.get()) == &PyType_Type)) {
      const Py_ssize_t size = PyObject_Size(object.get());
      if (size >= 0) return t.integer(std::int64_t(size));
      raise_python_error(t);
    }
    if (V mapping = proxied_mapping(t, value)) return length(t, mapping);
  }
  break_graph(BreakReason::UnsupportedObject, "len() of " + describe(value));
}

V TraceRun::get_item(const V& container, const V& key) {
  switch (container->kind) {
    case ValueKind::Builtin: {
      auto& part = *as<BuiltinValue>(container);
      if (part.owner->kind != ValueKind::Array) break;
      const auto array = std::static_pointer_cast<ArrayValue>(part.owner);
      PyObject* name = part.name == "flags" ? constant_object(key) : nullptr;
      if (name && PyUnicode_Check(name)) return numpy_flag(*this, array, text_of(name));
      if (part.name == "flat") return numpy_flat_item(*this, array, key);
      break;
    }
    case ValueKind::Array:
      return array_get_item(
          *this, container,
          key->kind == ValueKind::Instance || key->kind == ValueKind::Object ? index_number(*this, key) : key);
    case ValueKind::Tuple:
      if (as<TupleValue>(container)->view_of) break;
      [[fallthrough]];
    case ValueKind::List: {
      if (auto* unseen = unopened_list(container); unseen && key->kind == ValueKind::Object) {
        // One that was appended, counted from the end.
        const auto place = constant_int(key);
        if (place && *place < 0 && -*place <= std::int64_t(unseen->items.size()))
          return unseen->items[unseen->items.size() - std::size_t(-*place)];
      }
      if (V item = item_of(*this, container, key)) return item;
      std::vector<V> items = sequence_items(container);
      auto* list = as<ListValue>(container);
      if (key->kind != ValueKind::Slice)
        return items[index_of(*this, key, items.size(),
                              !list        ? "tuple index out of range"
                              : list->type ? "deque index out of range"
                                           : "list index out of range")];
      if (list && list->type) break;
      const Bounds bounds = slice_of(*this, key, items.size());
      std::vector<V> part;
      for (Py_ssize_t i = 0; i < bounds.count; ++i) part.push_back(items[bounds.start + i * bounds.step]);
      if (list) return Tracer::list(part);
      if (!as<TupleValue>(container)->type && bounds.start == 0 && bounds.step == 1 && part.size() == items.size())
        return container;
      auto tuple = std::make_shared<TupleValue>();
      tuple->items = std::move(part);
      auto& whole = *as<TupleValue>(container);
      // torch.Size stays one; a slice of a named tuple is a tuple.
      if (whole.type && !std::strcmp(reinterpret_cast<PyTypeObject*>(whole.type.get())->tp_name, "torch.Size"))
        tuple->type = whole.type;
      return tuple;
    }
    case ValueKind::Dict: {
      auto& dict = *as<DictValue>(container);
      if (V item = item_of(*this, container, key)) return item;
      V found = dict_find(*this, dict, dict_key(*this, container, key).get());
      if (found) return found;
      if (!dict.default_factory) no_key(*this, key);
      const std::size_t before = dict.items.size();  // where the factory stores nothing, keys are asked no more often
      V made = call(dict.default_factory, {}, {});
      if (fj_missing_stores_itself() && dict.items.size() != before)
        if (V stored = dict_find(*this, dict, dict_key(*this, container, key).get())) return stored;
      dict_store(*this, container, dict_key(*this, container, key), made);
      return made;
    }
    case ValueKind::Range: {
      auto& range = *as<RangeValue>(container);
      if (key->kind == ValueKind::Slice) {
        const Bounds bounds = slice_of(*this, key, std::size_t(*constant_int(length(*this, container))));
        auto part = std::make_shared<RangeValue>();
        part->start = range.start + SymDim(bounds.start * range.step);
        part->step = range.step * bounds.step;
        part->stop = part->start + SymDim(bounds.count * part->step);
        // As CPython computes the end: by the adjusted bounds, not by the last element.
        part->stop = range.start + SymDim(bounds.stop * range.step);
        return part;
      }
      auto index = int_expression(index_number(*this, key));
      if (!index) break;
      auto size = int_expression(length(*this, container));
      SymDim position = decide(*index, Py_LT, 0) ? *index + *size : *index;
      if (decide(position, Py_LT, 0) || !decide(position, Py_LT, *size))
        raise(*this, PyExc_IndexError, {string("range object index out of range")}, BreakReason::ErrorWhileTracing,
              "index out of range");
      return integer(range.start + position * SymDim(range.step));
    }
    case ValueKind::Object: case ValueKind::Instance: {
      if (V method = python_method(*this, container, "__getitem__")) return call(method, {key}, {});
      if (V part = builtin_part(*this, container)) {
        auto* dict = as<DictValue>(part);
        if (!dict) return on_part_of(container, [&] { return get_item(part, key); });
        if (V found = dict_find(*this, *dict, constant_key(*this, key).get())) return found;
        if (V missing = python_method(*this, container, "__missing__")) return call(missing, {key}, {});
        if (!dict->default_factory) no_key(*this, key);
        const std::size_t before = dict->items.size();
        V made = call(dict->default_factory, {}, {});
        if (fj_missing_stores_itself()) {
          if (dict->items.size() != before)
            if (V stored = dict_find(*this, *dict, constant_key(*this, key).get())) return stored;
          set_item(*this, part, key, made);
        } else {
          set_item(*this, container, key, made);  // by the class's own __setitem__
        }
        return made;
      }
      if (auto* object = as<ObjectValue>(container); object && PyType_Check(object->object.get())) {
        // list[int], Generic[T]
        static PyObject* const name = PyUnicode_InternFromString("__class_getitem__");
        PyObject* subscripted = constant_object(container);
        PyObject* argument = type_expression(*this, key);
        PyObject* method =
            subscripted ? class_attribute(*this, reinterpret_cast<PyTypeObject*>(subscripted), name) : nullptr;
        if (method && argument) {
          const bool of_typing = Py_TYPE(method) == &PyClassMethodDescr_Type || is_of_typing(method);
          Ref<> result = of_typing ? Ref<>::steal(PyObject_GetItem(subscripted, argument)) : Ref<>();
          if (result) return wrap_constant(*this, keep(result).get());
          PyErr_Clear();
        }
        break;
      }
      if (V mapping = proxied_mapping(*this, container)) return get_item(mapping, key);
      if (auto* held = as<ObjectValue>(container);
          held && (PyUnicode_CheckExact(held->object.get()) || is_match(held->object.get()))) {
        PyObject* const item = once([] { return operator_function("getitem"); });
        if (V made = PyUnicode_CheckExact(held->object.get()) ? result_of(*this, item, {container, key})
                                                              : made_by(*this, item, {container, key}))
          return made;
      }
      PyObject* left = constant_object(container);
      PyObject* right = left && is_plain(left)
                            ? constant_object(key->kind == ValueKind::Object || key->kind == ValueKind::Slice
                                                  ? key
                                                  : index_number(*this, key))
                            : nullptr;
      if (left && right && is_plain(left)) {
        Ref<> result = Ref<>::steal(PyObject_GetItem(left, right));
        if (!result && builtin_part(*this, key))
          break_graph(BreakReason::ErrorWhileTracing, take_error());  // it would name the part's class
        if (!result) raise_python_error(*this);
        return wrap_constant(*this, keep(result).get());
      }
      break;
    }
    default: break;
  }
  break_graph(BreakReason::UnsupportedObject, "an item of " + describe(container));
}

void set_item(TraceRun& t, const V& container, const V& key, const V& value) {
  switch (container->kind) {
    case ValueKind::Array: return array_set_item(t, container, key, value);
    case ValueKind::Builtin:
      if (auto& part = *as<BuiltinValue>(container); part.owner->kind == ValueKind::Array && part.name == "flat")
        return numpy_set_flat(t, std::static_pointer_cast<ArrayValue>(part.owner), key, value);
      break;
    case ValueKind::List: return list_set_item(t, container, key, value);
    case ValueKind::Dict:
      open(t, *as<DictValue>(container));
      return dict_store(t, container, dict_key(t, container, key), value);
    case ValueKind::Object: case ValueKind::Instance: {
      if (V method = python_method(t, container, "__setitem__")) {
        t.call(method, {key, value}, {});
        return;
      }
      if (V part = builtin_part(t, container)) return set_item(t, part, key, value);
      break;
    }
    default: break;
  }
  break_graph(BreakReason::UnsupportedObject, "assigns an item of " + describe(container));
}

void delete_item(TraceRun& t, const V& container, const V& key) {
  if (container->kind == ValueKind::List) return list_delete_item(t, container, key);
  if (auto* dict = as<DictValue>(container)) {
    open(t, *dict);
    Ref<> wanted = dict_key(t, container, key);
    const std::size_t place = dict_place(t, *dict, wanted.get());
    if (place == dict->items.size()) no_key(t, key);
    return dict_erase(t, container, place);
  }
  if (container->kind == ValueKind::Object || container->kind == ValueKind::Instance) {
    if (V method = python_method(t, container, "__delitem__")) {
      t.call(method, {key}, {});
      return;
    }
    if (V part = builtin_part(t, container)) return delete_item(t, part, key);
  }
  break_graph(BreakReason::UnsupportedObject, "deletes an item of " + describe(container));
}

void no_key(TraceRun& t, const V& key) {
  raise(t, PyExc_KeyError, {key}, BreakReason::ErrorWhileTracing, "a key that is not there");
}

V container_method(TraceRun& t, const V& owner, const std::string& name, std::vector<V>& positional,
                   Keywords& keywords) {
  V result;
  switch (owner->kind) {
    case ValueKind::Dict: result = dict_method(t, owner, name, positional, keywords); break;
    case ValueKind::List: result = list_method(t, owner, name, positional, keywords); break;
    case ValueKind::Set:
      if (keywords.empty()) result = set_method(t, owner, name, positional);
      break;
    case ValueKind::Tuple:
      if (keywords.empty())
        result = as<TupleValue>(owner)->view_of ? view_method(t, owner, name, positional)
                                                : sequence_method(t, owner, name, positional);
      break;
    default: break;
  }
  if (!result && keywords.empty()) {
    const std::size_t count = positional.size();
    if (name == "__len__" && count == 0) result = length(t, owner);
    if (name == "__getitem__" && count == 1) result = t.get_item(owner, positional[0]);
    if (name == "__setitem__" && count == 2) {
      set_item(t, owner, positional[0], positional[1]);
      result = t.none();
    }
    if (name == "__delitem__" && count == 1) {
      delete_item(t, owner, positional[0]);
      result = t.none();
    }
    if (name == "__contains__" && count == 1) result = contains(t, owner, positional[0]);
    if (name == "__iter__" && count == 0) result = make_iterator(t, owner);
    if (name == "__reversed__" && count == 0)
      result = t.call(wrap_constant(t, PyDict_GetItemString(PyEval_GetBuiltins(), "reversed")), {owner}, {});
    if (!result && count == 1) result = operator_method(t, name, owner, positional[0]);
    if (name == "__hash__" && count == 0) result = hash_of(t, owner);
    if (name == "__repr__" && count == 0)
      result = t.call(wrap_constant(t, PyDict_GetItemString(PyEval_GetBuiltins(), "repr")), {owner}, {});
    if (!result && name == "numel" && owner->kind == ValueKind::Tuple && count == 0) {
      V total = t.integer(std::int64_t(1));
      for (const V& item : as<TupleValue>(owner)->items) total = t.binary(NB_MULTIPLY, total, item);
      result = total;
    }
  }
  if (!result) break_graph(BreakReason::UnsupportedObject, "method " + name + " of " + describe(owner));
  return result;
}

PyObject* type_expression(TraceRun& t, const V& value) {
  if (PyObject* constant = t.constant_object(value)) return constant;
  if (auto* tuple = as<TupleValue>(value); tuple && !tuple->type) {
    Ref<> made = Ref<>::steal(PyTuple_New(Py_ssize_t(tuple->items.size())));
    for (std::size_t i = 0; i < tuple->items.size(); ++i) {
      PyObject* item = type_expression(t, tuple->items[i]);
      if (!item) return nullptr;
      PyTuple_SET_ITEM(made.get(), Py_ssize_t(i), Py_NewRef(item));
    }
    return t.keep(made).get();
  }
  auto* held = as<ObjectValue>(value);
  if (!held) return nullptr;
  PyObject* object = held->object.get();
  if (Py_TYPE(object) != &Py_GenericAliasType && !is_union(object)) return nullptr;
  if (held->source && held->source->kind != SourceKind::Constant)
    add_guard(t, GuardKind::Identity, held->source, object);
  return object;
}

bool is_of_typing(PyObject* method) {
  Ref<> function = Py_TYPE(method) == &PyClassMethod_Type ? Ref<>::steal(PyObject_GetAttrString(method, "__func__"))
                                                          : Ref<>::borrow(method);
  PyObject* callable = function.get();
  Ref<> module = Ref<>::steal(PyObject_GetAttrString(callable, "__module__"));
  PyErr_Clear();
  const std::string name = module && PyUnicode_Check(module.get()) ? text_of(module.get()) : "";
  return name == "typing" || name == "types";
}

V hash_of(TraceRun& t, const V& value) {
  Ref<> key = constant_key(t, value);
  if (hashes_by_address(key.get()) ||
      !(is_plain(key.get()) || PyTuple_Check(key.get()) || PyAnySet_Check(key.get()) || proxied(key.get())))
    break_graph(BreakReason::UnsupportedObject, "the hash of " + describe(value));
  const Py_hash_t hash = PyObject_Hash(key.get());
  check_proxies();
  return t.integer(std::int64_t(hash));
}

V identity_number(TraceRun& t, const V& value) {
  // A constant has several Values; the object is one.
  auto* object = as<ObjectValue>(value);
  if (object && object->source && is_plain(object->object.get())) guard_value(t, *object);
  V& number = t.identity->numbers[object ? static_cast<void*>(object->object.get()) : static_cast<void*>(value.get())];
  if (!number) {
    auto made = std::make_shared<InstanceValue>();
    made->type = Ref<PyTypeObject>::borrow(&PyLong_Type);
    met_identity_number = true;
    made->raised = true;  // has no value that could be handed to Python
    number = made;
    t.identity->numbered.push_back(value);
  }
  return number;
}

}  // namespace fj
