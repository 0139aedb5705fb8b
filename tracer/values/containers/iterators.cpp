/// Iterators made in the trace: a `next` function over Values, and what is left of them for an exit.
#include "tracer/values/containers/iterators.h"

#include "cpython/objects.h"
#include "runtime/base/error.h"
#include "tracer/interpreter/exceptions.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/state/effect_log.h"
#include "tracer/state/exception_ledger.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/containers/containers.h"
#include "tracer/values/containers/dicts.h"
#include "tracer/values/containers/sets.h"
#include "tracer/values/numbers/operators.h"
#include "tracer/data_loops.h"
#include "tracer/values/outside_objects.h"

namespace fj {

std::shared_ptr<IteratorValue> iterate_sequence(TraceRun& t, const V& sequence) {
  auto iterator = std::make_shared<IteratorValue>();
  auto position = std::make_shared<std::size_t>(0);
  if (sequence->kind == ValueKind::List) iterator->over = sequence;
  // The list is looked at anew at each step: it may be mutated while it is iterated over.
  iterator->next = [&t, sequence, position]() -> V {
    const auto& items =
        sequence->kind == ValueKind::List ? as<ListValue>(sequence)->items : as<TupleValue>(sequence)->items;
    if (*position < items.size()) return items[(*position)++];
    *position = SIZE_MAX;  // exhausted for good, whatever is appended
    return nullptr;
  };
  iterator->remaining = [&t, sequence, position]() -> V {
    if (*position == 0) return sequence;
    if (sequence->kind == ValueKind::List) return nullptr;  // a list iterator's position can't be set by iter()
    auto& items = as<TupleValue>(sequence)->items;
    return t.tuple({items.begin() + std::ptrdiff_t(std::min(*position, items.size())), items.end()});
  };
  return iterator;
}

std::shared_ptr<IteratorValue> iterate_running_range(TraceRun& t, PyObject* object, SourceRef source) {
  constexpr std::size_t kManyNodes = 256;
  const auto state = range_position(object);
  if (!state) break_graph(BreakReason::LoopTooLong, "an iterator from outside");
  const auto part = [&](std::int64_t index, std::int64_t value) {
    const Ref<> number = Ref<>::steal(PyLong_FromLongLong(value));
    const V wrapped = t.wrap(t.keep(number).get(), t.sources().make(SourceKind::RangePart, source, index));
    const auto known = t.int_expression(wrapped);
    FJ_CHECK(known, "an int without a value");
    return *known;
  };
  const SymDim begin = part(0, state->next), end = part(1, state->end), step = part(2, state->step);
  if (!t.decide(step, Py_EQ, SymDim(state->step))) break_graph(BreakReason::LoopTooLong, "a step of 0");
  auto iterator = std::make_shared<IteratorValue>();
  auto passes = std::make_shared<int>(0);
  iterator->next = [&t, begin, end, passes, step = state->step]() -> V {
    if (*passes == kPassesOfAPiece || (*passes > 0 && t.graph().nodes.size() > kManyNodes))
      break_graph(BreakReason::LoopTooLong, "some of its passes are a piece of their own");
    const SymDim position = begin + SymDim(step * (*passes)++);
    if (!t.decide(position, step > 0 ? Py_LT : Py_GT, end)) return nullptr;
    return t.integer(position);
  };
  iterator->remaining = [begin, end, passes, step = state->step]() -> V {
    auto rest = std::make_shared<RangeValue>();
    rest->start = begin + SymDim(step * *passes);
    rest->stop = end;
    rest->step = step;
    return rest;
  };
  return iterator;
}

namespace {

std::shared_ptr<IteratorValue> iterate_range(TraceRun& tracer, const std::shared_ptr<RangeValue>& range) {
  auto iterator = std::make_shared<IteratorValue>();
  auto position = std::make_shared<SymDim>(range->start);
  iterator->next = [&tracer, range, position]() -> V {
    if (!range->start.is_constant() || !range->stop.is_constant())
      break_graph(BreakReason::LoopTooLong, "a loop whose length is not known while tracing");
    const bool more =
        range->step > 0 ? position->value() < range->stop.value() : position->value() > range->stop.value();
    if (!more) return nullptr;
    V item = tracer.integer(*position);
    *position = *position + SymDim(range->step);
    return item;
  };
  iterator->remaining = [range, position]() -> V {
    auto rest = std::make_shared<RangeValue>();
    rest->start = *position;
    rest->stop = range->stop;
    rest->step = range->step;
    return rest;
  };
  return iterator;
}

/// Over the keys, items or values of a dict, which may change meanwhile: values are those of the moment, another number
/// of keys is an error. `view`: null: the keys.
std::shared_ptr<IteratorValue> iterate_dict(TraceRun& tracer, const V& owner, const std::shared_ptr<TupleValue>& view) {
  auto& dict = *as<DictValue>(owner);
  open(tracer, dict);
  std::vector<Ref<>> keys;
  for (auto& [key, value] : dict.items) keys.push_back(key);
  auto iterator = std::make_shared<IteratorValue>();
  auto position = std::make_shared<std::size_t>(0);
  iterator->next = [&tracer, owner, view, keys, position, deletions = dict.deletions]() -> V {
    auto& dict = *as<DictValue>(owner);
    if (*position > keys.size()) return nullptr;
    if (dict.items.size() != keys.size()) {
      const bool ordered = dict.type.get() == reinterpret_cast<PyObject*>(&PyODict_Type);
      *position = keys.size() + 1;
      raise(tracer, PyExc_RuntimeError,
            {tracer.string(ordered ? "OrderedDict mutated during iteration"
                                   : "dictionary changed size during iteration")},
            BreakReason::ErrorWhileTracing, "a dict that changes while it is iterated over");
    }
    const std::size_t at = (*position)++;
    if (dict.deletions != deletions)
      break_graph(BreakReason::UnsupportedObject, "a dict whose keys change while it is iterated over");
    if (at >= keys.size()) return nullptr;
    if (dict.items[at].first.get() != keys[at].get())
      break_graph(BreakReason::UnsupportedObject, "a dict whose keys change while it is iterated over");
    if (!view) return wrap_constant(tracer, keys[at].get());
    refresh_view(tracer, *view);
    return view->items[at];
  };
  // Iterators are made again before effects are replayed, which change a dict from outside: then nothing may have
  // changed it at all.
  const TraceRun::Mark made = owner->source ? TraceRun::Mark{} : tracer.mark();
  iterator->remaining = [&tracer, iterator = iterator.get(), owner, view, made]() -> V {
    if (iterator->started || tracer.written_since(owner.get(), made)) return nullptr;
    return view ? V(view) : owner;
  };
  return iterator;
}

/// Python decides what becomes of an iterator whose container changes.
void break_if_written(TraceRun& tracer, IteratorValue& iterator, const V& container, const char* what) {
  auto seen = std::make_shared<TraceRun::Mark>(tracer.mark());
  iterator.next = [&tracer, container, what, seen, next = std::move(iterator.next)]() -> V {
    if (tracer.written_since(container.get(), *seen)) break_graph(BreakReason::UnsupportedObject, what);
    *seen = tracer.mark();
    return next();
  };
  // Made at an exit it would have been made after the change.
  iterator.remaining = [&tracer, container, seen, remaining = std::move(iterator.remaining)]() -> V {
    return remaining && !tracer.written_since(container.get(), *seen) ? remaining() : nullptr;
  };
}

}  // namespace

V make_iterator(TraceRun& t, const V& value) {
  switch (value->kind) {
    case ValueKind::Iterator: return value;
    case ValueKind::Tuple:
      if (auto tuple = std::static_pointer_cast<TupleValue>(value); tuple->view_of)
        return iterate_dict(t, tuple->view_of, tuple);
      if (V method = python_method(t, value, "__iter__")) return t.call(method, {}, {});
      return iterate_sequence(t, value);
    case ValueKind::List: {
      auto iterator = iterate_sequence(t, value);
      if (as<ListValue>(value)->type)
        break_if_written(t, *iterator, value, "a deque that changes while it is iterated over");
      return iterator;
    }
    case ValueKind::ComputedRange: return iterate_computed(t, as<ComputedRangeValue>(value)->range);
    case ValueKind::Range: return iterate_range(t, std::static_pointer_cast<RangeValue>(value));
    case ValueKind::Array: {
      std::shared_ptr<IteratorValue> iterator;
      if (const auto array = std::static_pointer_cast<ArrayValue>(value);
          array->library == Library::Numpy && !array->shape.empty()) {
        // A row is taken when its turn comes: an element is a copy of what is there then.
        const std::int64_t count = rows_to_unroll(t, value);
        iterator = std::make_shared<IteratorValue>();
        iterator->next = [&t, value, count, position = std::int64_t(0)]() mutable -> V {
          return position < count ? array_get_item(t, value, t.integer(position++)) : nullptr;
        };
      } else {
        iterator = iterate_sequence(t, t.tuple(array_iterate(t, value)));
      }
      iterator->remaining = [iterator = iterator.get(), value] { return iterator->started ? nullptr : value; };
      iterator->over = value;
      return iterator;
    }
    case ValueKind::Dict: return iterate_dict(t, value, nullptr);
    case ValueKind::Set: {
      auto& set = *as<SetValue>(value);
      if (!set.ordered && PySet_GET_SIZE(set.real.get()) > 1)
        break_graph(BreakReason::UnsupportedObject, "the order of a set");
      auto iterator = iterate_sequence(t, t.tuple(set_items(t, set)));
      iterator->remaining = nullptr;
      break_if_written(t, *iterator, value, "a set that changes while it is iterated over");
      return iterator;
    }
    default: break;
  }
  if (auto* object = as<ObjectValue>(value)) {
    PyObject* real = object->object.get();
    if (PyUnicode_CheckExact(real)) {
      t.constant_object(value);
      std::vector<V> characters;
      for (Py_ssize_t i = 0; i < PyUnicode_GET_LENGTH(real); ++i) {
        Ref<> character = Ref<>::steal(PyUnicode_Substring(real, i, i + 1));
        characters.push_back(wrap_constant(t, t.keep(character).get()));
      }
      auto iterator = iterate_sequence(t, t.tuple(characters));
      iterator->remaining = nullptr;
      return iterator;
    }
    if (PyBytes_CheckExact(real)) {
      t.constant_object(value);
      std::vector<V> numbers;
      for (Py_ssize_t i = 0; i < PyBytes_GET_SIZE(real); ++i)
        numbers.push_back(t.integer(std::int64_t(static_cast<unsigned char>(PyBytes_AS_STRING(real)[i]))));
      auto iterator = iterate_sequence(t, t.tuple(numbers));
      iterator->remaining = nullptr;
      iterator->over = value;
      return iterator;
    }
    if (PyIter_Check(real) && Py_TYPE(real)->tp_iter == PyObject_SelfIter) {
      guard_type(t, *object);
      return value;  // an iterator from outside: met at FOR_ITER
    }
  }
  if (value->kind == ValueKind::Object || value->kind == ValueKind::Instance) {
    if (V method = python_method(t, value, "__iter__")) return t.call(method, {}, {});
    if (V part = builtin_part(t, value)) return make_iterator(t, part);
    if (V mapping = proxied_mapping(t, value)) return make_iterator(t, mapping);
    if (V item = python_method(t, value, "__getitem__")) {
      // The sequence protocol: indices from 0 until IndexError.
      auto iterator = std::make_shared<IteratorValue>();
      auto position = std::make_shared<std::int64_t>(0);
      iterator->next = [&t, item, position]() -> V {
        if (*position < 0) return nullptr;
        V found =
            catch_stop_iteration(t, [&] { return t.call(item, {t.integer((*position)++)}, {}); }, PyExc_IndexError);
        if (!found) *position = -1;
        return found;
      };
      return iterator;
    }
  }
  break_graph(BreakReason::UnsupportedObject, "iterates over " + describe(value));
}

V next(TraceRun& t, const V& value) {
  if (auto* iterator = as<IteratorValue>(value)) {
    iterator->started = true;
    t.effects->note_write(value.get());
    t.exceptions->stopped_with = t.none();
    V item = iterator->frame ? iterator->next() : catch_stop_iteration(t, [&] { return iterator->next(); });
    if (!item && iterator->returned) t.exceptions->stopped_with = iterator->returned;
    return item;
  }
  if (value->kind == ValueKind::Instance || value->kind == ValueKind::Object) {
    static PyObject* const next_name = PyUnicode_InternFromString("__next__");
    PyTypeObject* type = t.type_of(value);
    PyObject* method = class_attribute(t, type, next_name);
    if (method && is_python_method(t, method)) {
      t.exceptions->stopped_with = t.none();
      return catch_stop_iteration(t, [&] { return t.call(wrap_constant(t, method), {value}, {}); });
    }
  }
  if (value->kind == ValueKind::Instance || value->kind == ValueKind::Object) {
    // An iterator that runs already: its position can't be guarded, so Python advances it.
    break_graph(BreakReason::LoopTooLong, "an iterator from outside");
  }
  break_graph(BreakReason::UnsupportedObject, "iterates over " + describe(value));
}

}  // namespace fj
