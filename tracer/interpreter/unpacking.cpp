/// What takes values apart: unpacking and the patterns of `match`.
#include "tracer/interpreter/instructions.h"

#include <set>

#include "tracer/interpreter/exceptions.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/containers/containers.h"
#include "tracer/values/containers/iterators.h"
#include "tracer/values/outside_objects.h"

namespace fj {

namespace {

[[noreturn]] void wrong_number(TraceRun& tracer, const std::string& message) {
  raise(tracer, PyExc_ValueError, {tracer.string(message)}, BreakReason::ErrorWhileTracing,
        "wrong number of values to unpack");
}

/// The first `count` items an iterator gives.
std::vector<V> take(TraceRun& tracer, const V& iterator, int count, const char* at_least, int expected) {
  std::vector<V> items;
  while (int(items.size()) < count) {
    V item = next(tracer, iterator);
    if (!item)
      wrong_number(tracer, "not enough values to unpack (expected " + (at_least + std::to_string(expected)) + ", got " +
                               std::to_string(items.size()) + ")");
    items.push_back(item);
  }
  return items;
}

}  // namespace

void unpack_sequence(TraceRun& tracer, Frame& frame, int count) {
  const V given = pop(frame);
  const bool counts = given->kind != ValueKind::Array && fj_unpacking_counts(tracer.type_of(given));
  V iterator = make_iterator(tracer, given);
  std::vector<V> items = take(tracer, iterator, count, "", count);
  if (next(tracer, iterator)) {
    const std::string got = counts ? ", got " + std::to_string(count + 1 + int(drained(tracer, iterator).size())) : "";
    wrong_number(tracer, "too many values to unpack (expected " + std::to_string(count) + got + ")");
  }
  frame.stack.insert(frame.stack.end(), items.rbegin(), items.rend());
}

void unpack_ex(TraceRun& tracer, Frame& frame, int before, int after) {
  V iterator = make_iterator(tracer, pop(frame));
  std::vector<V> items = take(tracer, iterator, before, "at least ", before + after);
  std::vector<V> rest = drained(tracer, iterator);
  if (int(rest.size()) < after)
    wrong_number(tracer, "not enough values to unpack (expected at least " + std::to_string(before + after) + ", got " +
                             std::to_string(before + int(rest.size())) + ")");
  frame.stack.insert(frame.stack.end(), rest.rbegin(), rest.rbegin() + after);
  rest.resize(rest.size() - std::size_t(after));
  frame.stack.push_back(tracer.list(rest));
  frame.stack.insert(frame.stack.end(), items.rbegin(), items.rend());
}

V match_keys(TraceRun& tracer, const V& subject, const V& keys) {
  // subject.get(key, something nobody has)
  static PyObject* const get_name = PyUnicode_InternFromString("get");
  V get = find_attribute(tracer, subject, get_name);
  if (!get) break_graph(BreakReason::UnsupportedObject, "matches " + describe(subject) + " as a mapping");
  auto nothing = std::make_shared<InstanceValue>();
  nothing->type = Ref<PyTypeObject>::borrow(&PyBaseObject_Type);
  std::vector<V> values;
  Ref<> seen = Ref<>::steal(PySet_New(nullptr));
  for (const V& key : tracer.sequence_items(keys)) {
    Ref<> known = constant_key(tracer, key);
    if (PySet_Contains(seen.get(), known.get()) != 0)
      break_graph(BreakReason::ErrorWhileTracing, "a mapping pattern with a key twice");
    PySet_Add(seen.get(), known.get());
    V found = tracer.call(get, {key, nothing}, {});
    if (found == nothing) return tracer.none();
    values.push_back(found);
  }
  return tracer.tuple(std::move(values));
}

V match_class(TraceRun& tracer, const V& subject, const V& type, int positional, const V& names) {
  PyObject* real = tracer.constant_object(type);
  if (!real || !PyType_Check(real)) break_graph(BreakReason::UnsupportedObject, "matches " + describe(type));
  PyObject* isinstance = PyDict_GetItemString(PyEval_GetBuiltins(), "isinstance");
  if (!tracer.truth(tracer.call(wrap_constant(tracer, isinstance), {subject, type}, {}))) return tracer.none();
  std::vector<V> values, wanted;
  if (positional > 0) {
    auto* cls = reinterpret_cast<PyTypeObject*>(real);
    static PyObject* const match_args = PyUnicode_InternFromString("__match_args__");
    V fields = find_attribute(tracer, type, match_args);
    if (!fields) {
      // int(n), str(s), ...: the subject itself.
      constexpr unsigned long kMatchSelf = 1UL << 22;  // Py_TPFLAGS_MATCH_SELF, which no header of the API has
      if (positional != 1 || !(cls->tp_flags & kMatchSelf))
        break_graph(BreakReason::ErrorWhileTracing, "too many positional patterns");
      values.push_back(subject);
    } else {
      auto* tuple = as<TupleValue>(fields);
      if (!tuple || tuple->type || int(tuple->items.size()) < positional)
        break_graph(BreakReason::ErrorWhileTracing, "too many positional patterns");
      wanted.assign(tuple->items.begin(), tuple->items.begin() + positional);
    }
  }
  for (const V& name : tracer.sequence_items(names)) wanted.push_back(name);
  std::set<std::string> asked;
  for (const V& name : wanted) {
    PyObject* text = tracer.constant_object(name);
    if (!text || !PyUnicode_CheckExact(text) || !asked.insert(text_of(text)).second)
      break_graph(BreakReason::ErrorWhileTracing, "patterns of attributes that are none, or the same twice");
  }
  for (const V& name : wanted) {
    PyObject* text = tracer.constant_object(name);
    V found = text ? find_attribute(tracer, subject, text) : nullptr;
    if (!found) return tracer.none();
    values.push_back(found);
  }
  return tracer.tuple(std::move(values));
}

}  // namespace fj
