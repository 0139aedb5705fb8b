/// itertools, enumerate, filter, map, zip, reversed, iter and next on symbolic values: the rows of itertools.def.
///
/// Each makes an IteratorValue whose `next` does what the C iterator does, in its order: which argument is advanced
/// when, and what has been taken from it when another turns out to be exhausted.
#include <opcode.h>

#include <algorithm>
#include <deque>

#include "runtime/base/error.h"
#include "tracer/builtins/builtin_table.h"
#include "tracer/interpreter/exceptions.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/containers/containers.h"
#include "tracer/values/containers/iterators.h"
#include "tracer/values/generators.h"
#include "tracer/values/numbers/operators.h"

namespace fj {

namespace {

using Items = std::vector<V>;
using Iteration = std::shared_ptr<IteratorValue>;

/// All permutations of ten and the like: more than this is a loop that will not be unrolled.
constexpr std::size_t kTuples = 20000;
constexpr int kAdd = 0;  // NB_ADD

Iteration iteration(std::function<V()> next) {
  auto iterator = std::make_shared<IteratorValue>();
  iterator->next = std::move(next);
  return iterator;
}

std::int64_t constant_size(TraceRun& t, const V& value, const char* name) {
  auto number = t.constant_int(value);
  if (!number) unknown_call(name);
  return *number;
}

/// One tuple after the other from a list made when it was called, as the pools of C are.
V of_tuples(const char* name, TraceRun& t, std::vector<Items> tuples, Items arguments) {
  auto rest = std::make_shared<std::deque<Items>>(tuples.begin(), tuples.end());
  auto iterator = iteration([&t, rest]() -> V {
    if (rest->empty()) return nullptr;
    Items items = std::move(rest->front());
    rest->pop_front();
    return t.tuple(std::move(items));
  });
  return made_by("itertools", name, iterator, std::move(arguments));
}

// ---- endless and short ones

V make_count(TraceRun& t, Items& a, Keywords& k) {
  V start = take_keyword(k, "start"), step = take_keyword(k, "step");
  expect("count", a, k, 0, 2);
  if (!a.empty()) start = a[0];
  if (a.size() == 2) step = a[1];
  auto now = std::make_shared<V>(start ? start : t.integer(std::int64_t(0)));
  V by = step ? step : t.integer(std::int64_t(1));
  // Floats are added up differently in C when the step is an int.
  for (const V& value : {*now, by})
    if (!t.int_expression(value)) unknown_call("count");
  Items arguments{*now, by};
  auto iterator = iteration([&t, now, by]() -> V {
    V item = *now;
    *now = t.binary(kAdd, item, by);
    return item;
  });
  return made_by("itertools", "count", iterator, std::move(arguments));
}

V make_repeat(TraceRun& t, Items& a, Keywords& k) {
  V times = take_keyword(k, "times"), object = take_keyword(k, "object");
  if (object) a.insert(a.begin(), object);
  expect("repeat", a, k, 1, 2);
  if (a.size() == 2) times = a[1];
  auto left = std::make_shared<std::int64_t>(times ? std::max<std::int64_t>(0, constant_size(t, times, "repeat")) : -1);
  V item = a[0];
  auto iterator = iteration([item, left]() -> V {
    if (*left == 0) return nullptr;
    if (*left > 0) --*left;
    return item;
  });
  Items arguments{item};
  if (times) arguments.push_back(times);
  return made_by("itertools", "repeat", iterator, std::move(arguments));
}

V make_cycle(TraceRun& t, Items& a, Keywords& k) {
  expect("cycle", a, k, 1, 1);
  V source = make_iterator(t, a[0]);
  auto saved = std::make_shared<Items>();
  auto position = std::make_shared<std::ptrdiff_t>(-1);  // -1: still taking from the source
  auto iterator = iteration([&t, source, saved, position]() -> V {
    if (*position < 0) {
      if (V item = next(t, source)) {
        saved->push_back(item);
        return item;
      }
      *position = 0;
    }
    if (saved->empty()) return nullptr;
    V item = (*saved)[std::size_t(*position)];
    *position = (*position + 1) % std::ptrdiff_t(saved->size());
    return item;
  });
  return made_by("itertools", "cycle", iterator, {source});
}

// ---- one after the other

V chain_of(TraceRun& t, const V& sources) {
  auto current = std::make_shared<V>();
  return iteration([&t, sources, current]() -> V {
    while (true) {
      if (!*current) {
        V source = next(t, sources);
        if (!source) return nullptr;
        *current = make_iterator(t, source);
      }
      if (V item = next(t, *current)) return item;
      *current = nullptr;
    }
  });
}

V make_chain(TraceRun& t, Items& a, Keywords& k) {
  expect("chain", a, k, 0, 10000);
  V chain = chain_of(t, make_iterator(t, t.tuple(a)));
  return made_by("itertools", "chain", std::static_pointer_cast<IteratorValue>(chain), a);
}

V make_chain_from_iterable(TraceRun& t, Items& a, Keywords& k) {
  expect("chain.from_iterable", a, k, 1, 1);
  return chain_of(t, make_iterator(t, a[0]));
}

V make_islice(TraceRun& t, Items& a, Keywords& k) {
  expect("islice", a, k, 2, 4);
  auto bound = [&](const V& value, std::int64_t otherwise) {
    const std::int64_t number = t.is_none(value) ? otherwise : constant_size(t, value, "islice");
    if (number < 0 && otherwise >= 0) unknown_call("islice");
    return number;
  };
  struct State {
    std::int64_t next, stop, step, taken = 0;
  };
  auto state = std::make_shared<State>();
  state->next = a.size() > 2 ? bound(a[1], 0) : 0;
  state->stop = bound(a[a.size() > 2 ? 2 : 1], INT64_MAX);
  state->step = a.size() == 4 ? bound(a[3], 1) : 1;
  if (state->step < 1) unknown_call("islice");
  V source = make_iterator(t, a[0]);
  Items arguments{source};
  arguments.insert(arguments.end(), a.begin() + 1, a.end());
  auto iterator = iteration([&t, source, state]() -> V {
    if (state->next < state->taken) return nullptr;
    while (state->taken < state->next) {
      // Up to the stop only: what lies beyond stays in the source.
      if (state->taken >= state->stop) return nullptr;
      if (!next(t, source)) return nullptr;
      ++state->taken;
    }
    if (state->taken >= state->stop) return nullptr;
    V item = next(t, source);
    if (!item) return nullptr;
    ++state->taken;
    state->next = state->step > state->stop - state->next ? state->stop : state->next + state->step;
    return item;
  });
  return made_by("itertools", "islice", iterator, std::move(arguments));
}

V make_pairwise(TraceRun& t, Items& a, Keywords& k) {
  expect("pairwise", a, k, 1, 1);
  V source = make_iterator(t, a[0]);
  auto old = std::make_shared<V>();
  auto iterator = iteration([&t, source, old]() -> V {
    if (!*old) *old = next(t, source);
    V fresh = *old ? next(t, source) : nullptr;
    if (!fresh) return nullptr;
    V pair = t.tuple({*old, fresh});
    *old = fresh;
    return pair;
  });
  return made_by("itertools", "pairwise", iterator, {source});
}

V make_batched(TraceRun& t, Items& a, Keywords& k) {
  V strict = take_keyword(k, "strict"), size = take_keyword(k, "n");
  if (size) a.push_back(size);
  expect("batched", a, k, 2, 2);
  const std::int64_t count = constant_size(t, a[1], "batched");
  if (count < 1 || (strict && t.truth(strict))) unknown_call("batched");
  V source = make_iterator(t, a[0]);
  auto iterator = iteration([&t, source, count]() -> V {
    Items items;
    while (std::int64_t(items.size()) < count) {
      V item = next(t, source);
      if (!item) break;
      items.push_back(item);
    }
    return items.empty() ? nullptr : t.tuple(std::move(items));
  });
  return made_by("itertools", "batched", iterator, {source, a[1]});
}

// ---- by a function

V make_starmap(TraceRun& t, Items& a, Keywords& k) {
  expect("starmap", a, k, 2, 2);
  V function = a[0], source = make_iterator(t, a[1]);
  auto iterator = iteration([&t, function, source]() -> V {
    V item = next(t, source);
    return item ? t.call(function, t.sequence_items(item), {}) : nullptr;
  });
  return made_by("itertools", "starmap", iterator, {function, source});
}

bool satisfies(TraceRun& t, const V& function, const V& item) {
  return t.truth(t.is_none(function) ? item : t.call(function, {item}, {}));
}

V make_takewhile(TraceRun& t, Items& a, Keywords& k) {
  expect("takewhile", a, k, 2, 2);
  V function = a[0], source = make_iterator(t, a[1]);
  auto over = std::make_shared<bool>(false);
  auto iterator = iteration([&t, function, source, over]() -> V {
    V item = *over ? nullptr : next(t, source);
    if (!item) return nullptr;
    if (t.truth(t.call(function, {item}, {}))) return item;
    *over = true;
    return nullptr;
  });
  return made_by("itertools", "takewhile", iterator, {function, source});
}

V make_dropwhile(TraceRun& t, Items& a, Keywords& k) {
  expect("dropwhile", a, k, 2, 2);
  V function = a[0], source = make_iterator(t, a[1]);
  auto begun = std::make_shared<bool>(false);
  auto iterator = iteration([&t, function, source, begun]() -> V {
    while (V item = next(t, source)) {
      if (!*begun && t.truth(t.call(function, {item}, {}))) continue;
      *begun = true;
      return item;
    }
    return nullptr;
  });
  return made_by("itertools", "dropwhile", iterator, {function, source});
}

V make_filterfalse(TraceRun& t, Items& a, Keywords& k) {
  expect("filterfalse", a, k, 2, 2);
  V function = a[0], source = make_iterator(t, a[1]);
  auto iterator = iteration([&t, function, source]() -> V {
    while (V item = next(t, source))
      if (!satisfies(t, function, item)) return item;
    return nullptr;
  });
  return made_by("itertools", "filterfalse", iterator, {function, source});
}

V make_compress(TraceRun& t, Items& a, Keywords& k) {
  if (V data = take_keyword(k, "data")) a.insert(a.begin(), data);
  if (V selectors = take_keyword(k, "selectors")) a.push_back(selectors);
  expect("compress", a, k, 2, 2);
  V data = make_iterator(t, a[0]), selectors = make_iterator(t, a[1]);
  auto iterator = iteration([&t, data, selectors]() -> V {
    while (V item = next(t, data)) {
      V selected = next(t, selectors);
      if (!selected) return nullptr;
      if (t.truth(selected)) return item;
    }
    return nullptr;
  });
  return made_by("itertools", "compress", iterator, {data, selectors});
}

V make_accumulate(TraceRun& t, Items& a, Keywords& k) {
  V function = take_keyword(k, "func"), initial = take_keyword(k, "initial");
  expect("accumulate", a, k, 1, 2);
  if (a.size() == 2) function = a[1];
  const bool adds = !function || t.is_none(function), given = initial && !t.is_none(initial);
  V source = make_iterator(t, a[0]);
  auto total = std::make_shared<V>();
  auto first = std::make_shared<V>(given ? initial : nullptr);
  auto iterator = iteration([&t, source, total, first, function, adds]() -> V {
    if (*first) return *total = std::exchange(*first, nullptr);
    V item = next(t, source);
    if (!item) return nullptr;
    if (!*total) return *total = item;
    return *total = adds ? t.binary(kAdd, *total, item) : t.call(function, {*total, item}, {});
  });
  return given ? V(iterator) : made_by("itertools", "accumulate", iterator, {source, adds ? t.none() : function});
}

V make_groupby(TraceRun& t, Items& a, Keywords& k) {
  V key = take_keyword(k, "key");
  expect("groupby", a, k, 1, 2);
  if (a.size() == 2) key = a[1];
  struct State {
    V target, key, value;     // of the group asked for; of the item read last
    std::int64_t group = 0;   // the group that may still be read
  };
  V source = make_iterator(t, a[0]);
  const bool identity = !key || t.is_none(key);
  auto state = std::make_shared<State>();
  auto step = [&t, source, state, key, identity]() {
    V item = next(t, source);
    if (!item) return false;
    state->key = identity ? item : t.call(key, {item}, {});
    state->value = item;
    return true;
  };
  auto same = [&t](const V& x, const V& y) { return same_or_equal(t, x, y); };
  auto iterator = iteration([&t, state, step, same]() -> V {
    const std::int64_t group = ++state->group;
    while (!state->key || (state->target && same(state->target, state->key)))
      if (!step()) return nullptr;
    state->target = state->key;
    V members = iteration([state, step, same, group, own = state->key]() -> V {
      if (state->group != group) return nullptr;
      if (!state->value && !step()) return nullptr;
      if (!same(own, state->key)) return nullptr;
      return std::exchange(state->value, nullptr);
    });
    return t.tuple({state->key, members});
  });
  return made_by("itertools", "groupby", iterator, {source, key ? key : t.none()});
}

V make_tee(TraceRun& t, Items& a, Keywords& k) {
  expect("tee", a, k, 1, 2);
  const std::int64_t count = a.size() == 2 ? constant_size(t, a[1], "tee") : 2;
  if (count < 0) unknown_call("tee");
  V source = make_iterator(t, a[0]);
  auto seen = std::make_shared<Items>();
  Items parts;
  for (std::int64_t i = 0; i < count; ++i) {
    auto position = std::make_shared<std::size_t>(0);
    parts.push_back(iteration([&t, source, seen, position]() -> V {
      if (*position == seen->size()) {
        V item = next(t, source);
        if (!item) return nullptr;
        seen->push_back(item);
      }
      return (*seen)[(*position)++];
    }));
  }
  return t.tuple(std::move(parts));
}

// ---- side by side

V make_zip(TraceRun& t, Items& a, Keywords& k) {
  V strict = take_keyword(k, "strict");
  expect("zip", a, k, 0, 10000);
  const bool checks = strict && t.truth(strict);
  Items parts;
  for (const V& value : a) parts.push_back(make_iterator(t, value));
  auto iterator = iteration([&t, parts, checks]() -> V {
    auto wrong = [&](std::size_t i, const char* how) {
      const std::string others = i == 1 ? " 1" : "s 1-" + std::to_string(i);
      raise(t, PyExc_ValueError,
            {t.string("zip() argument " + std::to_string(i + 1) + " is " + how + " than argument" + others)},
            BreakReason::ErrorWhileTracing, "zip() of different lengths");
    };
    Items items;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      V item = next(t, parts[i]);
      if (!item && checks && i > 0) wrong(i, "shorter");
      if (!item && checks)
        for (std::size_t j = 1; j < parts.size(); ++j)
          if (next(t, parts[j])) wrong(j, "longer");
      if (!item) return nullptr;
      items.push_back(item);
    }
    return items.empty() ? nullptr : t.tuple(std::move(items));
  });
  return checks ? V(iterator) : made_by("builtins", "zip", iterator, parts);
}

V make_zip_longest(TraceRun& t, Items& a, Keywords& k) {
  V fill = take_keyword(k, "fillvalue");
  expect("zip_longest", a, k, 0, 10000);
  auto parts = std::make_shared<Items>();
  for (const V& value : a) parts->push_back(make_iterator(t, value));
  Items arguments = *parts;
  V filler = fill ? fill : t.none();
  auto active = std::make_shared<std::size_t>(parts->size());
  auto iterator = iteration([&t, parts, filler, active]() -> V {
    if (*active == 0) return nullptr;
    Items items;
    for (V& part : *parts) {
      V item = part ? next(t, part) : nullptr;
      if (part && !item) {
        part = nullptr;
        if (--*active == 0) return nullptr;
      }
      items.push_back(item ? item : filler);
    }
    return t.tuple(std::move(items));
  });
  return fill ? V(iterator) : made_by("itertools", "zip_longest", iterator, std::move(arguments));
}

// ---- combinations

/// Calls `visit` with every way to choose `length` of `count` indices that `next` accepts, in lexicographic order.
template <class Accepts>
std::vector<Items> choose(const Items& pool, std::int64_t length, Accepts accepts) {
  std::vector<Items> result;
  std::vector<std::size_t> chosen;
  auto visit = [&](auto& self) -> void {
    if (std::int64_t(chosen.size()) == length) {
      if (result.size() >= kTuples) break_graph(BreakReason::LoopTooLong, "too many combinations");
      Items items;
      for (std::size_t i : chosen) items.push_back(pool[i]);
      result.push_back(std::move(items));
      return;
    }
    for (std::size_t i = 0; i < pool.size(); ++i) {
      if (!accepts(chosen, i)) continue;
      chosen.push_back(i);
      self(self);
      chosen.pop_back();
    }
  };
  visit(visit);
  return result;
}

using Chosen = std::vector<std::size_t>;

template <class Accepts>
V chosen_of(TraceRun& t, Items& a, Keywords& k, const char* name, std::size_t least, Accepts accepts) {
  if (V length = take_keyword(k, "r")) a.push_back(length);
  expect(name, a, k, least, 2);
  Items pool = t.sequence_items(a[0]);
  const std::int64_t length =
      a.size() == 2 && !t.is_none(a[1]) ? constant_size(t, a[1], name) : std::int64_t(pool.size());
  if (length < 0) unknown_call(name);
  std::vector<Items> tuples = choose(pool, length, accepts);
  return of_tuples(name, t, std::move(tuples), {t.tuple(pool), t.integer(length)});
}

V make_permutations(TraceRun& t, Items& a, Keywords& k) {
  return chosen_of(t, a, k, "permutations", 1, [](const Chosen& chosen, std::size_t i) {
    return std::find(chosen.begin(), chosen.end(), i) == chosen.end();
  });
}
V make_combinations(TraceRun& t, Items& a, Keywords& k) {
  return chosen_of(t, a, k, "combinations", 2,
                   [](const Chosen& chosen, std::size_t i) { return chosen.empty() || i > chosen.back(); });
}
V make_combinations_with_replacement(TraceRun& t, Items& a, Keywords& k) {
  return chosen_of(t, a, k, "combinations_with_replacement", 2,
                   [](const Chosen& chosen, std::size_t i) { return chosen.empty() || i >= chosen.back(); });
}

V make_product(TraceRun& t, Items& a, Keywords& k) {
  V repeat = take_keyword(k, "repeat");
  expect("product", a, k, 0, 10000);
  const std::int64_t times = repeat ? constant_size(t, repeat, "product") : 1;
  if (times < 0) unknown_call("product");
  std::vector<Items> pools;
  for (const V& value : a) pools.push_back(t.sequence_items(value));
  const std::size_t given = pools.size();
  for (std::int64_t i = 1; i < times; ++i)
    for (std::size_t j = 0; j < given; ++j) pools.push_back(pools[j]);
  if (times == 0) pools.clear();
  std::vector<Items> tuples{{}};
  for (const Items& pool : pools) {
    std::vector<Items> longer;
    if (tuples.size() * pool.size() > kTuples) break_graph(BreakReason::LoopTooLong, "too many combinations");
    for (const Items& tuple : tuples)
      for (const V& item : pool) {
        longer.push_back(tuple);
        longer.back().push_back(item);
      }
    tuples = std::move(longer);
  }
  Items arguments;
  for (const Items& pool : pools) arguments.push_back(t.tuple(pool));
  return of_tuples("product", t, std::move(tuples), std::move(arguments));
}

// ---- builtins

V make_enumerate(TraceRun& t, Items& a, Keywords& k) {
  V start = take_keyword(k, "start");
  expect("enumerate", a, k, 1, 2);
  if (a.size() == 2) start = a[1];
  auto from = start ? t.int_expression(start) : SymDim(0);
  if (!from) unknown_call("enumerate", a);
  auto position = std::make_shared<V>(t.integer(*from));
  V inner = make_iterator(t, a[0]);
  auto iterator = iteration([&t, inner, position]() -> V {
    V item = next(t, inner);
    if (!item) return nullptr;
    V number = *position;
    *position = t.binary(NB_ADD, number, t.integer(1));
    return t.tuple({number, item});
  });
  return made_by("builtins", "enumerate", iterator, {inner, t.integer(*from)});
}

V make_map(TraceRun& t, Items& a, Keywords& k) {
  expect("map", a, k, 2, 1000);
  V function = a[0];
  std::vector<V> parts;
  for (std::size_t i = 1; i < a.size(); ++i) parts.push_back(make_iterator(t, a[i]));
  auto iterator = iteration([&t, function, parts]() -> V {
    std::vector<V> items;
    for (const V& part : parts) {
      V item = next(t, part);
      if (!item) return nullptr;
      items.push_back(item);
    }
    return t.call(function, std::move(items), {});
  });
  std::vector<V> arguments = parts;
  arguments.insert(arguments.begin(), function);
  return made_by("builtins", "map", iterator, std::move(arguments));
}

V make_filter(TraceRun& t, Items& a, Keywords& k) {
  expect("filter", a, k, 2, 2);
  V function = a[0], inner = make_iterator(t, a[1]);
  auto iterator = iteration([&t, function, inner]() -> V {
    while (V item = next(t, inner))
      if (satisfies(t, function, item)) return item;
    return nullptr;
  });
  return made_by("builtins", "filter", iterator, {function, inner});
}

bool is_number_or_none(PyObject* object) {
  return object == Py_None || PyLong_CheckExact(object) || PyFloat_CheckExact(object) || PyBool_Check(object);
}

V make_iter(TraceRun& t, Items& a, Keywords& k) {
  expect("iter", a, k, 1, 2);
  auto* object = as<ObjectValue>(a[0]);
  const bool number = a[0]->kind == ValueKind::SymInt || a[0]->kind == ValueKind::Number ||
                      (object && is_number_or_none(object->object.get()));
  if (a.size() == 1 && number)
    raise(t, PyExc_TypeError, {t.string(std::string("'") + t.type_of(a[0])->tp_name + "' object is not iterable")},
            BreakReason::ErrorWhileTracing, "iter() of a number");
  if (a.size() == 1) return make_iterator(t, a[0]);
  auto over = std::make_shared<bool>(false);
  V function = a[0], sentinel = a[1];
  auto iterator = iteration([&t, function, sentinel, over]() -> V {
    if (*over) return nullptr;
    V item = catch_stop_iteration(t, [&] { return t.call(function, {}, {}); });
    if (item && !same_or_equal(t, sentinel, item)) return item;
    *over = true;
    return nullptr;
  });
  return made_by("builtins", "iter", iterator, {function, sentinel});
}

V take_next(TraceRun& t, Items& a, Keywords& k) {
  expect("next", a, k, 1, 2);
  if (a.size() == 1) return next_or_raise(t, a[0]);
  V item = next(t, a[0]);
  return item ? item : a[1];
}

V make_reversed(TraceRun& t, Items& a, Keywords& k) {
  expect("reversed", a, k, 1, 1);
  static PyObject* const own_name = PyUnicode_InternFromString("__reversed__");
  if (V own = python_method(t, a[0], "__reversed__")) return t.call(own, {}, {});
  V part = builtin_part(t, a[0]);
  const bool is_class = a[0]->kind == ValueKind::Object || a[0]->kind == ValueKind::Instance;
  if (is_class && !class_attribute(t, t.type_of(a[0]), own_name)) {
    // The sequence protocol: indices from the length down to 0.
    V item = python_method(t, a[0], "__getitem__");
    if (item || python_method(t, a[0], "__len__")) {
      if (!item && (!part || part->kind != ValueKind::Tuple)) unknown_call("reversed");
      auto position = std::make_shared<std::int64_t>(constant_size(t, length(t, a[0]), "reversed") - 1);
      return iteration([&t, item, part, position]() -> V {
        if (*position < 0) return nullptr;
        V index = t.integer((*position)--);
        V found = catch_stop_iteration(
            t, [&] { return item ? t.call(item, {index}, {}) : t.get_item(part, index); }, PyExc_IndexError);
        if (!found) *position = -1;
        return found;
      });
    }
  }
  const V value = part ? part : a[0];
  switch (value->kind) {
    case ValueKind::List: {
      // By index from the end: items appended meanwhile are not seen.
      auto position = std::make_shared<std::ptrdiff_t>(std::ptrdiff_t(as<ListValue>(value)->items.size()) - 1);
      auto iterator = iteration([value, position]() -> V {
        const auto& items = as<ListValue>(value)->items;
        if (*position < 0 || *position >= std::ptrdiff_t(items.size())) {
          *position = -1;
          return nullptr;
        }
        return items[std::size_t((*position)--)];
      });
      return made_by("builtins", "reversed", iterator, {value});
    }
    case ValueKind::Object:
      if (PyObject* text = t.constant_object(value); !text || !PyUnicode_CheckExact(text)) break;
      [[fallthrough]];
    case ValueKind::Tuple:
    case ValueKind::Range:
    case ValueKind::Dict: {
      Items items = t.sequence_items(value);
      std::reverse(items.begin(), items.end());
      auto iterator = iterate_sequence(t, t.tuple(std::move(items)));
      iterator->remaining = nullptr;
      return made_by("builtins", "reversed", iterator, {value});
    }
    default: break;
  }
  unknown_call("reversed");
}

constexpr BuiltinRow kRows[] = {
#define FJ_ITERATION(module, name, handler) {module, name, handler},
#include "tracer/builtins/itertools.def"
};

}  // namespace

std::span<const BuiltinRow> iteration_rows() { return kRows; }

}  // namespace fj
