/// Iterators made in the trace: a `next` function over Values, and what is left of them for an exit.
#include "runtime/base/error.h"
#include "tracer/interpreter.h"

namespace fj {

std::shared_ptr<IteratorValue> TracerImpl::iterate_sequence(const V& sequence) {
  auto iterator = std::make_shared<IteratorValue>();
  auto position = std::make_shared<std::size_t>(0);
  // The list is looked at anew at each step: it may be mutated while it is iterated over.
  iterator->next = [this, sequence, position]() -> V {
    const auto& items = sequence->kind == ValueKind::List ? as<ListValue>(sequence)->items : as<TupleValue>(sequence)->items;
    return *position < items.size() ? items[(*position)++] : nullptr;
  };
  iterator->remaining = [this, sequence, position]() -> V {
    if (*position == 0) return sequence;
    if (sequence->kind == ValueKind::List) return nullptr;  // a list iterator's position can't be set by iter()
    auto& items = as<TupleValue>(sequence)->items;
    return tracer.tuple({items.begin() + std::ptrdiff_t(std::min(*position, items.size())), items.end()});
  };
  return iterator;
}

namespace {

std::shared_ptr<IteratorValue> iterate_range(TracerImpl& tracer, const std::shared_ptr<RangeValue>& range) {
  auto iterator = std::make_shared<IteratorValue>();
  auto position = std::make_shared<SymDim>(range->start);
  iterator->next = [&tracer, range, position]() -> V {
    if (!range->start.is_constant() || !range->stop.is_constant())
      break_graph(BreakReason::LoopTooLong, "a loop whose length is not known while tracing");
    const bool more = range->step > 0 ? position->value() < range->stop.value() : position->value() > range->stop.value();
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

}  // namespace

V TracerImpl::make_iterator(const V& value) {
  switch (value->kind) {
    case ValueKind::Iterator: return value;
    case ValueKind::Tuple: case ValueKind::List: return iterate_sequence(value);
    case ValueKind::Range: return iterate_range(*this, std::static_pointer_cast<RangeValue>(value));
    case ValueKind::Array: {
      auto iterator = iterate_sequence(tracer.tuple(array_iterate(tracer, value)));
      iterator->remaining = [iterator = iterator.get(), value] { return iterator->started ? nullptr : value; };
      return iterator;
    }
    case ValueKind::Dict: {
      auto iterator = iterate_sequence(tracer.tuple(sequence_items(value)));
      iterator->remaining = [iterator = iterator.get(), value] { return iterator->started ? nullptr : value; };
      return iterator;
    }
    case ValueKind::Set: {
      if (as<SetValue>(value)->items.size() > 1) break_graph(BreakReason::UnsupportedObject, "the order of a set");
      std::vector<V> items;
      for (const Ref<>& item : as<SetValue>(value)->items) items.push_back(wrap_constant(item.get()));
      auto iterator = iterate_sequence(tracer.tuple(items));
      iterator->remaining = nullptr;
      return iterator;
    }
    default: break;
  }
  if (auto* object = as<ObjectValue>(value)) {
    PyObject* real = object->object.get();
    if (PyUnicode_CheckExact(real)) {
      constant_object(value);
      std::vector<V> characters;
      for (Py_ssize_t i = 0; i < PyUnicode_GET_LENGTH(real); ++i) {
        Ref<> character = Ref<>::steal(PyUnicode_Substring(real, i, i + 1));
        characters.push_back(wrap_constant(keep(character).get()));
      }
      auto iterator = iterate_sequence(tracer.tuple(characters));
      iterator->remaining = nullptr;
      return iterator;
    }
    if (PyIter_Check(real)) return value;  // an iterator from outside: met at FOR_ITER
  }
  if (value->kind == ValueKind::Object || value->kind == ValueKind::Instance) {
    PyTypeObject* type = type_of(value);
    static PyObject* const iter_name = PyUnicode_InternFromString("__iter__");
    PyObject* method = class_attribute(type, iter_name);
    if (method && PyFunction_Check(method)) {
      return call(wrap_constant(method), {value}, {});
    }
    static PyObject* const item_name = PyUnicode_InternFromString("__getitem__");
    if (PyObject* item = method ? nullptr : class_attribute(type, item_name); item && PyFunction_Check(item)) {
      // The sequence protocol: indices from 0 until IndexError.
      auto iterator = std::make_shared<IteratorValue>();
      auto position = std::make_shared<std::int64_t>(0);
      V function = wrap_constant(item);
      iterator->next = [this, value, function, position]() -> V {
        if (*position < 0) return nullptr;
        V found = catch_stop_iteration([&] { return call(function, {value, tracer.integer((*position)++)}, {}); }, PyExc_IndexError);
        if (!found) *position = -1;
        return found;
      };
      return iterator;
    }
  }
  break_graph(BreakReason::UnsupportedObject, "iterates over " + describe(value));
}

V TracerImpl::next(const V& value) {
  if (auto* iterator = as<IteratorValue>(value)) {
    iterator->started = true;
    stopped_with = none;
    V item = iterator->next();
    if (!item && iterator->returned) stopped_with = iterator->returned;
    return item;
  }
  if (value->kind == ValueKind::Instance || value->kind == ValueKind::Object) {
    static PyObject* const next_name = PyUnicode_InternFromString("__next__");
    PyTypeObject* type = type_of(value);
    PyObject* method = class_attribute(type, next_name);
    if (method && PyFunction_Check(method)) {
      stopped_with = none;
      return catch_stop_iteration([&] { return call(wrap_constant(method), {value}, {}); });
    }
  }
  if (value->kind == ValueKind::Instance || value->kind == ValueKind::Object) {
    // An iterator that runs already: its position can't be guarded, so Python advances it.
    break_graph(BreakReason::LoopTooLong, "an iterator from outside");
  }
  break_graph(BreakReason::UnsupportedObject, "iterates over " + describe(value));
}

}  // namespace fj
