// A heap type with vectorcall, written against the C API because every call goes through it.
#include "frame_hook/compiled_function.h"

#include <structmember.h>

#include <cstring>
#include <set>
#include <utility>

#include "frame_hook/compiled_method.h"
#include "runtime/allocator.h"

namespace fj {

namespace {

struct CompiledFunction {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* function;   // a PyFunctionObject
  PyObject* weak_references;
  FunctionState* state;
};

PyTypeObject* type = nullptr;
std::set<FunctionState*>& live() {
  static std::set<FunctionState*> live;  // changed with the GIL held
  return live;
}

CompiledFunction* self_of(PyObject* object) { return reinterpret_cast<CompiledFunction*>(object); }

PyObject* call(PyObject* self, PyObject* const* args, std::size_t nargsf, PyObject* kwnames) {
  // The object may be dropped by what it calls.
  Ref<> alive = Ref<>::borrow(self);
  CompiledFunction* compiled = self_of(self);
  return call_compiled(*compiled->state, reinterpret_cast<PyFunctionObject*>(compiled->function), args, nargsf,
                       kwnames);
}

PyObject* bind_method(PyObject* self, PyObject* object, PyObject*) {
  return object == nullptr || object == Py_None ? Py_NewRef(self) : new_compiled_method(self, object);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(self_of(self)->function);
  if (const FunctionState* state = self_of(self)->state; state != nullptr) {
    Py_VISIT(state->backend.get());
    Py_VISIT(state->passes.get());
    for (const auto& cache : state->caches)
      if (const int stop = cache->traverse(visit, arg)) return stop;
    return state->reached->traverse(visit, arg);
  }
  return 0;
}

int clear(PyObject* self) {
  // The function stays: a cleared object can still be called by a finalizer. Cycles are broken at the function itself,
  // whose closure and globals it clears.
  if (FunctionState* state = self_of(self)->state; state != nullptr) {
    std::vector<std::shared_ptr<const void>> gone{state->reached->take()};
    for (auto& cache : std::exchange(state->caches, {})) gone.push_back(std::move(cache));
    Running::drop(std::move(gone));
  }
  return 0;
}

void deallocate(PyObject* self) {
  PyObject_GC_UnTrack(self);
  CompiledFunction* compiled = self_of(self);
  if (compiled->weak_references != nullptr) PyObject_ClearWeakRefs(self);
  live().erase(compiled->state);
  delete compiled->state;
  Py_XDECREF(compiled->function);
  PyTypeObject* own_type = Py_TYPE(self);
  own_type->tp_free(self);
  Py_DECREF(own_type);
}

/// Own attributes first, then the function's: f.__code__, f.__defaults__, whatever the user has put there. The module
/// is the function's too, but not by a descriptor: the type has one of its own, a name, which `help(framejit)` sorts
/// by. So are the annotations: CPython puts a dict among the attributes of a class that is asked for its own (a
/// protocol's isinstance asks each).
PyObject* get_attribute(PyObject* self, PyObject* name) {
  for (const char* forwarded : {"__module__", "__annotations__"})
    if (PyUnicode_CompareWithASCIIString(name, forwarded) == 0) return PyObject_GetAttr(self_of(self)->function, name);
  PyObject* own = PyObject_GenericGetAttr(self, name);
  if (own != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) return own;
  PyErr_Clear();
  return PyObject_GetAttr(self_of(self)->function, name);
}

int set_attribute(PyObject* self, PyObject* name, PyObject* value) {
  return PyObject_SetAttr(self_of(self)->function, name, value);
}

PyObject* get_wrapped(PyObject* self, void*) { return Py_NewRef(self_of(self)->function); }

/// __doc__, __name__ and the like exist on every type, so they have to be forwarded by name.
PyObject* get_forwarded(PyObject* self, void* name) {
  return PyObject_GetAttrString(self_of(self)->function, static_cast<const char*>(name));
}

/// A function's class, as bound methods say they are methods: inspect, torch.fx, torch.jit and torch.compile look into
/// nothing else. cloudpickle would write such a function down by its code, uncompiled; where it asks, the class is the
/// object's own, whose __reduce__ it then calls.
PyObject* get_class(PyObject* self, void*) {
  PyObject* globals = PyEval_GetGlobals();
  PyObject* asks = globals != nullptr ? PyDict_GetItemString(globals, "__name__") : nullptr;
  const char* name = asks != nullptr && PyUnicode_Check(asks) ? PyUnicode_AsUTF8(asks) : nullptr;
  if (name == nullptr) PyErr_Clear();
  const bool by_code = name != nullptr && std::strstr(name, "cloudpickle") != nullptr;
  return Py_NewRef(reinterpret_cast<PyObject*>(by_code ? Py_TYPE(self) : &PyFunction_Type));
}

PyObject* represent(PyObject* self) {
  Ref<> name = Ref<>::steal(PyObject_GetAttrString(self_of(self)->function, "__qualname__"));
  return name ? PyUnicode_FromFormat("<compiled function %S at %p>", name.get(), self) : nullptr;
}

PyObject* package_function(const char* name) {
  Ref<> package = Ref<>::steal(PyImport_ImportModule("framejit"));
  return package ? PyObject_GetAttrString(package.get(), name) : nullptr;
}

PyObject* reduce(PyObject* self, PyObject*) {
  Ref<> reducer = Ref<>::steal(package_function("_reduce_function"));
  return reducer ? PyObject_CallOneArg(reducer.get(), self) : nullptr;
}

PyObject* same(PyObject* self, PyObject*) { return Py_NewRef(self); }

PyObject* using_options(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
  Ref<> variant = Ref<>::steal(package_function("_using"));
  if (!variant) return nullptr;
  std::vector<PyObject*> all{self};
  const Py_ssize_t keywords = kwnames != nullptr ? PyTuple_GET_SIZE(kwnames) : 0;
  all.insert(all.end(), args, args + count + keywords);
  return PyObject_Vectorcall(variant.get(), all.data(), std::size_t(count + 1), kwnames);
}

PyMethodDef methods[] = {
    {"using", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(using_options)), METH_FASTCALL | METH_KEYWORDS,
     "using(**options)\n--\n\nThe same function compiled with other options, for this call site."},
    {"__reduce__", reduce, METH_NOARGS, nullptr},
    {"__copy__", same, METH_NOARGS, nullptr},
    {"__deepcopy__", same, METH_O, nullptr},
    {},
};

/// Asked by the tracer: what it inlines a compiled function as is the function as written.
PyObject* get_is_edited(PyObject* self, void*) { return PyBool_FromLong(bool(self_of(self)->state->passes)); }

PyGetSetDef getters[] = {
    {"__class__", get_class, nullptr, nullptr, nullptr},
    {"__framejit_edited__", get_is_edited, nullptr, "Whether passes may edit its graphs.", nullptr},
    {"__wrapped__", get_wrapped, nullptr, "The function as written.", nullptr},
    {"__doc__", get_forwarded, nullptr, nullptr, const_cast<char*>("__doc__")},
    {"__name__", get_forwarded, nullptr, nullptr, const_cast<char*>("__name__")},
    {"__qualname__", get_forwarded, nullptr, nullptr, const_cast<char*>("__qualname__")},
    {"__dict__", get_forwarded, nullptr, nullptr, const_cast<char*>("__dict__")},
    {},
};

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CompiledFunction, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CompiledFunction, weak_references), READONLY, nullptr},
    {},
};

template <class Function>
void* slot(Function function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

PyTypeObject* compiled_function_type() {
  if (type != nullptr) return type;
  PyType_Slot slots[] = {
      {Py_tp_call, slot(PyVectorcall_Call)},       {Py_tp_descr_get, slot(bind_method)},
      {Py_tp_traverse, slot(traverse)},            {Py_tp_clear, slot(clear)},
      {Py_tp_dealloc, slot(deallocate)},           {Py_tp_getattro, slot(get_attribute)},
      {Py_tp_setattro, slot(set_attribute)},       {Py_tp_repr, slot(represent)},
      {Py_tp_methods, methods},                    {Py_tp_getset, getters},
      {Py_tp_members, members},                    {0, nullptr},
  };
  PyType_Spec spec = {"framejit.CompiledFunction", sizeof(CompiledFunction), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                          Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      slots};
  return type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

bool is_compiled_function(PyObject* object) { return type != nullptr && Py_IS_TYPE(object, type); }

Ref<> new_compiled_function(PyObject* function, Options options, Ref<> backend, Ref<> passes) {
  auto* compiled = reinterpret_cast<CompiledFunction*>(type->tp_alloc(type, 0));
  if (compiled == nullptr) return {};
  compiled->vectorcall = call;
  compiled->function = Py_NewRef(function);
  compiled->state = new FunctionState;
  compiled->state->options = std::move(options);
  compiled->state->backend = std::move(backend);
  compiled->state->passes = std::move(passes);
  Ref<> name = Ref<>::steal(PyObject_GetAttrString(function, "__qualname__"));
  const char* text = name ? PyUnicode_AsUTF8(name.get()) : nullptr;
  compiled->state->name = text != nullptr ? text : "?";
  PyErr_Clear();
  live().insert(compiled->state);
  return Ref<>::steal(reinterpret_cast<PyObject*>(compiled));
}

PyObject* wrapped_function(PyObject* compiled) { return self_of(compiled)->function; }
FunctionState& function_state(PyObject* compiled) { return *self_of(compiled)->state; }

void reset_all() {
  // What dies with a cache may compile, call compiled functions, let some die, and reset: only when all is empty.
  std::vector<std::shared_ptr<const void>> gone;
  for (FunctionState* state : live()) {
    for (auto& cache : std::exchange(state->caches, {})) gone.push_back(std::move(cache));
    gone.push_back(state->reached->take());
    state->events->clear();
  }
  Running::drop(std::move(gone));
  totals() = Totals{};
  trim_cache();
  CodeCache::reset_usage();
}

}  // namespace fj
