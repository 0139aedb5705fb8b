/// The builtins of builtins.def on symbolic values, and folding of pure functions on constants.
#include <opcode.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tracer/builtin_table.h"
#include "tracer/variables/containers.h"
#include "tracer/variables/proxies.h"
#include "tracer/variables/text.h"

namespace fj {

namespace {

using Arguments_ = std::vector<V>;

// ---- questions

V builtin_len(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("len", a, k, 1, 1);
  return t.length(a[0]);
}

/// The classes named by the second argument of isinstance and issubclass.
std::vector<PyTypeObject*> classes_of(TracerImpl& t, const V& value) {
  std::vector<PyTypeObject*> result;
  if (value->kind == ValueKind::Tuple) {
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
  if (real && !std::strcmp(Py_TYPE(real->object.get())->tp_name, "types.UnionType")) {
    if (real->source) t.add_guard(GuardKind::Identity, real->source, real->object.get());
    Ref<> parts = Ref<>::steal(PyObject_GetAttrString(real->object.get(), "__args__"));
    if (parts && PyTuple_Check(parts.get())) return classes_of(t, t.wrap_constant(t.keep(parts).get()));
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

/// What an abstract class says of a class of the user's holds until some class is registered somewhere, which moves a number that
/// the module abc keeps, or the class itself changes.
void guard_abstract_answer(TracerImpl& t, PyTypeObject* type, PyTypeObject* base) {
  static PyObject* const hook_name = PyUnicode_InternFromString("__subclasshook__");
  PyObject* hook = t.class_attribute(base, hook_name);
  Ref<> module = Ref<>::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(base), "__module__"));
  PyErr_Clear();
  const std::string home = module && PyUnicode_Check(module.get()) ? text_of(module.get()) : "";
  // Python's own look for methods; C's has no opinion.
  if (hook != fj_type_lookup(&PyBaseObject_Type, hook_name) && home != "collections.abc" && home != "typing" && home != "contextlib")
    break_graph(BreakReason::UnsupportedObject, std::string("isinstance of the abstract class ") + base->tp_name);
  static PyObject* const token = imported("_abc", "get_cache_token").release();
  static PyObject* const nothing = PyTuple_New(0);
  Ref<> number = token ? Ref<>::steal(PyObject_CallNoArgs(token)) : Ref<>();
  if (!number) break_graph(BreakReason::UnsupportedObject, take_error());
  // Not a value of the program's: nothing here holds for another number, so it is never a symbol.
  t.add_guard(GuardKind::Equals, t.sources->make(SourceKind::Answer, t.sources->constant(token), 0, nothing), t.keep(number).get());
  t.guard_type_version(type);
}

/// Plain MRO membership, unless a metaclass decides (then by asking it, if it is one known to be pure).
bool is_subclass(TracerImpl& t, PyTypeObject* type, PyTypeObject* base) {
  if (PyType_IsSubtype(type, base)) return true;
  static PyObject* const check = PyUnicode_InternFromString("__subclasscheck__");
  static PyObject* const instance_check = PyUnicode_InternFromString("__instancecheck__");
  PyTypeObject* meta = Py_TYPE(base);
  if (meta == &PyType_Type || (t.class_attribute(meta, check) == fj_type_lookup(&PyType_Type, check) &&
                               t.class_attribute(meta, instance_check) == fj_type_lookup(&PyType_Type, instance_check)))
    return false;
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

V builtin_isinstance(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("isinstance", a, k, 2, 2);
  if (a[0]->kind == ValueKind::Iterator || a[0]->kind == ValueKind::Builtin) unknown_call("isinstance", a);
  PyTypeObject* type = t.type_of(a[0]);
  if (!is_settled(type)) t.guard_bases(type);
  // What an object calls its class counts too.
  static PyObject* const class_name = PyUnicode_InternFromString("__class__");
  const bool has_rules = a[0]->kind == ValueKind::Object || a[0]->kind == ValueKind::Instance;
  const bool pretends = has_rules && t.class_attribute(type, class_name) != fj_type_lookup(&PyBaseObject_Type, class_name);
  PyTypeObject* said = nullptr;
  for (PyTypeObject* base : classes_of(t, a[1])) {
    if (is_subclass(t, type, base)) return t.true_value;
    if (!pretends) continue;
    if (V found = said ? nullptr : t.find_attribute(a[0], class_name)) {
      PyObject* known = t.constant_object(found);
      if (!known || !PyType_Check(known)) unknown_call("isinstance", a);
      said = reinterpret_cast<PyTypeObject*>(known);
    }
    if (said && is_subclass(t, said, base)) return t.true_value;
  }
  return t.false_value;
}

V builtin_issubclass(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("issubclass", a, k, 2, 2);
  PyObject* type = t.constant_object(a[0]);
  if (!type || !PyType_Check(type)) unknown_call("issubclass", a);
  t.guard_bases(reinterpret_cast<PyTypeObject*>(type));
  for (PyTypeObject* base : classes_of(t, a[1]))
    if (is_subclass(t, reinterpret_cast<PyTypeObject*>(type), base)) return t.true_value;
  return t.false_value;
}

V builtin_build_class(TracerImpl& t, Arguments_& a, Keywords& k) { return t.build_class(a, k); }

V builtin_type(TracerImpl& t, Arguments_& a, Keywords& k) {
  if (a.size() == 3 && k.empty()) {
    PyObject* name = t.constant_object(a[0]);
    auto* space = as<DictValue>(a[2]);
    if (!name || !PyUnicode_CheckExact(name) || !space) unknown_call("type", a);
    t.open(*space);
    // type() looks up whose code calls it.
    std::vector<std::pair<Ref<>, V>> members = space->items;
    static PyObject* const module = PyUnicode_InternFromString("__module__");
    static PyObject* const name_name = PyUnicode_InternFromString("__name__");
    Frame& frame = *t.frames.back();
    if (t.dict_place(*space, module) == members.size()) members.emplace_back(Ref<>::borrow(module), t.load_global(frame, name_name));
    return t.make_class(text_of(name), t.sequence_items(a[1]), members);
  }
  expect("type", a, k, 1, 1);
  return t.wrap_constant(reinterpret_cast<PyObject*>(t.type_of(a[0])));
}

V builtin_callable(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("callable", a, k, 1, 1);
  switch (a[0]->kind) {
    case ValueKind::Function: case ValueKind::BoundMethod: case ValueKind::Builtin: case ValueKind::Partial: return t.true_value;
    case ValueKind::Object: case ValueKind::Instance: {
      static PyObject* const name = PyUnicode_InternFromString("__call__");
      PyTypeObject* type = t.type_of(a[0]);
      t.class_attribute(type, name);
      return t.tracer.boolean(type->tp_call != nullptr);
    }
    case ValueKind::Set: case ValueKind::Array: case ValueKind::Tuple: case ValueKind::List: case ValueKind::Dict: case ValueKind::SymInt: return t.false_value;
    default: unknown_call("callable", a);
  }
}

PyObject* attribute_name(TracerImpl& t, const V& value) {
  PyObject* name = t.constant_object(value);
  if (!name || !PyUnicode_CheckExact(name)) unknown_call("getattr", {value});
  return name;
}

/// Null also if Python code on the way raises AttributeError.
V attribute_or_null(TracerImpl& t, const V& owner, PyObject* name) {
  ++t.catching;
  struct Restore {
    int& catching;
    ~Restore() { --catching; }
  } restore{t.catching};
  try {
    return t.find_attribute(owner, name);
  } catch (const RaisedInTrace& raised) {
    auto* error = as<InstanceValue>(raised.exception);
    if (!PyType_IsSubtype(error->type.get(), reinterpret_cast<PyTypeObject*>(PyExc_AttributeError))) throw;
    return nullptr;
  }
}

V builtin_getattr(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("getattr", a, k, 2, 3);
  PyObject* name = attribute_name(t, a[1]);
  if (V found = a.size() == 3 ? attribute_or_null(t, a[0], name) : t.find_attribute(a[0], name)) return found;
  if (a.size() == 3) return a[2];
  t.raise_no_attribute(a[0], name);
}

V builtin_hasattr(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("hasattr", a, k, 2, 2);
  return t.tracer.boolean(attribute_or_null(t, a[0], attribute_name(t, a[1])) != nullptr);
}

V builtin_setattr(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("setattr", a, k, 3, 3);
  t.set_attribute(a[0], attribute_name(t, a[1]), a[2]);
  return t.none;
}

V builtin_super(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("super", a, k, 0, 2);
  if (a.size() == 1) unknown_call("super", a);
  auto super = std::make_shared<SuperValue>();
  V type = a.empty() ? nullptr : a[0];
  super->self = a.empty() ? nullptr : a[1];
  if (a.empty()) {
    // The cell __class__ and the first argument of the function being run.
    Frame& frame = *t.frames.back();
    PyObject* names = frame.co->co_localsplusnames;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i)
      if (text_of(PyTuple_GET_ITEM(names, i)) == "__class__")
        if (V cell = t.local(frame, int(i)); cell && cell->kind == ValueKind::Cell) type = t.cell_contents(*as<CellValue>(cell));
    super->self = t.local(frame, 0);
    if (super->self && super->self->kind == ValueKind::Cell) super->self = t.cell_contents(*as<CellValue>(super->self));
  }
  PyObject* real = type ? t.constant_object(type) : nullptr;
  if (!real || !PyType_Check(real) || !super->self) unknown_call("super", a);
  super->type = Ref<PyTypeObject>::borrow(reinterpret_cast<PyTypeObject*>(real));
  return super;
}

// ---- iteration

V builtin_range(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("range", a, k, 1, 3);
  auto range = std::make_shared<RangeValue>();
  auto bound = [&](const V& value) {
    auto expression = t.int_expression(value);
    if (!expression) unknown_call("range", a);
    return *expression;
  };
  range->start = a.size() > 1 ? bound(a[0]) : SymDim(0);
  range->stop = bound(a[a.size() > 1 ? 1 : 0]);
  if (a.size() == 3) {
    auto step = t.tracer.constant_int(a[2]);
    if (!step || *step == 0) unknown_call("range", a);
    range->step = *step;
  }
  return range;
}

V builtin_slice(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("slice", a, k, 1, 3);
  auto slice = std::make_shared<SliceValue>();
  slice->start = a.size() > 1 ? a[0] : t.none;
  slice->stop = a[a.size() > 1 ? 1 : 0];
  slice->step = a.size() == 3 ? a[2] : t.none;
  return slice;
}

V builtin_enumerate(TracerImpl& t, Arguments_& a, Keywords& k) {
  V start = take_keyword(k, "start");
  expect("enumerate", a, k, 1, 2);
  if (a.size() == 2) start = a[1];
  auto from = start ? t.int_expression(start) : SymDim(0);
  if (!from) unknown_call("enumerate", a);
  auto position = std::make_shared<SymDim>(*from);
  V inner = t.make_iterator(a[0]);
  auto iterator = std::make_shared<IteratorValue>();
  iterator->next = [&t, inner, position]() -> V {
    V item = t.next(inner);
    if (!item) return nullptr;
    V number = t.integer(*position);
    *position = *position + SymDim(1);
    return t.tracer.tuple({number, item});
  };
  return made_by("builtins", "enumerate", iterator, {inner, t.integer(*from)});
}

V builtin_map(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("map", a, k, 2, 1000);
  V function = a[0];
  std::vector<V> parts;
  for (std::size_t i = 1; i < a.size(); ++i) parts.push_back(t.make_iterator(a[i]));
  auto iterator = std::make_shared<IteratorValue>();
  iterator->next = [&t, function, parts]() -> V {
    std::vector<V> items;
    for (const V& part : parts) {
      V item = t.next(part);
      if (!item) return nullptr;
      items.push_back(item);
    }
    return t.call(function, std::move(items), {});
  };
  std::vector<V> arguments = parts;
  arguments.insert(arguments.begin(), function);
  return made_by("builtins", "map", iterator, std::move(arguments));
}

V builtin_filter(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("filter", a, k, 2, 2);
  V function = a[0], inner = t.make_iterator(a[1]);
  auto iterator = std::make_shared<IteratorValue>();
  iterator->next = [&t, function, inner]() -> V {
    while (V item = t.next(inner))
      if (t.truth(t.is_none(function) ? item : t.call(function, {item}, {}))) return item;
    return nullptr;
  };
  return made_by("builtins", "filter", iterator, {function, inner});
}

V builtin_sorted(TracerImpl& t, Arguments_& a, Keywords& k) {
  V key = take_keyword(k, "key"), reverse = take_keyword(k, "reverse");
  expect("sorted", a, k, 1, 1);
  std::vector<V> items;
  // Without a key equal elements of a set are one, so their order in it is not seen.
  if (a[0]->kind == ValueKind::Set && !key)
    items = t.set_items(*as<SetValue>(a[0]));
  else
    items = t.listed_items(a[0]);
  t.sort(items, key, reverse && t.truth(reverse));
  return t.tracer.list(items);
}

// ---- folds over items

V extreme(TracerImpl& t, Arguments_& a, Keywords& k, const char* name, int better) {
  V key = take_keyword(k, "key"), otherwise = take_keyword(k, "default");
  if (!k.empty() || a.empty()) unknown_call(name, a);
  if (otherwise && a.size() > 1) unknown_call(name, a);
  V best, best_key;
  auto look = [&](const V& item) {
    V candidate = key && !t.is_none(key) ? t.call(key, {item}, {}) : item;
    if (best && !t.truth(t.compare(better, candidate, best_key))) return;
    best = item;
    best_key = candidate;
  };
  auto* set = as<SetValue>(a[0]);
  if (a.size() > 1 || (set && !key)) {
    // Without a key equal elements of a set are one, so their order in it is not seen.
    for (const V& item : a.size() > 1 ? a : t.set_items(*set)) look(item);
  } else {
    t.for_each(a[0], look);
  }
  if (best) return best;
  if (otherwise) return otherwise;
  if (a[0]->kind == ValueKind::Array) unknown_call(name, a);
  Ref<> empty = Ref<>::steal(PyTuple_New(0));
  Ref<> none = Ref<>::steal(PyObject_CallOneArg(PyDict_GetItemString(PyEval_GetBuiltins(), name), empty.get()));
  t.raise_python_error();
}

V builtin_min(TracerImpl& t, Arguments_& a, Keywords& k) { return extreme(t, a, k, "min", Py_LT); }
V builtin_max(TracerImpl& t, Arguments_& a, Keywords& k) { return extreme(t, a, k, "max", Py_GT); }

V builtin_sum(TracerImpl& t, Arguments_& a, Keywords& k) {
  V start = take_keyword(k, "start");
  expect("sum", a, k, 1, 2);
  if (a.size() == 2) start = a[1];
  // CPython adds numbers in ways of its own (floats with compensation from 3.12 on): its own sum() adds up constants. From the
  // first other item on it is `total + item`, one after the other.
  static PyObject* const sum = PyDict_GetItemString(PyEval_GetBuiltins(), "sum");
  V total = start ? start : t.tracer.integer(std::int64_t(0));
  std::vector<V> plain;
  bool any_other = false;
  auto fold = [&]() {
    V folded = fold_call(t, sum, {t.tracer.tuple(std::exchange(plain, {})), total}, {});
    if (!folded) unknown_call("sum", a);
    total = folded;
  };
  auto constant = [&](const V& value) { return value->kind == ValueKind::Object && is_plain(as<ObjectValue>(value)->object.get()); };
  if (constant(total)) fold();  // of nothing: it refuses to start with a str
  t.for_each(a[0], [&](const V& item) {
    if (!any_other && constant(item) && constant(total)) return plain.push_back(item);
    if (!plain.empty()) fold();
    if (item->kind != ValueKind::SymInt && !constant(item)) any_other = true;
    if (!any_other && constant(item) && PyFloat_CheckExact(as<ObjectValue>(item)->object.get())) unknown_call("sum", a);
    total = t.binary(NB_ADD, total, item);
  });
  if (!plain.empty()) fold();
  return total;
}

V builtin_any(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("any", a, k, 1, 1);
  V iterator = t.make_iterator(a[0]);
  while (V item = t.next(iterator))
    if (t.truth(item)) return t.true_value;
  return t.false_value;
}

V builtin_all(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("all", a, k, 1, 1);
  V iterator = t.make_iterator(a[0]);
  while (V item = t.next(iterator))
    if (!t.truth(item)) return t.false_value;
  return t.true_value;
}

V builtin_reduce(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("reduce", a, k, 2, 3);
  V total = a.size() == 3 ? a[2] : nullptr;
  t.for_each(a[1], [&](const V& item) { total = total ? t.call(a[0], {total, item}, {}) : item; });
  if (!total) break_graph(BreakReason::ErrorWhileTracing, "reduce() of nothing");
  return total;
}

// ---- numbers

V method_or_fold(TracerImpl& t, Arguments_& a, Keywords& k, const char* name, const char* method) {
  if (a.empty()) unknown_call(name, a);
  if (a[0]->kind == ValueKind::Array) {
    Ref<> text = t.keep(Ref<>::steal(PyUnicode_InternFromString(method)));
    V bound = t.find_attribute(a[0], text.get());
    if (!bound) unknown_call(name, a);
    return t.call(bound, {a.begin() + 1, a.end()}, k);
  }
  if (V own = t.python_method(a[0], method)) return t.call(own, {a.begin() + 1, a.end()}, k);
  for (V& argument : a) {
    argument = t.number_part(argument);
    if (argument->kind == ValueKind::SymInt) argument = t.tracer.integer(*t.tracer.constant_int(argument));
  }
  if (V folded = fold_call(t, PyDict_GetItemString(PyEval_GetBuiltins(), name), a, k)) return folded;
  unknown_call(name, a);
}

V builtin_abs(TracerImpl& t, Arguments_& a, Keywords& k) { return method_or_fold(t, a, k, "abs", "__abs__"); }
V builtin_round(TracerImpl& t, Arguments_& a, Keywords& k) { return method_or_fold(t, a, k, "round", "__round__"); }

V builtin_pow(TracerImpl& t, Arguments_& a, Keywords& k) {
  if (a.size() == 3)
    if (V folded = fold_call(t, PyDict_GetItemString(PyEval_GetBuiltins(), "pow"), a, k)) return folded;
  expect("pow", a, k, 2, 2);
  return t.binary(NB_POWER, a[0], a[1]);
}

V builtin_divmod(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("divmod", a, k, 2, 2);
  if (V own = t.python_method(a[0], "__divmod__")) return t.call(own, {a[1]}, {});
  if (t.python_method(a[1], "__rdivmod__")) unknown_call("divmod", a);
  return t.tracer.tuple({t.binary(NB_FLOOR_DIVIDE, a[0], a[1]), t.binary(NB_REMAINDER, a[0], a[1])});
}

void break_on_array(const char* name, const Arguments_& a) {
  if (!a.empty() && a[0]->kind == ValueKind::Array)
    break_graph(BreakReason::ScalarFromArray, std::string("`") + name + "()` of " + describe(a[0]));
}

/// int(), float(), complex() of an object whose class has a method for it, which has to give a `type`; null: it has none.
V converted(TracerImpl& t, Arguments_& a, Keywords& k, const char* method, PyTypeObject* type) {
  if (a.size() != 1 || !k.empty()) return nullptr;
  if (V own = t.python_method(a[0], method)) {
    V number = t.call(own, {}, {});
    if (t.type_of(number) != type) break_graph(BreakReason::ErrorWhileTracing, std::string(method) + "() that gives " + describe(number));
    return number;
  }
  a[0] = t.number_part(a[0]);
  return nullptr;
}

V builtin_int(TracerImpl& t, Arguments_& a, Keywords& k) {
  break_on_array("int", a);
  for (const char* method : {"__int__", "__index__"})
    if (V number = converted(t, a, k, method, &PyLong_Type)) return number;
  if (a.size() == 1 && t.python_method(a[0], "__trunc__")) unknown_call("int", a);
  if (a.size() == 1 && k.empty() && a[0]->kind == ValueKind::SymInt) return a[0];
  if (V folded = fold_call(t, reinterpret_cast<PyObject*>(&PyLong_Type), a, k)) return folded;
  unknown_call("int", a);
}

V builtin_index(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("index", a, k, 1, 1);
  V number = t.index_number(a[0]);
  if (t.int_expression(number)) return number;
  unknown_call("index", a);
}

V builtin_float(TracerImpl& t, Arguments_& a, Keywords& k) {
  break_on_array("float", a);
  if (V number = converted(t, a, k, "__float__", &PyFloat_Type)) return number;
  if (V number = converted(t, a, k, "__index__", &PyLong_Type)) a[0] = number;
  if (a.size() == 1 && a[0]->kind == ValueKind::SymInt) a[0] = t.tracer.integer(*t.tracer.constant_int(a[0]));
  if (V folded = fold_call(t, reinterpret_cast<PyObject*>(&PyFloat_Type), a, k)) return folded;
  unknown_call("float", a);
}

V builtin_bool(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("bool", a, k, 0, 1);
  return t.tracer.boolean(!a.empty() && t.truth(a[0]));
}

V builtin_vars(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("vars", a, k, 1, 1);
  static PyObject* const name = PyUnicode_InternFromString("__dict__");
  if (V found = t.find_attribute(a[0], name)) return found;
  unknown_call("vars", a);
}

/// Names of the instance and of its class, as object.__dir__ gives them.
V builtin_dir(TracerImpl& t, Arguments_& a, Keywords& k) {
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
    if (t.class_attribute(type, name) != fj_type_lookup(&PyBaseObject_Type, name)) unknown_call("dir", a);
  static PyObject* const fallback_name = PyUnicode_InternFromString("__getattr__");
  if (!fj_type_lookup(type, dict_name) && t.class_attribute(type, fallback_name)) unknown_call("dir", a);
  for (PyObject* name : {dict_name, bases_name, rule_name})
    if (t.class_attribute(Py_TYPE(type), name) != fj_type_lookup(&PyType_Type, name)) unknown_call("dir", a);
  t.guard_type_version(type);
  // Not by the metaclass's own __dir__.
  Ref<> names = Ref<>::steal(PyObject_CallOneArg(fj_type_lookup(&PyType_Type, own_rule), reinterpret_cast<PyObject*>(type)));
  Ref<> all = names ? Ref<>::steal(PySet_New(names.get())) : Ref<>();
  if (!all) t.raise_python_error();
  if (fj_type_lookup(type, dict_name)) {
    V members = t.find_attribute(a[0], dict_name);
    auto* dict = as<DictValue>(members);
    if (!dict) unknown_call("dir", a);
    t.open(*dict);
    for (auto& [key, value] : dict->items)
      if (!PyUnicode_CheckExact(key.get()) || PySet_Add(all.get(), key.get()) < 0) unknown_call("dir", a);
  }
  Ref<> sorted = Ref<>::steal(PySequence_List(all.get()));
  if (!sorted || PyList_Sort(sorted.get()) < 0) t.raise_python_error();
  std::vector<V> items;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(sorted.get()); ++i) items.push_back(t.wrap_constant(t.keep(Ref<>::borrow(PyList_GET_ITEM(sorted.get(), i))).get()));
  return t.tracer.list(std::move(items));
}

V builtin_delattr(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("delattr", a, k, 2, 2);
  t.delete_attribute(a[0], attribute_name(t, a[1]));
  return t.none;
}

V builtin_dict_fromkeys(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("dict.fromkeys", a, k, 1, 2);
  auto dict = std::make_shared<DictValue>();
  t.for_each(a[0], [&](const V& item) { t.dict_store(dict, t.constant_key(item), a.size() == 2 ? a[1] : t.none); });
  return dict;
}

V builtin_is_grad_enabled(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("is_grad_enabled", a, k, 0, 0);
  t.note_torch();
  return t.tracer.boolean(t.modes.grad);
}

V builtin_is_inference_mode_enabled(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("is_inference_mode_enabled", a, k, 0, 0);
  t.note_torch();
  return t.tracer.boolean(t.modes.inference);
}

V builtin_str(TracerImpl& t, Arguments_& a, Keywords& k) {
  if (a.size() == 1 && k.empty()) return str_of(t, a[0]);
  if (V folded = fold_call(t, reinterpret_cast<PyObject*>(&PyUnicode_Type), a, k)) return folded;
  unknown_call("str", a);
}

V builtin_repr(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("repr", a, k, 1, 1);
  return repr_of(t, a[0]);
}

V builtin_format(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("format", a, k, 1, 2);
  return format_of(t, a[0], a.size() == 2 ? a[1] : nullptr);
}

V builtin_hash(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("hash", a, k, 1, 1);
  return t.hash_of(a[0]);
}

/// The address itself is not known; that two are the same or not is.
V builtin_id(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("id", a, k, 1, 1);
  return t.identity_number(a[0]);
}

V builtin_complex(TracerImpl& t, Arguments_& a, Keywords& k) {
  break_on_array("complex", a);
  if (V number = converted(t, a, k, "__complex__", &PyComplex_Type)) return number;
  if (V folded = fold_call(t, reinterpret_cast<PyObject*>(&PyComplex_Type), a, k)) return folded;
  unknown_call("complex", a);
}

V builtin_bytes(TracerImpl& t, Arguments_& a, Keywords& k) {
  for (V& argument : a)
    if (argument->kind == ValueKind::List || argument->kind == ValueKind::Range) argument = t.tracer.tuple(t.sequence_items(argument));
  if (V folded = fold_call(t, reinterpret_cast<PyObject*>(&PyBytes_Type), a, k)) return folded;
  unknown_call("bytes", a);
}

V builtin_object(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("object", a, k, 0, 0);
  auto instance = std::make_shared<InstanceValue>();
  instance->type = Ref<PyTypeObject>::borrow(&PyBaseObject_Type);
  (void)t;
  return instance;
}

V builtin_globals(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("globals", a, k, 0, 0);
  Frame& frame = *t.frames.back();
  return t.wrap(frame.globals.get(), t.globals_place(frame));
}

V operator_delitem(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("delitem", a, k, 2, 2);
  t.delete_item(a[0], a[1]);
  return t.none;
}

V operator_concat(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("concat", a, k, 2, 2);
  if (a[0]->kind == ValueKind::Array || a[1]->kind == ValueKind::Array) unknown_call("concat", a);
  return t.binary(NB_ADD, a[0], a[1]);
}

/// math.prod, which keeps sizes symbolic.
V builtin_prod(TracerImpl& t, Arguments_& a, Keywords& k) {
  V start = take_keyword(k, "start");
  expect("prod", a, k, 1, 1);
  V total = start ? start : t.tracer.integer(std::int64_t(1));
  t.for_each(a[0], [&](const V& item) { total = t.binary(NB_MULTIPLY, total, item); });
  return total;
}

V operator_count(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("countOf", a, k, 2, 2);
  std::int64_t seen = 0;
  t.for_each(a[0], [&](const V& item) { seen += same_or_equal(t, item, a[1]); });
  return t.tracer.integer(seen);
}

V operator_length_hint(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("length_hint", a, k, 1, 2);
  if (a[0]->kind != ValueKind::List && a[0]->kind != ValueKind::Tuple && a[0]->kind != ValueKind::Dict) unknown_call("length_hint", a);
  return t.length(a[0]);
}

/// collections.Counter's loop: self[item] = self.get(item, 0) + 1
V builtin_count_elements(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("_count_elements", a, k, 2, 2);
  static PyObject* const get_name = PyUnicode_InternFromString("get");
  V get = t.find_attribute(a[0], get_name);
  t.for_each(a[1], [&](const V& item) {
    V seen = t.call(get, {item, t.tracer.integer(std::int64_t(0))}, {});
    t.set_item(a[0], item, t.binary(NB_ADD, seen, t.tracer.integer(std::int64_t(1))));
  });
  return t.none;
}

V builtin_get_ident(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("get_ident", a, k, 0, 0);
  return t.identity_number(t.none);
}

// ---- containers

V builtin_tuple(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("tuple", a, k, 0, 1);
  if (!a.empty() && a[0]->kind == ValueKind::Tuple && !as<TupleValue>(a[0])->type) return a[0];
  return t.tracer.tuple(a.empty() ? std::vector<V>() : t.listed_items(a[0]));
}

V builtin_list(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("list", a, k, 0, 1);
  return t.tracer.list(a.empty() ? std::vector<V>() : t.listed_items(a[0]));
}

V builtin_dict(TracerImpl& t, Arguments_& a, Keywords& k) {
  if (a.size() > 1) unknown_call("dict", a);
  auto dict = std::make_shared<DictValue>();
  dict_update(t, dict, a, k);
  return dict;
}

V make_set(TracerImpl& t, Arguments_& a, Keywords& k, bool frozen) {
  expect("set", a, k, 0, 1);
  if (frozen && !a.empty() && a[0]->kind == ValueKind::Set && as<SetValue>(a[0])->frozen) return a[0];
  auto set = std::make_shared<SetValue>();
  if (!a.empty()) set_method(t, set, "update", a);
  if (!frozen) return set;
  auto result = std::make_shared<SetValue>(true);
  result->real = Ref<>::steal(PyFrozenSet_New(set->real.get()));
  result->ordered = set->ordered;
  // Made from the elements themselves in CPython, from another set here: that may be another order.
  Ref<> left = Ref<>::steal(PySequence_List(set->real.get())), right = Ref<>::steal(PySequence_List(result->real.get()));
  check_proxies();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(left.get()); ++i)
    result->ordered = result->ordered && PyList_GET_ITEM(left.get(), i) == PyList_GET_ITEM(right.get(), i);
  return result;
}
V builtin_set(TracerImpl& t, Arguments_& a, Keywords& k) { return make_set(t, a, k, false); }
V builtin_frozenset(TracerImpl& t, Arguments_& a, Keywords& k) { return make_set(t, a, k, true); }

// ---- operator

template <int op>
V operator_binary(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("operator", a, k, 2, 2);
  return t.binary(op, a[0], a[1]);
}
template <int comparison>
V operator_compare(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("operator", a, k, 2, 2);
  return t.compare(comparison, a[0], a[1]);
}
template <int opcode>
V operator_unary(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("operator", a, k, 1, 1);
  return t.unary(opcode, a[0]);
}
V operator_getitem(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("getitem", a, k, 2, 2);
  return t.get_item(a[0], a[1]);
}
V operator_setitem(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("setitem", a, k, 3, 3);
  t.set_item(a[0], a[1], a[2]);
  return t.none;
}
V operator_not(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("not_", a, k, 1, 1);
  return t.tracer.boolean(!t.truth(a[0]));
}
V operator_is(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("is_", a, k, 2, 2);
  return t.tracer.boolean(t.same_object(a[0], a[1]));
}
V operator_is_not(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("is_not", a, k, 2, 2);
  return t.tracer.boolean(!t.same_object(a[0], a[1]));
}
V operator_contains(TracerImpl& t, Arguments_& a, Keywords& k) {
  expect("contains", a, k, 2, 2);
  return t.tracer.boolean(t.contains(a[0], a[1]));
}

constexpr BuiltinRow kRows[] = {
#define FJ_BUILTIN(module, name, handler) {module, name, handler},
#include "tracer/builtins.def"
};

}  // namespace

std::span<const BuiltinRow> builtin_rows() { return kRows; }

namespace {

bool is_pure_builtin(PyObject* callable) {
  const char* function = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
  constexpr const char* kPure[] = {"ord", "chr", "hex", "oct", "bin", "ascii"};
  return std::any_of(std::begin(kPure), std::end(kPure), [&](const char* pure) { return !std::strcmp(pure, function); });
}

}  // namespace

bool is_pure(PyObject* callable) {
  if (!PyCFunction_Check(callable)) return false;
  PyObject* module = PyCFunction_GET_SELF(callable);
  // int.from_bytes, str.maketrans, ...: class methods of plain types.
  for (PyTypeObject* plain : {&PyLong_Type, &PyFloat_Type, &PyUnicode_Type, &PyBytes_Type})
    if (module == reinterpret_cast<PyObject*>(plain)) return true;
  if (!module || !PyModule_Check(module)) return false;
  const char* name = PyModule_GetName(module);
  if (!name) PyErr_Clear();
  const std::string text = name ? name : "";
  if (text == "math" || text == "cmath") return true;
  return text == "builtins" && is_pure_builtin(callable);
}


V fold_call(TracerImpl& tracer, PyObject* callable, const std::vector<V>& positional, const Keywords& keywords) {
  auto plain = [](auto& self, PyObject* object) -> bool {
    if (PyTuple_CheckExact(object)) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
        if (!self(self, PyTuple_GET_ITEM(object, i))) return false;
      return true;
    }
    return is_plain(object);
  };
  Ref<> arguments = Ref<>::steal(PyTuple_New(Py_ssize_t(positional.size())));
  for (std::size_t i = 0; i < positional.size(); ++i) {
    V value = positional[i]->kind == ValueKind::SymInt ? tracer.tracer.integer(*tracer.tracer.constant_int(positional[i])) : positional[i];
    PyObject* object = tracer.constant_object(value);
    if (!object || !plain(plain, object)) return nullptr;
    PyTuple_SET_ITEM(arguments.get(), Py_ssize_t(i), Py_NewRef(object));
  }
  Ref<> names = Ref<>::steal(PyDict_New());
  for (auto& [name, value] : keywords) {
    PyObject* object = tracer.constant_object(value);
    if (!object || !plain(plain, object)) return nullptr;
    PyDict_SetItemString(names.get(), name.c_str(), object);
  }
  Ref<> result = Ref<>::steal(PyObject_Call(callable, arguments.get(), names.get()));
  if (!result) tracer.raise_python_error();
  // A list or tuple is a new one in each call.
  auto made = [&](auto& self, Ref<> object) -> V {
    const bool list = PyList_CheckExact(object.get());
    if (!list && !(PyTuple_CheckExact(object.get()) && PyTuple_GET_SIZE(object.get()))) return tracer.wrap_constant(tracer.keep(object).get());
    std::vector<V> items;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object.get()); ++i)
      items.push_back(self(self, Ref<>::borrow(PySequence_Fast_GET_ITEM(object.get(), i))));
    return list ? tracer.tracer.list(items) : tracer.tracer.tuple(items);
  };
  return made(made, result);
}

V fold_reading_call(TracerImpl& tracer, PyObject* callable, const std::vector<V>& positional, const Keywords& keywords) {
  bool any_proxy = false;
  auto readable = [&](const V& value) {
    Ref<> object = readable_object(tracer, value);
    any_proxy = any_proxy || !tracer.constant_object(value);
    return object;
  };
  Ref<> arguments = Ref<>::steal(PyTuple_New(Py_ssize_t(positional.size())));
  for (std::size_t i = 0; i < positional.size(); ++i) PyTuple_SET_ITEM(arguments.get(), Py_ssize_t(i), Py_NewRef(readable(positional[i]).get()));
  Ref<> names = Ref<>::steal(PyDict_New());
  for (auto& [name, value] : keywords) PyDict_SetItemString(names.get(), name.c_str(), readable(value).get());
  Ref<> result = Ref<>::steal(PyObject_Call(callable, arguments.get(), names.get()));
  check_proxies();
  if (!result && any_proxy) break_graph(BreakReason::ErrorWhileTracing, take_error());
  if (!result) tracer.raise_python_error();
  return tracer.wrap_constant(tracer.keep(result).get());
}

}  // namespace fj
