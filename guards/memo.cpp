// Building a memo step by step, and comparing it. Memo::note decides for each step whether words can stand for it.
#include "guards/memo.h"

#include <cstring>

#include "cpython/cpython.h"
#include "guards/check_program.h"

namespace fj::guard_program {
namespace {

using Kind = Step::Kind;

/// Never twice in a process, so that bindings know whose values they hold.
std::uint64_t next_serial() {
  static std::uint64_t serial = 0;
  return ++serial;
}

bool is_fetch(Kind kind) { return kind <= Kind::FetchOther; }

/// Depends on sizes or ints that other steps bind, or binds them: the order among these stays.
bool uses_symbols(const CheckProgram& program, const Step& step) {
  switch (step.kind) {
    case Kind::Array: return !program.array(step).constant;
    case Kind::ArrayDeferred:
    case Kind::IntBind:
    case Kind::IntCompare:
    case Kind::LengthBind:
    case Kind::Define:
    case Kind::Relation: return true;
    default: return false;
  }
}

std::uint64_t bits(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

PyObject* lookup(PyObject* dict, PyObject* key) {
  PyObject* found = PyDict_GetItemWithError(dict, key);
  if (!found) PyErr_Clear();
  return found;
}

constexpr std::uint64_t kNever = 0;  // a word that never has the value expected of it

}  // namespace

Memo::Memo(const CheckProgram& program, const FrameValues& frame, const GuardBindings& bindings,
           const std::vector<bool>& varies)
    : serial_(next_serial()) {
  places_.assign(bindings.values.size(), Place::Unknown);
  pinned_.assign(bindings.values.size(), false);
  for (std::uint32_t i = 0; i < program.steps().size(); ++i) note(program, i, frame, bindings, varies);
  for (Dict& dict : dicts_)
    for (Fact& fact : dict.facts)
      fact.replaceable = fact.kind == Fact::Kind::Value && !pinned_[std::size_t(fact.target)];
  places_ = {};
  pinned_ = {};
  word_at_ = {};
  dict_at_ = {};
}

/// All of what `attempt` notes, or nothing: words of an attempt that failed halfway would be read at an address that no
/// register keeps alive.
template <class Attempt>
bool Memo::whole(Attempt attempt) {
  const std::size_t words = words_.size(), dicts = dicts_.size();
  std::vector<std::size_t> facts;
  for (const Dict& dict : dicts_) facts.push_back(dict.facts.size());
  if (attempt()) return true;
  words_.resize(words);
  dicts_.resize(dicts);
  for (std::size_t i = 0; i < dicts; ++i) dicts_[i].facts.resize(facts[i]);
  std::erase_if(word_at_, [&](const auto& entry) { return entry.second >= words; });
  std::erase_if(dict_at_, [&](const auto& entry) { return entry.second >= dicts; });
  return false;
}

/// Whether the step is left to each call, or words stand for it.
void Memo::note(const CheckProgram& program, std::uint32_t index, const FrameValues& frame,
                const GuardBindings& bindings, const std::vector<bool>& varies) {
  const Step& step = program.steps()[index];
  auto place = [&](std::int32_t target) { return target < 0 ? Place::Frame : places_[std::size_t(target)]; };
  auto value = [&](std::int32_t target) { return bindings.values[std::size_t(target)]; };
  if (is_fetch(step.kind)) {
    Place& own = places_[std::size_t(step.value)];
    const bool root =
        step.kind == Kind::FetchSlot || (step.kind == Kind::FetchOther && step.source->kind == SourceKind::Function);
    if (root && varies[std::size_t(step.value)]) {
      own = Place::Call;
      after_.push_back(index);
    } else if (root) {
      own = Place::Frame;
      before_.push_back(index);
    } else if (step.kind != Kind::FetchMade && place(step.base) != Place::Call &&
               whole([&] { return fetch(step, frame, bindings); })) {
      own = Place::Here;
      values_.push_back({step.value, value(step.value)});
      if (step.base >= 0) use(step.base, value(step.base));
    } else {
      own = Place::Call;
      after_.push_back(index);
    }
    return;
  }
  bool frame_only = true, here_only = step.value >= 0;
  auto look = [&](std::int32_t target) {
    if (target < 0) return;
    frame_only &= place(target) == Place::Frame;
    here_only &= place(target) == Place::Here;
  };
  look(step.value);
  look(step.base);
  const bool compares = step.kind == Kind::SameObject || step.kind == Kind::NotSame || step.kind == Kind::NoOverlap;
  if (compares)
    for (SourceRef other : program.guard(step).others) look(other->id);
  if (here_only && step.guard >= 0 && whole([&] { return test(step, program.guard(step), value(step.value)); })) {
    pinned_[std::size_t(step.value)] = true;
    if (compares)
      for (SourceRef other : program.guard(step).others) pinned_[std::size_t(other->id)] = true;
    return;
  }
  const bool symbols = uses_symbols(program, step);
  if (frame_only && !(symbols && symbols_after_)) {
    before_.push_back(index);
  } else {
    symbols_after_ |= symbols;
    after_.push_back(index);
  }
}

/// A register that others are built on keeps its object.
void Memo::use(std::int32_t target, PyObject* object) {
  if (places_[std::size_t(target)] == Place::Here) {
    pinned_[std::size_t(target)] = true;
    return;
  }
  for (const Root& root : roots_)
    if (root.target == target) return;
  roots_.push_back({target, object});
}

void Memo::word(const void* address, std::uint64_t expected, std::uint64_t mask) {
  if (word_at_.emplace(address, words_.size()).second) words_.push_back({address, expected, mask});
}
void Memo::pointer(const void* address, const void* expected) { word(address, bits(expected)); }
void Memo::type_of(PyObject* object) { pointer(&object->ob_type, object->ob_type); }

bool Memo::class_unchanged(PyTypeObject* type) {
  static_assert(sizeof type->tp_version_tag == 4, "a version tag is half a word");
  if (type->tp_version_tag == 0) return false;
  // The word that has the tag in its low or high half, so that the load stays inside the class.
  auto address = bits(&type->tp_version_tag);
  const bool high = address % 8 != 0;
  address -= high ? 4 : 0;
  word(reinterpret_cast<const void*>(address), std::uint64_t(type->tp_version_tag) << (high ? 32 : 0),
       high ? 0xffffffff00000000u : 0xffffffffu);
  return true;
}

Memo::Dict& Memo::of_dict(PyObject* dict) {
  auto [at, fresh] = dict_at_.emplace(dict, dicts_.size());
  if (fresh) {
    const std::uint64_t* version = fj_dict_version_word(dict);
    dicts_.push_back({dict, words_.size(), {}});
    // A dict without a version is asked at every call.
    words_.push_back(version ? Word{version, *version, ~0ull} : Word{&kNever, 1, ~0ull});
  }
  return dicts_[at->second];
}

void Memo::fact(PyObject* dict, Fact fact) { of_dict(dict).facts.push_back(fact); }

void Memo::item(PyObject* sequence, PyObject* const* items, std::int64_t index) {
  type_of(sequence);
  word(&reinterpret_cast<PyVarObject*>(sequence)->ob_size, std::uint64_t(Py_SIZE(sequence)));
  pointer(items + index, items[index]);
}

bool Memo::attribute(PyObject* owner, PyObject* name, std::int32_t target) {
  type_of(owner);
  PyObject* dict = fj_instance_dict(owner);
  PyObject* const* place = fj_instance_dict_word(owner);
  if (!dict || !place || *place != dict) return false;
  pointer(place, dict);
  fact(dict, {Fact::Kind::Value, name, lookup(dict, name), 0, target, false});
  return true;
}

bool Memo::fetch(const Step& step, const FrameValues& frame, const GuardBindings& bindings) {
  PyObject* base = step.base >= 0 ? bindings.values[std::size_t(step.base)] : nullptr;
  PyObject* found = bindings.values[std::size_t(step.value)];
  switch (step.kind) {
    case Kind::FetchGlobal:
      globals_ = frame.function->func_globals;
      fact(globals_, {Fact::Kind::Value, step.object, found, 0, step.value, false});
      return true;
    case Kind::FetchDictItem:
      type_of(base);
      fact(base, {Fact::Kind::Value, step.object, found, 0, step.value, false});
      return true;
    case Kind::FetchAttribute: return attribute(base, step.object, step.value);
    default: return fetch_other(*step.source, base, found, step.value, frame);
  }
}

bool Memo::fetch_other(const Source& source, PyObject* base, PyObject* found, std::int32_t target,
                       const FrameValues& frame) {
  auto* function = reinterpret_cast<PyFunctionObject*>(base);
  switch (source.kind) {
    case SourceKind::Constant: return true;
    case SourceKind::Builtin:
      builtins_ = frame.function->func_builtins;
      fact(builtins_, {Fact::Kind::Value, source.key.get(), found, 0, target, false});
      return true;
    case SourceKind::ListItem: {
      auto* list = reinterpret_cast<PyListObject*>(base);
      type_of(base);
      word(&list->ob_base.ob_size, std::uint64_t(Py_SIZE(base)));
      pointer(&list->ob_item, list->ob_item);
      pointer(&list->ob_item[source.index], found);
      return true;
    }
    case SourceKind::TupleItem: item(base, reinterpret_cast<PyTupleObject*>(base)->ob_item, source.index); return true;
    case SourceKind::InstanceDict: {
      PyObject* const* place = fj_instance_dict_word(base);
      if (!place || *place != found) return false;
      type_of(base);
      pointer(place, found);
      return true;
    }
    case SourceKind::Type: type_of(base); return true;
    case SourceKind::Cell:
      type_of(base);
      pointer(&reinterpret_cast<PyCellObject*>(base)->ob_ref, found);
      return true;
    case SourceKind::ClosureCell:
    case SourceKind::FunctionDefault: {
      PyObject** place = source.kind == SourceKind::ClosureCell ? &function->func_closure : &function->func_defaults;
      type_of(base);
      pointer(place, *place);
      item(*place, reinterpret_cast<PyTupleObject*>(*place)->ob_item, from_the_end(source.index, *place));
      return true;
    }
    case SourceKind::FunctionGlobals:
      type_of(base);
      pointer(&function->func_globals, found);
      return true;
    case SourceKind::FunctionKwDefault:
      type_of(base);
      pointer(&function->func_kwdefaults, function->func_kwdefaults);
      fact(function->func_kwdefaults, {Fact::Kind::Value, source.key.get(), found, 0, target, false});
      return true;
    case SourceKind::MethodSelf:
      type_of(base);
      if (PyMethod_Check(base)) {
        pointer(&reinterpret_cast<PyMethodObject*>(base)->im_self, found);
      } else {
        pointer(&reinterpret_cast<PyCFunctionObject*>(base)->m_self, found);
      }
      return true;
    case SourceKind::MethodFunction:
      type_of(base);
      pointer(&reinterpret_cast<PyMethodObject*>(base)->im_func, found);
      return true;
    case SourceKind::Referent:
      type_of(base);
      pointer(&reinterpret_cast<PyWeakReference*>(base)->wr_object, found);
      return true;
    case SourceKind::DictKey:
      type_of(base);
      fact(base, {Fact::Kind::KeyAt, nullptr, found, source.index, target, false});
      return true;
    default: return false;  // makes an object, or is not reached by words
  }
}

bool Memo::test(const Step& step, const Guard& guard, PyObject* value) {
  auto referent = [&](const void* expected) {
    pointer(&reinterpret_cast<PyWeakReference*>(step.object)->wr_object, expected);
  };
  if (step.kind != Kind::Identity && step.kind != Kind::IdentityWeak) type_of(value);
  switch (step.kind) {
    case Kind::TypeIs: return true;
    case Kind::TypeIsWeak:
      referent(Py_TYPE(value));
      return true;
    case Kind::Identity: return true;
    case Kind::IdentityWeak: referent(value); return true;
    case Kind::EqualsInt:
    case Kind::Equals:
      if (!PyLong_CheckExact(value) && !PyFloat_CheckExact(value) && !PyUnicode_CheckExact(value) &&
          !PyBytes_CheckExact(value))
        return false;
      kept_.push_back(Ref<>::borrow(value));
      return true;
    case Kind::Length:
      if (PyDict_Check(value)) {
        word(&reinterpret_cast<PyDictObject*>(value)->ma_used, std::uint64_t(step.number));
      } else if (PyAnySet_Check(value)) {
        word(&reinterpret_cast<PySetObject*>(value)->used, std::uint64_t(step.number));
      } else if (PyList_Check(value) || PyTuple_Check(value) || PyBytes_Check(value)) {
        word(&reinterpret_cast<PyVarObject*>(value)->ob_size, std::uint64_t(step.number));
      } else {
        return false;
      }
      return true;
    case Kind::DictKeys:
      fact(value, {Fact::Kind::Keys, step.object, nullptr, 0, -1, false});
      return true;
    case Kind::HasKey: fact(value, {Fact::Kind::Has, step.object, nullptr, 0, -1, false}); return true;
    case Kind::LacksKey: fact(value, {Fact::Kind::Lacks, step.object, nullptr, 0, -1, false}); return true;
    case Kind::TypeVersion: return class_unchanged(reinterpret_cast<PyTypeObject*>(value));
    case Kind::FunctionCode: {
      PyObject* code = PyFunction_GET_CODE(value);
      pointer(&reinterpret_cast<PyFunctionObject*>(value)->func_code, code);
      if (guard.weak) referent(code);
      return true;
    }
    case Kind::SameObject:
    case Kind::NotSame: return true;  // every register here has the object it had
    default: return false;
  }
}

bool Memo::ask_again(Dict& dict) {
  bool replaced = false;
  for (Fact& fact : dict.facts) {
    switch (fact.kind) {
      case Fact::Kind::Has:
        if (!lookup(dict.dict, fact.key)) return false;
        break;
      case Fact::Kind::Lacks:
        if (lookup(dict.dict, fact.key)) return false;
        break;
      case Fact::Kind::Value: {
        PyObject* found = lookup(dict.dict, fact.key);
        if (found == fact.expected) break;
        if (!found || !fact.replaceable) return false;
        fact.expected = found;
        for (Value& value : values_)
          if (value.target == fact.target) value.object = found;
        replaced = true;
        break;
      }
      case Fact::Kind::KeyAt: {
        // As fetch_step finds it, so that key and value are of one place.
        Py_ssize_t position = Py_ssize_t(fact.index);
        PyObject *key = nullptr, *item = nullptr;
        if (!PyDict_Next(dict.dict, &position, &key, &item) || key != fact.expected) return false;
        break;
      }
      case Fact::Kind::Keys: {
        Py_ssize_t position = 0, index = 0;
        PyObject *key, *item;
        if (PyDict_GET_SIZE(dict.dict) != PyTuple_GET_SIZE(fact.key)) return false;
        while (PyDict_Next(dict.dict, &position, &key, &item))
          if (key != PyTuple_GET_ITEM(fact.key, index++)) return false;
        break;
      }
    }
  }
  if (const std::uint64_t* version = fj_dict_version_word(dict.dict)) words_[dict.word].expected = *version;
  if (replaced) serial_ = next_serial();
  return true;
}

bool Memo::holds(const FrameValues& frame, GuardBindings& bindings) {
  other_root_ = -1;
  for (const Root& root : roots_)
    if (bindings.values[std::size_t(root.target)] != root.object) return other_root_ = root.target, false;
  if (globals_ && (!frame.function || frame.function->func_globals != globals_)) return false;
  if (builtins_ && (!frame.function || frame.function->func_builtins != builtins_)) return false;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    const Word& word = words_[i];
    std::uint64_t found;
    std::memcpy(&found, word.address, sizeof found);
    if ((found & word.mask) == word.expected) [[likely]]
      continue;
    // A change in a dict may be one that doesn't matter; any other counts.
    bool same = false;
    for (Dict& dict : dicts_)
      if (dict.word == i) same = ask_again(dict);
    if (!same) return false;
  }
  if (bindings.filled_by != serial_) {
    for (const Value& value : values_) bindings.values[std::size_t(value.target)] = value.object;
    bindings.filled_by = serial_;
  }
  return true;
}

}  // namespace fj::guard_program
