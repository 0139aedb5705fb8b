// Fetching and naming of sources.
//
// `fetch_step` checks what it touches, so it is safe on any object: a check program may run it before the guards
// on the base have been tested. Nothing here runs Python code, with one proviso: lookups in a dict compare keys, and
// the keys of sources are exact str or int, whose comparison with a user's key is the user's only if their hashes
// agree.
#include "guards/source.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "cpython/cpython.h"
#include "cpython/objects.h"
#include "guards/check_program.h"

namespace fj {
namespace {

constexpr std::string_view source_texts[] = {
#define FJ_SOURCE(name, text) text,
#include "guards/source.def"
};

PyObject* dict_item(PyObject* dict, PyObject* key) {
  if (!dict || !PyDict_Check(dict)) return nullptr;
  PyObject* found = PyDict_GetItemWithError(dict, key);
  if (!found) PyErr_Clear();
  return found;
}

PyObject* tuple_item(PyObject* tuple, std::int64_t index) {
  if (!tuple || !PyTuple_Check(tuple) || index < 0 || index >= PyTuple_GET_SIZE(tuple)) return nullptr;
  return PyTuple_GET_ITEM(tuple, index);
}

/// The sequence that a list or tuple iterator runs over.
Ref<> iterated(PyObject* iterator) {
  const bool known = Py_TYPE(iterator) == &PyListIter_Type || Py_TYPE(iterator) == &PyTupleIter_Type;
  return Ref<>::borrow(known ? fj_iterator(iterator).over : nullptr);
}

/// Key equality as identity of what is fetched: True and 1 are one dict key, but not one constant.
bool same_key(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (!a || !b || Py_TYPE(a) != Py_TYPE(b)) return false;
  if (!PyUnicode_CheckExact(a) && !PyLong_CheckExact(a)) return false;
  return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

std::size_t key_hash(PyObject* key) {
  if (key && (PyUnicode_CheckExact(key) || PyLong_CheckExact(key))) return std::size_t(PyObject_Hash(key));
  return std::hash<void*>()(key);
}

std::string utf8(PyObject* string) {
  Py_ssize_t size = 0;
  const char* bytes = PyUnicode_AsUTF8AndSize(string, &size);
  if (bytes) return std::string(bytes, std::size_t(size));
  PyErr_Clear();
  return "?";
}

/// repr of an object whose type is exactly one of CPython's plain values, cut to a readable length.
std::string plain_repr(PyObject* object) {
  auto repr = Ref<>::steal(PyObject_Repr(object));
  if (!repr) {
    PyErr_Clear();
    return std::string(Py_TYPE(object)->tp_name);
  }
  std::string text = utf8(repr.get());
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

bool has_plain_repr(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyTuple_Type) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
      if (!PyTuple_GET_ITEM(object, i) || !has_plain_repr(PyTuple_GET_ITEM(object, i))) return false;
    return true;
  }
  return object == Py_None || object == Py_Ellipsis || type == &PyLong_Type || type == &PyFloat_Type ||
         type == &PyBool_Type || type == &PyUnicode_Type || type == &PyBytes_Type || type == &PyComplex_Type;
}

}  // namespace

void fill_in(std::string& text, std::string_view hole, const std::string& with) {
  if (auto at = text.find(hole); at != std::string::npos) text.replace(at, hole.size(), with);
}

std::string describe_object(PyObject* object) {
  if (!object) return "nothing";
  if (has_plain_repr(object)) return plain_repr(object);
  // The names of functions, modules and classes are C fields or str in exact places: no Python code runs.
  if (PyType_Check(object)) return reinterpret_cast<PyTypeObject*>(object)->tp_name;
  if (PyModule_CheckExact(object)) {
    const char* module = PyModule_GetName(object);
    if (!module) PyErr_Clear();
    return "module " + std::string(module ? module : "?");
  }
  if (PyFunction_Check(object)) return "function " + utf8(reinterpret_cast<PyFunctionObject*>(object)->func_qualname);
  if (PyCFunction_Check(object))
    return "function " + std::string(reinterpret_cast<PyCFunctionObject*>(object)->m_ml->ml_name);
  if (PyCode_Check(object)) return "code of " + utf8(reinterpret_cast<PyCodeObject*>(object)->co_qualname);
  return std::string(Py_TYPE(object)->tp_name) + " object";
}

namespace {

/// `L.n / 10` for truediv(L.n, 10).
std::string result_text(const Source& source) {
  constexpr std::pair<std::string_view, std::string_view> kOperators[] = {
      {"add", "+"},  {"sub", "-"},  {"mul", "*"}, {"truediv", "/"}, {"floordiv", "//"}, {"mod", "%"},
      {"pow", "**"}, {"and_", "&"}, {"or_", "|"}, {"xor", "^"},     {"rshift", ">>"},   {"lt", "<"},
      {"le", "<="},  {"eq", "=="},  {"ne", "!="}, {"gt", ">"},      {"ge", ">="}};
  constexpr int kDeepest = 8;  // more nobody reads
  PyObject* function = source.key.get();
  const std::string name = PyCFunction_Check(function) ? reinterpret_cast<PyCFunctionObject*>(function)->m_ml->ml_name
                           : Py_TYPE(function) == &PyMethodDescr_Type
                               ? utf8(reinterpret_cast<PyDescrObject*>(function)->d_name)
                               : describe_object(function);
  if (source.depth > kDeepest) return name + "(...)";
  auto operand = [&](std::size_t i) {
    const Source& part = *source.operands[i];
    const std::string text = part.kind == SourceKind::Constant ? describe_object(part.key.get()) : part.text();
    return part.kind == SourceKind::Result && text.back() != ')' ? "(" + text + ")" : text;
  };
  if (source.operands.size() == 2)
    for (auto [function_name, sign] : kOperators)
      if (name == function_name) return operand(0) + " " + std::string(sign) + " " + operand(1);
  std::string list;
  for (std::size_t i = 0; i < source.operands.size(); ++i) list += (i ? ", " : "") + operand(i);
  return name + "(" + list + ")";
}

}  // namespace

std::string Source::text() const {
  if (kind == SourceKind::Result) return result_text(*this);
  std::string result(source_texts[int(kind)]);
  if (!operands.empty()) fill_in(result, "{operands}", operands[0]->text());
  if (base) fill_in(result, "{base}", base->text());
  fill_in(result, "{index}", std::to_string(index));
  if (key) {
    // In brackets and for constants: the value; else the key is a name.
    bool name =
        PyUnicode_Check(key.get()) && result.find("[{key}]") == std::string::npos && kind != SourceKind::Constant;
    fill_in(result, "{key}", name ? utf8(key.get()) : describe_object(key.get()));
  }
  return result;
}

bool is_plain_operand(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  return type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type || type == &PyUnicode_Type ||
         type == &PyBytes_Type || object == Py_None;
}

namespace {

/// The built-in `len`, which runs nobody's code for containers of Python's own, and needs nothing of their items.
PyObject* length_function() {
  return once([] { return PyDict_GetItemString(PyEval_GetBuiltins(), "len"); });
}

bool has_length(PyObject* object) {
  return PyList_CheckExact(object) || PyTuple_CheckExact(object) || PyDict_CheckExact(object) ||
         PyAnySet_CheckExact(object) || PyByteArray_CheckExact(object);
}

}  // namespace

bool is_operand(PyObject* object) {
  if (is_plain_operand(object) || PySlice_Check(object)) return true;
  if (PyTuple_CheckExact(object))
    return std::all_of(&PyTuple_GET_ITEM(object, 0), &PyTuple_GET_ITEM(object, 0) + PyTuple_GET_SIZE(object),
                       is_plain_operand);
  return is_pattern(object) || is_match(object);
}

bool is_pattern(PyObject* object) {
  PyObject* const type = once([] { return imported("re", "Pattern").release(); });
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) == type;
}

bool is_match(PyObject* object) {
  PyObject* const type = once([] { return imported("re", "Match").release(); });
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) == type;
}

bool is_made_anew(SourceRef source) {
  for (SourceRef step = source; step; step = step->base)
    if (step->kind == SourceKind::Result || step->kind == SourceKind::RangePart) return true;
  return !source->operands.empty();
}

SourceRef SourceTable::make(SourceKind kind, SourceRef base, std::int64_t index, PyObject* key,
                            const std::vector<SourceRef>& operands) {
  // A slot is its number: its name is only how it prints.
  PyObject* identity = kind == SourceKind::Slot ? nullptr : key;
  std::size_t hash = std::size_t(kind) * 1000003u ^ std::hash<const void*>()(base) * 31u ^ std::size_t(index) * 8191u ^
                     key_hash(identity);
  for (SourceRef operand : operands) hash = hash * 1000003u ^ std::hash<const void*>()(operand);
  bool by_value = kind != SourceKind::Constant;
  auto [begin, end] = interned_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    SourceRef old = it->second;
    if (old->kind != kind || old->base != base || old->index != index || old->operands != operands) continue;
    if (kind == SourceKind::Slot || old->key.get() == key || (by_value && same_key(old->key.get(), key))) return old;
  }
  auto source = std::make_unique<Source>();
  source->kind = kind;
  source->base = base;
  source->index = index;
  source->key = Ref<>::borrow(key);
  source->operands = operands;
  for (SourceRef operand : operands) source->depth = std::max(source->depth, operand->depth + 1);
  source->id = std::int32_t(sources_.size());
  sources_.push_back(std::move(source));
  interned_.emplace(hash, sources_.back().get());
  return sources_.back().get();
}

SourceRef SourceTable::slot(int slot, std::string name) {
  auto key = Ref<>::steal(PyUnicode_FromStringAndSize(name.data(), Py_ssize_t(name.size())));
  if (!key) PyErr_Clear();
  return make(SourceKind::Slot, nullptr, slot, key.get());
}

SourceRef SourceTable::global(PyObject* name) { return make(SourceKind::Global, nullptr, 0, name); }
SourceRef SourceTable::builtin(PyObject* name) { return make(SourceKind::Builtin, nullptr, 0, name); }
SourceRef SourceTable::function() { return make(SourceKind::Function, nullptr); }
SourceRef SourceTable::constant(PyObject* object) { return make(SourceKind::Constant, nullptr, 0, object); }

PyTypeObject* deque_type() {
  PyObject* const type = once([] { return imported("_collections", "deque").release(); });
  return reinterpret_cast<PyTypeObject*>(type);
}

bool is_deque(PyObject* object) { return Py_TYPE(object) == deque_type(); }

PyObject* fetch_step(const Source& source, PyObject* base, const FrameValues& values, Ref<>& owned,
                     std::span<PyObject* const> operands) {
  if (source.base && !base) return nullptr;
  PyFunctionObject* function = base && PyFunction_Check(base) ? reinterpret_cast<PyFunctionObject*>(base) : nullptr;
  switch (source.kind) {
    case SourceKind::Slot:
      return source.index >= 0 && std::size_t(source.index) < values.slots.size()
                 ? values.slots[std::size_t(source.index)]
                 : nullptr;
    case SourceKind::Global:
      return values.function ? dict_item(values.function->func_globals, source.key.get()) : nullptr;
    case SourceKind::Builtin:
      return values.function ? dict_item(values.function->func_builtins, source.key.get()) : nullptr;
    case SourceKind::Function: return reinterpret_cast<PyObject*>(values.function);
    case SourceKind::Constant: return source.key.get();
    case SourceKind::DictItem: return dict_item(base, source.key.get());
    case SourceKind::ListItem:
      return PyList_Check(base) && source.index >= 0 && source.index < PyList_GET_SIZE(base)
                 ? PyList_GET_ITEM(base, source.index)
                 : nullptr;
    case SourceKind::DequeItem:
      if (is_deque(base) && source.index >= 0 && source.index < Py_SIZE(base))
        owned = Ref<>::steal(PySequence_GetItem(base, Py_ssize_t(source.index)));
      return owned.get();
    case SourceKind::TupleItem: return tuple_item(base, source.index);
    case SourceKind::InstanceDict: return fj_instance_dict(base);
    case SourceKind::Attribute: return dict_item(fj_instance_dict(base), source.key.get());
    case SourceKind::SlotMember:
      owned = Ref<>::steal(PyObject_GenericGetAttr(base, source.key.get()));
      if (!owned) PyErr_Clear();
      return owned.get();
    case SourceKind::ClassVariable:
      return PyType_Check(base) ? dict_item(fj_instance_dict(base), source.key.get()) : nullptr;
    case SourceKind::Type: return reinterpret_cast<PyObject*>(Py_TYPE(base));
    case SourceKind::Cell: return PyCell_Check(base) ? PyCell_GET(base) : nullptr;
    case SourceKind::ClosureCell: return function ? tuple_item(function->func_closure, source.index) : nullptr;
    case SourceKind::FunctionGlobals: return function ? function->func_globals : nullptr;
    case SourceKind::FunctionDefault: {
      PyObject* defaults = function ? function->func_defaults : nullptr;
      return defaults ? tuple_item(defaults, from_the_end(source.index, defaults)) : nullptr;
    }
    case SourceKind::FunctionKwDefault:
      return function ? dict_item(function->func_kwdefaults, source.key.get()) : nullptr;
    case SourceKind::MethodSelf:
      if (PyMethod_Check(base)) return PyMethod_GET_SELF(base);
      return PyCFunction_Check(base) ? PyCFunction_GET_SELF(base) : nullptr;
    case SourceKind::MethodFunction: return PyMethod_Check(base) ? PyMethod_GET_FUNCTION(base) : nullptr;
    case SourceKind::IteratorBase: return (owned = iterated(base)).get();
    case SourceKind::RangePart: {
      const auto range = Py_REFCNT(base) == 1 ? range_position(base) : std::nullopt;
      if (!range) return nullptr;
      owned = Ref<>::steal(
          PyLong_FromLongLong(source.index == 0 ? range->next : source.index == 1 ? range->end : range->step));
      return owned.get();
    }
    case SourceKind::Referent:
      if (PyWeakref_CheckRefExact(base)) owned = Ref<>::steal(PyObject_CallNoArgs(base));
      return owned.get();
    case SourceKind::Answer:
      owned = Ref<>::steal(PyObject_CallObject(base, source.key.get()));
      if (!owned) PyErr_Clear();
      return owned.get();
    case SourceKind::AnswerAbout:
      owned = Ref<>::steal(PyObject_CallOneArg(source.key.get(), base));
      if (!owned) PyErr_Clear();
      return owned.get();
    case SourceKind::Size: {
      ArrayView view;
      if (!guard_program::read_any_array(base, view) || source.index >= view.rank) return nullptr;
      owned = Ref<>::steal(PyLong_FromLongLong(view.shape[source.index]));
      return owned.get();
    }
    case SourceKind::Result:
      for (PyObject* operand : operands)
        if (!operand || !(is_operand(operand) || (source.key.get() == length_function() && has_length(operand))))
          return nullptr;
      owned = Ref<>::steal(PyObject_Vectorcall(source.key.get(), operands.data(), operands.size(), nullptr));
      if (!owned) PyErr_Clear();
      return owned.get();
    case SourceKind::ItemOf: {
      PyObject* key = operands.empty() ? nullptr : operands[0];
      if (!key || !is_plain_operand(key)) return nullptr;
      // Of a class that derives from list too: what the list itself holds, whatever the class makes of it.
      if (!PyList_Check(base) && !PyTuple_Check(base)) return dict_item(base, key);
      const Py_ssize_t place = PyLong_CheckExact(key) ? PyLong_AsSsize_t(key) : PY_SSIZE_T_MIN,
                       size = PySequence_Fast_GET_SIZE(base);
      PyErr_Clear();
      if (place < -size || place >= size) return nullptr;
      return PySequence_Fast_GET_ITEM(base, place < 0 ? place + size : place);
    }
    case SourceKind::DictKey:
    case SourceKind::DictValue: {
      if (!PyDict_Check(base)) return nullptr;
      // Where no key was deleted the index is the place; elsewhere it may be another one, but key and value are of one
      // place.
      Py_ssize_t position = Py_ssize_t(source.index);
      PyObject *key, *value;
      if (!PyDict_Next(base, &position, &key, &value)) return nullptr;
      return source.kind == SourceKind::DictKey ? key : value;
    }
  }
  return nullptr;
}

namespace {

/// `made`: the results of functions met so far. One may be an operand of many.
Ref<> fetch_once(SourceRef source, const FrameValues& values, std::unordered_map<SourceRef, Ref<>>& made) {
  if (!source->operands.empty())
    if (const auto known = made.find(source); known != made.end()) return known->second;
  Ref<> base, owned;
  if (source->base) {
    base = fetch_once(source->base, values, made);
    if (!base) return {};
  }
  std::vector<Ref<>> held;
  std::vector<PyObject*> operands;
  for (SourceRef operand : source->operands) {
    held.push_back(fetch_once(operand, values, made));
    operands.push_back(held.back().get());
  }
  PyObject* found = fetch_step(*source, base.get(), values, owned, operands);
  Ref<> result = owned ? std::move(owned) : Ref<>::borrow(found);
  if (!source->operands.empty()) made.emplace(source, result);
  return result;
}

}  // namespace

Ref<PyObject> SourceTable::fetch(SourceRef source, const FrameValues& values) const {
  std::unordered_map<SourceRef, Ref<>> made;
  return fetch_once(source, values, made);
}

}  // namespace fj
