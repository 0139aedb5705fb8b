/// What programs ask about classes: isinstance, issubclass, type, callable and dir on symbolic values.
///
/// Python's answer goes by the MRO, by what an object calls its class, and, for abstract classes, by what was
/// registered. The answer of now is taken and what it depends on is guarded. Start at `is_subclass`.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "tracer/builtins/builtin_table.h"
#include "tracer/interpreter/exceptions.h"
#include "tracer/interpreter/scopes.h"
#include "tracer/nesting.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/classes/class_statement.h"
#include "tracer/values/containers/dicts.h"
#include "tracer/values/outside_objects.h"

namespace fj {

/// Until some class is registered with an abstract class somewhere, which moves a number that the module abc keeps.
void guard_registrations(TraceRun& t) {
  PyObject* const token = once([] { return imported("_abc", "get_cache_token").release(); });
  static PyObject* const nothing = PyTuple_New(0);
  Ref<> number = token ? Ref<>::steal(PyObject_CallNoArgs(token)) : Ref<>();
  if (!number) break_graph(BreakReason::UnsupportedObject, take_error());
  // Not a value of the program's: nothing here holds for another number, so it is never a symbol.
  add_guard(t, GuardKind::Equals, t.sources().make(SourceKind::Answer, t.sources().constant(token), 0, nothing),
            t.keep(number).get());
}

namespace {

/// The classes named by the second argument of isinstance and issubclass.
std::vector<PyTypeObject*> classes_of(TraceRun& t, const V& value) {
  std::vector<PyTypeObject*> result;
  if (value->kind == ValueKind::Tuple) {
    const Nesting nesting;
    for (const V& item : t.sequence_items(value))
      for (PyTypeObject* type : classes_of(t, item)) result.push_back(type);
    return result;
  }
  PyObject* object = t.constant_object(value);
  if (object && PyType_Check(object)) {
    result.push_back(reinterpret_cast<PyTypeObject*>(object));
    return result;
  }
  if (object == Py_None) unknown_call("isinstance", {value});
  auto* real = as<ObjectValue>(value);
  if (real && is_union(real->object.get())) {
    if (real->source) add_guard(t, GuardKind::Identity, real->source, real->object.get());
    Ref<> parts = Ref<>::steal(PyObject_GetAttrString(real->object.get(), "__args__"));
    if (parts && PyTuple_Check(parts.get())) return classes_of(t, wrap_constant(t, t.keep(parts).get()));
  }
  unknown_call("isinstance", {value});
}

/// A class of C or of an array library.
bool is_settled(PyTypeObject* type) {
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return true;
  Ref<> module = Ref<>::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__module__"));
  if (!module) PyErr_Clear();
  const std::string text = module ? text_of(module.get()) : "";
  return text == "torch" || text == "numpy" || text.rfind("torch.", 0) == 0 || text.rfind("numpy.", 0) == 0;
}

/// What an abstract class says of a class of the user's holds until some class is registered somewhere, which moves a
/// number that the module abc keeps, or the class itself changes.
void guard_abstract_answer(TraceRun& t, PyTypeObject* type, PyTypeObject* base) {
  static PyObject* const hook_name = PyUnicode_InternFromString("__subclasshook__");
  PyObject* hook = class_attribute(t, base, hook_name);
  Ref<> module = Ref<>::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(base), "__module__"));
  PyErr_Clear();
  const std::string home = module && PyUnicode_Check(module.get()) ? text_of(module.get()) : "";
  // Python's own look for methods; C's has no opinion.
  if (hook != fj_type_lookup(&PyBaseObject_Type, hook_name) && home != "collections.abc" && home != "typing" &&
      home != "contextlib")
    break_graph(BreakReason::UnsupportedObject, std::string("isinstance of the abstract class ") + base->tp_name);
  guard_registrations(t);
  guard_type_version(t, type);
}

/// What the class's metaclass says in Python of an object or a class: it is asked before anything else is looked at.
/// Null: it has no such method, or one of a library whose answers `is_subclass` knows.
V answer_of_metaclass(TraceRun& t, PyTypeObject* base, PyObject* method, const V& about) {
  PyObject* own = class_attribute(t, Py_TYPE(base), method);
  if (!own || !PyFunction_Check(own)) return nullptr;
  static constexpr std::string_view known[] = {"abc", "typing", "torch.nn.parameter"};
  PyObject* home = PyDict_GetItemString(PyFunction_GET_GLOBALS(own), "__name__");
  const std::string module = home && PyUnicode_Check(home) ? text_of(home) : "";
  if (std::find(std::begin(known), std::end(known), module) != std::end(known)) return nullptr;
  return t.call(wrap_constant(t, own), {wrap_constant(t, reinterpret_cast<PyObject*>(base)), about}, {});
}

/// Whether the answer for a class that derives from this one may be no, or an error.
bool denies_derived(TraceRun& t, PyTypeObject* base) {
  static PyObject* const hook_name = PyUnicode_InternFromString("__subclasshook__");
  static PyObject* const protocol_name = PyUnicode_InternFromString("_is_protocol");
  if (!(base->tp_flags & Py_TPFLAGS_HEAPTYPE)) return false;
  if (PyObject* protocol = class_attribute(t, base, protocol_name); protocol && protocol != Py_False) return true;
  PyObject* hook = class_attribute(t, base, hook_name);
  if (hook == fj_type_lookup(&PyBaseObject_Type, hook_name)) return false;
  Ref<> wrapped = hook && Py_TYPE(hook) == &PyClassMethod_Type
                      ? Ref<>::steal(PyObject_GetAttrString(hook, "__func__"))
                      : Ref<>::borrow(hook);
  PyErr_Clear();
  PyObject* function = wrapped.get();
  if (!function || !PyFunction_Check(function)) return true;
  PyObject* home = PyDict_GetItemString(PyFunction_GET_GLOBALS(function), "__name__");
  const std::string module = home && PyUnicode_Check(home) ? text_of(home) : "";
  return module != "collections.abc" && module != "_collections_abc" && module != "contextlib" && module != "typing" &&
         module != "os";
}

/// Plain MRO membership, unless a metaclass decides (then by asking it, if it is one known to be pure). `method`: its
/// method that is asked.
bool is_subclass(TraceRun& t, PyTypeObject* type, PyTypeObject* base, PyObject* method) {
  const bool derived = PyType_IsSubtype(type, base);
  PyTypeObject* meta = Py_TYPE(base);
  if (meta == &PyType_Type || class_attribute(t, meta, method) == fj_type_lookup(&PyType_Type, method)) return derived;
  // An abstract class's own look may deny a class that derives from it, and a protocol refuses to be asked.
  if (derived && !denies_derived(t, base)) return true;
  // ABCs answer by registration; torch's Parameter and Buffer by a mark on tensors.
  if (!std::strcmp(meta->tp_name, "ABCMeta")) {
    const int answer = PyObject_IsSubclass(reinterpret_cast<PyObject*>(type), reinterpret_cast<PyObject*>(base));
    if (answer < 0) break_graph(BreakReason::ErrorWhileTracing, take_error());
    if (!is_settled(type)) guard_abstract_answer(t, type, base);
    return answer;
  }
  if (!std::strcmp(meta->tp_name, "_ParameterMeta") || !std::strcmp(meta->tp_name, "_BufferMeta") ||
      !std::strcmp(meta->tp_name, "_TensorMeta"))
    return false;  // marks are attributes of tensors, which wrapped arrays (exact types) do not have
  break_graph(BreakReason::UnsupportedObject, std::string("class ") + base->tp_name + " decides isinstance itself");
}

}  // namespace

V builtin_isinstance(TraceRun& t, std::vector<V>& a, Keywords& k) {
  expect("isinstance", a, k, 2, 2);
  if (a[0]->kind == ValueKind::Builtin) unknown_call("isinstance", a);
  PyTypeObject* type = t.type_of(a[0]);
  if (!is_settled(type)) guard_bases(t, type);
  // What an object calls its class counts too.
  static PyObject* const class_name = PyUnicode_InternFromString("__class__");
  const bool has_rules = a[0]->kind == ValueKind::Object || a[0]->kind == ValueKind::Instance;
  const bool pretends =
      has_rules && class_attribute(t, type, class_name) != fj_type_lookup(&PyBaseObject_Type, class_name);
  PyTypeObject* said = nullptr;
  static PyObject* const check = PyUnicode_InternFromString("__instancecheck__");
  for (PyTypeObject* base : classes_of(t, a[1])) {
    if (type == base) return t.boolean(true);
    if (V answer = answer_of_metaclass(t, base, check, a[0])) {
      if (t.truth(answer)) return t.boolean(true);
      continue;
    }
    if (is_subclass(t, type, base, check)) return t.boolean(true);
    if (!pretends) continue;
    if (V found = said ? nullptr : find_attribute(t, a[0], class_name)) {
      PyObject* known = t.constant_object(found);
      if (!known || !PyType_Check(known)) unknown_call("isinstance", a);
      said = reinterpret_cast<PyTypeObject*>(known);
    }
    if (said && is_subclass(t, said, base, check)) return t.boolean(true);
  }
  return t.boolean(false);
}

V builtin_issubclass(TraceRun& t, std::vector<V>& a, Keywords& k) {
  expect("issubclass", a, k, 2, 2);
  PyObject* type = t.constant_object(a[0]);
  // What has no bases is no class, whatever the other is.
  if (type && !PyType_Check(type) && (is_plain(type) || dtype_from_object(type)) && !classes_of(t, a[1]).empty())
    raise(t, PyExc_TypeError, {t.string("issubclass() arg 1 must be a class")}, BreakReason::ErrorWhileTracing,
          "issubclass() of something else than a class");
  if (!type || !PyType_Check(type)) unknown_call("issubclass", a);
  guard_bases(t, reinterpret_cast<PyTypeObject*>(type));
  static PyObject* const check = PyUnicode_InternFromString("__subclasscheck__");
  for (PyTypeObject* base : classes_of(t, a[1])) {
    V answer = answer_of_metaclass(t, base, check, a[0]);
    if (answer ? t.truth(answer) : is_subclass(t, reinterpret_cast<PyTypeObject*>(type), base, check))
      return t.boolean(true);
  }
  return t.boolean(false);
}

V builtin_type(TraceRun& t, std::vector<V>& a, Keywords& k) {
  if (a.size() == 3 && k.empty()) {
    PyObject* name = t.constant_object(a[0]);
    auto* space = as<DictValue>(a[2]);
    // Bases that are no tuple and a name that has no text in C are errors, which CPython raises.
    const bool named = name && PyUnicode_CheckExact(name) && PyUnicode_AsUTF8(name);
    if (!named) PyErr_Clear();
    if (!named || text_of(name).find('\0') != std::string::npos || a[1]->kind != ValueKind::Tuple || !space)
      unknown_call("type", a);
    open(t, *space);
    // type() looks up whose code calls it.
    std::vector<std::pair<Ref<>, V>> members = space->items;
    static PyObject* const module = PyUnicode_InternFromString("__module__");
    static PyObject* const name_name = PyUnicode_InternFromString("__name__");
    Frame& frame = *t.frames.back();
    if (dict_place(t, *space, module) == members.size())
      members.emplace_back(Ref<>::borrow(module), load_global(t, frame, name_name));
    return make_class(t, text_of(name), t.sequence_items(a[1]), members);
  }
  expect("type", a, k, 1, 1);
  return wrap_constant(t, reinterpret_cast<PyObject*>(t.type_of(a[0])));
}

V builtin_callable(TraceRun& t, std::vector<V>& a, Keywords& k) {
  expect("callable", a, k, 1, 1);
  switch (a[0]->kind) {
    case ValueKind::Function:
    case ValueKind::BoundMethod:
    case ValueKind::Builtin:
    case ValueKind::Partial: return t.boolean(true);
    case ValueKind::Object: case ValueKind::Instance: {
      static PyObject* const name = PyUnicode_InternFromString("__call__");
      PyTypeObject* type = t.type_of(a[0]);
      class_attribute(t, type, name);
      return t.boolean(type->tp_call != nullptr);
    }
    case ValueKind::Set:
    case ValueKind::Array:
    case ValueKind::Tuple:
    case ValueKind::List:
    case ValueKind::Dict:
    case ValueKind::SymInt: return t.boolean(false);
    default: unknown_call("callable", a);
  }
}

/// Names of the instance and of its class, as object.__dir__ gives them.
V builtin_dir(TraceRun& t, std::vector<V>& a, Keywords& k) {
  expect("dir", a, k, 1, 1);
  PyTypeObject* type = a[0]->kind == ValueKind::Object || a[0]->kind == ValueKind::Instance ? t.type_of(a[0]) : nullptr;
  static PyObject* const own_rule = PyUnicode_InternFromString("__dir__");
  static PyObject* const dict_name = PyUnicode_InternFromString("__dict__");
  static PyObject* const class_name = PyUnicode_InternFromString("__class__");
  static PyObject* const bases_name = PyUnicode_InternFromString("__bases__");
  static PyObject* const rule_name = PyUnicode_InternFromString("__getattribute__");
  // Of classes and modules something else; a class of C may have names that are not in its dict.
  if (!type || !(type->tp_flags & Py_TPFLAGS_HEAPTYPE) || PyType_IsSubtype(type, &PyType_Type)) unknown_call("dir", a);
  // object.__dir__ goes by what the object and its class say their dict, class and bases are.
  for (PyObject* name : {own_rule, class_name, rule_name})
    if (class_attribute(t, type, name) != fj_type_lookup(&PyBaseObject_Type, name)) unknown_call("dir", a);
  static PyObject* const fallback_name = PyUnicode_InternFromString("__getattr__");
  if (!fj_type_lookup(type, dict_name) && class_attribute(t, type, fallback_name)) unknown_call("dir", a);
  for (PyObject* name : {dict_name, bases_name, rule_name})
    if (class_attribute(t, Py_TYPE(type), name) != fj_type_lookup(&PyType_Type, name)) unknown_call("dir", a);
  guard_type_version(t, type);
  // Not by the metaclass's own __dir__.
  Ref<> names =
      Ref<>::steal(PyObject_CallOneArg(fj_type_lookup(&PyType_Type, own_rule), reinterpret_cast<PyObject*>(type)));
  Ref<> all = names ? Ref<>::steal(PySet_New(names.get())) : Ref<>();
  if (!all) raise_python_error(t);
  if (fj_type_lookup(type, dict_name)) {
    V members = find_attribute(t, a[0], dict_name);
    auto* dict = as<DictValue>(members);
    if (!dict) unknown_call("dir", a);
    open(t, *dict);
    for (auto& [key, value] : dict->items)
      if (!PyUnicode_CheckExact(key.get()) || PySet_Add(all.get(), key.get()) < 0) unknown_call("dir", a);
  }
  Ref<> sorted = Ref<>::steal(PySequence_List(all.get()));
  if (!sorted || PyList_Sort(sorted.get()) < 0) raise_python_error(t);
  std::vector<V> items;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(sorted.get()); ++i)
    items.push_back(wrap_constant(t, t.keep(Ref<>::borrow(PyList_GET_ITEM(sorted.get(), i))).get()));
  return t.list(std::move(items));
}

}  // namespace fj
