// A bound method as CPython's own, in all but `using`, which its function would answer without the object.
// `object.f(x)` never makes one: compiled functions are method descriptors.
#include "frame_hook/compiled_method.h"

#include <structmember.h>

#include <vector>

#include "cpython/ref.h"

namespace fj {

namespace {

struct CompiledMethod {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject *function, *self;
  PyObject* weak_references;
};

CompiledMethod* method_of(PyObject* object) { return reinterpret_cast<CompiledMethod*>(object); }

PyObject* call(PyObject* object, PyObject* const* args, std::size_t nargsf, PyObject* kwnames) {
  CompiledMethod* method = method_of(object);
  Ref<> function = Ref<>::borrow(method->function), self = Ref<>::borrow(method->self);
  const std::size_t count =
      std::size_t(PyVectorcall_NARGS(nargsf)) + std::size_t(kwnames != nullptr ? PyTuple_GET_SIZE(kwnames) : 0);
  if (nargsf & PY_VECTORCALL_ARGUMENTS_OFFSET) {
    // The entry before the arguments is ours to use for the time of the call.
    PyObject** place = const_cast<PyObject**>(args) - 1;
    PyObject* before = *place;
    *place = self.get();
    PyObject* result = PyObject_Vectorcall(function.get(), place, std::size_t(PyVectorcall_NARGS(nargsf)) + 1, kwnames);
    *place = before;
    return result;
  }
  std::vector<PyObject*> all{self.get()};
  all.insert(all.end(), args, args + count);
  return PyObject_Vectorcall(function.get(), all.data(), std::size_t(PyVectorcall_NARGS(nargsf)) + 1, kwnames);
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(method_of(object)->function);
  Py_VISIT(method_of(object)->self);
  return 0;
}

void deallocate(PyObject* object) {
  PyObject_GC_UnTrack(object);
  if (method_of(object)->weak_references != nullptr) PyObject_ClearWeakRefs(object);
  Py_XDECREF(method_of(object)->function);
  Py_XDECREF(method_of(object)->self);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* get_attribute(PyObject* object, PyObject* name) {
  // As of a compiled function: the class may have got a dict under this name.
  if (PyUnicode_CompareWithASCIIString(name, "__annotations__") == 0)
    return PyObject_GetAttr(method_of(object)->function, name);
  PyObject* own = PyObject_GenericGetAttr(object, name);
  if (own != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) return own;
  PyErr_Clear();
  return PyObject_GetAttr(method_of(object)->function, name);
}

PyObject* compare(PyObject* a, PyObject* b, int comparison) {
  if ((comparison != Py_EQ && comparison != Py_NE) || Py_TYPE(a) != Py_TYPE(b)) Py_RETURN_NOTIMPLEMENTED;
  const bool same = method_of(a)->function == method_of(b)->function && method_of(a)->self == method_of(b)->self;
  return PyBool_FromLong(same == (comparison == Py_EQ));
}

Py_hash_t hash(PyObject* object) {
  const Py_hash_t value = _Py_HashPointer(method_of(object)->self) ^ PyObject_Hash(method_of(object)->function);
  return value == -1 ? -2 : value;
}

PyObject* represent(PyObject* object) {
  Ref<> name = Ref<>::steal(PyObject_GetAttrString(method_of(object)->function, "__qualname__"));
  return name ? PyUnicode_FromFormat("<compiled method %S of %R>", name.get(), method_of(object)->self) : nullptr;
}

PyObject* using_options(PyObject* object, PyObject* args, PyObject* keywords) {
  Ref<> variant_of = Ref<>::steal(PyObject_GetAttrString(method_of(object)->function, "using"));
  Ref<> variant = variant_of ? Ref<>::steal(PyObject_Call(variant_of.get(), args, keywords)) : Ref<>();
  return variant ? new_compiled_method(variant.get(), method_of(object)->self) : nullptr;
}

PyObject* reduce(PyObject* object, PyObject*) {
  Ref<> package = Ref<>::steal(PyImport_ImportModule("framejit"));
  return package ? PyObject_CallMethod(package.get(), "_reduce_method", "OO", method_of(object)->function,
                                       method_of(object)->self)
                 : nullptr;
}

/// Without these two the function's would be found, which are given no object.
PyObject* copy(PyObject* object, PyObject*) { return Py_NewRef(object); }

PyObject* deepcopy(PyObject* object, PyObject* memo) {
  Ref<> module = Ref<>::steal(PyImport_ImportModule("copy"));
  Ref<> self = module ? Ref<>::steal(PyObject_CallMethod(module.get(), "deepcopy", "OO", method_of(object)->self, memo))
                      : Ref<>();
  return self ? new_compiled_method(method_of(object)->function, self.get()) : nullptr;
}

PyObject* get_class(PyObject*, void*) { return Py_NewRef(reinterpret_cast<PyObject*>(&PyMethod_Type)); }

/// These exist on every type, so they have to be forwarded by name.
PyObject* get_forwarded(PyObject* object, void* name) {
  return PyObject_GetAttrString(method_of(object)->function, static_cast<const char*>(name));
}

PyMethodDef methods[] = {
    {"using", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(using_options)), METH_VARARGS | METH_KEYWORDS,
     "using(**options)\n--\n\nThe same method compiled with other options, for this call site."},
    {"__reduce__", reduce, METH_NOARGS, nullptr},
    {"__copy__", copy, METH_NOARGS, nullptr},
    {"__deepcopy__", deepcopy, METH_O, nullptr},
    {},
};

PyGetSetDef getters[] = {
    // isinstance(method, types.MethodType) and inspect.ismethod hold, as of any bound method.
    {"__class__", get_class, nullptr, nullptr, nullptr},
    {"__doc__", get_forwarded, nullptr, nullptr, const_cast<char*>("__doc__")},
    {"__name__", get_forwarded, nullptr, nullptr, const_cast<char*>("__name__")},
    {"__qualname__", get_forwarded, nullptr, nullptr, const_cast<char*>("__qualname__")},
    {"__module__", get_forwarded, nullptr, nullptr, const_cast<char*>("__module__")},
    {},
};

PyMemberDef members[] = {
    {"__func__", T_OBJECT, offsetof(CompiledMethod, function), READONLY, nullptr},
    {"__self__", T_OBJECT, offsetof(CompiledMethod, self), READONLY, nullptr},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CompiledMethod, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CompiledMethod, weak_references), READONLY, nullptr},
    {},
};

template <class Function>
void* slot(Function function) {
  return reinterpret_cast<void*>(function);
}

PyTypeObject* method_type() {
  static PyTypeObject* type = nullptr;
  if (type != nullptr) return type;
  PyType_Slot slots[] = {
      {Py_tp_call, slot(PyVectorcall_Call)}, {Py_tp_traverse, slot(traverse)},  {Py_tp_dealloc, slot(deallocate)},
      {Py_tp_getattro, slot(get_attribute)}, {Py_tp_richcompare, slot(compare)}, {Py_tp_hash, slot(hash)},
      {Py_tp_repr, slot(represent)},         {Py_tp_methods, methods},          {Py_tp_getset, getters},
      {Py_tp_members, members},              {0, nullptr},
  };
  PyType_Spec spec = {
      "framejit.CompiledMethod", sizeof(CompiledMethod), 0,
      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  return type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

}  // namespace

PyObject* new_compiled_method(PyObject* function, PyObject* self) {
  PyTypeObject* type = method_type();
  auto* method = type != nullptr ? reinterpret_cast<CompiledMethod*>(type->tp_alloc(type, 0)) : nullptr;
  if (method == nullptr) return nullptr;
  method->vectorcall = call;
  method->function = Py_NewRef(function);
  method->self = Py_NewRef(self);
  return reinterpret_cast<PyObject*>(method);
}

}  // namespace fj
