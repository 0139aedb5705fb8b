/// Values from outside: wrapping real objects lazily, and looking at Values (type, truth, length, identity, constant
/// contents), which adds the guards that each look relies on.
#include "tracer/values/outside_objects.h"

#include <algorithm>
#include <cstring>

#include "guards/input_name.h"
#include "runtime/base/error.h"
#include "tracer/branches.h"
#include "tracer/frontends/builders.h"
#include "tracer/gradients/graph_transforms.h"
#include "tracer/interpreter/exceptions.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/nesting.h"
#include "tracer/state/graph_inputs.h"
#include "tracer/state/identity.h"
#include "tracer/state/size_ledger.h"
#include "tracer/values/classes/attribute_writes.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/containers/containers.h"
#include "tracer/values/fake_arrays.h"
#include "tracer/values/numbers/computed_numbers.h"
#include "tracer/values/numbers/constant_conditions.h"
#include "tracer/values/numbers/derived_values.h"
#include "tracer/values/numbers/operators.h"
#include "tracer/values/numbers/size_ranges.h"
#include "tracer/values/proxies.h"

namespace fj {

/// The length of the object at `source`: guarded, or a symbol once it has changed between calls.
static SymDim bound_length(TraceRun& t, SourceRef source, Py_ssize_t size);
static bool object_truth(TraceRun& t, const V& value);
static ValueId number_input(TraceRun& t, ObjectValue& held, DType dtype);
static V scalar_as(TraceRun& t, ObjectValue& scalar, PyObject* function);

std::string describe(const V& value) {
  switch (value->kind) {
    case ValueKind::Array: {
      const auto& array = *as<ArrayValue>(value);
      return "a " + text(Type{array.dtype, array.shape}) +
             (array.library == Library::Torch ? " tensor" : array.numpy_scalar ? " NumPy scalar" : " array") +
             (array.storage->device == kHost ? "" : " of " + device_text(array.storage->device));
    }
    case ValueKind::Object: {
      PyObject* object = as<ObjectValue>(value)->object.get();
      if (PyFunction_Check(object))
        return "function " + text_of(reinterpret_cast<PyFunctionObject*>(object)->func_qualname);
      if (PyType_Check(object)) return std::string("class ") + reinterpret_cast<PyTypeObject*>(object)->tp_name;
      if (PyCFunction_Check(object))
        return std::string("builtin ") + reinterpret_cast<PyCFunctionObject*>(object)->m_ml->ml_name;
      return std::string("an object of type ") + Py_TYPE(object)->tp_name;
    }
    case ValueKind::SymInt: return "an int";
    case ValueKind::Number: return "a number that is computed here";
    case ValueKind::Tuple: return "a tuple";
    case ValueKind::List: return "a list";
    case ValueKind::Dict: return "a dict";
    case ValueKind::Set: return "a set";
    case ValueKind::Slice: return "a slice";
    case ValueKind::Range: case ValueKind::ComputedRange: return "a range";
    case ValueKind::Iterator: return "an iterator";
    case ValueKind::Function: return "function " + text_of(as<FunctionValue>(value)->qualname.get());
    case ValueKind::BoundMethod: return "method of " + describe(as<BoundMethodValue>(value)->self);
    case ValueKind::Cell: return "a cell";
    case ValueKind::Instance: return std::string("an object of type ") + as<InstanceValue>(value)->type->tp_name;
    case ValueKind::Super: return "super()";
    case ValueKind::Partial: return "partial of " + describe(as<PartialValue>(value)->function);
    case ValueKind::Builtin:
      return "method " + as<BuiltinValue>(value)->name + " of " + describe(as<BuiltinValue>(value)->owner);
    case ValueKind::Null: return "nothing";
  }
  return "a value";
}

bool is_lock(PyObject* object) {
  const std::string_view type = Py_TYPE(object)->tp_name;
  return type == "_thread.lock" || type == "_thread.RLock";
}

bool is_enum_member(PyObject* object) {
  const char* meta = Py_TYPE(Py_TYPE(object))->tp_name;
  return !std::strcmp(meta, "EnumType") || !std::strcmp(meta, "EnumMeta");
}

void add_guard(TraceRun& t, GuardKind kind, SourceRef source, PyObject* object, std::int64_t number) {
  Guard guard;
  guard.kind = kind;
  guard.source = source;
  guard.object = Ref<>::borrow(object);
  guard.number = number;
  add_guard(t, std::move(guard));
}

void add_guard(TraceRun& t, Guard guard) {
  const Location where = t.location();
  guard.location = where.file + ":" + std::to_string(where.line);
  t.guards().add(std::move(guard));
}

namespace {

/// Tuples longer than this stay plain objects: guarding each item would cost more than the graph saves.
constexpr Py_ssize_t kLongContainer = 2000;

/// Objects whose Value carries no state: two places may hold two Values of one.
bool is_stateless(PyObject* object) {
  return is_plain(object) || PyFunction_Check(object) || PyType_Check(object) || PyCFunction_Check(object) ||
         PyModule_Check(object) || PyMethod_Check(object);
}

bool is_torch_tuple(PyObject* object) {
  const char* name = Py_TYPE(object)->tp_name;
  return PyTuple_Check(object) && (!std::strcmp(name, "torch.Size") || !std::strncmp(name, "torch.return_types.", 19));
}

bool fits_symbol(PyObject* object) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
  return !overflow && number >= -kLargestInt && number <= kLargestInt;
}

bool has_name(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

V wrap_constant(TraceRun& t, PyObject* object) {
  if (V value = proxied(object)) return value;
  if (auto key = t.identity->keys.find(object); key != t.identity->keys.end()) return key->second;
  if (PyFunction_Check(object) && !t.identity->functions.empty())
    if (auto made = t.identity->functions.find(object); made != t.identity->functions.end()) return made->second;
  if (object == Py_None) return t.none();
  if (object == Py_True) return t.boolean(true);
  if (object == Py_False) return t.boolean(false);
  if (is_stateless(object) || PyCode_Check(object)) return std::make_shared<ObjectValue>(Ref<>::borrow(object));
  if (PyTuple_CheckExact(object) && holds_proxy(object)) {
    auto tuple = std::make_shared<TupleValue>();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
      tuple->items.push_back(wrap_constant(t, PyTuple_GET_ITEM(object, i)));
    return tuple;
  }
  return t.wrap(object, t.sources().constant(object));
}

V TraceRun::wrap(PyObject* object, SourceRef source) {
  FJ_CHECK(object, "wrap of nothing");
  if (!source) return wrap_constant(*this, object);
  if (fj_is_lazy_import(object)) break_graph(BreakReason::UnsupportedObject, "an import that waits for its first use");
  if (is_stateless(object)) {
    if (PyLong_CheckExact(object) && !request.generalise.never_dynamic && fits_symbol(object) &&
        (is_made_anew(source) || has_name(request.generalise.sources, source->text()))) {
      const SymbolId symbol = graph().new_symbol(
          {"s" + std::to_string(graph().symbols.size()), -kLargestInt, kLargestInt, PyLong_AsLongLong(object), {}});
      Guard guard;
      guard.kind = GuardKind::IntSymbol;
      guard.source = source;
      guard.symbol = symbol;
      guards().add(std::move(guard));
      sizes->sources[symbol] = source;
      auto value = std::make_shared<SymIntValue>(symbol);
      value->source = source;
      return value;
    }
    auto value = std::make_shared<ObjectValue>(Ref<>::borrow(object));
    value->source = source;
    return value;
  }
  if (auto known = identity->values.find(object); known != identity->values.end()) {
    if (known->second->source && known->second->source != source) {
      Guard guard;
      guard.kind = GuardKind::SameObject;
      guard.source = source;
      guard.others = {known->second->source};
      guards().add(std::move(guard));
    }
    return known->second;
  }
  const Nesting nesting;
  keep(Ref<>::borrow(object));
  V value;
  const bool constant = source->kind == SourceKind::Constant;
  if (array_library(object)) {
    value = wrap_array(*this, object, source);
  } else if (PyFrozenSet_CheckExact(object) && constant) {
    auto set = std::make_shared<SetValue>(true);
    set->source = source;
    set->real = Ref<>::borrow(object);
    value = set;
  } else if ((PyTuple_CheckExact(object) || is_torch_tuple(object) || is_plain_named_tuple(Py_TYPE(object))) &&
             (constant || PyTuple_GET_SIZE(object) <= kLongContainer)) {
    auto tuple = std::make_shared<TupleValue>();
    tuple->source = source;
    if (!PyTuple_CheckExact(object)) tuple->type = Ref<>::borrow(reinterpret_cast<PyObject*>(Py_TYPE(object)));
    if (is_plain_named_tuple(Py_TYPE(object))) guard_type_version(*this, Py_TYPE(object));
    if (!constant) {
      add_guard(*this, GuardKind::TypeIs, source, reinterpret_cast<PyObject*>(Py_TYPE(object)));
      add_guard(*this, GuardKind::Length, source, nullptr, PyTuple_GET_SIZE(object));
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
      PyObject* item = PyTuple_GET_ITEM(object, i);
      tuple->items.push_back(constant ? wrap_constant(*this, item)
                                      : wrap(item, sources().make(SourceKind::TupleItem, source, i)));
    }
    value = tuple;
  } else if (PyList_CheckExact(object) || PyDict_CheckExact(object) || PyODict_CheckExact(object) ||
             PyAnySet_CheckExact(object) || is_deque(object) ||
             reinterpret_cast<PyObject*>(Py_TYPE(object)) == defaultdict_type()) {
    value = wrap_builtin(*this, object, source);
  } else if (PyCell_Check(object)) {
    auto cell = std::make_shared<CellValue>();
    cell->source = source;
    cell->real = Ref<>::borrow(object);
    value = cell;
  } else if (PySlice_Check(object)) {
    // A slice is immutable, and no source reaches its parts: known by identity.
    auto* real = reinterpret_cast<PySliceObject*>(object);
    if (constant || (is_plain(real->start) && is_plain(real->stop) && is_plain(real->step))) {
      auto slice = std::make_shared<SliceValue>();
      slice->source = source;
      slice->start = wrap_constant(*this, real->start);
      slice->stop = wrap_constant(*this, real->stop);
      slice->step = wrap_constant(*this, real->step);
      if (!constant) add_guard(*this, GuardKind::Identity, source, object);
      value = slice;
    }
  }
  if (!value) {
    value = std::make_shared<ObjectValue>(Ref<>::borrow(object));
    value->source = source;
  }
  identity->values[object] = value;
  if (value->kind == ValueKind::Dict) adopt_writes(*this, value, object);
  return value;
}

void guard_type(TraceRun& t, ObjectValue& value) {
  if (!value.source || value.guarded_type || value.guarded_value) return;
  value.guarded_type = true;
  add_guard(t, GuardKind::TypeIs, value.source, reinterpret_cast<PyObject*>(Py_TYPE(value.object.get())));
}

namespace {

bool is_library_constant(PyObject* object) {
  return dtype_from_object(object).has_value() || !std::strncmp(Py_TYPE(object)->tp_name, "torch.", 6) ||
         !std::strcmp(Py_TYPE(object)->tp_name, "_NoValueType") ||
         !std::strcmp(Py_TYPE(object)->tp_name, "numpy.ufunc") ||
         !std::strcmp(Py_TYPE(object)->tp_name, "numpy._ArrayFunctionDispatcher");
}

bool is_identity_constant(PyObject* object) {
  return PyFunction_Check(object) || PyType_Check(object) || PyCFunction_Check(object) || PyModule_Check(object) ||
         PyCode_Check(object) || Py_TYPE(object) == &PyMethodDescr_Type || Py_TYPE(object) == &PyWrapperDescr_Type ||
         Py_TYPE(object) == &PyGetSetDescr_Type || is_enum_member(object) || is_library_constant(object) ||
         numpy_scalar_dtype(object).has_value();
}

}  // namespace

bool guard_value(TraceRun& t, ObjectValue& value) {
  PyObject* object = value.object.get();
  const bool plain = is_plain(object);
  if (!plain && !is_identity_constant(object)) return false;
  if (!value.source || value.guarded_value) return true;
  value.guarded_value = true;
  if (value.source->kind == SourceKind::Constant) return true;
  add_guard(t, plain ? GuardKind::Equals : GuardKind::Identity, value.source, object);
  return true;
}

ValueId TraceRun::float_input(const V& value, bool always) {
  if (auto* number = as<NumberValue>(value); number && number->dtype == DType::F64) return number->contents;
  auto* held = as<ObjectValue>(value);
  if (!request.generalise.builtin_backend || request.generalise.never_dynamic || !held || !held->source ||
      held->guarded_value)
    return {};
  // np.float64 is a float, and holds its number where a float does.
  PyObject* object = held->object.get();
  if (!PyFloat_CheckExact(object) && !(PyFloat_Check(object) && numpy_scalar_dtype(object))) return {};
  if (!always && !is_made_anew(held->source) && !has_name(request.generalise.sources, held->source->text())) return {};
  if (!numpy_module()) return {};  // its results leave the program in NumPy's arrays
  return number_input(*this, *held, DType::F64);
}

ValueId number_input(TraceRun& t, ObjectValue& held, DType dtype) {
  auto [known, fresh] = t.inputs->numbers.emplace(held.source, ValueId{});
  if (fresh) {
    guard_type(t, held);
    known->second = t.graph().add_input(input_name(held.source), {dtype, {}}, Dims{});
    t.inputs->sources.push_back(held.source);
    t.inputs->of_host.push_back(true);
  }
  return known->second;
}

V TraceRun::changing_scalar(const V& value, bool always) {
  auto* held = as<ObjectValue>(value);
  if (!request.generalise.builtin_backend || request.generalise.never_dynamic || !held || !held->source ||
      held->guarded_value)
    return nullptr;
  const auto dtype = numpy_scalar_dtype(held->object.get());
  if (!dtype || is_complex(*dtype) || (!always && !has_name(request.generalise.sources, held->source->text())))
    return nullptr;
  auto scalar = new_array(Library::Numpy, number_input(*this, *held, *dtype));
  scalar->numpy_scalar = true;
  return scalar;
}

V TraceRun::scalar_index(const V& value) {
  PyObject* const index =
      once([] { return PyObject_GetAttrString(Ref<>::steal(PyImport_ImportModule("operator")).get(), "index"); });
  auto* held = as<ObjectValue>(value);
  const auto dtype = held ? numpy_scalar_dtype(held->object.get()) : std::nullopt;
  return dtype && is_integer(*dtype) && *dtype != DType::Bool ? scalar_as(*this, *held, index) : nullptr;
}

V scalar_float(TraceRun& t, const V& value) {
  auto* held = as<ObjectValue>(value);
  const auto dtype = held ? numpy_scalar_dtype(held->object.get()) : std::nullopt;
  return dtype && !is_complex(*dtype) ? scalar_as(t, *held, reinterpret_cast<PyObject*>(&PyFloat_Type)) : nullptr;
}

V scalar_as(TraceRun& t, ObjectValue& scalar, PyObject* function) {
  if (!scalar.source || scalar.source->kind == SourceKind::Constant || scalar.guarded_value) return nullptr;
  Ref<> number = Ref<>::steal(PyObject_CallOneArg(function, scalar.object.get()));
  if (!number) return PyErr_Clear(), nullptr;
  guard_type(t, scalar);
  return t.wrap(t.keep(number).get(), t.sources().make(SourceKind::AnswerAbout, scalar.source, 0, function));
}

V string_length(TraceRun& t, const V& value) {
  auto* held = as<ObjectValue>(value);
  if (!held || !held->source || held->guarded_value || held->source->kind == SourceKind::Constant) return nullptr;
  PyObject* object = held->object.get();
  if (!PyUnicode_CheckExact(object) && !PyBytes_CheckExact(object)) return nullptr;
  const Py_ssize_t size = PyUnicode_Check(object) ? PyUnicode_GET_LENGTH(object) : PyBytes_GET_SIZE(object);
  guard_type(t, *held);
  return t.integer(bound_length(t, held->source, size));
}

V unopened_length(TraceRun& t, const V& value) {
  auto* list = unopened_list(value);
  if (!list) return nullptr;
  Ref<> now = t.sources().fetch(list->source, t.request.values);
  if (!now || !PyList_CheckExact(now.get())) return nullptr;
  return t.integer(bound_length(t, list->source, PyList_GET_SIZE(now.get())) +
                   SymDim(std::int64_t(list->items.size())));
}

SymDim bound_length(TraceRun& t, SourceRef source, Py_ssize_t size) {
  if (t.request.generalise.never_dynamic || size > kLargestInt ||
      !has_name(t.request.generalise.lengths, source->text())) {
    add_guard(t, GuardKind::Length, source, nullptr, size);
    return SymDim(std::int64_t(size));
  }
  auto [known, fresh] = t.sizes->lengths.emplace(source, SymbolId{});
  if (fresh) {
    known->second = t.graph().new_symbol({"s" + std::to_string(t.graph().symbols.size()), 0, kLargestInt, size, {}});
    Guard guard;
    guard.kind = GuardKind::LengthSymbol;
    guard.source = source;
    guard.symbol = known->second;
    add_guard(t, std::move(guard));
    PyObject* const len = once([] { return PyDict_GetItemString(PyEval_GetBuiltins(), "len"); });
    t.sizes->sources[known->second] = t.sources().make(SourceKind::Result, nullptr, 0, len, {source});
  }
  return known->second;
}

bool strings_differ(TraceRun& t, const V& a, const V& b) {
  auto *left = as<ObjectValue>(a), *right = as<ObjectValue>(b);
  if (!left || !right || !PyUnicode_CheckExact(left->object.get()) || !PyUnicode_CheckExact(right->object.get()))
    return false;
  if (PyUnicode_Compare(left->object.get(), right->object.get()) == 0) return false;
  auto from_outside = [](ObjectValue& value) {
    return value.source && !value.guarded_value && value.source->kind != SourceKind::Constant;
  };
  if (from_outside(*left) && from_outside(*right)) return false;
  if (from_outside(*right)) std::swap(left, right);
  if (from_outside(*left)) {
    guard_type(t, *left);
    add_guard(t, GuardKind::Differs, left->source, right->object.get());
  }
  return true;
}

Ref<> TraceRun::constant_object(V&& value) { return Ref<>::borrow(constant_object(value)); }

PyObject* TraceRun::constant_object(const V& value) {
  switch (value->kind) {
    case ValueKind::Object: {
      auto& object = *as<ObjectValue>(value);
      return guard_value(*this, object) ? object.object.get() : nullptr;
    }
    case ValueKind::Number: {
      V known = settled(*this, value);
      return known != value ? constant_object(known) : nullptr;
    }
    case ValueKind::Tuple: {
      const Nesting nesting;
      auto& tuple = *as<TupleValue>(value);
      if (tuple.type) return nullptr;
      if (tuple.source && tuple.source->kind == SourceKind::Constant &&
          std::all_of(tuple.items.begin(), tuple.items.end(), [&](const V& item) { return constant_object(item); }))
        return tuple.source->key.get();
      Ref<> result = Ref<>::steal(PyTuple_New(Py_ssize_t(tuple.items.size())));
      for (std::size_t i = 0; i < tuple.items.size(); ++i) {
        PyObject* item = constant_object(tuple.items[i]);
        if (!item) return nullptr;
        PyTuple_SET_ITEM(result.get(), Py_ssize_t(i), Py_NewRef(item));
      }
      return keep(result).get();
    }
    case ValueKind::Slice: {
      const Nesting nesting;
      auto& slice = *as<SliceValue>(value);
      PyObject* start = constant_object(slice.start);
      PyObject* stop = constant_object(slice.stop);
      PyObject* step = constant_object(slice.step);
      if (!start || !stop || !step) return nullptr;
      return keep(Ref<>::steal(PySlice_New(start, stop, step))).get();
    }
    default:
      return nullptr;
  }
}

PyTypeObject* TraceRun::type_of(const V& value) {
  switch (value->kind) {
    case ValueKind::Object: {
      auto& object = *as<ObjectValue>(value);
      guard_type(*this, object);
      return Py_TYPE(object.object.get());
    }
    case ValueKind::SymInt: return &PyLong_Type;
    case ValueKind::Number: {
      const DType dtype = as<NumberValue>(value)->dtype;
      return dtype == DType::F64 ? &PyFloat_Type : dtype == DType::Bool ? &PyBool_Type : &PyLong_Type;
    }
    case ValueKind::Array: {
      auto& array = *as<ArrayValue>(value);
      PyObject* module = array.library == Library::Torch ? torch_module() : numpy_module();
      Ref<> type;
      if (array.parameter) {
        Ref<> nn = Ref<>::steal(PyObject_GetAttrString(module, "nn"));
        if (nn) type = Ref<>::steal(PyObject_GetAttrString(nn.get(), "Parameter"));
      } else if (array.numpy_scalar) {
        Ref<> dtype = dtype_object(Library::Numpy, array.dtype);
        if (dtype) type = Ref<>::steal(PyObject_GetAttrString(dtype.get(), "type"));
      } else {
        type = Ref<>::steal(PyObject_GetAttrString(module, array.library == Library::Torch ? "Tensor" : "ndarray"));
      }
      if (!type) {
        PyErr_Clear();
        break_graph(BreakReason::UnsupportedObject, "the type of " + describe(value));
      }
      return reinterpret_cast<PyTypeObject*>(keep(type).get());
    }
    case ValueKind::Tuple: {
      auto& tuple = *as<TupleValue>(value);
      return tuple.type ? reinterpret_cast<PyTypeObject*>(tuple.type.get()) : &PyTuple_Type;
    }
    case ValueKind::List: {
      auto& list = static_cast<const ListValue&>(*value);
      return list.type ? reinterpret_cast<PyTypeObject*>(list.type.get()) : &PyList_Type;
    }
    case ValueKind::Dict: {
      auto& dict = *as<DictValue>(value);
      return dict.type ? reinterpret_cast<PyTypeObject*>(dict.type.get()) : &PyDict_Type;
    }
    case ValueKind::Set: return as<SetValue>(value)->frozen ? &PyFrozenSet_Type : &PySet_Type;
    case ValueKind::Slice: return &PySlice_Type;
    case ValueKind::Range: case ValueKind::ComputedRange: return &PyRange_Type;
    case ValueKind::Function: return &PyFunction_Type;
    case ValueKind::BoundMethod: return &PyMethod_Type;
    case ValueKind::Cell: return &PyCell_Type;
    case ValueKind::Instance: return as<InstanceValue>(value)->type.get();
    case ValueKind::Partial: return as<PartialValue>(value)->type.get();
    case ValueKind::Iterator:
      if (as<IteratorValue>(value)->frame) return &PyGen_Type;  // the type of others is not recorded
      [[fallthrough]];
    default:
      break_graph(BreakReason::UnsupportedObject, "the type of " + describe(value));
  }
}

bool TraceRun::is_none(const V& value) {
  auto* object = as<ObjectValue>(value);
  if (!object) return false;
  if (object->object.get() == Py_None) {
    guard_value(*this, *object);
    return true;
  }
  guard_type(*this, *object);
  return false;
}

bool TraceRun::truth(const V& value) {
  switch (value->kind) {
    case ValueKind::Object: {
      auto& object = *as<ObjectValue>(value);
      PyObject* real = object.object.get();
      if (is_plain(real)) {
        if (V known = PyFloat_CheckExact(real) ? result_of_operator(*this, "truth", {value}) : nullptr)
          return truth(known);
        guard_value(*this, object);
        const int answer = PyObject_IsTrue(real);
        if (answer < 0) raise_python_error(*this);
        return answer;
      }
      if (array_library(real))
        break_graph(BreakReason::BranchOnData, "`" + source_text() + "` tests " + describe(value));
      return object_truth(*this, value);
    }
    case ValueKind::Instance: return object_truth(*this, value);
    case ValueKind::SymInt: return !decide(as<SymIntValue>(value)->expression, Py_EQ, 0);
    case ValueKind::Number:
      if (V known = settled(*this, value); known != value) return truth(known);
      if (request.way) {
        const auto* number = as<NumberValue>(value);
        return take_way(*this, number->dtype == DType::Bool
                                   ? number->contents
                                   : emit(*this, Op::ne, {number->contents, fj::constant(*this, number->dtype, 0)}));
      }
      break_graph(BreakReason::BranchOnData, "`" + source_text() + "` tests " + describe(value));
    case ValueKind::Array:
      if (as<ArrayValue>(value)->dtype == DType::Bool)
        if (auto known = constant_condition(graph(), array_contents(*this, *as<ArrayValue>(value)))) return *known;
      if (request.follow) return follow(*this, *as<ArrayValue>(value));
      if (request.way) return take_way(*this, condition_of(*this, *as<ArrayValue>(value)));
      break_graph(
          BreakReason::BranchOnData,
          "`" + source_text() + "` tests " + describe(value) +
              (as<ArrayValue>(value)->storage->device == kHost ? "" : ", of which Python waits for one element"));
    case ValueKind::Tuple: return !sequence_items(value).empty();
    case ValueKind::List: return !as<ListValue>(value)->items.empty();
    case ValueKind::Dict: {
      auto& dict = *as<DictValue>(value);
      if (!dict.opened) {
        // The dict's keys may never be asked for: torch keeps hooks in such dicts.
        add_guard(*this, GuardKind::Length, dict.source, nullptr, PyDict_GET_SIZE(dict.real.get()));
        return PyDict_GET_SIZE(dict.real.get()) != 0;
      }
      return !dict.items.empty();
    }
    case ValueKind::Set: return PySet_GET_SIZE(as<SetValue>(value)->real.get()) != 0;
    case ValueKind::Range: return truth(length(*this, value));
    case ValueKind::Slice: case ValueKind::Function: case ValueKind::BoundMethod: case ValueKind::Builtin:
    case ValueKind::Partial: case ValueKind::Iterator: case ValueKind::Cell: return true;
    default: break_graph(BreakReason::UnsupportedObject, "truth of " + describe(value));
  }
}

bool object_truth(TraceRun& t, const V& value) {
  PyTypeObject* type = t.type_of(value);
  if (V method = python_method(t, value, "__bool__")) {
    V answer = t.call(method, {}, {});
    PyObject* decided = t.constant_object(answer);
    if (!decided || !PyBool_Check(decided))
      break_graph(BreakReason::ErrorWhileTracing, "a __bool__ that gives no bool");
    return decided == Py_True;
  }
  static PyObject* const bool_name = PyUnicode_InternFromString("__bool__");
  V part = builtin_part(t, value);
  if (class_attribute(t, type, bool_name)) {
    if (part) return t.truth(part);
    // A constant of C code: a dtype, a member of an IntEnum, ...
    PyObject* object = t.constant_object(value);
    if (!object) break_graph(BreakReason::UnsupportedObject, "truth of " + describe(value));
    const int answer = PyObject_IsTrue(object);
    if (answer < 0) raise_python_error(t);
    return answer;
  }
  if (python_method(t, value, "__len__")) return t.truth(length(t, value));
  if (part) return t.truth(part);
  static PyObject* const len_name = PyUnicode_InternFromString("__len__");
  if (class_attribute(t, type, len_name)) return t.truth(length(t, value));
  if (type->tp_as_number && type->tp_as_number->nb_bool)
    break_graph(BreakReason::UnsupportedObject, "truth of " + describe(value));
  return true;
}

V proxied_mapping(TraceRun& t, const V& value) {
  auto* object = as<ObjectValue>(value);
  if (!object || Py_TYPE(object->object.get()) != &PyDictProxy_Type) return nullptr;
  // The one object a proxy refers to.
  PyObject* mapping = nullptr;
  PyDictProxy_Type.tp_traverse(object->object.get(), [](PyObject* found, void* place) {
    *static_cast<PyObject**>(place) = found;
    return 0;
  }, &mapping);
  if (!mapping || !PyDict_CheckExact(mapping)) return nullptr;
  if (value->source) add_guard(t, GuardKind::Identity, value->source, object->object.get());
  return t.wrap(mapping, t.sources().constant(mapping));
}

bool same_object(TraceRun& t, const V& a, const V& b) {
  if (a == b) return true;
  const auto changes = [](const V& value) {
    const auto* object = as<ObjectValue>(value);
    return value->kind == ValueKind::Array || value->kind == ValueKind::Number ||
           (object && PyNumber_Check(object->object.get()));
  };
  if ((a->of_any_pass || b->of_any_pass) && changes(a) && changes(b))
    break_graph(BreakReason::UnsupportedObject,
                "`" + t.source_text() + "` asks for the identity of what a loop on data changes");
  auto *left = as<ObjectValue>(a), *right = as<ObjectValue>(b);
  if (a->kind == ValueKind::SymInt || b->kind == ValueKind::SymInt) {
    // Different numbers are never one object; equal ones may be.
    auto x = t.int_expression(a), y = t.int_expression(b);
    if (x && y && t.decide(*x, Py_EQ, *y)) break_graph(BreakReason::UnsupportedObject, "identity of equal ints");
    for (auto* other : {left, right})
      if (other && !(x && y) && !(PyLong_CheckExact(other->object.get()) && guard_value(t, *other)))
        guard_type(t, *other);
    return false;
  }
  if (a->kind != b->kind) {
    // Most kinds of Values are types, which wrapping has guarded; a Value of a kind that is only made in the trace is
    // no object from outside.
    auto is_made = [](const V& value) {
      switch (value->kind) {
        case ValueKind::Range:
        case ValueKind::Iterator:
        case ValueKind::Function:
        case ValueKind::BoundMethod:
        case ValueKind::Instance:
        case ValueKind::Super: case ValueKind::Partial: case ValueKind::Builtin: return true;
        default: return false;
      }
    };
    if (is_made(a) || is_made(b)) return false;
    // A slice may be known by its parts in one place and as an object in another.
    if (t.type_of(a) == t.type_of(b))
      break_graph(BreakReason::UnsupportedObject, "identity of " + describe(a) + " and " + describe(b));
    return false;
  }
  if (!left || !right) {
    if (auto *one = as<TupleValue>(a), *other = as<TupleValue>(b); one && other && !one->view_of && !other->view_of) {
      if (one->items.empty() && other->items.empty() && !one->type && !other->type)
        return true;  // there is one empty tuple
      // One tuple may have two Values, but not with different items.
      bool differ = one->items.size() != other->items.size();
      for (std::size_t i = 0; !differ && i < one->items.size(); ++i) {
        const V &x = one->items[i], &y = other->items[i];
        differ = x != y && x->kind == y->kind && !x->source && !y->source &&
                 (x->kind == ValueKind::List || x->kind == ValueKind::Dict || x->kind == ValueKind::Instance ||
                  x->kind == ValueKind::Array);
      }
      if (differ) return false;
    }
    const bool settled = a->source && b->source;
    auto *left_set = as<SetValue>(a), *right_set = as<SetValue>(b);
    const bool frozen = left_set && left_set->frozen && right_set->frozen &&
                        PySet_GET_SIZE(left_set->real.get()) == PySet_GET_SIZE(right_set->real.get());
    if (((a->kind == ValueKind::Tuple || frozen) && !settled) || a->kind == ValueKind::BoundMethod)
      break_graph(BreakReason::UnsupportedObject, "identity of " + describe(a));
    if (settled) {
      Guard guard;
      guard.kind = GuardKind::NotSame;
      guard.source = a->source;
      guard.others = {b->source};
      t.guards().add(std::move(guard));
    }
    return false;
  }
  PyObject *x = left->object.get(), *y = right->object.get();
  if (Py_TYPE(x) != Py_TYPE(y)) {
    guard_type(t, *left);
    guard_type(t, *right);
    return false;
  }
  if (PyLong_CheckExact(x) || PyFloat_CheckExact(x) || PyUnicode_CheckExact(x) || PyBytes_CheckExact(x) ||
      PyComplex_CheckExact(x)) {
    // Equal numbers and strings may or may not be one object; different ones never are.
    guard_value(t, *left);
    guard_value(t, *right);
    const int equal = PyObject_RichCompareBool(x, y, Py_EQ);
    PyErr_Clear();
    if (equal)
      break_graph(BreakReason::UnsupportedObject, "identity of equal " + std::string(Py_TYPE(x)->tp_name) + "s");
    return false;
  }
  // An object that is known by now needs no guard, nor do two constants.
  auto is_known = [](const ObjectValue& value) {
    return !value.source || value.guarded_value || value.source->kind == SourceKind::Constant;
  };
  if (is_plain(x) || (is_known(*left) && is_known(*right))) {
    guard_value(t, *left);
    guard_value(t, *right);
  } else if (x == y && (is_known(*left) || is_known(*right))) {
    for (auto* value : {left, right})
      if (!is_known(*value)) add_guard(t, GuardKind::Identity, value->source, x);
  } else {
    Guard guard;
    guard.kind = x == y ? GuardKind::SameObject : GuardKind::NotSame;
    guard.source = left->source ? left->source : t.sources().constant(x);
    guard.others = {right->source ? right->source : t.sources().constant(y)};
    add_guard(t, std::move(guard));
  }
  return x == y;
}

V TraceRun::constant(Ref<> object) { return wrap_constant(*this, keep(std::move(object)).get()); }

std::optional<std::int64_t> TraceRun::constant_int(const V& value) {
  if (auto* symbolic = as<SymIntValue>(value)) {
    // The caller needs exactly this number: from here on the trace is good for it only.
    if (graph().is_late(symbolic->expression))
      break_graph(BreakReason::DataDependentShape, "`" + source_text() + "` asks for a size that depends on data");
    const std::int64_t now = hint(*this, symbolic->expression);
    if (!decide(symbolic->expression, Py_EQ, now)) return std::nullopt;
    return now;
  }
  // NumPy's code counts with arrays: `axes[0]`, axes an arange.
  if (auto* array = as<ArrayValue>(value);
      array && array->library == Library::Numpy && array->numpy_scalar && array->dtype == DType::I64)
    return constant_integer(graph(), read(*array));
  PyObject* object = as<ObjectValue>(value) && PyLong_Check(as<ObjectValue>(value)->object.get())
                         ? constant_object(value) : nullptr;
  if (!object || !(PyLong_CheckExact(object) || PyBool_Check(object))) return std::nullopt;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow) return std::nullopt;
  return number;
}

std::optional<double> TraceRun::constant_float(const V& value) {
  if (V known = settled(*this, value); known != value) return constant_float(known);
  auto* object = as<ObjectValue>(value);
  if (!object || !PyFloat_CheckExact(object->object.get()) || !guard_value(*this, *object)) return std::nullopt;
  return PyFloat_AS_DOUBLE(object->object.get());
}

}  // namespace fj
