/// Lists, deques and tuples: items and methods.
#include "tracer/values/containers/lists.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "tracer/interpreter/exceptions.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/state/effect_log.h"
#include "tracer/values/containers/containers.h"
#include "tracer/values/containers/iterators.h"
#include "tracer/values/numbers/operators.h"
#include "tracer/values/proxies.h"

namespace fj {
namespace {

/// A bounded deque drops from the other end.
void trim(ListValue& list, bool from_left) {
  while (list.longest && std::int64_t(list.items.size()) > *list.longest)
    list.items.erase(from_left ? list.items.begin() : list.items.end() - 1);
}

[[noreturn]] void value_error(TraceRun& tracer, const std::string& message) {
  raise(tracer, PyExc_ValueError, {tracer.string(message)}, BreakReason::ErrorWhileTracing, message);
}

/// An index, a comparison or the items of a value may run code of the user's, which may change the list itself.
void unchanged(TraceRun& tracer, const V& list, const TraceRun::Mark& before) {
  if (tracer.written_since(list.get(), before))
    break_graph(BreakReason::UnsupportedObject, "a list that changes while it is looked at");
}

/// The first item that is equal; none: nothing is.
std::optional<std::size_t> find_equal(TraceRun& tracer, const V& owner, const V& wanted) {
  auto& items = as<ListValue>(owner)->items;
  const TraceRun::Mark before = tracer.mark();
  for (std::size_t i = 0; i < items.size(); ++i) {
    V item = items[i];
    const bool found = same_or_equal(tracer, item, wanted);
    unchanged(tracer, owner, before);
    if (found) return i;
  }
  return std::nullopt;
}

/// A place in a deque as the key of an effect.
Ref<> place_key(std::size_t place) { return Ref<>::steal(PyLong_FromSize_t(place)); }

void erase_at(TraceRun& tracer, const V& owner, std::size_t place) {
  auto& list = *as<ListValue>(owner);
  if (list.type)
    note_item(tracer, owner, place_key(place), nullptr);
  else
    note_items(tracer, owner);
  list.items.erase(list.items.begin() + std::ptrdiff_t(place));
}

/// As CPython takes the items of an argument: of a list, tuple or the like all at once, of anything else one after the
/// other, so that code which makes them sees what was done with those before.
template <class Use>
void for_each_item(TraceRun& tracer, const V& owner, const V& from, Use use) {
  const bool at_once =
      from->kind == ValueKind::List || from->kind == ValueKind::Tuple || from->kind == ValueKind::Array;
  if (at_once ? !python_method(tracer, from, "__iter__") : builtin_part(tracer, from) == owner) {
    for (const V& item : tracer.sequence_items(from)) use(item);
    return;
  }
  const bool deque = bool(as<ListValue>(owner)->type);
  V iterator = deque ? make_iterator(tracer, from) : make_measured_iterator(tracer, from);
  while (V item = next(tracer, iterator)) {
    use(item);
    tracer.check_limits();
  }
}

/// What only a deque has, or does in its own way.
V deque_method(TraceRun& tracer, const V& owner, const std::string& name, std::vector<V>& arguments) {
  auto& list = *as<ListValue>(owner);
  auto& items = list.items;
  const std::size_t count = arguments.size();
  if ((name == "append" || name == "appendleft") && count == 1) {
    note_call(tracer, owner, name.c_str(), {}, arguments);
    items.insert(name == "append" ? items.end() : items.begin(), arguments[0]);
    trim(list, name == "append");
    return tracer.none();
  }
  if ((name == "extend" || name == "extendleft") && count == 1) {
    const bool at_end = name == "extend";
    for_each_item(tracer, owner, arguments[0], [&](const V& item) {
      note_call(tracer, owner, at_end ? "append" : "appendleft", {}, {item});
      items.insert(at_end ? items.end() : items.begin(), item);
      trim(list, at_end);
    });
    return tracer.none();
  }
  if ((name == "pop" || name == "popleft") && count == 0) {
    if (items.empty())
      raise(tracer, PyExc_IndexError, {tracer.string("pop from an empty deque")}, BreakReason::ErrorWhileTracing,
            "pop from an empty deque");
    note_call(tracer, owner, name.c_str(), {}, {});
    auto place = name == "pop" ? items.end() - 1 : items.begin();
    V item = *place;
    items.erase(place);
    return item;
  }
  if (name == "rotate" && count <= 1) {
    auto steps = count ? tracer.constant_int(index_number(tracer, arguments[0])) : std::optional<std::int64_t>(1);
    if (!steps) return nullptr;
    note_call(tracer, owner, "rotate", {}, {tracer.integer(*steps)});
    if (items.empty()) return tracer.none();
    const auto size = std::int64_t(items.size());
    const std::int64_t shift = ((*steps % size) + size) % size;
    std::rotate(items.begin(), items.end() - shift, items.end());
    return tracer.none();
  }
  if ((name == "copy" || name == "__copy__") && count == 0) {
    auto copy = std::make_shared<ListValue>();
    copy->items = items;
    copy->type = list.type;
    copy->longest = list.longest;
    return copy;
  }
  if (name == "insert" && list.longest && std::int64_t(items.size()) >= *list.longest)
    raise(tracer, PyExc_IndexError, {tracer.string("deque already at its maximum size")},
          BreakReason::ErrorWhileTracing, "a full deque");
  if (name == "remove" && count == 1) {
    if (auto place = find_equal(tracer, owner, arguments[0])) {
      erase_at(tracer, owner, *place);
      return tracer.none();
    }
    break_graph(BreakReason::ErrorWhileTracing, "a value that is not there");
  }
  return nullptr;
}

}  // namespace

void list_append(TraceRun& tracer, const V& owner, const V& item) {
  if (auto* unseen = unopened_list(owner)) {
    note_call(tracer, owner, "append", {}, {item});
    unseen->items.push_back(item);
    return;
  }
  note_items(tracer, owner);
  as<ListValue>(owner)->items.push_back(item);
}

V list_method(TraceRun& tracer, const V& owner, const std::string& name, std::vector<V>& arguments,
              Keywords& keywords) {
  if (unopened_list(owner) && name == "append" && arguments.size() == 1 && keywords.empty()) {
    list_append(tracer, owner, arguments[0]);
    return tracer.none();
  }
  auto& list = *as<ListValue>(owner);
  auto& items = list.items;
  const std::size_t count = arguments.size();
  const bool deque = bool(list.type);
  if (name == "sort" && count == 0 && !deque) {
    V key, reverse;
    for (auto& [given, value] : keywords) {
      if (given != "key" && given != "reverse") return nullptr;
      (given == "key" ? key : reverse) = value;
    }
    const bool descending = reverse && tracer.truth(reverse);
    // Empty while it is sorted: keys and comparisons may look. What they put into it is lost.
    struct Lent {
      std::vector<V>& items;
      std::vector<V> sorted;
      ~Lent() { items = std::move(sorted); }
    };
    note_items(tracer, owner);
    const TraceRun::Mark before = tracer.mark();
    bool changed;
    {
      Lent lent{items, std::exchange(items, {})};
      sort(tracer, lent.sorted, key, descending);
      changed = !items.empty();
    }
    if (changed) value_error(tracer, "list modified during sort");
    if (tracer.written_since(owner.get(), before))
      break_graph(BreakReason::UnsupportedObject, "a list that changes while it is sorted");
    return tracer.none();
  }
  if (!keywords.empty()) return nullptr;
  if (deque)
    if (V done = deque_method(tracer, owner, name, arguments)) return done;
  if (name == "append" && count == 1) {
    list_append(tracer, owner, arguments[0]);
    return tracer.none();
  }
  if (name == "extend" && count == 1) {
    for_each_item(tracer, owner, arguments[0], [&](const V& item) {
      note_items(tracer, owner);
      items.push_back(item);
    });
    return tracer.none();
  }
  if (name == "insert" && count == 2) {
    auto index = tracer.constant_int(index_number(tracer, arguments[0]));
    if (!index) return nullptr;
    if (deque)
      note_call(tracer, owner, "insert", {}, {tracer.integer(*index), arguments[1]});
    else
      note_items(tracer, owner);
    std::int64_t position = *index < 0 ? *index + std::int64_t(items.size()) : *index;
    position = std::clamp<std::int64_t>(position, 0, std::int64_t(items.size()));
    items.insert(items.begin() + position, arguments[1]);
    return tracer.none();
  }
  if (name == "pop" && count <= 1 && !deque) {
    if (items.empty())
      raise(tracer, PyExc_IndexError, {tracer.string("pop from empty list")}, BreakReason::ErrorWhileTracing,
            "pop from empty list");
    const TraceRun::Mark before = tracer.mark();
    const std::size_t index =
        count ? index_of(tracer, arguments[0], items.size(), "pop index out of range") : items.size() - 1;
    unchanged(tracer, owner, before);
    note_items(tracer, owner);
    V item = items[index];
    items.erase(items.begin() + std::ptrdiff_t(index));
    return item;
  }
  if (name == "clear" && count == 0) {
    if (deque)
      note_call(tracer, owner, "clear", {}, {});
    else
      note_items(tracer, owner);
    items.clear();
    return tracer.none();
  }
  if (name == "reverse" && count == 0) {
    if (deque)
      note_call(tracer, owner, "reverse", {}, {});
    else
      note_items(tracer, owner);
    std::reverse(items.begin(), items.end());
    return tracer.none();
  }
  if (name == "copy" && count == 0 && !deque) return tracer.list(items);
  if (name == "remove" && count == 1) {
    if (auto place = find_equal(tracer, owner, arguments[0])) {
      erase_at(tracer, owner, *place);
      return tracer.none();
    }
    value_error(tracer, "list.remove(x): x not in list");
  }
  if (name == "__init__" && count <= 1 && !deque) {
    if (!items.empty()) note_items(tracer, owner);
    items.clear();
    if (count)
      for_each_item(tracer, owner, arguments[0], [&](const V& item) {
        note_items(tracer, owner);
        items.push_back(item);
      });
    return tracer.none();
  }
  return sequence_method(tracer, owner, name, arguments);
}

V sequence_method(TraceRun& tracer, const V& owner, const std::string& name, std::vector<V>& arguments) {
  const std::size_t count = arguments.size();
  if (name == "count" && count == 1) {
    std::int64_t seen = 0;
    const TraceRun::Mark before = tracer.mark();
    for (const V& item : tracer.sequence_items(owner)) {
      seen += same_or_equal(tracer, item, arguments[0]);
      unchanged(tracer, owner, before);
    }
    return tracer.integer(seen);
  }
  if (name == "index" && count >= 1 && count <= 3) {
    std::vector<V> items = tracer.sequence_items(owner);
    const auto size = std::int64_t(items.size());
    std::int64_t bounds[2] = {0, size};
    for (std::size_t i = 1; i < count; ++i) {
      auto given = tracer.constant_int(index_number(tracer, arguments[i]));
      if (!given) return nullptr;
      bounds[i - 1] = std::clamp<std::int64_t>(*given < 0 ? *given + size : *given, 0, size);
    }
    const TraceRun::Mark before = tracer.mark();
    for (std::int64_t i = bounds[0]; i < bounds[1]; ++i) {
      const bool found = same_or_equal(tracer, items[std::size_t(i)], arguments[0]);
      unchanged(tracer, owner, before);
      if (found) return tracer.integer(i);
    }
    if (owner->kind == ValueKind::Tuple) value_error(tracer, "tuple.index(x): x not in tuple");
    if (fj_errors_since_v314())
      value_error(tracer, as<ListValue>(owner)->type ? "deque.index(x): x not in deque" : "list.index(x): x not in list");
    PyObject* wanted = tracer.constant_object(arguments[0]);
    if (!wanted || !is_plain(wanted)) break_graph(BreakReason::ErrorWhileTracing, "a value that is not there");
    Ref<> text = Ref<>::steal(PyObject_Repr(wanted));
    value_error(tracer, text_of(text.get()) + (as<ListValue>(owner)->type ? " is not in deque" : " is not in list"));
  }
  return nullptr;
}

void list_set_item(TraceRun& tracer, const V& owner, const V& key, const V& value) {
  auto& list = *as<ListValue>(owner);
  auto& items = list.items;
  if (key->kind != ValueKind::Slice) {
    const TraceRun::Mark before = tracer.mark();
    const std::size_t index = index_of(tracer, key, items.size(),
                                       list.type ? "deque index out of range" : "list assignment index out of range");
    unchanged(tracer, owner, before);
    if (list.type)
      note_item(tracer, owner, place_key(index), value);
    else
      note_items(tracer, owner);
    items[index] = value;
    return;
  }
  if (list.type) break_graph(BreakReason::ErrorWhileTracing, "a slice of a deque");
  const TraceRun::Mark before = tracer.mark();
  const Bounds bounds = slice_of(tracer, key, items.size());
  std::vector<V> fresh = tracer.sequence_items(value);
  unchanged(tracer, owner, before);
  if (bounds.step == 1) {
    const Py_ssize_t stop = std::max(bounds.start, bounds.stop);
    note_items(tracer, owner);
    items.erase(items.begin() + bounds.start, items.begin() + stop);
    items.insert(items.begin() + bounds.start, fresh.begin(), fresh.end());
    return;
  }
  if (Py_ssize_t(fresh.size()) != bounds.count)
    value_error(tracer, "attempt to assign sequence of size " + std::to_string(fresh.size()) +
                            " to extended slice of size " + std::to_string(bounds.count));
  note_items(tracer, owner);
  for (Py_ssize_t i = 0; i < bounds.count; ++i)
    items[std::size_t(bounds.start + i * bounds.step)] = fresh[std::size_t(i)];
}

void list_delete_item(TraceRun& tracer, const V& owner, const V& key) {
  auto& list = *as<ListValue>(owner);
  auto& items = list.items;
  if (key->kind != ValueKind::Slice) {
    const TraceRun::Mark before = tracer.mark();
    const std::size_t index = index_of(tracer, key, items.size(),
                                       list.type ? "deque index out of range" : "list assignment index out of range");
    unchanged(tracer, owner, before);
    return erase_at(tracer, owner, index);
  }
  if (list.type) break_graph(BreakReason::ErrorWhileTracing, "a slice of a deque");
  const TraceRun::Mark before = tracer.mark();
  const Bounds bounds = slice_of(tracer, key, items.size());
  unchanged(tracer, owner, before);
  if (bounds.count == 0) return;
  std::vector<bool> gone(items.size());
  for (Py_ssize_t i = 0; i < bounds.count; ++i) gone[std::size_t(bounds.start + i * bounds.step)] = true;
  note_items(tracer, owner);
  std::vector<V> left;
  for (std::size_t i = 0; i < items.size(); ++i)
    if (!gone[i]) left.push_back(items[i]);
  items = std::move(left);
}

void sort(TraceRun& t, std::vector<V>& items, const V& key, bool descending) {
  // CPython's own sort of proxies that stand for the keys.
  Ref<> list = Ref<>::steal(PyList_New(Py_ssize_t(items.size())));
  std::unordered_map<PyObject*, std::size_t> place;
  for (std::size_t i = 0; i < items.size(); ++i) {
    Ref<> proxy = make_proxy(t, key && !t.is_none(key) ? t.call(key, {items[i]}, {}) : items[i]);
    place.emplace(proxy.get(), i);
    PyList_SET_ITEM(list.get(), Py_ssize_t(i), proxy.release());
  }
  static PyObject* const sort = PyUnicode_InternFromString("sort");
  PyObject* const names = once([] { return Py_BuildValue("(s)", "reverse"); });
  PyObject* arguments[] = {list.get(), descending ? Py_True : Py_False};
  Ref<> done = Ref<>::steal(PyObject_VectorcallMethod(sort, arguments, 1, names));
  std::vector<V> sorted;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i)
    sorted.push_back(items[place.at(PyList_GET_ITEM(list.get(), i))]);
  items = std::move(sorted);
  check_proxies();
  if (!done) raise_python_error(t);
}

V make_deque(TraceRun& tracer, PyTypeObject* type, std::vector<V> positional, Keywords keywords) {
  V from = positional.size() > 0 ? positional[0] : nullptr, longest = positional.size() > 1 ? positional[1] : nullptr;
  for (auto& [name, value] : keywords) (name == "iterable" ? from : longest) = value;
  auto deque = std::make_shared<ListValue>();
  deque->type = Ref<>::borrow(reinterpret_cast<PyObject*>(type));
  if (longest && !tracer.is_none(longest)) {
    auto number = tracer.constant_int(longest);
    if (!number || *number < 0) break_graph(BreakReason::ErrorWhileTracing, "a deque's maxlen");
    deque->longest = *number;
  }
  if (from)
    for_each(tracer, from, [&](const V& item) {
      deque->items.push_back(item);
      trim(*deque, true);
    });
  return deque;
}

}  // namespace fj
