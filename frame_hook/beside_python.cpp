#include "frame_hook/beside_python.h"

#include "cpython/objects.h"
#include "frame_hook/dispatch.h"

namespace fj {
namespace {

thread_local bool inside = false;

Ref<> tuple_of(PyObject* const* items, Py_ssize_t count) {
  Ref<> tuple = Ref<>::steal(PyTuple_New(count));
  for (Py_ssize_t i = 0; tuple && i < count; ++i) PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(items[i]));
  return tuple;
}

/// The object that is told what the compiled call gives, or None; null: a Python error is set.
Ref<> begin(PyFunctionObject* function, PyObject* const* args, std::size_t nargsf, PyObject* kwnames) {
  PyObject* const helper = once([] { return imported("framejit._beside_python", "beside_python").release(); });
  const Py_ssize_t count = PyVectorcall_NARGS(nargsf);
  Ref<> positional = tuple_of(args, count), named = Ref<>::steal(PyDict_New());
  for (Py_ssize_t i = 0; named && kwnames && i < PyTuple_GET_SIZE(kwnames); ++i)
    if (PyDict_SetItem(named.get(), PyTuple_GET_ITEM(kwnames, i), args[count + i]) < 0) return {};
  if (!helper || !positional || !named) return {};
  return Ref<>::steal(PyObject_CallFunctionObjArgs(helper, reinterpret_cast<PyObject*>(function), positional.get(),
                                                   named.get(), nullptr));
}

Ref<> tell(PyObject* compared, const char* method, PyObject* what) {
  Ref<> bound = Ref<>::steal(PyObject_GetAttrString(compared, method));
  return bound ? Ref<>::steal(PyObject_CallOneArg(bound.get(), what)) : Ref<>();
}

}  // namespace

bool is_beside_python() { return inside; }

PyObject* call_beside_python(FunctionState& state, PyFunctionObject* function, PyObject* const* args,
                             std::size_t nargsf, PyObject* kwnames) {
  inside = true;
  Ref<> compared = begin(function, args, nargsf, kwnames);
  Ref<> result = compared ? Ref<>::steal(call_compiled(state, function, args, nargsf, kwnames)) : Ref<>();
  inside = false;
  if (!compared || compared.get() == Py_None) return result.release();
  if (result) {
    Ref<> told = tell(compared.get(), "returned", result.get());
    return told ? result.release() : nullptr;
  }
  PyObject *kind, *error, *traceback;
  PyErr_Fetch(&kind, &error, &traceback);
  PyErr_NormalizeException(&kind, &error, &traceback);
  Ref<> told = tell(compared.get(), "raised", error);
  if (told) {
    PyErr_Restore(kind, error, traceback);
  } else {
    Py_XDECREF(kind), Py_XDECREF(error), Py_XDECREF(traceback);
  }
  return nullptr;
}

}  // namespace fj
