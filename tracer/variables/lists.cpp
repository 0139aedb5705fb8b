/// Lists, deques and tuples: items and methods.
#include <algorithm>
#include <cstring>

#include "tracer/interpreter.h"
#include "tracer/variables/containers.h"

namespace fj {
namespace {

/// A bounded deque drops from the other end.
void trim(ListValue& list, bool from_left) {
  while (list.longest && std::int64_t(list.items.size()) > *list.longest)
    list.items.erase(from_left ? list.items.begin() : list.items.end() - 1);
}

[[noreturn]] void value_error(TracerImpl& tracer, const std::string& message) {
  tracer.raise(PyExc_ValueError, {tracer.tracer.string(message)}, BreakReason::ErrorWhileTracing, message);
}

bool equal(TracerImpl& tracer, const V& a, const V& b) { return a == b || tracer.truth(tracer.compare(Py_EQ, a, b)); }

/// What only a deque has, or does in its own way.
V deque_method(TracerImpl& tracer, const V& owner, const std::string& name, std::vector<V>& arguments) {
  auto& list = *as<ListValue>(owner);
  auto& items = list.items;
  const std::size_t count = arguments.size();
  if ((name == "append" || name == "appendleft") && count == 1) {
    tracer.note_mutation(owner);
    items.insert(name == "append" ? items.end() : items.begin(), arguments[0]);
    trim(list, name == "append");
    return tracer.none;
  }
  if ((name == "extend" || name == "extendleft") && count == 1) {
    std::vector<V> fresh = tracer.sequence_items(arguments[0]);
    tracer.note_mutation(owner);
    for (const V& item : fresh) {
      items.insert(name == "extend" ? items.end() : items.begin(), item);
      trim(list, name == "extend");
    }
    return tracer.none;
  }
  if ((name == "pop" || name == "popleft") && count == 0) {
    if (items.empty()) tracer.raise(PyExc_IndexError, {tracer.tracer.string("pop from an empty deque")}, BreakReason::ErrorWhileTracing, "pop from an empty deque");
    tracer.note_mutation(owner);
    auto place = name == "pop" ? items.end() - 1 : items.begin();
    V item = *place;
    items.erase(place);
    return item;
  }
  if (name == "rotate" && count <= 1) {
    auto steps = count ? tracer.tracer.constant_int(tracer.index_number(arguments[0])) : std::optional<std::int64_t>(1);
    if (!steps) return nullptr;
    if (items.empty()) return tracer.none;
    tracer.note_mutation(owner);
    const auto size = std::int64_t(items.size());
    const std::int64_t shift = ((*steps % size) + size) % size;
    std::rotate(items.begin(), items.end() - shift, items.end());
    return tracer.none;
  }
  if ((name == "copy" || name == "__copy__") && count == 0) {
    auto copy = std::make_shared<ListValue>();
    copy->items = items;
    copy->type = list.type;
    copy->longest = list.longest;
    return copy;
  }
  if (name == "insert" && list.longest && std::int64_t(items.size()) >= *list.longest)
    tracer.raise(PyExc_IndexError, {tracer.tracer.string("deque already at its maximum size")}, BreakReason::ErrorWhileTracing, "a full deque");
  if (name == "remove" && count == 1) {
    for (std::size_t i = 0; i < items.size(); ++i)
      if (equal(tracer, items[i], arguments[0])) {
        tracer.note_mutation(owner);
        items.erase(items.begin() + std::ptrdiff_t(i));
        return tracer.none;
      }
    break_graph(BreakReason::ErrorWhileTracing, "a value that is not there");
  }
  return nullptr;
}

}  // namespace

V list_method(TracerImpl& tracer, const V& owner, const std::string& name, std::vector<V>& arguments, Keywords& keywords) {
  auto& list = *as<ListValue>(owner);
  auto& items = list.items;
  const std::size_t count = arguments.size();
  const bool deque = bool(list.type);
  if (name == "sort" && count == 0 && !deque) {
    // Empty while it is sorted, as CPython has it; the keys and comparisons may look.
    V snapshot = tracer.tracer.list(items);
    V sorted = tracer.call(tracer.wrap_constant(PyDict_GetItemString(PyEval_GetBuiltins(), "sorted")), {snapshot}, keywords);
    tracer.note_mutation(owner);
    items = as<ListValue>(sorted)->items;
    return tracer.none;
  }
  if (!keywords.empty()) return nullptr;
  if (deque)
    if (V done = deque_method(tracer, owner, name, arguments)) return done;
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
    auto index = tracer.tracer.constant_int(tracer.index_number(arguments[0]));
    if (!index) return nullptr;
    tracer.note_mutation(owner);
    std::int64_t position = *index < 0 ? *index + std::int64_t(items.size()) : *index;
    position = std::clamp<std::int64_t>(position, 0, std::int64_t(items.size()));
    items.insert(items.begin() + position, arguments[1]);
    return tracer.none;
  }
  if (name == "pop" && count <= 1 && !deque) {
    if (items.empty()) tracer.raise(PyExc_IndexError, {tracer.tracer.string("pop from empty list")}, BreakReason::ErrorWhileTracing, "pop from empty list");
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
  if (name == "copy" && count == 0 && !deque) return tracer.tracer.list(items);
  if (name == "remove" && count == 1) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (!equal(tracer, items[i], arguments[0])) continue;
      tracer.note_mutation(owner);
      items.erase(items.begin() + std::ptrdiff_t(i));
      return tracer.none;
    }
    value_error(tracer, "list.remove(x): x not in list");
  }
  if (name == "__init__" && count <= 1 && !deque) {
    std::vector<V> fresh = count ? tracer.sequence_items(arguments[0]) : std::vector<V>();
    if (items.empty() && fresh.empty()) return tracer.none;
    tracer.note_mutation(owner);
    items = std::move(fresh);
    return tracer.none;
  }
  return sequence_method(tracer, owner, name, arguments);
}

V sequence_method(TracerImpl& tracer, const V& owner, const std::string& name, std::vector<V>& arguments) {
  const std::size_t count = arguments.size();
  if (name == "count" && count == 1) {
    std::int64_t seen = 0;
    for (const V& item : tracer.sequence_items(owner)) seen += equal(tracer, item, arguments[0]);
    return tracer.tracer.integer(seen);
  }
  if (name == "index" && count >= 1 && count <= 3) {
    std::vector<V> items = tracer.sequence_items(owner);
    const auto size = std::int64_t(items.size());
    std::int64_t bounds[2] = {0, size};
    for (std::size_t i = 1; i < count; ++i) {
      auto given = tracer.tracer.constant_int(tracer.index_number(arguments[i]));
      if (!given) return nullptr;
      bounds[i - 1] = std::clamp<std::int64_t>(*given < 0 ? *given + size : *given, 0, size);
    }
    for (std::int64_t i = bounds[0]; i < bounds[1]; ++i)
      if (equal(tracer, items[std::size_t(i)], arguments[0])) return tracer.tracer.integer(i);
    if (owner->kind == ValueKind::Tuple) value_error(tracer, "tuple.index(x): x not in tuple");
    PyObject* wanted = tracer.constant_object(arguments[0]);
    if (!wanted || !is_plain(wanted)) break_graph(BreakReason::ErrorWhileTracing, "a value that is not there");
    Ref<> text = Ref<>::steal(PyObject_Repr(wanted));
    value_error(tracer, text_of(text.get()) + (as<ListValue>(owner)->type ? " is not in deque" : " is not in list"));
  }
  return nullptr;
}

/// An index or the items of a value may run code of the user's, which may change the list itself.
void unchanged(const std::vector<V>& items, std::size_t size) {
  if (items.size() != size) break_graph(BreakReason::UnsupportedObject, "a list that changes while it is assigned to");
}

void list_set_item(TracerImpl& tracer, const V& owner, const V& key, const V& value) {
  auto& list = *as<ListValue>(owner);
  auto& items = list.items;
  if (key->kind != ValueKind::Slice) {
    const std::size_t size = items.size();
    const std::size_t index = index_of(tracer, key, size, list.type ? "deque index out of range" : "list assignment index out of range");
    unchanged(items, size);
    tracer.note_mutation(owner);
    items[index] = value;
    return;
  }
  if (list.type) break_graph(BreakReason::ErrorWhileTracing, "a slice of a deque");
  const std::size_t size = items.size();
  const Bounds bounds = slice_of(tracer, key, size);
  std::vector<V> fresh = tracer.sequence_items(value);
  unchanged(items, size);
  if (bounds.step == 1) {
    const Py_ssize_t stop = std::max(bounds.start, bounds.stop);
    tracer.note_mutation(owner);
    items.erase(items.begin() + bounds.start, items.begin() + stop);
    items.insert(items.begin() + bounds.start, fresh.begin(), fresh.end());
    return;
  }
  if (Py_ssize_t(fresh.size()) != bounds.count)
    value_error(tracer, "attempt to assign sequence of size " + std::to_string(fresh.size()) + " to extended slice of size " + std::to_string(bounds.count));
  tracer.note_mutation(owner);
  for (Py_ssize_t i = 0; i < bounds.count; ++i) items[std::size_t(bounds.start + i * bounds.step)] = fresh[std::size_t(i)];
}

void list_delete_item(TracerImpl& tracer, const V& owner, const V& key) {
  auto& list = *as<ListValue>(owner);
  auto& items = list.items;
  if (key->kind != ValueKind::Slice) {
    const std::size_t size = items.size();
    const std::size_t index = index_of(tracer, key, size, list.type ? "deque index out of range" : "list assignment index out of range");
    unchanged(items, size);
    tracer.note_mutation(owner);
    items.erase(items.begin() + std::ptrdiff_t(index));
    return;
  }
  if (list.type) break_graph(BreakReason::ErrorWhileTracing, "a slice of a deque");
  const std::size_t size = items.size();
  const Bounds bounds = slice_of(tracer, key, size);
  unchanged(items, size);
  if (bounds.count == 0) return;
  std::vector<bool> gone(items.size());
  for (Py_ssize_t i = 0; i < bounds.count; ++i) gone[std::size_t(bounds.start + i * bounds.step)] = true;
  tracer.note_mutation(owner);
  std::vector<V> left;
  for (std::size_t i = 0; i < items.size(); ++i)
    if (!gone[i]) left.push_back(items[i]);
  items = std::move(left);
}

V make_deque(TracerImpl& tracer, PyTypeObject* type, std::vector<V> positional, Keywords keywords) {
  V from = positional.size() > 0 ? positional[0] : nullptr, longest = positional.size() > 1 ? positional[1] : nullptr;
  for (auto& [name, value] : keywords) (name == "iterable" ? from : longest) = value;
  auto deque = std::make_shared<ListValue>();
  deque->type = Ref<>::borrow(reinterpret_cast<PyObject*>(type));
  if (longest && !tracer.is_none(longest)) {
    auto number = tracer.tracer.constant_int(longest);
    if (!number || *number < 0) break_graph(BreakReason::ErrorWhileTracing, "a deque's maxlen");
    deque->longest = *number;
  }
  if (from) deque->items = tracer.sequence_items(from);
  trim(*deque, true);
  return deque;
}

}  // namespace fj
