/// The builtins of builtins.def on symbolic values, and folding of pure functions on constants.
#include <opcode.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tracer/builtins/builtin_table.h"
#include "tracer/data_loops.h"
#include "tracer/interpreter/exceptions.h"
#include "tracer/interpreter/scopes.h"
#include "tracer/state/exception_ledger.h"
#include "tracer/state/modes.h"
#include "tracer/values/classes/attribute_writes.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/classes/class_statement.h"
#include "tracer/values/containers/containers.h"
#include "tracer/values/containers/dicts.h"
#include "tracer/values/containers/iterators.h"
#include "tracer/values/containers/lists.h"
#include "tracer/values/containers/sets.h"
#include "tracer/values/fake_arrays.h"
#include "tracer/values/numbers/computed_numbers.h"
#include "tracer/values/numbers/derived_values.h"
#include "tracer/values/numbers/operators.h"
#include "tracer/values/numbers/truths.h"
#include "tracer/values/outside_objects.h"
#include "tracer/values/proxies.h"
#include "tracer/values/text.h"

namespace fj {

namespace {

using Arguments_ = std::vector<V>;

// ---- questions

V builtin_len(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("len", a, k, 1, 1);
  return length(t, a[0]);
}

V builtin_build_class(TraceRun& t, Arguments_& a, Keywords& k) { return build_class(t, a, k); }

PyObject* attribute_name(TraceRun& t, const V& value) {
  PyObject* name = t.constant_object(value);
  if (!name || !PyUnicode_CheckExact(name)) unknown_call("getattr", {value});
  return name;
}

/// Null also if Python code on the way raises AttributeError.
V attribute_or_null(TraceRun& t, const V& owner, PyObject* name) {
  const Catching catching(t);
  try {
    return find_attribute(t, owner, name);
  } catch (const RaisedInTrace& raised) {
    auto* error = as<InstanceValue>(raised.exception);
    if (!PyType_IsSubtype(error->type.get(), reinterpret_cast<PyTypeObject*>(PyExc_AttributeError))) throw;
    return nullptr;
  }
}

V builtin_getattr(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("getattr", a, k, 2, 3);
  PyObject* name = attribute_name(t, a[1]);
  if (V found = a.size() == 3 ? attribute_or_null(t, a[0], name) : find_attribute(t, a[0], name)) return found;
  if (a.size() == 3) return a[2];
  raise_no_attribute(t, a[0], name);
}

V builtin_hasattr(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("hasattr", a, k, 2, 2);
  return t.boolean(attribute_or_null(t, a[0], attribute_name(t, a[1])) != nullptr);
}

/// Of a plain class: contextlib of 3.15 looks `__enter__` and `__exit__` up so.
V static_attribute(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("getattr_static", a, k, 2, 3);
  PyObject* const name = attribute_name(t, a[1]);
  PyObject* const owner = t.constant_object(a[0]);  // this class, at every call
  PyObject* const abstract = once([] { return imported("abc", "ABCMeta").release(); });
  PyTypeObject* const kind = owner ? Py_TYPE(owner) : nullptr;
  if (kind != &PyType_Type && reinterpret_cast<PyObject*>(kind) != abstract) unknown_call("getattr_static", a);
  if (PyObject* const found = class_attribute(t, reinterpret_cast<PyTypeObject*>(owner), name))
    return wrap_constant(t, found);
  if (fj_type_lookup(kind, name)) unknown_call("getattr_static", a);  // its class's
  if (a.size() == 3) return a[2];
  raise(t, PyExc_AttributeError, {wrap_constant(t, name)}, BreakReason::ErrorWhileTracing, "no such attribute");
}

V builtin_setattr(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("setattr", a, k, 3, 3);
  set_attribute(t, a[0], attribute_name(t, a[1]), a[2]);
  return t.none();
}

V builtin_super(TraceRun& t, Arguments_& a, Keywords& k) {
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
        if (V cell = t.local(frame, int(i)); cell && cell->kind == ValueKind::Cell)
          type = cell_contents(t, *as<CellValue>(cell));
    if (frame.co->co_argcount > 0) super->self = t.local(frame, 0);
    if (super->self && super->self->kind == ValueKind::Cell)
      super->self = cell_contents(t, *as<CellValue>(super->self));
  }
  PyObject* real = type ? t.constant_object(type) : nullptr;
  if (!real || !PyType_Check(real) || !super->self) unknown_call("super", a);
  super->type = Ref<PyTypeObject>::borrow(reinterpret_cast<PyTypeObject*>(real));
  // Of an object or class that does not derive from it CPython raises, or asks what the object calls its class.
  auto* held = as<ObjectValue>(super->self);
  const bool of_class = held && PyType_Check(held->object.get()) &&
                        PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(held->object.get()), super->type.get());
  if (!of_class && !PyType_IsSubtype(t.type_of(super->self), super->type.get())) unknown_call("super", a);
  return super;
}

// ---- iteration

V builtin_range(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("range", a, k, 1, 3);
  for (const V& value : a)
    if ((t.request.way || t.request.branches) && settled(t, value)->kind == ValueKind::Number)
      return computed_range(t, a);
  auto range = std::make_shared<RangeValue>();
  auto bound = [&](const V& value) {
    const V number = index_number(t, value);
    auto expression = t.int_expression(number);
    if (!expression)
      if (auto known = t.constant_int(number)) expression = SymDim(*known);
    if (!expression) unknown_call("range", a);
    return *expression;
  };
  range->start = a.size() > 1 ? bound(a[0]) : SymDim(0);
  range->stop = bound(a[a.size() > 1 ? 1 : 0]);
  if (a.size() == 3) {
    auto step = t.constant_int(index_number(t, a[2]));
    if (!step || *step == 0) unknown_call("range", a);
    range->step = *step;
  }
  return range;
}

V builtin_slice(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("slice", a, k, 1, 3);
  auto slice = std::make_shared<SliceValue>();
  slice->start = a.size() > 1 ? a[0] : t.none();
  slice->stop = a[a.size() > 1 ? 1 : 0];
  slice->step = a.size() == 3 ? a[2] : t.none();
  return slice;
}

V builtin_sorted(TraceRun& t, Arguments_& a, Keywords& k) {
  V key = take_keyword(k, "key"), reverse = take_keyword(k, "reverse");
  expect("sorted", a, k, 1, 1);
  std::vector<V> items;
  // Without a key equal elements of a set are one, so their order in it is not seen.
  if (a[0]->kind == ValueKind::Set && !key)
    items = set_items(t, *as<SetValue>(a[0]));
  else
    items = listed_items(t, a[0]);
  sort(t, items, key, reverse && t.truth(reverse));
  return t.list(items);
}

// ---- folds over items

V extreme(TraceRun& t, Arguments_& a, Keywords& k, const char* name, int better) {
  V key = take_keyword(k, "key"), otherwise = take_keyword(k, "default");
  if (!k.empty() || a.empty()) unknown_call(name, a);
  if (otherwise && a.size() > 1) unknown_call(name, a);
  V best, best_key;
  auto look = [&](const V& item) {
    V candidate = key && !t.is_none(key) ? t.call(key, {item}, {}) : item;
    if (best) {
      V answer = t.compare(better, candidate, best_key);
      if (V chosen = !key ? computed_choice(t, answer, item, best) : nullptr) {
        best = best_key = chosen;
        return;
      }
      if (!t.truth(answer)) return;
    }
    best = item;
    best_key = candidate;
  };
  auto* set = as<SetValue>(a[0]);
  if (a.size() > 1 || (set && !key)) {
    // Without a key equal elements of a set are one, so their order in it is not seen.
    for (const V& item : a.size() > 1 ? a : set_items(t, *set)) look(item);
  } else {
    for_each(t, a[0], look);
  }
  if (best) return best;
  if (otherwise) return otherwise;
  if (a[0]->kind == ValueKind::Array) unknown_call(name, a);
  Ref<> empty = Ref<>::steal(PyTuple_New(0));
  Ref<> none = Ref<>::steal(PyObject_CallOneArg(PyDict_GetItemString(PyEval_GetBuiltins(), name), empty.get()));
  raise_python_error(t);
}

V builtin_min(TraceRun& t, Arguments_& a, Keywords& k) { return extreme(t, a, k, "min", Py_LT); }
V builtin_max(TraceRun& t, Arguments_& a, Keywords& k) { return extreme(t, a, k, "max", Py_GT); }

/// From CPython 3.12 on sum() keeps what additions of floats lose.
bool adds_with_compensation(PyObject* sum) {
  const bool answer = once([&] {
    const Ref<> numbers = Ref<>::steal(Py_BuildValue("(ddd)", 1e100, 1.0, -1e100));
    const Ref<> total = numbers ? Ref<>::steal(PyObject_CallOneArg(sum, numbers.get())) : Ref<>();
    PyErr_Clear();
    return !total || PyFloat_AsDouble(total.get()) != 0;
  });
  return answer;
}

V builtin_sum(TraceRun& t, Arguments_& a, Keywords& k) {
  V start = take_keyword(k, "start");
  expect("sum", a, k, 1, 2);
  if (a.size() == 2) start = a[1];
  // CPython adds numbers in ways of its own (floats with compensation from 3.12 on): its own sum() adds up constants.
  // From the first other item on it is `total + item`, one after the other.
  PyObject* const sum = once([] { return PyDict_GetItemString(PyEval_GetBuiltins(), "sum"); });
  V total = start ? start : t.integer(std::int64_t(0));
  std::vector<V> plain;
  bool any_other = false;
  auto fold = [&]() {
    V folded = fold_call(t, sum, {t.tuple(std::exchange(plain, {})), total}, {});
    if (!folded) unknown_call("sum", a);
    total = folded;
  };
  auto constant = [&](const V& value) {
    return value->kind == ValueKind::Object && is_plain(as<ObjectValue>(value)->object.get());
  };
  if (constant(total)) fold();  // of nothing: it refuses to start with a str
  for_each(t, a[0], [&](const V& item) {
    if (!any_other && constant(item) && constant(total)) return plain.push_back(item);
    if (!plain.empty()) fold();
    if (item->kind == ValueKind::Number && adds_with_compensation(sum)) unknown_call("sum", a);
    if (item->kind != ValueKind::SymInt && !constant(item)) any_other = true;
    if (!any_other && constant(item) && PyFloat_CheckExact(as<ObjectValue>(item)->object.get())) unknown_call("sum", a);
    total = t.binary(NB_ADD, total, item);
  });
  if (!plain.empty()) fold();
  return total;
}

V builtin_any(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("any", a, k, 1, 1);
  V iterator = make_iterator(t, a[0]);
  while (V item = next(t, iterator))
    if (t.truth(item)) return t.boolean(true);
  return t.boolean(false);
}

V builtin_all(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("all", a, k, 1, 1);
  V iterator = make_iterator(t, a[0]);
  while (V item = next(t, iterator))
    if (!t.truth(item)) return t.boolean(false);
  return t.boolean(true);
}

V builtin_reduce(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("reduce", a, k, 2, 3);
  V total = a.size() == 3 ? a[2] : nullptr;
  for_each(t, a[1], [&](const V& item) { total = total ? t.call(a[0], {total, item}, {}) : item; });
  if (!total) break_graph(BreakReason::ErrorWhileTracing, "reduce() of nothing");
  return total;
}

// ---- numbers

V method_or_fold(TraceRun& t, Arguments_& a, Keywords& k, const char* name, const char* method) {
  if (a.empty()) unknown_call(name, a);
  if (!std::strcmp(name, "round")) t.round_as_library(a[0]);
  if (a[0]->kind == ValueKind::Array) {
    Ref<> text = t.keep(Ref<>::steal(PyUnicode_InternFromString(method)));
    V bound = find_attribute(t, a[0], text.get());
    if (!bound) unknown_call(name, a);
    return t.call(bound, {a.begin() + 1, a.end()}, k);
  }
  if (V own = python_method(t, a[0], method)) return t.call(own, {a.begin() + 1, a.end()}, k);
  if (V result = k.empty() ? result_of(t, PyDict_GetItemString(PyEval_GetBuiltins(), name), a) : nullptr) return result;
  for (V& argument : a) {
    argument = number_part(t, argument);
    if (argument->kind == ValueKind::SymInt) argument = t.integer(*t.constant_int(argument));
  }
  if (V folded = on_part_of(a[0], [&] { return fold_call(t, PyDict_GetItemString(PyEval_GetBuiltins(), name), a, k); }))
    return folded;
  unknown_call(name, a);
}

V builtin_abs(TraceRun& t, Arguments_& a, Keywords& k) {
  if (a.size() == 1 && k.empty()) {
    if (V computed = computed_function(t, Op::abs, a[0])) return computed;
    if (V scalar = scalar_abs(t, a[0])) return scalar;
  }
  return method_or_fold(t, a, k, "abs", "__abs__");
}
V builtin_round(TraceRun& t, Arguments_& a, Keywords& k) { return method_or_fold(t, a, k, "round", "__round__"); }

V builtin_pow(TraceRun& t, Arguments_& a, Keywords& k) {
  if (a.size() == 3)
    if (V folded = fold_call(t, PyDict_GetItemString(PyEval_GetBuiltins(), "pow"), a, k)) return folded;
  expect("pow", a, k, 2, 2);
  return t.binary(NB_POWER, a[0], a[1]);
}

V builtin_divmod(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("divmod", a, k, 2, 2);
  if (V own = python_method(t, a[0], "__divmod__")) return t.call(own, {a[1]}, {});
  if (python_method(t, a[1], "__rdivmod__")) unknown_call("divmod", a);
  // Tensors have // and %, but no __divmod__.
  for (const V& operand : a)
    if (auto* array = as<ArrayValue>(operand); array && array->library == Library::Torch) unknown_call("divmod", a);
  // A TypeError would speak of //.
  return on_part_of(
      a[0], [&] { return t.tuple({t.binary(NB_FLOOR_DIVIDE, a[0], a[1]), t.binary(NB_REMAINDER, a[0], a[1])}); });
}

void break_on_array(const char* name, const Arguments_& a) {
  if (!a.empty() && a[0]->kind == ValueKind::Array)
    break_graph(BreakReason::ScalarFromArray, std::string(name) + "() of " + describe(a[0]));
}

/// What int() and float() are given as a number that the program computes, if it is one or an array that holds one;
/// null: neither.
V element(TraceRun& t, const Arguments_& a, const Keywords& k) {
  if (a.size() != 1 || !k.empty()) return nullptr;
  if (V scalar = t.changing_scalar(a[0])) return element(t, {scalar}, k);
  if (a[0]->kind == ValueKind::Number) return a[0];
  auto* array = as<ArrayValue>(a[0]);
  if (!array || is_complex(array->dtype) || t.requires_gradient(*array)) return nullptr;  // torch warns of the last
  // NumPy deprecates the conversion of an array that has dimensions.
  if (array->library == Library::Numpy && !array->shape.empty()) return nullptr;
  return t.number(*array);
}

/// int(), float(), complex() of an object whose class has a method for it, which has to give a `type`; null: it has
/// none.
V converted(TraceRun& t, Arguments_& a, Keywords& k, const char* method, PyTypeObject* type) {
  if (a.size() != 1 || !k.empty()) return nullptr;
  if (V own = python_method(t, a[0], method)) {
    V number = t.call(own, {}, {});
    if (t.type_of(number) != type)
      break_graph(BreakReason::ErrorWhileTracing, std::string(method) + "() that gives " + describe(number));
    return number;
  }
  a[0] = number_part(t, a[0]);
  return nullptr;
}

V fold_number(TraceRun& t, PyTypeObject* type, const Arguments_& a, const Keywords& k) {
  auto fold = [&] { return fold_call(t, reinterpret_cast<PyObject*>(type), a, k); };
  return a.empty() ? fold() : on_part_of(a[0], fold);
}

V builtin_int(TraceRun& t, Arguments_& a, Keywords& k) {
  if (a.size() == 1 && k.empty())
    if (V index = t.scalar_index(a[0])) return index;
  if (V number = element(t, a, k))
    if (V whole = computed_int(t, number)) return whole;
  if (!a.empty()) t.round_as_library(a[0]);
  break_on_array("int", a);
  for (const char* method : {"__int__", "__index__"})
    if (V number = converted(t, a, k, method, &PyLong_Type)) return number;
  if (a.size() == 1 && python_method(t, a[0], "__trunc__")) unknown_call("int", a);
  if (a.size() == 1 && k.empty() && a[0]->kind == ValueKind::SymInt) return a[0];
  if (V folded = fold_number(t, &PyLong_Type, a, k)) return folded;
  unknown_call("int", a);
}

V builtin_index(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("index", a, k, 1, 1);
  V number = index_number(t, a[0]);
  if (t.int_expression(number)) return number;
  unknown_call("index", a);
}

V builtin_float(TraceRun& t, Arguments_& a, Keywords& k) {
  if (a.size() == 1 && k.empty())
    if (V number = scalar_float(t, a[0])) return number;
  if (V number = a.size() == 1 && k.empty() ? symbol_as_float(t, a[0]) : nullptr) return number;
  if (V number = element(t, a, k))
    if (V real = computed_float(t, number)) return real;
  break_on_array("float", a);
  if (V number = converted(t, a, k, "__float__", &PyFloat_Type)) return number;
  if (V number = converted(t, a, k, "__index__", &PyLong_Type)) a[0] = number;
  if (a.size() == 1 && a[0]->kind == ValueKind::SymInt) a[0] = t.integer(*t.constant_int(a[0]));
  if (V folded = fold_number(t, &PyFloat_Type, a, k)) return folded;
  unknown_call("float", a);
}

V builtin_bool(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("bool", a, k, 0, 1);
  return a.empty() ? t.boolean(false) : truth_value(t, a[0]);
}

V builtin_vars(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("vars", a, k, 1, 1);
  static PyObject* const name = PyUnicode_InternFromString("__dict__");
  if (V found = find_attribute(t, a[0], name)) return found;
  unknown_call("vars", a);
}

V builtin_delattr(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("delattr", a, k, 2, 2);
  delete_attribute(t, a[0], attribute_name(t, a[1]));
  return t.none();
}

V builtin_dict_fromkeys(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("dict.fromkeys", a, k, 1, 2);
  auto dict = std::make_shared<DictValue>();
  for_each(t, a[0],
           [&](const V& item) { dict_store(t, dict, constant_key(t, item), a.size() == 2 ? a[1] : t.none()); });
  return dict;
}

V builtin_is_grad_enabled(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("is_grad_enabled", a, k, 0, 0);
  if (t.modes->backward_to_come && !is_of_packages(t.frames.back()->globals.get(), {"torch", "framejit"}))
    break_graph(BreakReason::Gradient, "a backward that asks torch.is_grad_enabled()");
  t.note_torch();
  note_mode(t, AutogradFact::GradMode);
  return t.boolean(t.modes->now.grad);
}

V builtin_is_inference_mode_enabled(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("is_inference_mode_enabled", a, k, 0, 0);
  t.note_torch();
  note_mode(t, AutogradFact::InferenceMode);
  return t.boolean(t.modes->now.inference);
}

V builtin_str(TraceRun& t, Arguments_& a, Keywords& k) {
  if (a.size() == 1 && k.empty()) return str_of(t, a[0]);
  if (V folded = fold_call(t, reinterpret_cast<PyObject*>(&PyUnicode_Type), a, k)) return folded;
  unknown_call("str", a);
}

V builtin_repr(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("repr", a, k, 1, 1);
  return repr_of(t, a[0]);
}

V builtin_format(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("format", a, k, 1, 2);
  return format_of(t, a[0], a.size() == 2 ? a[1] : nullptr);
}

V builtin_math_sqrt(TraceRun& t, Arguments_& a, Keywords& k) {
  V symbol = a.size() == 1 && k.empty() ? symbol_as_float(t, a[0]) : nullptr;
  if (V number = symbol ? symbol : element(t, a, k))
    if (V root = computed_function(t, Op::sqrt, number)) return root;
  if (V folded = fold_call(t, imported("math", "sqrt").get(), a, k)) return folded;
  unknown_call("math.sqrt", a);
}

V builtin_hash(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("hash", a, k, 1, 1);
  return hash_of(t, a[0]);
}

/// The address itself is not known; that two are the same or not is.
V builtin_id(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("id", a, k, 1, 1);
  return identity_number(t, a[0]);
}

V builtin_complex(TraceRun& t, Arguments_& a, Keywords& k) {
  break_on_array("complex", a);
  if (V number = converted(t, a, k, "__complex__", &PyComplex_Type)) return number;
  if (V folded = fold_number(t, &PyComplex_Type, a, k)) return folded;
  unknown_call("complex", a);
}

V builtin_bytes(TraceRun& t, Arguments_& a, Keywords& k) {
  for (V& argument : a)
    if (argument->kind == ValueKind::List || argument->kind == ValueKind::Range)
      argument = t.tuple(t.sequence_items(argument));
  if (V folded = fold_call(t, reinterpret_cast<PyObject*>(&PyBytes_Type), a, k)) return folded;
  unknown_call("bytes", a);
}

V builtin_object(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("object", a, k, 0, 0);
  auto instance = std::make_shared<InstanceValue>();
  instance->type = Ref<PyTypeObject>::borrow(&PyBaseObject_Type);
  (void)t;
  return instance;
}

V builtin_globals(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("globals", a, k, 0, 0);
  Frame& frame = *t.frames.back();
  return t.wrap(frame.globals.get(), globals_place(t, frame));
}

V operator_delitem(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("delitem", a, k, 2, 2);
  delete_item(t, a[0], a[1]);
  return t.none();
}

V operator_concat(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("concat", a, k, 2, 2);
  if (a[0]->kind == ValueKind::Array || a[1]->kind == ValueKind::Array) unknown_call("concat", a);
  return t.binary(NB_ADD, a[0], a[1]);
}

/// math.prod, which keeps sizes symbolic.
V builtin_prod(TraceRun& t, Arguments_& a, Keywords& k) {
  V start = take_keyword(k, "start");
  expect("prod", a, k, 1, 1);
  V total = start ? start : t.integer(std::int64_t(1));
  for_each(t, a[0], [&](const V& item) { total = t.binary(NB_MULTIPLY, total, item); });
  return total;
}

V operator_count(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("countOf", a, k, 2, 2);
  std::int64_t seen = 0;
  for_each(t, a[0], [&](const V& item) { seen += same_or_equal(t, item, a[1]); });
  return t.integer(seen);
}

V operator_length_hint(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("length_hint", a, k, 1, 2);
  if (a[0]->kind != ValueKind::List && a[0]->kind != ValueKind::Tuple && a[0]->kind != ValueKind::Dict)
    unknown_call("length_hint", a);
  return length(t, a[0]);
}

/// collections.Counter's loop: self[item] = self.get(item, 0) + 1
V builtin_count_elements(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("_count_elements", a, k, 2, 2);
  static PyObject* const get_name = PyUnicode_InternFromString("get");
  V get = find_attribute(t, a[0], get_name);
  for_each(t, a[1], [&](const V& item) {
    V seen = t.call(get, {item, t.integer(std::int64_t(0))}, {});
    set_item(t, a[0], item, t.binary(NB_ADD, seen, t.integer(std::int64_t(1))));
  });
  return t.none();
}

// ---- containers

V builtin_tuple(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("tuple", a, k, 0, 1);
  if (!a.empty() && a[0]->kind == ValueKind::Tuple && !as<TupleValue>(a[0])->type) return a[0];
  return t.tuple(a.empty() ? std::vector<V>() : listed_items(t, a[0]));
}

/// torch.Size of ints alone: it takes what has an __index__ too, but keeps some of these as they are.
V builtin_torch_size(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("torch.Size", a, k, 0, 1);
  const std::vector<V> sizes = a.empty() ? std::vector<V>() : listed_items(t, a[0]);
  for (const V& size : sizes)
    if (t.type_of(size) != &PyLong_Type || !t.int_expression(size)) unknown_call("torch.Size", a);
  V made = t.tuple(sizes);
  as<TupleValue>(made)->type = Ref<>::steal(PyObject_GetAttrString(torch_module(), "Size"));
  return made;
}

V builtin_list(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("list", a, k, 0, 1);
  return t.list(a.empty() ? std::vector<V>() : listed_items(t, a[0]));
}

V builtin_dict(TraceRun& t, Arguments_& a, Keywords& k) {
  if (a.size() > 1) unknown_call("dict", a);
  auto dict = std::make_shared<DictValue>();
  dict_update(t, dict, a, k);
  return dict;
}

V make_set(TraceRun& t, Arguments_& a, Keywords& k, bool frozen) {
  expect("set", a, k, 0, 1);
  if (frozen && !a.empty() && a[0]->kind == ValueKind::Set && as<SetValue>(a[0])->frozen) return a[0];
  auto set = std::make_shared<SetValue>();
  if (!a.empty()) set_method(t, set, "update", a);
  if (!frozen) return set;
  auto result = std::make_shared<SetValue>(true);
  result->real = Ref<>::steal(PyFrozenSet_New(set->real.get()));
  result->ordered = set->ordered;
  // Made from the elements themselves in CPython, from another set here: that may be another order.
  Ref<> left = Ref<>::steal(PySequence_List(set->real.get())),
        right = Ref<>::steal(PySequence_List(result->real.get()));
  check_proxies();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(left.get()); ++i)
    result->ordered = result->ordered && PyList_GET_ITEM(left.get(), i) == PyList_GET_ITEM(right.get(), i);
  return result;
}
V builtin_set(TraceRun& t, Arguments_& a, Keywords& k) { return make_set(t, a, k, false); }
V builtin_frozenset(TraceRun& t, Arguments_& a, Keywords& k) { return make_set(t, a, k, true); }

// ---- operator

template <int op>
V operator_binary(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("operator", a, k, 2, 2);
  return t.binary(op, a[0], a[1]);
}
template <int comparison>
V operator_compare(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("operator", a, k, 2, 2);
  return t.compare(comparison, a[0], a[1]);
}
template <int opcode>
V operator_unary(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("operator", a, k, 1, 1);
  return unary(t, opcode, a[0]);
}
V operator_getitem(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("getitem", a, k, 2, 2);
  return t.get_item(a[0], a[1]);
}
V operator_setitem(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("setitem", a, k, 3, 3);
  set_item(t, a[0], a[1], a[2]);
  return t.none();
}
V operator_not(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("not_", a, k, 1, 1);
  return negated(t, a[0]);
}
V operator_is(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("is_", a, k, 2, 2);
  return t.boolean(same_object(t, a[0], a[1]));
}
V operator_is_not(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("is_not", a, k, 2, 2);
  return t.boolean(!same_object(t, a[0], a[1]));
}
V operator_contains(TraceRun& t, Arguments_& a, Keywords& k) {
  expect("contains", a, k, 2, 2);
  return contains(t, a[0], a[1]);
}

constexpr BuiltinRow kRows[] = {
#define FJ_BUILTIN(module, name, handler) {module, name, handler},
#include "tracer/builtins/builtins.def"
};

}  // namespace

std::span<const BuiltinRow> builtin_rows() { return kRows; }

namespace {

bool is_pure_builtin(PyObject* callable) {
  const char* function = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
  constexpr const char* kPure[] = {"ord", "chr", "hex", "oct", "bin", "ascii"};
  return std::any_of(std::begin(kPure), std::end(kPure),
                     [&](const char* pure) { return !std::strcmp(pure, function); });
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
  if (text == "math" || text == "math.integer" || text == "cmath") return true;
  return text == "builtins" && is_pure_builtin(callable);
}


V fold_call(TraceRun& tracer, PyObject* callable, const std::vector<V>& positional, const Keywords& keywords) {
  const bool of_parts =
      PyCFunction_Check(callable) && PyCFunction_GET_SELF(callable) && !PyModule_Check(PyCFunction_GET_SELF(callable));
  if (!of_parts && keywords.empty())
    if (V result = result_of(tracer, callable, positional)) return result;
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
    V value =
        positional[i]->kind == ValueKind::SymInt ? tracer.integer(*tracer.constant_int(positional[i])) : positional[i];
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
  if (!result) raise_python_error(tracer);
  // A list or tuple is a new one in each call.
  auto made = [&](auto& self, Ref<> object) -> V {
    const bool list = PyList_CheckExact(object.get());
    if (!list && !(PyTuple_CheckExact(object.get()) && PyTuple_GET_SIZE(object.get())))
      return wrap_constant(tracer, tracer.keep(object).get());
    std::vector<V> items;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object.get()); ++i)
      items.push_back(self(self, Ref<>::borrow(PySequence_Fast_GET_ITEM(object.get(), i))));
    return list ? tracer.list(items) : tracer.tuple(items);
  };
  return made(made, result);
}

V fold_reading_call(TraceRun& tracer, PyObject* callable, const std::vector<V>& positional, const Keywords& keywords) {
  bool any_proxy = false;
  auto readable = [&](const V& value) {
    Ref<> object = readable_object(tracer, value);
    any_proxy = any_proxy || !tracer.constant_object(value);
    return object;
  };
  Ref<> arguments = Ref<>::steal(PyTuple_New(Py_ssize_t(positional.size())));
  for (std::size_t i = 0; i < positional.size(); ++i)
    PyTuple_SET_ITEM(arguments.get(), Py_ssize_t(i), Py_NewRef(readable(positional[i]).get()));
  Ref<> names = Ref<>::steal(PyDict_New());
  for (auto& [name, value] : keywords) PyDict_SetItemString(names.get(), name.c_str(), readable(value).get());
  Ref<> result = Ref<>::steal(PyObject_Call(callable, arguments.get(), names.get()));
  check_proxies();
  if (!result && any_proxy) break_graph(BreakReason::ErrorWhileTracing, take_error());
  if (!result) raise_python_error(tracer);
  return wrap_constant(tracer, tracer.keep(result).get());
}

}  // namespace fj
