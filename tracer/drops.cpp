/// Follows the references as freeing would: an object is freed when as many references have gone as it has; then those it
/// holds go. Nothing is changed and no code runs.
#include "tracer/drops.h"

#include <unordered_map>
#include <vector>

#include "tracer/frontends/arrays/arrays.h"
#include "tracer/interpreter.h"

namespace fj {
namespace {

/// Freed without a trace, holding nothing of the user's.
bool is_leaf(PyObject* object) { return is_plain(object) || array_library(object).has_value(); }

bool has_callback(PyObject* object) {
  if (!PyType_SUPPORTS_WEAKREFS(Py_TYPE(object))) return false;
  auto* reference = reinterpret_cast<PyWeakReference*>(*PyObject_GET_WEAKREFS_LISTPTR(object));
  for (; reference; reference = reference->wr_next)
    if (reference->wr_callback) return true;
  return false;
}

/// A generator that would be closed where it stands, inside a try or with.
bool may_have_to_close(PyObject* object) {
  Ref<> frame = Ref<>::steal(PyObject_GetAttrString(object, PyGen_CheckExact(object) ? "gi_frame" : "cr_frame"));
  PyErr_Clear();
  if (!frame) return true;
  if (frame.get() == Py_None) return false;
  auto* code = PyFrame_GetCode(reinterpret_cast<PyFrameObject*>(frame.get()));
  const bool handles = PyBytes_GET_SIZE(code->co_exceptiontable) != 0;
  Py_DECREF(code);
  return handles;
}

bool ends_quietly(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (has_callback(object) || type->tp_del) return false;
  if (!type->tp_finalize) return true;
  return (PyGen_CheckExact(object) || PyCoro_CheckExact(object)) && !may_have_to_close(object);
}

struct Walk {
  std::unordered_map<PyObject*, Py_ssize_t> gone;
  std::vector<PyObject*> freed;

  void drop(PyObject* object, Py_ssize_t references) {
    if (is_leaf(object)) return;
    Py_ssize_t& count = gone[object];
    const bool before = count >= Py_REFCNT(object);
    count += references;
    if (!before && count >= Py_REFCNT(object)) freed.push_back(object);
  }
};

}  // namespace

bool has_finalizer(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  return type->tp_flags & Py_TPFLAGS_HEAPTYPE && type->tp_finalize && !is_leaf(object);
}

bool drops_quietly(std::span<const Drop> drops) {
  Walk walk;
  for (const Drop& drop : drops) walk.drop(drop.object, drop.references);
  while (!walk.freed.empty()) {
    PyObject* object = walk.freed.back();
    walk.freed.pop_back();
    if (!ends_quietly(object)) return false;
    PyTypeObject* type = Py_TYPE(object);
    if (!PyType_IS_GC(type) || !type->tp_traverse) continue;
    type->tp_traverse(object, [](PyObject* held, void* place) {
      static_cast<Walk*>(place)->drop(held, 1);
      return 0;
    }, &walk);
  }
  return true;
}

}  // namespace fj
