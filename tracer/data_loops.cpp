#include "tracer/data_loops.h"

#include <algorithm>

#include "tracer/frontends/builders.h"
#include "tracer/interpreter/liveness.h"
#include "tracer/interpreter/loops.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/state/gradient_ledger.h"
#include "tracer/state/placement.h"

namespace fj {
namespace {

[[noreturn]] void refuse(TraceRun& t, const std::string& why) {
  break_graph(BreakReason::BranchOnData, "`" + t.source_text() + "` is a loop on data, " + why);
}

/// Variables, then stack entries.
V& at(TraceRun& t, Frame& frame, int place) {
  const int slots = int(frame.slots.size());
  return place < slots ? t.local(frame, place) : frame.stack[std::size_t(place - slots)];
}

int places_of(const Frame& frame) { return int(frame.slots.size() + frame.stack.size()); }

/// A tuple that the trace has made, whose items may be states. Null: no such.
const TupleValue* own_tuple(const V& value) {
  const auto* tuple = value && !value->source ? as<TupleValue>(value) : nullptr;
  return tuple && !tuple->type && !tuple->view_of ? tuple : nullptr;
}

/// Null: nothing is there.
V at(TraceRun& t, Frame& frame, const StatePlace& place) {
  if (place[0] >= places_of(frame)) return nullptr;
  V value = at(t, frame, place[0]);
  for (std::size_t depth = 1; depth < place.size(); ++depth) {
    const TupleValue* tuple = own_tuple(value);
    if (!tuple || place[depth] >= int(tuple->items.size())) return nullptr;
    value = tuple->items[std::size_t(place[depth])];
  }
  return value;
}

/// The tuples around it are made anew.
void put(TraceRun& t, Frame& frame, const StatePlace& place, V value) {
  for (std::size_t depth = place.size(); --depth > 0;) {
    const V around = at(t, frame, StatePlace(place.begin(), place.begin() + std::ptrdiff_t(depth)));
    std::vector<V> items = own_tuple(around)->items;
    items[std::size_t(place[depth])] = std::move(value);
    value = Tracer::tuple(std::move(items));
  }
  at(t, frame, place[0]) = std::move(value);
}

std::optional<DType> number_of(const V& value) {
  if (const auto* number = as<NumberValue>(value)) return number->dtype;
  const auto* object = value ? as<ObjectValue>(value) : nullptr;
  if (!object) return std::nullopt;
  if (PyBool_Check(object->object.get())) return DType::Bool;
  if (PyLong_CheckExact(object->object.get())) return DType::I64;
  if (PyFloat_CheckExact(object->object.get())) return DType::F64;
  return std::nullopt;
}

/// Of an array or a number; nothing: it is no state.
std::optional<StateForm> form_of(TraceRun& t, const V& value) {
  StateForm form;
  if (const auto dtype = number_of(value)) {
    form.number = true;
    form.dtype = *dtype;
    return form;
  }
  const auto* array = value ? as<ArrayValue>(value) : nullptr;
  if (!array || array->parameter || array->crosses || array->storage->device != kHost || !array->writeable ||
      array->storage->stands_for_view)
    return std::nullopt;
  form.gradient = t.requires_gradient(*array);
  form.library = array->library;
  form.dtype = array->dtype;
  form.shape = array->shape;
  form.strides = array->strides;
  form.numpy_scalar = array->numpy_scalar;
  form.wrapped_number = array->wrapped_number;
  return form;
}

/// Whether nothing else shows the array's memory: a value of no certain pass may stand for it.
bool is_made_anew(const V& value) {
  const auto* array = as<ArrayValue>(value);
  return !array || array->numpy_scalar ||
         (!value->source && array->storage.use_count() == 1 && array->view.empty() && !array->is_view &&
          !array->detached && !array->storage->input_array && !array->storage->made_as_view &&
          !array->storage->may_be_outside);
}

ValueId contents_of(TraceRun& t, const V& value, const StateForm& form) {
  if (const auto* array = as<ArrayValue>(value)) return t.read(*array);
  if (const auto* number = as<NumberValue>(value)) return number->contents;
  PyObject* const object = t.constant_object(value);
  if (form.dtype == DType::F64) return constant(t, DType::F64, PyFloat_AsDouble(object));
  if (form.dtype == DType::Bool) return constant(t, DType::Bool, Scalar(object == Py_True));
  const auto known = t.constant_int(value);
  if (!known) refuse(t, "and `" + text_of(Ref<>::steal(PyObject_Repr(object)).get()) + "` has more than 64 bits");
  return constant(t, DType::I64, *known);
}

V value_of(TraceRun& t, const StateForm& form, ValueId contents) {
  if (form.number) {
    auto number = std::make_shared<NumberValue>(contents, form.dtype);
    number->of_any_pass = true;
    return number;
  }
  if (form.gradient) t.gradients->flow.want(contents);
  auto array = t.new_array(form.library, contents, form.strides);
  array->of_any_pass = true;
  array->numpy_scalar = form.numpy_scalar;
  array->wrapped_number = form.wrapped_number;
  return array;
}

ValueId zeros_of(TraceRun& t, const StateForm& form) {
  const ValueId zero = form.dtype == DType::Bool ? constant(t, DType::Bool, Scalar(false)) : constant(t, form.dtype, 0);
  return form.shape.empty() ? zero : broadcast_to(t, zero, form.shape);
}

bool same_constant(TraceRun& t, const V& a, const V& b) {
  const auto *one = as<ObjectValue>(a), *other = as<ObjectValue>(b);
  if (!one || !other) return false;
  PyObject *x = t.constant_object(a), *y = t.constant_object(b);
  if (!x || !y || Py_TYPE(x) != Py_TYPE(y)) return false;
  if (x == y) return true;
  if (!number_of(a)) return false;
  const Ref<> first = Ref<>::steal(PyObject_Repr(x)), second = Ref<>::steal(PyObject_Repr(y));
  return first && second && PyUnicode_Compare(first.get(), second.get()) == 0;
}

/// Of a place before the pass and behind it, or of items of one.
class Comparison {
 public:
  Comparison(TraceRun& t, const OpenLoop& open, const LoopPlan& plan) : t_(t), open_(open), plan_(plan) {}

  /// Whether each difference is one that a state can have; those that are no states yet are `changed` then.
  bool same(const StatePlace& place, const V& held, const V& now) {
    if (plan_.changed.count(place) || plan_.made.count(place)) return true;
    if (held == now) {
      const auto* array = now ? as<ArrayValue>(now) : nullptr;
      const auto contents = open_.contents.find(place);
      if (array && !now->source && contents != open_.contents.end() && t_.read(*array) != contents->second)
        return changes(place, held, now);
      if (const TupleValue* tuple = own_tuple(now)) return same_items(place, *tuple, *tuple);
      return true;
    }
    if (!held || !now) return false;
    if (same_constant(t_, held, now)) return true;
    const TupleValue *one = own_tuple(held), *other = own_tuple(now);
    if (one && other && one->items.size() == other->items.size()) return same_items(place, *one, *other);
    return changes(place, held, now);
  }

  std::map<StatePlace, StateForm> changed;

 private:
  bool same_items(const StatePlace& place, const TupleValue& one, const TupleValue& other) {
    for (std::size_t i = 0; i < one.items.size(); ++i) {
      StatePlace item = place;
      item.push_back(int(i));
      if (!same(item, one.items[i], other.items[i])) return false;
    }
    return true;
  }

  bool changes(const StatePlace& place, const V& held, const V& now) {
    const auto one = form_of(t_, held), other = form_of(t_, now);
    if (!one || !other || !one->same_as(*other)) return false;
    StateForm form = *one;
    form.gradient = one->gradient || other->gradient;
    changed.emplace(place, form);
    return true;
  }

  TraceRun& t_;
  const OpenLoop& open_;
  const LoopPlan& plan_;
};

/// What the pass has left otherwise than it found it is to be a state. Throws PlanGrown if it is none yet.
void compare(TraceRun& t, Frame& frame, const OpenLoop& open) {
  LoopPlan& plan = (*t.request.way->plans)[open.key];
  const LoopPlan before = plan;
  const std::vector<bool> live = live_slots(*frame.code, open.pass->header);
  const int places = std::min(places_of(frame), int(open.held.size()));
  for (int place = 0; place < places; ++place) {
    if (plan.lost.count(place)) continue;
    const V &held = open.held[std::size_t(place)], now = at(t, frame, place);
    Comparison comparison(t, open, before);
    if (open.iterator == place || comparison.same({place}, held, now)) {
      plan.changed.merge(comparison.changed);
      continue;
    }
    const bool is_read = place >= int(live.size()) || live[std::size_t(place)];
    if ((held && is_read) || place >= int(frame.slots.size())) {
      const std::string old = held ? describe(held) : "nothing", made = now ? describe(now) : "nothing";
      refuse(t, "whose passes make " + (old == made ? "another kind of " + made : made + " of " + old));
    } else if (const auto other = form_of(t, now)) {
      plan.made.emplace(StatePlace{place}, *other);
    } else {
      plan.lost.insert(place);
    }
  }
  if (!(plan == before)) throw PlanGrown{};
}

/// What a loop over a range counts by; nothing: it is no such loop.
std::optional<CountedRange> counted_range(TraceRun& t, const V& value) {
  const auto* iterator = as<IteratorValue>(value);
  if (!iterator) return std::nullopt;
  if (iterator->counted) return *iterator->counted;
  const V rest = iterator->remaining ? iterator->remaining() : nullptr;
  const auto* range = rest ? as<RangeValue>(rest) : nullptr;
  if (!range) return std::nullopt;
  return CountedRange{size_value(t, range->start, DType::I64), size_value(t, range->stop, DType::I64), range->step};
}

/// Whether a range may have no int.
bool may_be_empty(const V& value) {
  const auto* iterator = as<IteratorValue>(value);
  const V rest = iterator->remaining ? iterator->remaining() : nullptr;
  const auto* range = rest ? as<RangeValue>(rest) : nullptr;
  if (!range || !range->start.is_constant() || !range->stop.is_constant()) return true;
  return range->step > 0 ? range->start.value() >= range->stop.value() : range->start.value() <= range->stop.value();
}

bool goes_on(TraceRun& t, const CountedRange& range) {
  return take_way(t, emit(t, range.step > 0 ? Op::lt : Op::gt, {range.next, range.stop}));
}

/// `asks`: before each pass whether there is one.
V counting(TraceRun& t, const CountedRange& range, bool asks) {
  auto iterator = std::make_shared<IteratorValue>();
  iterator->counted = std::make_shared<CountedRange>(range);
  iterator->next = [&t, asks, state = iterator->counted]() -> V {
    if (asks && !goes_on(t, *state)) return nullptr;
    V item = std::make_shared<NumberValue>(state->next, DType::I64);
    state->next = emit(t, Op::add, {state->next, constant(t, DType::I64, state->step)});
    return item;
  };
  return iterator;
}

/// At its header again: whether the range has another int. It is left where not.
bool another(TraceRun& t, Frame& frame) {
  const FjInstr& instr = frame.code->instrs[frame.pc];
  if (goes_on(t, *as<IteratorValue>(at(t, frame, t.request.way->open.back().iterator))->counted)) return true;
  frame.stack.resize(frame.stack.size() - std::size_t(fj_iterator_entries()));
  frame.pc = instr.arg;
  return false;
}

/// The place of the iterator of a `for` at its header; -1: it is none.
int iterator_place(const Frame& frame, int header) {
  const int entries = fj_iterator_entries();
  if (frame.code->instrs[header].opcode != FJ_FOR_ITER || int(frame.stack.size()) < entries) return -1;
  return places_of(frame) - entries;
}

void note_contents(TraceRun& t, OpenLoop& open, StatePlace place, const V& value) {
  const auto* array = value ? as<ArrayValue>(value) : nullptr;
  if (array && !array->source) open.contents.emplace(place, t.read(*array));
  const TupleValue* tuple = own_tuple(value);
  for (std::size_t i = 0; tuple && i < tuple->items.size(); ++i) {
    place.push_back(int(i));
    note_contents(t, open, place, tuple->items[i]);
    place.pop_back();
  }
}

void enter(TraceRun& t, Frame& frame, const PassOf& loop) {
  TracedWay& way = *t.request.way;
  OpenLoop open;
  open.number = way.loops.size();
  open.frame = &frame;
  open.pass = &loop;
  open.key = {frame.co, loop.header};
  open.before = way.outcomes();
  open.modes = t.modes->now;
  const LoopPlan& plan = (*way.plans)[open.key];
  if (frame.generator || !t.generators.empty()) refuse(t, "beside a generator");
  if (t.placement->on_device()) refuse(t, "on arrays of a device");
  TracedWay::Loop made;
  const auto add = [&](const StatePlace& place, const StateForm& form, const V& first) {
    const ValueId before = first ? contents_of(t, first, form) : zeros_of(t, form);
    made.states.push_back({before, {}, {}});
    open.states.emplace_back(place, form);
    open.first.push_back(first);
  };
  for (const auto& [place, planned] : plan.changed) {
    const V first = at(t, frame, place);
    auto form = first ? form_of(t, first) : std::nullopt;
    if (!form) refuse(t, "which begins with " + (first ? describe(first) : "nothing"));
    form->gradient = form->gradient || planned.gradient;
    add(place, *form, first);
  }
  for (const auto& [place, form] : plan.made) add(place, form, nullptr);
  open.iterator = iterator_place(frame, loop.header);
  std::optional<CountedRange> range;
  if (open.iterator >= 0) {
    const V iterator = at(t, frame, open.iterator);
    range = counted_range(t, iterator);
    if (!range) refuse(t, "over something else than a range");
    if (iterator.use_count() != 2) refuse(t, "over an iterator that may be read elsewhere");  // here and on the stack
    open.asks_behind = !may_be_empty(iterator);
    made.states.push_back({range->next, {}, {}});
    open.states.emplace_back(StatePlace{open.iterator}, StateForm{true, {}, DType::I64});
    open.first.push_back(iterator);
  }
  way.events.push_back({TracedWay::Event::Kind::Enter, t.graph().nodes.size(), t.graph().value_count(), t.location(),
                        {}, false, open.number});
  open.mark = t.mark();
  for (std::size_t i = 0; i < made.states.size(); ++i) {
    TracedWay::State& state = made.states[i];
    state.inside = t.graph().new_value(t.graph().type(state.before));
    const auto& [place, form] = open.states[i];
    if (place[0] == open.iterator) {
      range->next = state.inside;
      open.inside.push_back(counting(t, *range, !open.asks_behind));
    } else {
      // What a pass alone makes is nothing when the next begins.
      open.inside.push_back(open.first[i] ? value_of(t, form, state.inside) : nullptr);
    }
    put(t, frame, place, open.inside.back());
  }
  for (const int place : plan.lost) at(t, frame, place) = nullptr;
  for (const V& first : open.first) {
    // The loops around this one know it too.
    std::ptrdiff_t known = 1;
    for (const OpenLoop& around : way.open)
      for (const std::vector<V>* values : {&around.held, &around.first, &around.inside})
        known += std::count(values->begin(), values->end(), first);
    open.alone.push_back(first && is_made_anew(first) && first.use_count() == known);
  }
  for (int place = 0; place < places_of(frame); ++place) {
    open.held.push_back(at(t, frame, place));
    note_contents(t, open, {place}, open.held.back());
  }
  way.loops.push_back(std::move(made));
  way.open.push_back(std::move(open));
}

/// Arrays that a pass writes are seen nowhere else. What the loop may leave as it found it is not written behind it if
/// it came from outside, and is no result either if it is known elsewhere in the trace.
void check_aliases(TraceRun& t, Frame& frame, const OpenLoop& open, bool again) {
  LoopPlan& plan = (*t.request.way->plans)[open.key];
  const LoopPlan known = plan;
  const std::vector<bool> live = live_slots(*frame.code, again ? open.pass->header : frame.pc);
  const auto is_written = [&](std::size_t i) {
    return open.inside[i] && t.written_since(open.inside[i].get(), open.mark);
  };
  struct Alias {
    std::size_t state, of;  // what is the one's now was another's, or its own, before the pass
  };
  std::vector<Alias> aliases;
  std::vector<std::size_t> arrays;
  std::vector<const FakeStorage*> memory;
  for (std::size_t i = 0; i < open.states.size(); ++i) {
    const auto& [place, form] = open.states[i];
    if (form.number || form.numpy_scalar) continue;
    if (open.first[i]) arrays.push_back(i);
    plan.writes = plan.writes || is_written(i);
    const bool is_read = place[0] >= int(live.size()) || live[std::size_t(place[0])];
    const V now = is_read ? at(t, frame, place) : nullptr;
    const auto* array = now ? as<ArrayValue>(now) : nullptr;
    if (!array) continue;
    if (!array->view.empty() || array->is_view || array->storage->input_array || array->storage->made_as_view)
      refuse(t, "whose passes make a view of an array: copy it");
    if (std::find(memory.begin(), memory.end(), array->storage.get()) != memory.end())
      refuse(t, "whose passes make two variables one array: copy it");
    memory.push_back(array->storage.get());
    for (std::size_t k = 0; k < open.states.size(); ++k)
      if (now == open.inside[k]) aliases.push_back({i, k});
  }
  for (const Alias& alias : aliases) plan.moves = plan.moves || (again && alias.state != alias.of);
  for (const Alias& alias : aliases)
    for (std::size_t i : arrays) {
      if (again || open.alone[i] || (!plan.moves && i != alias.of)) continue;
      const auto* first = as<ArrayValue>(open.first[i]);
      if (!first->view.empty()) refuse(t, "behind which there may be a view from before it: copy it first");
      const bool outside = open.first[i]->source || first->storage->may_be_outside;
      (outside ? plan.stays : plan.shows).insert(open.states[alias.state].first);
    }
  if (!(plan == known)) throw PlanGrown{};
  if (plan.writes && plan.moves) refuse(t, "which writes arrays that its variables hand on to each other");
  for (std::size_t i : arrays)
    if (is_written(i) && !open.alone[i]) refuse(t, "which changes an array that may be seen elsewhere: copy it first");
}

/// A tensor's `_version` counts writes, and how many there were in a loop is not known. Captured graphs have none.
void check_version(TraceRun& t, const V& value) {
  const auto* array = value && !t.request.copies_results ? as<ArrayValue>(value) : nullptr;
  if (array && array->library == Library::Torch && (*array->torch_version != 0 || array->storage->library_version != 0))
    refuse(t, "of a tensor that is written in place");
}

/// By state, what the pass gives.
void give(TraceRun& t, Frame& frame, const OpenLoop& open, bool again) {
  TracedWay::Loop& loop = t.request.way->loops[open.number];
  const Modes &now_set = t.modes->now, &set = open.modes;
  if (t.written_since(open.mark) || now_set.grad != set.grad || now_set.inference != set.inference ||
      now_set.float_conditions != set.float_conditions || now_set.otherwise_reported != set.otherwise_reported)
    refuse(t, "which changes what is around it");
  loop.given.clear();
  for (std::size_t i = 0; i < open.states.size(); ++i) {
    const auto& [place, form] = open.states[i];
    const V now = at(t, frame, place);
    if (place[0] == open.iterator) {
      loop.given.push_back(again ? as<IteratorValue>(now)->counted->next : ValueId{});
      continue;
    }
    if (!now && !open.first[i]) {
      if (again) refuse(t, "which makes a variable in some passes alone");
      loop.given.push_back({});
      continue;
    }
    check_version(t, now);
    check_version(t, open.first[i]);
    const auto found = form_of(t, now);
    if (found && found->gradient && !form.gradient) {
      LoopPlan& plan = (*t.request.way->plans)[open.key];
      (plan.changed.count(place) ? plan.changed : plan.made).at(place).gradient = true;
      throw PlanGrown{};
    }
    if (!found || !found->same_as(form)) refuse(t, "whose passes make different things of a variable");
    loop.given.push_back(contents_of(t, now, form));
  }
  check_aliases(t, frame, open, again);
}

[[noreturn]] void end_way(TraceRun& t, Frame& frame, const OpenLoop& open, TracedWay::End end) {
  t.request.way->end = end;
  t.request.way->ended = open.number;
  std::vector<V> given;
  for (const auto& [place, form] : open.states)
    if (V now = place[0] != open.iterator ? at(t, frame, place) : nullptr)
      given.push_back(std::move(now));
  throw WayEnds{Tracer::tuple(std::move(given))};
}

void leave(TraceRun& t, Frame& frame) {
  TracedWay& way = *t.request.way;
  OpenLoop open = std::move(way.open.back());
  way.open.pop_back();
  compare(t, frame, open);
  give(t, frame, open, false);
  const LoopPlan& plan = (*way.plans)[open.key];
  TracedWay::Loop& loop = way.loops[open.number];
  loop.exit = frame.pc;
  const std::vector<bool> outcomes = way.outcomes();
  const auto other = way.left->find({open.before, open.number, loop.exit});
  if (other != way.left->end() && other->second != outcomes) end_way(t, frame, open, TracedWay::End::Left);
  way.events.push_back({TracedWay::Event::Kind::Leave, t.graph().nodes.size(), t.graph().value_count(), t.location(),
                        {}, false, open.number});
  for (std::size_t i = 0; i < open.states.size(); ++i) {
    const auto& [place, form] = open.states[i];
    TracedWay::State& state = loop.states[i];
    state.behind = t.graph().new_value(t.graph().type(state.before));
    if (place[0] == open.iterator || place[0] >= places_of(frame)) continue;
    const V now = loop.given[i].valid() ? value_of(t, form, state.behind) : nullptr;
    put(t, frame, place, now);
    if (auto* array = now ? as<ArrayValue>(now) : nullptr) {
      array->storage->may_be_outside = plan.stays.count(place) != 0;
      array->storage->stands_for_view = plan.shows.count(place) != 0;  // it may be the other one itself
    }
  }
  for (const int place : plan.lost) at(t, frame, place) = nullptr;
}

/// What a `for` or a `break` does behind its loop before the program's next instruction.
bool belongs_to_exit(const Frame& frame) {
  const FjInstr& instr = frame.code->instrs[frame.pc];
  return instr.opcode == FJ_NOP || instr.opcode == FJ_POP_TOP || fj_opcode_rows[instr.opcode].flow == FJ_FLOW_Jump;
}

}  // namespace

std::vector<PassOf> passes_of(const FjCode& code) {
  std::vector<Loop> loops = loops_of(code);
  // Two that end together are one loop, of the later header: see loops_of.
  std::erase_if(loops, [&](const Loop& loop) {
    return std::any_of(loops.begin(), loops.end(), [&](const Loop& other) {
      return other.header > loop.header && other.last == loop.last;
    });
  });
  std::vector<PassOf> result;
  for (const Loop& loop : loops) {
    const auto count = std::size_t(code.count);
    std::vector<bool> forbidden(count, false);
    for (const Loop& around : loops)
      if (around.header < loop.header && around.last >= loop.last) forbidden[std::size_t(around.header)] = true;
    const auto each_next = [&](std::size_t i, auto&& visit) {
      const auto flow = fj_opcode_rows[code.instrs[i].opcode].flow;
      if ((flow == FJ_FLOW_Next || flow == FJ_FLOW_Branch) && i + 1 < count) visit(i + 1);
      if (flow == FJ_FLOW_Jump || flow == FJ_FLOW_Branch) visit(std::size_t(code.instrs[i].arg));
    };
    // From the header forwards, and then those of them from which it is reached.
    std::vector<bool> reached(count, false), inside(count, false);
    std::vector<std::size_t> waiting = {std::size_t(loop.header)};
    reached[waiting[0]] = true;
    while (!waiting.empty()) {
      const std::size_t i = waiting.back();
      waiting.pop_back();
      each_next(i, [&](std::size_t next) {
        if (reached[next] || forbidden[next]) return;
        reached[next] = true;
        waiting.push_back(next);
      });
    }
    inside[std::size_t(loop.header)] = true;
    for (bool grown = true; grown;) {
      grown = false;
      for (std::size_t i = count; i-- > 0;)
        if (reached[i] && !inside[i])
          each_next(i, [&](std::size_t next) {
            if (inside[next] && !inside[i]) inside[i] = grown = true;
          });
    }
    result.push_back({loop.header, std::move(inside)});
  }
  return result;
}

V computed_number(TraceRun& t, const V& value) {
  const auto dtype = as<ObjectValue>(value) ? number_of(value) : std::nullopt;
  PyObject* const object = dtype ? t.constant_object(value) : nullptr;
  if (!object || (*dtype == DType::I64 && !t.constant_int(value))) return value;
  StateForm form;
  form.number = true;
  form.dtype = *dtype;
  return std::make_shared<NumberValue>(contents_of(t, value, form), *dtype);
}

V computed_range(TraceRun& t, const std::vector<V>& arguments) {
  const auto bound = [&](const V& value) {
    const auto* number = as<NumberValue>(value);
    if (number && number->dtype == DType::F64) break_graph(BreakReason::ErrorWhileTracing, "range() of a float");
    if (number) return number->dtype == DType::I64 ? number->contents : cast(t, number->contents, DType::I64);
    if (const auto known = t.int_expression(value)) return size_value(t, *known, DType::I64);
    if (const auto known = t.constant_int(value)) return constant(t, DType::I64, *known);
    break_graph(BreakReason::UnknownCall, "range() of " + describe(value));
  };
  if (!t.request.way)
    break_graph(BreakReason::BranchOnData, "`" + t.source_text() + "` goes as often as a number says that is computed");
  CountedRange range{arguments.size() > 1 ? bound(arguments[0]) : constant(t, DType::I64, 0),
                     bound(arguments[arguments.size() > 1 ? 1 : 0])};
  if (arguments.size() == 3) {
    const auto step = t.constant_int(arguments[2]);
    if (!step || *step == 0) break_graph(BreakReason::UnknownCall, "range() with a step that is computed");
    range.step = *step;
  }
  return std::make_shared<ComputedRangeValue>(range);
}

std::shared_ptr<IteratorValue> iterate_computed(TraceRun& t, const CountedRange& range) {
  auto iterator = std::make_shared<IteratorValue>();
  iterator->counted = std::make_shared<CountedRange>(range);
  iterator->next = [&t]() -> V {
    break_graph(BreakReason::BranchOnData, "`" + t.source_text() + "` goes as often as a number says that is computed");
  };
  return iterator;
}

void pass_loops(TraceRun& t, Frame& frame) {
  TracedWay& way = *t.request.way;
  if (!way.open.empty() && std::find(t.frames.begin(), t.frames.end(), way.open.back().frame) == t.frames.end())
    refuse(t, "which an exception leaves");
  const std::vector<PassOf>& loops = t.decodes.passes(*frame.code);
  const auto here =
      std::find_if(loops.begin(), loops.end(), [&](const PassOf& loop) { return loop.header == frame.pc; });
  const auto is_open = [&] { return !way.open.empty() && way.open.back().frame == &frame; };
  while (is_open() && !way.open.back().pass->inside[std::size_t(frame.pc)]) {
    if (here == loops.end() && belongs_to_exit(frame)) return;
    leave(t, frame);
  }
  if (here == loops.end()) return;
  if (is_open() && way.open.back().pass == &*here) {
    // A pass of a range that is not empty asks behind itself whether another follows.
    if (way.open.back().asks_behind && !another(t, frame)) return;
    const OpenLoop open = way.open.back();
    compare(t, frame, open);
    give(t, frame, open, true);
    end_way(t, frame, open, TracedWay::End::Again);
  }
  const std::pair<const void*, int> key{frame.co, here->header};
  if (way.plans && way.plans->count(key)) return enter(t, frame, *here);
  for (auto inner = frame.headers.begin(); inner != frame.headers.end();)
    inner = inner->first != here->header && here->inside[std::size_t(inner->first)] ? frame.headers.erase(inner)
                                                                                    : std::next(inner);
  const auto [known, first] = frame.headers.emplace(here->header, way.outcomes().size());
  const int place = iterator_place(frame, here->header);
  const auto* iterator = place < 0 ? nullptr : as<IteratorValue>(at(t, frame, place));
  if (!(iterator && iterator->counted) && (first || known->second == way.outcomes().size())) return;
  way.loops_on_data = true;
  if (!way.plans) return;
  (*way.plans)[key];
  throw PlanGrown{};
}

void leave_frame(TraceRun& t, const Frame& frame) {
  for (const OpenLoop& open : t.request.way->open)
    if (open.frame == &frame) refuse(t, "from inside of which a function returns");
}

}  // namespace fj
