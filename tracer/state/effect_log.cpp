/// The log of side effects: what the program has written, as long as it is only written in the trace.
///
/// Two records. `writes_` has a row for every write whatsoever, and answers whether something happened since a mark:
/// wherever code of the user's may have run in between, that is the question. `effects_` has the writes that Python
/// code outside the trace will see, each as the operation that the program made: replayed in this order on the real
/// objects, they leave the same insertion orders, layouts of sets and states of iterators that somebody else holds.
#include "tracer/state/effect_log.h"

#include "runtime/base/error.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/values/outside_objects.h"

namespace fj {

bool EffectLog::written_since(const Tracer::Mark& mark) const {
  for (std::size_t i = mark.writes; i < writes_.size(); ++i)
    if (writes_[i].number < mark.values) return true;
  return false;
}

bool EffectLog::written_since(const Value* owner, const Tracer::Mark& mark) const {
  for (std::size_t i = mark.writes; i < writes_.size(); ++i)
    if (writes_[i].owner == owner) return true;
  return false;
}

bool EffectLog::written_since(const Tracer::Mark& mark, const std::set<const Value*>& known) const {
  for (std::size_t i = mark.writes; i < writes_.size(); ++i)
    if (writes_[i].number < mark.values && !writes_[i].by_name && !known.count(writes_[i].owner)) return true;
  return false;
}

std::optional<V> EffectLog::named(const void* owner, PyObject* name) const {
  auto found = names_.find({owner, name});
  return found == names_.end() ? std::nullopt : std::optional<V>(found->second);
}

Tracer::Mark TraceRun::mark() const { return {effects->write_count(), values_made}; }
bool TraceRun::written_since(const Mark& mark) const { return effects->written_since(mark); }
bool TraceRun::written_since(const Value* owner, const Mark& mark) const { return effects->written_since(owner, mark); }

void note_items(TraceRun& t, const V& container) {
  auto& list = *as<ListValue>(container);
  t.effects->note_write(container.get());
  if (!container->source || list.mutated) return;
  list.mutated = true;
  // Only what a list holds in the end can be seen of it: its iterators count places.
  t.effects->add({Effect::Kind::Items, container, {}, {}, {}, {}});
}

void note_item(TraceRun& t, const V& owner, Ref<> key, V value) {
  t.effects->note_write(owner.get());
  if (!owner->source) return;
  Effect effect{Effect::Kind::Item, owner, {}, std::move(key), {}, {}};
  if (value) effect.arguments.push_back(std::move(value));
  t.effects->add(std::move(effect));
}

void note_call(TraceRun& t, const V& owner, const char* method, Ref<> key, std::vector<V> arguments) {
  t.effects->note_write(owner.get());
  if (!owner->source) return;
  // Of the builtin type, which is what a container Value has: nothing that a derived class defines runs again.
  Ref<> found = Ref<>::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(t.type_of(owner)), method));
  FJ_CHECK(found, "a method of a builtin container");
  t.effects->add({Effect::Kind::Call, owner, {}, std::move(key), std::move(found), std::move(arguments)});
}

/// Whether two places may hold two Values of the owner's object: functions and classes.
static bool has_many_values(const V& owner) {
  auto* object = as<ObjectValue>(owner);
  return object && (PyFunction_Check(object->object.get()) || PyType_Check(object->object.get()));
}

const V& EffectLog::one_owner(const V& owner) {
  return has_many_values(owner) ? owners_.emplace(as<ObjectValue>(owner)->object.get(), owner).first->second : owner;
}

const V* EffectLog::known_owner(const V& owner) const {
  if (!has_many_values(owner)) return &owner;
  const auto found = owners_.find(as<ObjectValue>(owner)->object.get());
  return found == owners_.end() ? nullptr : &found->second;
}

void note_attribute(TraceRun& t, const V& reached, PyObject* name, const V& value) {
  // The object may be reached from elsewhere too, or another one from here in another call.
  if (has_many_values(reached)) guard_value(t, *as<ObjectValue>(reached));
  const V owner = t.effects->one_owner(reached);
  t.effects->note_write(owner.get());
  PyObject* key = interned(t, name);
  t.effects->name(owner.get(), key, value);
  Effect effect{Effect::Kind::Attribute, owner, {}, Ref<>::borrow(key), {}, {}};
  if (value) effect.arguments.push_back(value);
  t.effects->add(std::move(effect));
}

void note_cell(TraceRun& t, const V& cell, const V& contents) {
  t.effects->note_write(cell.get());
  if (!cell->source) return;
  Effect effect{Effect::Kind::Cell, cell, {}, {}, {}, {}};
  if (contents) effect.arguments.push_back(contents);
  t.effects->add(std::move(effect));
}

void note_global(TraceRun& t, PyObject* globals, PyObject* name, const V& value) {
  t.effects->note_write(nullptr);
  PyObject* key = interned(t, name);
  t.effects->name(globals, key, value);
  Effect effect{Effect::Kind::Item, nullptr, Ref<>::borrow(globals), Ref<>::borrow(key), {}, {}};
  if (value) effect.arguments.push_back(value);
  t.effects->add(std::move(effect));
}

PyObject* interned(TraceRun& t, PyObject* name) {
  if (PyUnicode_CHECK_INTERNED(name)) return name;
  PyObject* text = Py_NewRef(name);
  PyUnicode_InternInPlace(&text);
  return t.keep(Ref<>::steal(text)).get();
}

std::optional<V> written_global(TraceRun& t, PyObject* globals, PyObject* name) {
  return t.effects->names_any() ? t.effects->named(globals, interned(t, name)) : std::nullopt;
}

std::optional<V> written_attribute(TraceRun& t, const V& owner, PyObject* name) {
  if (!t.effects->names_any()) return std::nullopt;
  if (has_many_values(owner)) guard_value(t, *as<ObjectValue>(owner));
  const V* known = t.effects->known_owner(owner);
  return known ? t.effects->named(known->get(), interned(t, name)) : std::nullopt;
}

}  // namespace fj
