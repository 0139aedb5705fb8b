/// Classes made in the trace: the class statement and type(name, bases, namespace).
///
/// The body runs symbolically. The class itself is made for real while tracing, so that lookups in it are CPython's
/// own, with functions that stand for the functions of the trace (`identity->functions`): whoever finds one gets the
/// Value it stands for. It never leaves the trace: where it, or an instance of it, would be live at an exit, the trace
/// ends before the statement.
#include "tracer/values/classes/class_statement.h"

#include "runtime/base/error.h"
#include "tracer/interpreter/scopes.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/state/class_ledger.h"
#include "tracer/state/identity.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/containers/containers.h"
#include "tracer/values/outside_objects.h"

namespace fj {

/// A real function in the place of one of the trace, for namespaces of classes made here.
static Ref<> stand_in(TraceRun& t, FunctionValue& function, const V& value);

Ref<> stand_in(TraceRun& t, FunctionValue& function, const V& value) {
  for (auto& [object, known] : t.identity->functions)
    if (known == value) return Ref<>::borrow(object);
  Ref<> made = Ref<>::steal(PyFunction_NewWithQualName(reinterpret_cast<PyObject*>(function.code.get()),
                                                       function.globals.get(), function.qualname.get()));
  const Py_ssize_t free_count = Py_ssize_t(function.closure.size());
  Ref<> closure = Ref<>::steal(PyTuple_New(free_count));
  for (Py_ssize_t i = 0; i < free_count; ++i) PyTuple_SET_ITEM(closure.get(), i, PyCell_New(nullptr));
  if (!made || (free_count && PyFunction_SetClosure(made.get(), closure.get()) < 0))
    break_graph(BreakReason::ErrorWhileTracing, take_error());
  t.identity->functions.emplace(t.keep(made).get(), value);
  return made;
}

namespace {

/// property(f), staticmethod(f), classmethod(f)
bool is_wrapper_type(PyTypeObject* type) {
  return type == &PyProperty_Type || type == &PyStaticMethod_Type || type == &PyClassMethod_Type;
}

/// What a class's namespace holds: constants, functions as stand-ins. Null: something that would have to be made anew
/// each time.
Ref<> real_member(TraceRun& t, const V& value) {
  if (auto* function = as<FunctionValue>(value)) return stand_in(t, *function, value);
  if (PyObject* constant = t.constant_object(value)) return Ref<>::borrow(constant);
  auto* object = as<ObjectValue>(value);
  if (!object) return {};
  if (object->source && object->source->kind != SourceKind::Constant)
    add_guard(t, GuardKind::Identity, object->source, object->object.get());
  return object->object;
}

/// The dict of a class body's annotations: a look at it ends the graph (refuse_made_annotations). Null: as above.
Ref<> real_annotations(TraceRun& t, const V& value) {
  auto* dict = as<DictValue>(value);
  if (!dict || dict->type || dict->source) return real_member(t, value);
  Ref<> made = Ref<>::steal(PyDict_New());
  for (auto& [name, annotation] : dict->items) {
    Ref<> real = real_member(t, annotation);
    if (!real || PyDict_SetItem(made.get(), name.get(), real.get()) < 0) return {};
  }
  return made;
}

bool runs_code_when_derived(TraceRun& t, PyTypeObject* base) {
  static PyObject* const name = PyUnicode_InternFromString("__init_subclass__");
  PyObject* found = class_attribute(t, base, name);
  return found && (PyFunction_Check(found) || Py_TYPE(found) == &PyClassMethod_Type);
}

}  // namespace

bool is_annotations(PyObject* name) {
  return PyUnicode_Check(name) && (PyUnicode_CompareWithASCIIString(name, "__annotations__") == 0 ||
                                   PyUnicode_CompareWithASCIIString(name, "__annotate__") == 0);
}

void refuse_made_annotations(TraceRun& t, PyTypeObject* type) {
  static PyObject* const name = PyUnicode_InternFromString("__annotations__");
  static PyObject* const giver = PyUnicode_InternFromString("__annotate_func__");
  for (Py_ssize_t i = 0; type->tp_mro && i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    PyObject* base = PyTuple_GET_ITEM(type->tp_mro, i);
    PyObject* const members = reinterpret_cast<PyTypeObject*>(base)->tp_dict;
    if (made_class_at(t, base) && (PyDict_Contains(members, name) == 1 || PyDict_Contains(members, giver) == 1))
      break_graph(BreakReason::UnsupportedBytecode, "the annotations of a class that is made here");
  }
}

V make_class_wrapper(TraceRun& t, PyTypeObject* type, const std::vector<V>& positional, const Keywords& keywords) {
  if (!is_wrapper_type(type) || !keywords.empty()) return nullptr;
  bool any_made = false;
  Ref<> arguments = Ref<>::steal(PyTuple_New(Py_ssize_t(positional.size())));
  for (std::size_t i = 0; i < positional.size(); ++i) {
    any_made = any_made || positional[i]->kind == ValueKind::Function;
    Ref<> member = real_member(t, positional[i]);
    if (!member) return nullptr;
    PyTuple_SET_ITEM(arguments.get(), Py_ssize_t(i), Py_NewRef(member.get()));
  }
  Ref<> made =
      any_made ? Ref<>::steal(PyObject_CallObject(reinterpret_cast<PyObject*>(type), arguments.get())) : Ref<>();
  if (!made) {
    PyErr_Clear();
    return nullptr;
  }
  t.classes->made.emplace(t.keep(made).get(), current_step);
  auto value = std::make_shared<ObjectValue>(made);
  return value;
}

V make_class(TraceRun& t, const std::string& name, const std::vector<V>& bases,
             const std::vector<std::pair<Ref<>, V>>& members) {
  Ref<> real_bases = Ref<>::steal(PyTuple_New(Py_ssize_t(bases.size())));
  for (std::size_t i = 0; i < bases.size(); ++i) {
    PyObject* base = t.constant_object(bases[i]);
    if (!base || !PyType_Check(base) || Py_TYPE(base) != &PyType_Type ||
        runs_code_when_derived(t, reinterpret_cast<PyTypeObject*>(base)))
      break_graph(BreakReason::UnsupportedBytecode, "a class statement with such a base");
    PyTuple_SET_ITEM(real_bases.get(), Py_ssize_t(i), Py_NewRef(base));
  }
  static PyObject* const set_name = PyUnicode_InternFromString("__set_name__");
  Ref<> space = Ref<>::steal(PyDict_New());
  V class_cell;
  for (auto& [key, value] : members) {
    if (value->kind == ValueKind::Cell) {
      if (PyUnicode_CompareWithASCIIString(key.get(), "__classcell__") == 0) class_cell = value;
      continue;
    }
    Ref<> member = is_annotations(key.get()) ? real_annotations(t, value) : real_member(t, value);
    if (!member || fj_type_lookup(Py_TYPE(member.get()), set_name))
      break_graph(BreakReason::UnsupportedBytecode, "a class statement that makes " + describe(value));
    PyDict_SetItem(space.get(), key.get(), member.get());
  }
  Ref<> text = Ref<>::steal(PyUnicode_FromString(name.c_str()));
  Ref<> made = Ref<>::steal(PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(&PyType_Type), text.get(),
                                                         real_bases.get(), space.get(), nullptr));
  if (!made) break_graph(BreakReason::ErrorWhileTracing, take_error());
  t.classes->made.emplace(t.keep(made).get(), current_step);
  V value = wrap_constant(t, made.get());
  if (class_cell) set_cell(t, class_cell, value);
  return value;
}

V build_class(TraceRun& t, const std::vector<V>& positional, const Keywords& keywords) {
  auto* body = positional.size() >= 2 ? as<FunctionValue>(positional[0]) : nullptr;
  PyObject* name = body ? t.constant_object(positional[1]) : nullptr;
  if (!body || !name || !PyUnicode_Check(name) || !keywords.empty())
    break_graph(BreakReason::UnsupportedBytecode, "a class statement");
  auto frame = std::make_shared<Frame>();
  frame->code = t.decodes.get(body->code.get());
  frame->co = body->code.get();
  frame->globals = body->globals;
  frame->builtins = t.frames.back()->builtins;
  frame->closure = body->closure;
  frame->slots.resize(std::size_t(frame->co->co_nlocalsplus));
  frame->names = std::make_shared<DictValue>();
  t.run_frame(*frame);
  return make_class(t, text_of(name), {positional.begin() + 2, positional.end()}, frame->names->items);
}

std::optional<int> made_class_at(TraceRun& t, PyObject* object) {
  auto known = t.classes->made.find(object);
  return known == t.classes->made.end() ? std::nullopt : std::optional<int>(known->second);
}

}  // namespace fj
