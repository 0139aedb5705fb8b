// Text of Values: methods of classes are inlined, the rest is CPython's own on constants, with proxies for what is
// none.
#include "tracer/values/text.h"

#include <algorithm>
#include <string_view>

#include "guards/source.h"
#include "runtime/base/error.h"
#include "tracer/interpreter/exceptions.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/nesting.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/classes/class_variables.h"
#include "tracer/values/containers/containers.h"
#include "tracer/values/containers/dicts.h"
#include "tracer/values/numbers/derived_values.h"
#include "tracer/values/numbers/operators.h"
#include "tracer/values/outside_objects.h"
#include "tracer/values/proxies.h"

namespace fj {
namespace {

/// A class whose metaclass leaves its text to `type`.
bool has_text_of_class(PyObject* object) {
  return PyType_Check(object) && Py_TYPE(object)->tp_repr == PyType_Type.tp_repr &&
         Py_TYPE(object)->tp_str == PyType_Type.tp_str;
}

/// A class is the same object under another name too.
void note_text_of_class(TraceRun& tracer, const V& value) {
  auto* object = as<ObjectValue>(value);
  if (!object || !PyType_Check(object->object.get()) ||
      !(reinterpret_cast<PyTypeObject*>(object->object.get())->tp_flags & Py_TPFLAGS_HEAPTYPE))
    return;
  static PyObject* const names[] = {PyUnicode_InternFromString("__module__"),
                                    PyUnicode_InternFromString("__qualname__")};
  for (PyObject* name : names) {
    V part = find_attribute(tracer, value, name);
    PyObject* text = part ? tracer.constant_object(part) : nullptr;
    if (!text || !PyUnicode_CheckExact(text))
      break_graph(BreakReason::UnsupportedObject, "the name of " + describe(value));
  }
}

/// Objects whose str and repr are those of a constant.
bool has_constant_text(PyObject* object) {
  return is_plain(object) || dtype_from_object(object) || is_torch_value(object) || has_text_of_class(object) ||
         PyCFunction_Check(object);
}

V checked(TraceRun& tracer, Ref<> text) {
  check_proxies();
  if (!text) raise_python_error(tracer);
  return wrap_constant(tracer, tracer.keep(text).get());
}

V exception_text(TraceRun& tracer, const InstanceValue& exception) {
  auto* type = exception.type.get();
  auto is = [&](PyObject* known) { return type->tp_str == reinterpret_cast<PyTypeObject*>(known)->tp_str; };
  if (is(PyExc_KeyError) && exception.args.size() == 1) return repr_of(tracer, exception.args[0]);
  if (!is(PyExc_KeyError) && !is(PyExc_Exception))
    break_graph(BreakReason::UnsupportedObject, std::string("str() of ") + type->tp_name);
  if (exception.args.empty()) return tracer.string("");
  return str_of(tracer, exception.args.size() == 1 ? exception.args[0] : tracer.tuple(exception.args));
}

V exception_repr(TraceRun& tracer, const InstanceValue& exception) {
  Ref<> name = Ref<>::steal(PyType_GetName(exception.type.get()));
  Ref<> arguments = readable_object(tracer, tracer.tuple(exception.args));
  Ref<> text =
      Ref<>::steal(PyObject_Repr(exception.args.size() == 1 ? PyTuple_GET_ITEM(arguments.get(), 0) : arguments.get()));
  V inner = checked(tracer, text);
  const std::string joined = text_of(tracer.constant_object(inner));
  return tracer.string(text_of(name.get()) + (exception.args.size() == 1 ? "(" + joined + ")" : joined));
}

V text(TraceRun& tracer, const V& value, bool repr);

/// str(e) of an exception that C code or Python outside the trace has raised; null: its class has a way of its own.
V outside_exception_text(TraceRun& tracer, const V& value) {
  auto* object = as<ObjectValue>(value);
  if (!object || !PyExceptionInstance_Check(object->object.get()) || !value->source) return nullptr;
  const auto rule = Py_TYPE(object->object.get())->tp_str;
  const bool of_key = rule == reinterpret_cast<PyTypeObject*>(PyExc_KeyError)->tp_str;
  if (!of_key && rule != reinterpret_cast<PyTypeObject*>(PyExc_BaseException)->tp_str) return nullptr;
  static PyObject* const name = PyUnicode_InternFromString("args");
  Ref<> args = Ref<>::steal(PyObject_GenericGetAttr(object->object.get(), name));
  if (!args) return nullptr;
  V given = tracer.wrap(tracer.keep(args).get(), tracer.sources().make(SourceKind::SlotMember, value->source, 0, name));
  const std::vector<V> items = tracer.sequence_items(given);
  if (items.empty()) return tracer.string("");
  return text(tracer, items.size() == 1 ? items[0] : given, of_key || items.size() > 1);
}

V text(TraceRun& tracer, const V& value, bool repr) {
  PyObject* const repr_function = once([] { return PyDict_GetItemString(PyEval_GetBuiltins(), "repr"); });
  if (V result = result_of(tracer, repr ? repr_function : reinterpret_cast<PyObject*>(&PyUnicode_Type), {value}))
    return result;
  if (value->kind == ValueKind::SymInt) return text(tracer, tracer.integer(*tracer.constant_int(value)), repr);
  if (value->kind == ValueKind::Object || value->kind == ValueKind::Instance) {
    PyTypeObject* type = tracer.type_of(value);
    auto* object = as<ObjectValue>(value);
    if (object && has_constant_text(object->object.get())) {
      PyObject* known = tracer.constant_object(value);
      note_text_of_class(tracer, value);
      return checked(tracer, Ref<>::steal(repr ? PyObject_Repr(known) : PyObject_Str(known)));
    }
    static PyObject* const names[] = {PyUnicode_InternFromString("__str__"), PyUnicode_InternFromString("__repr__")};
    PyObject* method = class_attribute(tracer, type, names[repr]);
    if (method && is_python_method(tracer, method)) {
      return tracer.call(bind_class_attribute(tracer, method, value, type), {}, {});
    }
    if (!repr && method && Py_TYPE(method) == &PyWrapperDescr_Type && PyDescr_TYPE(method) == &PyBaseObject_Type)
      return text(tracer, value, true);
    if (repr && method && Py_TYPE(method) == &PyWrapperDescr_Type && PyDescr_TYPE(method) == &PyBaseObject_Type)
      break_graph(BreakReason::UnsupportedObject, "formats " + describe(value));
    if (V known = repr ? nullptr : outside_exception_text(tracer, value)) return known;
    V part = builtin_part(tracer, value);
    // Sets, deques, OrderedDicts and defaultdicts say what class they are.
    if (part && (part->kind == ValueKind::Set || (part->kind == ValueKind::List && as<ListValue>(part)->type) ||
                 (part->kind == ValueKind::Dict && as<DictValue>(part)->type)))
      break_graph(BreakReason::UnsupportedObject, "formats " + describe(value));
    if (part) return text(tracer, part, repr);
    if (V part = number_part(tracer, value); part != value) return text(tracer, part, repr);
    if (auto* instance = as<InstanceValue>(value);
        instance && PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(PyExc_BaseException)))
      return repr ? exception_repr(tracer, *instance) : exception_text(tracer, *instance);
    if (!repr && type->tp_str == PyBaseObject_Type.tp_str && type->tp_repr != PyBaseObject_Type.tp_repr)
      return text(tracer, value, true);
    break_graph(BreakReason::UnsupportedObject, "formats " + describe(value));
  }
  switch (value->kind) {
    case ValueKind::Tuple:
    case ValueKind::List:
    case ValueKind::Dict:
    case ValueKind::Set:
    case ValueKind::Slice:
    case ValueKind::Range: break;
    default: break_graph(BreakReason::UnsupportedObject, "formats " + describe(value));
  }
  if (auto* set = as<SetValue>(value); set && !set->ordered && PySet_GET_SIZE(set->real.get()) > 1)
    break_graph(BreakReason::UnsupportedObject, "the order of a set");
  Ref<> real = readable_object(tracer, value);
  return checked(tracer, Ref<>::steal(repr ? PyObject_Repr(real.get()) : PyObject_Str(real.get())));
}

}  // namespace

V str_of(TraceRun& tracer, const V& value) { return text(tracer, value, false); }
V repr_of(TraceRun& tracer, const V& value) { return text(tracer, value, true); }

V format_of(TraceRun& tracer, const V& value, const V& specification) {
  PyObject* const format_function = once([] { return PyDict_GetItemString(PyEval_GetBuiltins(), "format"); });
  if (V result = result_of(tracer, format_function, {value, specification ? specification : tracer.string("")}))
    return result;
  PyObject* format = specification ? tracer.constant_object(specification) : nullptr;
  if (specification && (!format || !PyUnicode_CheckExact(format)))
    break_graph(BreakReason::UnsupportedObject, "formats " + describe(value));
  if (value->kind == ValueKind::SymInt)
    return format_of(tracer, tracer.integer(*tracer.constant_int(value)), specification);
  if (value->kind == ValueKind::Object || value->kind == ValueKind::Instance) {
    auto* object = as<ObjectValue>(value);
    if (object && has_constant_text(object->object.get())) note_text_of_class(tracer, value);
    if (object && has_constant_text(object->object.get()))
      return checked(tracer, Ref<>::steal(PyObject_Format(tracer.constant_object(value), format)));
    static PyObject* const name = PyUnicode_InternFromString("__format__");
    PyTypeObject* type = tracer.type_of(value);
    PyObject* method = class_attribute(tracer, type, name);
    if (method && is_python_method(tracer, method))
      return tracer.call(bind_class_attribute(tracer, method, value, type),
                         {specification ? specification : tracer.string("")}, {});
    // C code formats what a derived class is; with nothing to go by it asks for str().
    if (!format || PyUnicode_GET_LENGTH(format) == 0) return str_of(tracer, value);
    if (V part = number_part(tracer, value);
        part != value && object && method && PyDescr_TYPE(method) != &PyBaseObject_Type)
      return format_of(tracer, part, specification);
    if (V part = builtin_part(tracer, value);
        part && part->kind == ValueKind::Object && method && PyDescr_TYPE(method) != &PyBaseObject_Type)
      return format_of(tracer, part, specification);
  }
  if (!format || PyUnicode_GET_LENGTH(format) == 0) return str_of(tracer, value);
  break_graph(BreakReason::UnsupportedObject, "formats " + describe(value));
}

namespace {

/// format % tuple(arguments)
PyObject* formatted_by_percent(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  Ref<> given = Ref<>::steal(PyTuple_New(count - 1));
  for (Py_ssize_t i = 1; i < count; ++i) PyTuple_SET_ITEM(given.get(), i - 1, Py_NewRef(arguments[i]));
  return PyUnicode_Format(arguments[0], given.get());
}

/// format % {name: argument, ...}: format, name, argument, ...
PyObject* formatted_by_names(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  Ref<> given = Ref<>::steal(PyDict_New());
  for (Py_ssize_t i = 1; i + 1 < count; i += 2) PyDict_SetItem(given.get(), arguments[i], arguments[i + 1]);
  return PyUnicode_Format(arguments[0], given.get());
}

/// format.format(*arguments, **named): format, how many arguments, these, name, argument, ...
PyObject* formatted_by_fields(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  const Py_ssize_t places = PyLong_AsSsize_t(arguments[1]);
  Ref<> given = Ref<>::steal(PyTuple_New(places)), named = Ref<>::steal(PyDict_New());
  for (Py_ssize_t i = 0; i < places; ++i) PyTuple_SET_ITEM(given.get(), i, Py_NewRef(arguments[2 + i]));
  for (Py_ssize_t i = 2 + places; i + 1 < count; i += 2) PyDict_SetItem(named.get(), arguments[i], arguments[i + 1]);
  Ref<> method = Ref<>::steal(PyObject_GetAttrString(arguments[0], "format"));
  return method ? PyObject_Call(method.get(), given.get(), named.get()) : nullptr;
}

/// joint.join(texts): joint, texts ...
PyObject* joined(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  Ref<> texts = Ref<>::steal(PyList_New(count - 1));
  for (Py_ssize_t i = 1; i < count; ++i) PyList_SET_ITEM(texts.get(), i - 1, Py_NewRef(arguments[i]));
  return PyUnicode_Join(arguments[0], texts.get());
}

/// A template that says itself how wide things get.
bool has_fixed_widths(TraceRun& tracer, const V& format, bool percent) {
  auto* held = as<ObjectValue>(format);
  if (!held || !PyUnicode_CheckExact(held->object.get()) || changes(tracer, format)) return false;
  const char* encoded = PyUnicode_AsUTF8(held->object.get());
  if (!encoded) return PyErr_Clear(), false;  // a lone surrogate
  const std::string_view text = encoded;
  if (percent) return text.find('*') == std::string::npos;
  int open = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '}') open = 0;
    if (text[i] != '{') continue;
    if (open == 0 && i + 1 < text.size() && text[i + 1] == '{') ++i;
    else if (++open > 1) return false;
  }
  return true;
}

/// `format % value` of plain operands of which some change; null: others.
V changing_percent(TraceRun& tracer, const V& format, const V& value) {
  if (!has_fixed_widths(tracer, format, true)) return nullptr;
  std::vector<V> operands{format};
  if (auto* tuple = as<TupleValue>(value); tuple && !tuple->type && !tuple->view_of) {
    operands.insert(operands.end(), tuple->items.begin(), tuple->items.end());
    return result_of(tracer, c_function<formatted_by_percent>("percent"), operands);
  }
  if (auto* dict = as<DictValue>(value); dict && dict->opened && !dict->type) {
    for (auto& [key, item] : dict->items) {
      operands.push_back(wrap_constant(tracer, key.get()));
      operands.push_back(item);
    }
    return result_of(tracer, c_function<formatted_by_names>("percent_names"), operands);
  }
  operands.push_back(value);
  const bool single = value->kind == ValueKind::Object || value->kind == ValueKind::SymInt;
  return single ? result_of(tracer, c_function<formatted_by_percent>("percent"), operands) : nullptr;
}

/// A constant of what C reads as an int: one of a derived class is its number (`re` has one that means "no count
/// given").
V count_or_place(TraceRun& tracer, const V& value) {
  if (value->kind == ValueKind::SymInt) return tracer.integer(*tracer.constant_int(value));
  auto* held = as<ObjectValue>(value);
  if (!held || !held->source || !PyLong_Check(held->object.get()) || PyLong_CheckExact(held->object.get()) ||
      PyBool_Check(held->object.get()))
    return value;
  add_guard(tracer, GuardKind::Identity, held->source, held->object.get());
  return wrap_constant(tracer, tracer.keep(Ref<>::steal(PyLong_Type.tp_as_number->nb_int(held->object.get()))).get());
}

/// Of C types that nothing derives from: what they give depends on what they are given, and is plain, a list, tuple or
/// dict of such, or a match.
constexpr std::string_view kPatternMethods[] = {"match", "prefixmatch", "search", "fullmatch", "findall", "split", "sub", "subn"};
constexpr std::string_view kMatchMethods[] = {"group", "groups", "groupdict", "start",
                                              "end",   "span",   "expand",    "__getitem__"};

}  // namespace

V text_method(TraceRun& t, const V& owner, const std::string& name, const std::vector<V>& positional,
              const Keywords& keywords) {
  auto* held = as<ObjectValue>(owner);
  if (!held) return nullptr;
  PyObject* object = held->object.get();
  auto with = [&](std::vector<V> operands) {
    operands.insert(operands.end(), positional.begin(), positional.end());
    return operands;
  };
  auto method = [&] {
    return t.keep(Ref<>::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), name.c_str())));
  };
  if (is_pattern(object) || is_match(object)) {
    auto known = [&](auto& names) { return std::find(std::begin(names), std::end(names), name) != std::end(names); };
    if (!keywords.empty() || !(is_pattern(object) ? known(kPatternMethods) : known(kMatchMethods))) return nullptr;
    if (PyObject_HasAttrString(object, name.c_str()) == 0) return nullptr;  // `prefixmatch` began with 3.15
    std::vector<V> operands = with({owner});
    for (V& operand : operands) operand = count_or_place(t, operand);
    return made_by(t, method().get(), operands);
  }
  if (!PyUnicode_CheckExact(object)) return nullptr;
  if (name == "format" && has_fixed_widths(t, owner, false)) {
    std::vector<V> operands = with({owner, t.integer(std::int64_t(positional.size()))});
    for (auto& [key, value] : keywords) {
      operands.push_back(t.string(key));
      operands.push_back(value);
    }
    return result_of(t, c_function<formatted_by_fields>("fields"), operands);
  }
  // "_".join(parts)
  if (name == "join" && positional.size() == 1 && keywords.empty() &&
      (positional[0]->kind == ValueKind::List || positional[0]->kind == ValueKind::Tuple)) {
    std::vector<V> operands{owner};
    for (const V& item : t.sequence_items(positional[0])) operands.push_back(item);
    return result_of(t, c_function<joined>("join"), operands);
  }
  // A codec may be anybody's Python.
  if (!keywords.empty() || (name == "encode" && !positional.empty())) return nullptr;
  const std::vector<V> operands = with({owner});
  if (std::none_of(operands.begin(), operands.end(), [&](const V& operand) { return changes(t, operand); }))
    return nullptr;
  Ref<> function = method();
  PyErr_Clear();
  return function && Py_TYPE(function.get()) == &PyMethodDescr_Type ? result_of(t, function.get(), operands) : nullptr;
}

V format_percent(TraceRun& t, const V& format, const V& value) {
  PyObject* text = format->kind == ValueKind::Object ? as<ObjectValue>(format)->object.get() : nullptr;
  if (!text || !PyUnicode_CheckExact(text)) return nullptr;
  if (V made = changing_percent(t, format, value)) return made;
  t.constant_object(format);
  // A tuple is the arguments, whatever its class; a mapping may give some by name and leave others; anything else is
  // the one argument.
  V part = builtin_part(t, value);
  Ref<> given = readable_object(t, part && part->kind == ValueKind::Tuple ? part : value);
  if (proxied(given.get())) {
    PyTypeObject* type = t.type_of(value);
    const bool mapping =
        type->tp_as_mapping && type->tp_as_mapping->mp_subscript && !PyType_IsSubtype(type, &PyUnicode_Type);
    if (!mapping) given = Ref<>::steal(PyTuple_Pack(1, given.get()));
  }
  Ref<> result = Ref<>::steal(PyUnicode_Format(text, given.get()));
  check_proxies();
  if (!result) {
    // A proxy is no number, which the value it answers for may be.
    const bool plain =
        PyTuple_CheckExact(given.get())
            ? std::all_of(&PyTuple_GET_ITEM(given.get(), 0),
                          &PyTuple_GET_ITEM(given.get(), 0) + PyTuple_GET_SIZE(given.get()), is_plain_operand)
            : is_plain_operand(given.get());
    if (!plain || !t.constant_object(value)) break_graph(BreakReason::ErrorWhileTracing, take_error());
    raise_python_error(t);
  }
  return wrap_constant(t, t.keep(result).get());
}

Ref<> readable_object(TraceRun& tracer, const V& value) {
  const Nesting nesting;
  auto sequence = [&](const std::vector<V>& items) {
    Ref<> list = Ref<>::steal(PyList_New(Py_ssize_t(items.size())));
    for (std::size_t i = 0; i < items.size(); ++i) {
      Ref<> item = readable_object(tracer, items[i]);
      PyList_SET_ITEM(list.get(), Py_ssize_t(i), Py_NewRef(item.get()));
    }
    return list;
  };
  switch (value->kind) {
    case ValueKind::SymInt: return tracer.constant_object(tracer.integer(*tracer.constant_int(value)));
    case ValueKind::Object: {
      PyObject* object = tracer.constant_object(value);
      note_text_of_class(tracer, value);
      if (object && PyType_Check(object)) refuse_assigned_class(tracer, reinterpret_cast<PyTypeObject*>(object));
      return object && has_constant_text(object) ? Ref<>::borrow(object) : make_proxy(tracer, value);
    }
    case ValueKind::Tuple: {
      auto& tuple = *as<TupleValue>(value);
      Ref<> list = sequence(tracer.sequence_items(value));
      if (tuple.view_of) {
        // Only their text differs from a list's; and that they are of a dict.
        Ref<> dict = readable_object(tracer, tuple.view_of);
        const char* method = tuple.type.get() == reinterpret_cast<PyObject*>(&PyDictItems_Type)  ? "items"
                             : tuple.type.get() == reinterpret_cast<PyObject*>(&PyDictKeys_Type) ? "keys"
                                                                                                : "values";
        return Ref<>::steal(PyObject_CallMethod(dict.get(), method, nullptr));
      }
      Ref<> items = Ref<>::steal(PyList_AsTuple(list.get()));
      if (!tuple.type) return items;
      Ref<> whole = Ref<>::steal(PyTuple_Pack(1, items.get()));
      return Ref<>::steal(PyTuple_Type.tp_new(reinterpret_cast<PyTypeObject*>(tuple.type.get()), whole.get(), nullptr));
    }
    case ValueKind::List: {
      auto& list = *as<ListValue>(value);
      Ref<> items = sequence(list.items);
      if (!list.type) return items;
      Ref<> longest = list.longest ? Ref<>::steal(PyLong_FromLongLong(*list.longest)) : Ref<>::borrow(Py_None);
      return Ref<>::steal(PyObject_CallFunctionObjArgs(list.type.get(), items.get(), longest.get(), nullptr));
    }
    case ValueKind::Dict: {
      auto& dict = *as<DictValue>(value);
      open(tracer, dict);
      Ref<> real = Ref<>::steal(PyDict_New());
      for (auto& [key, item] : dict.items) {
        // Keys are real objects or proxies already; as text the object itself has to answer.
        Ref<> readable = readable_object(tracer, item);
        if (PyDict_SetItem(real.get(), key.get(), readable.get()) < 0) raise_python_error(tracer);
      }
      if (!dict.type) return real;
      if (dict.type.get() == reinterpret_cast<PyObject*>(&PyODict_Type))
        return Ref<>::steal(PyObject_CallOneArg(dict.type.get(), real.get()));
      Ref<> factory = dict.default_factory ? readable_object(tracer, dict.default_factory) : Ref<>::borrow(Py_None);
      if (proxied(factory.get())) break_graph(BreakReason::UnsupportedObject, "the text of a defaultdict's factory");
      return Ref<>::steal(PyObject_CallFunctionObjArgs(dict.type.get(), factory.get(), real.get(), nullptr));
    }
    case ValueKind::Set: return as<SetValue>(value)->real;
    case ValueKind::Slice: {
      auto& slice = *as<SliceValue>(value);
      Ref<> start = readable_object(tracer, slice.start), stop = readable_object(tracer, slice.stop),
            step = readable_object(tracer, slice.step);
      return Ref<>::steal(PySlice_New(start.get(), stop.get(), step.get()));
    }
    case ValueKind::Range: {
      auto& range = *as<RangeValue>(value);
      auto number = [&](const SymDim& bound) {
        return Ref<>::steal(PyLong_FromLongLong(*tracer.constant_int(tracer.integer(bound))));
      };
      Ref<> start = number(range.start), stop = number(range.stop), step = number(SymDim(range.step));
      return Ref<>::steal(PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(&PyRange_Type), start.get(),
                                                       stop.get(), step.get(), nullptr));
    }
    default: return make_proxy(tracer, value);
  }
}

}  // namespace fj
